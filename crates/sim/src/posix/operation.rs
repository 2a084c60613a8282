//! Operations on a tree, and the bytes of files.

use std::collections::BTreeMap;

const BLOCK: u64 = 4096;

/// An operation; paths are from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A new file.
    Create(String),
    /// A file, new or not, with a size.
    Open(String, Option<u64>),
    /// A new file with a verifier, or the file that was made with it.
    Exclusive(String, u8),
    /// A new directory.
    Mkdir(String),
    /// A new symbolic link with a target.
    Symlink(String, Vec<u8>),
    /// A new named pipe.
    Fifo(String),
    /// Another name of what has the first.
    Link(String, String),
    /// Removes a name of anything but a directory.
    Remove(String),
    /// Removes a directory.
    Rmdir(String),
    /// From one name to another.
    Rename(String, String),
    /// Bytes at an offset.
    Write(String, u64, Vec<u8>),
    /// The size of a file.
    Resize(String, u64),
    /// Permissions.
    Mode(String, u16),
    /// Owner and group.
    Owner(String, u32, u32),
    /// `atime` and `mtime`.
    Times(String, u64, u64),
}

/// Bytes with holes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// How many.
    pub size: u64,
    /// Blocks of 4 KiB that are no holes, by their number.
    pub blocks: BTreeMap<u64, Vec<u8>>,
}

impl Bytes {
    /// Writes over them, or beyond.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            let block = self.blocks.entry(at / BLOCK).or_insert_with(|| vec![0; BLOCK as usize]);
            block[(at % BLOCK) as usize] = *byte;
        }
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    /// Cuts, or adds zeros.
    pub fn resize(&mut self, size: u64) {
        self.blocks.retain(|block, _| block * BLOCK < size);
        if let Some(last) = self.blocks.get_mut(&(size / BLOCK)) {
            last[(size % BLOCK) as usize..].fill(0);
        }
        self.size = size;
    }

    /// The ranges that a comparison reads, with their lengths: of small files all, of large ones
    /// the end, and the surroundings of the blocks that are there.
    #[must_use]
    pub fn ranges(&self) -> Vec<(u64, usize)> {
        let mut ranges = vec![(self.size.saturating_sub(5000), 6000)];
        if self.size < 100_000 {
            ranges.push((0, self.size as usize + 10));
        } else {
            let around = |block: &u64| ((block * BLOCK).saturating_sub(4097), 3 * BLOCK as usize);
            ranges.extend(self.blocks.keys().map(around));
        }
        ranges
    }

    /// As many of them as there are.
    #[must_use]
    pub fn read(&self, offset: u64, count: usize) -> Vec<u8> {
        let end = self.size.min(offset.saturating_add(count as u64));
        let mut bytes = Vec::new();
        let mut at = offset;
        while at < end {
            let (block, from) = (at / BLOCK, (at % BLOCK) as usize);
            let to = from + (end - at).min(BLOCK - from as u64) as usize;
            match self.blocks.get(&block) {
                Some(block) => bytes.extend_from_slice(&block[from..to]),
                None => bytes.resize(bytes.len() + to - from, 0),
            }
            at += (to - from) as u64;
        }
        bytes
    }
}
