//! Marks that make a file something else: a link, or a stand-in for bytes that are elsewhere.

use crate::bytes::{le16, le32};
use crate::error::{Error, Result};

use super::base::{text, units};

const JUNCTION: u32 = 0xA000_0003;
const SYMLINK: u32 = 0xA000_000C;
/// A link of Linux within Windows.
const LINUX_SYMLINK: u32 = 0xA000_001D;

/// What a mark says.
#[derive(Debug, PartialEq, Eq)]
pub enum Reparse {
    /// It is a link, and where that leads.
    Link(Vec<u8>),
    /// Its bytes are not here, or not as they are; which program knows, by number.
    Elsewhere(u32),
}

impl Reparse {
    /// Reads a mark.
    pub fn parse(bytes: &[u8]) -> Result<Reparse> {
        let tag = le32(bytes, 0);
        let data = bytes.get(8..).unwrap_or_default();
        let names = match tag {
            JUNCTION => 8,
            SYMLINK => 12,
            LINUX_SYMLINK => {
                return Ok(Reparse::Link(data.get(4..).unwrap_or_default().to_vec()));
            }
            tag => return Ok(Reparse::Elsewhere(tag)),
        };
        let name = |at: usize| {
            let (start, length) = (usize::from(le16(data, at)), usize::from(le16(data, at + 2)));
            data.get(names + start..names + start + length)
        };
        // As it is shown, or as it is used.
        let target = name(4).filter(|shown| !shown.is_empty()).or_else(|| name(0));
        let target = target.ok_or_else(|| Error::damaged("NTFS: a link leads nowhere"))?;
        let mut target = text(&units(target));
        for byte in &mut target {
            if *byte == b'\\' {
                *byte = b'/';
            }
        }
        Ok(Reparse::Link(target))
    }
}

#[cfg(test)]
mod tests {
    use super::Reparse;

    fn mark(tag: u32, fields: &[u16], flags: &[u8], names: &str) -> Vec<u8> {
        let mut bytes = [&tag.to_le_bytes()[..], &[0; 4]].concat();
        bytes.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
        bytes.extend(flags);
        bytes.extend(names.encode_utf16().flat_map(u16::to_le_bytes));
        bytes
    }

    #[test]
    fn links_lead_where_they_are_shown_to() {
        let link = |bytes: &[u8]| match Reparse::parse(bytes).unwrap() {
            Reparse::Link(target) => String::from_utf8(target).unwrap(),
            other => panic!("{other:?}"),
        };
        let relative = mark(0xA000_000C, &[0, 12, 12, 8], &[1, 0, 0, 0], "..\\a\\b..\\c");
        assert_eq!(link(&relative), "../c");
        let junction = mark(0xA000_0003, &[0, 16, 16, 8], &[], "\\??\\C:\\aC:\\a");
        assert_eq!(link(&junction), "C:/a");
        let unshown = mark(0xA000_0003, &[0, 16, 16, 0], &[], "\\??\\C:\\a");
        assert_eq!(link(&unshown), "/??/C:/a");
        let linux = [&0xA000_001D_u32.to_le_bytes()[..], &[0; 4], &[2, 0, 0, 0], b"a\\b"].concat();
        assert_eq!(link(&linux), "a\\b");
        assert_eq!(
            Reparse::parse(&mark(0x8000_0017, &[], &[], "")).unwrap(),
            Reparse::Elsewhere(0x8000_0017)
        );
        assert!(Reparse::parse(&mark(0xA000_000C, &[0, 60, 0, 60], &[0; 4], "a")).is_err());
        assert_eq!(Reparse::parse(&[]).unwrap(), Reparse::Elsewhere(0));
    }
}
