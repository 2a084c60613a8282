//! Standard INQUIRY data.

use super::identity::{Identity, put_padded};

/// Peripheral qualifier and device type of a unit that is there: a direct-access device.
pub const DIRECT_ACCESS: u8 = 0x00;
/// Those of a number that has no unit.
pub const NO_UNIT: u8 = 0x7f;

/// Bytes of the data.
pub const STANDARD_BYTES: usize = 96;
/// SAM-5, SPC-4, SBC-3, iSCSI: no version of each is claimed.
const VERSION_DESCRIPTORS: [u16; 4] = [0x00a0, 0x0460, 0x04c0, 0x0960];

/// Appends the data of a unit that is there, or of a number without one.
pub fn put_standard(identity: &Identity, is_there: bool, out: &mut Vec<u8>) {
    const SPC_4: u8 = 6;
    /// HISUP, and the response data format.
    const FORMAT: u8 = 0x12;
    /// Implicit asymmetric access.
    const TPGS: u8 = 0x10;
    const CMDQUE: u8 = 0x02;
    let start = out.len();
    let first = if is_there { DIRECT_ACCESS } else { NO_UNIT };
    let additional = u8::try_from(STANDARD_BYTES - 5).expect("a short answer");
    out.extend_from_slice(&[first, 0, SPC_4, FORMAT, additional, TPGS, 0, CMDQUE]);
    put_padded(&identity.vendor, 8, out);
    put_padded(&identity.product, 16, out);
    put_padded(&identity.revision, 4, out);
    out.resize(start + 58, 0);
    for descriptor in VERSION_DESCRIPTORS {
        out.extend_from_slice(&descriptor.to_be_bytes());
    }
    out.resize(start + STANDARD_BYTES, 0);
}
