//! What the parity layer keeps at the beginning of each of its sides: a journal of two slots, each
//! with a record, and two areas of pending entries. `docs/format/parity.md`.
//!
//! 1. A record's checksum covers its header and its list; the list has a checksum of the cells of
//!    each of its entries. So a record of which anything is missing is told from one that is whole.
//! 2. A record holds its own place and the identity of whoever wrote it: one of another place, or
//!    of an earlier use of the device, is damage.
//! 3. A pending entry's checksum covers its bytes as well; it holds its epoch and its number in it.

use crate::checksum::block_crc;
use crate::error::{Place, Result};
use crate::field::{codec, get, get_u32, get_u128, put, put_u128, verify_zero, verify_zero_bytes};
use crate::head::seal;

/// Where the fields of a record's header and of an entry of its list are.
pub mod layout {
    use crate::field::{Field, fields, tile};

    /// Of the header; the list follows.
    pub const BYTES: usize = 64;
    fields! {
        /// Of the header, in order.
        FIELDS[BYTES]:
        MAGIC = "magic", 0, 8;
        CRC = "crc", 8, 4;
        FORMAT_VERSION = "format_version", 12, 4;
        ID = "id", 16, 16;
        SEQUENCE = "sequence", 32, 8;
        ADDRESS = "address", 40, 8;
        COUNT = "count", 48, 4;
        DIFFERENCES = "differences", 52, 4;
        EPOCH = "epoch", 56, 8;
    }

    /// Of an entry.
    pub const ENTRY_BYTES: usize = 16;
    fields! {
        /// Of an entry, in order.
        ENTRY_FIELDS[ENTRY_BYTES]:
        OFFSET = "offset", 0, 8;
        CELLS_CRC = "cells_crc", 8, 4;
        CELLS = "cells", 12, 2;
        SIDE = "side", 14, 2;
    }

    /// Of a pending entry; its bytes follow.
    pub const PENDING_BYTES: usize = 64;
    pub(crate) const OF_EPOCH: Field = Field::new("epoch", 32, 8);
    pub(crate) const AT: Field = Field::new("offset", 40, 8);
    pub(crate) const INDEX: Field = Field::new("index", 48, 4);
    pub(crate) const LENGTH: Field = Field::new("length", 52, 4);
    pub(crate) const BEFORE: Field = Field::new("before", 56, 4);
    pub(crate) const PENDING_ZERO: Field = Field::new("zero", 60, 4);
    /// Of a pending entry, in order.
    pub const PENDING_FIELDS: &[Field] =
        &[MAGIC, CRC, FORMAT_VERSION, ID, OF_EPOCH, AT, INDEX, LENGTH, BEFORE, PENDING_ZERO];
    const _: () = assert!(tile(PENDING_FIELDS, PENDING_BYTES));
}

/// Bytes of a cell.
pub const CELL_BYTES: usize = 4096;
/// In place of a side: the cell says which sectors of a row were written since it has a difference.
pub const WRITTEN: u16 = u16::MAX;
/// The magic of a record: `HINDPRTY`, as bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HINDPRTY");
const SALT: u32 = u32::from_le_bytes(*b"prty");
/// The magic of a pending entry: `HINDPEND`, as bytes.
pub const PENDING_MAGIC: u64 = u64::from_le_bytes(*b"HINDPEND");
const PENDING_SALT: u32 = u32::from_le_bytes(*b"pend");

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

codec!(Entry: offset = OFFSET, cells_crc = CELLS_CRC, cells = CELLS, side = SIDE;);

impl Entry {
    /// Bytes of its cells.
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
    /// The epoch of the oldest pending entries that no record has.
    pub epoch: u64,
    /// What belongs where.
    pub entries: Vec<Entry>,
    /// By what parities, in their places, are not those of the data in their rows; nothing of that
    /// belongs anywhere. Their cells follow those of the entries.
    pub differences: Vec<Entry>,
}

