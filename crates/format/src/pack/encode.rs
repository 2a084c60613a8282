//! Encoding packs.

use zstd::bulk::Compressor;

use super::content::{Listed, Pack, encode_directory, xor_with_previous};
use super::decode::PackDecoder;
use super::header::{BLOCK, PackEncoding, PackHeader, PackPlace, STORED_BYTES_MAX};
use crate::checksum::block_crc;

/// How hard zstd tries.
const LEVEL: i32 = 3;
/// A version of which at most so many bytes differ is like the one before.
const ALIKE_BYTES_MAX: usize = BLOCK / 4;
/// The XOR of versions of which more bytes differ compresses worse than the version.
const DIFFERING_BYTES_MAX: usize = BLOCK / 4 * 3;

/// Encodes packs, one at a time.
#[derive(Default)]
pub struct PackEncoder {
    zstd: Option<Compressor<'static>>,
    frame: Vec<u8>,
    again: PackDecoder,
}

impl PackEncoder {
    /// The pack's bytes, padded to 64, behind their header; `None` if the compressor fails or what
    /// it made does not decode to the pack again. Asserts that the pack has a version, and that
    /// the encoding is one of chains.
    #[must_use]
    pub fn encode(
        &mut self,
        pack: &Pack,
        place: PackPlace,
        encoding: PackEncoding,
    ) -> Option<Vec<u8>> {
        assert!(!pack.versions.is_empty(), "a pack has a version");
        assert!(!encoding.is_in_one(), "packs are written as chains");
        let (listed, frames) = self.chains(pack, encoding).ok()?;
        self.compress(&encode_directory(&listed)).ok()?;
        let stored = [&self.frame[..], &frames].concat();
        if stored.len() > STORED_BYTES_MAX {
            return None;
        }
        let header = PackHeader {
            place,
            encoding,
            versions: pack.versions.len(),
            stored_bytes: stored.len(),
            stored_crc: block_crc(&stored),
            directory_bytes: self.frame.len(),
        };
        let mut bytes = Vec::with_capacity(header.total_bytes());
        bytes.extend_from_slice(&header.encode());
        bytes.extend_from_slice(&stored);
        bytes.resize(header.total_bytes(), 0);
        let again = self.again.decode(&header, &bytes);
        (again.as_ref() == Ok(pack)).then_some(bytes)
    }

    /// The directory and the frames of its chains.
    fn chains(
        &mut self,
        pack: &Pack,
        encoding: PackEncoding,
    ) -> std::io::Result<(Vec<Listed>, Vec<u8>)> {
        let mut listed: Vec<Listed> = Vec::with_capacity(pack.versions.len());
        let mut frames = Vec::new();
        let mut start = 0;
        for (index, &version) in pack.versions.iter().enumerate() {
            listed.push(Listed { version, chain_bytes: 0 });
            let next = index + 1;
            if next < pack.versions.len() && self.goes_on(pack, next, encoding)? {
                continue;
            }
            let mut blocks = pack.blocks[start * BLOCK..next * BLOCK].to_vec();
            if encoding.is_xor() {
                (1..next - start).rev().for_each(|at| xor_with_previous(&mut blocks, at));
            }
            self.compress(&blocks)?;
            listed[start].chain_bytes = u32::try_from(self.frame.len()).expect("a pack's");
            frames.extend_from_slice(&self.frame);
            start = next;
        }
        Ok((listed, frames))
    }

    /// Whether a version is like the one before: few bytes differ, or the compressor saves a
    /// quarter of it. Text of the same kind alone saves an eighth, and would make long chains.
    fn goes_on(
        &mut self,
        pack: &Pack,
        index: usize,
        encoding: PackEncoding,
    ) -> std::io::Result<bool> {
        if pack.versions[index].block != pack.versions[index - 1].block {
            return Ok(false);
        }
        let mut both = pack.blocks[(index - 1) * BLOCK..(index + 1) * BLOCK].to_vec();
        let (before, block) = both.split_at(BLOCK);
        let differing = before.iter().zip(block).filter(|(a, b)| a != b).count();
        if differing <= ALIKE_BYTES_MAX {
            return Ok(true);
        }
        if encoding.is_xor() && differing > DIFFERING_BYTES_MAX {
            return Ok(false);
        }
        let whole = self.compress(block)?;
        let beside = if encoding.is_xor() {
            xor_with_previous(&mut both, 1);
            self.compress(&both[BLOCK..])?
        } else {
            let before = self.compress(before)?;
            self.compress(&both)?.saturating_sub(before)
        };
        Ok(beside <= whole / 4 * 3)
    }

    /// Makes a frame, and says how many bytes it has.
    fn compress(&mut self, plain: &[u8]) -> std::io::Result<usize> {
        let zstd = match &mut self.zstd {
            Some(zstd) => zstd,
            none => none.insert(Compressor::new(LEVEL)?),
        };
        self.frame.clear();
        self.frame.reserve(zstd::zstd_safe::compress_bound(plain.len()));
        zstd.compress_to_buffer(plain, &mut self.frame)
    }
}
