//! The model of verbs that run at one instant: what each does to the volumes, and whether some
//! order of them explains what all of them answered and what was found afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Pages of an image by the byte that fills each.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pages(pub Vec<u8>);

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.0.len())?;
        let filled = self.0.iter().enumerate().filter(|(_, fill)| **fill != 0);
        filled.into_iter().try_for_each(|(page, fill)| write!(f, " {page}={fill}"))
    }
}

/// What a thread asked for.
#[derive(Clone, Debug)]
pub(super) enum Verb {
    Attach { name: String },
    Write { page: usize, fill: u8 },
    Detach,
    Delete { name: String, force: bool, now: bool },
    Undelete { id: u64 },
    EmptyTrash { id: u64 },
    Revert { name: String, version: u64, force: bool },
    Clone { name: String, version: Option<u64>, to: String },
    CreateVersion { name: String },
    DeleteVersion { name: String, version: u64 },
    Resize { name: String, pages: usize, force: bool },
    SetWindow { name: String, window: String },
    CaptureGroup,
}

impl Verb {
    /// The volume whose clients it may cut off.
    fn forces(&self) -> Option<&str> {
        match self {
            Verb::Delete { name, force: true, .. }
            | Verb::Revert { name, force: true, .. }
            | Verb::Resize { name, force: true, .. } => Some(name),
            _ => None,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// It made versions with these numbers, by volume.
    Made(Vec<(String, u64)>),
    /// Why, for people.
    Refused(String),
    /// Refused because something else was under way, whatever that came to.
    Busy(String),
    /// No answer came.
    Lost,
}

/// A verb and its outcome.
pub(super) type Told = (Verb, Outcome);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    pub pages: Pages,
    pub versions: BTreeMap<u64, Pages>,
    pub window: String,
}

#[derive(Clone, Debug)]
struct Held {
    volume: Volume,
    next_version: u64,
    is_member: bool,
    clients: BTreeSet<usize>,
    /// Its number in the trash, if it was there.
    id: Option<u64>,
}

/// What a look from outside finds.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Seen {
    pub volumes: BTreeMap<String, Volume>,
    /// Names of what is in the trash, ascending.
    pub trash: Vec<String>,
}

/// All volumes, what is in the trash by its number there, and who is attached.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    volumes: BTreeMap<String, Held>,
    trash: BTreeMap<u64, (String, Held)>,
    /// What is put into the trash by what is to be explained: its number is not known.
    thrown: Vec<(String, Held)>,
}

impl State {
    pub fn create(&mut self, name: &str, volume: Volume, is_member: bool) {
        let next_version = volume.versions.keys().last().map_or(0, |last| last + 1);
        let held = Held { volume, next_version, is_member, clients: BTreeSet::new(), id: None };
        self.volumes.insert(name.to_owned(), held);
    }

    /// A volume goes to the trash under a number that is known.
    pub fn throw(&mut self, name: &str, id: u64) {
        if let Some(mut held) = self.volumes.remove(name) {
            held.id = Some(id);
            self.trash.insert(id, (name.to_owned(), held));
        }
    }

    pub fn attach(&mut self, name: &str, thread: usize) {
        if let Some(held) = self.volumes.get_mut(name) {
            held.clients.insert(thread);
        }
    }

    fn seen(&self) -> Seen {
        let of = |(name, held): (&String, &Held)| (name.clone(), held.volume.clone());
        let thrown = self.thrown.iter().map(|(name, _)| name);
        let mut trash: Vec<String> =
            self.trash.values().map(|(name, _)| name).chain(thrown).cloned().collect();
        trash.sort_unstable();
        Seen { volumes: self.volumes.iter().map(of).collect(), trash }
    }

    /// The volume that a thread has open, if it was not disconnected.
    fn open_by(&mut self, thread: usize) -> Option<&mut Held> {
        self.volumes.values_mut().find(|held| held.clients.contains(&thread))
    }

