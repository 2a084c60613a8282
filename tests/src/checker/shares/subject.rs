//! A share under test: what must be in it, who works in it, and the moments that are recorded.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

use super::super::subject::number;
use super::client::{Client, Known, KnownObjects, handle};
use super::look::{Times, Walked, compare, learn, mount, walk};
use super::model::{ANCHOR, Id, ROOT, Tree, User};
use super::plan::Ids;
use crate::http::Http;
use crate::nfs::{Address, Call, Handle, Nfs, Verifier, status};
use crate::random::Random;

/// How the names of pinned marks begin.
pub(super) const PINNED_MARK: &str = "mark:pinned-";
/// Objects that are gone, whose handles are tried.
const GONE_TRIED: usize = 4;

/// A recorded moment.
#[derive(Clone)]
pub(super) struct Moment {
    pub names: Vec<String>,
    pub seq: u64,
    pub tree: Tree,
    /// Since then only clients changed anything.
    pub is_clients: bool,
}

/// A mount of a moment, which stays while the share goes on.
pub(super) struct Held {
    pub top: Handle,
    pub name: String,
    pub tree: Tree,
}

pub(super) struct Subject {
    pub name: String,
    /// Every moment of it can be opened; else only versions and pinned marks.
    pub keeps_all: bool,
    pub tree: Tree,
    pub known: KnownObjects,
    pub boss: Client,
    pub clients: Vec<Client>,
    pub moments: Vec<Moment>,
    pub held: Vec<Held>,
    /// The moment before the last revert.
    pub undo: Option<(u64, Tree)>,
    pub marks: Vec<String>,
    pub versions: Vec<u64>,
    pub verifier: Verifier,
    /// Users of the clients that changed the common directory since others changed anything.
    pub common: Vec<u32>,
}

impl Subject {
    /// One whose tree is known; `links` numbers connections.
    pub fn new(
        name: &str,
        keeps_all: bool,
        (address, links): (&Address, &mut u32),
        (tree, users): (Tree, &[(User, Id, Ids)]),
    ) -> Subject {
        let mut link = |user: User| {
            *links += 1;
            Nfs::new(address, *links << 20, user.uid, user.gid)
        };
        let mut client = |user: User, top, ids: &Ids| Client {
            user,
            top,
            link: link(user),
            ids: ids.clone(),
            dirty: BTreeMap::new(),
            writes: 0,
        };
        Subject {
            name: name.to_owned(),
            keeps_all,
            tree,
            known: KnownObjects::new(),
            boss: client(User { uid: 0, gid: 0 }, ROOT, &Ids::of(0)),
            clients: users.iter().map(|(user, top, ids)| client(*user, *top, ids)).collect(),
            moments: Vec::new(),
            held: Vec::new(),
            undo: None,
            marks: Vec::new(),
            versions: Vec::new(),
            verifier: Verifier::default(),
            common: Vec::new(),
        }
    }

    pub fn path(&self, rest: &str) -> String {
        format!("/api/v1/volumes/{}{rest}", self.name)
    }

    pub fn share_path(&self, rest: &str) -> String {
        format!("/api/v1/shares/{}{rest}", self.name)
    }

    pub fn latest_seq(&self, http: &Http) -> Result<u64> {
        number(&http.get(&self.path(""))?["latest"]["seq"])
    }

    /// Walks through the present from a new mount.
    pub fn walk(&mut self, random: &mut Random) -> Result<Walked> {
        let top = mount(&mut self.boss.link, &self.name)?;
        walk(&mut self.boss.link, &top, random)
    }

    /// Compares the present with the model, and learns what only the server can know.
    pub fn check(&mut self, random: &mut Random) -> Result<()> {
        let walked = self.walk(random)?;
        compare(&self.tree, ROOT, &walked, Times::Known)
            .and_then(|()| learn(&mut self.tree, ROOT, &walked, &mut self.known))
            .with_context(|| format!("the present of {}", self.name))?;
        self.check_room()?;
        self.check_gone(random)
    }

    /// As many files are in use as there are objects.
    fn check_room(&mut self) -> Result<()> {
        let root = handle(&self.known, ROOT)?;
        let (bytes, free, files, free_files) = self.boss.link.demand(&Call::Fsstat { root })?.room;
        ensure!(free <= bytes, "{free} of {bytes} bytes are free");
        let (used, objects) = (files - free_files, self.tree.below(ROOT).len() as u64);
        ensure!(used == objects, "{used} files are in use, and there are {objects} objects");
        Ok(())
    }

