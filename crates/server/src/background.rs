//! The thread that does the pool's background work, and sleeps when there is none.
//!
//! A panic in it is a mistake of ours, found by an assertion: what it was doing is half done in
//! memory, and sound on the device. So the pool refuses writes from then on, which the log, the
//! metrics, `GET /healthz` and `pool status` say at once; reads go on for a moment, until the
//! process ends as after any panic (`serve`), and a restart recovers.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use volume::{Budget, Pool};

use crate::StartError;
use crate::fill::FillWatch;
use crate::member_watch::MemberWatch;
use crate::pace::{Pace, Seen};

/// How long an idle thread sleeps.
const IDLE: Duration = Duration::from_millis(50);
/// Bytes of each copy that a scrub reads at a time while nobody else wants the devices.
const SCRUB_ALONE_BYTES: u64 = 8 << 20;
/// The same beside other requests: who comes waits no longer than it takes.
const SCRUB_BESIDE_BYTES: u64 = 1 << 20;
/// How often the time of such a step is waited before the next: it takes one twentieth.
const SCRUB_REST: u32 = 19;
/// So long after the last request of a client a scrub has the devices for itself.
const SCRUB_QUIET: Duration = Duration::from_millis(250);
/// By so much the last write of a volume is ahead of the clock when the log says so.
const TOLD_AHEAD_NS: u64 = 60_000_000_000;
/// How long it sleeps after a failure, so that a broken device does not fill the log.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// The running thread; stopped by [`Background::stop`].
pub(crate) struct Background {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<()>,
}

impl Background {
    /// Starts the thread.
    pub(crate) fn start(
        pool: Arc<Pool>,
        fill: FillWatch,
        members: MemberWatch,
    ) -> Result<Background, StartError> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("background".to_owned())
            .spawn(move || run(&pool, fill, members, &told))
            .map_err(StartError::Thread)?;
        Ok(Background { stop, thread })
    }

    /// Lets the step at hand finish and ends the thread.
    pub(crate) fn stop(self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if self.thread.join().is_err() {
            tracing::error!("the background thread panicked");
        }
    }
}

/// Writes to the log when a change of architecture has come to its end.
#[derive(Default)]
struct ConversionWatch {
    under_way: BTreeSet<String>,
}

impl ConversionWatch {
    fn look(&mut self, pool: &Pool) {
        let volumes = pool.volumes();
        let open = volumes.iter().filter(|volume| volume.is_converting());
        let now: BTreeSet<String> = open.map(|volume| volume.name().to_owned()).collect();
        for volume in volumes.iter().filter(|volume| !now.contains(volume.name())) {
            if self.under_way.contains(volume.name()) {
                let architecture = volume.architecture().name();
                tracing::info!(volume = volume.name(), architecture, "a conversion has ended");
            }
        }
        self.under_way = now;
    }
}

/// Says when a scrub goes on: at once while nobody else wants the devices, and beside others for
/// one twentieth of the time; and no sooner than its limit in bytes a second lets it.
struct ScrubPace {
    /// Requests of clients when they were counted last, and when there were new ones.
    requests: u64,
    seen: Instant,
    /// Beside others, not before this.
    next: Instant,
    was_running: bool,
}

impl ScrubPace {
    fn new() -> ScrubPace {
        let now = Instant::now();
        ScrubPace { requests: 0, seen: now, next: now, was_running: false }
    }

    /// Does some of a scrub if it may, and says when it wants to go on. It is `now`.
    fn turn(&mut self, pool: &Pool, is_busy: bool, now: Instant) -> volume::Result<Duration> {
        // Counted without a scrub, too: requests of long ago are not news when one begins.
        let requests = pool.requests();
        if requests != self.requests {
            (self.requests, self.seen) = (requests, now);
        }
        if !pool.wants_scrub() {
            self.tell(pool, false);
            return Ok(IDLE);
        }
        let is_beside = is_busy || now.duration_since(self.seen) < SCRUB_QUIET;
        if is_beside && now < self.next {
            return Ok(self.next - now);
        }
        let wait_ns = pool.scrub_wait_ns();
        if wait_ns > 0 {
            return Ok(Duration::from_nanos(wait_ns));
        }
        let bytes = if is_beside { SCRUB_BESIDE_BYTES } else { SCRUB_ALONE_BYTES };
        let read = pool.step_scrub(Budget { bytes })?;
        self.tell(pool, true);
        let rest = now.elapsed() * SCRUB_REST;
        self.next = Instant::now() + rest;
        // Somebody else is at work in the background.
        let rest = if read.is_none() { rest.max(Duration::from_millis(1)) } else { rest };
        Ok(if is_beside || read.is_none() { rest } else { Duration::ZERO })
    }

