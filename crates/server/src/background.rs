//! The thread that does the pool's background work, and sleeps when there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use volume::{Budget, Pool};

use crate::StartError;
use crate::fill::FillWatch;

/// Device bytes of one step: small, so that stopping never waits long.
const STEP_BYTES: u64 = 8 << 20;
/// How long an idle thread sleeps.
const IDLE: Duration = Duration::from_millis(50);
/// How long it sleeps after a failure, so that a broken device does not fill the log.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// The running thread; stopped by [`Background::stop`].
pub(crate) struct Background {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<()>,
}

impl Background {
    /// Starts the thread.
    pub(crate) fn start(pool: Arc<Pool>, fill: FillWatch) -> Result<Background, StartError> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("background".to_owned())
            .spawn(move || run(&pool, fill, &told))
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

/// Writes to the log when a schedule begins to fail, and when it has recovered.
#[derive(Default)]
struct ScheduleWatch {
    failing: BTreeMap<String, String>,
}

impl ScheduleWatch {
    fn look(&mut self, pool: &Pool) {
        let mut failing = BTreeMap::new();
        for volume in pool.volumes() {
            let info = volume.schedule_info().ok().flatten();
            if let Some(error) = info.and_then(|info| info.error) {
                failing.insert(volume.name().to_owned(), error);
            }
        }
        for (volume, error) in &failing {
            if self.failing.get(volume) != Some(error) {
                tracing::error!(%volume, %error, "a schedule failed; it is tried again");
            }
        }
        for volume in self.failing.keys().filter(|volume| !failing.contains_key(*volume)) {
            tracing::info!(%volume, "a schedule does not fail any more");
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

fn run(pool: &Pool, mut fill: FillWatch, stop: &(Mutex<bool>, Condvar)) {
    let mut failed = false;
    let mut conversions = ConversionWatch::default();
    let mut schedules = ScheduleWatch::default();
    let mut imports = ImportWatch::default();
    loop {
        fill.look();
        conversions.look(pool);
        schedules.look(pool);
        imports.look(pool);
        let sleep = match pool.step(Budget { bytes: STEP_BYTES }) {
            Ok(more) => {
                failed = false;
                if more { Duration::ZERO } else { IDLE }
            }
            Err(error) => {
                // Once per spell of failures: the state is in the metrics and in GET /pool.
                if !failed {
                    tracing::error!(%error, "background work failed");
                }
                failed = true;
                AFTER_FAILURE
            }
        };
        let mut stopping = stop.0.lock();
        if !*stopping && !sleep.is_zero() {
            stop.1.wait_for(&mut stopping, sleep);
        }
        if *stopping {
            return;
        }
    }
}