    /// Handles of what is gone must name nothing, and those of what is there again work: `learn`
    /// has seen that.
    fn check_gone(&mut self, random: &mut Random) -> Result<()> {
        // What was put back has another number here, and may be the same object there.
        let is_there = |id: &Id| self.tree.get(*id).is_some();
        let there = self.known.iter().filter(|(id, _)| is_there(id));
        let handles: BTreeSet<&Handle> = there.map(|(_, known)| &known.handle).collect();
        let is_gone =
            |(id, known): &(&Id, &Known)| !is_there(id) && !handles.contains(&known.handle);
        let gone: Vec<Id> = self.known.iter().filter(is_gone).map(|(id, _)| *id).collect();
        for _ in 0..GONE_TRIED.min(gone.len()) {
            let id = gone[random.index(gone.len())];
            let object = handle(&self.known, id)?;
            let reply = self.boss.link.call(&Call::Getattr { object })?;
            ensure!(
                reply.status == status::STALE,
                "the handle of object {id:x}, which is gone, gives {} {:?}",
                reply.status,
                reply.attr
            );
        }
        Ok(())
    }

    /// Records the present, which was compared, by its seq.
    pub fn record(&mut self, http: &Http) -> Result<u64> {
        let seq = self.latest_seq(http)?;
        // Also if there is one of that seq: whether a command that was killed did anything must not
        // decide what is done next.
        let (names, tree) = (vec![format!("seq:{seq}")], self.tree.clone());
        self.moments.push(Moment { names, seq, tree, is_clients: true });
        Ok(seq)
    }

    /// Records the present under these names.
    pub fn remember(&mut self, seq: u64, names: Vec<String>) {
        match self.moments.iter_mut().rev().find(|moment| moment.seq == seq) {
            Some(moment) => {
                moment.names.extend(names);
                moment.names.sort();
                moment.names.dedup();
            }
            None => {
                let tree = self.tree.clone();
                self.moments.push(Moment { names, seq, tree, is_clients: true });
            }
        }
    }

    /// The names under which a moment must open.
    pub fn sure_names<'m>(&self, moment: &'m Moment) -> Vec<&'m str> {
        let is_sure =
            |name: &&str| self.keeps_all || name.starts_with("v:") || name.starts_with(PINNED_MARK);
        moment.names.iter().map(String::as_str).filter(is_sure).collect()
    }

    /// One of the moments that must open, and a name of it.
    pub fn some_moment(&self, random: &mut Random) -> Option<(String, Moment)> {
        let kept: Vec<&Moment> =
            self.moments.iter().filter(|moment| !self.sure_names(moment).is_empty()).collect();
        if kept.is_empty() {
            return None;
        }
        let moment = kept[random.index(kept.len())];
        let names = self.sure_names(moment);
        Some((names[random.index(names.len())].to_owned(), moment.clone()))
    }

    /// Takes a name away from every moment.
    pub fn forget(&mut self, name: &str) {
        for moment in &mut self.moments {
            moment.names.retain(|n| n != name);
        }
        self.moments.retain(|moment| !moment.names.is_empty());
    }

    /// The present, which is recorded, was changed by others than clients: nobody has anything that
    /// is not committed.
    pub fn begin_anew(&mut self) {
        let before = self.moments.len() - 1;
        self.moments[..before].iter_mut().for_each(|moment| moment.is_clients = false);
        self.common.clear();
        self.clients.iter_mut().for_each(|client| client.dirty.clear());
    }

    /// Forgets which objects there are below some: others may have come in their place.
    pub fn forget_objects(&mut self, ids: impl IntoIterator<Item = Id>) {
        for id in ids {
            self.known.remove(&id);
        }
    }

    /// Asks for the verifier, which must be another one after a restart or a revert.
    pub fn renew_verifier(&mut self, is_other: bool) -> Result<()> {
        let file = handle(&self.known, ANCHOR)?;
        let verifier = self.boss.link.demand(&Call::Commit { file })?.verifier;
        if is_other && verifier == self.verifier {
            bail!("{}: the verifier is the same after a restart or a revert", self.name);
        }
        self.verifier = verifier;
        Ok(())
    }
}