    /// Writes to the log what came of one.
    fn tell(&mut self, pool: &Pool, is_running: bool) {
        if self.was_running == is_running {
            return;
        }
        self.was_running = is_running;
        let Some(info) = pool.scrub_info() else { return };
        let volume::ScrubInfo { read_bytes, wrong, healed, repaired, elsewhere, lost, .. } = info;
        match (is_running, lost) {
            (true, _) => tracing::info!("a scrub is running"),
            (false, 0) => {
                tracing::info!(
                    read_bytes,
                    wrong,
                    healed,
                    repaired,
                    elsewhere,
                    "the scrub has ended"
                );
            }
            (false, _) => {
                let losses = info.losses.join("; ");
                let text = "the scrub found losses";
                tracing::error!(
                    read_bytes, wrong, healed, repaired, elsewhere, lost, losses, "{text}"
                );
            }
        }
    }
}

/// Writes to the log when a schedule begins to fail, and when it has recovered.
#[derive(Default)]
struct ScheduleWatch {
    /// By what they are of, `volume` or `group`, and its name.
    failing: BTreeMap<(&'static str, String), String>,
}

impl ScheduleWatch {
    fn look(&mut self, pool: &Pool) {
        let mut failing = BTreeMap::new();
        for volume in pool.volumes() {
            let info = volume.schedule_info().ok().flatten();
            if let Some(error) = info.and_then(|info| info.error) {
                failing.insert(("volume", volume.name().to_owned()), error);
            }
        }
        for (group, info) in pool.group_schedules() {
            failing.extend(info.error.map(|error| (("group", group), error)));
        }
        for ((kind, name), error) in &failing {
            if self.failing.get(&(*kind, name.clone())) != Some(error) {
                tracing::error!(kind, name, %error, "a schedule failed; it is tried again");
            }
        }
        for (kind, name) in self.failing.keys().filter(|of| !failing.contains_key(*of)) {
            tracing::info!(kind, name, "a schedule does not fail any more");
        }
        self.failing = failing;
    }
}

/// Writes to the log when a file that is being imported is in trouble, and when all of it was
/// copied.
#[derive(Default)]
struct ImportWatch {
    under_way: BTreeMap<String, Option<String>>,
}

impl ImportWatch {
    fn look(&mut self, pool: &Pool) {
        let volumes = pool.volumes();
        let mut now = BTreeMap::new();
        for volume in &volumes {
            let name = volume.name();
            let Some(import) = volume.import_info() else {
                if self.under_way.contains_key(name) {
                    tracing::info!(volume = name, "an import has ended: all of it was copied");
                }
                continue;
            };
            let before = self.under_way.get(name);
            if let Some(trouble) = import.trouble.as_ref()
                && before.is_none_or(|before| before.as_ref() != Some(trouble))
            {
                tracing::warn!(volume = name, file = import.file, trouble, "an import rests");
            }
            if import.trouble.is_none() && before.is_some_and(Option::is_some) {
                tracing::info!(volume = name, file = import.file, "an import goes on");
            }
            now.insert(name.to_owned(), import.trouble);
        }
        self.under_way = now;
    }
}

/// Writes to the log when times of a volume are ahead of the clock, and when they no longer are.
#[derive(Default)]
struct TimeWatch {
    ahead: BTreeSet<String>,
}

impl TimeWatch {
    fn look(&mut self, pool: &Pool) {
        let volumes = pool.volumes();
        let is_ahead = |v: &&Arc<volume::Volume>| v.time_ahead_ns() >= TOLD_AHEAD_NS;
        let now: BTreeSet<String> =
            volumes.iter().filter(is_ahead).map(|volume| volume.name().to_owned()).collect();
        for volume in volumes.iter().filter(|v| now.contains(v.name())) {
            if !self.ahead.contains(volume.name()) {
                let seconds = volume.time_ahead_ns() / 1_000_000_000;
                let text = "the last write is ahead of the clock: one of the two is wrong";
                tracing::warn!(volume = volume.name(), seconds, "{text}");
            }
        }
        for name in self.ahead.difference(&now) {
            tracing::info!(volume = name, "the clock has caught up with the last write");
        }
        self.ahead = now;
    }
}

/// The things that the thread looks at between steps.
struct Watches {
    looked: Option<Instant>,
    fill: FillWatch,
    conversions: ConversionWatch,
    schedules: ScheduleWatch,
    imports: ImportWatch,
    times: TimeWatch,
    members: MemberWatch,
}

impl Watches {
    fn look(&mut self, pool: &Pool) {
        if self.looked.is_some_and(|looked| looked.elapsed() < IDLE) {
            return;
        }
        self.looked = Some(Instant::now());
        self.fill.look();
        self.members.look(pool);
        self.conversions.look(pool);
        self.schedules.look(pool);
        self.imports.look(pool);
        self.times.look(pool);
    }
}

fn run(pool: &Pool, fill: FillWatch, members: MemberWatch, stop: &(Mutex<bool>, Condvar)) {
    let mut failed = false;
    let mut scrubs = ScrubPace::new();
    let mut watches = Watches {
        looked: None,
        fill,
        conversions: ConversionWatch::default(),
        schedules: ScheduleWatch::default(),
        imports: ImportWatch::default(),
        times: TimeWatch::default(),
        members,
    };
    let mut pace = Pace::default();
    loop {
        let nap = pace.nap();
        let sleep = match nap.is_zero() {
            true => take_turn(pool, &mut watches, (&mut pace, &mut scrubs), &mut failed),
            false => nap,
        };
        let mut stopping = stop.0.lock();
        if !*stopping && !sleep.is_zero() {
            stop.1.wait_for(&mut stopping, sleep);
        }
        if *stopping {
            return;
        }
        drop(stopping);
        if !nap.is_zero() {
            pool.run_due();
            pace.look(seen(pool));
        }
    }
}

fn seen(pool: &Pool) -> Seen {
    Seen { now: Instant::now(), leisure: pool.leisure(), writes: pool.writes() }
}

/// One step; says how long to sleep after it.
fn take_turn(
    pool: &Pool,
    watches: &mut Watches,
    (pace, scrubs): (&mut Pace, &mut ScrubPace),
    failed: &mut bool,
) -> Duration {
    let turn = catch_unwind(AssertUnwindSafe(|| {
        watches.look(pool);
        let begun = Instant::now();
        let more = pool.step(pace.budget());
        let took = begun.elapsed();
        (more.and_then(|more| Ok((more, scrubs.turn(pool, more, Instant::now())?))), took)
    }));
    match turn {
        Ok((Ok((more, rest)), took)) => {
            *failed = false;
            match more {
                true => pace.note_step(took, seen(pool)),
                false => pace.look(seen(pool)),
            }
            if more { Duration::ZERO } else { rest.min(IDLE) }
        }
        Ok((Err(error), _)) => {
            // Once per spell of failures: the state is in the metrics and in GET /pool.
            if !*failed {
                tracing::error!(%error, "background work failed");
            }
            *failed = true;
            AFTER_FAILURE
        }
        Err(panic) => {
            pool.refuse_writes();
            let why = words(&*panic);
            tracing::error!(why, "background work panicked; the pool refuses writes");
            AFTER_FAILURE
        }
    }
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
    use volume::{Machine, Pool, PoolFormat, PoolOptions, Rates, Volume, VolumeSpec, WriteOp};

    use super::{Background, IDLE, MemberWatch, SCRUB_QUIET, SCRUB_REST, ScrubPace};
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

    /// A pool in memory, and a volume in it.
    fn opened() -> (Arc<Pool>, Arc<Volume>) {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(128 << 20));
        let machine = Machine {
            clock: Arc::new(RealClock::new()),
            entropy: Arc::new(RealEntropy::default()),
        };
        Pool::create(&device, &machine, &PoolFormat { zone_bytes: 1 << 20 }).expect("made");
        let pool = Pool::open(device, machine, PoolOptions { memory_bytes: 0 }).expect("opened");
        let volume = pool.create_volume(&spec()).expect("made");
        (pool, volume)
    }