/// Bytes before the first cell of a record with so many entries.
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
    pub fn encode(&self, address: u64) -> Vec<u8> {
        let count = self.entries.len() + self.differences.len();
        let mut b = vec![0; header_bytes(count)];
        put_u128(&mut b, layout::ID, self.id);
        put(&mut b, layout::SEQUENCE, self.sequence);
        put(&mut b, layout::ADDRESS, address);
        put(&mut b, layout::COUNT, count as u64);
        put(&mut b, layout::DIFFERENCES, self.differences.len() as u64);
        put(&mut b, layout::EPOCH, self.epoch);
        let places = b[layout::BYTES..].chunks_exact_mut(layout::ENTRY_BYTES);
        for (bytes, entry) in places.zip(self.all()) {
            assert!(entry.cells > 0 && entry.offset.is_multiple_of(CELL_BYTES as u64), "{entry:?}");
            entry.put_fields(bytes);
        }
        seal(&mut b, MAGIC, SALT);
        b
    }

    /// Decodes the header and the list at the byte offset `address` of the array `id`; `bytes` may
    /// be longer.
    ///
    /// # Errors
    /// `NotThis`, `Checksum`, `Version` (in this order of checking), or `Invalid`.
    pub fn decode(bytes: &[u8], address: u64, id: u128) -> Result<Record> {
        let place = Place { structure: "parity record", address };
        let b = place.head(bytes, peek_header_bytes(bytes, address)?, MAGIC, SALT)?;
        place.require_own_address(b, layout::ADDRESS)?;
        let found = get_u128(b, layout::ID);
        place.require(found == id, "the array's identity", format_args!("{found:032x}"))?;
        let count = get_u32(b, layout::COUNT) as usize;
        let end = layout::BYTES + count * layout::ENTRY_BYTES;
        verify_zero_bytes(place, &b[end..], end)?;
        let mut entries = Vec::with_capacity(count);
        for bytes in b[layout::BYTES..end].chunks_exact(layout::ENTRY_BYTES) {
            let entry = Entry::get_fields(bytes);
            place.require(entry.cells > 0, "at least one cell", entry.cells)?;
            let is_aligned = entry.offset.is_multiple_of(CELL_BYTES as u64);
            place.require(is_aligned, "a multiple of 4096", entry.offset)?;
            entries.push(entry);
        }
        let of_those = get_u32(b, layout::DIFFERENCES) as usize;
        place.require(of_those <= count, "at most all entries", of_those)?;
        let differences = entries.split_off(count - of_those);
        let (sequence, epoch) = (get(b, layout::SEQUENCE), get(b, layout::EPOCH));
        place.require_countable("sequence", sequence)?;
        place.require_countable("epoch", epoch)?;
        Ok(Record { id, sequence, epoch, entries, differences })
    }

    /// The entries and then the differences.
    pub fn all(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().chain(&self.differences)
    }

    /// Bytes of all cells.
    pub fn cells_bytes(&self) -> usize {
        self.all().map(Entry::bytes).sum()
    }
}

/// What was written and waits for its record; or a note that some of that does not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The identity of the array.
    pub id: u128,
    /// One more than that of the entries which were in the other area before.
    pub epoch: u64,
    /// How many entries of its epoch are before it.
    pub index: u32,
    /// The byte offset in the layer where the bytes belong; of a note, where a stripe begins.
    pub offset: u64,
    /// Entries of the stripe with lower numbers do not count any more: a note, without bytes. 0 of
    /// others.
    pub before: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Bytes that a pending entry with so many bytes takes of its area.
pub fn pending_bytes(length: usize) -> usize {
    (layout::PENDING_BYTES + length).next_multiple_of(CELL_BYTES)
}

/// Bytes of the pending entry that begins with these, by what it says.
///
/// # Errors
/// `NotThis`.
pub fn peek_pending_bytes(bytes: &[u8], address: u64) -> Result<usize> {
    let place = Place { structure: "pending entry", address };
    let b = place.require_bytes(bytes, layout::PENDING_BYTES)?;
    place.require_magic(get(b, layout::MAGIC), PENDING_MAGIC)?;
    Ok(pending_bytes(get_u32(b, layout::LENGTH) as usize))
}

impl Pending {
    /// The entry as it lies in its area.
    pub fn encode(&self) -> Vec<u8> {
        let end = layout::PENDING_BYTES + self.bytes.len();
        let mut b = vec![0; pending_bytes(self.bytes.len())];
        put_u128(&mut b, layout::ID, self.id);
        put(&mut b, layout::OF_EPOCH, self.epoch);
        put(&mut b, layout::AT, self.offset);
        put(&mut b, layout::INDEX, u64::from(self.index));
        put(&mut b, layout::LENGTH, self.bytes.len() as u64);
        put(&mut b, layout::BEFORE, u64::from(self.before));
        b[layout::PENDING_BYTES..end].copy_from_slice(&self.bytes);
        seal(&mut b, PENDING_MAGIC, PENDING_SALT);
        b
    }

    /// Decodes the entry at the byte offset `address` of the array `id`; `bytes` may be longer.
    ///
    /// # Errors
    /// `NotThis`, `Checksum`, `Version` (in this order of checking), or `Invalid`.
    pub fn decode(bytes: &[u8], address: u64, id: u128) -> Result<Pending> {
        let place = Place { structure: "pending entry", address };
        let b =
            place.head(bytes, peek_pending_bytes(bytes, address)?, PENDING_MAGIC, PENDING_SALT)?;
        let found = get_u128(b, layout::ID);
        place.require(found == id, "the array's identity", format_args!("{found:032x}"))?;
        verify_zero(place, b, layout::PENDING_ZERO)?;
        let end = layout::PENDING_BYTES + get_u32(b, layout::LENGTH) as usize;
        verify_zero_bytes(place, &b[end..], end)?;
        let bytes = b[layout::PENDING_BYTES..end].to_vec();
        let before = get_u32(b, layout::BEFORE);
        place.require((before == 0) != bytes.is_empty(), "bytes, or a note", before)?;
        Ok(Pending {
            id,
            epoch: get(b, layout::OF_EPOCH),
            index: get_u32(b, layout::INDEX),
            offset: get(b, layout::AT),
            before,
            bytes,
        })
    }
}
