//! Parts of writes.

use units::BLOCK_BYTES;

use crate::types::WriteOp;

/// Puts the part of `op` that lies in them over bytes that start at byte `start`.
pub fn lay_over(start: u64, there: &mut [u8], op: &WriteOp<'_>) {
    let (offset, length_bytes) = span(op);
    let from = offset.max(start);
    let to = (offset + length_bytes).min(start + there.len() as u64);
    let target = &mut there[(from - start) as usize..(to - start) as usize];
    match op {
        WriteOp::Data { bytes, .. } => {
            target.copy_from_slice(&bytes[(from - offset) as usize..(to - offset) as usize]);
        }
        WriteOp::Zero { .. } => target.fill(0),
    }
}

/// Where it begins, and how many bytes it has.
pub fn span(op: &WriteOp<'_>) -> (u64, u64) {
    match *op {
        WriteOp::Data { offset, bytes } => (offset, bytes.len() as u64),
        WriteOp::Zero { offset, length_bytes } => (offset, length_bytes),
    }
}

/// Whether it has no data.
pub fn is_zero(op: &WriteOp<'_>) -> bool {
    matches!(op, WriteOp::Zero { .. })
}

/// Whether it is of whole blocks.
pub fn is_whole(op: &WriteOp<'_>) -> bool {
    let (offset, length_bytes) = span(op);
    length_bytes > 0
        && offset.is_multiple_of(BLOCK_BYTES)
        && length_bytes.is_multiple_of(BLOCK_BYTES)
}

/// The part of it from one byte to another.
pub fn middle<'a>(op: &WriteOp<'a>, from: u64, to: u64) -> WriteOp<'a> {
    match *op {
        WriteOp::Data { offset, bytes } => WriteOp::Data {
            offset: from,
            bytes: &bytes[(from - offset) as usize..(to - offset) as usize],
        },
        WriteOp::Zero { .. } => WriteOp::Zero { offset: from, length_bytes: to - from },
    }
}

/// The rest of an op without its first bytes.
pub fn without<'a>(op: &WriteOp<'a>, skip: u64) -> WriteOp<'a> {
    let (offset, length_bytes) = span(op);
    middle(op, offset + skip, offset + length_bytes)
}
