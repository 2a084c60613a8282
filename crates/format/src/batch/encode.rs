//! Making a batch's header in a buffer that is used again and again: no allocation once it is warm.

use units::Seq;

use super::header::{
    BATCH_ALIGNMENT, BATCH_HEADER_BYTES_MAX, BLOCK_BYTES, BLOCKS_MAX, BatchHeader, BatchKind,
    CRC_BYTES, DescriptorKind, MAGIC, SALT, layout,
};
use crate::checksum::put_crc;
use crate::error::Place;
use crate::field::put;
use crate::location::SEGMENT_BYTES_MAX;

/// The sizes of a finished batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchBytes {
    /// Of the header with its descriptors, a multiple of 64: where the data begins.
    pub header_bytes: u32,
    /// Of the data.
    pub payload_bytes: u32,
}

impl BatchBytes {
    /// Of the whole batch, a multiple of 64.
    pub fn total(self) -> u32 {
        self.header_bytes + self.payload_bytes
    }
}

/// The bytes of a header with that many descriptors, which describe that many blocks of data.
pub fn header_bytes(kind: BatchKind, descriptors: usize, data_blocks: usize) -> u32 {
    let descriptor_bytes = descriptors * kind.descriptor_bytes() + data_blocks * CRC_BYTES;
    let bytes = (layout::BYTES + descriptor_bytes).next_multiple_of(BATCH_ALIGNMENT as usize);
    u32::try_from(bytes).expect("a header with all its descriptors is below 4 GiB")
}

/// Appends a batch's header to a buffer, descriptor by descriptor.
pub struct BatchEncoder<'a> {
    buffer: &'a mut Vec<u8>,
    start: usize,
    op_count: u32,
    data_blocks: u64,
    /// The kind that the pushed descriptors have; none as long as there is none.
    kind: Option<BatchKind>,
}

impl<'a> BatchEncoder<'a> {
    /// Begins a header at the buffer's end.
    pub fn new(buffer: &'a mut Vec<u8>) -> BatchEncoder<'a> {
        let start = buffer.len();
        buffer.resize(start + layout::BYTES, 0);
        BatchEncoder { buffer, start, op_count: 0, data_blocks: 0, kind: None }
    }

    /// A write of as many blocks from `block` on as there are checksums.
    #[inline]
    pub fn push_data(&mut self, block: u64, crcs: &[u32]) {
        let blocks = u32::try_from(crcs.len()).expect("blocks of one batch");
        self.push(BatchKind::Writes, block, blocks, DescriptorKind::Data);
        self.push_crcs(crcs);
    }

    /// Zeros from `block` on.
    #[inline]
    pub fn push_zero(&mut self, block: u64, blocks: u32) {
        self.push(BatchKind::Writes, block, blocks, DescriptorKind::Zero);
    }

    /// A block that was written as `seq`, moved here.
    pub fn push_relocated(&mut self, block: u64, seq: Seq, crc: u32) {
        self.push(BatchKind::Relocated, block, 1, DescriptorKind::Data);
        self.push_origin(seq, 0);
        self.push_crcs(&[crc]);
    }

    /// Zeros that were written as `seq`, moved here.
    pub fn push_relocated_zero(&mut self, block: u64, blocks: u32, seq: Seq) {
        self.push(BatchKind::Relocated, block, blocks, DescriptorKind::Zero);
        self.push_origin(seq, 0);
    }

    /// A name of the block of a shared batch: it was written as `seq` of a timeline.
    pub fn push_shared(&mut self, block: u64, seq: Seq, timeline: u64, crc: u32) {
        self.push(BatchKind::Shared, block, 1, DescriptorKind::Data);
        self.push_origin(seq, timeline);
        self.push_crcs(&[crc]);
    }

    /// Completes the header: padding, sizes, checksum. Asserts that all is in its range and that
    /// the descriptors are of the header's kind.
    pub fn finish(self, header: &BatchHeader) -> BatchBytes {
        assert!(self.kind.is_none_or(|kind| kind == header.kind), "descriptors of another kind");
        let unpadded = self.buffer.len() - self.start;
        let padded = unpadded.next_multiple_of(BATCH_ALIGNMENT as usize);
        self.buffer.resize(self.start + padded, 0);
        assert!(padded <= BATCH_HEADER_BYTES_MAX as usize, "a header of {padded} bytes");
        let payload_bytes = header.kind.payload_blocks(self.data_blocks) * BLOCK_BYTES as u64;
        assert!(payload_bytes <= u64::from(SEGMENT_BYTES_MAX), "{payload_bytes} bytes of data");
        let place = Place { structure: "batch", address: u64::from(header.offset) };
        header
            .verify(place, padded as u64 + payload_bytes, self.op_count)
            .expect("a batch that we write is in range");
        let bytes = BatchBytes {
            header_bytes: u32::try_from(padded).expect("checked above"),
            payload_bytes: u32::try_from(payload_bytes).expect("checked above"),
        };
        put_header(&mut self.buffer[self.start..], header, bytes, self.op_count);
        bytes
    }

    #[inline]
    fn push(&mut self, batch: BatchKind, block: u64, blocks: u32, kind: DescriptorKind) {
        assert!(*self.kind.get_or_insert(batch) == batch, "one kind of descriptors in a batch");
        let within = blocks > 0 && block < BLOCKS_MAX && u64::from(blocks) <= BLOCKS_MAX - block;
        assert!(within, "{blocks} blocks at {block}");
        let mut descriptor = [0; layout::DESCRIPTOR_BYTES];
        put(&mut descriptor, layout::BLOCK, block);
        put(&mut descriptor, layout::BLOCKS, u64::from(blocks));
        put(&mut descriptor, layout::DESCRIPTOR_KIND, kind as u64);
        self.buffer.extend_from_slice(&descriptor);
        self.op_count += 1;
        if kind == DescriptorKind::Data {
            self.data_blocks += u64::from(blocks);
        }
    }

    /// What follows in descriptors of relocated blocks (with 0) and of shared ones.
    fn push_origin(&mut self, seq: Seq, timeline: u64) {
        assert!(Seq::ZERO < seq && seq <= Seq::MAX, "seq {seq}");
        self.buffer.extend_from_slice(&seq.0.to_le_bytes());
        self.buffer.extend_from_slice(&timeline.to_le_bytes());
    }

    #[inline]
    fn push_crcs(&mut self, crcs: &[u32]) {
        for crc in crcs {
            self.buffer.extend_from_slice(&crc.to_le_bytes());
        }
    }
}

fn put_header(b: &mut [u8], header: &BatchHeader, bytes: BatchBytes, op_count: u32) {
    put(b, layout::MAGIC, MAGIC);
    put(b, layout::HEADER_BYTES, u64::from(bytes.header_bytes));
    put(b, layout::PAYLOAD_BYTES, u64::from(bytes.payload_bytes));
    put(b, layout::OP_COUNT, u64::from(op_count));
    put(b, layout::KIND, header.kind as u64);
    header.put_fields(b);
    put_crc(SALT, b, layout::CRC);
}
