//! Requests to several devices at a time, so that disks do their work beside each other. Who has
//! threads says how; where a run has to be the same every time they are made in turn.

use std::sync::atomic::{AtomicUsize, Ordering};

use env::RankedMutex;

/// How several devices are asked for what each of them takes its time for.
pub trait Together: Send + Sync {
    /// Calls `ask` once with each of the numbers `0..count`, in any order, also at the same time,
    /// and returns when all are done.
    fn each(&self, count: usize, ask: &(dyn Fn(usize) + Sync));
    /// Whether it is one after the other.
    fn is_in_turn(&self) -> bool {
        false
    }
}

/// One after the other, in the order of their numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct InTurn;

impl Together for InTurn {
    fn each(&self, count: usize, ask: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(ask);
    }

    fn is_in_turn(&self) -> bool {
        true
    }
}

/// What devices `0..count` answer, in the order of their numbers.
pub(crate) fn ask_all<T: Send>(
    together: &dyn Together,
    count: usize,
    ask: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let answers: Vec<RankedMutex<Option<T>>> = (0..count).map(|_| RankedMutex::default()).collect();
    together.each(count, &|number| *answers[number].lock() = Some(ask(number)));
    let answer = |place: RankedMutex<Option<T>>| place.into_inner().expect("each is asked");
    answers.into_iter().map(answer).collect()
}

/// Makes steps in their order, by several who each take the next: one each, and more for as long as
/// it `goes_on`. Says how many of them were made.
///
/// # Errors
/// One of those that steps met.
pub fn make_steps<E: Send>(
    together: &dyn Together,
    lanes: usize,
    count: usize,
    goes_on: &(dyn Fn() -> bool + Sync),
    step: impl Fn(usize) -> Result<(), E> + Sync,
) -> Result<usize, E> {
    // Those that were begun are made in the end, and no other lies before them.
    let begun = AtomicUsize::new(0);
    let lane = |_| {
        loop {
            let number = begun.fetch_add(1, Ordering::SeqCst);
            if number >= count {
                return Ok(());
            }
            let outcome = step(number);
            if outcome.is_err() {
                begun.store(count, Ordering::SeqCst);
            }
            if outcome.is_err() || !goes_on() {
                return outcome;
            }
        }
    };
    ask_all(together, lanes, lane).into_iter().collect::<Result<(), E>>()?;
    Ok(begun.into_inner().min(count))
}

#[cfg(test)]
mod tests {
    use super::{InTurn, Together, ask_all};

    /// The other way round.
    struct Backwards;

    impl Together for Backwards {
        fn each(&self, count: usize, ask: &(dyn Fn(usize) + Sync)) {
            (0..count).rev().for_each(ask);
        }
    }

    #[test]
    fn answers_are_in_the_order_of_numbers_whatever_the_order_of_questions() {
        assert_eq!(ask_all(&InTurn, 3, |n| n * 10), [0, 10, 20]);
        assert_eq!(ask_all(&Backwards, 3, |n| n * 10), [0, 10, 20]);
        assert_eq!(ask_all(&Backwards, 0, |n| n), []);
    }
}
