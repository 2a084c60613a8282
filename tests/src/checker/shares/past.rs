//! Recorded moments, by each way that leads to them.

use anyhow::{Context, Result, ensure};

use super::Shares;
use super::client::{handle, is_directory};
use super::look::{Times, compare, list, mount, walk};
use super::model::{Id, ROOT, Tree};
use super::subject::{Held, Moment, Subject};
use crate::nfs::{Call, Handle, Set, Stable, status};
use crate::random::Random;

/// Mounts of moments that are held open.
const HELD_MAX: usize = 3;
/// Moments of a share that are compared at its end: the newest, and a sample.
const COMPARED_AT_END: usize = 8;

impl Shares {
    /// Compares some recorded moments.
    pub(super) fn look_back(&mut self, at: usize) -> Result<()> {
        for _ in 0..3 {
            let Some((name, moment)) = self.subjects[at].some_moment(&mut self.eyes) else {
                return Ok(());
            };
            self.note(format!("look at {}@{name}, seq {}", self.subjects[at].name, moment.seq));
            self.compare_moment(at, &name, &moment)?;
        }
        let subject = &mut self.subjects[at];
        if !subject.held.is_empty() {
            let held = self.eyes.index(subject.held.len());
            subject.compare_held(held, &mut self.eyes)?;
            self.counts.compared += 1;
        }
        Ok(())
    }

    /// Compares a moment by one of the ways to it.
    fn compare_moment(&mut self, at: usize, name: &str, moment: &Moment) -> Result<()> {
        self.counts.compared += 1;
        let way = self.eyes.below(5);
        let what = format!("{}@{name} (seq {}) by way {way}", self.subjects[at].name, moment.seq);
        let (subject, random) = (&mut self.subjects[at], &mut self.eyes);
        match way {
            0 => subject.compare_mounted(name, moment, random),
            1 => subject.compare_inside(ROOT, b"", name, moment, random),
            2 => {
                let dirs = moment.tree.below(ROOT);
                let is_both =
                    |id: &Id| is_directory(&moment.tree, *id) && is_directory(&subject.tree, *id);
                let both: Vec<Id> = dirs.into_iter().filter(is_both).collect();
                let dir = both[random.index(both.len())];
                subject.compare_inside(dir, b".hindsight", name, moment, random)
            }
            3 => self.compare_listed(at, name, moment),
            _ => subject.compare_mounted(name, moment, random),
        }
        .context(what)
    }

    /// Mounts a moment to be looked at later.
    pub(super) fn hold(&mut self, at: usize) -> Result<()> {
        let subject = &mut self.subjects[at];
        let Some((name, moment)) = subject.some_moment(&mut self.random) else { return Ok(()) };
        let top = mount(&mut subject.boss.link, &format!("{}@{name}", subject.name))?;
        if subject.held.len() == HELD_MAX {
            subject.held.remove(0);
        }
        let told = format!("hold {}@{name}", subject.name);
        if subject.keeps_all {
            subject.held.push(Held { top, name, tree: moment.tree });
        }
        self.note(told);
        Ok(())
    }

    /// Compares the present, what is held, and recorded moments of a share.
    pub(super) fn compare_everything(&mut self, at: usize) -> Result<()> {
        let subject = &mut self.subjects[at];
        subject.check(&mut self.eyes)?;
        for held in 0..subject.held.len() {
            subject.compare_held(held, &mut self.eyes)?;
        }
        let mut left: Vec<Moment> = subject.moments.clone();
        left.retain(|moment| !subject.sure_names(moment).is_empty());
        let mut chosen: Vec<Moment> = left.split_off(left.len().saturating_sub(2));
        while chosen.len() < COMPARED_AT_END && !left.is_empty() {
            chosen.push(left.swap_remove(self.eyes.index(left.len())));
        }
        for moment in chosen {
            let names = self.subjects[at].sure_names(&moment);
            let name = names[self.eyes.index(names.len())].to_owned();
            self.compare_moment(at, &name, &moment)?;
        }
        Ok(())
    }
}

impl Subject {
    /// Mounts a moment, and compares all of it; nothing can be changed there.
    fn compare_mounted(&mut self, name: &str, moment: &Moment, random: &mut Random) -> Result<()> {
        let top = mount(&mut self.boss.link, &format!("{}@{name}", self.name))?;
        self.compare_past(&top, &moment.tree, ROOT, random)?;
        self.check_refuses(&top)
    }

    fn compare_past(
        &mut self,
        top: &Handle,
        tree: &Tree,
        of: Id,
        random: &mut Random,
    ) -> Result<()> {
        let walked = walk(&mut self.boss.link, top, random)?;
        compare(tree, of, &walked, Times::Known)
    }

    fn compare_held(&mut self, held: usize, random: &mut Random) -> Result<()> {
        let Held { top, name, tree } = &self.held[held];
        let (top, tree, name) = (top.clone(), tree.clone(), name.clone());
        let what = format!("{}@{name}, held open", self.name);
        self.compare_past(&top, &tree, ROOT, random).context(what)
    }

    /// Compares a directory at a moment, from inside it: by `.hindsight`, or `@`.
    fn compare_inside(
        &mut self,
        dir: Id,
        by: &[u8],
        name: &str,
        moment: &Moment,
        random: &mut Random,
    ) -> Result<()> {
        let above = handle(&self.known, dir)?;
        // A real entry of that name would come first.
        let short = [b"@", name.as_bytes()].concat();
        let is_short = by.is_empty() && !self.tree.entries(dir).contains_key(&short);
        let (from, name) = match is_short {
            true => (above, short),
            false => {
                let list_name = b".hindsight".to_vec();
                let listed =
                    self.boss.link.demand(&Call::Lookup { dir: above, name: list_name })?;
                let moments = listed.handle.context("no handle")?;
                if name.starts_with("v:") {
                    let entries = list(&mut self.boss.link, &moments, false, random)?;
                    let is_listed = entries.iter().any(|entry| entry.name == name.as_bytes());
                    ensure!(is_listed, ".hindsight does not list {name}");
                }
                (moments, name.as_bytes().to_vec())
            }
        };
        let found = self.boss.link.demand(&Call::Lookup { dir: from, name });
        let top = found.with_context(|| format!("inside {dir:x}"))?.handle.context("no handle")?;
        self.compare_past(&top, &moment.tree, dir, random)
            .with_context(|| format!("inside object {dir:x}"))
    }

    /// A moment of the past refuses every change.
    fn check_refuses(&mut self, top: &Handle) -> Result<()> {
        let found =
            self.boss.link.demand(&Call::Lookup { dir: top.clone(), name: b"anchor".to_vec() })?;
        let file = found.handle.context("no handle")?;
        let (dir, name) = (top.clone(), b"new".to_vec());
        let set = Set { mode: Some(0o777), ..Set::default() };
        let calls = [
            Call::Mkdir { dir: dir.clone(), name: name.clone(), set },
            Call::Remove { dir: dir.clone(), name: b"anchor".to_vec() },
            Call::Write { file: file.clone(), offset: 0, stable: Stable::FileSync, data: vec![1] },
            Call::Setattr { object: file.clone(), set },
            Call::Link { file, dir, name },
        ];
        for call in calls {
            let status = self.boss.link.call(&call)?.status;
            ensure!(status == status::ROFS, "status {status} of {call:02x?} in the past");
        }
        Ok(())
    }
}
