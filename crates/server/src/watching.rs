//! Watches: every ten seconds, of each volume that is to be watched, a sample of what was written
//! over since the look before. Data that becomes random where it was not, as encryption makes it,
//! or that becomes zeros, gives an alarm once there is enough of it.
//!
//! 1. No write waits for a look, and nobody is ever blocked: an alarm marks and pins the moment
//!    before what it tells of began, which is open until then, and tells.
//! 2. The cost of a look has a bound: so many pages of the map, so many blocks of either moment.
//! 3. Blocks that held no data, or zeros, count for nothing: new disks and restores give no alarm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use block::is_zero;
use parking_lot::Mutex;
use units::{BLOCK_BYTES, Moment, Sensitivity, WallTime};
use volume::{AlarmKind, Pool, View, Volume, WatchInfo};

use crate::StartError;
use crate::worker::{Stop, Worker};

/// The time between looks.
const EVERY: Duration = Duration::from_secs(10);
/// Pages of the map that a look samples, and blocks that it reads of either moment.
const PAGES_MAX: usize = 64;
const BLOCKS_MAX: usize = 64;
/// Bytes of the volume that a page is about.
const PAGE_BYTES: u64 = 2 << 20;
/// Bits a byte from which on a block looks random; it did not where it had so many.
const RANDOM_BITS: f64 = 7.8;
const PLAIN_BITS: f64 = 7.0;
/// Bytes below which a look tells nothing.
const LEAST_BYTES: u64 = 256 << 10;
/// Pages of a sample in which something has to be found before it counts for all pages that were
/// written to: a single one may be like no other.
const PAGES_MIN: usize = 4;
/// Looks without anything that end an episode.
const QUIET_LOOKS: u32 = 6;
/// Looks after which an episode without an alarm begins anew.
const LOOKS_MAX: u32 = 60;
/// Wiping so much is enough, whatever a volume holds.
const WIPED_BYTES_MAX: u64 = 64 << 30;
/// The shortest time between two alarms of a volume, in nanoseconds: each holds a moment.
const BETWEEN_NS: u64 = 3_600_000_000_000;

/// Bytes of data that were written over since the look before, estimated by a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// All of it.
    pub(crate) written_over: u64,
    /// Of it, data that looks random, and did not.
    pub(crate) scrambled: u64,
    /// Zeros now, or nothing.
    pub(crate) wiped: u64,
}

impl Found {
    /// Whether a large part of it is such.
    fn is_much(self, bytes: u64) -> bool {
        bytes >= LEAST_BYTES && bytes >= self.written_over / 4
    }
}

/// Bytes from which on there is an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Floors {
    scrambled: u64,
    wiped: u64,
}

impl Floors {
    /// An eighth of a small volume's data is enough; wiping takes a quarter of it.
    fn of(sensitivity: Sensitivity, live_bytes: u64) -> Floors {
        let most = match sensitivity {
            Sensitivity::Low => 1 << 30,
            Sensitivity::Normal => 64 << 20,
            Sensitivity::High => 8 << 20,
        };
        let scrambled = (live_bytes / 8).clamp(1 << 20, most);
        Floors { scrambled, wiped: scrambled.max(live_bytes / 4).min(WIPED_BYTES_MAX) }
    }
}

/// Looks that found something, and no quiet minute between them.
struct Episode<V> {
    /// The moment before it began; let go of once there was an alarm.
    before: Option<V>,
    /// By what the volume held then.
    floors: Floors,
    found: Found,
    looks: u32,
    quiet: u32,
}

/// An alarm that is due.
#[derive(Debug, PartialEq, Eq)]
struct Due {
    kind: AlarmKind,
    bytes: u64,
}

