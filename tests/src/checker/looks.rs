//! Steps that look: at the present, at recorded moments, at what differs between them.

use anyhow::{Context, Result};

use super::changes::a_sure_name;
use super::past::{
    check_changed_context, check_diff, check_holes, check_moment, check_over_iscsi,
    check_refuses_writes, compare,
};
use super::subject::{Held, Moment};
use super::world::{COMPARED_AT_END, World};

impl World {
    pub(super) fn check_present(&mut self, at: usize, whole: bool) -> Result<()> {
        let subject = &self.subjects[at];
        let latest = if self.random.chance(20) { "@latest" } else { "" };
        let export = format!("{}{latest}", subject.name);
        let mut link = self.server.connect(&export)?;
        compare(&mut link, &subject.image, whole, &mut self.random)
            .and_then(|()| if whole { check_holes(&mut link, &subject.image) } else { Ok(()) })
            .with_context(|| format!("the present of {export}"))
    }

    pub(super) fn look_back(&mut self, at: usize) -> Result<()> {
        let subject = &self.subjects[at];
        if subject.moments.is_empty() {
            return Ok(());
        }
        for _ in 0..self.random.between(1, 4) {
            let moment = &subject.moments[self.random.index(subject.moments.len())];
            let whole = self.random.chance(50);
            check_moment(&self.server, subject, moment, whole, &mut self.random)?;
            if self.random.chance(20) {
                self.counts.sessions +=
                    check_over_iscsi(&self.server, subject, moment, &mut self.random)?;
            }
            self.counts.compared += 1;
        }
        if self.random.chance(20) {
            check_refuses_writes(&self.server, &format!("{}@latest", subject.name))?;
        }
        Ok(())
    }

    pub(super) fn hold_view(&mut self, at: usize) -> Result<()> {
        let subject = &mut self.subjects[at];
        let kept: Vec<&Moment> = subject.moments.iter().filter(|m| subject.keeps(m)).collect();
        if kept.is_empty() || subject.held.len() > 3 {
            return Ok(());
        }
        let moment = kept[self.random.index(kept.len())];
        let name = a_sure_name(subject, moment, &mut self.random)?;
        let name = format!("{}@{name}", subject.name);
        let held = Held {
            link: self.server.connect(&name)?,
            name: name.clone(),
            image: moment.image.clone(),
        };
        subject.held.push(held);
        self.note(format!("hold {name}"));
        Ok(())
    }

    pub(super) fn compare_diff(&mut self, at: usize) -> Result<()> {
        let subject = &self.subjects[at];
        let kept: Vec<&Moment> = subject.moments.iter().filter(|m| subject.keeps(m)).collect();
        if kept.is_empty() {
            return Ok(());
        }
        let from = kept[self.random.index(kept.len())];
        let to = kept[self.random.index(kept.len())];
        let limit = if self.random.chance(50) { 65_536 } else { self.random.between(1, 20) };
        let (from_name, to_name) = (
            a_sure_name(subject, from, &mut self.random)?,
            a_sure_name(subject, to, &mut self.random)?,
        );
        let second = if self.random.chance(30) {
            ("latest", &subject.image)
        } else {
            (to_name.as_str(), &to.image)
        };
        let first = (from_name.as_str(), &from.image);
        check_diff(&self.server, subject, first, second, limit)?;
        if self.random.chance(50) {
            check_changed_context(&self.server, subject, first, second)?;
        }
        self.counts.diffs += 1;
        Ok(())
    }

    pub(super) fn check_all_presents(&mut self) -> Result<()> {
        for at in 0..self.subjects.len() {
            self.check_present(at, true)?;
            self.look_back(at)?;
        }
        Ok(())
    }

    pub(super) fn compare_everything(&mut self) -> Result<()> {
        for at in 0..self.subjects.len() {
            self.check_present(at, true)?;
            let subject = &self.subjects[at];
            let all = subject.moments.len();
            for (index, moment) in subject.moments.iter().enumerate() {
                let left = (all - index) as u64;
                if self.random.below(left) < COMPARED_AT_END as u64 / 2 || index % 4 == 0 {
                    check_moment(&self.server, subject, moment, true, &mut self.random)?;
                    self.counts.compared += 1;
                }
            }
        }
        Ok(())
    }
}
