//! The answer to GET LBA STATUS.

use crate::fields::{be32, be64};

/// How blocks are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provisioning {
    /// They hold data, or may.
    Mapped,
    /// Nothing is stored: they read as zeros.
    Deallocated,
}

/// Blocks that are stored alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaStatus {
    /// First block.
    pub lba: u64,
    /// How many; at least one.
    pub blocks: u32,
    /// How they are stored.
    pub provisioning: Provisioning,
}

const HEADER_BYTES: usize = 8;
const DESCRIPTOR_BYTES: usize = 16;

/// Descriptors for which an allocation has room; one at least, of which a part is sent.
#[must_use]
pub const fn descriptors_within(allocation_bytes: u32) -> usize {
    let room = (allocation_bytes as usize).saturating_sub(HEADER_BYTES);
    match room / DESCRIPTOR_BYTES {
        0 => 1,
        count => count,
    }
}

/// Appends the answer: neighbours that lie one after the other.
///
/// # Panics
/// With more descriptors than its length can name.
pub fn put(statuses: &[LbaStatus], out: &mut Vec<u8>) {
    let bytes = u32::try_from(4 + statuses.len() * DESCRIPTOR_BYTES).expect("few descriptors");
    out.extend_from_slice(&bytes.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    for status in statuses {
        let provisioning = match status.provisioning {
            Provisioning::Mapped => 0,
            Provisioning::Deallocated => 1,
        };
        out.extend_from_slice(&status.lba.to_be_bytes());
        out.extend_from_slice(&status.blocks.to_be_bytes());
        out.extend_from_slice(&[provisioning, 0, 0, 0]);
    }
}

/// Reads the answer; `None` when it is cut short or holds a status that is not known.
#[must_use]
pub fn decode(answer: &[u8]) -> Option<Vec<LbaStatus>> {
    let (header, rest) = answer.split_first_chunk::<HEADER_BYTES>()?;
    let bytes = usize::try_from(be32(header, 0)).ok()?.checked_sub(4)?;
    let status = |bytes: &[u8]| {
        let provisioning = match bytes[12] & 0xf {
            0 => Provisioning::Mapped,
            1 => Provisioning::Deallocated,
            _ => return None,
        };
        Some(LbaStatus { lba: be64(bytes, 0), blocks: be32(bytes, 8), provisioning })
    };
    rest.get(..bytes)?.chunks_exact(DESCRIPTOR_BYTES).map(status).collect()
}
