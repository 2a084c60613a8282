//! Failures and what comes after: refused writes, kills, power cuts, recovery, and settling what
//! the action under way may have done.

use std::collections::BTreeMap;
use std::sync::Arc;

use env::Clock;
use hindsight_volume::{Error, ErrorKind, Resolved, Volume, WriteOp};
use sim::Op;
use units::{Moment, Seq};

use crate::action::Action;
use crate::cached::is_mixture;
use crate::check::{content_of, cut_of};
use crate::importing::original;
use crate::model::Model;
use crate::oracle::Change;
use crate::world::{Trouble, World};

/// How a process and its machine come to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reboot {
    /// The process ends; everything it wrote is there.
    Kill,
    /// The power goes.
    Power,
    /// The process ends after a sync failed: what that lost may still be read, or no longer.
    Distrust,
}

impl World {
    /// An armed fault has struck: writes must be refused until the pool is opened again, reads go
    /// on.
    pub fn broken(&mut self, action: &Action, error: &Error) {
        self.trace.push(format!("broken by {:?}: {:?} {error}", self.trouble, error.kind));
        let trouble = self.trouble;
        if let Trouble::Fault(op) = trouble {
            self.calm();
            let stops = matches!(op, Op::Write | Op::Sync);
            if stops && matches!(action, Action::Write(..) | Action::Flush(_)) {
                self.check_refusal(action);
            }
        }
        let after = match trouble {
            _ if self.random.chance(500) => Reboot::Power,
            Trouble::Fault(Op::Sync) => Reboot::Distrust,
            _ => Reboot::Kill,
        };
        self.reboot(after, Some(action));
    }

    /// One trouble at a time, so that it is known what struck. A halt may have struck unnoticed, in
    /// background work that is tried again another time.
    pub fn end_trouble(&mut self) {
        if self.media.is_halted() {
            self.reboot(Reboot::Kill, None);
        }
        self.calm();
    }

    fn check_refusal(&mut self, action: &Action) {
        let names: Vec<String> = self.models.keys().cloned().collect();
        for name in names {
            let volume = self.volume(&name);
            let op = WriteOp::Data { offset: 0, bytes: &[1; 4096] };
            assert!(volume.write_batch(&[op]).is_err(), "a write after a failed one: {name}");
            assert!(volume.flush().is_err(), "a flush after a failed one: {name}");
            if !matches!(action, Action::Write(written, _) if *written == name) {
                let length = self.models[&name].present.len();
                self.check_range(&name, 0, length).expect("reads go on");
            }
        }
    }

    /// Ends the process or cuts the power, opens the pool again, and settles what is there.
    pub fn reboot(&mut self, how: Reboot, under_way: Option<&Action>) {
        // A process that is killed drops nothing in order.
        self.media.halt_now();
        self.note_healed();
        self.views.clear();
        self.pool = None;
        loop {
            let mut random = self.random.fork();
            self.end_buffers(how == Reboot::Power);
            match how {
                Reboot::Kill => self.all_media().for_each(|media| media.kill()),
                Reboot::Power => self.all_media().for_each(|media| media.crash(&mut random)),
                Reboot::Distrust => self.all_media().for_each(|media| {
                    media.forget_lost(&mut random);
                    media.kill();
                }),
            }
            self.calm();
            self.trouble = Trouble::None;
            if self.random.chance(200) {
                self.media.halt_after(self.random.below(25));
            }
            match self.try_open() {
                Ok(pool) => self.pool = Some(pool),
                Err(_) if self.media.is_halted() => {
                    self.trace.push("halted during recovery".to_owned());
                    continue;
                }
                Err(e) => panic!("the pool does not open: {:?} {e} ({:?})", e.kind, e.source),
            }
            self.calm();
            break;
        }
        self.settle(how != Reboot::Kill, under_way);
        self.check_all().unwrap_or_else(|e| panic!("after recovery: {:?} {e}", e.kind));
    }