    #[test]
    fn a_scrub_rests_beside_clients_and_goes_on_at_once_without_them() {
        let (pool, volume) = opened();
        let write = |n: u64| {
            let op = WriteOp::Data { offset: (n % 8) << 20, bytes: &[7; 1 << 20] };
            volume.write_batch(&[op]).map(drop).expect("written");
        };
        (0..40).for_each(write);
        let mut pace = ScrubPace::new();
        // It is always the same time, however long this thread is kept waiting between two turns.
        let now = Instant::now();
        let turn = |pace: &mut ScrubPace, is_busy| pace.turn(&pool, is_busy, now).expect("a turn");
        assert_eq!(turn(&mut pace, false), IDLE, "nothing is to be done");
        pool.start_scrub().expect("started");
        let read = || pool.scrub_info().expect("one runs").read_bytes;
        write(40);
        let rest = turn(&mut pace, false);
        let (once, took) = (read(), now.elapsed());
        assert!((1 << 20..3 << 20).contains(&once), "{once} bytes beside a client");
        // No memory has a mebibyte read and its checksums computed in less.
        let least = Duration::from_micros(20);
        assert!((least..=took).contains(&(rest / SCRUB_REST)), "{rest:?} after {took:?}");
        assert!(turn(&mut pace, false) >= rest);
        assert_eq!(read(), once, "it rests");
        // Nobody asked for anything for a while.
        pace.seen -= SCRUB_QUIET;
        assert_eq!(turn(&mut pace, false), Duration::ZERO);
        let alone = read() - once;
        assert!(alone > 6 << 20, "{alone} bytes alone");
        let rest = turn(&mut pace, true);
        assert!(rest > Duration::ZERO && read() == once + alone, "others work in the background");
    }

