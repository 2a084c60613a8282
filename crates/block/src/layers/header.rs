//! A header of a sector that a layer keeps in several copies on the device below it.

use std::io::IoSlice;

use crate::{BlockDevice, Result as DeviceResult, Resync};

/// A sector.
pub(super) const BYTES: usize = 512;

/// Why no copy can be used.
#[derive(Debug)]
pub(super) enum Unusable {
    /// None is sound: what was found instead.
    Damaged(String),
    /// None of those that are sound is accepted.
    Refused,
}

/// Reads all copies, returns the first that is sound and that `accept` has something for, with
/// that, and writes it over those that are not the same.
///
/// A copy that cannot be written stays as it is: that is no reason to refuse the others.
pub(super) fn read_copies<H: PartialEq, T>(
    below: &dyn BlockDevice,
    offsets: &[u64],
    decode: impl Fn(&[u8], usize) -> format::Result<H>,
    encode: impl Fn(&H, usize) -> [u8; BYTES],
    accept: impl Fn(&H) -> Option<T>,
) -> Result<(H, T), Unusable> {
    let (mut found, mut others, mut texts) = (None, Vec::new(), Vec::new());
    let mut is_any_sound = false;
    for (copy, &offset) in offsets.iter().enumerate() {
        match read_copy(below, offset, &|bytes| decode(bytes, copy)) {
            Ok(header) => {
                is_any_sound = true;
                let accepted = if found.is_none() { accept(&header) } else { None };
                match (accepted, &found) {
                    (Some(accepted), _) => found = Some((header, accepted)),
                    (None, Some((same, _))) if *same == header => {}
                    (None, _) => others.push(copy),
                }
            }
            Err(text) => {
                others.push(copy);
                texts.push(text);
            }
        }
    }
    let Some((header, accepted)) = found else {
        let damaged = Unusable::Damaged(texts.join("; "));
        return Err(if is_any_sound { Unusable::Refused } else { damaged });
    };
    for copy in others {
        let _ = below.write_durable(offsets[copy], &[IoSlice::new(&encode(&header, copy))]);
    }
    Ok((header, accepted))
}

/// Says that nobody has anything between two copies; returns where what nobody has begins again.
pub(super) fn forget_between(below: &dyn BlockDevice, offsets: [u64; 2]) -> DeviceResult<u64> {
    let [first, second] = offsets.map(|offset| offset + BYTES as u64);
    below.resync(first, offsets[1] - first, Resync::Unused)?;
    Ok(second)
}

/// Whether all copies are sound as they lie there, when they were healed from below if need be:
/// what is computed of them may be computed anew then.
pub(super) fn are_sound<H>(
    below: &dyn BlockDevice,
    offsets: &[u64],
    decode: impl Fn(&[u8], usize) -> format::Result<H>,
) -> bool {
    let mut bytes = [0; BYTES];
    offsets.iter().enumerate().all(|(copy, &offset)| {
        let mut is_sound = || {
            let read = below.read_copy(0, offset, &mut bytes);
            read.is_ok() && decode(&bytes, copy).is_ok()
        };
        is_sound() || {
            let _ = read_copy(below, offset, &|bytes| decode(bytes, copy));
            is_sound()
        }
    })
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
