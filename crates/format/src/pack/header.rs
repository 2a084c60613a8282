//! The header of a pack, its directory, and a pack that was verified.

use units::Seq;

use crate::checksum::{block_crc, put_crc, verify_crc};
use crate::error::{Place, Result};
use crate::field::{get, get_u32, numbered, put, verify_zero};
use crate::location::{LOCATION_ALIGNMENT, SEGMENT_BYTES_MAX, SEGMENT_NUMBER_MAX};
use crate::segment::SEGMENT_HEADER_BYTES;

/// Where the header's fields are.
pub mod layout {
    use crate::field::{Field, fields, tile};

    /// The header; what is compressed follows.
    pub const BYTES: usize = 64;
    fields! {
        /// In order.
        FIELDS[BYTES]:
        MAGIC = "magic", 0, 8;
        CRC = "crc", 8, 4;
        ENCODING = "encoding", 12, 1;
        ZERO = "zero", 13, 1;
        VERSIONS = "versions", 14, 2;
        SEGMENT = "segment", 16, 8;
        OFFSET = "offset", 24, 4;
        STORED_BYTES = "stored_bytes", 28, 4;
        NONCE = "nonce", 32, 8;
        TIMELINE = "timeline", 40, 8;
        STORED_CRC = "stored_crc", 48, 4;
        ZERO_TO_END = "zero", 52, 12;
    }

    /// A version in the directory, by columns: all blocks, all seqs, all checksums.
    pub const VERSION_BYTES: usize = 20;
    fields! {
        /// In order.
        VERSION_FIELDS[VERSION_BYTES]:
        BLOCK = "block", 0, 8;
        SEQ = "seq", 8, 8;
        BLOCK_CRC = "block_crc", 16, 4;
    }
}

/// The magic: `HPACKVER`, as bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HPACKVER");
const SALT: u32 = u32::from_le_bytes(*b"pack");

/// Bytes of a header.
pub const PACK_HEADER_BYTES: usize = layout::BYTES;
/// The most versions that a pack has: how much is decoded for one of them.
pub const PACK_VERSIONS_MAX: usize = 32;
/// Packs begin at multiples of this many bytes.
pub const PACK_ALIGNMENT: u32 = LOCATION_ALIGNMENT;
pub(super) const BLOCK: usize = units::BLOCK_BYTES as usize;
/// The most bytes that what is stored has before it is compressed.
pub(super) const PLAIN_BYTES_MAX: usize = PACK_VERSIONS_MAX * (layout::VERSION_BYTES + BLOCK);
/// The most bytes that a pack has; what does not compress is not packed.
pub const PACK_BYTES_MAX: usize =
    (PACK_HEADER_BYTES + PLAIN_BYTES_MAX).next_multiple_of(PACK_ALIGNMENT as usize);

/// How versions are laid out before they are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PackEncoding {
    /// One after another; the compressor finds what they share.
    Delta = 1,
    /// Each after the first of its block as its XOR with the one before.
    Xor = 2,
}

numbered!(PackEncoding: Delta Xor);

/// One version in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackVersion {
    /// The block.
    pub block: u64,
    /// The write.
    pub seq: Seq,
    /// The CRC32C of its 4096 bytes.
    pub crc: u32,
}

impl PackVersion {
    pub(super) fn order(&self) -> (u64, std::cmp::Reverse<Seq>) {
        (self.block, std::cmp::Reverse(self.seq))
    }
}

/// Where a pack is and whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackPlace {
    /// The segment's number.
    pub segment: u64,
    /// Bytes from the segment's start to the pack: its own address.
    pub offset: u32,
    /// The segment's nonce.
    pub nonce: u64,
    /// The timeline that its versions belong to.
    pub timeline: u64,
}

