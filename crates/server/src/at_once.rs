//! Several devices asked at the same time, each by a thread.

use std::thread;

use block::Together;

/// Threads that live as long as the question: starting one is little beside what a disk takes to
/// make something durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtOnce;

impl Together for AtOnce {
    fn each(&self, count: usize, ask: &(dyn Fn(usize) + Sync)) {
        thread::scope(|scope| {
            for number in 1..count {
                let begun = thread::Builder::new().spawn_scoped(scope, move || ask(number));
                if begun.is_err() {
                    // There are no more threads to be had.
                    ask(number);
                }
            }
            if count > 0 {
                ask(0);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use block::Together;

    use super::AtOnce;

    #[test]
    fn all_are_asked_at_the_same_time_and_waited_for() {
        // The first that is asked waits for the last.
        let (barrier, done) = (Barrier::new(3), AtomicUsize::new(0));
        AtOnce.each(3, &|number| {
            barrier.wait();
            done.fetch_add(1 << (4 * number), Ordering::SeqCst);
        });
        assert_eq!(done.load(Ordering::SeqCst), 0x111);
        AtOnce.each(0, &|_| unreachable!("nobody is there"));
    }
}
