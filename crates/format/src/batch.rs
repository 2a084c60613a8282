//! Batches: what is appended to a segment at once. `docs/format/batch.md`.
//!
//! 1. A batch is a header with one descriptor per operation, then the data, block by block.
//! 2. It names its segment, its offset there, and the segment's nonce.
//! 3. The sizes in the header are those that its descriptors add up to.
//! 4. All descriptors of a shared batch name its one block of data, with the same checksum.
//! 5. Its header stays below `BATCH_HEADER_BYTES_MAX`, so a reader knows how much to expect.

mod decode;
mod encode;
mod header;

pub use decode::{Batch, Crcs, Descriptor, Descriptors, peek_header_bytes};
pub use encode::{BatchBytes, BatchEncoder, header_bytes};
pub use header::{
    BATCH_ALIGNMENT, BATCH_HEADER_BYTES_MAX, BATCH_HEADER_FIXED_BYTES, BLOCKS_MAX, BatchHeader,
    BatchKind, DescriptorKind, MAGIC, layout,
};
