//! Shares: clients of file trees at work, each in a directory of its own and all in one, over NFS;
//! the server killed under them; and every recorded moment compared whole, by every way to it.
//!
//! 1. What was answered is there after a kill, and what was not is done exactly once when it is
//!    sent again: so the tree after a storm is one tree, killed or not. Handles go on.
//! 2. Writes that were not committed when the verifier changed are written again, as clients do.
//! 3. A recorded moment is the same tree for ever: names, kinds, modes, owners, times, sizes,
//!    bytes, links, and which names are one file; mounted, below `.hindsight` in any directory,
//!    held open, by command, and exported.
//! 4. A moment between two recorded ones is one after whole operations of each client (`between`).
//! 5. Reverts, undone reverts, clones, restores and repairs leave the tree of their definition.
//! 6. A diff tells each path that differs, and none of an object that nobody touched.

mod between;
mod client;
mod look;
mod model;
mod outside;
mod past;
mod plan;
mod repairs;
mod storm;
mod subject;
mod verbs;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::world::Counts;
use crate::nfs::{Address, Call, How, Manner, Set};
use crate::random::Random;
use crate::server::Server;
use model::{ANCHOR, Body, COMMON, Id, Node, Op, ROOT, Tree, User};
use plan::Ids;
use subject::Subject;

/// Steps of a run, and how many of them are told.
const STEPS: u64 = 40;
const STORY_STEPS: usize = 30;
const SHARES_MAX: usize = 3;
const CLIENTS: u32 = 3;
const ARCHITECTURES: [&str; 4] = ["logging", "split-stream", "redirect", "checkpointing"];

struct Shares {
    server: Server,
    address: Address,
    random: Random,
    /// What is looked at, and how: what is found depends on when a kill came, and what is done next
    /// must not.
    eyes: Random,
    subjects: Vec<Subject>,
    counts: Counts,
    story: VecDeque<String>,
    step: u64,
    names: u64,
    links: u32,
}

/// Random steps on one pool.
pub(super) fn run(program: &Path, pool: &Path, seed: u64) -> Result<Counts> {
    let mut shares = Shares {
        server: Server::start_with(program, pool, &["--nfs", "127.0.0.1:0"])?,
        address: Address::default(),
        random: Random::new(seed ^ 0x5ae5),
        eyes: Random::new(seed ^ 0xe4e5),
        subjects: Vec::new(),
        counts: Counts::default(),
        story: VecDeque::new(),
        step: 0,
        names: 0,
        links: 0,
    };
    let outcome = shares.go();
    outcome.with_context(|| {
        let story = shares.story.iter().cloned().collect::<Vec<String>>().join("\n");
        let talk = shares.server.talk();
        let lines: Vec<&str> = talk.lines().rev().take(30).collect();
        let said = lines.into_iter().rev().collect::<Vec<&str>>().join("\n");
        format!("the last steps were\n{story}\nthe server said\n{said}")
    })?;
    Ok(shares.counts)
}

impl Shares {
    fn go(&mut self) -> Result<()> {
        tell_address(&self.server, &self.address)?;
        self.create()?;
        for step in 0..STEPS {
            self.step = step;
            self.take_step().with_context(|| format!("step {step}"))?;
            self.server.check()?;
        }
        self.finish().context("the end")
    }

    fn note(&mut self, what: String) {
        if self.story.len() == STORY_STEPS {
            self.story.pop_front();
        }
        self.story.push_back(format!("  {:3} {what}", self.step));
    }

