//! The integrity layer's structures: a header, and before each group of blocks a page of their
//! checksums. `docs/format/integrity.md`.
//!
//! 1. A page of checksums is eight structures of a sector each: a page that was torn is eight sound
//!    sectors, each of before or after.
//! 2. A sector's checksum is salted by the device that it belongs to as well: one of another device
//!    is damage.
//! 3. A sector of zeros was never written: none of its blocks was. All else that does not decode is
//!    damage.

use std::fmt::Write as _;

use crate::FORMAT_VERSION;
use crate::checksum::{structure_crc, verify_crc};
use crate::error::{Place, Result};
use crate::field::{get, get_u32, get_u128, put, put_u128, verify_zero};

/// Where the fields of the header and of a checksum sector are.
pub mod layout {
    use crate::field::{Field, tile};

    /// Of both structures.
    pub const BYTES: usize = 512;
    pub(crate) const MAGIC: Field = Field::new("magic", 0, 8);
    pub(crate) const CRC: Field = Field::new("crc", 8, 4);
    pub(crate) const FORMAT_VERSION: Field = Field::new("format_version", 12, 4);
    pub(crate) const ID: Field = Field::new("id", 16, 16);
    pub(crate) const BLOCKS: Field = Field::new("blocks", 32, 8);
    pub(crate) const ADDRESS: Field = Field::new("address", 40, 8);
    pub(crate) const FEATURES: Field = Field::new("features", 48, 8);
    pub(crate) const ZERO: Field = Field::new("zero", 56, 456);
    /// Of the header, in order.
    pub const FIELDS: &[Field] = &[MAGIC, CRC, FORMAT_VERSION, ID, BLOCKS, ADDRESS, FEATURES, ZERO];
    const _: () = assert!(tile(FIELDS, BYTES));

    pub(crate) const SECTOR_MAGIC: Field = Field::new("magic", 0, 4);
    pub(crate) const SECTOR_CRC: Field = Field::new("crc", 4, 4);
    pub(crate) const GENERATION: Field = Field::new("generation", 8, 4);
    pub(crate) const SECTOR: Field = Field::new("sector", 12, 4);
    pub(crate) const WRITTEN: Field = Field::new("written", 16, 15);
    pub(crate) const STATE: Field = Field::new("state", 31, 1);
    pub(crate) const CHECKSUMS: Field = Field::new("checksums", 32, 480);
    /// Of a checksum sector, in order.
    pub const SECTOR_FIELDS: &[Field] =
        &[SECTOR_MAGIC, SECTOR_CRC, GENERATION, SECTOR, WRITTEN, STATE, CHECKSUMS];
    const _: () = assert!(tile(SECTOR_FIELDS, BYTES));
}

/// Bytes of a block, which has one checksum.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of the header and of a checksum sector.
pub const SECTOR_BYTES: usize = layout::BYTES;
/// Checksums in a sector.
pub const SECTOR_BLOCKS: usize = layout::CHECKSUMS.bytes / 4;
/// Sectors in a page of checksums.
pub const PAGE_SECTORS: usize = 8;
/// Blocks of a group: those of a page.
pub const GROUP_BLOCKS: usize = SECTOR_BLOCKS * PAGE_SECTORS;
/// Where the two copies of the header are.
pub const COPY_OFFSETS: [u64; 2] = [0, 64 << 10];
/// Where the first group begins.
pub const GROUPS_OFFSET: u64 = 128 << 10;
/// The magic of the header: `HINDINTG`, as bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HINDINTG");
/// The magic of a checksum sector: `HCKS`, as bytes.
pub const SECTOR_MAGIC: u32 = u32::from_le_bytes(*b"HCKS");
/// Sectors may be exempt.
const FEATURE_EXEMPT: u64 = 1;
const SALT: u32 = u32::from_le_bytes(*b"intg");
const SECTOR_SALT: u32 = u32::from_le_bytes(*b"cksm");
/// Blocks that there can be: a sector's number has 32 bits.
pub const BLOCKS_MAX: u64 = (1 << 32) * SECTOR_BLOCKS as u64;

const _: () = assert!(PAGE_SECTORS * SECTOR_BYTES == crate::PAGE_BYTES);
const _: () = assert!(layout::WRITTEN.bytes * 8 == SECTOR_BLOCKS);