/// A verified header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackHeader {
    /// Where and whose.
    pub place: PackPlace,
    /// How the versions are laid out.
    pub encoding: PackEncoding,
    /// How many there are.
    pub versions: usize,
    /// Compressed bytes after the header.
    pub stored_bytes: usize,
    pub(super) stored_crc: u32,
}

impl PackHeader {
    /// Decodes the header that `bytes` begin with. The caller compares the place with where it
    /// looked.
    ///
    /// # Errors
    /// `NotThis`, `Checksum` or `Invalid`.
    pub fn decode(bytes: &[u8]) -> Result<PackHeader> {
        let place = Place { structure: "pack", address: 0 };
        let b = place.require_bytes(bytes, layout::BYTES)?;
        place.require_magic(get(b, layout::MAGIC), MAGIC)?;
        let place = Place { address: u64::from(get_u32(b, layout::OFFSET)), ..place };
        verify_crc(place, SALT, b, layout::CRC)?;
        verify_zero(place, b, layout::ZERO)?;
        verify_zero(place, b, layout::ZERO_TO_END)?;
        let number = get(b, layout::ENCODING);
        let unknown = || place.invalid("encoding 1 or 2", format_args!("encoding {number}"));
        let header = PackHeader {
            place: PackPlace {
                segment: get(b, layout::SEGMENT),
                offset: get_u32(b, layout::OFFSET),
                nonce: get(b, layout::NONCE),
                timeline: get(b, layout::TIMELINE),
            },
            encoding: PackEncoding::from_number(number).ok_or_else(unknown)?,
            versions: get_u32(b, layout::VERSIONS) as usize,
            stored_bytes: get_u32(b, layout::STORED_BYTES) as usize,
            stored_crc: get_u32(b, layout::STORED_CRC),
        };
        header.verify(place)?;
        Ok(header)
    }

    /// Bytes of the whole pack, a multiple of 64: the next one follows.
    pub fn total_bytes(&self) -> usize {
        total_bytes(self.stored_bytes)
    }

    fn verify(&self, place: Place) -> Result<()> {
        let PackPlace { segment, offset, .. } = self.place;
        let segment_holds = (1..=SEGMENT_NUMBER_MAX).contains(&segment);
        place.require(segment_holds, "segment 1 to 2^29 - 1", segment)?;
        let offset_holds =
            offset as usize >= SEGMENT_HEADER_BYTES && offset.is_multiple_of(PACK_ALIGNMENT);
        place.require(offset_holds, "an offset after the segment's header", offset)?;
        let count_holds = (1..=PACK_VERSIONS_MAX).contains(&self.versions);
        place.require(count_holds, "1 to 32 versions", self.versions)?;
        let stored_holds = (1..=PLAIN_BYTES_MAX).contains(&self.stored_bytes);
        place.require(stored_holds, "stored_bytes of 32 versions at most", self.stored_bytes)?;
        let fits = offset as usize + self.total_bytes() <= SEGMENT_BYTES_MAX as usize;
        place.require(fits, "a pack within 32 MiB of its segment", self.stored_bytes)
    }

    /// Its 64 bytes.
    pub(super) fn encode(&self) -> [u8; PACK_HEADER_BYTES] {
        let place = Place { structure: "pack", address: u64::from(self.place.offset) };
        self.verify(place).expect("a pack that we write is in range");
        let mut b = [0; PACK_HEADER_BYTES];
        put(&mut b, layout::MAGIC, MAGIC);
        put(&mut b, layout::ENCODING, self.encoding as u64);
        put(&mut b, layout::VERSIONS, self.versions as u64);
        put(&mut b, layout::SEGMENT, self.place.segment);
        put(&mut b, layout::OFFSET, u64::from(self.place.offset));
        put(&mut b, layout::STORED_BYTES, self.stored_bytes as u64);
        put(&mut b, layout::NONCE, self.place.nonce);
        put(&mut b, layout::TIMELINE, self.place.timeline);
        put(&mut b, layout::STORED_CRC, u64::from(self.stored_crc));
        put_crc(SALT, &mut b, layout::CRC);
        b
    }
}

