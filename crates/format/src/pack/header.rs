//! The header of a pack, its directory, and a pack that was verified.

use units::Seq;

use crate::checksum::{put_crc, verify_crc};
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
        DIRECTORY_BYTES = "directory_bytes", 52, 4;
        ZERO_TO_END = "zero", 56, 8;
    }

    /// A version in the directory, by columns: all blocks, all seqs, all checksums, all lengths.
    pub const VERSION_BYTES: usize = 24;
    fields! {
        /// In order.
        VERSION_FIELDS[VERSION_BYTES]:
        BLOCK = "block", 0, 8;
        SEQ = "seq", 8, 8;
        BLOCK_CRC = "block_crc", 16, 4;
        CHAIN_BYTES = "chain_bytes", 20, 4;
    }
}

/// The magic: `HPACKVER`, as bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HPACKVER");
const SALT: u32 = u32::from_le_bytes(*b"pack");

/// Bytes of a header.
pub const PACK_HEADER_BYTES: usize = layout::BYTES;
/// The most versions that a pack has, and a chain: how much is decoded for one of them.
pub const PACK_VERSIONS_MAX: usize = 32;
/// Packs begin at multiples of this many bytes.
pub const PACK_ALIGNMENT: u32 = LOCATION_ALIGNMENT;
pub(super) const BLOCK: usize = units::BLOCK_BYTES as usize;
/// The most bytes that a frame of zstd has beyond those that it is of.
const FRAME_BYTES_MAX: usize = 16;
/// The most bytes that are stored: no version compresses, and each is a chain.
pub(super) const STORED_BYTES_MAX: usize =
    PACK_VERSIONS_MAX * (layout::VERSION_BYTES + BLOCK + FRAME_BYTES_MAX) + FRAME_BYTES_MAX;
/// The most bytes that a pack has; what does not compress is not packed.
pub const PACK_BYTES_MAX: usize =
    (PACK_HEADER_BYTES + STORED_BYTES_MAX).next_multiple_of(PACK_ALIGNMENT as usize);

/// How the versions of a pack are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PackEncoding {
    /// Read, no longer written: one frame of the directory and all versions, one after another.
    DeltaInOne = 1,
    /// The same; each version after the first of its block is its XOR with the one before.
    XorInOne = 2,
    /// Chains; the compressor finds what the versions of one share.
    Delta = 3,
    /// Chains; each version after the first of one is its XOR with the one before.
    Xor = 4,
}

numbered!(PackEncoding: DeltaInOne XorInOne Delta Xor);

impl PackEncoding {
    /// Whether versions are differences.
    pub(super) fn is_xor(self) -> bool {
        matches!(self, PackEncoding::XorInOne | PackEncoding::Xor)
    }

    /// Whether the directory and all versions are one frame.
    pub(super) fn is_in_one(self) -> bool {
        matches!(self, PackEncoding::DeltaInOne | PackEncoding::XorInOne)
    }
}

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
    /// Of these, those of the directory; none where it is in one frame with the versions.
    pub(super) directory_bytes: usize,
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
        let unknown = || place.invalid("encoding 1 to 4", format_args!("encoding {number}"));
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
            directory_bytes: get_u32(b, layout::DIRECTORY_BYTES) as usize,
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
        let stored_holds = (1..=STORED_BYTES_MAX).contains(&self.stored_bytes);
        place.require(stored_holds, "stored_bytes of 32 versions at most", self.stored_bytes)?;
        let directory_holds = match self.encoding.is_in_one() {
            true => self.directory_bytes == 0,
            false => (1..self.stored_bytes).contains(&self.directory_bytes),
        };
        place.require(directory_holds, "directory_bytes of stored_bytes", self.directory_bytes)?;
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
        put(&mut b, layout::DIRECTORY_BYTES, self.directory_bytes as u64);
        put_crc(SALT, &mut b, layout::CRC);
        b
    }
}

fn total_bytes(stored_bytes: usize) -> usize {
    (PACK_HEADER_BYTES + stored_bytes).next_multiple_of(PACK_ALIGNMENT as usize)
}