    fn fresh(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    fn take_step(&mut self) -> Result<()> {
        let at = self.random.index(self.subjects.len());
        match self.random.below(100) {
            0..22 => self.storm(at, false),
            22..36 => self.storm(at, true),
            36..42 => self.in_common(at),
            42..54 => self.look_back(at),
            54..57 => self.hold(at),
            57..62 => self.create_version(at),
            62..64 => self.delete_version(at),
            64..68 => self.create_mark(at),
            68..70 => self.delete_mark(at),
            70..77 => self.revert(at),
            77..80 if self.subjects.len() < SHARES_MAX => self.clone_share(at),
            80..84 => self.restore(at),
            84..90 => self.repair(at),
            90..93 => self.compare_diff(at),
            93..95 => self.export(at),
            95 if self.subjects.len() < SHARES_MAX => self.create(),
            96 if self.subjects.len() > 1 => self.delete_share(at),
            _ => self.restart(),
        }
    }

    /// A share with a directory for each client, and one for all.
    fn create(&mut self) -> Result<()> {
        let name = format!("share-{}", self.fresh());
        let random = &mut self.random;
        let keeps_all = random.chance(85);
        let mut body = json!({
            "name": name,
            "architecture": ARCHITECTURES[random.index(ARCHITECTURES.len())],
            "granularity": if keeps_all { "every-write" } else { "on-demand" },
            "metadata": if random.chance(70) { "stable" } else { "server" },
            "dedup": random.chance(25),
        });
        if random.chance(40) {
            body["encoding"] = json!(["xor", "delta"][random.index(2)]);
            body["encode_after"] = json!("0s");
        }
        self.note(format!("create {body}"));
        self.server.http().expect("POST", "/api/v1/shares", Some(&body))?;
        let mut tree = Tree::default();
        let root = User { uid: 0, gid: 0 };
        tree.put(ROOT, Node::new(0o755, root, Body::Directory(BTreeMap::new())));
        let users: Vec<(User, Id, Ids)> = (1..=CLIENTS)
            .map(|number| {
                let mut ids = Ids::of(u64::from(number));
                (User { uid: 1000 + number, gid: 2000 + number % 2 }, ids.fresh(), ids)
            })
            .collect();
        let links = (&self.address, &mut self.links);
        let mut subject = Subject::new(&name, keeps_all, links, (tree, &users));
        subject.set_up(&mut self.random)?;
        subject.record(&self.server.http())?;
        self.subjects.push(subject);
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        if self.random.chance(50) {
            self.server.kill();
            self.note("kill -9 at rest".to_owned());
        } else {
            self.server.stop()?;
            self.note("stop".to_owned());
        }
        self.up_again()?;
        for at in 0..self.subjects.len() {
            self.subjects[at].check(&mut self.eyes).context("after a restart")?;
        }
        Ok(())
    }

    fn up_again(&mut self) -> Result<()> {
        self.counts.kills += 1;
        self.server.up()?;
        tell_address(&self.server, &self.address)?;
        self.subjects.iter_mut().try_for_each(|subject| subject.renew_verifier(true))
    }

    /// Compares everything once more, and once more after a restart.
    fn finish(&mut self) -> Result<()> {
        for _ in 0..2 {
            for at in 0..self.subjects.len() {
                self.compare_everything(at)?;
            }
            self.restart()?;
        }
        while self.subjects.len() > 1 {
            let at = self.random.index(self.subjects.len());
            self.delete_share(at)?;
        }
        self.subjects[0].check(&mut self.eyes)?;
        for client in self.subjects.iter().flat_map(|subject| &subject.clients) {
            self.counts.sent_again += client.link.sent_again;
            self.counts.writes += client.writes;
        }
        self.server.stop()?;
        let talk = self.server.talk();
        let wrong = talk.lines().find(|line| line.contains(" ERROR "));
        ensure!(wrong.is_none(), "the server logged an error: {wrong:?}");
        Ok(())
    }
}

/// Says where the server is, which is told anew at each start.
fn tell_address(server: &Server, address: &Address) -> Result<()> {
    let talk = server.talk();
    let told = talk.lines().rev().find_map(|line| line.strip_prefix("nfs "));
    let found: SocketAddr = told.context("no address of NFS")?.trim().parse()?;
    address.set(found);
    Ok(())
}

impl Subject {
    /// The directories that clients begin with, made by root.
    fn set_up(&mut self, random: &mut Random) -> Result<()> {
        let top = look::mount(&mut self.boss.link, &self.name)?;
        let fileid = self.boss.link.demand(&Call::Getattr { object: top.clone() })?;
        let fileid = fileid.attr.context("no attributes")?.fileid;
        self.known.insert(ROOT, client::Known { handle: top, fileid });
        let mode = [0o777, 0o1777][random.index(2)];
        let mut ops = vec![Op::Mkdir { dir: ROOT, name: b"common".to_vec(), mode, new: COMMON }];
        let how = How::Guarded(Set { mode: Some(0o644), ..Set::default() });
        ops.push(Op::Create { dir: ROOT, name: b"anchor".to_vec(), how, new: ANCHOR });
        for (number, client) in self.clients.iter().enumerate() {
            let (name, new) = (format!("client-{}", number + 1).into_bytes(), client.top);
            ops.push(Op::Mkdir { dir: ROOT, name, mode: 0o755, new });
            let (uid, gid) = (Some(client.user.uid), Some(client.user.gid));
            ops.push(Op::Set { object: new, set: Set { uid, gid, ..Set::default() } });
        }
        for op in ops {
            self.do_as_root(op)?;
        }
        self.renew_verifier(false)?;
        self.check(random)
    }

    fn do_as_root(&mut self, op: Op) -> Result<()> {
        let zero = (Default::default(), Default::default());
        let beat =
            client::Beat { clock: &zero.0, answered: &zero.1, verifier: [0; 8], may_change: true };
        let Subject { boss, tree, known, .. } = self;
        boss.step(tree, known, (vec![op], Manner::Plain), &beat, &mut Vec::new())
    }
}
