//! The header of a batch, and the kinds of what it describes.

use units::{Seq, WallTime};

use crate::error::{Place, Result};
use crate::field::{codec, numbered};
use crate::location::{LOCATION_ALIGNMENT, SEGMENT_BYTES_MAX, SEGMENT_NUMBER_MAX};
use crate::segment::SEGMENT_HEADER_BYTES;

/// Where the fields of the header and of its descriptors are.
pub mod layout {
    use crate::field::{Field, fields, tile};

    /// The header without its descriptors.
    pub const BYTES: usize = 96;
    fields! {
        /// In order.
        FIELDS[BYTES]:
        MAGIC = "magic", 0, 8;
        CRC = "crc", 8, 4;
        HEADER_BYTES = "header_bytes", 12, 4;
        PAYLOAD_BYTES = "payload_bytes", 16, 4;
        OP_COUNT = "op_count", 20, 4;
        SEGMENT = "segment", 24, 8;
        OFFSET = "offset", 32, 4;
        KIND = "kind", 36, 4;
        NONCE = "nonce", 40, 8;
        TIMELINE = "timeline", 48, 8;
        TIME = "time", 56, 8;
        BASE_SEQ = "base_seq", 64, 8;
        STABLE_SEQ = "stable_seq", 72, 8;
        DURABLE_SEQ = "durable_seq", 80, 8;
        FLUSH_COUNT = "flush_count", 88, 8;
    }

    /// A descriptor of a batch of writes, without its checksums.
    pub const DESCRIPTOR_BYTES: usize = 16;
    fields! {
        /// In order.
        DESCRIPTOR_FIELDS[DESCRIPTOR_BYTES]:
        BLOCK = "block", 0, 8;
        BLOCKS = "blocks", 8, 4;
        DESCRIPTOR_KIND = "kind", 12, 1;
        ZERO = "zero", 13, 3;
    }

    /// A descriptor of a batch of relocated blocks, without its checksums.
    pub const RELOCATED_BYTES: usize = 32;
    pub(crate) const SEQ: Field = Field::new("seq", 16, 8);
    pub(crate) const UNUSED: Field = Field::new("unused", 24, 8);
    /// In order.
    pub const RELOCATED_FIELDS: &[Field] = &[BLOCK, BLOCKS, DESCRIPTOR_KIND, ZERO, SEQ, UNUSED];
    const _: () = assert!(tile(RELOCATED_FIELDS, RELOCATED_BYTES));

    pub(crate) const OP_TIMELINE: Field = Field::new("timeline", 24, 8);
    /// A descriptor of a shared batch, without its checksum; as long as a relocated one.
    pub const SHARED_FIELDS: &[Field] = &[BLOCK, BLOCKS, DESCRIPTOR_KIND, ZERO, SEQ, OP_TIMELINE];
    const _: () = assert!(tile(SHARED_FIELDS, RELOCATED_BYTES));
}

/// The magic: `HBATCHES`, as bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HBATCHES");
pub(super) const SALT: u32 = u32::from_le_bytes(*b"btch");

/// Bytes of the header before its descriptors.
pub const BATCH_HEADER_FIXED_BYTES: usize = layout::BYTES;
/// The most bytes that a header with its descriptors can have.
pub const BATCH_HEADER_BYTES_MAX: u32 = 512 << 10;
/// Batches, and the data in them, begin at multiples of this many bytes.
pub const BATCH_ALIGNMENT: u32 = LOCATION_ALIGNMENT;
/// The first block address that no volume has: 2^40.
pub const BLOCKS_MAX: u64 = 1 << 40;

pub(super) const BLOCK_BYTES: usize = units::BLOCK_BYTES as usize;
pub(super) const CRC_BYTES: usize = 4;

