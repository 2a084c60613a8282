//! Decoding packs: the directory when one is opened, a chain when a version of it is asked for.
//! The context of zstd is made once and kept from one pack to the next: to make one anew takes
//! longer than to decode a small pack.

use std::ops::Range;
use std::sync::OnceLock;

use units::Seq;
use zstd::bulk::Decompressor;

use super::content::{Listed, Pack, decode_directory, xor_with_previous};
use super::header::{BLOCK, PACK_HEADER_BYTES, PackEncoding, PackHeader, PackVersion, layout};
use crate::batch::BLOCKS_MAX;
use crate::checksum::block_crc;
use crate::error::{FormatErrorKind, Place, Result};

/// Decodes packs, one at a time.
#[derive(Default)]
pub struct PackDecoder {
    zstd: Option<Decompressor<'static>>,
}

/// A pack whose directory was decoded; its chains are when they are asked for.
#[derive(Debug)]
pub struct StoredPack {
    address: u64,
    encoding: PackEncoding,
    versions: Vec<PackVersion>,
    chains: Vec<Chain>,
    /// As it was read.
    bytes: Vec<u8>,
}

/// Versions that are compressed as one.
#[derive(Debug)]
struct Chain {
    versions: Range<usize>,
    /// Where in those of the pack.
    bytes: Range<usize>,
    decoded: OnceLock<Vec<u8>>,
}

impl Chain {
    /// Whether it is a version by itself, which is decoded straight to where it is wanted.
    fn is_alone(&self) -> bool {
        self.versions.len() == 1 && !self.bytes.is_empty()
    }
}

impl StoredPack {
    /// Copies out the bytes of a version; false if it is not there. One that is a chain by itself
    /// is decoded each time, others are kept.
    ///
    /// # Errors
    /// `Invalid` if its chain does not decode, which the checksum of what is stored excludes but
    /// for mistakes.
    pub fn read(
        &self,
        (block, seq): (u64, Seq),
        decoder: &mut PackDecoder,
        out: &mut [u8],
    ) -> Result<bool> {
        let order = (block, std::cmp::Reverse(seq));
        let Ok(index) = self.versions.binary_search_by_key(&order, PackVersion::order) else {
            return Ok(false);
        };
        let chain = self.chains.partition_point(|chain| chain.versions.end <= index);
        let chain = &self.chains[chain];
        if chain.is_alone() {
            self.decode(chain, decoder, out)?;
        } else {
            let blocks = self.decoded(chain, decoder)?;
            out.copy_from_slice(&blocks[(index - chain.versions.start) * BLOCK..][..BLOCK]);
        }
        Ok(true)
    }

    /// All versions.
    ///
    /// # Errors
    /// Those of [`StoredPack::read`].
    pub fn unpack(&self, decoder: &mut PackDecoder) -> Result<Pack> {
        let mut pack = Pack { versions: self.versions.clone(), blocks: Vec::new() };
        for chain in &self.chains {
            pack.blocks.extend_from_slice(self.decoded(chain, decoder)?);
        }
        Ok(pack)
    }

    /// Bytes that it holds in memory: more once more of it was asked for.
    pub fn memory_bytes(&self) -> usize {
        let decoded = self.chains.iter().filter_map(|chain| chain.decoded.get()).map(Vec::len);
        let each = size_of::<PackVersion>() + size_of::<Chain>();
        self.bytes.capacity() + self.versions.len() * each + decoded.sum::<usize>()
    }

    fn decoded<'a>(&self, chain: &'a Chain, decoder: &mut PackDecoder) -> Result<&'a [u8]> {
        if let Some(blocks) = chain.decoded.get() {
            return Ok(blocks);
        }
        let mut blocks = vec![0; chain.versions.len() * BLOCK];
        self.decode(chain, decoder, &mut blocks)?;
        Ok(chain.decoded.get_or_init(|| blocks))
    }

    fn decode(&self, chain: &Chain, decoder: &mut PackDecoder, blocks: &mut [u8]) -> Result<()> {
        let place = Place { structure: "pack", address: self.address };
        decoder.decompress(place, &self.bytes[chain.bytes.clone()], blocks)?;
        self.undo_xor(&chain.versions, blocks);
        Ok(())
    }

    fn undo_xor(&self, versions: &Range<usize>, blocks: &mut [u8]) {
        if self.encoding.is_xor() {
            let blocks_of = self.versions[versions.clone()].windows(2).enumerate();
            for (index, _) in blocks_of.filter(|(_, pair)| pair[0].block == pair[1].block) {
                xor_with_previous(blocks, index + 1);
            }
        }
    }
}

