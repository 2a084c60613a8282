//! The owner's handle of an open pool.

use std::ops::Deref;
use std::sync::Arc;

use crate::pool::Engine;

/// An open pool.
///
/// Volumes ask its engine for room and for the right to do background work, and hold it while they
/// do. So a pool is closed when its owner lets go of it, not when the last of them has: no
/// background work goes on after that, and nobody waits for any.
pub struct Pool {
    engine: Arc<Engine>,
}

impl Pool {
    /// The handle of an engine that was just made.
    pub(crate) fn of(engine: Arc<Engine>) -> Arc<Pool> {
        Arc::new(Pool { engine })
    }
}

impl Deref for Pool {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.engine.let_go();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use crate::ErrorKind;
    use crate::write::cache_sizes::tests::cached_volume;

    #[test]
    fn who_lets_go_of_a_pool_waits_for_who_is_at_work_and_ends_it() {
        let (pool, volume) = cached_volume();
        let engine = Arc::clone(&pool.engine);
        let is_gone = AtomicBool::new(false);
        thread::scope(|scope| {
            let at_work = engine.work.lock();
            let waiter = scope.spawn(|| engine.lock_work(&|| true).is_some());
            scope.spawn(|| {
                drop(pool);
                is_gone.store(true, Ordering::Release);
            });
            while !engine.core.is_closed() {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(20));
            assert!(!is_gone.load(Ordering::Acquire), "somebody is at work");
            drop(at_work);
            assert!(!waiter.join().expect("no panic"), "who waits for work gets none");
        });
        assert!(is_gone.load(Ordering::Acquire));
        // Its engine is there as long as somebody asks it, and does nothing.
        assert_eq!(engine.check_open().expect_err("closed").kind, ErrorKind::Refused);
        assert_eq!(volume.flush().expect_err("closed").kind, ErrorKind::Refused);
    }
}
