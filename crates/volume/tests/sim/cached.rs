//! Volumes with a write-back cache: what of their history is not numbered yet, and what a kill may
//! take.
//!
//! Where writes may be replaced before they are destaged nobody knows their seqs until somebody
//! asks. Then all that were made since form one entry of the oracle, cut at the ends of intervals,
//! which must be exact. Inside such an entry each block has one of its versions.

use hindsight_volume::{CacheChange, Granularity, Result};
use sim::Random;
use units::{Moment, WallTime};

use crate::check::{content_of, same};
use crate::model::Model;
use crate::oracle::Change;
use crate::world::World;

/// Caches that are drawn: bytes.
const CACHE_BYTES: [u64; 3] = [64 << 10, 256 << 10, 640 << 10];
/// Percent of them that may be dirty.
const DIRTY_PERCENT: [u8; 4] = [1, 3, 25, 100];

/// Draws what a volume's cache shall be.
pub fn draw_cache(random: &mut Random, may_be_off: bool) -> CacheChange {
    if may_be_off && random.chance(300) {
        return CacheChange { bytes: Some(0), dirty_percent: None };
    }
    CacheChange {
        bytes: Some(CACHE_BYTES[random.below(3) as usize]),
        dirty_percent: Some(DIRTY_PERCENT[random.below(4) as usize]),
    }
}

impl Model {
    /// Whether writes may be replaced before they get a seq.
    pub fn absorbs(&self) -> bool {
        self.cached && self.granularity_at(u64::MAX) != Granularity::EveryWrite
    }

    /// Takes a write whose seq is not known yet.
    pub fn push_loose(&mut self, time_ns: u64, change: Change) {
        self.oracle.apply(&mut self.present, &change);
        self.loose.push((time_ns, change));
    }

    /// The first so many writes without a seq have this one, all together.
    fn bind(&mut self, count: usize, seq: u64, time_ns: u64) {
        let times_ns = (self.loose[0].0, time_ns);
        let changes: Vec<Change> = self.loose.drain(..count).map(|(_, change)| change).collect();
        let change = match <[Change; 1]>::try_from(changes) {
            Ok([change]) => change,
            Err(changes) => Change::Several(changes),
        };
        self.oracle.push_between(seq, times_ns, change);
    }

    /// After a crash or a failure: what had no seq, and what of `mine` may have been written,
    /// becomes one entry, of which it is still to be found out what is left.
    pub fn bind_all(&mut self, latest: u64, time_ns: u64, mine: Option<&[Change]>) {
        for change in mine.unwrap_or_default() {
            self.push_loose(time_ns, change.clone());
        }
        let seq = latest.max(self.oracle.latest() + 1);
        if let Some(&(first_ns, _)) = self.loose.first() {
            let changes = self.loose.drain(..).map(|(_, change)| change).collect();
            // The present may be of before them, if they are lost.
            let times_ns = (first_ns.min(time_ns), time_ns);
            self.oracle.push_between(seq, times_ns, Change::Several(changes));
        }
    }
}

impl World {
    /// Asks for the seqs of what was written; the engine destages for that.
    pub fn number(&mut self, name: &str) -> Result<()> {
        if !self.models[name].cached {
            return Ok(());
        }
        let volume = self.volume(name);
        let latest = volume.resolve(&Moment::Latest)?;
        self.number_intervals(name)?;
        let model = self.model(name);
        let (seq, time_ns) = (latest.seq.0, latest.time.as_nanos());
        match model.loose.len() {
            0 => assert_eq!(seq, model.oracle.latest(), "{name}: nothing but writes takes seqs"),
            count => {
                let last = model.loose[count - 1].0;
                assert_eq!(time_ns, last, "{name}: the time of the last write");
                model.bind(count, seq, time_ns);
            }
        }
        model.logged = seq;
        Ok(())
    }

