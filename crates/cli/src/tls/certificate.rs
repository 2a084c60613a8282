//! What a certificate says of itself, as far as this command asks.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, anyhow};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use units::WallTime;
use wire::der::{OBJECT_ID, OCTETS, SEQUENCE, all, any, take};

/// Names of things in certificates (RFC 5280), as DER has them.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const SUBJECT_KEY_ID: &[u8] = &[0x55, 29, 14];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 29, 17];
/// Tags: what only later versions have, and times with two digits for the year and with four.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const SHORT_TIME: u8 = 0x17;
const LONG_TIME: u8 = 0x18;
/// The kind of an alternative name that is an address.
const IP_ADDRESS: u8 = 0x87;

/// What a certificate says of itself.
#[derive(Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The common name, if the subject has one.
    pub common_name: Option<String>,
    /// Names and addresses of the server.
    pub names: Vec<String>,
    pub expires: WallTime,
    /// By which certificates name the key that signed them.
    pub key_id: Option<Vec<u8>>,
}

impl Certificate {
    /// The first certificate of a PEM file.
    pub fn read(file: &Path) -> anyhow::Result<Certificate> {
        let cannot = || format!("cannot read a certificate from {}", file.display());
        let der = CertificateDer::from_pem_file(file).with_context(cannot)?;
        Certificate::of(&der).ok_or_else(|| anyhow!("it is none")).with_context(cannot)
    }

    pub fn of(der: &[u8]) -> Option<Certificate> {
        let (whole, nothing) = take(der, SEQUENCE)?;
        let (fields, rest) = take(whole, SEQUENCE)?;
        // Behind it the algorithm and the signature, which TLS looks at.
        let is_whole = nothing.is_empty() && all(rest)?.len() == 2;
        let mut fields = all(fields).filter(|_| is_whole)?.into_iter().peekable();
        fields.next_if(|(tag, _)| *tag == VERSION);
        // Before it serial number, algorithm, issuer.
        let (_, times) = fields.nth(3)?;
        let (_, subject) = fields.next()?;
        // Behind the key.
        let extensions = fields.nth(1).filter(|(tag, _)| *tag == EXTENSIONS);
        let (common_name, expires) = (common_name(subject)?, time(*all(times)?.get(1)?)?);
        let mut found = Certificate { common_name, names: Vec::new(), expires, key_id: None };
        if let Some((_, extensions)) = extensions {
            for (_, extension) in all(take(extensions, SEQUENCE)?.0)? {
                found.add(extension)?;
            }
        }
        Some(found)
    }

    /// Takes up an extension: its kind, whether it is critical, and its value.
    fn add(&mut self, extension: &[u8]) -> Option<()> {
        let (kind, rest) = take(extension, OBJECT_ID)?;
        let (_, value) = *all(rest)?.last()?;
        match kind {
            SUBJECT_KEY_ID => self.key_id = Some(take(value, OCTETS)?.0.to_vec()),
            SUBJECT_ALT_NAME => {
                let names = all(take(value, SEQUENCE)?.0)?;
                self.names = names.into_iter().map(name_text).collect();
            }
            _ => {}
        }
        Some(())
    }
}

/// The first common name of a subject.
fn common_name(subject: &[u8]) -> Option<Option<String>> {
    for (_, set) in all(subject)? {
        for (_, pair) in all(set)? {
            let (kind, value) = take(pair, OBJECT_ID)?;
            if kind == COMMON_NAME {
                return Some(Some(shown(any(value)?.1)));
            }
        }
    }
    Some(None)
}

/// As a terminal may show it.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).replace(char::is_control, "?")
}

fn name_text((kind, value): (u8, &[u8])) -> String {
    match (kind, <[u8; 4]>::try_from(value), <[u8; 16]>::try_from(value)) {
        (IP_ADDRESS, Ok(four), _) => IpAddr::from(four).to_string(),
        (IP_ADDRESS, _, Ok(six)) => IpAddr::from(six).to_string(),
        _ => shown(value),
    }
}

/// A time: `YYMMDDHHMMSSZ`, from 1950 to 2049, or with four digits for the year.
fn time((tag, text): (u8, &[u8])) -> Option<WallTime> {
    let text = std::str::from_utf8(text).ok()?;
    let is_late = text.as_bytes().first().is_some_and(|&digit| digit < b'5');
    let text = match tag {
        SHORT_TIME if is_late => format!("20{text}"),
        SHORT_TIME => format!("19{text}"),
        LONG_TIME => text.to_owned(),
        _ => return None,
    };
    let is_one = text.len() == 15 && text.ends_with('Z');
    let digits =
        text.strip_suffix('Z').filter(|all| is_one && all.bytes().all(|b| b.is_ascii_digit()))?;
    let part = |from: usize| &digits[from..from + 2];
    let year = &digits[..4];
    // Times before ours are told as the first of them.
    if year < "1970" {
        return Some(WallTime::from_nanos(0));
    }
    // Those beyond ours as the last.
    let far = || (year > "2500").then(|| WallTime::from_nanos(u64::MAX));
    let [month, day, hour, minute, second] = [4, 6, 8, 10, 12].map(part);
    let rfc = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    rfc.parse().ok().or_else(far)
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;
    use rustls::pki_types::pem::PemObject;

    use super::{Certificate, CertificateDer, LONG_TIME, SHORT_TIME, WallTime, time};
    use crate::tls::authority::Authority;

    #[test]
    fn whatever_was_cut_or_changed_is_read_or_not_and_never_panics() {
        let authority = Authority::make().expect("made");
        let names = ["a.example", "10.0.0.5", "2001:db8::1"];
        let known = names.map(|name| ServerName::try_from(name).expect("a name"));
        let (pem, _) = authority.issue("server", &known, 30).expect("signed");
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
        assert_eq!(Certificate::of(&der).expect("a certificate").names, names);
        for length in 0..der.len() {
            assert!(Certificate::of(&der[..length]).is_none(), "{length}");
        }
        for place in 0..der.len() {
            for byte in [0, 0x17, 0x30, 0x39, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = der.to_vec();
                changed[place] = byte;
                let _ = Certificate::of(&changed);
                // A length of eight bytes.
                changed
                    .splice(place..place, [0x88, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf0]);
                let _ = Certificate::of(&changed);
            }
        }
    }

    #[test]
    fn times_are_read_in_both_forms_and_nothing_else_is() {
        let told = |tag, text: &str| time((tag, text.as_bytes())).map(|time| time.to_string());
        let short = told(SHORT_TIME, "281128105545Z").expect("a time");
        assert!(short.starts_with("2028-11-28T10:55:45"), "{short}");
        assert_eq!(told(LONG_TIME, "20281128105545Z"), Some(short));
        assert!(told(LONG_TIME, "20991231235959Z").expect("a time").starts_with("2099-12-31"));
        assert!(told(SHORT_TIME, "500101000000Z").expect("a time").starts_with("1970-01-01"));
        assert_eq!(time((LONG_TIME, b"99991231235959Z")), Some(WallTime::from_nanos(u64::MAX)));
        for wrong in ["2811281055Z", "281128105545", "28112810554:Z", "281328105545Z", "", "\u{e4}"]
        {
            assert_eq!(told(SHORT_TIME, wrong), None, "{wrong}");
        }
    }
}
