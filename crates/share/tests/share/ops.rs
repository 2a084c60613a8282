//! Operations on a share and its model, and the bytes of the model's files.

use std::collections::BTreeMap;

const BLOCK: u64 = 4096;

/// What is done; paths are from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Create(String),
    /// Unchecked, with a size.
    Open(String, Option<u64>),
    Exclusive(String, u8),
    Mkdir(String),
    Symlink(String, Vec<u8>),
    Fifo(String),
    Link(String, String),
    Remove(String),
    Rmdir(String),
    Rename(String, String),
    Write(String, u64, Vec<u8>),
    Resize(String, u64),
    Mode(String, u16),
    Owner(String, u32, u32),
    Times(String, u64, u64),
}

/// Bytes with holes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    pub size: u64,
    pub blocks: BTreeMap<u64, Vec<u8>>,
}

impl Bytes {
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            let block = self.blocks.entry(at / BLOCK).or_insert_with(|| vec![0; BLOCK as usize]);
            block[(at % BLOCK) as usize] = *byte;
        }
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    pub fn resize(&mut self, size: u64) {
        self.blocks.retain(|block, _| block * BLOCK < size);
        if let Some(last) = self.blocks.get_mut(&(size / BLOCK)) {
            last[(size % BLOCK) as usize..].fill(0);
        }
        self.size = size;
    }

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