    /// Finds out what the action under way did, and how far back a loss threw each volume.
    pub fn settle(&mut self, power: bool, under_way: Option<&Action>) {
        self.settle_names(under_way);
        self.note_given_up().unwrap_or_else(|e| panic!("the audit log after recovery: {e}"));
        let names: Vec<String> = self.models.keys().cloned().collect();
        self.note_deleting(under_way);
        self.note_scheduled(under_way);
        for name in names {
            let mine = under_way.filter(|action| touches(action, &name));
            self.settle_content(&name, power, mine);
            self.settle_pins(&name, mine);
            self.settle_settings(&name, mine);
        }
        self.settle_captures(under_way);
    }

    fn settle_names(&mut self, under_way: Option<&Action>) {
        if let Some(Action::Bin(name)) = under_way {
            let trash = self.pool().trash().expect("what is in the trash is told");
            if let Some(one) = trash.iter().find(|one| one.name == *name) {
                self.take_out(name, one.id).unwrap_or_else(|e| panic!("{name}: {e}"));
            }
        }
        let there: Vec<String> =
            self.pool().volumes().iter().map(|v| v.name().to_owned()).collect();
        if let Some(Action::Delete(name) | Action::Bin(name)) = under_way
            && !there.contains(name)
        {
            self.models.remove(name);
            self.forget_schedule_of(name);
            self.views.retain(|held| held.volume != *name);
        }
        for name in &there {
            if self.models.contains_key(name) {
                continue;
            }
            match under_way {
                Some(Action::Create(new, size, granularity, window_ns)) if new == name => {
                    self.adopt(name, vec![0; *size as usize], *granularity, *window_ns);
                }
                Some(Action::Import(new, seed, length, granularity, window_ns)) if new == name => {
                    self.adopt(name, original(*seed, *length), *granularity, *window_ns);
                }
                Some(Action::Clone(source, _, new)) if new == name => {
                    let seq = self.intent.expect("resolved before it was cloned").seq.0;
                    let content = self.models[source].exact_at(seq).expect("checked before");
                    let info = self.volume(name).info().expect("a recovered clone");
                    self.adopt(name, content, info.granularity, info.window_ns);
                }
                _ => panic!("volume {name} came from nowhere"),
            }
        }
        for name in self.models.keys() {
            assert!(there.contains(name), "volume {name} is gone");
        }
    }

    fn settle_content(&mut self, name: &str, power: bool, mine: Option<&Action>) {
        let volume = self.volume(name);
        let mut content = vec![0x5a; volume.size_bytes() as usize];
        volume.read(0, &mut content).unwrap_or_else(|e| panic!("{name} after recovery: {e}"));
        let latest = self.latest_with_room(name);
        // Seqs that came to nothing count: who was told of one finds it again by the time.
        let now = self.clock.wall();
        if latest.time <= now {
            let by_time = volume.resolve(&Moment::At(now)).expect("now is in the window");
            assert_eq!(by_time.seq, latest.seq, "{name}: the time of the present after recovery");
        }
        let intent = self.intent.map(|resolved| resolved.seq.0);
        let model = self.models.get_mut(name).expect("a model of each volume");
        let mut mine = mine;
        if model.absorbs() {
            let written = mine.and_then(|action| match action {
                Action::Write(_, changes) => Some(&changes[..]),
                _ => None,
            });
            let is_loose = !model.loose.is_empty() || written.is_some();
            model.bind_all(latest.seq.0, latest.time.as_nanos(), written);
            mine = mine.filter(|_| !is_loose);
        }
        // What must be there.
        let kept = match power {
            true => model.flushed,
            false if model.cached => model.logged,
            false => u64::MAX,
        };
        // Nothing can have happened that took no seq.
        let attempt =
            attempted(mine, model, intent).filter(|_| latest.seq.0 > model.oracle.latest());
        let found = attempt
            .and_then(|changes| model.settle_attempt(&changes, &content, latest.seq.0))
            .or_else(|| {
                // Several states may look alike: the one counts to which the past led.
                let mut states: Vec<Tail> =
                    model.settle_past(kept, &content, latest.seq.0).collect();
                let is_later = |tail: &Tail| model.is_later(tail.kept, latest.time.as_nanos());
                if !states.iter().all(is_later) {
                    states.retain(|tail| !is_later(tail));
                }
                let told = |tail: &Tail| model.is_told_by(&volume, tail.kept);
                let which = if states.len() > 1 { states.iter().position(told) } else { None };
                (!states.is_empty()).then(|| states.swap_remove(which.unwrap_or(0)))
            });
        let Some(tail) = found else {
            let entry = model.oracle.entries.iter().take_while(|e| e.seq <= model.flushed).count();
            panic!(
                "{name}: recovered to no state that may be (power {power}, flushed seq {}, latest \
                 seq {}, entry {entry} of {}, recovered latest {}; not as it was last: {}); {:?}",
                model.flushed,
                model.oracle.latest(),
                model.oracle.entries.len(),
                latest.seq,
                apart(&content, &model.present),
                volume.info()
            );
        };
        model.take_tail(tail, latest, now.as_nanos());
        if power {
            model.flushed = model.oracle.latest();
        }
        model.logged = model.oracle.latest();
        self.trace.push(format!("{name} recovered: latest {}", latest.seq));
    }