impl PackDecoder {
    /// Decodes the directory of a pack with such a header (`bytes`, with the header, may be
    /// longer).
    ///
    /// # Errors
    /// `NotThis` if bytes are missing, `Checksum` or `Invalid`.
    pub fn open(&mut self, header: &PackHeader, bytes: Vec<u8>) -> Result<StoredPack> {
        let place = Place { structure: "pack", address: u64::from(header.place.offset) };
        let end = PACK_HEADER_BYTES + header.stored_bytes;
        let stored = &place.require_bytes(&bytes, end)?[PACK_HEADER_BYTES..end];
        let found = block_crc(stored);
        if found != header.stored_crc {
            let expected = format!("checksum {:#010x}", header.stored_crc);
            return Err(place.error(
                FormatErrorKind::Checksum,
                expected,
                format!("{found:#010x} of what is stored"),
            ));
        }
        let is_in_one = header.encoding.is_in_one();
        let (frame, each) = match is_in_one {
            true => (stored, layout::VERSION_BYTES - layout::CHAIN_BYTES.bytes + BLOCK),
            false => (&stored[..header.directory_bytes], layout::VERSION_BYTES),
        };
        let mut plain = vec![0; header.versions * each];
        self.decompress(place, frame, &mut plain)?;
        let listed = decode_directory(&plain, header.versions, is_in_one);
        let versions: Vec<PackVersion> = listed.iter().map(|listed| listed.version).collect();
        let ascends = versions.is_sorted_by(|a, b| a.order() < b.order());
        place.require(ascends, "versions in the order of map entries", "others")?;
        let in_range =
            |v: &PackVersion| v.block < BLOCKS_MAX && Seq::ZERO < v.seq && v.seq <= Seq::MAX;
        place.require(versions.iter().all(in_range), "blocks and seqs in range", "others")?;
        let (address, encoding) = (place.address, header.encoding);
        if !is_in_one {
            let chains =
                chains_of(place, &listed, PACK_HEADER_BYTES + header.directory_bytes..end)?;
            return Ok(StoredPack { address, encoding, versions, chains, bytes });
        }
        let all = 0..header.versions;
        let mut blocks = plain.split_off(plain.len() - header.versions * BLOCK);
        let mut pack = StoredPack { address, encoding, versions, chains: vec![], bytes: vec![] };
        pack.undo_xor(&all, &mut blocks);
        pack.chains.push(Chain { versions: all, bytes: 0..0, decoded: OnceLock::from(blocks) });
        Ok(pack)
    }

    /// Decodes all of a pack with such a header.
    ///
    /// # Errors
    /// Those of [`PackDecoder::open`] and [`StoredPack::read`].
    pub fn decode(&mut self, header: &PackHeader, bytes: &[u8]) -> Result<Pack> {
        let bytes = &bytes[..bytes.len().min(header.total_bytes())];
        self.open(header, bytes.to_vec())?.unpack(self)
    }

    /// Decompresses a frame that has exactly the bytes of `plain`.
    fn decompress(&mut self, place: Place, frame: &[u8], plain: &mut [u8]) -> Result<()> {
        let zstd = match &mut self.zstd {
            Some(zstd) => Ok(zstd),
            none => Decompressor::new().map(|zstd| none.insert(zstd)),
        };
        let count = zstd.and_then(|zstd| zstd.decompress_to_buffer(frame, plain));
        let holds = count.as_ref().is_ok_and(|count| *count == plain.len());
        let found = || count.map_or_else(|e| e.to_string(), |count| format!("{count} bytes"));
        place.require(holds, "zstd of its versions", found())
    }
}

/// The chains of a directory, whose frames are there in the pack.
fn chains_of(place: Place, listed: &[Listed], frames: Range<usize>) -> Result<Vec<Chain>> {
    let mut chains: Vec<Chain> = Vec::new();
    let mut end = frames.start;
    for (index, Listed { version, chain_bytes }) in listed.iter().enumerate() {
        if *chain_bytes > 0 {
            let bytes = end..end + *chain_bytes as usize;
            end = bytes.end;
            chains.push(Chain { versions: index..index + 1, bytes, decoded: OnceLock::new() });
            continue;
        }
        let goes_on = index > 0 && listed[index - 1].version.block == version.block;
        place.require(goes_on, "a chain of one block's versions", version.block)?;
        let chain = chains.last_mut();
        chain.expect("the first version begins one").versions.end = index + 1;
    }
    place.require(end == frames.end, "chains as long as what is stored", end)?;
    Ok(chains)
}
