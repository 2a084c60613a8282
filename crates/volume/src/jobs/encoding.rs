//! Which history of a volume is encoded, and when a merge is due for it. How is in `packer`.

pub mod progress;

use std::sync::atomic::Ordering;

use format::pack::PackEncoding;
use history::{By, Content, Segment, Timeline};
use units::{BLOCK_BYTES, Seq, WallTime};

use crate::jobs::compactions::Wishes;
use crate::jobs::encoding::progress::EncodingState;
use crate::jobs::packer::{PackRule, Packed, Packer};
use crate::retention::Retention;
use crate::types::{Encoding, EncodingChange, EncodingInfo, EncodingSetting};
use crate::{Error, Result};

/// How long ago a version was written over before it is encoded, if nothing else is said.
const AGE_NS: u64 = 600_000_000_000;
/// A merge is due when this share of the logged entries waits to be looked at: 1 in 8 ...
const WAITING_SHARE: u64 = 8;
/// ... and at least so many ...
const WAITING_MIN: u64 = 1024;
/// ... or any after so long, in nanoseconds.
const PATIENCE_NS: u64 = 60_000_000_000;
/// No pack is begun with fewer free zones than this share of all: 1 in 16.
const FREE_SHARE: u32 = 16;

/// The setting that a change of another comes to; `None` is raw.
///
/// # Errors
/// `Invalid` for an age without an encoding.
pub fn setting(
    before: Option<EncodingSetting>,
    change: EncodingChange,
) -> Result<Option<EncodingSetting>> {
    let encoding = change.encoding.or(before.map(|setting| setting.encoding));
    match encoding {
        None | Some(Encoding::Raw) if change.after_ns.is_some() => {
            let text = "raw history is not encoded, so not after any time";
            Err(Error::invalid(text).with_hint("choose xor or delta"))
        }
        None | Some(Encoding::Raw) => Ok(None),
        Some(encoding) => {
            let after = change.after_ns.or(before.map(|setting| setting.after_ns));
            Ok(Some(EncodingSetting { encoding, after_ns: after.unwrap_or(AGE_NS) }))
        }
    }
}

impl Retention {
    /// After a change is committed: what was left by another encoding may pay now.
    pub(crate) fn encode_anew(&self) {
        *self.encoding().lock() = EncodingState::default();
    }

    /// How its history is encoded.
    pub(crate) fn encoding_info(&self) -> EncodingInfo {
        let setting = self.record.lock().encoding;
        let Packed { versions: packed, left, faults, .. } = self.encoding().lock().total;
        let space = self.core.store.space(self.id).count();
        EncodingInfo {
            setting,
            packed_bytes: space.packed_bytes,
            unpacked_bytes: space.packed_entries * BLOCK_BYTES,
            shadow_bytes: space.shadow_bytes,
            packed,
            left,
            faults,
        }
    }

    fn segments_of(&self, content: Content) -> impl Iterator<Item = std::sync::Arc<Segment>> {
        let segments = self.core.store.segments();
        let id = self.id;
        segments.into_iter().filter(move |s| s.log == id && s.content() == content)
    }

    /// Whether a pass for encoding's sake is due.
    pub(crate) fn wants_encoding(&self) -> Result<bool> {
        if self.compaction_queue().are_due(self.now().as_nanos()) && self.may_pack() {
            return Ok(true);
        }
        let Some(setting) = self.record.lock().encoding else { return Ok(false) };
        let now = self.now().as_nanos();
        let look = self.encoding().lock().look(now);
        let Some((begun_ns, begun_to)) = look else { return Ok(false) };
        if !self.may_pack() {
            return Ok(false);
        }
        let until = self.encoded_until(setting)?;
        let (mut waiting, mut all) = (0, 0);
        for segment in self.segments_of(Content::Logged) {
            let entries = segment.live_entries.load(Ordering::Acquire).max(0) as u64;
            all += entries;
            let sealed = segment.sealed.load(Ordering::Acquire);
            if sealed && begun_to < segment.last_seq() && segment.last_seq() <= until {
                waiting += entries;
            }
        }
        let is_late = now >= begun_ns.saturating_add(setting.after_ns.max(PATIENCE_NS));
        let many = (all / WAITING_SHARE).max(WAITING_MIN);
        Ok(waiting >= many || (until > begun_to && is_late))
    }

