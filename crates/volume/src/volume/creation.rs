//! How a volume comes to be: what a commit has of it, and what memory has once it is committed.

use std::sync::Arc;

use history::{Branch, OUTSIDE_SEQ};
use units::{MapExtent, Moment, Seq, WallTime};

use crate::catalogue::transaction::Transaction;
use crate::catalogue::{SourceRecord, TimelineRecord, VolumeRecord, tables};
use crate::jobs::encoding;
use crate::names::check_name;
use crate::pool::volumes::Volumes;
use crate::types::{Architecture, Granularity, ShareSetting, VolumeSpec};
use crate::volume::{Volume, change_words, share};
use crate::write::{cache_sizes, copy_unit, whole};
use crate::{Error, Result};

/// Largest volume: 2^40 blocks.
const SIZE_BYTES_MAX: u64 = 1 << 52;

/// How a moment is cloned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloneSpec {
    /// The map extents of the clone, if not those of its origin; inherited entries stay as they
    /// are.
    pub extent: Option<MapExtent>,
    /// The background copies all of it: in the end it shares nothing with its origin. It is there
    /// at once; `Volume::import_info` tells how far it is.
    pub in_full: bool,
    /// It goes by itself after so many nanoseconds: see [`Volumes::scratch_clones`].
    pub scratch_ns: Option<u64>,
}

/// The beginning of a new volume.
pub(crate) enum Origin<'a> {
    /// Zeros.
    Nothing,
    /// A moment of another, of which all is copied if that is so described.
    Moment(&'a Volume, Branch, Option<SourceRecord>),
    /// A file.
    File(SourceRecord),
}

/// A volume that is in a transaction.
pub struct Newborn {
    pub(crate) record: VolumeRecord,
    timeline: TimelineRecord,
    branch: Option<Branch>,
}

impl Volumes {
    /// Makes a volume; it reads as zeros and takes no space.
    ///
    /// # Errors
    /// `Invalid`, `Exists`, `Full`, `Refused`.
    pub fn create_volume(&self, spec: &VolumeSpec) -> Result<Arc<Volume>> {
        let record = self.new_record(spec, Seq::ZERO)?;
        let what = match spec.share {
            Some(_) => "a share".to_owned(),
            None => format!("{} bytes", spec.size_bytes),
        };
        let granularity = change_words::words(spec.granularity);
        let detail = match spec.architecture {
            Architecture::Logging => format!("{what}, {granularity}"),
            other => format!("{what}, {granularity}, {}", other.name()),
        };
        self.add_volume(record, Origin::Nothing, "volume-create", detail)
    }

    /// The record of a volume that begins at a seq.
    pub(crate) fn new_record(&self, spec: &VolumeSpec, begin: Seq) -> Result<VolumeRecord> {
        self.check_open()?;
        check_name("volume", &spec.name)?;
        check_size(spec.size_bytes)?;
        if spec.granularity == Granularity::Interval(0) {
            return Err(Error::invalid("an interval is longer than nothing"));
        }
        let record = VolumeRecord {
            window_ns: spec.window_ns,
            history_limit_bytes: spec.history_limit_bytes,
            granularities: vec![(begin.0, spec.granularity)],
            sizes: vec![(begin.0, spec.size_bytes)],
            architecture: spec.architecture,
            cache: cache_sizes::setting(spec.architecture, None, spec.cache)?,
            extent: spec.extent,
            copy_unit: copy_unit::checked(spec.copy_unit, spec.architecture, spec.granularity)?,
            encoding: encoding::setting(None, spec.encoding)?,
            dedup: spec.dedup,
            strict: spec.strict,
            share: share::setting(spec)?,
            ..self.begun(&spec.name, begin)
        };
        whole::check(&record)?;
        share::check(&record)?;
        Ok(record)
    }

