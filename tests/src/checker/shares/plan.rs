//! What clients do next: operations that go on alone, and groups of them that are under way
//! together, of which the order makes no difference.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::model::{Body, FIRST, Id, Name, Op, Place, Tree};
use crate::nfs::{How, Kind, Set, Stable};
use crate::random::Random;

/// Names below a client's directory above which it rather takes some away.
const NAMES_MAX: usize = 60;
/// Directories in one another.
const DEPTH_MAX: usize = 6;
/// Where the server keeps content otherwise: in the inode, and in slabs that grow by fours.
const EDGES: [u64; 7] = [0, 3584, 4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Numbers of objects of one owner.
#[derive(Clone, Debug)]
pub(super) struct Ids(Id);

impl Ids {
    pub fn of(owner: u64) -> Ids {
        Ids(owner << 32 | FIRST)
    }

    pub fn fresh(&mut self) -> Id {
        self.0 += 1;
        self.0
    }
}

/// The owner of a number.
pub(super) fn owner(id: Id) -> u64 {
    id >> 32
}

/// A client that thinks of what to do in a directory.
pub(super) struct Planner<'a> {
    pub random: &'a mut Random,
    pub ids: &'a mut Ids,
    pub tree: &'a Tree,
    pub top: Id,
}

impl Planner<'_> {
    /// The next operations; mostly one.
    pub fn group(&mut self) -> Vec<Op> {
        let places = self.tree.places(self.top);
        let is_full = places.len() > NAMES_MAX;
        let op = match self.random.below(100) {
            0..12 if !is_full => self.create(&places),
            12..18 if !is_full => self.mkdir(&places),
            18..22 if !is_full => self.symlink(&places),
            22..28 if !is_full => self.link(&places),
            28..40 => self.rename(&places),
            40..48 => self.remove(&places),
            48..52 => self.rmdir(&places),
            52..72 => self.write(&places),
            72..82 => self.set(&places),
            82..88 => self.commit(&places),
            88..91 if !is_full => return self.creates(&places),
            91..94 => return self.writes(&places),
            94..96 => return self.removes(&places),
            96..98 => self.odd(&places),
            _ if is_full => return self.removes(&places),
            _ => self.create(&places),
        };
        vec![op]
    }

    fn dir(&mut self, places: &[Place]) -> Id {
        let is_shallow = |place: &&Place| {
            self.tree.node(place.id).kind() == Kind::Directory
                && place.path.split(|byte| *byte == b'/').count() <= DEPTH_MAX
        };
        let dirs: Vec<Id> = places.iter().filter(is_shallow).map(|place| place.id).collect();
        match self.random.index(dirs.len() + 1) {
            0 => self.top,
            at => dirs[at - 1],
        }
    }

    fn some<'p>(&mut self, places: &'p [Place], kind: Kind) -> Option<&'p Place> {
        let of_kind = |place: &&Place| self.tree.node(place.id).kind() == kind;
        let all: Vec<&Place> = places.iter().filter(of_kind).collect();
        (!all.is_empty()).then(|| all[self.random.index(all.len())])
    }

    fn name(&mut self) -> Name {
        let number = self.random.below(14);
        match self.random.below(40) {
            0 => b"\xff\xfe not UTF-8".to_vec(),
            1 => b"back\\slash".to_vec(),
            2 => "\u{fc}mlaut \u{1f99c}".as_bytes().to_vec(),
            3 => vec![b'l'; 255],
            4 => b"line\nbreak".to_vec(),
            5 => b"@v:0".to_vec(),
            6 => b"-rf".to_vec(),
            _ => format!("name-{number}").into_bytes(),
        }
    }

    fn create(&mut self, places: &[Place]) -> Op {
        let (dir, name, new) = (self.dir(places), self.name(), self.ids.fresh());
        let mode = Some([0o644, 0o600, 0o664, 0o755, 0o640][self.random.index(5)]);
        let size = self.random.chance(20).then(|| self.size());
        let how = match self.random.below(3) {
            0 => How::Unchecked(Set { mode, size, ..Set::default() }),
            1 => How::Guarded(Set { mode, ..Set::default() }),
            _ => How::Exclusive(self.random.bits().to_be_bytes()),
        };
        Op::Create { dir, name, how, new }
    }

    fn mkdir(&mut self, places: &[Place]) -> Op {
        let mode = [0o755, 0o700, 0o775][self.random.index(3)];
        Op::Mkdir { dir: self.dir(places), name: self.name(), mode, new: self.ids.fresh() }
    }

    fn symlink(&mut self, places: &[Place]) -> Op {
        let length = [1, 20, 255, 1000, 1024][self.random.index(5)];
        let target = (0..length).map(|at| b"../abc"[at % 6]).collect();
        Op::Symlink { dir: self.dir(places), name: self.name(), target, new: self.ids.fresh() }
    }

    fn link(&mut self, places: &[Place]) -> Op {
        match self.some(places, Kind::File) {
            Some(file) => Op::Link { file: file.id, dir: self.dir(places), name: self.name() },
            None => self.create(places),
        }
    }

    fn rename(&mut self, places: &[Place]) -> Op {
        let Some(from) = pick(self.random, places) else { return self.create(places) };
        // Sometimes onto what is there, of whatever kind.
        if self.random.chance(30) {
            let to = &places[self.random.index(places.len())];
            let (to, new_name) = (to.dir, to.name.clone());
            return Op::Rename { from: from.dir, name: from.name.clone(), to, new_name };
        }
        let (to, new_name) = (self.dir(places), self.name());
        Op::Rename { from: from.dir, name: from.name.clone(), to, new_name }
    }

    fn remove(&mut self, places: &[Place]) -> Op {
        match pick(self.random, places) {
            Some(place) if self.random.chance(90) => {
                Op::Remove { dir: place.dir, name: place.name.clone() }
            }
            _ => Op::Remove { dir: self.dir(places), name: self.name() },
        }
    }

    fn rmdir(&mut self, places: &[Place]) -> Op {
        let is_empty = |place: &&Place| match &self.tree.node(place.id).body {
            Body::Directory(entries) => entries.is_empty(),
            _ => false,
        };
        let empty: Vec<&Place> = places.iter().filter(is_empty).collect();
        let place = match empty.len() {
            0 => pick(self.random, places),
            _ => Some(empty[self.random.index(empty.len())]),
        };
        match place {
            Some(place) => Op::Rmdir { dir: place.dir, name: place.name.clone() },
            None => self.mkdir(places),
        }
    }

    fn size(&mut self) -> u64 {
        let edges = if self.random.chance(95) { 5 } else { EDGES.len() };
        let edge = EDGES[self.random.index(edges)];
        (edge + self.random.below(300)).saturating_sub(150)
    }

    fn data(&mut self) -> Arc<Vec<u8>> {
        let longest = [100, 5000, 20_000, 100_000][self.random.index(4)];
        let mut data = vec![0; usize::try_from(self.random.between(1, longest)).expect("short")];
        // Zeros as data, now and then.
        if self.random.chance(95) {
            self.random.fill(&mut data);
        }
        Arc::new(data)
    }

    fn stable(&mut self) -> Stable {
        [Stable::Unstable, Stable::Unstable, Stable::DataSync, Stable::FileSync]
            [self.random.index(4)]
    }

    fn write(&mut self, places: &[Place]) -> Op {
        let Some(place) = self.some(places, Kind::File) else { return self.create(places) };
        let Body::File(bytes) = &self.tree.node(place.id).body else { unreachable!("a file") };
        let offset = match self.random.below(4) {
            0 => bytes.len() as u64,
            1 => self.random.below(bytes.len() as u64 + 1),
            _ => self.size(),
        };
        Op::Write { file: place.id, offset, data: self.data(), stable: self.stable() }
    }

    fn set(&mut self, places: &[Place]) -> Op {
        let Some(place) = pick(self.random, places) else { return self.create(places) };
        let (kind, mut set) = (self.tree.node(place.id).kind(), Set::default());
        if kind == Kind::File && self.random.chance(50) {
            set.size = Some(self.size());
        }
        if self.random.chance(40) && kind != Kind::Symlink {
            let modes =
                if kind == Kind::File { [0o600, 0o444, 0o666] } else { [0o700, 0o777, 0o755] };
            set.mode = Some(modes[self.random.index(3)]);
        }
        let time = |random: &mut Random| {
            let seconds = u32::try_from(random.between(1, 4_000_000_000)).expect("it fits");
            Some((seconds, u32::try_from(random.below(1_000_000_000)).expect("it fits")))
        };
        if self.random.chance(40) {
            set.mtime = time(self.random);
        }
        if self.random.chance(20) {
            set.atime = time(self.random);
        }
        Op::Set { object: place.id, set }
    }

    fn commit(&mut self, places: &[Place]) -> Op {
        match self.some(places, Kind::File) {
            Some(place) => Op::Commit { file: place.id },
            None => self.create(places),
        }
    }

    /// What no client should ask for.
    fn odd(&mut self, places: &[Place]) -> Op {
        let (dir, new) = (self.dir(places), self.ids.fresh());
        match self.random.below(2) {
            0 => Op::Mkdir { dir, name: b".hindsight".to_vec(), mode: 0o755, new },
            _ => Op::Rmdir { dir, name: self.name() },
        }
    }

    /// Files of other names in one directory, which grows by them.
    fn creates(&mut self, places: &[Place]) -> Vec<Op> {
        let (dir, count) = (self.dir(places), self.random.between(2, 12));
        let length = if self.random.chance(50) { 200 } else { 8 };
        let create = |at| {
            let new = self.ids.fresh();
            let name = format!("{at:02}-{new:x}-{}", "n".repeat(length)).into_bytes();
            let how = How::Guarded(Set { mode: Some(0o644), ..Set::default() });
            Op::Create { dir, name, how, new }
        };
        (0..count).map(create).collect()
    }

    /// Writes to places of a file that do not overlap, or to other files.
    fn writes(&mut self, places: &[Place]) -> Vec<Op> {
        let (mut ops, mut ranges) = (Vec::new(), BTreeSet::new());
        for _ in 0..4 {
            let op = self.write(places);
            let Op::Write { file, .. } = &op else { continue };
            if ranges.insert(*file) {
                ops.push(op);
            }
        }
        let Some(Op::Write { file, .. }) = ops.first() else { return vec![self.create(places)] };
        if self.random.chance(50) {
            // One behind the other in one file.
            let (file, stable, mut offset) = (*file, self.stable(), self.size());
            ops = Vec::new();
            for _ in 0..self.random.between(2, 4) {
                let data = self.data();
                offset += data.len() as u64;
                let at = offset - data.len() as u64;
                ops.push(Op::Write { file, offset: at, data, stable });
            }
        }
        ops
    }

    /// Names of files that go.
    fn removes(&mut self, places: &[Place]) -> Vec<Op> {
        let files: Vec<&Place> = places
            .iter()
            .filter(|place| self.tree.node(place.id).kind() != Kind::Directory)
            .collect();
        let mut chosen = BTreeSet::new();
        for _ in 0..self.random.between(2, 12).min(files.len() as u64) {
            let place = files[self.random.index(files.len())];
            chosen.insert((place.dir, place.name.clone()));
        }
        if chosen.is_empty() {
            return vec![self.create(places)];
        }
        chosen.into_iter().map(|(dir, name)| Op::Remove { dir, name }).collect()
    }
}

fn pick<'p>(random: &mut Random, places: &'p [Place]) -> Option<&'p Place> {
    (!places.is_empty()).then(|| &places[random.index(places.len())])
}
