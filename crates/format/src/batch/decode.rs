//! Reading a batch's header: verified as a whole first, then walked without further checks.

use units::{Lba, Seq};

use super::header::{
    BATCH_ALIGNMENT, BATCH_HEADER_BYTES_MAX, BLOCK_BYTES, BLOCKS_MAX, BatchHeader, BatchKind,
    CRC_BYTES, DescriptorKind, MAGIC, SALT, layout,
};
use crate::checksum::verify_crc;
use crate::error::{Place, Result};
use crate::field::{get, get_u32, verify_zero, verify_zero_bytes};

/// A verified batch header over the bytes it was decoded from.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Its fixed part.
    pub header: BatchHeader,
    /// Bytes of the header with its descriptors: where the data begins.
    pub header_bytes: u32,
    /// Bytes of the data.
    pub payload_bytes: u32,
    /// Number of operations.
    pub op_count: u32,
    descriptors: &'a [u8],
}

/// One operation of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// Its seq.
    pub seq: Seq,
    /// The timeline that it belongs to.
    pub timeline: u64,
    /// The first block.
    pub block: Lba,
    /// How many blocks, at least 1.
    pub blocks: u32,
    /// Data or zeros.
    pub kind: DescriptorKind,
    /// Bytes from the batch's start to its data (to the next data, if it has none).
    pub payload_offset: u32,
    crcs: &'a [u8],
}

/// The checksums of an operation's blocks.
#[derive(Clone, Debug)]
pub struct Crcs<'a>(std::slice::ChunksExact<'a, u8>);

/// The operations of a batch, in order.
#[derive(Clone, Debug)]
pub struct Descriptors<'a> {
    header: BatchHeader,
    rest: &'a [u8],
    index: u32,
    op_count: u32,
    payload_offset: u32,
}

/// How many bytes a header has, told from its first 96 bytes, which this cannot verify.
///
/// # Errors
/// `NotThis` if there are no 96 bytes or the magic differs, `Invalid` if no header has so many.
pub fn peek_header_bytes(bytes: &[u8]) -> Result<u32> {
    let place = Place { structure: "batch", address: 0 };
    let b = place.require_bytes(bytes, layout::BYTES)?;
    place.require_magic(get(b, layout::MAGIC), MAGIC)?;
    let header_bytes = get_u32(b, layout::HEADER_BYTES);
    let holds = header_bytes.is_multiple_of(BATCH_ALIGNMENT)
        && (layout::BYTES..=BATCH_HEADER_BYTES_MAX as usize).contains(&(header_bytes as usize));
    place.require(holds, "header_bytes a multiple of 64 up to 512 KiB", header_bytes)?;
    Ok(header_bytes)
}

impl<'a> Batch<'a> {
    /// Decodes the batch whose header `bytes` begin with; its data need not be there. The caller
    /// compares segment, offset and nonce with those of the segment it reads.
    ///
    /// # Errors
    /// `NotThis`, `Checksum` or `Invalid`.
    pub fn decode(bytes: &'a [u8]) -> Result<Batch<'a>> {
        let header_bytes = peek_header_bytes(bytes)?;
        let place =
            Place { structure: "batch", address: u64::from(get_u32(bytes, layout::OFFSET)) };
        let b = place.require_bytes(bytes, header_bytes as usize)?;
        verify_crc(place, SALT, b, layout::CRC)?;
        let batch = Batch {
            header: decode_header(place, b)?,
            header_bytes,
            payload_bytes: get_u32(b, layout::PAYLOAD_BYTES),
            op_count: get_u32(b, layout::OP_COUNT),
            descriptors: &b[layout::BYTES..],
        };
        let total = u64::from(header_bytes) + u64::from(batch.payload_bytes);
        batch.header.verify(place, total, batch.op_count)?;
        batch.verify_descriptors(place)?;
        Ok(batch)
    }

    /// Bytes of the whole batch, a multiple of 64: the next one follows.
    pub fn total_bytes(&self) -> u32 {
        self.header_bytes + self.payload_bytes
    }

    /// The operations, in order.
    pub fn descriptors(&self) -> Descriptors<'a> {
        Descriptors {
            header: self.header,
            rest: self.descriptors,
            index: 0,
            op_count: self.op_count,
            payload_offset: self.header_bytes,
        }
    }