    /// The record of a volume of which nothing is known but that it begins at a seq, now.
    fn begun(&self, name: &str, Seq(begin): Seq) -> VolumeRecord {
        let now_ns = self.core.machine.clock.wall().as_nanos();
        VolumeRecord {
            name: name.to_owned(),
            created_ns: now_ns,
            created_seq: begin,
            horizon_seq: begin,
            horizon_ns: now_ns,
            reclaimed_to: begin,
            flushed_seq: begin,
            flushed_ns: now_ns,
            ..VolumeRecord::default()
        }
    }

    pub(crate) fn add_volume(
        &self,
        record: VolumeRecord,
        origin: Origin<'_>,
        action: &str,
        detail: String,
    ) -> Result<Arc<Volume>> {
        let mut tx = self.core.begin()?;
        let coming = self.prepare_volume(record, origin, &mut tx, (action, detail))?;
        let books = tx.commit()?;
        let volume = self.take_volume(coming)?;
        drop(books);
        if volume.record.lock().cache.is_some() {
            self.share_memory();
        }
        Ok(volume)
    }

    /// Makes a writable volume that starts at a moment of another. Copies nothing.
    ///
    /// # Errors
    /// Those of resolving; `Invalid`, `Exists`, `Refused`, `Io`.
    pub fn clone_volume(&self, source: &str, at: &Moment, name: &str) -> Result<Arc<Volume>> {
        self.clone_as(source, at, name, CloneSpec::default())
    }

    /// The same, in other ways.
    ///
    /// # Errors
    /// Those of [`Volumes::clone_volume`]; `Invalid` also for a share that is to be copied.
    pub fn clone_as(
        &self,
        source: &str,
        at: &Moment,
        name: &str,
        spec: CloneSpec,
    ) -> Result<Arc<Volume>> {
        self.check_open()?;
        check_name("volume", name)?;
        let origin = self.volume(source)?;
        let cloned = self.clone_of(&origin, at, name, spec);
        origin.unless_gone(cloned)
    }

    fn clone_of(
        &self,
        origin: &Volume,
        at: &Moment,
        name: &str,
        CloneSpec { extent, in_full, scratch_ns }: CloneSpec,
    ) -> Result<Arc<Volume>> {
        if in_full {
            // Copying goes by all pages of the address space, and would not come to an end.
            let hint = "a clone that is not in full is there at once, and keeps what it needs";
            origin.refuse_share("it is not cloned in full", hint)?;
        }
        origin.destage_all()?;
        self.core.store.flush()?;
        let still = origin.stand_still()?;
        let resolved = origin.resolve_with(at, &still.pins)?;
        let Seq(at) = resolved.seq;
        // The copy is the state before all of its own writes.
        let begin = if in_full { OUTSIDE_SEQ } else { resolved.seq };
        let (mut clone, branch, mut detail) =
            self.clone_record(origin, (resolved.seq, begin), name)?;
        clone.extent = extent.unwrap_or(clone.extent);
        if let Some(scratch_ns) = scratch_ns {
            let until_ns = clone.created_ns.saturating_add(scratch_ns);
            clone.scratch_until_ns = Some(until_ns);
            detail.push_str(&format!(", for a while: until {}", WallTime::from_nanos(until_ns)));
        }
        let copied = in_full.then(|| {
            clone.cloned_from = None;
            detail.push_str(", in full");
            SourceRecord::of_moment(&origin.name, at, clone.size_at(begin))
        });
        let begins = Origin::Moment(origin, branch, copied);
        let volume = self.add_volume(clone, begins, "clone", detail);
        drop(still);
        volume
    }

