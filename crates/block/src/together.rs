//! Requests to several devices: at the same time where they are real, so that disks do their work
//! beside each other; one after the other where a run has to be the same every time.

use std::thread;

/// How several devices are asked for what each of them takes its time for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Together {
    /// One after the other, in the order of their numbers.
    #[default]
    InTurn,
    /// At the same time, by threads.
    AtOnce,
}

impl Together {
    /// Asks devices `0..count`; the answers are in the order of their numbers.
    ///
    /// # Panics
    /// When `ask` does.
    pub(crate) fn ask<T: Send>(self, count: usize, ask: impl Fn(usize) -> T + Sync) -> Vec<T> {
        if self == Together::InTurn || count < 2 {
            return (0..count).map(ask).collect();
        }
        let ask = &ask;
        thread::scope(|scope| {
            let begin = |number: usize| {
                let begun = thread::Builder::new().spawn_scoped(scope, move || ask(number));
                (number, begun)
            };
            let others: Vec<_> = (1..count).map(begin).collect();
            let mut answers = vec![ask(0)];
            for (number, begun) in others {
                answers.push(match begun {
                    Ok(thread) => thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p)),
                    // There are no more threads to be had.
                    Err(_) => ask(number),
                });
            }
            answers
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::Together;

    #[test]
    fn answers_are_in_order_and_all_are_asked_at_once() {
        assert_eq!(Together::InTurn.ask(3, |n| n * 10), [0, 10, 20]);
        // Whoever is asked first waits for the last.
        let barrier = Barrier::new(3);
        let ask = |number| {
            barrier.wait();
            number * 10
        };
        assert_eq!(Together::AtOnce.ask(3, ask), [0, 10, 20]);
        assert_eq!(Together::AtOnce.ask(0, |n| n), []);
    }
}
