//! Clients at work at the same time, and the server that may be killed under them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

use super::Shares;
use super::between::{Done, reached};
use super::client::{Beat, KnownObjects, Step, manner, told};
use super::look::{mount, walk};
use super::model::{COMMON, Tree};
use super::plan::{Planner, owner};
use super::subject::Subject;
use crate::random::Random;

/// Moments between two recorded ones that are looked at.
const BETWEEN: u64 = 3;

/// What a client comes back with.
type Worked = Result<(usize, Tree, KnownObjects, Vec<Step>)>;

impl Shares {
    /// All clients of a share work in their directories; the tree afterwards is the one of all that
    /// they did, whether or not the server was killed meanwhile.
    pub(super) fn storm(&mut self, at: usize, kills: bool) -> Result<()> {
        let before = self.subjects[at].latest_seq(&self.server.http())?;
        let tree = self.subjects[at].tree.clone();
        // A client that does nothing while a command changes its directory.
        let idle = self.random.index(self.subjects[at].clients.len());
        let is_beside = !kills && self.random.chance(25);
        let command = if is_beside { self.command_of(at, idle) } else { None };
        let groups = self.random.between(3, 14);
        let until = self.random.between(1, groups * 3);
        let (clock, answered) = (AtomicU64::new(0), AtomicU64::new(0));
        let Subject { clients, known, verifier, name, keeps_all, .. } = &mut self.subjects[at];
        // A command has the moment before it retained, as a revert does, where not all is.
        let may_change = kills || (command.is_some() && !*keeps_all);
        let beat = Beat { clock: &clock, answered: &answered, verifier: *verifier, may_change };
        let (server, address) = (&mut self.server, &self.address);
        let (http, mut restarted, mut asked) = (server.http(), Ok(()), Ok(Value::Null));
        let is_idle = |number| command.is_some() && number == idle;
        let worked: Vec<Worked> = thread::scope(|scope| {
            let threads: Vec<_> = clients
                .iter_mut()
                .enumerate()
                .filter(|(number, _)| !is_idle(*number))
                .map(|(number, client)| {
                    let mut random = Random::new(self.random.bits());
                    let (mut tree, mut known, beat) = (tree.clone(), known.clone(), &beat);
                    scope.spawn(move || {
                        let with = (groups, beat);
                        let steps = client.work(&mut tree, &mut known, &mut random, with);
                        steps.map(|steps| (number, tree, known, steps))
                    })
                })
                .collect();
            if let Some(command) = &command {
                asked = command.ask(&http, name);
            }
            if kills {
                while answered.load(Ordering::SeqCst) < until
                    && threads.iter().any(|thread| !thread.is_finished())
                {
                    thread::sleep(Duration::from_micros(100));
                }
                server.kill();
                restarted = server.up().and_then(|()| super::tell_address(server, address));
            }
            let join = |thread: thread::ScopedJoinHandle<'_, Worked>| {
                thread.join().map_err(|_| anyhow!("a panic of the checker")).flatten()
            };
            threads.into_iter().map(join).collect()
        });
        restarted?;
        let done = self.subjects[at].take_in(worked)?;
        self.tell_storm(at, kills, &done);
        if kills {
            self.counts.kills += 1;
            self.subjects.iter_mut().try_for_each(|subject| subject.renew_verifier(true))?;
        }
        let asked = asked.context("a command beside clients at work")?;
        self.look_between(at, (before, &tree), &done)?;
        if let Some(command) = command {
            self.note(format!("beside it {}: {asked}", command.body));
            self.subjects[at].follow(&command)?;
            return self.changed(at).context("after a command beside clients at work");
        }
        if self.random.chance(70) {
            self.record(at)?;
        }
        Ok(())
    }

    fn tell_storm(&mut self, at: usize, kills: bool, done: &[Done]) {
        let name = self.subjects[at].name.clone();
        let how = if kills { ", killed under it" } else { "" };
        let mut text = format!("{name}: storm{how}");
        for client in done {
            text.push_str(&format!("\n      user {}:", client.user.uid));
            for step in &client.steps {
                let ops: Vec<String> = step.ops.iter().map(told).collect();
                let (sent, done) = (step.sent, step.done);
                text.push_str(&format!("\n        {sent}-{done} {}", ops.join(" + ")));
            }
        }
        self.note(text);
    }

    /// Moments between that before a storm and now.
    fn look_between(
        &mut self,
        at: usize,
        (before, tree): (u64, &Tree),
        done: &[Done],
    ) -> Result<()> {
        let after = self.subjects[at].latest_seq(&self.server.http())?;
        if !self.subjects[at].keeps_all {
            return Ok(());
        }
        let mut seqs: Vec<u64> = (0..BETWEEN).map(|_| self.eyes.between(before, after)).collect();
        seqs.sort_unstable();
        seqs.dedup();
        let mut least = Vec::new();
        for seq in seqs {
            let subject = &mut self.subjects[at];
            let export = format!("{}@seq:{seq}", subject.name);
            let top = mount(&mut subject.boss.link, &export)?;
            let walked = walk(&mut subject.boss.link, &top, &mut self.eyes);
            let walked = walked.with_context(|| export.clone())?;
            let what = || format!("{export}, between seq {before} and {after}");
            reached(tree, done, &walked, &mut least).with_context(what)?;
            self.counts.compared += 1;
        }
        Ok(())
    }

    /// Clients work in the directory of all, one after the other.
    pub(super) fn in_common(&mut self, at: usize) -> Result<()> {
        let count = self.random.between(3, 15);
        let Subject { clients, known, verifier, tree, name, common, .. } = &mut self.subjects[at];
        let zero = (AtomicU64::new(0), AtomicU64::new(0));
        let beat =
            Beat { clock: &zero.0, answered: &zero.1, verifier: *verifier, may_change: false };
        let mut text = format!("{name}: in common");
        for _ in 0..count {
            let number = self.random.index(clients.len());
            let client = &mut clients[number];
            let ids = &mut client.ids;
            let random = &mut self.random;
            let ops = Planner { random, ids, tree, top: COMMON }.group();
            text.push_str(&format!("\n      user {}:", client.user.uid));
            ops.iter().for_each(|op| text.push_str(&format!(" {};", told(op))));
            let ops = (ops, manner(random));
            if let Err(error) = client.step(tree, known, ops, &beat, &mut Vec::new()) {
                self.note(text);
                return Err(error);
            }
            common.push(client.user.uid);
        }
        self.note(text);
        self.record(at)
    }

    /// Compares and records the present, by its time too now and then.
    pub(super) fn record(&mut self, at: usize) -> Result<()> {
        let subject = &mut self.subjects[at];
        subject.check(&mut self.eyes)?;
        let seq = subject.record(&self.server.http())?;
        self.counts.compared += 1;
        if self.random.chance(30) {
            // Times are named only after a pause, or they would name a neighbour.
            thread::sleep(Duration::from_millis(2));
            let time = jiff::Timestamp::now().to_string();
            subject.remember(seq, vec![time]);
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl Subject {
    /// Puts together what clients did, each in its own directory.
    fn take_in(&mut self, worked: Vec<Worked>) -> Result<Vec<Done>> {
        let mut done = Vec::new();
        for worked in worked {
            let (number, tree, known, steps) = worked.context("a client at work")?;
            let client = &self.clients[number];
            let own = owner(client.top);
            self.tree.adopt(&tree, |id| owner(id) == own);
            self.known.extend(known.into_iter().filter(|(id, _)| owner(*id) == own));
            done.push(Done { user: client.user, top: client.top, steps });
        }
        Ok(done)
    }
}
