//! The identity of a unit, as INQUIRY tells it, and the designators that carry it.

/// Which unit this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// T10 vendor identification: 8 characters at most.
    pub vendor: String,
    /// Product identification: 16 characters at most.
    pub product: String,
    /// Product revision: 4 characters at most.
    pub revision: String,
    /// Unit serial number: the same for a unit for ever, and of no other unit; 240 characters at
    /// most.
    pub serial: String,
    /// 60 bits of a locally assigned NAA designator; the upper four are left out.
    pub naa: u64,
    /// The target's iSCSI name.
    pub target: String,
    /// The relative identifier of the target's port.
    pub port: u16,
    /// The target port group.
    pub port_group: u16,
}

impl Identity {
    /// The SCSI name of the target's port: its name and its portal group.
    #[must_use]
    pub fn port_name(&self) -> String {
        format!("{},t,0x{:04x}", self.target, self.port_group)
    }

    /// The NAA designator.
    #[must_use]
    pub fn naa_bytes(&self) -> [u8; 8] {
        (3 << 60 | self.naa & (u64::MAX >> 4)).to_be_bytes()
    }
}

/// Appends a text of fixed width: what is too long is cut, what no such text holds is a space.
pub(super) fn put_padded(text: &str, width: usize, out: &mut Vec<u8>) {
    let end = out.len() + width;
    out.extend(text.bytes().take(width).map(printable));
    out.resize(end, b' ');
}

/// Appends a text of at most `max` bytes.
pub(super) fn put_text(text: &str, max: usize, out: &mut Vec<u8>) {
    out.extend(text.bytes().take(max).map(printable));
}

fn printable(byte: u8) -> u8 {
    if (0x20..0x7f).contains(&byte) { byte } else { b' ' }
}
