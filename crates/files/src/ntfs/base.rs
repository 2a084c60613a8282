//! What all of NTFS is put together with: kinds, references, texts.

use crate::bytes::le16;

/// Kinds of attributes.
pub mod kind {
    pub const STANDARD: u32 = 0x10;
    pub const LIST: u32 = 0x20;
    pub const NAME: u32 = 0x30;
    pub const LABEL: u32 = 0x60;
    pub const VOLUME: u32 = 0x70;
    pub const DATA: u32 = 0x80;
    pub const INDEX_ROOT: u32 = 0x90;
    pub const INDEX: u32 = 0xA0;
    pub const REPARSE: u32 = 0xC0;
}

/// How many bits of a reference are a record's number: the lower ones.
pub const NUMBER_BITS: u32 = 48;
/// The bits of a reference that are a record's number.
pub const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// The name of the attributes that hold names.
pub const NAMES: &[u16] = &[b'$' as u16, b'I' as u16, b'3' as u16, b'0' as u16];

/// Text of a disk; halves of characters are kept apart, so that names stay different.
pub fn text(units: &[u16]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for unit in char::decode_utf16(units.iter().copied()) {
        match unit {
            Ok(character) => {
                bytes.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Err(half) => {
                let half = half.unpaired_surrogate();
                let low = |shift: u16| 0x80 | (half >> shift & 0x3F) as u8;
                bytes.extend([0xE0 | (half >> 12) as u8, low(6), low(0)]);
            }
        }
    }
    bytes
}

/// The units of UTF-16 that bytes are.
pub fn units(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|two| le16(two, 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn halves_of_characters_stay_different() {
        assert_eq!(text(&[0x61, 0xE4, 0xD83D, 0xDE00]), "a\u{e4}\u{1f600}".as_bytes());
        assert_eq!(text(&[0xD83D]), [0xED, 0xA0, 0xBD]);
        assert_ne!(text(&[0xD83D]), text(&[0xD83E]));
    }
}
