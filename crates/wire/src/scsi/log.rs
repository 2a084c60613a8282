//! Log pages, as LOG SENSE tells them: which there are, and how much of a thin unit's room is used.

use super::sense::Sense;

/// The pages that there are.
pub const SUPPORTED_PAGES: u8 = 0x00;
/// Logical block provisioning.
pub const PROVISIONING: u8 = 0x0c;
/// Subpage of `SUPPORTED_PAGES` that names subpages as well.
pub const ALL_SUBPAGES: u8 = 0xff;

/// Blocks of a threshold set, as a power of two: 1 MiB of blocks of 512 bytes.
pub const SET_EXPONENT: u8 = 11;

/// Bytes of a threshold set.
pub const SET_BYTES: u64 = 512 << SET_EXPONENT;

/// The room of a thin unit, in threshold sets; more than 32 bits hold is told as the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Sets that can still be used.
    pub available: u64,
    /// Sets that are used.
    pub used: u64,
}

impl Room {
    /// The number of used sets that is so many percent of all, rounded up.
    #[must_use]
    pub fn percent(&self, percent: u64) -> u32 {
        let all = u128::from(self.available) + u128::from(self.used);
        let sets = (all * u128::from(percent)).div_ceil(100);
        u32::try_from(sets).unwrap_or(u32::MAX)
    }
}

/// Appends a page: its parameters from the code `first` on.
///
/// # Errors
/// Invalid field in CDB, for a page that there is not, or a code beyond the last.
pub fn put(
    (page, subpage): (u8, u8),
    first: u16,
    room: &Room,
    out: &mut Vec<u8>,
) -> Result<(), Sense> {
    const SUBPAGE_FORMAT: u8 = 0x40;
    let body = match (page, subpage) {
        (SUPPORTED_PAGES, 0) => vec![SUPPORTED_PAGES, PROVISIONING],
        (SUPPORTED_PAGES, ALL_SUBPAGES) => {
            vec![SUPPORTED_PAGES, 0, SUPPORTED_PAGES, ALL_SUBPAGES, PROVISIONING, 0]
        }
        (PROVISIONING, 0) => provisioning(first, room),
        (SUPPORTED_PAGES | PROVISIONING, _) => return Err(Sense::cdb_field(3, None)),
        _ => return Err(Sense::cdb_field(2, Some(5))),
    };
    if body.is_empty() || page == SUPPORTED_PAGES && first != 0 {
        return Err(Sense::cdb_field(5, None));
    }
    let format = if subpage == 0 { 0 } else { SUBPAGE_FORMAT };
    let length = u16::try_from(body.len()).expect("a short page");
    out.extend_from_slice(&[format | page, subpage]);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&body);
    Ok(())
}

/// The parameters: what is available, and what is used, of a room that no unit has for itself.
fn provisioning(first: u16, room: &Room) -> Vec<u8> {
    /// A list of binary values.
    const BINARY_LIST: u8 = 3;
    const SHARED: u8 = 2;
    let mut body = Vec::new();
    for (code, sets) in [(1_u16, room.available), (2, room.used)] {
        if code < first {
            continue;
        }
        body.extend_from_slice(&code.to_be_bytes());
        body.extend_from_slice(&[BINARY_LIST, 8]);
        body.extend_from_slice(&u32::try_from(sets).unwrap_or(u32::MAX).to_be_bytes());
        body.extend_from_slice(&[SHARED, 0, 0, 0]);
    }
    body
}
