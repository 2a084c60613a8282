//! A stretch of the device in memory, as every copy has it.

use block::Right;

use crate::Store;

/// Bytes of each copy that are read at a time.
const WINDOW_BYTES: usize = 1 << 20;
/// Bytes read at a time where a window cannot be read.
const PIECE_BYTES: usize = 4 << 10;
/// Stands for unreadable bytes: no header, and no checksum of it is right but by chance.
const UNREAD: u8 = 0xdb;

/// The same stretch of all copies.
pub struct Windows<'s> {
    store: &'s Store,
    start: u64,
    /// Nothing is read from here on.
    end: u64,
    bytes: Vec<Vec<u8>>,
    /// Says of which stretches, `(offset, bytes)`, all copies are known to say the same.
    pub agreed: Option<&'s dyn Fn(u64, u64) -> bool>,
    /// Bytes that were read, of all copies.
    pub read_bytes: u64,
}

impl<'s> Windows<'s> {
    /// Windows on nothing.
    pub fn new(store: &'s Store) -> Windows<'s> {
        Windows { store, start: 0, end: 0, bytes: Vec::new(), agreed: None, read_bytes: 0 }
    }

    /// Begins with something that ends there, and forgets what was read.
    pub fn begin(&mut self, end: u64) {
        self.end = end;
        self.bytes.clear();
    }

    /// In how many copies it is there.
    pub fn copies(&self) -> usize {
        self.bytes.len()
    }

    /// Has at least so many bytes in memory.
    pub fn load(&mut self, at: u64, length: usize) {
        let held = self.bytes.first().map_or(0, Vec::len) as u64;
        if at >= self.start && at + length as u64 <= self.start + held {
            return;
        }
        let room = usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX);
        let size = WINDOW_BYTES.min(room).max(length);
        let copies = match self.agreed {
            Some(agreed) if agreed(at, size as u64) => 1,
            _ => self.store.device.copies(at, size as u64),
        };
        self.bytes.resize(copies, Vec::new());
        self.start = at;
        for (copy, bytes) in self.bytes.iter_mut().enumerate() {
            bytes.resize(size, 0);
            self.read_bytes += size as u64;
            if self.store.device.read_copy(copy, at, bytes).is_ok() {
                continue;
            }
            for (i, piece) in bytes.chunks_mut(PIECE_BYTES).enumerate() {
                let at = at + (i * PIECE_BYTES) as u64;
                if self.store.device.read_copy(copy, at, piece).is_err() {
                    piece.fill(UNREAD);
                }
            }
        }
    }

    /// The bytes of a copy there; they were loaded.
    pub fn get(&self, copy: usize, at: u64, length: usize) -> &[u8] {
        let from = usize::try_from(at - self.start).expect("it was loaded");
        &self.bytes[copy][from..from + length]
    }

    /// Whether all copies are right.
    pub fn all(&self, at: u64, length: usize, right: &Right<'_>) -> bool {
        (0..self.copies()).all(|copy| right(self.get(copy, at, length)))
    }

    /// Whether a copy is right.
    pub fn any(&self, at: u64, length: usize, right: &Right<'_>) -> bool {
        (0..self.copies()).any(|copy| right(self.get(copy, at, length)))
    }

    /// Whether all copies have the same.
    pub fn is_same(&self, at: u64, length: usize) -> bool {
        (1..self.copies()).all(|copy| self.get(copy, at, length) == self.get(0, at, length))
    }
}
