//! The subject of a client's certificate, in words, as the log and audit records name the client:
//! `CN=backup,O=Example`, the most specific part first.
//!
//! TLS has verified the certificate before; one that cannot be read all the same has no subject.

use wire::der::{OBJECT_ID, SEQUENCE, SET, any, take};

/// The version, which certificates of the first do not say.
const VERSION: u8 = 0xa0;
/// The fields between the version and the subject: serial number, algorithm, issuer, validity.
const BEFORE_SUBJECT: usize = 4;
/// The kind of a common name.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 3];
/// Characters of a subject that are told.
const CHARACTERS_MAX: usize = 256;

/// The subject of a certificate in DER.
pub(crate) fn subject(certificate: &[u8]) -> Option<String> {
    let mut parts = parts(certificate)?;
    parts.reverse();
    let told = |(kind, value): &(&[u8], &[u8])| {
        format!("{}={}", kind_name(kind), escaped(&String::from_utf8_lossy(value)))
    };
    let told: Vec<String> = parts.iter().map(told).collect();
    let told: String = told.join(",").chars().take(CHARACTERS_MAX).collect();
    (!told.is_empty()).then_some(told)
}

/// The common name in a certificate's subject; none where there are several, or none that is text.
pub(crate) fn common_name(certificate: &[u8]) -> Option<String> {
    let parts = parts(certificate)?;
    let mut names = parts.iter().filter(|(kind, _)| *kind == COMMON_NAME);
    let (Some((_, name)), None) = (names.next(), names.next()) else { return None };
    String::from_utf8(name.to_vec()).ok()
}

/// The parts of a subject in the order of the certificate: their kinds and values.
fn parts(certificate: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let (certificate, _) = take(certificate, SEQUENCE)?;
    let (mut rest, _) = take(certificate, SEQUENCE)?;
    if let Some((_, after)) = take(rest, VERSION) {
        rest = after;
    }
    for _ in 0..BEFORE_SUBJECT {
        rest = any(rest)?.2;
    }
    let (mut name, _) = take(rest, SEQUENCE)?;
    let mut parts = Vec::new();
    while !name.is_empty() {
        let (mut set, after) = take(name, SET)?;
        name = after;
        while !set.is_empty() {
            let (pair, after) = take(set, SEQUENCE)?;
            set = after;
            let (kind, value) = take(pair, OBJECT_ID)?;
            parts.push((kind, any(value)?.1));
        }
    }
    Some(parts)
}

/// The short name of a part's kind, or its object identifier in hexadecimal digits.
fn kind_name(kind: &[u8]) -> String {
    let short = match kind {
        COMMON_NAME => "CN",
        [0x55, 0x04, 6] => "C",
        [0x55, 0x04, 7] => "L",
        [0x55, 0x04, 8] => "ST",
        [0x55, 0x04, 10] => "O",
        [0x55, 0x04, 11] => "OU",
        _ => return kind.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    short.to_owned()
}

/// No text of a client's begins another part, a line, or a field of the log.
fn escaped(text: &str) -> String {
    let mut safe = String::new();
    for character in text.chars() {
        match character {
            ',' | '=' | '+' | '"' | '\\' => safe.extend(['\\', character]),
            _ if character.is_control() => safe.extend(character.escape_default()),
            _ => safe.push(character),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::{common_name, subject};
    use crate::nbd::tests::tools::{NEW_KEY, openssl};

    fn certificate(parts: &str) -> Vec<u8> {
        let dir = tempfile::tempdir().expect("directory");
        let words = format!("req -x509 {NEW_KEY} -utf8 -outform DER -keyout key -out cert -subj");
        openssl(dir.path(), "now", &format!("{words} /{parts}"));
        std::fs::read(dir.path().join("cert")).expect("a certificate")
    }

    #[test]
    fn a_subject_is_told_from_its_most_specific_part_on() {
        let both = certificate("C=DE/O=Example,\u{a0}Inc/CN=node=3\n");
        let told = subject(&both);
        assert_eq!(told.as_deref(), Some("CN=node\\=3\\n,O=Example\\,\u{a0}Inc,C=DE"));
        assert_eq!(common_name(&both).as_deref(), Some("node=3\n"));
        assert_eq!(subject(&certificate("")), None);
        assert_eq!(common_name(&certificate("C=DE")), None);
        assert_eq!(common_name(&certificate("CN=one/CN=two")), None);
        let long = format!("/OU={}", "x".repeat(60)).repeat(20);
        let told = subject(&certificate(&long[1..])).expect("a subject");
        assert_eq!(told.len(), super::CHARACTERS_MAX);
    }

    #[test]
    fn whatever_was_cut_or_changed_is_read_or_not_and_never_panics() {
        let whole = certificate("CN=backup");
        for length in 0..whole.len() {
            subject(&whole[..length]);
            common_name(&whole[..length]);
        }
        for place in 0..whole.len() {
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = whole.clone();
                changed[place] = byte;
                subject(&changed);
                common_name(&changed);
            }
        }
    }
}
