//! The two copies of the header on the device below.

use std::io::IoSlice;

use format::crypt::{COPY_OFFSETS, CryptHeader, SECTOR_BYTES};

use super::error::CryptError;
use super::key::{CryptKey, DataKey};
use crate::{BlockDevice, Result as DeviceResult, Resync};

/// The header that a key opens, the first if there are several, and the key of the data in it. It
/// is written over the other copy if that is not the same.
///
/// A copy that cannot be written stays as it is: that is no reason to refuse the others.
pub(super) fn read(
    below: &dyn BlockDevice,
    key: &CryptKey,
) -> Result<(CryptHeader, DataKey), CryptError> {
    let copies = [0, 1].map(|copy| read_copy(below, copy));
    let opened = |header: &CryptHeader| {
        Some((header.clone(), key.unwrap(&header.salt, &header.wrapped_key)?))
    };
    let Some((header, data_key)) = copies.iter().flatten().find_map(opened) else {
        let device = below.describe();
        if copies.iter().any(Result::is_ok) {
            return Err(CryptError::WrongKey { device });
        }
        let texts: Vec<String> = copies.into_iter().filter_map(Result::err).collect();
        return Err(CryptError::Header { device, text: texts.join("; ") });
    };
    for (copy, there) in copies.iter().enumerate() {
        if there.as_ref() != Ok(&header) {
            let _ = write_copy(below, &header, copy);
        }
    }
    Ok((header, data_key))
}

/// Writes both copies.
pub(super) fn write(below: &dyn BlockDevice, header: &CryptHeader) -> DeviceResult<()> {
    [0, 1].into_iter().try_for_each(|copy| write_copy(below, header, copy))
}

fn write_copy(below: &dyn BlockDevice, header: &CryptHeader, copy: usize) -> DeviceResult<()> {
    below.write_durable(COPY_OFFSETS[copy], &[IoSlice::new(&header.encode(copy))])
}

/// Says that nobody has anything between the copies; returns where what nobody has begins again.
pub(super) fn forget_between(below: &dyn BlockDevice) -> DeviceResult<u64> {
    let [first, second] = COPY_OFFSETS.map(|offset| offset + SECTOR_BYTES as u64);
    below.resync(first, COPY_OFFSETS[1] - first, Resync::Unused)?;
    Ok(second)
}

/// Whether both copies are sound as they lie there, when they were healed from below if need be:
/// what is computed of them may be computed anew then.
pub(super) fn are_sound(below: &dyn BlockDevice) -> bool {
    let mut bytes = [0; SECTOR_BYTES];
    [0, 1].into_iter().all(|copy| {
        let mut is_sound = || {
            let read = below.read_copy(0, COPY_OFFSETS[copy], &mut bytes);
            read.is_ok() && CryptHeader::decode(&bytes, copy).is_ok()
        };
        is_sound() || {
            let _ = read_copy(below, copy);
            is_sound()
        }
    })
}

/// One copy, healed from below if need be.
fn read_copy(below: &dyn BlockDevice, copy: usize) -> Result<CryptHeader, String> {
    let mut bytes = [0; SECTOR_BYTES];
    let decode = |bytes: &[u8]| CryptHeader::decode(bytes, copy);
    let error = match below.read_at(COPY_OFFSETS[copy], &mut bytes) {
        Ok(()) => match decode(&bytes) {
            Ok(header) => return Ok(header),
            Err(error) => error.to_string(),
        },
        Err(error) => error.to_string(),
    };
    match below.heal(COPY_OFFSETS[copy], &mut bytes, &|bytes| decode(bytes).is_ok()) {
        Ok(_) => decode(&bytes).map_err(|_| error),
        Err(_) => Err(error),
    }
}