fn total_bytes(stored_bytes: usize) -> usize {
    (PACK_HEADER_BYTES + stored_bytes).next_multiple_of(PACK_ALIGNMENT as usize)
}

/// The versions of a pack, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pack {
    pub(super) versions: Vec<PackVersion>,
    /// Their blocks, in the same order.
    pub(super) blocks: Vec<u8>,
}

impl Pack {
    /// Adds a version. Asserts that there is room, that it comes after the last in the order of
    /// map entries, and that the block has its checksum.
    pub fn push(&mut self, version: PackVersion, block: &[u8]) {
        assert!(self.versions.len() < PACK_VERSIONS_MAX, "a pack has at most 32 versions");
        let ascends = self.versions.last().is_none_or(|last| last.order() < version.order());
        assert!(ascends, "versions in the order of map entries");
        assert!(block.len() == BLOCK && block_crc(block) == version.crc, "the version's block");
        self.versions.push(version);
        self.blocks.extend_from_slice(block);
    }

    /// Its versions, in order.
    pub fn versions(&self) -> &[PackVersion] {
        &self.versions
    }

    /// The versions with their blocks, in order.
    pub fn iter(&self) -> impl Iterator<Item = (PackVersion, &[u8])> {
        self.versions.iter().copied().zip(self.blocks.chunks_exact(BLOCK))
    }

    /// The bytes of a version.
    pub fn find(&self, block: u64, seq: Seq) -> Option<&[u8]> {
        let order = (block, std::cmp::Reverse(seq));
        let index = self.versions.binary_search_by_key(&order, PackVersion::order).ok()?;
        Some(&self.blocks[index * BLOCK..(index + 1) * BLOCK])
    }

    /// Bytes that it holds in memory.
    pub fn memory_bytes(&self) -> usize {
        self.blocks.len() + self.versions.len() * size_of::<PackVersion>()
    }

    /// The content before compression: the directory by columns, then the blocks as the encoding
    /// has them.
    pub(super) fn plain(&self, encoding: PackEncoding, plain: &mut Vec<u8>) {
        plain.clear();
        self.versions.iter().for_each(|v| plain.extend_from_slice(&v.block.to_le_bytes()));
        self.versions.iter().for_each(|v| plain.extend_from_slice(&v.seq.0.to_le_bytes()));
        self.versions.iter().for_each(|v| plain.extend_from_slice(&v.crc.to_le_bytes()));
        let mut blocks = self.blocks.clone();
        if encoding == PackEncoding::Xor {
            for index in (1..self.versions.len()).rev() {
                if self.versions[index].block == self.versions[index - 1].block {
                    xor_with_previous(&mut blocks, index);
                }
            }
        }
        plain.extend_from_slice(&blocks);
    }
}

pub(super) fn xor_with_previous(blocks: &mut [u8], index: usize) {
    let (before, rest) = blocks.split_at_mut(index * BLOCK);
    let previous = &before[(index - 1) * BLOCK..];
    rest[..BLOCK].iter_mut().zip(previous).for_each(|(byte, previous)| *byte ^= previous);
}

pub(super) fn decode_directory(bytes: &[u8], count: usize) -> Vec<PackVersion> {
    let (blocks, rest) = bytes.split_at(count * layout::BLOCK.bytes);
    let (seqs, crcs) = rest.split_at(count * layout::SEQ.bytes);
    let word = |column: &[u8], index: usize, width: usize| {
        let mut wide = [0; 8];
        wide[..width].copy_from_slice(&column[index * width..(index + 1) * width]);
        u64::from_le_bytes(wide)
    };
    (0..count)
        .map(|i| PackVersion {
            block: word(blocks, i, 8),
            seq: Seq(word(seqs, i, 8)),
            crc: u32::try_from(word(crcs, i, 4)).expect("four bytes"),
        })
        .collect()
}
