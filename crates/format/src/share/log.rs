//! The operation log: blocks in a ring, each with the state of the share after its last operation
//! and the records of operations. The last one is written again until it is full.

use units::{Inode, WallTime};

use crate::error::{Place, Result};
use crate::field::{Field, codec, get, put, verify_zero_bytes};
use crate::share::operation::Operation;
use crate::share::place::{
    BLOCK_BYTES, DATA_FIRST, LEVELS, LOG_BLOCKS, LOG_FIRST, STACKS, ShareAddress, VOLUME_BLOCKS,
    slab_blocks,
};
use crate::share::stack::STACK_HEIGHT_MAX;

/// Where the fields are.
pub mod layout {
    use crate::field::{Field, fields, tile};

    /// A block of the log but for its records.
    pub const BYTES: usize = 512;
    fields! {
        /// In order.
        FIELDS[BYTES]:
        BEGIN = "begin", 0, 16;
        NUMBER = "number", 16, 8;
        OPERATION = "operation", 24, 8;
        TIME = "time", 32, 8;
        USED = "used", 40, 8;
        INODES = "inodes", 48, 8;
        RECORDS_BYTES = "records_bytes", 56, 2;
        ZERO = "zero", 58, 6;
        STACKS = "stacks", 64, 288;
        INCARNATION = "incarnation", 352, 8;
        LOG_FIRST = "log_first", 360, 8;
        QUOTA_BLOCKS = "quota_blocks", 368, 8;
        QUOTA_INODES = "quota_inodes", 376, 8;
        REPAIR = "repair", 384, 8;
        REST = "zero", 392, 120;
    }

    /// A stack in `stacks`.
    pub const STACK_BYTES: usize = 16;
    fields! {
        /// In order.
        STACK_FIELDS[STACK_BYTES]:
        HEIGHT = "height", 0, 8;
        NEXT = "next", 8, 8;
    }
}

const MAGIC: &[u8; 4] = b"HSOP";
/// Bytes of records in a block.
pub const RECORDS_BYTES_MAX: usize = BLOCK_BYTES - layout::BYTES;
/// Levels by which the slab that a run of free slabs is made of is above them: 1,024 slabs.
pub const RUN_LEVELS: usize = 5;

/// The latest time that a clock is believed.
pub const CLOCK_MAX: WallTime = WallTime::from_nanos(1 << 63);
/// The latest time of a change: each operation is one nanosecond later at least.
pub const TIME_MAX: WallTime = WallTime::from_nanos((1 << 63) + (1 << 62));

/// Free numbers of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeNumbers {
    /// How many stand on the stack.
    pub height: u64,
    /// The next that never was given out: an inode, or a slab in the run of its level; a run is
    /// used up where the next one would begin.
    pub next: u64,
}

/// What changes with every operation: counters, and which numbers are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// A random number of the opening that the last operation was done in.
    pub incarnation: u64,
    /// The first block of the log that is kept.
    pub log_first: u64,
    /// The number of the last operation.
    pub operation: u64,
    /// The last time that was given to a change.
    pub time: WallTime,
    /// Blocks of data that objects hold.
    pub used: u64,
    /// Objects.
    pub inodes: u64,
    /// Of inodes, then of the slabs of each level.
    pub free: [FreeNumbers; STACKS],
}

codec! {
    State:
    incarnation = INCARNATION, log_first = LOG_FIRST, operation = OPERATION, time = TIME,
    used = USED, inodes = INODES; free: [FreeNumbers; STACKS]
}

impl State {
    /// That of a share in which there never was anything.
    pub fn empty(time: WallTime) -> State {
        let mut free = [FreeNumbers::default(); STACKS];
        free[0].next = Inode::ROOT.0;
        free[LEVELS].next = DATA_FIRST;
        State { incarnation: 0, log_first: 0, operation: 0, time, used: 0, inodes: 0, free }
    }

    /// Whether the run of a level is used up.
    pub fn is_run_over(&self, level: usize) -> bool {
        let next = self.free[1 + level].next;
        if level + 1 == LEVELS { next == VOLUME_BLOCKS } else { next == run_end(level, next) }
    }

    fn verify(&self, place: Place) -> Result<()> {
        place.require_countable("operation", self.operation)?;
        place.require(self.used <= VOLUME_BLOCKS, "a used that fits", self.used)?;
        place.require(self.time <= TIME_MAX, "a time at most 2^63 + 2^62", self.time.as_nanos())?;
        let inodes = self.free[0];
        let is_inode = (Inode::ROOT.0..=Inode::END.0).contains(&inodes.next);
        place.require(is_inode && inodes.height < inodes.next, "free inodes", inodes.next)?;
        let are_there = self.inodes < inodes.next - inodes.height;
        place.require(are_there, "no more inodes than were given out", self.inodes)?;
        for (level, free) in self.free[1..].iter().enumerate() {
            let is_place = (DATA_FIRST..=VOLUME_BLOCKS).contains(&free.next)
                && free.next.is_multiple_of(slab_blocks(level))
                || level + 1 < LEVELS && free.next == 0;
            place.require(is_place, "a slab", free.next)?;
            place.require(free.height < STACK_HEIGHT_MAX, "a height", free.height)?;
        }
        Ok(())
    }
}