    /// The present's stamp. What waits in a cache needs room for it: should there be none at all,
    /// somebody adds some.
    fn latest_with_room(&mut self, name: &str) -> Resolved {
        let volume = self.volume(name);
        match volume.resolve(&Moment::Latest) {
            Err(e) if e.kind == ErrorKind::Full && self.models[name].cached => {
                self.media.set_space_limit(None);
                self.limited = false;
                volume.resolve(&Moment::Latest).expect("the present, with room")
            }
            other => other.expect("the present can always be opened"),
        }
    }

    fn settle_pins(&mut self, name: &str, mine: Option<&Action>) {
        let volume = self.volume(name);
        let versions = volume.versions().unwrap_or_else(|e| panic!("versions of {name}: {e}"));
        self.settle_schedule(name, &versions);
        let going = self.going(name);
        let versions: BTreeMap<u64, u64> =
            versions.into_iter().map(|v| (v.number, v.stamp.seq.0)).collect();
        let marks = volume.marks().unwrap_or_else(|e| panic!("marks of {name}: {e}"));
        let marks: BTreeMap<String, (u64, bool)> =
            marks.into_iter().map(|m| (m.name, (m.stamp.seq.0, m.pinned))).collect();
        let intent = self.intent.map(|resolved| resolved.seq.0);
        let model = self.model(name);
        match mine {
            Some(Action::CreateVersion(_) | Action::CaptureTogether(_)) => {
                let new: Vec<_> =
                    versions.iter().filter(|(n, _)| !model.versions.contains_key(n)).collect();
                assert!(new.len() <= 1, "one version was under way");
                for (&number, &seq) in new {
                    assert_eq!(
                        model.oracle.view_at(seq),
                        model.present,
                        "a version is the present"
                    );
                    model.versions.insert(number, seq);
                }
            }
            Some(Action::DeleteVersion(_, number)) if !versions.contains_key(number) => {
                model.versions.remove(number);
            }
            Some(Action::DeleteCapture(_)) => {
                let gone = going.iter().filter(|number| !versions.contains_key(number));
                for number in gone {
                    model.versions.remove(number);
                }
            }
            Some(Action::CreateMark(_, mark, _, pin)) if marks.contains_key(mark) => {
                let seq = intent.expect("resolved before it was marked");
                model.marks.insert(mark.clone(), (seq, *pin));
            }
            Some(Action::DeleteMark(_, mark)) if !marks.contains_key(mark) => {
                model.marks.remove(mark);
            }
            _ => {}
        }
        assert_eq!(versions, model.versions, "versions of {name} after recovery");
        assert_eq!(marks, model.marks, "marks of {name} after recovery");
    }