    /// Finds the seqs of the ends of intervals among what is not numbered: each can be opened, and
    /// is exactly what was there.
    fn number_intervals(&mut self, name: &str) -> Result<()> {
        let Granularity::Interval(nanos) = self.models[name].granularity_at(u64::MAX) else {
            return Ok(());
        };
        let window = |time_ns: u64| time_ns / nanos;
        loop {
            let model = &self.models[name];
            let times: Vec<u64> = model.loose.iter().map(|l| l.0).collect();
            let end = times.windows(2).position(|pair| window(pair[0]) < window(pair[1]));
            let Some(end) = end else { return Ok(()) };
            let volume = self.volume(name);
            let moment = Moment::At(WallTime::from_nanos(times[end]));
            let Ok(view) = volume.view(&moment) else { return self.give_up_intervals(name) };
            let found = view.resolved();
            if found.time.as_nanos() != times[end] {
                return self.give_up_intervals(name);
            }
            let content = content_of(&view)?;
            let model = self.model(name);
            model.bind(end + 1, found.seq.0, times[end]);
            let expected = model.oracle.view_at(found.seq.0);
            same(&content, &expected, &format!("{name}@{moment}, the end of an interval"));
        }
    }

    /// An end of an interval cannot be opened: only because it has left the window, or history was
    /// given up.
    fn give_up_intervals(&mut self, name: &str) -> Result<()> {
        self.note_given_up()?;
        let now_ns = self.volume(name).now().as_nanos();
        let model = self.model(name);
        model.note_now(now_ns);
        let nanos = match model.granularity_at(u64::MAX) {
            Granularity::Interval(nanos) => nanos,
            other => unreachable!("{other:?} has no intervals"),
        };
        let times: Vec<u64> = model.loose.iter().map(|l| l.0).collect();
        let pair = times.windows(2).find(|pair| pair[0] / nanos < pair[1] / nanos);
        let pair = pair.expect("there was one");
        assert!(
            model.squeezed || pair[1] <= model.expired_to_ns,
            "{name}: the end of an interval at {} cannot be opened",
            pair[0]
        );
        Ok(())
    }
}

/// Whether each block of `content` is as it was before `changes` or after one of them.
pub fn is_mixture(before: &[u8], changes: &[Change], content: &[u8]) -> bool {
    const BLOCK: usize = 4096;
    if before.len() != content.len() {
        return false;
    }
    let differs = |a: &[u8], b: &[u8]| -> Vec<bool> {
        a.chunks(BLOCK).zip(b.chunks(BLOCK)).map(|(a, b)| a != b).collect()
    };
    let mut open = differs(before, content);
    let mut state = before.to_vec();
    let oracle = crate::oracle::Oracle::new(0, Vec::new());
    for change in changes {
        oracle.apply(&mut state, change);
        for (open, wrong) in open.iter_mut().zip(differs(&state, content)) {
            *open &= wrong;
        }
    }
    open.iter().all(|open| !open)
}

#[cfg(test)]
mod tests {
    use hindsight_volume::{Granularity, VolumeChange};
    use units::Moment;

    use crate::action::Action;
    use crate::oracle::Change;
    use crate::world::{World, at_seq};

    const SECOND_NS: u64 = 1_000_000_000;
    /// Longer than the window.
    const LONG: Action = Action::Wait(40 * SECOND_NS);
    /// After an opening nothing expires before the clock has gone evenly for so long.
    const STEADY: Action = Action::Wait(600 * SECOND_NS);

    fn write(block: u64) -> Action {
        Action::Write("v".to_owned(), vec![Change::Write(block * 4096, vec![7; 4096])])
    }

    /// A moment is in the window for as long as it was the present within it. That ends with the
    /// first of the writes which get their seqs together.
    #[test]
    fn what_was_written_over_by_several_is_old_since_the_first_of_them() {
        for granularity in [Granularity::Interval(SECOND_NS), Granularity::OnDemand] {
            for end in [Action::Restart, Action::Rebuild, Action::Flush("v".to_owned())] {
                let mut world = World::new(1, 64 << 20, 1 << 20);
                world.all_cached = true;
                let name = || "v".to_owned();
                let window_ns = 20 * SECOND_NS;
                world.act(&Action::Create(name(), 1 << 20, Granularity::EveryWrite, window_ns));
                world.act(&write(0));
                let change = VolumeChange { granularity: Some(granularity), ..Default::default() };
                world.act(&Action::Change(name(), change));
                let last = world.models["v"].oracle.latest();
                let step = || Action::Step(1 << 20);
                for action in [write(1), LONG, write(2), end.clone(), step(), STEADY, step()] {
                    world.act(&action);
                }
                let resolved = world.volume("v").resolve(&at_seq(last));
                assert!(resolved.is_err(), "{last} left the window long ago: {resolved:?}");
                world.act(&Action::View(name(), Moment::Seq(units::Seq(last)), false));
            }
        }
    }
}
