//! Numbers in what was read. Beyond the end there are zeros: lengths are checked where they matter,
//! and a reader of disks never panics.

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    if let Some(found) = at.checked_add(N).and_then(|end| bytes.get(at..end)) {
        field.copy_from_slice(found);
    }
    field
}

pub fn byte(bytes: &[u8], at: usize) -> u8 {
    get::<1>(bytes, at)[0]
}

pub fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(get(bytes, at))
}

pub fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(bytes, at))
}

pub fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(bytes, at))
}

pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(get(bytes, at))
}

pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(get(bytes, at))
}

pub fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(get(bytes, at))
}

/// Puts bytes in; what does not fit is left out.
pub fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    if let Some(target) = at.checked_add(field.len()).and_then(|end| bytes.get_mut(at..end)) {
        target.copy_from_slice(field);
    }
}

/// A number of which the disk has the halves in two places.
pub fn halves(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The bytes up to the first zero.
pub fn text(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

/// An identity as it is printed: 8-4-4-4-12.
pub fn uuid(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (index, byte) in bytes.iter().take(16).enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{be32, halves, le16, le64, text, uuid};

    #[test]
    fn beyond_the_end_there_are_zeros() {
        assert_eq!(le16(&[1, 2, 3], 1), 0x0302);
        assert_eq!(le16(&[1, 2, 3], 2), 0);
        assert_eq!(le64(&[1], usize::MAX), 0);
        assert_eq!(be32(&[1, 2, 3, 4], 0), 0x0102_0304);
        assert_eq!(halves(1, 2), 0x2_0000_0001);
        assert_eq!(text(b"ROOT\0x"), b"ROOT");
        assert_eq!(uuid(&[0xab; 16]), "abababab-abab-abab-abab-abababababab");
    }
}
