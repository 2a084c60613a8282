//! Values in DER, as certificates are made of (X.690): tag, length, content.

/// SEQUENCE, and SEQUENCE OF.
pub const SEQUENCE: u8 = 0x30;
/// SET, and SET OF.
pub const SET: u8 = 0x31;
/// OBJECT IDENTIFIER.
pub const OBJECT_ID: u8 = 0x06;
/// OCTET STRING.
pub const OCTETS: u8 = 0x04;

/// A value of this tag: its content, and what stands behind it.
#[must_use]
pub fn take(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    any(bytes).and_then(|(found, content, rest)| (found == tag).then_some((content, rest)))
}

/// A value: its tag, its content, and what stands behind it.
#[must_use]
pub fn any(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let digits = usize::from(first & 0x7f);
    let (length, rest) = match first {
        ..0x80 => (digits, rest),
        // Longer lengths are those of no certificate.
        _ if digits > 4 => return None,
        _ => {
            let (digits, rest) = rest.split_at_checked(digits)?;
            (digits.iter().fold(0, |length, &d| length << 8 | usize::from(d)), rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// All values of a content, each with its tag.
#[must_use]
pub fn all(mut content: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut found = Vec::new();
    while !content.is_empty() {
        let (tag, value, rest) = any(content)?;
        found.push((tag, value));
        content = rest;
    }
    Some(found)
}
