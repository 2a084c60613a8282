//! The superblock: what the pool is, and where its catalogue is. `docs/format/superblock.md`.
//!
//! 1. Four copies in zone 0; each holds its own address, so that a misdirected copy is not taken.
//! 2. A generation is written to one pair of copies, the next to the other pair, so that a torn
//!    pair leaves the generation before it.
//! 3. The magic, the checksum and the version stand where they stand in all versions, so that a
//!    sound superblock of another version is told from a damaged one.

use std::fmt::Write as _;

use units::WallTime;

use crate::PAGE_BYTES;
use crate::checksum::put_crc;
use crate::error::{FormatErrorKind, Place, Result};
use crate::field::{codec, get, get_u32, put, verify_zero, verify_zero_bytes};

/// Where the superblock's fields are.
pub mod layout {
    use crate::field::{Field, fields, tile};

    /// The whole structure.
    pub const BYTES: usize = 4096;
    fields! {
        /// In order.
        FIELDS[BYTES]:
        MAGIC = "magic", 0, 8;
        CRC = "crc", 8, 4;
        FORMAT_VERSION = "format_version", 12, 4;
        FEATURES_COMPATIBLE = "features_compatible", 16, 8;
        FEATURES_READ_ONLY = "features_read_only", 24, 8;
        FEATURES_INCOMPATIBLE = "features_incompatible", 32, 8;
        POOL_ID = "pool_id", 40, 16;
        GENERATION = "generation", 56, 8;
        ZONE_BYTES = "zone_bytes", 64, 8;
        DEVICE_BYTES = "device_bytes", 72, 8;
        CREATED = "created", 80, 8;
        SECRET = "secret", 88, 8;
        CATALOGUE_BYTES = "catalogue_bytes", 96, 8;
        ADDRESS = "address", 104, 8;
        CATALOGUE_ZONE_COUNT = "catalogue_zone_count", 112, 4;
        ZERO = "zero", 116, 12;
        CATALOGUE_ZONES = "catalogue_zones", 128, 3968;
    }
}

/// The magic: `HINDSITE`, as bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HINDSITE");
const SALT: u32 = u32::from_le_bytes(*b"supr");

/// Byte offsets in zone 0 of the four copies.
pub const COPY_OFFSETS: [u64; 4] = [0, 65_536, 131_072, 196_608];
/// The most zones a catalogue can have.
pub const CATALOGUE_ZONES_MAX: usize = layout::CATALOGUE_ZONES.bytes / 4;
/// The smallest zone in bytes: it must hold the four copies.
pub const ZONE_BYTES_MIN: u64 = 256 << 10;
/// The largest zone in bytes: what a location's offset reaches.
pub const ZONE_BYTES_MAX: u64 = crate::location::SEGMENT_BYTES_MAX as u64;
/// Incompatible feature: all tables of the catalogue that this program knows are there.
pub const FEATURE_TABLES: u64 = 1 << 8;
/// Incompatible feature: members may have write buffers, and then a mark that says so.
pub const FEATURE_WRITE_BUFFER: u64 = 1 << 9;
/// Incompatible feature: the catalogue has a table of targets.
pub const FEATURE_TARGETS: u64 = 1 << 10;
/// Incompatible feature: packs may be chains.
pub const FEATURE_CHAINS: u64 = 1 << 11;
/// The incompatible features that this program knows. A pool has all of them once it was opened.
pub const FEATURES_INCOMPATIBLE_KNOWN: u64 =
    0xbf | FEATURE_TABLES | FEATURE_WRITE_BUFFER | FEATURE_TARGETS | FEATURE_CHAINS;
/// The features without which a pool may only be read that this program knows: none yet.
pub const FEATURES_READ_ONLY_KNOWN: u64 = 0;

const _: () = assert!(layout::BYTES == PAGE_BYTES);
const _: () = assert!(COPY_OFFSETS[3] + layout::BYTES as u64 <= ZONE_BYTES_MIN);

/// The identity of the pool, and the place of its catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The format of everything on the pool; decoding accepts `FORMAT_VERSION` only.
    pub format_version: u32,
    /// Features that a program may ignore.
    pub features_compatible: u64,
    /// Features that a program must know to write.
    pub features_read_only: u64,
    /// Features that a program must know to read.
    pub features_incompatible: u64,
    /// The pool's random identity.
    pub pool_id: u128,
    /// Rises by one with every write of the superblock.
    pub generation: u64,
    /// Bytes in a zone: a power of two.
    pub zone_bytes: u64,
    /// Bytes of the device that the pool uses.
    pub device_bytes: u64,
    /// When the pool was made.
    pub created: WallTime,
    /// Random; never leaves the pool.
    pub secret: u64,
    /// The catalogue's length in bytes.
    pub catalogue_bytes: u64,
    /// The catalogue's zones, in order.
    pub catalogue_zones: Vec<u32>,
}

/// The two copies that a generation is written to: 0 and 1 if it is even, else 2 and 3.
pub fn copies_of_generation(generation: u64) -> [usize; 2] {
    if generation.is_multiple_of(2) { [0, 1] } else { [2, 3] }
}

codec! {
    Superblock:
    format_version = FORMAT_VERSION, features_compatible = FEATURES_COMPATIBLE,
    features_read_only = FEATURES_READ_ONLY, features_incompatible = FEATURES_INCOMPATIBLE,
    pool_id = POOL_ID, generation = GENERATION, zone_bytes = ZONE_BYTES,
    device_bytes = DEVICE_BYTES, created = CREATED, secret = SECRET,
    catalogue_bytes = CATALOGUE_BYTES; catalogue_zones: Vec<u32>
}

