//! What puts something of the past into the present: restores and repairs of shares.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::super::subject::number;
use super::Shares;
use super::client::Client;
use super::model::{Body, FIRST, Id, Place, ROOT, Tree};
use super::outside::path_text;
use super::plan::{Ids, owner};
use super::subject::Subject;
use crate::nfs::Kind;
use crate::random::Random;

impl Shares {
    /// Puts a path back as it was, or beside what is there now, and perhaps undoes it.
    pub(super) fn restore(&mut self, at: usize) -> Result<()> {
        let subject = &mut self.subjects[at];
        subject.check(&mut self.random)?;
        let Some((name, moment)) = subject.some_moment(&mut self.random) else { return Ok(()) };
        let then = moment.tree;
        let Some(restored) = choose(&then, &subject.tree, &mut self.random) else { return Ok(()) };
        let to = match self.random.chance(30) {
            true => format!("/restored-{}", self.fresh()).into_bytes(),
            false => restored.clone(),
        };
        let mut body = json!({ "from": name, "path": path_text(&restored), "delete": true });
        if to != restored {
            body["to"] = json!(path_text(&to));
        }
        self.note(format!("{}: restore {body}", self.subjects[at].name));
        let (subject, http) = (&mut self.subjects[at], self.server.http());
        let before_tree = subject.tree.clone();
        let target = subject.share_path("/restores");
        let dry = subject.dry_run(&http, &target, &body)?;
        let made = http.expect("POST", &target, Some(&body))?;
        for count in ["created", "overwritten", "removed", "kept", "bytes", "in_the_way"] {
            ensure!(dry[count] == made[count], "a dry run said {dry}, and {made} was done");
        }
        ensure!(made["in_the_way"] == 0, "something is in the way: {made}");
        subject.put_below(&then, &restored, &to)?;
        self.changed(at).with_context(|| format!("after a restore {made}"))?;
        if to == restored && self.subjects[at].keeps_all && self.random.chance(40) {
            self.undo_restore(at, &before_tree, (&restored, number(&made["before"])?))?;
        }
        Ok(())
    }

    fn undo_restore(&mut self, at: usize, tree: &Tree, (path, seq): (&[u8], u64)) -> Result<()> {
        let from = format!("seq:{seq}");
        // What was not there then is no path of then.
        if find(tree, path).is_none() {
            return Ok(());
        }
        let body = json!({ "from": from, "path": path_text(path), "delete": true });
        self.note(format!("{}: undo it by {body}", self.subjects[at].name));
        let (subject, http) = (&mut self.subjects[at], self.server.http());
        http.expect("POST", &subject.share_path("/restores"), Some(&body))?;
        subject.put_below(tree, path, path)?;
        self.changed(at).context("after a restore was undone")
    }

    /// Undoes what a client did in its directory since a moment, and perhaps undoes that.
    pub(super) fn repair(&mut self, at: usize) -> Result<()> {
        let (subject, http) = (&mut self.subjects[at], self.server.http());
        subject.check(&mut self.random)?;
        let moments = subject.client_moments();
        if !subject.keeps_all || moments.is_empty() {
            return Ok(());
        }
        let (seq, then) = &moments[self.random.index(moments.len())];
        let number_of = self.random.index(subject.clients.len());
        let (top, uid) = (subject.clients[number_of].top, subject.clients[number_of].user.uid);
        let mut undo = format!("uid={uid} and time>=seq:{seq}");
        if subject.common.contains(&uid) || self.random.chance(30) {
            undo.push_str(&format!(" and path=/client-{}", number_of + 1));
        }
        let body = json!({ "undo": undo });
        let before_tree = subject.tree.clone();
        let told = format!("{}: repair {body}", subject.name);
        let target = subject.share_path("/repairs");
        let dry = subject.dry_run(&http, &target, &body)?;
        let made = http.expect("POST", &target, Some(&body))?;
        ensure!(dry["changes_total"] == made["changes_total"], "foretold {dry}, done {made}");
        ensure!(made["kept"] == 0, "a repair keeps what nothing stands on: {made}");
        subject.become_of(top, then)?;
        self.note(told);
        self.counts.repairs += 1;
        self.changed(at).with_context(|| format!("after a repair: {made}"))?;
        if let (Some(repair), true) = (made["number"].as_u64(), self.random.chance(60)) {
            let (subject, http) = (&mut self.subjects[at], self.server.http());
            let body = json!({ "undo": format!("repair={repair}") });
            let made = http.expect("POST", &subject.share_path("/repairs"), Some(&body))?;
            subject.become_of(top, &before_tree)?;
            let told = format!("{}: undo it by {body}", subject.name);
            self.note(told);
            self.counts.repairs += 1;
            self.changed(at).with_context(|| format!("after a repair was undone: {made}"))?;
        }
        Ok(())
    }

    /// The present was changed by a command: it is recorded, and clients begin anew.
    fn changed(&mut self, at: usize) -> Result<()> {
        self.record(at)?;
        let (subject, http) = (&mut self.subjects[at], self.server.http());
        let seq = subject.latest_seq(&http)?;
        subject.begin_anew(seq);
        Ok(())
    }
}