    /// Begins a pass: what was written over by now and is old enough is encoded in it. The caller
    /// holds `work`.
    pub(crate) fn begin_encoding(&self) -> Result<()> {
        self.begin_compactions()?;
        let Some(setting) = self.record.lock().encoding else { return Ok(()) };
        let until = self.encoded_until(setting)?;
        let flushed = |volume: &Retention| Seq(volume.record.lock().flushed_seq);
        if until > flushed(self) && self.may_pack() {
            // Entries in memory are not in the runs that are merged. Without room for a run they
            // wait on: the merges to come make some.
            self.flush_map_if_room()?;
        }
        let until = until.min(flushed(self));
        // Before: "now" is the log's, and who has closed its gate asks for the state.
        let begun_ns = self.now().as_nanos();
        self.encoding().lock().begin(begun_ns, until);
        Ok(())
    }

    /// The last seq that is old enough.
    fn encoded_until(&self, setting: EncodingSetting) -> Result<Seq> {
        let age = WallTime::from_nanos(self.now().as_nanos().saturating_sub(setting.after_ns));
        let entry = self.time_entry(By::Time(age))?;
        Ok(entry.map_or(Seq::ZERO, |entry| entry.seq))
    }

    /// Versions of a timeline that were written over up to this seq are raw because packing left
    /// them so; `None` where none are packed.
    pub(crate) fn left_by_packing(&self, timeline: u64) -> Option<Seq> {
        self.record.lock().encoding?;
        Some(self.encoding().lock().done(timeline))
    }

    /// Whether there is room to encode: packs need some before they free more.
    pub(crate) fn may_pack(&self) -> bool {
        let store = &self.core.store;
        let (_, free, reserve) = store.zone_counts();
        free > reserve + (store.zone_count() / FREE_SHARE).max(2)
    }

    /// The packer of a full merge of a timeline: raw versions if history is encoded, there is room
    /// and nobody waits for more; otherwise only what lies in packs that are emptied.
    pub(crate) fn packer(&self, timeline: &Timeline, urgent: bool) -> Option<Packer> {
        let (setting, newest_stays) = {
            let record = self.record.lock();
            (record.encoding.map(|setting| setting.encoding), record.architecture.destages())
        };
        let encoding = match setting {
            Some(Encoding::Xor) => PackEncoding::Xor,
            _ => PackEncoding::Delta,
        };
        let may_pack = !urgent && self.may_pack();
        let takes_raw = setting.is_some() && may_pack;
        let wishes = if may_pack {
            self.compaction_queue().wishes(&self.pins().lock())
        } else {
            Wishes::default()
        };
        if !may_pack {
            self.compaction_queue().fail();
        }
        let has_work = takes_raw || !wishes.is_empty();
        if !has_work && self.segments_of(Content::Pack).next().is_none() {
            return None;
        }
        let state = self.encoding().lock();
        let span = takes_raw.then_some((state.done(timeline.id), state.until));
        let core = std::sync::Arc::clone(&self.core);
        let rule = PackRule { encoding, span, wishes, newest_stays };
        Some(Packer::new(core, (self.id, timeline.id), rule))
    }

    /// Takes note of what a merge that is committed has packed.
    pub(crate) fn note_packed(&self, timeline: &Timeline, packer: &Packer) {
        let packed = packer.packed;
        self.compaction_queue().note(&packer.tally, packer.is_short);
        self.encoding().lock().note(timeline.id, packer.done_to(), packed);
        if packed.raw > 0 {
            // They left segments sparse.
            self.reclamation().want();
        }
    }
}
