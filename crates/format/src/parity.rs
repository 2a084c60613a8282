//! What the parity layer keeps at the beginning of each of its sides: a journal of two slots, each
//! with a record. `docs/format/parity.md`.
//!
//! 1. A record's checksum covers its header and its list; the list has a checksum of the cells of
//!    each of its entries. So a record of which anything is missing is told from one that is whole.
//! 2. A record holds its own place and the identity of whoever wrote it: one of another place, or
//!    of an earlier use of the device, is damage.

use std::fmt::Write as _;

use crate::FORMAT_VERSION;
use crate::checksum::{block_crc, structure_crc, verify_crc};
use crate::error::{Place, Result};
use crate::field::{get, get_u32, get_u128, put, put_u128, verify_zero, verify_zero_bytes};

/// Where the fields of a record's header and of an entry of its list are.
pub mod layout {
    use crate::field::{Field, tile};

    /// Of the header; the list follows.
    pub const BYTES: usize = 64;
    pub(crate) const MAGIC: Field = Field::new("magic", 0, 8);
    pub(crate) const CRC: Field = Field::new("crc", 8, 4);
    pub(crate) const FORMAT_VERSION: Field = Field::new("format_version", 12, 4);
    pub(crate) const ID: Field = Field::new("id", 16, 16);
    pub(crate) const SEQUENCE: Field = Field::new("sequence", 32, 8);
    pub(crate) const ADDRESS: Field = Field::new("address", 40, 8);
    pub(crate) const COUNT: Field = Field::new("count", 48, 4);
    pub(crate) const ZERO: Field = Field::new("zero", 52, 12);
    /// Of the header, in order.
    pub const FIELDS: &[Field] = &[MAGIC, CRC, FORMAT_VERSION, ID, SEQUENCE, ADDRESS, COUNT, ZERO];
    const _: () = assert!(tile(FIELDS, BYTES));

    /// Of an entry.
    pub const ENTRY_BYTES: usize = 16;
    pub(crate) const OFFSET: Field = Field::new("offset", 0, 8);
    pub(crate) const CELLS_CRC: Field = Field::new("cells_crc", 8, 4);
    pub(crate) const CELLS: Field = Field::new("cells", 12, 2);
    pub(crate) const SIDE: Field = Field::new("side", 14, 2);
    /// Of an entry, in order.
    pub const ENTRY_FIELDS: &[Field] = &[OFFSET, CELLS_CRC, CELLS, SIDE];
    const _: () = assert!(tile(ENTRY_FIELDS, ENTRY_BYTES));
}

/// Bytes of a cell.
pub const CELL_BYTES: usize = 4096;
/// The magic of a record: `HINDPRTY`, as bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HINDPRTY");
const SALT: u32 = u32::from_le_bytes(*b"prty");

/// Cells that belong on a side, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The byte offset on the side where the first belongs.
    pub offset: u64,
    /// The plain CRC32C of all of them.
    pub cells_crc: u32,
    /// How many.
    pub cells: u16,
    /// The side's number.
    pub side: u16,
}

impl Entry {
    /// Bytes of its cells.
    #[must_use]
    pub fn bytes(&self) -> usize {
        usize::from(self.cells) * CELL_BYTES
    }

    /// Whether these are its cells.
    #[must_use]
    pub fn holds(&self, cells: &[u8]) -> bool {
        cells.len() == self.bytes() && block_crc(cells) == self.cells_crc
    }
}

/// A record's header and list; the cells follow in the list's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The identity of the array.
    pub id: u128,
    /// One more than that of the record before.
    pub sequence: u64,
    /// What belongs where.
    pub entries: Vec<Entry>,
}

/// Bytes before the first cell of a record with so many entries.
#[must_use]
pub fn header_bytes(count: usize) -> usize {
    (layout::BYTES + count * layout::ENTRY_BYTES).next_multiple_of(CELL_BYTES)
}

/// Bytes before the first cell of a record that begins with these, by what it says; to be held
/// against the slot's length before so many are read.
///
/// # Errors
/// `NotThis`.
pub fn peek_header_bytes(bytes: &[u8], address: u64) -> Result<usize> {
    let place = Place { structure: "parity record", address };
    let b = place.require_bytes(bytes, layout::BYTES)?;
    place.require_magic(get(b, layout::MAGIC), MAGIC)?;
    Ok(header_bytes(get_u32(b, layout::COUNT) as usize))
}

