//! The thread that does the pool's background work, and sleeps when there is none.
//!
//! A panic in it is a mistake of ours, found by an assertion: what it was doing is half done in
//! memory, and sound on the device. So the pool refuses writes from then on, which the log, the
//! metrics, `GET /healthz` and `pool status` say at once; reads go on for a moment, until the
//! process ends as after any panic (`serve`), and a restart recovers.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use volume::{Pool, ScrubState, Volume};

use crate::fill::FillWatch;
use crate::member_watch::MemberWatch;
use crate::worker::Worker;
use crate::{StartError, write_memory};

/// How often it looks what is to be told, and how long it sleeps once the pool is broken.
const IDLE: Duration = Duration::from_millis(50);
/// By so much the last write of a volume is ahead of the clock when the log says so.
const TOLD_AHEAD_NS: u64 = 60_000_000_000;

/// The things that were seen last, by name.
struct Seen<K, V>(BTreeMap<K, V>);

impl<K, V> Default for Seen<K, V> {
    fn default() -> Seen<K, V> {
        Seen(BTreeMap::new())
    }
}

impl<K: Ord, V: PartialEq> Seen<K, V> {
    /// Tells what differs from what was seen last: what it was, and what it is.
    fn look(
        &mut self,
        now: impl Iterator<Item = (K, V)>,
        mut told: impl FnMut(&K, Option<&V>, Option<&V>),
    ) {
        let now: BTreeMap<K, V> = now.collect();
        for (name, value) in &now {
            let before = self.0.get(name).filter(|before| *before != value);
            if before.is_some() || !self.0.contains_key(name) {
                told(name, before, Some(value));
            }
        }
        for (name, before) in self.0.iter().filter(|(name, _)| !now.contains_key(name)) {
            told(name, Some(before), None);
        }
        self.0 = now;
    }
}

/// Writes to the log that a scrub has begun, and what came of it.
#[derive(Default)]
struct ScrubWatch {
    /// When the last one that was told of began, and whether its end was told.
    told: Option<(Option<u64>, bool)>,
}

impl ScrubWatch {
    fn look(&mut self, pool: &Pool) {
        let info = pool.scrubs().info();
        let is_over = info.as_ref().is_none_or(|info| info.state != ScrubState::Running);
        let now = (info.as_ref().map(|info| info.record.started_ns), is_over);
        // One that was over before this process began is no news.
        let before = self.told.replace(now).unwrap_or((now.0.filter(|_| is_over), is_over));
        let Some(volume::ScrubInfo { record, .. }) = info.filter(|_| before != now) else { return };
        if before.0 != now.0 {
            // One that began by a schedule; who asked for one has had this done.
            write_memory::forget_clean();
            tracing::info!("a scrub is running");
        }
        if !is_over {
            return;
        }
        let (read_bytes, wrong, healed) = (record.read_bytes, record.wrong, record.healed);
        let (repaired, elsewhere, lost) = (record.repaired, record.elsewhere, record.lost);
        if lost == 0 {
            let text = "the scrub has ended";
            tracing::info!(read_bytes, wrong, healed, repaired, elsewhere, "{text}");
        } else {
            let (losses, text) = (record.losses.join("; "), "the scrub found losses");
            tracing::error!(read_bytes, wrong, healed, repaired, elsewhere, lost, losses, "{text}");
        }
    }
}

/// The things that the thread looks at between turns, and writes to the log.
struct Watches {
    looked: Option<Instant>,
    fill: FillWatch,
    members: MemberWatch,
    scrubs: ScrubWatch,
    conversions: Seen<String, ()>,
    failures: Seen<&'static str, String>,
    /// By what they are of, `volume` or `group`, and its name.
    failing_schedules: Seen<(&'static str, String), String>,
    /// The file, and its trouble if there is any.
    imports: Seen<String, (String, Option<String>)>,
    /// Volumes of which times are ahead of the clock.
    ahead: Seen<String, ()>,
}

impl Watches {
    fn new(fill: FillWatch, members: MemberWatch) -> Watches {
        Watches {
            looked: None,
            fill,
            members,
            scrubs: ScrubWatch::default(),
            conversions: Seen::default(),
            failures: Seen::default(),
            failing_schedules: Seen::default(),
            imports: Seen::default(),
            ahead: Seen::default(),
        }
    }

