//! What the engine's `checkpointing` brings home, by the rule by which it destages.
//!
//! Its journal is a cache that is emptied all at once: of a block that was written several times
//! since the last destage the newest version comes home, and the version it displaces there is
//! copied away if it was retained. So a destage every D costs R(D) writes of each write, and of
//! those versions the ones are copied that are the last of their granularity window, too.
//!
//! Nothing is fitted: when destages begin follows from how much of the map is new, and that from
//! the same distances.

use serde::Serialize;
use units::Granularity;

use super::forecast::window_ns;
use super::profile::Profile;

/// When a volume destages.
#[derive(Clone, Copy, Debug)]
pub struct DestageRule {
    /// Extents that are written between two map flushes: only what was flushed comes home.
    pub flush_writes: u64,
    /// New map entries that are worth a destage.
    pub entries_min: u64,
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
    /// What a volume that was empty before these writes brings home in their time.
    #[must_use]
    pub fn destaged(&self, granularity: Granularity, rule: DestageRule) -> Destaged {
        let window_ns = window_ns(granularity);
        let (all, flush) = (self.writes() as f64, rule.flush_writes.max(1) as f64);
        let nanos = |writes: f64| writes * self.duration_ns() as f64 / all;
        // Of what was written one after the other a run keeps the newest, and what is retained.
        // Entries are whole, as the rule divides them.
        let entries = |writes: f64| {
            (writes * self.retained_in_either(nanos(writes), window_ns)).round() as u64
        };
        let mut runs: Vec<f64> = Vec::new();
        let (mut written, mut last, mut old) = (0.0, 0.0, 0_u64);
        let (mut homes, mut displaced) = (0.0, 0.0);
        while written + flush <= all {
            written += flush;
            runs.push(flush);
            let is_old = usize::from(old > 0);
            while runs.len() + is_old > rule.runs_max {
                let cost = |first: &usize| -> u64 {
                    runs[*first..*first + rule.joined].iter().map(|run| entries(*run)).sum()
                };
                let first = (0..=runs.len() - rule.joined).min_by_key(cost).unwrap_or_default();
                let joined = runs.drain(first..first + rule.joined).sum();
                runs.insert(first, joined);
            }
            let new: u64 = runs.iter().map(|run| entries(*run)).sum();
            if new < rule.entries_min.max((old + new) / rule.new_share) {
                continue;
            }
            let interval_ns = nanos(written - last);
            homes += self.extents_within(interval_ns);
            let retained = self.retained_in_both(interval_ns, window_ns);
            displaced += (written - last) * retained;
            old = entries(written);
            runs.clear();
            last = written;
        }
        // The last version of each extent stays at home.
        let staying = if window_ns.is_infinite() { 0.0 } else { self.extents_within(nanos(last)) };
        Destaged { homes: homes / all, copied: (displaced - staying).max(0.0) / all }
    }
}
