//! The opened shares, by the number of their volume, and moments of them.
//!
//! Invariants
//! 1. A volume has one [`Opened`] at most: two would not know of each other's transactions.
//! 2. A moment that was used in the last minute stays openable; at most 64 of a share do.
//! 3. While a volume is reverted its share is suspended, and nobody opens it.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use env::{Entropy, Rank, RankedMutex, RealEntropy};
use share::{Error, ErrorKind, Opening, Past, Result, Share, ShareSpec, ViewBlocks, VolumeBlocks};
use units::{Moment, Seq};
use volume::{Pool, RoomWait, Volume};

use super::earlier::Earlier;
use crate::attach::VolumeId;

/// Decoded blocks that an opened share keeps in memory: 64 MiB if all are full.
const CACHE_BLOCKS: usize = 16 << 10;
/// The same of a moment.
const PAST_CACHE_BLOCKS: usize = 512;
/// Moments of a share that are open at once.
const MOMENTS_MAX: usize = 64;
/// How often somebody looks for what can be closed.
const PURGE_EVERY: Duration = Duration::from_secs(15);
/// How long a moment stays open that nobody uses.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(60);

/// The shares of a pool.
pub struct Shares {
    pool: Arc<Pool>,
    entropy: RealEntropy,
    /// The right to open a share, or to revert one.
    opening: RankedMutex<()>,
    opened: RankedMutex<BTreeMap<VolumeId, Arc<Opened>>>,
    /// When somebody looked last for what can be closed.
    purged: RankedMutex<Instant>,
    /// Those that follow another server: nobody else changes them.
    followers: OnceLock<HashSet<VolumeId>>,
}

/// A share that is open.
pub(crate) struct Opened {
    share: Share<VolumeBlocks>,
    earlier: Earlier,
    moments: RankedMutex<BTreeMap<Seq, OpenMoment>>,
    /// Whether a command changes it: a restore or a repair.
    is_commanded: AtomicBool,
    /// Until when its reads are not logged, in nanoseconds since 1970.
    reads_gap: AtomicU64,
}

/// The right to change a share by a command: one at a time has it.
pub(crate) struct Command<'o>(&'o AtomicBool);

impl Drop for Command<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A moment that is open.
struct OpenMoment {
    past: Arc<Past<ViewBlocks>>,
    used: Instant,
}

impl Shares {
    /// Those of a pool; none is open yet.
    #[must_use]
    pub fn new(pool: Arc<Pool>) -> Shares {
        let entropy = RealEntropy::default();
        let opening = RankedMutex::new(Rank::Shares, ());
        let purged = RankedMutex::new(Rank::Leaf, Instant::now());
        let (opened, followers) = (RankedMutex::default(), OnceLock::new());
        Shares { pool, entropy, opening, opened, purged, followers }
    }

    /// Says which shares follow another server, once, before any is served.
    pub(crate) fn set_followers(&self, followers: HashSet<VolumeId>) {
        let is_first = self.followers.set(followers).is_ok();
        assert!(is_first, "relays are started once");
    }

    /// Whether a share follows another server.
    pub(crate) fn is_follower(&self, id: VolumeId) -> bool {
        self.followers.get().is_some_and(|followers| followers.contains(&id))
    }

    /// A share, if it is open.
    pub(crate) fn opened(&self, id: VolumeId) -> Option<Arc<Opened>> {
        let found = self.opened.lock().get(&id).map(Arc::clone)?;
        found.volume().is_served().then_some(found)
    }

    /// A share, opened if it is not. That may wait for a device.
    ///
    /// # Errors
    /// `Stale` if no share has this number; those of opening.
    pub(crate) fn open(&self, id: VolumeId) -> Result<Arc<Opened>> {
        let found = self.pool.volumes().into_iter().find(|volume| volume.id() == id);
        self.open_volume(&found.ok_or(Error::from(ErrorKind::Stale))?)
    }

    /// The share of a volume, opened if it is not; made, if the volume is a share without a tree.
    ///
    /// # Errors
    /// `Stale` if the volume is no share; those of opening.
    pub(crate) fn open_volume(&self, volume: &Arc<Volume>) -> Result<Arc<Opened>> {
        if volume.share().is_none() {
            return Err(Error::from(ErrorKind::Stale));
        }
        let _opening = self.opening.lock();
        let found = self.opened.lock().get(&volume.id()).map(Arc::clone);
        if let Some(found) = found {
            // In the trash it stays open: it may come back.
            let is_served = found.volume().is_served();
            return if is_served { Ok(found) } else { Err(Error::from(ErrorKind::Stale)) };
        }
        let opening =
            Opening { incarnation: self.entropy.next_u64(), cache_blocks_max: CACHE_BLOCKS };
        let share = match Share::open(VolumeBlocks::new(Arc::clone(volume)), opening) {
            Err(error) if error.kind == ErrorKind::NotFound => self.make_tree(volume, opening),
            opened => opened,
        }?;
        let earlier = Earlier::of(&share, volume.now());
        let opened = Arc::new(Opened {
            share,
            earlier,
            moments: RankedMutex::default(),
            is_commanded: AtomicBool::new(false),
            reads_gap: AtomicU64::new(0),
        });
        let before = self.opened.lock().insert(volume.id(), Arc::clone(&opened));
        assert!(before.is_none(), "nobody else opens shares");
        Ok(opened)
    }

