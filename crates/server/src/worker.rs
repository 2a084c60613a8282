//! Threads that do something again and again until they are stopped.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::StartError;

/// Tells a worker that it is to end.
#[derive(Default)]
pub(crate) struct Stop {
    is_told: Mutex<bool>,
    told: Condvar,
}

impl Stop {
    /// Rests so long, or until it is to end; whether it is to.
    pub(crate) fn rest(&self, rest: Duration) -> bool {
        let mut is_told = self.is_told.lock();
        if !*is_told && !rest.is_zero() {
            self.told.wait_for(&mut is_told, rest);
        }
        *is_told
    }
}

/// A thread that runs; ended when this is dropped, with what it has begun.
pub(crate) struct Worker {
    name: &'static str,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread, whose work is to end when it is told so.
    pub(crate) fn start(
        name: &'static str,
        work: impl FnOnce(&Stop) + Send + 'static,
    ) -> Result<Worker, StartError> {
        let stop = Arc::new(Stop::default());
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || work(&told)).map_err(StartError::Thread)?;
        Ok(Worker { name, stop, thread: Some(thread) })
    }

    /// Has it end soon, without waiting for that.
    pub(crate) fn tell(&self) {
        *self.stop.is_told.lock() = true;
        self.stop.told.notify_all();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.tell();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(thread = self.name, "a thread panicked");
        }
    }
}
