//! The members of a stack, and what is asked of them.

use std::io::IoSlice;
use std::sync::Arc;

use hindsight_block::stack::Stack;
use hindsight_block::{
    Array, ArrayError, BlockDevice, Candidate, Identities, Materials, MediaDevice, Standing,
    Together,
};
use sim::{Failure, Op, Random, SimMedia};

use crate::settling::Settling;

pub const MIB: u64 = 1 << 20;
pub const AREA_BYTES: u64 = MIB;
/// Bytes of the journals here: two slots, two areas.
pub const JOURNAL_BYTES: u64 = 4 * (64 << 10);

pub struct Rig {
    pub stack: Stack,
    pub media: Vec<Arc<SimMedia>>,
}

impl Rig {
    /// Members that were used for something else before, and that stop together.
    pub fn new(stack: &str, data_bytes: u64, seed: u64) -> Rig {
        let background = |n: u64| 0xa5_u8.wrapping_mul(n as u8 + 1);
        Rig::filled(stack, data_bytes, seed, background)
    }

    /// Members that are full of something.
    pub fn filled(stack: &str, data_bytes: u64, seed: u64, with: impl Fn(u64) -> u8) -> Rig {
        let stack: Stack = stack.parse().expect("a stack");
        let media: Vec<Arc<SimMedia>> = (0..stack.members().len() as u64)
            .map(|n| {
                let seed = seed * 100 + n;
                Arc::new(SimMedia::filled(AREA_BYTES + data_bytes, seed, with(n)))
            })
            .collect();
        media.iter().skip(1).for_each(|other| other.join(&media[0]));
        let rig = Rig { stack, media };
        let mut id = u128::from(seed) << 64;
        let random = &mut || {
            id += 1;
            id
        };
        let identities = Identities { random, now: units::WallTime::from_nanos(1) };
        Array::create(&rig.stack, rig.candidates(&[]), identities, &Materials::none())
            .expect("labels");
        rig
    }

    fn candidates(&self, without: &[usize]) -> Vec<Candidate> {
        let of = |(number, path): (usize, &str)| {
            let media = Arc::<SimMedia>::clone(&self.media[number]);
            let device = (!without.contains(&number))
                .then(|| Arc::new(MediaDevice::new(media)) as Arc<dyn BlockDevice>);
            Candidate { path: path.to_owned(), device }
        };
        self.stack.members().into_iter().enumerate().map(of).collect()
    }

    pub fn try_open(&self, without: &[usize]) -> Result<Array, ArrayError> {
        Array::open(self.candidates(without), &Materials::none())
    }

    /// An array whose members are asked in some way for what they take their time for.
    pub fn open_asked(&self, together: Arc<dyn Together>) -> Array {
        let materials = Materials { together, ..Materials::none() };
        Array::open(self.candidates(&[]), &materials).expect("all members are there")
    }

    pub fn open_without(&self, without: &[usize]) -> Array {
        let array = self.try_open(without).expect("enough members are there");
        array.settle_as_it_is();
        array
    }

    /// The same, and no parity is computed: whoever would compute it has to look first.
    pub fn open_as_it_is(&self, without: &[usize]) -> Array {
        let array = self.try_open(without).expect("enough members are there");
        array.end_settling(&[]);
        array
    }

    pub fn open(&self) -> Array {
        self.open_without(&[])
    }

    pub fn crash(&self, random: &mut Random) {
        self.media.iter().for_each(|media| media.crash(random));
    }

    /// The process ends; the machine goes on.
    pub fn kill(&self) {
        self.media.iter().for_each(|media| media.kill());
    }
}

pub fn write(device: &dyn BlockDevice, offset: u64, bytes: &[u8]) {
    device.write_at(offset, &[IoSlice::new(bytes)]).expect("a write");
}

pub fn read(device: &dyn BlockDevice, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0; length];
    device.read_at(offset, &mut buffer).expect("a read");
    buffer
}

pub fn copy(device: &dyn BlockDevice, copy: usize, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0; length];
    device.read_copy(copy, offset, &mut buffer).expect("a copy");
    buffer
}

pub fn standings(array: &Array) -> Vec<Standing> {
    array.members().iter().map(|member| member.standing).collect()
}

/// Has a member fail a write, by writing what is there again, and so be out.
pub fn lose(array: &Array, media: &SimMedia, member: usize) {
    media.fail(Failure::for_ever(Op::Write));
    let mut places = (0..array.len_bytes()).step_by(4096);
    while standings(array)[member] != Standing::Out {
        let at = places.next().expect("it is written to somewhere");
        let there = read(array, at, 4096);
        write(array, at, &there);
        array.flush().expect("a flush");
    }
}

pub fn bring_up(array: &Array) {
    while array.step().expect("a step") {}
}

/// Only a blank device may take a place: its area is zeros, the rest anything.
pub fn wipe(media: &SimMedia) {
    let zeros = vec![0; AREA_BYTES as usize];
    env::Media::write_at(media, 0, &[IoSlice::new(&zeros)]).expect("wiped");
    env::Media::sync(media).expect("durable");
}

/// Random bytes.
pub fn noise(random: &mut Random, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    random.fill(&mut bytes);
    bytes
}
