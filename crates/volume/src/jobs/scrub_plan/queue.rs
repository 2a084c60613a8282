//! The queue of a scrub.

use std::collections::VecDeque;

use crate::catalogue::{ScrubPhase, ScrubRecord};

/// How often runs are looked for that came while runs were looked at: each time there are fewer,
/// but where somebody always writes there is always one.
const ROUNDS_MAX: u32 = 8;

/// Something to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A segment in a zone.
    Segment {
        zone: u32,
        number: u64,
    },
    /// A run of a timeline, or of times (of timeline 0).
    Run {
        number: u64,
        owner: u64,
    },
    /// Pages of the catalogue from this one on.
    Catalogue {
        page: u64,
    },
    Parity {
        region: u64,
    },
}

/// The items of the phase at hand.
pub struct Queue {
    items: VecDeque<Item>,
    last_run: u64,
    rounds: u32,
    /// Objects in all, and done: each a part of the progress.
    all: u64,
    done: u64,
}

impl Queue {
    /// The rest after the part that a record says was done, of zones and numbers of segments, in
    /// the order of zones, and numbers and owners of runs, in that of numbers.
    pub fn new(segments: &[(u32, u64)], runs: &[(u64, u64)], record: &ScrubRecord) -> Queue {
        let all = segments.len() + runs.len() + 1;
        let mut queue = Queue {
            items: VecDeque::new(),
            last_run: runs.last().map_or(0, |run| run.0),
            rounds: 0,
            all: all as u64,
            done: 0,
        };
        match record.phase {
            ScrubPhase::Segments => {
                let left = segments.iter().filter(|(zone, _)| u64::from(*zone) >= record.next);
                queue.items.extend(left.map(|&(zone, number)| Item::Segment { zone, number }));
                queue.done = (segments.len() - queue.items.len()) as u64;
            }
            ScrubPhase::Runs => {
                queue.add_runs(runs, record.next);
                queue.done = (segments.len() + runs.len() - queue.items.len()) as u64;
            }
            ScrubPhase::Catalogue => {
                queue.add_catalogue(record.next);
                queue.done = (segments.len() + runs.len()) as u64;
            }
            ScrubPhase::Parity => {
                queue.add_parity(record.next);
                queue.done = (segments.len() + runs.len() + 1) as u64;
            }
        }
        queue
    }

    /// The next item.
    pub fn next(&self) -> Option<Item> {
        self.items.front().copied()
    }

    /// Ends the item that came next.
    pub fn end(&mut self) {
        self.items.pop_front();
        self.done += 1;
    }

    /// Where to begin after a restart.
    pub fn position(&self) -> u64 {
        match self.next() {
            Some(Item::Segment { zone, .. }) => u64::from(zone),
            Some(Item::Run { number, .. }) => number,
            Some(Item::Catalogue { page }) => page,
            Some(Item::Parity { region }) => region,
            None => u64::MAX,
        }
    }

    /// Adds the runs from a number on.
    pub fn add_runs(&mut self, runs: &[(u64, u64)], from: u64) {
        self.last_run = runs.last().map_or(0, |run| run.0);
        let left = runs.iter().copied().filter(|&(number, _)| number >= from);
        self.items.extend(left.map(|(number, owner)| Item::Run { number, owner }));
    }

    /// Adds those that are newer than the last; false if there are none, or if it was often enough.
    pub fn add_newer_runs(&mut self, runs: &[(u64, u64)]) -> bool {
        self.rounds += 1;
        let from = self.last_run + 1;
        if self.rounds <= ROUNDS_MAX {
            self.add_runs(runs, from);
        }
        !self.items.is_empty()
    }

    /// Adds the catalogue from a page on.
    pub fn add_catalogue(&mut self, page: u64) {
        self.items.push_back(Item::Catalogue { page });
    }

    /// Adds what is computed, from a region on.
    pub fn add_parity(&mut self, region: u64) {
        self.items.push_back(Item::Parity { region });
    }

    /// Goes on with the catalogue at a page, or is done with it.
    pub fn end_catalogue(&mut self, next: Option<u64>) {
        self.end();
        if let Some(page) = next {
            self.done -= 1;
            self.add_catalogue(page);
        }
    }

    /// How much is done.
    pub fn percent(&self) -> u64 {
        (self.done * 100 / self.all.max(1)).min(99)
    }
}
