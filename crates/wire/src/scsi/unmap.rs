//! The parameter list of UNMAP.

use super::sense::{Code, Sense};
use crate::fields::{be16, be32, be64};

/// Blocks to unmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// First block.
    pub lba: u64,
    /// How many; 0 is none.
    pub blocks: u32,
}

const HEADER_BYTES: usize = 8;
const DESCRIPTOR_BYTES: usize = 16;
/// Most descriptors in a list; announced in the block limits page.
pub const DESCRIPTORS_MAX: usize = 256;

/// The descriptors of a list, which is as long as the CDB says. Whether they lie within the unit is
/// the caller's, who looks at all before the first is done.
///
/// # Errors
/// When the header is cut short, when more descriptors are announced than arrived, and when there
/// are more than 256.
pub fn descriptors(list: &[u8]) -> Result<Vec<Descriptor>, Sense> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let Some((header, rest)) = list.split_first_chunk::<HEADER_BYTES>() else {
        return Err(Sense::illegal(Code::PARAMETER_LIST_LENGTH));
    };
    // A last one that is not whole counts for nothing (SBC-3 5.28.2).
    let count = usize::from(be16(header, 2)) / DESCRIPTOR_BYTES;
    let Some(descriptors) = rest.get(..count * DESCRIPTOR_BYTES) else {
        return Err(Sense::illegal(Code::PARAMETER_LIST_LENGTH));
    };
    if count > DESCRIPTORS_MAX {
        return Err(Sense::parameter(2, None));
    }
    let descriptor = |bytes: &[u8]| Descriptor { lba: be64(bytes, 0), blocks: be32(bytes, 8) };
    Ok(descriptors.chunks_exact(DESCRIPTOR_BYTES).map(descriptor).collect())
}

/// The list of an initiator.
///
/// # Panics
/// With more descriptors than a list can hold.
pub fn put_list(descriptors: &[Descriptor], out: &mut Vec<u8>) {
    let bytes = u16::try_from(descriptors.len() * DESCRIPTOR_BYTES).expect("few descriptors");
    let all = bytes.checked_add(6).expect("few descriptors");
    out.extend_from_slice(&all.to_be_bytes());
    out.extend_from_slice(&bytes.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    for descriptor in descriptors {
        out.extend_from_slice(&descriptor.lba.to_be_bytes());
        out.extend_from_slice(&descriptor.blocks.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
    }
}