    #[test]
    fn a_scrub_that_begins_when_clients_have_long_been_quiet_does_not_wait_for_them() {
        let (pool, volume) = opened();
        for n in 0..20 {
            let op = WriteOp::Data { offset: (n % 8) << 20, bytes: &[7; 1 << 20] };
            volume.write_batch(&[op]).map(drop).expect("written");
        }
        let mut pace = ScrubPace::new();
        assert_eq!(
            pace.turn(&pool, false, Instant::now()).expect("a turn"),
            IDLE,
            "nothing is to be done"
        );
        pace.seen -= SCRUB_QUIET;
        pool.start_scrub().expect("started");
        assert_eq!(pace.turn(&pool, false, Instant::now()).expect("a turn"), Duration::ZERO);
        let read = pool.scrub_info().expect("one runs").read_bytes;
        assert!(read > 6 << 20, "{read} bytes at once");
    }

    #[test]
    fn a_scrub_that_is_alone_waits_for_its_limit() {
        let (pool, volume) = opened();
        for n in 0..20 {
            let op = WriteOp::Data { offset: (n % 8) << 20, bytes: &[7; 1 << 20] };
            volume.write_batch(&[op]).map(drop).expect("written");
        }
        // So slow that a step is paid for long after this test.
        let scrub = std::num::NonZeroU64::new(64 << 10);
        pool.set_rates(Rates { scrub, ..Rates::default() });
        pool.start_scrub().expect("started");
        let mut pace = ScrubPace::new();
        pace.seen -= SCRUB_QUIET;
        let read = || pool.scrub_info().expect("one runs").read_bytes;
        pace.turn(&pool, false, Instant::now()).expect("a turn");
        pace.seen -= SCRUB_QUIET;
        let once = read();
        assert!((64 << 10..3 << 20).contains(&once), "{once} bytes in a step");
        let rest = pace.turn(&pool, false, Instant::now()).expect("a turn");
        assert!(rest > Duration::from_millis(500), "{rest:?}");
        assert_eq!(read(), once, "it waits");
        pool.set_rates(Rates::default());
        assert_eq!(pace.turn(&pool, false, Instant::now()).expect("a turn"), Duration::ZERO);
        assert!(read() > once + (6 << 20), "there is no limit any more");
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
        let fill = Arc::new(FillGauge::new(Arc::clone(&pool), "/".into()));
        let background = Background::start(
            Arc::clone(&pool),
            FillWatch::new(fill),
            MemberWatch::new("/".into()),
        );
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
        background.stop();
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