/// Enters what a look found in an episode, or begins one with the moment of the look before.
fn note<V>(
    episode: &mut Option<Episode<V>>,
    before: impl FnOnce() -> V,
    found: Found,
    floors: Floors,
) -> Option<Due> {
    let is_much = found.is_much(found.scrambled) || found.is_much(found.wiped);
    if episode.is_none() && !is_much {
        return None;
    }
    let open = episode.get_or_insert_with(|| Episode {
        before: Some(before()),
        floors,
        found: Found::default(),
        looks: 0,
        quiet: 0,
    });
    open.looks += 1;
    open.quiet = if is_much { 0 } else { open.quiet + 1 };
    open.found.written_over += found.written_over;
    open.found.scrambled += found.scrambled;
    open.found.wiped += found.wiped;
    let (all, floors) = (open.found, open.floors);
    let due = match () {
        () if open.before.is_none() => None,
        () if all.scrambled >= floors.scrambled => {
            Some(Due { kind: AlarmKind::Scrambled, bytes: all.scrambled })
        }
        () if all.wiped >= floors.wiped => Some(Due { kind: AlarmKind::Wiped, bytes: all.wiped }),
        () => None,
    };
    let is_over = open.quiet >= QUIET_LOOKS || (open.looks >= LOOKS_MAX && open.before.is_some());
    if due.is_none() && is_over {
        *episode = None;
    }
    due
}

/// Bits that a byte of a block holds, by how often each value stands in it.
fn bits_a_byte(block: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    block.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
    let all = f64::from(u32::try_from(block.len()).unwrap_or(u32::MAX));
    let share = |&count: &u32| {
        let share = f64::from(count) / all;
        if count == 0 { 0.0 } else { -share * share.log2() }
    };
    counts.iter().map(share).sum()
}

/// The data of an earlier moment that a later one wrote over; `None` where that cannot be told.
fn found_between(earlier: &View, later: &View, start: u64) -> volume::Result<Option<Found>> {
    let Some(over) = earlier.written_over(later, PAGES_MAX, start)? else { return Ok(None) };
    let (mut held, mut scrambled, mut wiped) = (0, 0, 0);
    let (mut old, mut new) = ([0; BLOCK_BYTES as usize], [0; BLOCK_BYTES as usize]);
    let step = over.blocks.len().div_ceil(BLOCKS_MAX).max(1);
    let mut looked = 0;
    // The pages in which something was found.
    let mut pages = BTreeSet::new();
    for &offset in over.blocks.iter().step_by(step) {
        looked += 1;
        earlier.read(offset, &mut old)?;
        if is_zero(&old) {
            continue;
        }
        held += 1;
        later.read(offset, &mut new)?;
        if is_zero(&new) {
            wiped += 1;
        } else if bits_a_byte(&old) <= PLAIN_BITS && bits_a_byte(&new) >= RANDOM_BITS {
            scrambled += 1;
        } else {
            continue;
        }
        pages.insert(offset / PAGE_BYTES);
    }
    let each = if pages.len() < PAGES_MIN { 1 } else { over.pages_each };
    let all = over.blocks.len() as u64 * BLOCK_BYTES * each;
    let bytes = |blocks: u64| all / looked.max(1) * blocks;
    Ok(Some(Found { written_over: bytes(held), scrambled: bytes(scrambled), wiped: bytes(wiped) }))
}

/// A volume that is watched.
struct Watched {
    /// The moment of the last look.
    last: Arc<View>,
    /// Bytes that it held then.
    live_bytes: u64,
    episode: Option<Episode<Arc<View>>>,
    told: Option<(WallTime, Found)>,
}

/// The watches of a server.
#[derive(Default)]
pub(crate) struct Watching {
    /// By the numbers of volumes.
    watched: Mutex<BTreeMap<u64, Watched>>,
    /// Those of which the last look failed.
    failing: Mutex<BTreeSet<u64>>,
}