impl Subject {
    /// Asks for something that is only told, which must change nothing.
    fn dry_run(&self, http: &crate::http::Http, target: &str, body: &Value) -> Result<Value> {
        let before = self.latest_seq(http)?;
        let mut body = body.clone();
        body["dry_run"] = json!(true);
        let dry = http.expect("POST", target, Some(&body))?;
        ensure!(self.latest_seq(http)? == before, "a dry run changed the share");
        Ok(dry)
    }

    /// The model's part of a restore: a path has what another had in a tree of then.
    fn put_below(&mut self, then: &Tree, from: &[u8], to: &[u8]) -> Result<()> {
        let source = find(then, from).context("it was there then")?;
        let mut forgotten = then.below(source);
        if let Some(there) = find(&self.tree, to) {
            forgotten.extend(self.tree.below(there));
        }
        self.forget_objects(forgotten);
        if from == b"/" {
            self.forget_objects([ROOT]);
            let Subject { tree, boss, clients, .. } = self;
            let tops: Vec<Id> = clients.iter().map(|client| client.top).collect();
            let keeps = |id| id < FIRST || tops.contains(&id);
            tree.graft(then, (ROOT, ROOT), keeps, &mut |old| ids(boss, clients, old).fresh());
            return Ok(());
        }
        let Subject { tree, boss, clients, .. } = self;
        let (above, name) = parent(tree, to).context("the directory above is there")?;
        let there = tree.entries(above).get(&name).copied();
        let stays = |id: &Id| *id < FIRST || clients.iter().any(|client| client.top == *id);
        // Clients go on in the directories that they have.
        let own = there.filter(stays).unwrap_or(above);
        let id = match own == above {
            true => ids(boss, clients, own).fresh(),
            false => own,
        };
        tree.entries_mut(above).insert(name, id);
        tree.graft(then, (source, id), |_| false, &mut |_| ids(boss, clients, own).fresh());
        Ok(())
    }

    /// The model's part of a repair: a client's directory is as it was then, by other objects.
    fn become_of(&mut self, top: Id, then: &Tree) -> Result<()> {
        self.forget_objects(then.below(top).into_iter().chain(self.tree.below(top)));
        let client = self.clients.iter_mut().find(|client| client.top == top);
        let ids = &mut client.context("a client's directory")?.ids;
        self.tree.graft(then, (top, top), |_| false, &mut |_| ids.fresh());
        for id in self.tree.below(top).into_iter().chain([ROOT]) {
            // Directories have the time of the repair, files that of the writes that stay.
            let node = self.tree.change(id);
            (node.atime, node.mtime) = (None, None);
        }
        Ok(())
    }
}

/// The numbers of the owner of an object.
fn ids<'s>(boss: &'s mut Client, clients: &'s mut [Client], of: Id) -> &'s mut Ids {
    match owner(of).checked_sub(1) {
        Some(at) => &mut clients[at as usize].ids,
        None => &mut boss.ids,
    }
}

/// A path of then that can be put back on its own: above it are directories now too, and no file
/// below it, then or now, has a name elsewhere.
fn choose(then: &Tree, now: &Tree, random: &mut Random) -> Option<Vec<u8>> {
    if random.chance(15) {
        return Some(b"/".to_vec());
    }
    let may = |place: &Place| {
        parent(now, &place.path).is_some()
            && is_closed(then, place.id)
            && find(now, &place.path).is_none_or(|id| is_closed(now, id))
    };
    let mut places = then.places(ROOT);
    places.retain(|place| may(place));
    // Rather something with something below it.
    let mut directories = Vec::new();
    for place in &places {
        if then.node(place.id).kind() == Kind::Directory {
            directories.push(place.path.clone());
        }
    }
    match random.chance(70) && !directories.is_empty() {
        true => Some(directories.swap_remove(random.index(directories.len()))),
        false if places.is_empty() => None,
        false => Some(places.swap_remove(random.index(places.len())).path),
    }
}

/// Whether all names of what is at and below an object are there.
fn is_closed(tree: &Tree, id: Id) -> bool {
    if tree.node(id).kind() != Kind::Directory {
        return tree.links(id) == 1;
    }
    let inside = tree.places(id);
    let names = |of: Id| inside.iter().filter(|place| place.id == of).count();
    inside.iter().all(|place| {
        tree.node(place.id).kind() == Kind::Directory
            || tree.links(place.id) as usize == names(place.id)
    })
}

/// The object of a path.
pub(super) fn find(tree: &Tree, path: &[u8]) -> Option<Id> {
    let mut at = ROOT;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        match &tree.node(at).body {
            Body::Directory(entries) => at = *entries.get(name)?,
            _ => return None,
        }
    }
    Some(at)
}

/// The directory above a path, and the name in it.
fn parent(tree: &Tree, path: &[u8]) -> Option<(Id, Vec<u8>)> {
    let at = path.iter().rposition(|byte| *byte == b'/')?;
    let above = find(tree, &path[..at])?;
    let is_directory = tree.node(above).kind() == Kind::Directory;
    is_directory.then(|| (above, path[at + 1..].to_vec()))
}
