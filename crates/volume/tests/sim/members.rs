//! Pools on several members, of which one may fail, lie or rot.

use std::sync::Arc;

use block::stack::Stack;
use block::{Array, Candidate, Identities, Materials, MediaDevice};
use env::Media;
use hindsight_volume::{Budget, Error, ErrorKind, Pool, PoolOptions, Result};
use sim::{Op, Random, SimMedia, Trick};
use units::WallTime;

use crate::workload::START_NS;
use crate::world::{Trouble, World};

/// Bytes of a member before the first of the stack.
const LABEL_BYTES: u64 = 1 << 20;

/// The stack of a seed.
pub fn stack_of(seed: u64) -> Stack {
    let stacks = ["mirror(a, b)", "stripe(mirror(a, b), mirror(c, d))", "mirror(a, b, c)"];
    stacks[(seed % 3) as usize].parse().expect("a stack")
}

/// A member of this name is attached some time after the pool was made.
const LATE: &str = "late";

/// Steps of background work beyond the others while it is behind.
const LATE_STEPS: usize = 100;

/// A member that gets another beside it.
pub fn attached() -> Stack {
    format!("mirror(a, {LATE})").parse().expect("a stack")
}

/// The stack of a seed, with parity. Its first member rots, but does not lie: two wrong cells in a
/// row are more than one parity can make good.
pub fn parity_of(seed: u64) -> Stack {
    let stacks = [
        "parity[journal=256KiB](a, b, c)",
        "parity[failures=2,journal=1MiB](a, b, c, d)",
        "parity[chunk=16KiB,journal=64KiB](a, b, c, d)",
        "parity[journal=256KiB](a, b, c)",
    ];
    let text = match (seed % 4, seed / 4 % 5) {
        // So that a zone has more stripes than there are roles in one.
        (3, 1 | 3) => "parity[chunk=4KiB,journal=256KiB](a, b, c)",
        (which, _) => stacks[which as usize],
    };
    text.parse().expect("a stack")
}

/// The members beside the first.
pub fn others(stack: Option<&Stack>, first: &Arc<SimMedia>, seed: u64) -> Vec<Arc<SimMedia>> {
    let count = stack.map_or(1, |stack| stack.members().len());
    let mut random = Random::new(seed ^ 0x0be5);
    let other = |_| {
        let media = SimMedia::filled(first.len_bytes(), random.next_u64(), 0);
        media.join(first);
        Arc::new(media)
    };
    (1..count).map(other).collect()
}

impl World {
    fn candidates(&self) -> Vec<Candidate> {
        let names = self.stack.as_ref().expect("on a stack").members();
        let of = |(path, media): (&str, &Arc<SimMedia>)| Candidate {
            path: path.to_owned(),
            device: match &self.buffered {
                Some(buffered) => buffered.over(media),
                None => Some(Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(media)))),
            },
        };
        names.into_iter().zip(self.all_media()).map(of).collect()
    }

    /// Labels the members, if there are several.
    pub fn label_members(&self) {
        let Some(stack) = &self.stack else { return };
        let mut id = 0;
        let random = &mut || {
            id += 1;
            id
        };
        let identities = Identities { random, now: WallTime::from_nanos(START_NS) };
        let (alone, all) = (Stack::Member("a".to_owned()), self.candidates());
        let (stack, members) = match self.attaches() {
            true => (&alone, all[..1].to_vec()),
            false => (stack, all),
        };
        Array::create(stack, members, identities, &Materials::none())
            .expect("labels on empty media");
    }

    fn attaches(&self) -> bool {
        self.stack.as_ref().is_some_and(|stack| stack.members().contains(&LATE))
    }

    /// Whether one member may fail or lie, if there are several.
    pub fn may_fail(&self) -> bool {
        let is_in = |member: &block::MemberStatus| member.standing == block::Standing::In;
        let is_mirror = |pool: &Pool| pool.members().len() > 1 && pool.members().iter().all(is_in);
        !self.attaches() || self.pool.as_ref().is_some_and(|pool| is_mirror(pool))
    }

    /// The members, put together.
    pub fn array(&self) -> Result<Array> {
        Array::open(self.candidates(), &Materials::none())
            .map_err(|e| Error::new(ErrorKind::Io, e.to_string()))
    }

    /// A pool on the members, as the server opens it.
    pub fn pool_on_members(&self) -> Result<Arc<Pool>> {
        let materials = Materials::none();
        let opening = Array::prepare(self.candidates(), &materials)
            .map_err(|e| Error::new(ErrorKind::Io, e.to_string()))?;
        let options = PoolOptions { memory_bytes: self.memory_bytes };
        let files = Arc::clone(&self.files) as _;
        Pool::open_members(opening, self.machine.clone(), options, files, &mut |_| ())
    }

    /// All media.
    pub fn all_media(&self) -> impl Iterator<Item = &Arc<SimMedia>> {
        std::iter::once(&self.media).chain(&self.others)
    }

    /// Lets the first member rot, lose writes, write elsewhere and read elsewhere.
    pub fn lie(&mut self) {
        let is_plain = self.stack.is_none() || self.buffered.is_some();
        if is_plain || !self.may_fail() || !self.random.chance(120) {
            return;
        }
        // One in eight where the labels are, which are a small part of what is there.
        let end = if self.random.chance(125) { LABEL_BYTES } else { u64::MAX };
        let Some(somewhere) = self.media.somewhere(0..end, &mut self.random) else { return };
        self.lies += 1;
        let has_parity = self.stack.as_ref().is_some_and(Stack::has_parity);
        let which = self.random.below(if has_parity { 3 } else { 6 });
        if self.verbose {
            println!("    lie {which} at {somewhere}");
        }
        match which {
            0..3 => self.media.rot(somewhere, self.random.below(8) as u8),
            3 => self.media.trick(Trick::LoseWrite),
            4 => self.media.trick(Trick::MisdirectWrite(somewhere)),
            _ => self.media.trick(Trick::MisdirectRead(somewhere)),
        }
    }

    /// What an armed fault is to the pool: where there is another copy, nobody may notice.
    pub fn trouble_of(&self, op: Op) -> Trouble {
        let is_redundant =
            |stack: &Stack| stack.has_parity() || stack.to_string().contains("mirror");
        if self.stack.as_ref().is_some_and(is_redundant) {
            Trouble::None
        } else {
            Trouble::Fault(op)
        }
    }

    /// Counts what was healed since the pool was opened.
    pub fn note_healed(&mut self) {
        self.healed += self.pool.as_ref().map_or(0, |pool| pool.status().healed.recovered);
    }

    /// What the server does every some seconds, and where much is marked.
    pub fn tidy_members(&mut self) -> Result<()> {
        if self.stack.is_some() {
            match self.random.below(1000) {
                0..150 => self.pool().tidy_members()?,
                150..300 => self.pool().tidy_members_early()?,
                _ => {}
            }
        }
        if self.attaches() && self.pool().members().len() == 1 && self.random.chance(150) {
            let late = self.candidates().swap_remove(1);
            self.pool().attach_member(late)?;
            self.attached += 1;
        }
        // All that there is has to be copied.
        let mut steps = if self.may_fail() { 0 } else { LATE_STEPS };
        while steps > 0 && self.pool().behind_bytes() > 0 {
            self.pool().step(Budget { bytes: 1 })?;
            steps -= 1;
        }
        Ok(())
    }
}