    fn look(&mut self, pool: &Pool) {
        if self.looked.is_some_and(|looked| looked.elapsed() < IDLE) {
            return;
        }
        self.looked = Some(Instant::now());
        self.fill.look();
        self.members.look(pool);
        self.scrubs.look(pool);
        let failures = pool.failures().into_iter().map(|(job, _, why)| (job, why));
        self.failures.look(failures, |job, _, error| match error {
            Some(error) => tracing::error!(job, error, "background work failed; it is tried again"),
            None => tracing::info!(job, "background work does not fail any more"),
        });
        self.look_at_schedules(pool);
        self.look_at_volumes(pool);
    }

    fn look_at_schedules(&mut self, pool: &Pool) {
        let volumes = pool.volumes();
        let of_volumes = volumes.iter().filter_map(|volume| {
            let error = volume.schedule_info().ok()??.error?;
            Some((("volume", volume.name().to_owned()), error))
        });
        let groups = pool.group_schedules().into_iter();
        let of_groups = groups.filter_map(|(group, info)| Some((("group", group), info.error?)));
        self.failing_schedules.look(of_volumes.chain(of_groups), |(kind, name), _, error| {
            match error {
                Some(error) => {
                    tracing::error!(kind, name, error, "a schedule failed; it is tried again");
                }
                None => tracing::info!(kind, name, "a schedule does not fail any more"),
            }
        });
    }

    fn look_at_volumes(&mut self, pool: &Pool) {
        let volumes = pool.volumes();
        let named = |volume: &Arc<Volume>| (volume.name().to_owned(), ());
        let converting = volumes.iter().filter(|volume| volume.is_converting()).map(named);
        self.conversions.look(converting, |volume, _, now| {
            if let (None, Ok(converted)) = (now, pool.volume(volume)) {
                let architecture = converted.architecture().name();
                tracing::info!(volume, architecture, "a conversion has ended");
            }
        });
        let imports = volumes.iter().filter_map(|volume| {
            let import = volume.import_info()?;
            Some((volume.name().to_owned(), (import.file, import.trouble)))
        });
        self.imports.look(imports, |volume, before, now| match (before, now) {
            (_, Some((file, Some(trouble)))) => {
                tracing::warn!(volume, file, trouble, "an import rests");
            }
            (Some((_, Some(_))), Some((file, None))) => {
                tracing::info!(volume, file, "an import goes on");
            }
            (_, None) if pool.volume(volume).is_ok() => {
                tracing::info!(volume, "an import has ended: all of it was copied");
            }
            _ => {}
        });
        let ahead = volumes.iter().filter(|v| v.time_ahead_ns() >= TOLD_AHEAD_NS).map(named);
        self.ahead.look(ahead, |name, _, now| match (now, pool.volume(name)) {
            (None, _) => {
                tracing::info!(volume = name, "the clock has caught up with the last write");
            }
            (_, volume) => {
                let seconds = volume.map_or(0, |volume| volume.time_ahead_ns() / 1_000_000_000);
                let text = "the last write is ahead of the clock: one of the two is wrong";
                tracing::warn!(volume = name, seconds, "{text}");
            }
        });
    }
}

/// Starts the thread.
pub(crate) fn start(
    pool: Arc<Pool>,
    fill: FillWatch,
    members: MemberWatch,
) -> Result<Worker, StartError> {
    Worker::start("background", move |stop| {
        let mut watches = Watches::new(fill, members);
        loop {
            let turn = catch_unwind(AssertUnwindSafe(|| {
                watches.look(&pool);
                pool.turn()
            }));
            let rest = turn.unwrap_or_else(|panic| {
                pool.refuse_writes();
                let why = words(&*panic);
                tracing::error!(why, "background work panicked; the pool refuses writes");
                IDLE
            });
            if stop.rest(rest) {
                return;
            }
        }
    })
}

/// The words of a panic.
fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words")
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use block::{BlockDevice, MemoryDevice};
    use env::{RealClock, RealEntropy};
    use volume::{Machine, Pool, PoolFormat, PoolOptions, Volume, VolumeSpec, WriteOp};

