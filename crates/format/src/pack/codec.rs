//! Encoding and decoding packs. The contexts of zstd are made once and kept from one pack to the
//! next: to make them anew takes longer than to decode a small pack.

use zstd::bulk::{Compressor, Decompressor};

use super::header::{
    BLOCK, PACK_HEADER_BYTES, PLAIN_BYTES_MAX, Pack, PackEncoding, PackHeader, PackPlace,
    PackVersion, decode_directory, layout, xor_with_previous,
};
use crate::batch::BLOCKS_MAX;
use crate::checksum::block_crc;
use crate::error::{FormatErrorKind, Place, Result};

/// How hard zstd tries.
const LEVEL: i32 = 3;

/// Decodes packs, one at a time.
#[derive(Default)]
pub struct PackDecoder {
    zstd: Option<Decompressor<'static>>,
    plain: Vec<u8>,
}

/// Encodes packs, one at a time.
#[derive(Default)]
pub struct PackEncoder {
    zstd: Option<Compressor<'static>>,
    plain: Vec<u8>,
    stored: Vec<u8>,
    again: PackDecoder,
}

impl PackDecoder {
    /// Decodes what follows a header (`bytes` may be longer).
    ///
    /// # Errors
    /// `NotThis` if bytes are missing, `Checksum` or `Invalid`.
    pub fn decode(&mut self, header: &PackHeader, bytes: &[u8]) -> Result<Pack> {
        let place = Place { structure: "pack", address: u64::from(header.place.offset) };
        let stored = place.require_bytes(bytes, header.stored_bytes)?;
        let found = block_crc(stored);
        if found != header.stored_crc {
            let expected = format!("checksum {:#010x}", header.stored_crc);
            return Err(place.error(
                FormatErrorKind::Checksum,
                expected,
                format!("{found:#010x} of what is stored"),
            ));
        }
        self.plain.resize(header.versions * (layout::VERSION_BYTES + BLOCK), 0);
        let count = self.decompress(stored);
        let holds = count.as_ref().is_ok_and(|count| *count == self.plain.len());
        let found = || count.map_or_else(|e| e.to_string(), |count| format!("{count} bytes"));
        place.require(holds, "zstd of its versions", found())?;
        let (directory, blocks) = self.plain.split_at(header.versions * layout::VERSION_BYTES);
        let mut pack =
            Pack { versions: decode_directory(directory, header.versions), blocks: blocks.into() };
        let ascends = pack.versions.is_sorted_by(|a, b| a.order() < b.order());
        place.require(ascends, "versions in the order of map entries", "others")?;
        let in_range = |v: &PackVersion| {
            v.block < BLOCKS_MAX && units::Seq::ZERO < v.seq && v.seq <= units::Seq::MAX
        };
        place.require(pack.versions.iter().all(in_range), "blocks and seqs in range", "others")?;
        if header.encoding == PackEncoding::Xor {
            for index in 1..header.versions {
                if pack.versions[index].block == pack.versions[index - 1].block {
                    xor_with_previous(&mut pack.blocks, index);
                }
            }
        }
        Ok(pack)
    }

    fn decompress(&mut self, stored: &[u8]) -> std::io::Result<usize> {
        let zstd = match &mut self.zstd {
            Some(zstd) => zstd,
            none => none.insert(Decompressor::new()?),
        };
        zstd.decompress_to_buffer(stored, &mut self.plain[..])
    }
}

impl PackEncoder {
    /// The pack's bytes, padded to 64, behind their header; `None` if the compressor fails or what
    /// it made does not decode to the pack again. Asserts that the pack has a version.
    #[must_use]
    pub fn encode(
        &mut self,
        pack: &Pack,
        place: PackPlace,
        encoding: PackEncoding,
    ) -> Option<Vec<u8>> {
        assert!(!pack.versions.is_empty(), "a pack has a version");
        pack.plain(encoding, &mut self.plain);
        self.compress().ok()?;
        if self.stored.len() > PLAIN_BYTES_MAX {
            return None;
        }
        let header = PackHeader {
            place,
            encoding,
            versions: pack.versions.len(),
            stored_bytes: self.stored.len(),
            stored_crc: block_crc(&self.stored),
        };
        let mut bytes = Vec::with_capacity(header.total_bytes());
        bytes.extend_from_slice(&header.encode());
        bytes.extend_from_slice(&self.stored);
        bytes.resize(header.total_bytes(), 0);
        let again = self.again.decode(&header, &bytes[PACK_HEADER_BYTES..]);
        (again.as_ref() == Ok(pack)).then_some(bytes)
    }

    fn compress(&mut self) -> std::io::Result<()> {
        let zstd = match &mut self.zstd {
            Some(zstd) => zstd,
            none => none.insert(Compressor::new(LEVEL)?),
        };
        self.stored.clear();
        self.stored.reserve(zstd::zstd_safe::compress_bound(self.plain.len()));
        zstd.compress_to_buffer(&self.plain, &mut self.stored).map(|_| ())
    }
}
