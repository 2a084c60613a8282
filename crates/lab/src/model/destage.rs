//! What the engine's `checkpointing` brings home, by the rule by which it destages.
//!
//! Its journal is a cache that is emptied all at once: of a block that was written several times
//! since the last destage the newest version comes home, and the version it displaces there is
//! copied away if it is the last of its granularity window.
//!
//! Nothing is fitted: when destages begin follows from how much of the map is new, and that from
//! the same distances. The volume was empty before, and a window begins with it.
//!
//! A destage begins with a map flush. Flushes are about equal, so that the share of the map that is
//! new comes near the one that begins a destage again and again; then some entries more or less
//! move it by a whole flush, and all later ones with it. So it is told for the destages that there
//! were ([`Profile::destaged_at`]), and when the next one begins after those
//! ([`Profile::next_destage`]).

use serde::Serialize;
use units::Granularity;

use super::forecast::window_ns;
use super::profile::Profile;

/// When a volume destages.
#[derive(Clone, Copy, Debug)]
pub struct DestageRule {
    /// Extents that are written between two map flushes: only what was flushed comes home.
    pub flush_writes: u64,
    /// New map entries that are worth a destage at once, of a large enough share of the map.
    pub entries_min: u64,
    /// Fewer wait for so long since the last one began, in nanoseconds, ...
    pub wait_min_ns: u64,
    /// ... and for so long for each entry of the map.
    pub wait_entry_ns: u64,
    /// Runs of the map that there may be, and how many of the smallest neighbours then become one.
    pub runs_max: usize,
    /// At most as many as there may be.
    pub joined: usize,
    /// A destage begins when one in this many entries of the map is new.
    pub new_share: u64,
}

/// What was brought home and copied away, for one extent written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Destaged {
    /// Extents that came home.
    pub homes: f64,
    /// Before-images that were copied away for them.
    pub copied: f64,
}

impl Profile {
    /// When the first destage begins after one at `last`, both in extents written since the volume
    /// was empty.
    #[must_use]
    pub fn next_destage(&self, granularity: Granularity, rule: DestageRule, last: u64) -> u64 {
        let windows = Windows::new(self, granularity);
        // Entries are whole, as the rule divides them.
        let entries = |run: &(f64, f64)| windows.entries(run.0, run.1).round() as u64;
        let flush = rule.flush_writes.max(1) as f64;
        let old = entries(&(0.0, last as f64));
        let mut runs: Vec<(f64, f64)> = Vec::new();
        loop {
            let from = runs.last().map_or(last as f64, |run| run.1);
            runs.push((from, from + flush));
            let is_old = usize::from(old > 0);
            while runs.len() + is_old > rule.runs_max {
                let cost = |first: &usize| -> u64 {
                    runs[*first..*first + rule.joined].iter().map(entries).sum()
                };
                let first = (0..=runs.len() - rule.joined).min_by_key(cost).unwrap_or_default();
                let joined: Vec<_> = runs.drain(first..first + rule.joined).collect();
                runs.insert(first, (joined[0].0, joined[rule.joined - 1].1));
            }
            let new: u64 = runs.iter().map(entries).sum();
            let all_written = runs.last().is_some_and(|run| run.1 >= self.writes() as f64);
            let end = from + flush;
            if new >= rule.entries_min.max((old + new) / rule.new_share) || all_written {
                return end as u64;
            }
            let wait_ns = rule.wait_min_ns.max((old + new).saturating_mul(rule.wait_entry_ns));
            let waited = last as f64 + wait_ns as f64 / windows.ns_per_write;
            // It begins with a map flush of its own.
            if new > 0 && waited < end + flush {
                return waited.max(end) as u64;
            }
        }
    }

    /// All destages of these writes.
    #[must_use]
    pub fn destages(&self, granularity: Granularity, rule: DestageRule) -> Vec<u64> {
        let mut all = Vec::new();
        loop {
            let next = self.next_destage(granularity, rule, all.last().copied().unwrap_or(0));
            if next > self.writes() {
                return all;
            }
            all.push(next);
        }
    }

    /// What destages after so many extents written bring home.
    #[must_use]
    pub fn destaged_at(&self, granularity: Granularity, destages: &[u64]) -> Destaged {
        let windows = Windows::new(self, granularity);
        let all = self.writes() as f64;
        let (mut homes, mut retained, mut last) = (0.0, 0.0, 0.0);
        for &destage in destages {
            let to = destage as f64;
            homes += windows.newest(to - last);
            retained += windows.retained_at_home(last, to);
            last = to;
        }
        // The last version of each extent stays at home.
        let staying = windows.retained_at_home(0.0, last);
        Destaged { homes: homes / all, copied: (retained - staying).max(0.0) / all }
    }
}

/// Stretches of writes, cut where windows end. Places are extents written so far.
struct Windows<'p> {
    profile: &'p Profile,
    /// Extents written in a window: 0 where each is retained, infinite where none is.
    writes: f64,
    ns_per_write: f64,
}

impl Windows<'_> {
    fn new(profile: &Profile, granularity: Granularity) -> Windows<'_> {
        let ns_per_write = profile.duration_ns() as f64 / profile.writes().max(1) as f64;
        Windows { profile, writes: window_ns(granularity) / ns_per_write, ns_per_write }
    }

    /// Versions that are the newest of their extents at the end of so many writes.
    fn newest(&self, writes: f64) -> f64 {
        self.profile.extents_within(writes.max(0.0) * self.ns_per_write)
    }

    /// Where the window begins that holds a place, or ends at it.
    fn begins(&self, place: f64) -> f64 {
        if self.writes.is_infinite() {
            return 0.0;
        }
        ((place / self.writes).ceil() - 1.0).max(0.0) * self.writes
    }

    /// Map entries of a stretch: the newest versions, and those that are the last of their window.
    fn entries(&self, from: f64, to: f64) -> f64 {
        if self.writes == 0.0 {
            return to - from;
        }
        let begins = self.begins(to);
        if begins <= from {
            return self.newest(to - from);
        }
        let first_ends = self.begins(from) + self.writes;
        let whole = ((begins - first_ends) / self.writes).round();
        let whole = whole * self.newest(self.writes);
        self.newest(first_ends - from) + whole + self.newest(to - begins)
    }

    /// Of the versions that are the newest at the end of a stretch, those that are the last of
    /// their window, too.
    fn retained_at_home(&self, from: f64, to: f64) -> f64 {
        if self.writes == 0.0 {
            return self.newest(to - from);
        }
        if self.writes.is_infinite() {
            return 0.0;
        }
        let begins = self.begins(to).max(from);
        let ends = self.begins(to) + self.writes;
        // Those of windows that are over, and those of the one that is not.
        let over = self.newest(to - from) - self.newest(to - begins);
        over + self.newest(ends - begins) - self.newest(ends - to)
    }
}