/// Where the run that has `next` in it ends, or `next` if a run would begin there.
pub fn run_end(level: usize, next: u64) -> u64 {
    next.next_multiple_of(slab_blocks((level + RUN_LEVELS).min(LEVELS - 1)))
}

/// A block of the operation log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBlock {
    /// Its number.
    pub number: u64,
    /// The state after the last operation in it.
    pub state: State,
    /// Records, packed.
    records: Vec<u8>,
}

/// Where the block with that number is.
pub fn log_block(number: u64) -> u64 {
    LOG_FIRST + number % LOG_BLOCKS
}

impl LogBlock {
    /// A block without records.
    pub fn new(number: u64, state: State) -> LogBlock {
        LogBlock { number, state, records: Vec::new() }
    }

    /// Adds a record; whether there was room.
    #[must_use]
    pub fn push(&mut self, operation: &Operation<'_>) -> bool {
        if self.records.len() + operation.encoded_bytes() > RECORDS_BYTES_MAX {
            return false;
        }
        operation.encode(&mut self.records);
        true
    }

    /// Its records.
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        let mut rest = &self.records[..];
        std::iter::from_fn(move || {
            let place = Place { structure: "operation", address: 0 };
            let next = (!rest.is_empty()).then(|| Operation::decode(place, rest))?;
            let (operation, length) = next.expect("records were verified, or are ours");
            rest = &rest[length..];
            Some(operation)
        })
    }

    /// Its block.
    pub fn encode(&self, address: ShareAddress) -> Box<[u8; BLOCK_BYTES]> {
        assert!(address.block == log_block(self.number));
        let mut bytes = address.begin(MAGIC);
        let b = &mut bytes[..];
        put(b, layout::NUMBER, self.number);
        self.state.put_fields(b);
        put(b, layout::RECORDS_BYTES, self.records.len() as u64);
        for (index, free) in self.state.free.iter().enumerate() {
            let slot = stack_slot(index);
            put(&mut b[slot.offset..], layout::HEIGHT, free.height);
            put(&mut b[slot.offset..], layout::NEXT, free.next);
        }
        b[layout::BYTES..][..self.records.len()].copy_from_slice(&self.records);
        bytes
    }

    /// Decodes a block of the log.
    ///
    /// # Errors
    /// `NotThis` or `Invalid`.
    pub fn decode(bytes: &[u8; BLOCK_BYTES], address: ShareAddress) -> Result<LogBlock> {
        let place = address.place("operation log");
        address.verify(place, MAGIC, bytes)?;
        let b = &bytes[..];
        let number = get(b, layout::NUMBER);
        place.require_countable("block of the log", number)?;
        place.require(log_block(number) == address.block, "a number that is here", number)?;
        let free = std::array::from_fn(|index| {
            let slot = &b[stack_slot(index).offset..];
            FreeNumbers { height: get(slot, layout::HEIGHT), next: get(slot, layout::NEXT) }
        });
        let state = State::get_fields(b, free);
        state.verify(place)?;
        place.require(state.log_first <= number, "a log_first before it", state.log_first)?;
        address.verify_spare(
            place,
            &b[layout::ZERO.offset..layout::STACKS.offset],
            layout::ZERO.offset,
        )?;
        let spare = layout::QUOTA_BLOCKS.offset..layout::REST.end();
        address.verify_spare(place, &b[spare.clone()], spare.start)?;
        let length = get(b, layout::RECORDS_BYTES) as usize;
        place.require(length <= RECORDS_BYTES_MAX, "records_bytes that fit", length)?;
        let (records, rest) = b[layout::BYTES..].split_at(length);
        verify_zero_bytes(place, rest, layout::BYTES + length)?;
        let mut rest = records;
        let mut last = 0;
        while !rest.is_empty() {
            let (operation, length) = Operation::decode(place, rest)?;
            place.require(operation.number > last, "numbers that rise", operation.number)?;
            last = operation.number;
            rest = &rest[length..];
        }
        place.require(last <= state.operation, "no operation after the last", last)?;
        Ok(LogBlock { number, state, records: records.to_vec() })
    }
}

fn stack_slot(index: usize) -> Field {
    let offset = layout::STACKS.offset + index * layout::STACK_BYTES;
    Field::new("stack", offset, layout::STACK_BYTES)
}
