//! What puts something of the past into the present: restores and repairs of shares.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::super::subject::number;
use super::Shares;
use super::client::Client;
use super::model::{Body, FIRST, Id, Place, ROOT, Tree};
use super::outside::path_text;
use super::plan::{Ids, owner};
use super::subject::{Moment, Subject};
use crate::http::Http;
use crate::nfs::{Call, Kind};
use crate::random::Random;

/// A command that changes a share, and what the model makes of it.
pub(super) struct Command {
    target: &'static str,
    pub body: Value,
    then: Tree,
    what: What,
}

enum What {
    /// A path has what another had then.
    Restore(Vec<u8>, Vec<u8>),
    /// The directory of a client is as it was then.
    Repair(Id),
}

impl Command {
    /// Of the restore of a path to the same.
    fn restore(from: &str, path: &[u8], then: &Tree) -> Command {
        let body = json!({ "from": from, "path": path_text(path), "delete": true });
        let what = What::Restore(path.to_vec(), path.to_vec());
        Command { target: "/restores", body, then: then.clone(), what }
    }

    fn repair(undo: &str, top: Id, then: &Tree) -> Command {
        let (body, what) = (json!({ "undo": undo }), What::Repair(top));
        Command { target: "/repairs", body, then: then.clone(), what }
    }

    /// Has it done.
    pub fn ask(&self, http: &Http, share: &str) -> Result<Value> {
        let target = format!("/api/v1/shares/{share}{}", self.target);
        http.expect("POST", &target, Some(&self.body))
    }
}

impl Shares {
    /// Puts a path back as it was, or beside what is there now, and perhaps undoes it.
    pub(super) fn restore(&mut self, at: usize) -> Result<()> {
        let subject = &mut self.subjects[at];
        subject.check(&mut self.eyes)?;
        let Some((name, moment)) = subject.some_moment(&mut self.random) else { return Ok(()) };
        let now = &subject.tree;
        let Some(path) = choose(&moment.tree, now, &mut self.random) else { return Ok(()) };
        let mut command = Command::restore(&name, &path, &moment.tree);
        let is_beside = self.random.chance(30);
        if is_beside {
            let to = format!("/restored-{}", self.fresh());
            command.body["to"] = json!(to);
            command.what = What::Restore(path.clone(), to.into_bytes());
        }
        let before = self.subjects[at].tree.clone();
        let Some(made) = self.command(at, &command)? else { return Ok(()) };
        ensure!(made["in_the_way"] == 0, "something is in the way: {made}");
        // What was not there is no path of then.
        let is_undone = !is_beside && self.subjects[at].keeps_all && self.random.chance(40);
        if is_undone && find(&before, &path).is_some() {
            let from = format!("seq:{}", number(&made["before"])?);
            self.command(at, &Command::restore(&from, &path, &before))?;
        }
        Ok(())
    }

    /// Undoes what a client did in its directory since a moment, and perhaps undoes that.
    pub(super) fn repair(&mut self, at: usize) -> Result<()> {
        self.subjects[at].check(&mut self.eyes)?;
        let client = self.random.index(self.subjects[at].clients.len());
        let Some(command) = self.repair_of(at, client) else { return Ok(()) };
        let before = self.subjects[at].tree.clone();
        let Some(made) = self.command(at, &command)? else { return Ok(()) };
        ensure!(made["kept"] == 0, "a repair keeps what nothing stands on: {made}");
        if let (Some(repair), true) = (made["number"].as_u64(), self.random.chance(60)) {
            let top = self.subjects[at].clients[client].top;
            self.command(at, &Command::repair(&format!("repair={repair}"), top, &before))?;
        }
        Ok(())
    }

    fn repair_of(&mut self, at: usize, client: usize) -> Option<Command> {
        let (subject, random) = (&self.subjects[at], &mut self.random);
        let since = subject.moments.iter().filter(|moment| moment.is_clients);
        let moments: Vec<&Moment> = since.filter(|_| subject.keeps_all).collect();
        if moments.is_empty() {
            return None;
        }
        let moment = moments[random.index(moments.len())];
        let (top, uid) = (subject.clients[client].top, subject.clients[client].user.uid);
        let mut undo = format!("uid={uid} and time>=seq:{}", moment.seq);
        if subject.common.contains(&uid) || random.chance(30) {
            undo.push_str(&format!(" and path=/client-{}", client + 1));
        }
        Some(Command::repair(&undo, top, &moment.tree))
    }

    /// A command that changes the directory of one client.
    pub(super) fn command_of(&mut self, at: usize, client: usize) -> Option<Command> {
        if self.random.chance(60) {
            return self.repair_of(at, client);
        }
        let (name, moment) = self.subjects[at].some_moment(&mut self.random)?;
        let path = format!("/client-{}", client + 1).into_bytes();
        Some(Command::restore(&name, &path, &moment.tree))
    }