    /// Makes the tree of a share, once there is room.
    fn make_tree(&self, volume: &Arc<Volume>, opening: Opening) -> Result<Share<VolumeBlocks>> {
        let (spec, mut wait) = (self.spec_of(volume), RoomWait::default());
        loop {
            let blocks = VolumeBlocks::new(Arc::clone(volume));
            match Share::make(blocks, &spec, opening) {
                Err(Error { kind: ErrorKind::Lacks(lack), .. }) => {
                    let blocks = VolumeBlocks::new(Arc::clone(volume));
                    blocks.wait_for(lack, &mut wait, &|| true)?;
                }
                made => return made,
            }
        }
    }

    /// Makes the tree of a new share.
    ///
    /// # Errors
    /// Those of the engine; `Invalid` if the pool's zones are too small for it.
    pub(crate) fn make(&self, volume: &Arc<Volume>) -> volume::Result<()> {
        let Err(error) = self.open_volume(volume) else { return Ok(()) };
        let words = answer_words(&error);
        Err(match error.source.map(|source| source.downcast::<volume::Error>()) {
            Some(Ok(own)) => *own,
            _ => volume::Error::new(volume::ErrorKind::Invalid, words),
        })
    }

    fn spec_of(&self, volume: &Volume) -> ShareSpec {
        let wide = || u128::from(self.entropy.next_u64()) << 64;
        let low = || u128::from(self.entropy.next_u64());
        ShareSpec {
            share_id: wide() | low(),
            hash_key: wide() | low(),
            created: volume.now(),
            uid: 0,
            gid: 0,
            mode: 0o755,
        }
    }

    /// Reverts some volumes by `revert`, while nobody uses those of them that are shares.
    pub(crate) fn revert<T>(&self, volumes: &[Arc<Volume>], revert: impl FnOnce() -> T) -> T {
        if volumes.iter().all(|volume| volume.share().is_none()) {
            return revert();
        }
        let _opening = self.opening.lock();
        let ids = volumes.iter().map(|volume| volume.id());
        let opened: Vec<_> = ids.filter_map(|id| Some((id, self.opened(id)?))).collect();
        opened.iter().for_each(|(_, opened)| opened.share.suspend());
        let reverted = revert();
        for (id, opened) in opened {
            if let Err(error) = opened.share.reload(self.entropy.next_u64()) {
                // It is opened anew by whoever uses it next.
                let name = opened.volume().name();
                tracing::warn!(share = %name, error = %answer_words(&error), "not loaded again");
                let removed = self.opened.lock().remove(&id);
                drop(removed);
            }
        }
        reverted
    }

    /// Lets the present of a share be opened for as long as the window has it, before a command
    /// changes it; its seq.
    pub(crate) fn retain_present(&self, volume: &Arc<Volume>) -> volume::Result<Seq> {
        match volume.retains_every_write() {
            true => Ok(volume.last_seq()),
            false => self.revert(std::slice::from_ref(volume), || volume.retain_present()),
        }
    }

    /// Whether it is time to close what nobody uses; of several that ask one is told so.
    pub(crate) fn is_purge_due(&self) -> bool {
        let mut purged = self.purged.lock();
        let is_due = purged.elapsed() >= PURGE_EVERY;
        if is_due {
            *purged = Instant::now();
        }
        is_due
    }

    /// Closes moments that nobody used for a while, and shares that are gone for good, and lets go
    /// of operation logs that the window has left.
    pub(crate) fn purge(&self) {
        // The map is locked for no longer than to look: to ask a volume and to close a moment take
        // locks of their own.
        let all: Vec<Arc<Opened>> = self.opened.lock().values().map(Arc::clone).collect();
        let (gone, opened): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|share| share.volume().share().is_none());
        for share in &gone {
            let removed = self.opened.lock().remove(&share.volume().id());
            drop(removed);
        }
        let now = Instant::now();
        for share in opened {
            let idle = |moment: &OpenMoment| now.duration_since(moment.used) >= IDLE_MAX;
            let closed: Vec<_> = share.moments.lock().extract_if(.., |_, m| idle(m)).collect();
            drop(closed);
            // Records of what cannot be opened any more go with it.
            let oldest = share.volume().info().map(|info| info.oldest.time);
            let forgotten = match oldest {
                Ok(oldest) => share.share.forget_log_before(oldest),
                Err(error) => Err(Error::from(error)),
            };
            if let Err(error) = forgotten {
                let name = share.volume().name();
                tracing::warn!(share = %name, error = %answer_words(&error), "its log stays");
            }
        }
    }
}