impl Superblock {
    /// The bytes of one of the four copies. Asserts that every field is in its range.
    pub fn encode(&self, copy: usize) -> Box<[u8; PAGE_BYTES]> {
        self.verify(place(copy)).expect("a superblock that we write is in range");
        let mut bytes = Box::new([0; PAGE_BYTES]);
        let b = &mut bytes[..];
        put(b, layout::MAGIC, MAGIC);
        self.put_fields(b);
        put(b, layout::ADDRESS, COPY_OFFSETS[copy]);
        put(b, layout::CATALOGUE_ZONE_COUNT, self.catalogue_zones.len() as u64);
        let zones = b[layout::CATALOGUE_ZONES.offset..].chunks_exact_mut(4);
        for (bytes, zone) in zones.zip(&self.catalogue_zones) {
            bytes.copy_from_slice(&zone.to_le_bytes());
        }
        put_crc(SALT, b, layout::CRC);
        bytes
    }

    /// Decodes copy number `copy` from its 4096 bytes (`bytes` may be longer).
    ///
    /// # Errors
    /// `NotThis`, `Checksum`, `Version` (in this order of checking), or `Invalid`.
    pub fn decode(bytes: &[u8], copy: usize) -> Result<Superblock> {
        let place = place(copy);
        let b = place.head(bytes, layout::BYTES, MAGIC, SALT)?;
        let incompatible = get(b, layout::FEATURES_INCOMPATIBLE);
        if incompatible & !FEATURES_INCOMPATIBLE_KNOWN != 0 {
            let found = format!("features {incompatible:#x}");
            return Err(place.error(FormatErrorKind::Version, "no unknown features", found));
        }
        verify_zero(place, b, layout::ZERO)?;
        place.require_own_address(b, layout::ADDRESS)?;
        let superblock = Superblock::get_fields(b, decode_zones(place, b)?);
        superblock.verify(place)?;
        place.require_countable("generation", superblock.generation)?;
        Ok(superblock)
    }

    /// Whether the pool has features without which it may only be read.
    pub fn is_read_only_here(&self) -> bool {
        self.features_read_only & !FEATURES_READ_ONLY_KNOWN != 0
    }

    /// The superblock as text, one field a line.
    pub fn explain(&self) -> String {
        let mut text = String::from("superblock\n");
        let mut line = |name: &str, value: String| {
            writeln!(text, "  {name:<22}{value}").expect("a String takes all");
        };
        line("format_version", self.format_version.to_string());
        line("features_compatible", format!("{:#x}", self.features_compatible));
        line("features_read_only", format!("{:#x}", self.features_read_only));
        line("features_incompatible", format!("{:#x}", self.features_incompatible));
        line("pool_id", format!("{:032x}", self.pool_id));
        line("generation", self.generation.to_string());
        line("zone_bytes", self.zone_bytes.to_string());
        line("device_bytes", self.device_bytes.to_string());
        line("created", format!("{} ns", self.created.as_nanos()));
        line("secret", "(not shown)".to_owned());
        line("catalogue_bytes", self.catalogue_bytes.to_string());
        line("catalogue_zones", format!("{:?}", self.catalogue_zones));
        text
    }

    fn verify(&self, place: Place) -> Result<()> {
        let zone = self.zone_bytes;
        let zone_holds =
            (ZONE_BYTES_MIN..=ZONE_BYTES_MAX).contains(&zone) && zone.is_power_of_two();
        place.require(zone_holds, "zone_bytes a power of two, 256 KiB to 32 MiB", zone)?;
        let device_zones = self.device_bytes / zone;
        let device_holds = device_zones >= 1 && device_zones <= u64::from(u32::MAX);
        place.require(device_holds, "device_bytes of 1 to 2^32 - 1 zones", self.device_bytes)?;
        let count = self.catalogue_zones.len();
        place.require(count <= CATALOGUE_ZONES_MAX, "at most 992 catalogue zones", count)?;
        let room = count as u64 * zone;
        let bytes = self.catalogue_bytes;
        place.require(bytes <= room, "catalogue_bytes within its zones", bytes)?;
        let mut zones = self.catalogue_zones.clone();
        zones.sort_unstable();
        for (i, zone) in zones.iter().enumerate() {
            let holds = *zone != 0 && u64::from(*zone) < device_zones;
            place.require(holds, "a catalogue zone of the device, not zone 0", zone)?;
            place.require(i == 0 || zones[i - 1] != *zone, "each catalogue zone once", zone)?;
        }
        Ok(())
    }
}

fn place(copy: usize) -> Place {
    Place { structure: "superblock", address: COPY_OFFSETS[copy] }
}

fn decode_zones(place: Place, bytes: &[u8]) -> Result<Vec<u32>> {
    let count = get_u32(bytes, layout::CATALOGUE_ZONE_COUNT) as usize;
    place.require(count <= CATALOGUE_ZONES_MAX, "at most 992 catalogue zones", count)?;
    let end = layout::CATALOGUE_ZONES.offset + count * 4;
    verify_zero_bytes(place, &bytes[end..layout::BYTES], end)?;
    let zones = bytes[layout::CATALOGUE_ZONES.offset..end].chunks_exact(4);
    Ok(zones.map(|zone| u32::from_le_bytes([zone[0], zone[1], zone[2], zone[3]])).collect())
}
