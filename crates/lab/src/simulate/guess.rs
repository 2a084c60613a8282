//! Whether a version that leaves the cache before its window is over will be retained: the guess
//! that the hybrid lives by.
//!
//! A block's own mean distance between writes, against what is left of the window, puts it into one
//! of a few classes. Of each class is counted how many were overwritten before their window was
//! over. Until a window has ended, writes are taken to come at random with the block's mean.

/// The class of blocks that were written only once.
const UNKNOWN: u8 = 0;
const CLASSES: usize = 34;
/// Classes for each doubling of the ratio.
const PER_OCTAVE: f64 = 2.0;
/// Fewer in a class say nothing.
const ENOUGH: f64 = 16.0;

#[derive(Clone, Copy, Default)]
struct Class {
    decided: f64,
    overwritten: f64,
}

/// What became of each class in the windows before, and in this one.
pub(super) struct Guess {
    window: u64,
    past: [Class; CLASSES],
    now: [Class; CLASSES],
}

impl Guess {
    pub(super) fn new() -> Guess {
        Guess { window: 0, past: [Class::default(); CLASSES], now: [Class::default(); CLASSES] }
    }

    /// The class of a block with a mean distance (0: not known) and so much left of its window.
    pub(super) fn class(distance_ns: u64, left_ns: f64) -> u8 {
        if distance_ns == 0 {
            return UNKNOWN;
        }
        let ratio = left_ns.max(1.0) / distance_ns as f64;
        let middle = (CLASSES / 2) as f64;
        (ratio.log2() * PER_OCTAVE + middle).clamp(1.0, (CLASSES - 1) as f64) as u8
    }

    /// Whether a version of this class is retained more likely than not.
    pub(super) fn is_retained(&self, class: u8) -> bool {
        let Class { decided, overwritten } = self.past[class as usize];
        if decided < ENOUGH {
            // In half of the cases none comes for this part of the mean.
            let half = std::f64::consts::LN_2.log2() * PER_OCTAVE + (CLASSES / 2) as f64;
            return class == UNKNOWN || f64::from(class) < half;
        }
        overwritten < decided / 2.0
    }

    /// A version of this class left the cache in this window.
    pub(super) fn decided(&mut self, class: u8, window: u64) {
        if window != self.window {
            self.window = window;
            for (past, now) in self.past.iter_mut().zip(&mut self.now) {
                // Workloads change: a window counts half as much as the next one.
                past.decided = past.decided / 2.0 + now.decided;
                past.overwritten = past.overwritten / 2.0 + now.overwritten;
                *now = Class::default();
            }
        }
        self.now[class as usize].decided += 1.0;
    }

    /// One that had left was overwritten in its window after all.
    pub(super) fn overwritten(&mut self, class: u8) {
        self.now[class as usize].overwritten += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::Guess;

    #[test]
    fn blocks_that_are_written_often_are_not_retained_until_the_counts_say_so() {
        let mut guess = Guess::new();
        let (often, seldom) = (Guess::class(10, 1000.0), Guess::class(1000, 10.0));
        assert!(!guess.is_retained(often) && guess.is_retained(seldom));
        assert!(guess.is_retained(Guess::class(0, 1000.0)));
        for window in 1..4 {
            for _ in 0..100 {
                guess.decided(often, window);
                guess.decided(seldom, window);
                guess.overwritten(seldom);
            }
        }
        assert!(guess.is_retained(often) && !guess.is_retained(seldom));
    }
}
