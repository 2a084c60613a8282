//! The versions of a pack, decoded, and the directory that lists them.

use units::Seq;

use super::header::{BLOCK, PACK_VERSIONS_MAX, PackVersion, layout};
use crate::checksum::block_crc;

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
}

/// What the directory says of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) version: PackVersion,
    /// Bytes of the chain that begins with it; 0 if it goes on with the one before.
    pub(super) chain_bytes: u32,
}

/// A directory, by columns.
pub(super) fn encode_directory(listed: &[Listed]) -> Vec<u8> {
    let mut out = Vec::with_capacity(listed.len() * layout::VERSION_BYTES);
    listed.iter().for_each(|l| out.extend_from_slice(&l.version.block.to_le_bytes()));
    listed.iter().for_each(|l| out.extend_from_slice(&l.version.seq.0.to_le_bytes()));
    listed.iter().for_each(|l| out.extend_from_slice(&l.version.crc.to_le_bytes()));
    listed.iter().for_each(|l| out.extend_from_slice(&l.chain_bytes.to_le_bytes()));
    out
}

/// A directory of so many versions. In one frame with them it says nothing of chains.
pub(super) fn decode_directory(bytes: &[u8], count: usize, is_in_one: bool) -> Vec<Listed> {
    let columns = [layout::BLOCK, layout::SEQ, layout::BLOCK_CRC, layout::CHAIN_BYTES];
    let value = |column: usize, index: usize| {
        let width = columns[column].bytes;
        let before: usize = columns[..column].iter().map(|column| column.bytes * count).sum();
        let mut wide = [0; 8];
        wide[..width].copy_from_slice(&bytes[before + index * width..][..width]);
        u64::from_le_bytes(wide)
    };
    let narrow = |column, index| u32::try_from(value(column, index)).expect("four bytes");
    let listed = |index| Listed {
        version: PackVersion {
            block: value(0, index),
            seq: Seq(value(1, index)),
            crc: narrow(2, index),
        },
        chain_bytes: if is_in_one { 0 } else { narrow(3, index) },
    };
    (0..count).map(listed).collect()
}

/// Makes the version at `index` its XOR with the one before, or back.
pub(super) fn xor_with_previous(blocks: &mut [u8], index: usize) {
    let (before, rest) = blocks.split_at_mut(index * BLOCK);
    let previous = &before[(index - 1) * BLOCK..];
    rest[..BLOCK].iter_mut().zip(previous).for_each(|(byte, previous)| *byte ^= previous);
}
