//! Packs: versions of blocks that were written over, encoded together. `docs/format/pack.md`.
//!
//! 1. A pack needs nothing outside of it: the first version of each chain in it is whole.
//! 2. Versions are in the order of map entries: ascending blocks, of one block the newest first.
//! 3. The checksum of a version is that of its decoded block; the pack has checksums of its own for
//!    what is stored, verified before anything is decompressed.

mod content;
mod decode;
mod encode;
mod header;

pub use content::Pack;
pub use decode::{PackDecoder, StoredPack};
pub use encode::PackEncoder;
pub use header::{
    MAGIC, PACK_ALIGNMENT, PACK_BYTES_MAX, PACK_HEADER_BYTES, PACK_VERSIONS_MAX, PackEncoding,
    PackHeader, PackPlace, PackVersion, layout,
};