impl Record {
    /// The header and the list as they lie at the byte offset `address`.
    #[must_use]
    pub fn encode(&self, address: u64) -> Vec<u8> {
        let mut b = vec![0; header_bytes(self.entries.len())];
        put(&mut b, layout::MAGIC, MAGIC);
        put(&mut b, layout::FORMAT_VERSION, u64::from(FORMAT_VERSION));
        put_u128(&mut b, layout::ID, self.id);
        put(&mut b, layout::SEQUENCE, self.sequence);
        put(&mut b, layout::ADDRESS, address);
        put(&mut b, layout::COUNT, self.entries.len() as u64);
        let places = b[layout::BYTES..].chunks_exact_mut(layout::ENTRY_BYTES);
        for (bytes, entry) in places.zip(&self.entries) {
            assert!(entry.cells > 0 && entry.offset.is_multiple_of(CELL_BYTES as u64), "{entry:?}");
            put(bytes, layout::OFFSET, entry.offset);
            put(bytes, layout::CELLS_CRC, u64::from(entry.cells_crc));
            put(bytes, layout::CELLS, u64::from(entry.cells));
            put(bytes, layout::SIDE, u64::from(entry.side));
        }
        let crc = structure_crc(SALT, &b, layout::CRC);
        put(&mut b, layout::CRC, u64::from(crc));
        b
    }

    /// Decodes the header and the list at the byte offset `address` of the array `id`; `bytes` may
    /// be longer.
    ///
    /// # Errors
    /// `NotThis`, `Checksum`, `Version` (in this order of checking), or `Invalid`.
    pub fn decode(bytes: &[u8], address: u64, id: u128) -> Result<Record> {
        let place = Place { structure: "parity record", address };
        let b = place.require_bytes(bytes, peek_header_bytes(bytes, address)?)?;
        verify_crc(place, SALT, b, layout::CRC)?;
        place.require_version(get_u32(b, layout::FORMAT_VERSION))?;
        let found = get(b, layout::ADDRESS);
        place.require(found == address, "its own address", found)?;
        let found = get_u128(b, layout::ID);
        place.require(found == id, "the array's identity", format!("{found:032x}"))?;
        verify_zero(place, b, layout::ZERO)?;
        let count = get_u32(b, layout::COUNT) as usize;
        let end = layout::BYTES + count * layout::ENTRY_BYTES;
        verify_zero_bytes(place, &b[end..], end)?;
        let mut entries = Vec::with_capacity(count);
        for bytes in b[layout::BYTES..end].chunks_exact(layout::ENTRY_BYTES) {
            let entry = Entry {
                offset: get(bytes, layout::OFFSET),
                cells_crc: get_u32(bytes, layout::CELLS_CRC),
                cells: u16::try_from(get(bytes, layout::CELLS)).expect("2 bytes"),
                side: u16::try_from(get(bytes, layout::SIDE)).expect("2 bytes"),
            };
            place.require(entry.cells > 0, "at least one cell", entry.cells)?;
            let is_aligned = entry.offset.is_multiple_of(CELL_BYTES as u64);
            place.require(is_aligned, "a multiple of 4096", entry.offset)?;
            entries.push(entry);
        }
        Ok(Record { id, sequence: get(b, layout::SEQUENCE), entries })
    }

    /// Bytes of all cells.
    #[must_use]
    pub fn cells_bytes(&self) -> usize {
        self.entries.iter().map(Entry::bytes).sum()
    }

    /// The record as text.
    #[must_use]
    pub fn explain(&self) -> String {
        let mut text =
            format!("parity record\n  id        {:032x}\n  sequence  {}\n", self.id, self.sequence);
        for entry in &self.entries {
            writeln!(
                text,
                "  side {:<5}offset {:<16}cells {:<6}crc {:#010x}",
                entry.side, entry.offset, entry.cells, entry.cells_crc
            )
            .expect("a String takes all");
        }
        text
    }
}