    /// Walks the descriptors once with every check, so that walking them later needs none.
    fn verify_descriptors(&self, place: Place) -> Result<()> {
        let mut rest = self.descriptors;
        let mut data_blocks = 0;
        let moved = self.header.kind != BatchKind::Writes;
        let mut shared_crc = None;
        for _ in 0..self.op_count {
            let bytes = self.header.kind.descriptor_bytes();
            place.require(rest.len() >= bytes, "a descriptor in the header", rest.len())?;
            let (descriptor, after) = rest.split_at(bytes);
            verify_zero(place, descriptor, layout::ZERO)?;
            let block = get(descriptor, layout::BLOCK);
            let blocks = u64::from(get_u32(descriptor, layout::BLOCKS));
            let within = blocks > 0 && block < BLOCKS_MAX && blocks <= BLOCKS_MAX - block;
            place.require(within, "blocks of a volume", format_args!("{block} + {blocks}"))?;
            if moved {
                let seq = Seq(get(descriptor, layout::SEQ));
                let seq_holds = Seq::ZERO < seq && seq <= Seq::MAX;
                place.require(seq_holds, "a seq of 1 to 2^48 - 1", seq)?;
            }
            rest = after;
            let kind = decode_descriptor_kind(place, descriptor)?;
            let allowed = self.header.kind != BatchKind::Shared || kind == DescriptorKind::Data;
            place.require(allowed, "names of data in a shared batch", "zeros")?;
            if kind == DescriptorKind::Data {
                place.require(
                    blocks <= (rest.len() / CRC_BYTES) as u64,
                    "a checksum for each block",
                    blocks,
                )?;
                data_blocks += blocks;
                if self.header.kind == BatchKind::Shared {
                    let same = *shared_crc.get_or_insert(&rest[..CRC_BYTES]) == &rest[..CRC_BYTES];
                    place.require(blocks == 1 && same, "names of one block", blocks)?;
                }
                rest = &rest[blocks as usize * CRC_BYTES..];
            }
        }
        let stored = self.header.kind.payload_blocks(data_blocks);
        let payload_holds = u64::from(self.payload_bytes) == stored * BLOCK_BYTES as u64;
        place.require(payload_holds, "payload_bytes of its blocks", self.payload_bytes)?;
        place.require(rest.len() < BATCH_ALIGNMENT as usize, "padding below 64", rest.len())?;
        verify_zero_bytes(place, rest, self.header_bytes as usize - rest.len())
    }
}

fn decode_header(place: Place, b: &[u8]) -> Result<BatchHeader> {
    let number = get(b, layout::KIND);
    let unknown = || place.invalid("kind 0 to 2", format_args!("kind {number}"));
    Ok(BatchHeader::get_fields(b, BatchKind::from_number(number).ok_or_else(unknown)?))
}

fn decode_descriptor_kind(place: Place, descriptor: &[u8]) -> Result<DescriptorKind> {
    let number = get(descriptor, layout::DESCRIPTOR_KIND);
    let unknown = || place.invalid("a descriptor of kind 1 or 2", format_args!("kind {number}"));
    DescriptorKind::from_number(number).ok_or_else(unknown)
}

impl<'a> Iterator for Descriptors<'a> {
    type Item = Descriptor<'a>;

    fn next(&mut self) -> Option<Descriptor<'a>> {
        if self.index == self.op_count {
            return None;
        }
        let (bytes, after) = self.rest.split_at(self.header.kind.descriptor_bytes());
        let h = &self.header;
        let (seq, timeline) = match h.kind {
            BatchKind::Writes => (Seq(h.base_seq.0 + u64::from(self.index)), h.timeline),
            BatchKind::Relocated => (Seq(get(bytes, layout::SEQ)), h.timeline),
            BatchKind::Shared => (Seq(get(bytes, layout::SEQ)), get(bytes, layout::OP_TIMELINE)),
        };
        let blocks = get_u32(bytes, layout::BLOCKS);
        let is_data = get(bytes, layout::DESCRIPTOR_KIND) == 1;
        let data_blocks = if is_data { blocks } else { 0 };
        let (crcs, after) = after.split_at(data_blocks as usize * CRC_BYTES);
        let payload_offset = self.payload_offset;
        self.rest = after;
        self.index += 1;
        if self.header.kind != BatchKind::Shared {
            self.payload_offset += data_blocks * BLOCK_BYTES as u32;
        }
        Some(Descriptor {
            seq,
            timeline,
            block: Lba(get(bytes, layout::BLOCK)),
            blocks,
            kind: if is_data { DescriptorKind::Data } else { DescriptorKind::Zero },
            payload_offset,
            crcs,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.op_count - self.index) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Descriptors<'_> {}

impl<'a> Descriptor<'a> {
    /// The CRC32C of each of its blocks; none for zeros.
    pub fn crcs(&self) -> Crcs<'a> {
        Crcs(self.crcs.chunks_exact(CRC_BYTES))
    }
}

impl Iterator for Crcs<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let bytes = self.0.next()?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Crcs<'_> {}
