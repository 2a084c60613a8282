//! A header of a sector that a layer keeps in several copies on the device below it.

use std::io::IoSlice;

use crate::BlockDevice;

/// A sector.
pub(super) const BYTES: usize = 512;

/// Reads all copies, returns the first that is sound, and writes it over those that are not; what
/// was found instead if there is none.
///
/// A copy that cannot be written stays damaged: that is no reason to refuse the others.
pub(super) fn read_copies<H>(
    below: &dyn BlockDevice,
    offsets: &[u64],
    decode: impl Fn(&[u8], usize) -> format::Result<H>,
    encode: impl Fn(&H, usize) -> [u8; BYTES],
) -> Result<H, String> {
    let (mut found, mut damaged) = (None, Vec::new());
    for (copy, &offset) in offsets.iter().enumerate() {
        match read_copy(below, offset, &|bytes| decode(bytes, copy)) {
            Ok(header) => found = found.or(Some(header)),
            Err(text) => damaged.push((copy, text)),
        }
    }
    let Some(header) = found else {
        let texts: Vec<String> = damaged.into_iter().map(|(_, text)| text).collect();
        return Err(texts.join("; "));
    };
    for (copy, _) in damaged {
        let _ = below.write_durable(offsets[copy], &[IoSlice::new(&encode(&header, copy))]);
    }
    Ok(header)
}

/// One copy, healed from below if need be.
fn read_copy<H>(
    below: &dyn BlockDevice,
    offset: u64,
    decode: &dyn Fn(&[u8]) -> format::Result<H>,
) -> Result<H, String> {
    let mut bytes = [0; BYTES];
    let error = match below.read_at(offset, &mut bytes) {
        Ok(()) => match decode(&bytes) {
            Ok(header) => return Ok(header),
            Err(error) => error.to_string(),
        },
        Err(error) => error.to_string(),
    };
    match below.heal(offset, &mut bytes, &|bytes| decode(bytes).is_ok()) {
        Ok(_) => decode(&bytes).map_err(|_| error),
        Err(_) => Err(error),
    }
}