/// The identity of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegrityHeader {
    /// Its random identity; the lower 32 bits are in the salt of every checksum sector.
    pub id: u128,
    /// Blocks of data.
    pub blocks: u64,
    /// Whether sectors may be of [`SectorState::Exempt`].
    pub has_exempt: bool,
}

impl IntegrityHeader {
    /// The bytes of one of the two copies. Asserts that every field is in its range.
    #[must_use]
    pub fn encode(&self, copy: usize) -> [u8; SECTOR_BYTES] {
        let place = header_place(copy);
        self.verify(place).expect("an integrity header that we write is in range");
        let mut b = [0; SECTOR_BYTES];
        put(&mut b, layout::MAGIC, MAGIC);
        put(&mut b, layout::FORMAT_VERSION, u64::from(FORMAT_VERSION));
        put_u128(&mut b, layout::ID, self.id);
        put(&mut b, layout::BLOCKS, self.blocks);
        put(&mut b, layout::ADDRESS, COPY_OFFSETS[copy]);
        put(&mut b, layout::FEATURES, u64::from(self.has_exempt) * FEATURE_EXEMPT);
        let crc = structure_crc(SALT, &b, layout::CRC);
        put(&mut b, layout::CRC, u64::from(crc));
        b
    }

    /// Decodes copy number `copy` from its 512 bytes (`bytes` may be longer).
    ///
    /// # Errors
    /// `NotThis`, `Checksum`, `Version` (in this order of checking), or `Invalid`.
    pub fn decode(bytes: &[u8], copy: usize) -> Result<IntegrityHeader> {
        let place = header_place(copy);
        let b = place.require_bytes(bytes, layout::BYTES)?;
        place.require_magic(get(b, layout::MAGIC), MAGIC)?;
        verify_crc(place, SALT, b, layout::CRC)?;
        place.require_version(get_u32(b, layout::FORMAT_VERSION))?;
        let address = get(b, layout::ADDRESS);
        place.require(address == place.address, "its own address", address)?;
        verify_zero(place, b, layout::ZERO)?;
        let features = get(b, layout::FEATURES);
        place.require(features & !FEATURE_EXEMPT == 0, "features that are known", features)?;
        let (id, blocks) = (get_u128(b, layout::ID), get(b, layout::BLOCKS));
        let header = IntegrityHeader { id, blocks, has_exempt: features == FEATURE_EXEMPT };
        header.verify(place)?;
        Ok(header)
    }

    /// The salt of the checksums of this device's sectors.
    #[must_use]
    pub fn tag(&self) -> u32 {
        u32::try_from(self.id & u128::from(u32::MAX)).expect("32 bits")
    }

    /// The header as text, one field a line.
    #[must_use]
    pub fn explain(&self) -> String {
        let (id, blocks, has_exempt) = (self.id, self.blocks, self.has_exempt);
        let id = format!("  id        {id:032x}\n");
        format!("integrity header\n{id}  blocks    {blocks}\n  exempt    {has_exempt}\n")
    }

    fn verify(&self, place: Place) -> Result<()> {
        let holds = (1..=BLOCKS_MAX).contains(&self.blocks);
        place.require(holds, "1 to 120 * 2^32 blocks", self.blocks)
    }
}

fn header_place(copy: usize) -> Place {
    Place { structure: "integrity header", address: COPY_OFFSETS[copy] }
}

/// The state of the blocks of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorState {
    /// Each is what its checksum says.
    Clean,
    /// Some may have been in flight.
    Open,
    /// They have no checksums here: their owner has his own.
    Exempt,
}

/// States by their numbers.
const STATES: [SectorState; 3] = [SectorState::Clean, SectorState::Open, SectorState::Exempt];

/// The checksums of the blocks of a sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChecksumSector {
    /// The lower 32 bits of the identity of the device.
    pub tag: u32,
    /// Rises by one with every write of the page, and begins again at 0. A sector that says what it
    /// said before may keep its own.
    pub generation: u32,
    /// Its number on the device: group * 8 + place in its page.
    pub sector: u32,
    /// The state of its blocks.
    pub state: SectorState,
    /// Bit i: block i was written, and has a checksum.
    pub written: u128,
    /// The plain CRC32C of each block; 0 where none was written.
    pub checksums: [u32; SECTOR_BLOCKS],
}

