//! The thread beside the load: the pool's background work and what members need, as the server's.
//!
//! What can wait for clients has an eighth of the time while they write, as in `server/pace`; that
//! it has more of it after a minute is left out.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use block::Array;
use parking_lot::{Condvar, Mutex};
use volume::{Budget, ErrorKind, Pool};

/// How long it sleeps when there is nothing to do.
const IDLE: Duration = Duration::from_millis(50);
/// How often marks on regions are taken back.
const TIDY_EVERY: Duration = Duration::from_secs(5);
/// Device bytes of one step, and of one that can wait.
const STEP_BYTES: u64 = 8 << 20;
const LEISURE_BYTES: u64 = 128 << 10;
/// What can wait rests so many times as long as it takes.
const REST: u32 = 7;
const REST_MAX: Duration = Duration::from_millis(500);
/// It is seen so often whether it can still wait.
const NAP_MAX: Duration = Duration::from_millis(50);
/// Clients write as long as the last write was no longer ago than this.
const ACTIVE: Duration = Duration::from_millis(100);

/// What is worked on.
pub(crate) enum Work {
    Pool(Arc<Pool>),
    Array(Arc<Array>),
}

/// The running thread.
pub(crate) struct Background {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<Result<(), String>>,
}

impl Background {
    pub(crate) fn start(work: Work) -> std::io::Result<Background> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("background".to_owned())
            .spawn(move || run(&work, &told))?;
        Ok(Background { stop, thread })
    }

    /// Ends the thread; what failed in it is the answer.
    pub(crate) fn stop(self) -> Result<(), String> {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        self.thread.join().unwrap_or_else(|_| Err("background work panicked".to_owned()))
    }
}

fn run(work: &Work, stop: &(Mutex<bool>, Condvar)) -> Result<(), String> {
    let mut tidied = Instant::now();
    let mut pace = Pace { rest: Duration::ZERO, can_wait: false, writes: 0, wrote: None };
    loop {
        let rest = match work {
            Work::Pool(pool) => pace.turn(pool).map_err(|e| format!("background work: {e}"))?,
            Work::Array(_) => IDLE,
        };
        if tidied.elapsed() >= TIDY_EVERY {
            tidied = Instant::now();
            match work {
                Work::Pool(pool) => pool.tidy_members().map_err(|e| e.to_string()),
                Work::Array(array) => array.tidy().map_err(|e| e.to_string()),
            }?;
        }
        let mut stopping = stop.0.lock();
        if !*stopping && !rest.is_zero() {
            stop.1.wait_for(&mut stopping, rest);
        }
        if *stopping {
            return Ok(());
        }
    }
}

/// When it rests.
struct Pace {
    /// What is left of a rest.
    rest: Duration,
    /// Whether what is to be done next can wait.
    can_wait: bool,
    /// Writes when they were counted last, and when there were new ones.
    writes: u64,
    wrote: Option<Instant>,
}

impl Pace {
    /// A step or a part of a rest; says how long to sleep after it.
    fn turn(&mut self, pool: &Pool) -> volume::Result<Duration> {
        if !self.rest.is_zero() {
            pool.run_due();
            self.look(pool);
        }
        if !self.rest.is_zero() {
            let nap = self.rest.min(NAP_MAX);
            self.rest -= nap;
            return Ok(nap);
        }
        let bytes = if self.can_wait { LEISURE_BYTES } else { STEP_BYTES };
        let begun = Instant::now();
        let more = match pool.step(Budget { bytes }) {
            // Writers find it full, too, and say so.
            Err(error) if error.kind == ErrorKind::Full => return Ok(IDLE),
            other => other?,
        };
        let took = begun.elapsed();
        self.look(pool);
        if more && self.can_wait && self.wrote.is_some() {
            self.rest = (took * REST).min(REST_MAX);
        }
        Ok(if more { Duration::ZERO } else { IDLE })
    }

    fn look(&mut self, pool: &Pool) {
        let writes = pool.writes();
        if writes != self.writes {
            (self.writes, self.wrote) = (writes, Some(Instant::now()));
        }
        self.wrote = self.wrote.filter(|wrote| wrote.elapsed() < ACTIVE);
        self.can_wait = pool.leisure().is_some();
        if !self.can_wait || self.wrote.is_none() {
            self.rest = Duration::ZERO;
        }
    }
}