    use super::{MemberWatch, start};
    use crate::fill::{FillGauge, FillWatch};

    /// A device under which something of ours is broken.
    struct Broken(MemoryDevice, AtomicBool);

    impl BlockDevice for Broken {
        fn len_bytes(&self) -> u64 {
            self.0.len_bytes()
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> block::Result<()> {
            self.0.read_at(offset, buffer)
        }
        fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> block::Result<()> {
            let is_background = std::thread::current().name() == Some("background");
            assert!(!is_background || !self.1.load(Ordering::Acquire), "broken on purpose");
            self.0.write_at(offset, slices)
        }
        fn flush(&self) -> block::Result<()> {
            self.0.flush()
        }
        fn allocate(&self, offset: u64, length_bytes: u64) -> block::Result<()> {
            self.0.allocate(offset, length_bytes)
        }
        fn discard(&self, offset: u64, length_bytes: u64) -> block::Result<()> {
            self.0.discard(offset, length_bytes)
        }
        fn describe(&self) -> String {
            self.0.describe()
        }
    }

    fn spec() -> VolumeSpec {
        VolumeSpec { window_ns: 1 << 60, ..VolumeSpec::new("v", 8 << 20) }
    }

    #[test]
    fn a_panic_in_the_background_is_told_at_once_and_ends_writes_but_not_reads() {
        let broken = Arc::new(Broken(MemoryDevice::new(256 << 20), AtomicBool::new(false)));
        let device: Arc<dyn BlockDevice> = Arc::clone(&broken) as _;
        let machine = Machine {
            clock: Arc::new(RealClock::new()),
            entropy: Arc::new(RealEntropy::default()),
        };
        Pool::create(&device, &machine, &PoolFormat { zone_bytes: 1 << 20 }).expect("made");
        let open = || {
            let options = PoolOptions { memory_bytes: 0 };
            Pool::open(Arc::clone(&device), machine.clone(), options).expect("opened")
        };
        let pool = open();
        let volume = pool.create_volume(&spec()).expect("made");
        let put = |volume: &Volume, block: u64| {
            let op = WriteOp::Data { offset: block % 2048 * 4096, bytes: &[7; 4096] };
            volume.write_batch(&[op]).map(drop)
        };
        // It may be broken before another is written.
        put(&volume, 0).expect("written");
        let mut written = 1;
        broken.1.store(true, Ordering::Release);
        let fill = Arc::new(FillGauge::new(Arc::clone(&pool), "/".into(), Arc::default()));
        let background =
            start(Arc::clone(&pool), FillWatch::new(fill), MemberWatch::new("/".into()));
        let background = background.expect("started");
        let began = Instant::now();
        // Sooner or later there is something to be done in the background.
        let refused = loop {
            match put(&volume, written) {
                Err(e) => break e,
                Ok(()) => written += 1,
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{written} writes were accepted");
        };
        assert_eq!(refused.kind, volume::ErrorKind::Refused);
        // A request that waited for the panicking one is refused while that unwinds; then all are.
        while pool.status().state != "refusing-writes" {
            assert!(began.elapsed() < Duration::from_secs(60), "{}", pool.status().state);
            std::thread::yield_now();
        }
        let mut bytes = [0; 4096];
        volume.read(0, &mut bytes).expect("reads go on");
        assert_eq!(bytes, [7; 4096]);
        volume.create_version("").expect_err("nothing is committed any more");
        drop(background);
        pool.close().expect("closed");
        drop((volume, pool));
        // Its work is as if it had not begun.
        broken.1.store(false, Ordering::Release);
        let pool = open();
        let volume = pool.volume("v").expect("there");
        for block in 0..written.min(2048) {
            volume.read(block * 4096, &mut bytes).expect("read");
            assert_eq!(bytes, [7; 4096], "block {block}");
        }
        while pool.step(volume::Budget { bytes: 8 << 20 }).expect("stepped") {}
        put(&volume, 0).expect("written");
    }
}
