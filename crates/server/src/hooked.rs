//! Scheduled captures with hooks: each on a thread of its own, because commands take their time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use volume::{Pool, Volume};

use crate::StartError;
use crate::hooks::Hooks;

/// How often schedules are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// The running thread; stopped by [`Hooked::stop`].
pub(crate) struct Hooked {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<()>,
}

impl Hooked {
    /// Starts the thread.
    pub(crate) fn start(pool: &Arc<Pool>, hooks: &Arc<Hooks>) -> Result<Hooked, StartError> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (told, pool, hooks) = (Arc::clone(&stop), Arc::clone(pool), Arc::clone(hooks));
        let thread = std::thread::Builder::new()
            .name("hooked".to_owned())
            .spawn(move || run(&pool, &hooks, &told))
            .map_err(StartError::Thread)?;
        Ok(Hooked { stop, thread })
    }

    /// Lets captures under way finish, commands included, and ends the thread.
    pub(crate) fn stop(self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if self.thread.join().is_err() {
            tracing::error!("the thread of scheduled captures with hooks panicked");
        }
    }
}

fn run(pool: &Pool, hooks: &Arc<Hooks>, stop: &(Mutex<bool>, Condvar)) {
    let mut under_way: BTreeMap<String, JoinHandle<()>> = BTreeMap::new();
    loop {
        under_way.retain(|_, capture| !capture.is_finished());
        for volume in pool.volumes() {
            if under_way.contains_key(volume.name()) {
                continue;
            }
            let Some(hook) = volume.due_hook() else { continue };
            let name = volume.name().to_owned();
            match capture(hooks, volume, hook) {
                Ok(thread) => drop(under_way.insert(name, thread)),
                Err(error) => tracing::error!(%error, "a capture could not be begun"),
            }
        }
        let mut stopping = stop.0.lock();
        if !*stopping {
            stop.1.wait_for(&mut stopping, LOOK);
        }
        if *stopping {
            break;
        }
    }
    for (volume, capture) in under_way {
        if capture.join().is_err() {
            tracing::error!(%volume, "a capture with a hook panicked");
        }
    }
}

fn capture(
    hooks: &Arc<Hooks>,
    volume: Arc<Volume>,
    hook: String,
) -> std::io::Result<JoinHandle<()>> {
    let hooks = Arc::clone(hooks);
    std::thread::Builder::new().name("capture".to_owned()).spawn(move || {
        hooks.around(&hook, volume.name(), |consistency| volume.capture_hooked(consistency));
    })
}