    /// Does a verb; none when it must be refused.
    fn apply(mut self, thread: usize, verb: &Verb) -> Option<(State, Outcome)> {
        let mut outcome = Outcome::Done;
        match verb {
            Verb::Attach { name } => {
                self.volumes.get_mut(name)?.clients.insert(thread);
            }
            Verb::Write { page, fill } => {
                let held = self.open_by(thread)?;
                *held.volume.pages.0.get_mut(*page)? = *fill;
            }
            Verb::Detach => {
                if let Some(held) = self.open_by(thread) {
                    held.clients.remove(&thread);
                }
            }
            Verb::Delete { name, force, now } => self.delete(name, *force, *now)?,
            Verb::Undelete { id } => {
                let (name, held) = self.trash.remove(id)?;
                if self.volumes.contains_key(&name) {
                    return None;
                }
                self.volumes.insert(name, held);
            }
            Verb::EmptyTrash { id } => {
                self.trash.remove(id)?;
            }
            Verb::Revert { name, version, force } => {
                let held = self.alone(name, *force)?;
                held.volume.pages = held.volume.versions.get(version)?.clone();
            }
            Verb::Clone { name, version, to } => self.clone_volume(name, *version, to)?,
            Verb::CreateVersion { name } => {
                outcome =
                    Outcome::Made(vec![(name.clone(), self.volumes.get_mut(name)?.capture())]);
            }
            Verb::DeleteVersion { name, version } => {
                self.volumes.get_mut(name)?.volume.versions.remove(version)?;
            }
            Verb::Resize { name, pages, force } => {
                let is_smaller = *pages < self.volumes.get(name)?.volume.pages.0.len();
                let held = match is_smaller {
                    true => self.alone(name, *force)?,
                    false => self.volumes.get_mut(name)?,
                };
                held.volume.pages.0.resize(*pages, 0);
            }
            Verb::SetWindow { name, window } => {
                self.volumes.get_mut(name)?.volume.window.clone_from(window);
            }
            Verb::CaptureGroup => {
                let members = self.volumes.iter_mut().filter(|(_, held)| held.is_member);
                let made: Vec<(String, u64)> =
                    members.map(|(name, held)| (name.clone(), held.capture())).collect();
                if made.is_empty() {
                    return None;
                }
                outcome = Outcome::Made(made);
            }
        }
        Some((self, outcome))
    }

    /// The state once a forced verb has cut clients off, and done nothing else yet: a verb of
    /// others that waits for them to leave may come before what it does next.
    fn cut(&self, verb: &Verb, told: &Outcome) -> Option<State> {
        let name = verb.forces().filter(|_| matches!(told, Outcome::Done | Outcome::Lost))?;
        let mut cut = self.clone();
        let held = cut.volumes.get_mut(name)?;
        if matches!(verb, Verb::Resize { pages, .. } if *pages >= held.volume.pages.0.len()) {
            // One that grows asks nobody to leave.
            return None;
        }
        (!std::mem::take(&mut held.clients).is_empty()).then_some(cut)
    }

    fn delete(&mut self, name: &str, force: bool, now: bool) -> Option<()> {
        let mut held = self.volumes.remove(name)?;
        let is_free = held.clients.is_empty() && held.volume.versions.is_empty();
        held.clients.clear();
        match held.id {
            _ if !is_free && !force => return None,
            _ if now => {}
            Some(id) => drop(self.trash.insert(id, (name.to_owned(), held))),
            None => self.thrown.push((name.to_owned(), held)),
        }
        Some(())
    }

    /// A volume without clients: with force they are disconnected.
    fn alone(&mut self, name: &str, force: bool) -> Option<&mut Held> {
        let held = self.volumes.get_mut(name)?;
        if force {
            held.clients.clear();
        }
        Some(held).filter(|held| held.clients.is_empty())
    }

    fn clone_volume(&mut self, name: &str, version: Option<u64>, to: &str) -> Option<()> {
        let origin = &self.volumes.get(name)?.volume;
        let pages = match version {
            None => origin.pages.clone(),
            Some(version) => origin.versions.get(&version)?.clone(),
        };
        if self.volumes.contains_key(to) {
            return None;
        }
        let window = origin.window.clone();
        self.create(to, Volume { pages, versions: BTreeMap::new(), window }, false);
        Some(())
    }
}

impl Held {
    fn capture(&mut self) -> u64 {
        let number = self.next_version;
        self.next_version += 1;
        self.volume.versions.insert(number, self.volume.pages.clone());
        number
    }
}

/// Whether some order of what the threads did, each its own in its order, explains what each was
/// told and what was seen afterwards; if not, the states that answers alone would allow.
pub(super) fn explain(
    before: &State,
    threads: &[Vec<Told>],
    seen: &Seen,
) -> Result<State, Vec<Seen>> {
    let cuts = threads.iter().flatten().any(|(verb, _)| verb.forces().is_some());
    let mut search = Search { threads, cuts, seen, found: None, others: Vec::new() };
    search.go(before.clone(), &vec![0; threads.len()]);
    search.found.ok_or(search.others)
}

struct Search<'a> {
    threads: &'a [Vec<Told>],
    /// A client may be disconnected while it waits for an answer.
    cuts: bool,
    seen: &'a Seen,
    found: Option<State>,
    others: Vec<Seen>,
}