impl ChecksumSector {
    /// The sector's bytes. Asserts that every field is in its range.
    #[must_use]
    pub fn encode(&self) -> [u8; SECTOR_BYTES] {
        self.verify(self.place()).expect("a checksum sector that we write is in range");
        let mut b = [0; SECTOR_BYTES];
        put(&mut b, layout::SECTOR_MAGIC, u64::from(SECTOR_MAGIC));
        put(&mut b, layout::GENERATION, u64::from(self.generation));
        put(&mut b, layout::SECTOR, u64::from(self.sector));
        let written = &self.written.to_le_bytes()[..layout::WRITTEN.bytes];
        b[layout::WRITTEN.offset..layout::WRITTEN.end()].copy_from_slice(written);
        put(&mut b, layout::STATE, self.state as u64);
        let places = b[layout::CHECKSUMS.offset..].chunks_exact_mut(4);
        for (bytes, checksum) in places.zip(&self.checksums) {
            bytes.copy_from_slice(&checksum.to_le_bytes());
        }
        let crc = structure_crc(SECTOR_SALT ^ self.tag, &b, layout::SECTOR_CRC);
        put(&mut b, layout::SECTOR_CRC, u64::from(crc));
        b
    }

    /// Decodes sector number `sector` of the device with that tag from its 512 bytes (`bytes` may
    /// be longer); `None` if it was never written.
    ///
    /// # Errors
    /// `NotThis`, `Checksum` (in this order of checking), or `Invalid`.
    pub fn decode(bytes: &[u8], tag: u32, sector: u32) -> Result<Option<ChecksumSector>> {
        let place = Place { structure: "checksum sector", address: u64::from(sector) };
        let b = place.require_bytes(bytes, layout::BYTES)?;
        if b.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        place.require_magic(get(b, layout::SECTOR_MAGIC), u64::from(SECTOR_MAGIC))?;
        verify_crc(place, SECTOR_SALT ^ tag, b, layout::SECTOR_CRC)?;
        let found = get_u32(b, layout::SECTOR);
        place.require(found == sector, "its own number", found)?;
        let generation = get_u32(b, layout::GENERATION);
        let state = get_u32(b, layout::STATE);
        place.require((state as usize) < STATES.len(), "a state of 0 to 2", state)?;
        let state = STATES[state as usize];
        let mut written = [0; 16];
        written[..layout::WRITTEN.bytes]
            .copy_from_slice(&b[layout::WRITTEN.offset..layout::WRITTEN.end()]);
        let mut checksums = [0; SECTOR_BLOCKS];
        let stored = b[layout::CHECKSUMS.offset..].chunks_exact(4);
        for (checksum, bytes) in checksums.iter_mut().zip(stored) {
            *checksum = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let written = u128::from_le_bytes(written);
        let decoded = ChecksumSector { tag, generation, sector, state, written, checksums };
        decoded.verify(place)?;
        Ok(Some(decoded))
    }

    /// Whether this was written after `other`, which is of the same place.
    #[must_use]
    pub fn is_newer(&self, other: &ChecksumSector) -> bool {
        let ahead = self.generation.wrapping_sub(other.generation);
        ahead != 0 && ahead < 1 << 31
    }

    /// The sector as text.
    #[must_use]
    pub fn explain(&self) -> String {
        let state = match self.state {
            SectorState::Clean => "clean",
            SectorState::Open => "open",
            SectorState::Exempt => "exempt",
        };
        let mut text =
            format!("checksum sector {}, generation {}, {state}\n", self.sector, self.generation);
        for (i, checksum) in self.checksums.iter().enumerate() {
            if self.written >> i & 1 == 1 {
                writeln!(text, "  block {i:<5}crc {checksum:#010x}").expect("a String takes all");
            }
        }
        text
    }

    fn place(&self) -> Place {
        Place { structure: "checksum sector", address: u64::from(self.sector) }
    }

    fn verify(&self, place: Place) -> Result<()> {
        place.require(self.written >> SECTOR_BLOCKS == 0, "120 bits", self.written)?;
        let has_own = self.state != SectorState::Exempt || self.written == 0;
        place.require(has_own, "no checksums where they are not kept", self.written)?;
        let mut unwritten = !self.written;
        let has_stray = self.checksums.iter().any(|checksum| {
            let is_stray = unwritten & 1 == 1 && *checksum != 0;
            unwritten >>= 1;
            is_stray
        });
        place.require(!has_stray, "no checksum of what was not written", "one")
    }
}