    fn settle_settings(&mut self, name: &str, mine: Option<&Action>) {
        let info = self.volume(name).info().unwrap_or_else(|e| panic!("{name}: {e}"));
        let model = self.model(name);
        let now = model.granularity_at(u64::MAX);
        if matches!(mine, Some(Action::Change(..))) && info.granularity != now {
            model.granularities.push((model.oracle.latest() + 1, info.granularity));
        }
        if let Some(Action::Bin(_)) = mine {
            model.grace = info.grace.map(|grace| (grace.until_ns, grace.window_ns));
        }
        if let Some(Action::Change(_, change)) = mine {
            model.window_ns =
                change.window_ns.filter(|&w| w == info.window_ns).unwrap_or(model.window_ns);
            // It was done or not: the engine may know of the grace that it began.
            model.grace = info.grace.map(|grace| (grace.until_ns, grace.window_ns));
        }
        model.cached = info.cache.is_some();
        assert_eq!(info.granularity, model.granularity_at(u64::MAX));
        assert_eq!(info.window_ns, model.window_ns);
    }
}

/// The history that was found: so many of the known entries, then these changes.
pub struct Tail {
    kept: usize,
    added: Vec<(u64, Change)>,
}

impl Model {
    /// Whether `content` is the present after some (at least a part of one) of `changes`, each of
    /// which takes a seq at least.
    fn settle_attempt(&self, changes: &[Change], content: &[u8], latest: u64) -> Option<Tail> {
        let mut seq = self.oracle.latest();
        let mut before = self.present.clone();
        let mut added: Vec<(u64, Change)> = Vec::new();
        let mut best = None;
        for change in changes {
            let mut after = before.clone();
            self.oracle.apply(&mut after, change);
            seq += 1;
            if seq > latest {
                break;
            }
            if let Some(part) = part_of(change, &before, &after, content) {
                let mut tail = added.clone();
                tail.push((seq, part));
                best = Some(Tail { kept: self.oracle.entries.len(), added: tail });
            }
            added.push((seq, change.clone()));
            before = after;
        }
        best
    }

    /// Which of the known states `content` may be, the last one first, of those since the seq that
    /// must be there.
    fn settle_past(&self, kept: u64, content: &[u8], latest: u64) -> impl Iterator<Item = Tail> {
        let entries = &self.oracle.entries;
        let tail = |kept, added| Some(Tail { kept, added });
        let is_present = content == self.present && self.oracle.latest() <= latest;
        let present = is_present.then(|| Tail { kept: entries.len(), added: Vec::new() });
        let first = entries.partition_point(|e| e.seq <= kept);
        let past = (first..entries.len()).rev().filter_map(move |kept| {
            let lost = &entries[kept];
            let last = kept.checked_sub(1).map_or(self.oracle.base.0, |i| entries[i].seq);
            if last > latest {
                return None;
            }
            let before = self.oracle.view_at(lost.seq - 1);
            if content == before {
                return tail(kept, Vec::new());
            }
            let after = self.oracle.view_at(lost.seq);
            let part = part_of(&lost.change, &before, &after, content)?;
            if last < latest { tail(kept, vec![(last + 1, part)]) } else { None }
        });
        present.into_iter().chain(past)
    }

    /// Whether the moments since the last flush up to so many entries are in the volume, as far as
    /// they are known exactly.
    fn is_told_by(&self, volume: &Arc<Volume>, kept: usize) -> bool {
        let unsure = self.oracle.entries[..kept].iter().filter(|e| e.seq > self.flushed);
        unsure.into_iter().all(|entry| {
            let Some(expected) = self.exact_at(entry.seq) else { return true };
            let Ok(view) = volume.view(&Moment::Seq(Seq(entry.seq))) else { return true };
            content_of(&view).is_ok_and(|found| found == expected)
        })
    }

    /// Whether the last of so many entries began after a time. Times rise in the log, so it is not
    /// in a volume whose latest moment that is: bytes that are written where they were look as if
    /// they had not been.
    fn is_later(&self, kept: usize, time_ns: u64) -> bool {
        self.oracle.entries[..kept].last().is_some_and(|last| last.earliest_ns > time_ns)
    }