impl Watching {
    /// Begins the thread that looks; at its end all moments are let go of.
    pub(crate) fn start(self: &Arc<Self>, pool: &Arc<Pool>) -> Result<Worker, StartError> {
        let (own, pool) = (Arc::clone(self), Arc::clone(pool));
        Worker::start("watching", move |stop| {
            while !stop.rest(EVERY) {
                own.look(&pool, stop);
            }
            own.watched.lock().clear();
        })
    }

    /// When it was looked at a volume last, and what was found.
    pub(crate) fn told(&self, volume: u64) -> Option<(WallTime, Found)> {
        self.watched.lock().get(&volume)?.told
    }

    /// Looks at all volumes that are to be watched, until it is to stop.
    fn look(&self, pool: &Pool, stop: &Stop) {
        let volumes = pool.volumes();
        let watches: Vec<(&Arc<Volume>, WatchInfo)> =
            volumes.iter().filter_map(|volume| Some((volume, volume.watch()?))).collect();
        let is_watched = |id: &u64| watches.iter().any(|(volume, _)| volume.id() == *id);
        self.watched.lock().retain(|id, _| is_watched(id));
        for (volume, watch) in watches {
            if stop.rest(Duration::ZERO) {
                return;
            }
            let looked = self.look_at(volume, &watch).and_then(|()| volume.let_go_of_alarms());
            let mut failing = self.failing.lock();
            match looked {
                Ok(()) => drop(failing.remove(&volume.id())),
                Err(error) if failing.insert(volume.id()) => {
                    tracing::warn!(volume = volume.name(), %error, "a watch could not look");
                }
                Err(_) => {}
            }
        }
    }

    fn look_at(&self, volume: &Arc<Volume>, watch: &WatchInfo) -> volume::Result<()> {
        let (now, live_bytes) = (volume.view(&Moment::Latest)?, volume.info()?.live_bytes);
        let before = self.watched.lock().remove(&volume.id());
        let Some(Watched { last, live_bytes: held, mut episode, told }) = before else {
            self.keep(volume, Watched { last: now, live_bytes, episode: None, told: None });
            return Ok(());
        };
        // Where the sample begins is nobody's to foresee.
        let start = volume.now().as_nanos() / 1_000;
        let mut outcome = Ok(());
        let told = match found_between(&last, &now, start) {
            Ok(Some(found)) => {
                let floors = Floors::of(watch.sensitivity, held);
                let due = note(&mut episode, || Arc::clone(&last), found, floors);
                if let (Some(due), Some(open)) = (due, &mut episode) {
                    outcome = give(volume, watch, open, &due);
                }
                Some((volume.now(), found))
            }
            // A revert: what follows is another story.
            Ok(None) => {
                episode = None;
                Some((volume.now(), Found::default()))
            }
            Err(error) => {
                outcome = Err(error);
                told
            }
        };
        self.keep(volume, Watched { last: now, live_bytes, episode, told });
        outcome
    }

    fn keep(&self, volume: &Volume, watched: Watched) {
        self.watched.lock().insert(volume.id(), watched);
    }
}

/// Gives an alarm that is due, unless there was one shortly before.
fn give(
    volume: &Volume,
    watch: &WatchInfo,
    episode: &mut Episode<Arc<View>>,
    due: &Due,
) -> volume::Result<()> {
    let Some(before) = &episode.before else { return Ok(()) };
    let since = |given: WallTime| volume.now().as_nanos().saturating_sub(given.as_nanos());
    let is_soon =
        watch.alarms.last().is_some_and(|last| last.is_held && since(last.given) < BETWEEN_NS);
    if !is_soon {
        let alarm = volume.give_alarm(before.resolved(), due.kind, due.bytes)?;
        let (kind, bytes, mark) = (due.kind.name(), due.bytes, alarm.mark);
        let volume = volume.name();
        tracing::error!(volume, kind, bytes, mark, "much data was written over in a short time");
    }
    // Once it is given, or another holds an earlier moment.
    episode.before = None;
    Ok(())
}

#[cfg(test)]
mod tests;
