//! The answer to REPORT LUNS.

use super::types::Lun;
use crate::fields::{be32, be64};

/// Appends the units; in order, if they are to be found so.
///
/// # Panics
/// With 2^29 units or more.
pub fn put(units: &[Lun], out: &mut Vec<u8>) {
    let bytes = u32::try_from(units.len() * 8).expect("few units");
    out.extend_from_slice(&bytes.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    for unit in units {
        out.extend_from_slice(&unit.0.to_be_bytes());
    }
}

/// Reads the units; `None` when the answer is cut short.
#[must_use]
pub fn decode(answer: &[u8]) -> Option<Vec<Lun>> {
    let (header, rest) = answer.split_first_chunk::<8>()?;
    let units = rest.get(..usize::try_from(be32(header, 0)).ok()?)?;
    Some(units.chunks_exact(8).map(|unit| Lun(be64(unit, 0))).collect())
}
