//! Steps that write: storms, one request after the other, and storms that end in `kill -9`.

use anyhow::{Context, Result, ensure};

use super::link::{link, unit};
use super::past::check_between;
use super::plan;
use super::settle::settle;
use super::storm::Storm;
use super::subject::Retains;
use super::world::World;
use crate::client::Client;

impl World {
    /// Connections enough for a storm, some of them kept from the one before.
    pub(super) fn link(&mut self, at: usize) -> Result<()> {
        let wanted = usize::try_from(self.random.between(1, 4))?;
        let subject = &mut self.subjects[at];
        if self.random.chance(20) {
            subject.links.clear();
        }
        subject.links.truncate(wanted);
        while subject.links.len() < wanted {
            let (link, is_iscsi) = link(&self.server, &subject.name, &mut self.random)?;
            ensure!(link.size() == subject.image.size(), "{} has another size", subject.name);
            self.counts.sessions += u64::from(is_iscsi);
            subject.links.push(link);
        }
        Ok(())
    }

    pub(super) fn storm(&mut self, at: usize) -> Result<()> {
        self.link(at)?;
        let racing = self.random.chance(30);
        let count = self.random.between(1, 60);
        let depth = usize::try_from(self.random.between(1, 64))?;
        let http = self.server.http();
        let subject = &mut self.subjects[at];
        let first = subject.latest_seq(&http)?;
        let mut ops =
            plan::ops(&mut self.random, &subject.image, count, racing, unit(&subject.links));
        let name = format!("storm on {}: {} ops, depth {depth}", subject.name, ops.len());
        Storm::new(&mut ops, &mut subject.links, &subject.image)
            .run(&mut self.random, depth)
            .context(name.clone())?;
        self.counts.writes += ops.len() as u64;
        let before = subject.image.clone();
        if racing {
            let found = subject.links[0].read(0, before.size())?;
            subject.image = settle(&before, &ops, &found).context(name.clone())?;
        } else {
            ops.iter().for_each(|op| op.apply(&mut subject.image));
        }
        let last = subject.latest_seq(&http)?;
        ensure!(last > first, "{name}: the seq did not rise from {first}");
        if subject.retains == Retains::Everything && self.random.chance(70) {
            let by_time = self.random.chance(50);
            subject.record(&http, by_time)?;
            if !racing && self.random.chance(40) {
                check_between(
                    &self.server,
                    subject,
                    (first, &before),
                    last,
                    &ops,
                    &mut self.random,
                )?;
            }
        }
        self.note(format!("{name}, racing {racing}: seq {first} to {last}"));
        self.check_present(at, false)
    }

    /// One request after the other, each of them a recorded moment.
    pub(super) fn sequence(&mut self, at: usize) -> Result<()> {
        self.link(at)?;
        let http = self.server.http();
        for _ in 0..self.random.between(1, 8) {
            let subject = &mut self.subjects[at];
            let ops = plan::ops(&mut self.random, &subject.image, 1, true, unit(&subject.links));
            for op in &ops {
                subject.links[0].demand(&op.request)?;
                op.apply(&mut subject.image);
            }
            if subject.retains == Retains::Everything {
                subject.record(&http, false)?;
            }
            self.counts.writes += 1;
        }
        let name = self.subjects[at].name.clone();
        self.note(format!("{name}: one write after the other"));
        self.check_present(at, false)
    }

    pub(super) fn storm_and_kill(&mut self, at: usize) -> Result<()> {
        self.flush_caches()?;
        self.link(at)?;
        let count = self.random.between(4, 120);
        let until = self.random.below(count + 1);
        let racing = self.random.chance(40);
        let subject = &mut self.subjects[at];
        let mut ops =
            plan::ops(&mut self.random, &subject.image, count, racing, unit(&subject.links));
        let server = &mut self.server;
        let mut storm = Storm::new(&mut ops, &mut subject.links, &subject.image);
        storm.run_until_killed(&mut self.random, until, || server.kill())?;
        if subject.is_cached {
            storm.forget_unflushed();
        }
        let acknowledged = ops.iter().filter(|op| op.done_as.is_some()).count();
        let sent = ops.iter().filter(|op| op.sent_after.is_some()).count();
        self.counts.writes += sent as u64;
        let name = subject.name.clone();
        self.note(format!("kill -9: {name}, {sent} sent, {acknowledged} acknowledged"));
        self.up_again()?;
        let subject = &mut self.subjects[at];
        let found = self.server.connect(&name)?.read(0, subject.image.size())?;
        subject.image = settle(&subject.image, &ops, &found)
            .with_context(|| format!("{name} after kill -9"))?;
        if subject.retains == Retains::Everything {
            subject.record(&self.server.http(), true)?;
        }
        self.check_all_presents()
    }
}
