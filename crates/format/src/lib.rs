//! Every durable byte, of a pool or a trace: encode, decode, verify, explain. No I/O, no allocation
//! beyond what a decoded structure holds.
//!
//! 1. All integers are little-endian and of fixed width; padding is zero and verified.
//! 2. Every structure has a magic and a CRC32C salted by its type; a decoder that returns a value
//!    has verified both, and every range. (The blocks of a share have no CRC of their own: they are
//!    data of a volume, whose map has it.)
//! 3. Bytes from outside never panic a decoder and never make it allocate more than they are long
//!    (or than a pack is when decoded: 132 KB).
//!    A value from our own code that cannot be encoded is our mistake: an assertion.
//! 4. The byte tables are in `docs/format/`; a test compares them with `layout::FIELDS`.
//!
//! The index of what is here:
//! - `FormatError { kind: FormatErrorKind, structure, address, expected, found }`, `Result`.
//! - `checksum`: `block_crc(&[u8]) -> u32`, `ZERO_BLOCK_CRC`, `salted_crc(salt, &[u8])`,
//!   `CrcStream` (`append`, `crc`).
//! - `field`: `Field { name, offset, bytes }` of the layout tables.
//! - `superblock`: `Superblock`, `encode(&self, copy) -> Box<[u8; 4096]>`,
//!   `Superblock::decode(&[u8], copy)`, `COPY_OFFSETS`, `copies_of_generation(g) -> [usize; 2]`,
//!   `CATALOGUE_ZONES_MAX`, `ZONE_BYTES_MIN/MAX`.
//! - `location`: `Location::new(segment, offset_bytes)`, `HOLE`, `segment()`, `offset_bytes()`,
//!   `is_hole()`.
//! - `segment`: `SegmentHeader`, `encode() -> [u8; 512]`, `SegmentHeader::decode(&[u8])`.
//! - `batch`: `BatchEncoder::new(&mut Vec<u8>)` then `push_data(block, &crcs)`,
//!   `push_zero(block, blocks)`, `push_relocated(block, seq, crc)`,
//!   `push_relocated_zero(block, blocks, seq)`, `finish(&BatchHeader) -> BatchBytes`;
//!   `header_bytes(kind, descriptors, data_blocks)`, `peek_header_bytes(&[u8])`,
//!   `Batch::decode(&[u8])`, `batch.descriptors()` of `Descriptor { seq, block, blocks,
//!   kind, payload_offset }` with `crcs()`.
//! - `pack`: `Pack` (`push(PackVersion, &block)`, `iter()`), `PackEncoder::encode(&pack, place,
//!   encoding)`, `PackHeader::decode(&[u8])`, `PackDecoder` (`decode(&header, &bytes)`, and
//!   `open`, which gives a `StoredPack` to `read` one version of), `PACK_VERSIONS_MAX`.
//! - `page`: `PageAddress { pool_tag, run, page }`, the header that all pages below share.
//! - `map`: `Key`, `Entry` (`Entry::data`, `Entry::hole`), `cover(first, blocks)`,
//!   `LeafPage` (`encode(address, &[Entry])`, `decode(Box<[u8; 4096]>, address)`, `len`, `get(i)`,
//!   `seek(key, seq)`), `LEAF_ENTRIES_MAX`.
//! - `run`: `RunFooter` (`encode`, `decode`), `IndexEntry`, `IndexPage`, `INDEX_ENTRIES_MAX`.
//! - `crypt`: `CryptHeader` (`encode(copy)`, `decode(&[u8], copy)`).
//! - `parity`: `Record` (`encode(address)`, `decode(&[u8], address, id)`), `Entry`
//!   (`holds(cells)`), `header_bytes(count)`, `peek_header_bytes(&[u8], address)`.
//! - `share`: the blocks of a share, each with `encode(address)` and `decode(&[u8; 4096], address)`
//!   over `place::ShareAddress`: `root::ShareRoot`, `inode::InodeBlock`, `directory::DirectoryNode`
//!   (and packed `Entries`), `stack::StackBlock`, `log::LogBlock` (`State`; records
//!   `operation::Operation`); `name_hash::first_key`.
//! - `time`: `TimeEntry`, `TimePage` (`encode`, `decode`, `get`), `TIME_ENTRIES_MAX`.
//! - `field`, `checksum` and `Place`, of which other durable formats are made, too (traces).
//!
//! `Superblock` and `Label` have `explain() -> String`, the text that `hindsight pool inspect`
//! prints.

mod error;
mod head;

pub mod batch;
pub mod checksum;
pub mod crypt;
pub mod field;
pub mod label;
pub mod location;
pub mod map;
pub mod pack;
pub mod page;
pub mod parity;
pub mod run;
pub mod segment;
pub mod share;
pub mod superblock;
pub mod time;
pub mod write_buffer;

pub use error::{FormatError, FormatErrorKind, Place, Result};
pub use location::{HOLE, Location};
pub use page::{PAGE_BYTES, PageAddress};

/// The format that this program writes. Numbers only rise.
pub const FORMAT_VERSION: u32 = 1;