    /// Makes the history that was found the model's. What was under way began now: no time has
    /// passed since.
    fn take_tail(&mut self, tail: Tail, latest: Resolved, now_ns: u64) {
        let (latest, time_ns) = (latest.seq.0, latest.time.as_nanos());
        let cut = self.oracle.entries.get(tail.kept);
        let earliest_ns = cut.map_or(now_ns, |entry| entry.earliest_ns);
        self.oracle.entries.truncate(tail.kept);
        let count = tail.added.len();
        for (index, (seq, change)) in tail.added.into_iter().enumerate() {
            // The last one may have been cut short, and then its seq is not known: at most the
            // latest.
            let seq = if index + 1 == count { latest.max(seq) } else { seq };
            self.oracle.push_between(seq, (earliest_ns.min(time_ns), time_ns), change);
        }
        // Whatever is there is not later than the latest of it.
        for entry in &mut self.oracle.entries {
            entry.time_ns = entry.time_ns.min(time_ns.max(entry.earliest_ns));
        }
        assert!(latest >= self.oracle.latest(), "seqs only rise: {latest}");
        if latest > self.oracle.latest() {
            let time_ns = self.oracle.entries.last().map_or(0, |e| e.time_ns);
            self.oracle.push(latest, time_ns, Change::Nothing);
        }
        self.present = self.oracle.view_at(u64::MAX);
    }
}

/// The part of a change that makes `before` into `content`; `None` if there is none.
fn part_of(change: &Change, before: &[u8], after: &[u8], content: &[u8]) -> Option<Change> {
    if content == after {
        return Some(change.clone());
    }
    if let Change::Several(changes) = change {
        let became = || Change::Become(content.to_vec(), changes.clone());
        return is_mixture(before, changes, content).then(became);
    }
    let cut = cut_of(before, after, content)? as u64;
    match change {
        Change::Write(offset, bytes) if cut > *offset => {
            let length = ((cut - offset) as usize).min(bytes.len());
            Some(Change::Write(*offset, bytes[..length].to_vec()))
        }
        Change::Zero(offset, length) if cut > *offset => {
            Some(Change::Zero(*offset, (cut - offset).min(*length)))
        }
        _ => None,
    }
}

/// The changes that an action was about to make.
fn attempted(action: Option<&Action>, model: &Model, intent: Option<u64>) -> Option<Vec<Change>> {
    match action? {
        Action::Write(_, changes) => Some(match model.whole_of(changes) {
            Some(whole) => vec![Change::Whole(whole.to_vec())],
            None => changes.clone(),
        }),
        Action::Revert(..) => Some(vec![Change::Revert(intent?)]),
        Action::Resize(_, size) => {
            let old = model.present_bytes();
            let mut changes = vec![Change::Resize(*size)];
            if *size < old {
                // What is beyond is cut off afterwards.
                changes.push(Change::Nothing);
            }
            Some(changes)
        }
        _ => None,
    }
}

fn touches(action: &Action, name: &str) -> bool {
    match action {
        Action::Write(volume, _)
        | Action::CreateVersion(volume)
        | Action::DeleteVersion(volume, _)
        | Action::CreateMark(volume, ..)
        | Action::DeleteMark(volume, _)
        | Action::Revert(volume, _)
        | Action::Resize(volume, _)
        | Action::Bin(volume)
        | Action::Change(volume, _)
        | Action::Convert(volume, _) => volume == name,
        Action::CaptureTogether(volumes) => volumes.iter().any(|volume| volume == name),
        Action::DeleteCapture(_) => true,
        _ => false,
    }
}

/// The blocks that differ, and where.
fn apart(content: &[u8], expected: &[u8]) -> String {
    let mut told = Vec::new();
    for (block, (found, wanted)) in content.chunks(4096).zip(expected.chunks(4096)).enumerate() {
        let mut wrong = (0..found.len().min(wanted.len())).filter(|&i| found[i] != wanted[i]);
        if let Some(first) = wrong.next() {
            told.push(format!("block {block}: {} bytes from {first}", 1 + wrong.count()));
        }
    }
    told.join(", ")
}