    /// Puts a new volume into a transaction. `told` is the action and detail of its audit record.
    ///
    /// # Errors
    /// `Exists`, `Invalid`; `NotFound` where its origin is deleted; those of the catalogue.
    pub(crate) fn prepare_volume(
        &self,
        mut record: VolumeRecord,
        origin: Origin<'_>,
        tx: &mut Transaction<'_>,
        (action, detail): (&str, String),
    ) -> Result<Newborn> {
        // An origin that is deleted meanwhile is deleted under the same books: its past may be
        // gone.
        let (branch, source) = match origin {
            Origin::Nothing => (None, None),
            Origin::Moment(origin, branch, source) => {
                origin.check_served()?;
                // It may have been renamed since the record was begun.
                if let Some((name, _)) = &mut record.cloned_from {
                    origin.name().clone_into(name);
                }
                record.access = origin.access();
                record.share = origin.share().map(|share| {
                    // Those who come from the origin read there.
                    let since = share.reads_since_ns.map(|since| since.max(record.created_ns));
                    Arc::new(ShareSetting { reads_since_ns: since, ..(*share).clone() })
                });
                (Some(branch), source)
            }
            Origin::File(source) => (None, Some(source)),
        };
        self.check_unused(&record.name)?;
        self.check_cache(record.cache, None)?;
        tx.numbers.volume += 1;
        tx.numbers.timeline += 1;
        record.id = tx.numbers.volume;
        record.line = vec![(record.created_seq, tx.numbers.timeline)];
        let timeline = TimelineRecord {
            id: tx.numbers.timeline,
            log: record.id,
            parent: branch.as_ref().map(|b| (b.timeline.id, b.seq.0)),
            source: source.map(|source| tx.numbers.keep_orders(source)),
        };
        tx.put(tables::VOLUMES, record.id, &record)?;
        tx.put(tables::TIMELINES, timeline.id, &timeline)?;
        tx.audit(action, &record.name, detail)?;
        Ok(Newborn { record, timeline, branch })
    }

    /// Takes up a new volume that was committed, under the same books.
    ///
    /// # Errors
    /// `Corrupt`, from the catalogue.
    pub(crate) fn take_volume(&self, newborn: Newborn) -> Result<Arc<Volume>> {
        let Newborn { record, timeline, branch } = newborn;
        let map = self.core.timeline_of(&timeline, record.extent, branch, Vec::new());
        self.core.timelines.write().insert(timeline.id, (timeline, map));
        let volume = Arc::new(Volume::start(Arc::clone(&self.core), record)?);
        self.registry.add(Arc::clone(&volume));
        Ok(volume)
    }

    /// The record of a clone of a volume at a seq that begins with another one, where it branches
    /// off, and what is told of it.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn clone_record(
        &self,
        origin: &Volume,
        (seq, begin): (Seq, Seq),
        name: &str,
    ) -> Result<(VolumeRecord, Branch, String)> {
        let record = origin.record.lock().clone();
        let parent = record.timeline_at(seq);
        let timeline = self
            .core
            .timeline(parent)
            .ok_or_else(|| Error::corrupt(format!("timeline {parent} is not there")))?;
        let Seq(at) = seq;
        let detail = format!("from {} at seq {at}", origin.name);
        let clone = VolumeRecord {
            cloned_from: Some((origin.name().to_owned(), at)),
            window_ns: record.window_ns,
            history_limit_bytes: record.history_limit_bytes,
            granularities: vec![(begin.0, record.granularity_at(Seq(u64::MAX)))],
            sizes: vec![(begin.0, record.size_at(seq))],
            architecture: record.architecture,
            cache: record.cache,
            extent: record.extent,
            copy_unit: record.copy_unit,
            encoding: record.encoding,
            dedup: record.dedup,
            access: record.access,
            strict: record.strict,
            share: record.share,
            ..self.begun(name, begin)
        };
        Ok((clone, Branch { timeline, seq }, detail))
    }
}

/// Fails unless a volume can have this size.
///
/// # Errors
/// `Invalid`.
pub fn check_size(size_bytes: u64) -> Result<()> {
    if (4096..=SIZE_BYTES_MAX).contains(&size_bytes) && size_bytes.is_multiple_of(512) {
        return Ok(());
    }
    Err(Error::invalid(format!("a volume cannot have {size_bytes} bytes"))
        .with_hint("a multiple of 512 from 4096 bytes to 4 PiB"))
}
