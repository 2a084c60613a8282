//! The thread beside the load: the pool's background work and what members need, as the server's.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use block::Array;
use parking_lot::{Condvar, Mutex};
use volume::{ErrorKind, Pool};

/// How long it sleeps when there is nothing to do.
const IDLE: Duration = Duration::from_millis(50);
/// How often marks on regions are taken back.
const TIDY_EVERY: Duration = Duration::from_secs(5);

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
    loop {
        let rest = match work {
            Work::Pool(pool) => {
                let rest = pool.turn();
                // Writers find it full, too, and say so.
                let mut failures = pool.failures().into_iter();
                let failure = failures.find(|(_, kind, _)| *kind != ErrorKind::Full);
                failure.map_or(Ok(rest), |(job, _, why)| Err(format!("{job}: {why}")))?
            }
            Work::Array(_) => IDLE,
        };
        let is_due = tidied.elapsed() >= TIDY_EVERY;
        tidied = if is_due { Instant::now() } else { tidied };
        match work {
            Work::Pool(pool) if is_due => pool.tidy_members().map_err(|e| e.to_string()),
            Work::Pool(pool) if pool.has_many_marks() => {
                pool.tidy_members_early().map_err(|e| e.to_string())
            }
            Work::Array(array) if is_due => array.tidy().map_err(|e| e.to_string()),
            Work::Array(array) if array.has_many_marks() => {
                array.tidy_early().map_err(|e| e.to_string())
            }
            Work::Pool(_) | Work::Array(_) => Ok(()),
        }?;
        let mut stopping = stop.0.lock();
        if !*stopping && !rest.is_zero() {
            stop.1.wait_for(&mut stopping, rest);
        }
        if *stopping {
            return Ok(());
        }
    }
}