/// An error with its cause.
pub(crate) fn answer_words(error: &Error) -> String {
    match &error.source {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl Opened {
    pub(crate) fn share(&self) -> &Share<VolumeBlocks> {
        &self.share
    }

    /// The right to change it by a command, unless another has it.
    pub(crate) fn command(&self) -> Option<Command<'_>> {
        let was = self.is_commanded.swap(true, Ordering::Acquire);
        (!was).then(|| Command(&self.is_commanded))
    }

    /// Until when its reads are not logged, in nanoseconds since 1970.
    pub(crate) fn reads_gap(&self) -> &AtomicU64 {
        &self.reads_gap
    }

    /// The calls of the last minutes before it was opened.
    pub(crate) fn earlier(&self) -> &Earlier {
        &self.earlier
    }

    pub(crate) fn volume(&self) -> &Arc<Volume> {
        self.share.present().volume()
    }

    /// A moment, if it is open.
    pub(crate) fn past(&self, seq: Seq) -> Option<Arc<Past<ViewBlocks>>> {
        let mut moments = self.moments.lock();
        let moment = moments.get_mut(&seq)?;
        moment.used = Instant::now();
        Some(Arc::clone(&moment.past))
    }

    /// Opens a moment that was named; its seq. That may wait for a device.
    ///
    /// # Errors
    /// `NotFound` if there is no such moment, or no tree yet; those of opening.
    pub(crate) fn open_moment(&self, moment: &Moment) -> Result<(Seq, Arc<Past<ViewBlocks>>)> {
        let found = self.volume().resolve(moment).map_err(no_such_moment)?.seq;
        if let Some(past) = self.past(found) {
            return Ok((found, past));
        }
        let view = self.volume().view(moment).map_err(no_such_moment)?;
        let seq = view.resolved().seq;
        let past = Arc::new(Past::open(ViewBlocks(view), PAST_CACHE_BLOCKS)?);
        let mut moments = self.moments.lock();
        let kept = OpenMoment { past: Arc::clone(&past), used: Instant::now() };
        let mut closed = moments.insert(seq, kept).map(|moment| (seq, moment));
        if moments.len() > MOMENTS_MAX {
            let oldest = moments.iter().min_by_key(|(_, moment)| moment.used).map(|(seq, _)| *seq);
            closed = oldest.and_then(|seq| moments.remove_entry(&seq));
        }
        drop(moments);
        drop(closed);
        Ok((seq, past))
    }

    /// Opens a moment to read files of, and answers it as it has to be named to be had again. The
    /// present is opened for its asker alone.
    ///
    /// # Errors
    /// As [`Opened::open_moment`].
    pub(crate) fn open_to_read(&self, moment: &Moment) -> Result<(Moment, Arc<Past<ViewBlocks>>)> {
        if *moment != Moment::Latest {
            let (seq, past) = self.open_moment(moment)?;
            return Ok((Moment::Seq(seq), past));
        }
        let view = self.volume().view(moment).map_err(no_such_moment)?;
        Ok((Moment::Latest, Arc::new(Past::open(ViewBlocks(view), PAST_CACHE_BLOCKS)?)))
    }

    /// The present, opened for its asker alone, and its seq.
    ///
    /// # Errors
    /// Those of opening.
    pub(crate) fn present(&self) -> Result<(Arc<Past<ViewBlocks>>, Seq)> {
        let view = self.volume().view(&Moment::Latest).map_err(no_such_moment)?;
        let seq = view.resolved().seq;
        Ok((Arc::new(Past::open(ViewBlocks(view), PAST_CACHE_BLOCKS)?), seq))
    }

    /// The moment of a handle, opened if it is not. That may wait for a device.
    ///
    /// # Errors
    /// `Stale` if it cannot be opened any more; those of opening.
    pub(crate) fn open_past(&self, seq: Seq) -> Result<Arc<Past<ViewBlocks>>> {
        if let Some(past) = self.past(seq) {
            return Ok(past);
        }
        let stale = |error: Error| match error.kind {
            ErrorKind::NotFound => Error { kind: ErrorKind::Stale, ..error },
            _ => error,
        };
        let (found, past) = self.open_moment(&Moment::Seq(seq)).map_err(stale)?;
        if found == seq { Ok(past) } else { Err(Error::from(ErrorKind::Stale)) }
    }
}

fn no_such_moment(error: volume::Error) -> Error {
    match error.kind {
        volume::ErrorKind::NotFound
        | volume::ErrorKind::Invalid
        | volume::ErrorKind::OutsideWindow { .. } => Error::with_source(ErrorKind::NotFound, error),
        _ => Error::from(error),
    }
}