impl Search<'_> {
    fn go(&mut self, state: State, done: &[usize]) {
        if self.found.is_some() {
            return;
        }
        if done.iter().zip(self.threads).all(|(done, thread)| *done == thread.len()) {
            let seen = state.seen();
            match seen == *self.seen {
                true => self.found = Some(state),
                false if self.others.contains(&seen) => {}
                false => self.others.push(seen),
            }
            return;
        }
        for (thread, all) in self.threads.iter().enumerate() {
            let Some((verb, told)) = all.get(done[thread]) else { continue };
            if let Some(cut) = state.cut(verb, told) {
                self.go(cut, done);
            }
            let mut next = done.to_vec();
            next[thread] += 1;
            for state in self.after(&state, thread, verb, told) {
                self.go(state, &next);
            }
        }
    }

    /// The states after a verb that was told this; none if it would have been told something else.
    fn after(&self, state: &State, thread: usize, verb: &Verb, told: &Outcome) -> Vec<State> {
        let applied = state.clone().apply(thread, verb);
        let is_of_client = matches!(verb, Verb::Write { .. } | Verb::Detach);
        match (told, applied) {
            (Outcome::Lost, Some((after, _))) => vec![state.clone(), after],
            (Outcome::Lost, None) => vec![state.clone()],
            (Outcome::Refused(_), None) | (Outcome::Busy(_), _) => vec![state.clone()],
            // Cut off while it was under way, or done and not told.
            (Outcome::Refused(_), Some((after, _))) if is_of_client && self.cuts => {
                vec![state.clone(), after]
            }
            (told, Some((after, outcome))) if *told == outcome => vec![after],
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BTreeMap, Outcome, Pages, Seen, State, Told, Verb, Volume, explain};

    fn volume(pages: &[u8], versions: &[(u64, &[u8])]) -> Volume {
        let of = |pages: &[u8]| Pages(pages.to_vec());
        let versions: BTreeMap<u64, Pages> =
            versions.iter().map(|(number, pages)| (*number, of(pages))).collect();
        Volume { pages: of(pages), versions, window: "1h".to_owned() }
    }

    fn seen(name: &str, volume: Volume) -> Seen {
        Seen { volumes: BTreeMap::from([(name.to_owned(), volume)]), trash: Vec::new() }
    }

    #[test]
    fn a_verb_that_waits_for_clients_may_come_once_others_have_cut_them_off() {
        let mut before = State::default();
        before.create("v", volume(&[2], &[(0, &[1])]), false);
        before.attach("v", 1);
        let name = || "v".to_owned();
        let revert = (Verb::Revert { name: name(), version: 0, force: false }, Outcome::Done);
        let delete = |force| Verb::Delete { name: name(), force, now: false };
        let gone = Seen { trash: vec![name()], ..Seen::default() };
        let threads = [vec![revert.clone()], vec![(delete(true), Outcome::Done)]];
        assert!(explain(&before, &threads, &gone).is_ok());
        // Nobody cuts them off: refused, or not by force.
        for deleted in
            [(delete(true), Outcome::Refused(String::new())), (delete(false), Outcome::Done)]
        {
            assert!(explain(&before, &[vec![revert.clone()], vec![deleted]], &gone).is_err());
        }
        // One that grows cuts nobody off.
        let grow = Verb::Resize { name: name(), pages: 2, force: true };
        let both = [vec![revert.clone()], vec![(grow, Outcome::Done)]];
        for pages in [&[1, 0], &[2, 0]] {
            assert!(explain(&before, &both, &seen("v", volume(pages, &[(0, &[1])]))).is_err());
        }
        let alone = [vec![revert]];
        assert!(explain(&before, &alone, &seen("v", volume(&[1], &[(0, &[1])]))).is_err());
    }

    #[test]
    fn a_version_is_of_before_a_revert_or_of_after_it_and_of_nothing_else() {
        let mut before = State::default();
        before.create("v", volume(&[2, 2], &[(0, &[1, 1])]), false);
        let name = || "v".to_owned();
        let threads: [Vec<Told>; 2] = [
            vec![(Verb::Revert { name: name(), version: 0, force: false }, Outcome::Done)],
            vec![(Verb::CreateVersion { name: name() }, Outcome::Made(vec![(name(), 1)]))],
        ];
        let with = |version: &[u8]| {
            let after = volume(&[1, 1], &[(0, &[1, 1]), (1, version)]);
            explain(&before, &threads, &seen("v", after))
        };
        assert!(with(&[1, 1]).is_ok() && with(&[2, 2]).is_ok());
        assert_eq!(with(&[1, 2]).expect_err("half of it").len(), 2);
    }

    #[test]
    fn a_delete_beside_a_client_that_was_served_is_found() {
        let mut before = State::default();
        before.create("v", volume(&[0], &[]), false);
        let name = || "v".to_owned();
        let delete = Verb::Delete { name: name(), force: false, now: true };
        let threads: [Vec<Told>; 2] = [
            vec![(delete, Outcome::Done)],
            vec![
                (Verb::Attach { name: name() }, Outcome::Done),
                (Verb::Write { page: 0, fill: 1 }, Outcome::Done),
            ],
        ];
        assert!(explain(&before, &threads, &Seen::default()).is_err());
    }
}