    /// Has a command told, and done; the answer, unless the server was killed meanwhile.
    fn command(&mut self, at: usize, command: &Command) -> Result<Option<Value>> {
        let (http, name) = (self.server.http(), self.subjects[at].name.clone());
        // One beside what is there cannot be given again: if it was done, its name is taken.
        let is_killed = self.random.chance(20) && command.body.get("to").is_none();
        let how = if is_killed { ", killed meanwhile" } else { "" };
        self.note(format!("{name}: {} {}{how}", command.target, command.body));
        let dry = self.subjects[at].dry_run(&http, command)?;
        if is_killed {
            self.killed(at, command)?;
            return Ok(None);
        }
        let made = command.ask(&http, &name)?;
        for count in ["created", "overwritten", "removed", "kept", "bytes", "changes_total"] {
            ensure!(dry[count] == made[count], "a dry run said {dry}, and {made} was done");
        }
        self.subjects[at].follow(command)?;
        self.changed(at).with_context(|| format!("after {} {made}", command.target))?;
        Ok(Some(made))
    }

    /// Kills the server while it does something. A restore that is given again does the rest; the
    /// part that a repair has done is undone by its number.
    fn killed(&mut self, at: usize, command: &Command) -> Result<()> {
        let (http, name) = (self.server.http(), self.subjects[at].name.clone());
        let newest = self.subjects[at].newest_cause(&http)?;
        let when = Duration::from_micros(self.random.below(6000));
        thread::scope(|scope| {
            let _ = scope.spawn(|| command.ask(&http, &name));
            thread::sleep(when);
            self.server.kill();
        });
        self.up_again()?;
        let again = match command.what {
            What::Restore(..) => Some(command.body.clone()),
            What::Repair(_) => {
                let cause = self.subjects[at].newest_cause(&http)?;
                // The newest may be of an earlier command, if this one had done nothing.
                let is_part = cause.starts_with("repair=") && cause != newest;
                is_part.then(|| json!({ "undo": cause }))
            }
        };
        if let Some(body) = again {
            let before = self.subjects[at].tree.clone();
            let (target, then) = (command.target, command.then.clone());
            let (what, then) = match &command.what {
                What::Restore(from, to) => (What::Restore(from.clone(), to.clone()), then),
                What::Repair(top) => (What::Repair(*top), before),
            };
            let again = Command { target, body, then, what };
            self.note(format!("{name}: {target} {}", again.body));
            again.ask(&http, &name)?;
            self.subjects[at].follow(&again)?;
        }
        self.subjects[at].remove_copies(&mut self.eyes)?;
        self.changed(at).context("after a command that was killed")
    }

    /// The present was changed by a command: it is recorded, and clients begin anew.
    pub(super) fn changed(&mut self, at: usize) -> Result<()> {
        self.counts.repairs += 1;
        self.record(at)?;
        let subject = &mut self.subjects[at];
        subject.begin_anew();
        // The moment before was retained as by a revert, where not all is.
        if subject.keeps_all { Ok(()) } else { subject.renew_verifier(false) }
    }
}

impl Subject {
    /// Asks for something that is only told, which must change nothing.
    fn dry_run(&self, http: &Http, command: &Command) -> Result<Value> {
        let before = self.latest_seq(http)?;
        let mut body = command.body.clone();
        body["dry_run"] = json!(true);
        let target = self.share_path(command.target);
        let dry = http.expect("POST", &target, Some(&body))?;
        ensure!(self.latest_seq(http)? == before, "a dry run changed the share");
        Ok(dry)
    }

    /// The command that did the newest operation; none of a client's.
    fn newest_cause(&self, http: &Http) -> Result<String> {
        let newest = http.get(&self.share_path("/ops?limit=1"))?;
        Ok(newest[0]["cause"].as_str().unwrap_or_default().to_owned())
    }

    /// Removes the copies at the top that a repair which was interrupted may leave.
    fn remove_copies(&mut self, random: &mut Random) -> Result<()> {
        let walked = self.walk(random)?;
        let copies = walked.iter().filter(|(path, _)| path.starts_with(b"/.repair-"));
        // What is below comes behind what it is in.
        for (path, found) in copies.rev() {
            let at = path.iter().rposition(|byte| *byte == b'/').context("a path")?;
            let dir = walked[&path[..at]].handle.clone();
            let name = path[at + 1..].to_vec();
            let call = match found.attr.kind {
                Kind::Directory => Call::Rmdir { dir, name },
                _ => Call::Remove { dir, name },
            };
            self.boss.link.demand(&call)?;
        }
        Ok(())
    }

    /// The model's part of a command.
    pub(super) fn follow(&mut self, command: &Command) -> Result<()> {
        match &command.what {
            What::Restore(from, to) => self.put_below(&command.then, from, to),
            What::Repair(top) => self.become_of(*top, &command.then),
        }
    }

    /// The model's part of a restore: a path has what another had in a tree of then.
    fn put_below(&mut self, then: &Tree, from: &[u8], to: &[u8]) -> Result<()> {
        let source = find(then, from).context("it was there then")?;
        let mut forgotten = then.below(source);
        if let Some(there) = find(&self.tree, to) {
            forgotten.extend(self.tree.below(there));
        }
        self.forget_objects(forgotten);
        if to == b"/" {
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