const _: () = assert!(layout::BYTES < BATCH_HEADER_BYTES_MAX as usize);
const _: () = assert!(BATCH_HEADER_BYTES_MAX < SEGMENT_BYTES_MAX);
const _: () = assert!(SEGMENT_HEADER_BYTES.is_multiple_of(BATCH_ALIGNMENT as usize));

/// The kind of a batch's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    /// New writes, in the order of their seqs.
    Writes = 0,
    /// Earlier writes, moved here from segments that were cleaned.
    Relocated = 1,
    /// Earlier writes of one and the same block of data, which is there once.
    Shared = 2,
}

numbered!(BatchKind: Writes Relocated Shared);

/// The effect of an operation on its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorKind {
    /// Data; it is in the batch.
    Data = 1,
    /// Zeros (a trim or a write of zeros); stored nowhere.
    Zero = 2,
}

numbered!(DescriptorKind: Data Zero);

/// A batch's header, without what the encoder adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// The segment's number.
    pub segment: u64,
    /// Bytes from the segment's start to the batch: its own address.
    pub offset: u32,
    /// The kind of its operations.
    pub kind: BatchKind,
    /// The segment's nonce.
    pub nonce: u64,
    /// The timeline that its operations belong to; those of a shared batch say their own.
    pub timeline: u64,
    /// When they were accepted. Never less than in an earlier batch of the log.
    pub time: WallTime,
    /// The seq of the first operation of a batch of writes; the others' follow without a gap.
    pub base_seq: Seq,
    /// Every write up to this seq had ended before: its batch was with the operating system.
    pub stable_seq: Seq,
    /// Every write up to this seq was flushed to the device before.
    pub durable_seq: Seq,
    /// Flushes that the volume's clients have asked for so far.
    pub flush_count: u64,
}

impl BatchKind {
    /// Blocks of data in a batch whose descriptors name so many.
    pub(super) fn payload_blocks(self, named: u64) -> u64 {
        match self {
            BatchKind::Shared => named.min(1),
            BatchKind::Writes | BatchKind::Relocated => named,
        }
    }

    pub(super) fn descriptor_bytes(self) -> usize {
        match self {
            BatchKind::Writes => layout::DESCRIPTOR_BYTES,
            BatchKind::Relocated | BatchKind::Shared => layout::RELOCATED_BYTES,
        }
    }
}

codec! {
    BatchHeader:
    segment = SEGMENT, offset = OFFSET, nonce = NONCE, timeline = TIMELINE, time = TIME,
    base_seq = BASE_SEQ, stable_seq = STABLE_SEQ, durable_seq = DURABLE_SEQ,
    flush_count = FLUSH_COUNT; kind: BatchKind
}

impl BatchHeader {
    pub(super) fn verify(&self, place: Place, bytes: u64, op_count: u32) -> Result<()> {
        let segment_holds = (1..=SEGMENT_NUMBER_MAX).contains(&self.segment);
        place.require(segment_holds, "segment 1 to 2^29 - 1", self.segment)?;
        let offset_holds = self.offset as usize >= SEGMENT_HEADER_BYTES
            && self.offset.is_multiple_of(BATCH_ALIGNMENT);
        place.require(offset_holds, "an offset after the segment's header", self.offset)?;
        let fits = u64::from(self.offset) + bytes <= u64::from(SEGMENT_BYTES_MAX);
        place.require(fits, "a batch within 32 MiB of its segment", bytes)?;
        let seqs_hold = self.stable_seq <= Seq::MAX && self.durable_seq <= Seq::MAX;
        place.require(seqs_hold, "stable_seq and durable_seq below 2^48", self.stable_seq)?;
        let last = self.base_seq.0.checked_add(u64::from(op_count));
        let base_holds = last.is_some_and(|last| last <= Seq::MAX.0 + 1)
            && (self.kind != BatchKind::Writes || op_count == 0 || self.base_seq > Seq::ZERO);
        place.require(base_holds, "base_seq of 1 and seqs below 2^48", self.base_seq)
    }
}
