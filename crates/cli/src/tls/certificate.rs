//! What a certificate says of itself, as far as this command asks.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, anyhow};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use units::WallTime;
use yasna::models::TaggedDerValue;
use yasna::{ASN1Result, BERReader, BERReaderSeq, Tag};

/// Names of things in certificates (RFC 5280).
const COMMON_NAME: &[u64] = &[2, 5, 4, 3];
const SUBJECT_KEY_ID: &[u64] = &[2, 5, 29, 14];
const SUBJECT_ALT_NAME: &[u64] = &[2, 5, 29, 17];
const IP_ADDRESS: u64 = 7;

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
        Certificate::of(&der).map_err(|_| anyhow!("it is none")).with_context(cannot)
    }

    pub fn of(der: &[u8]) -> ASN1Result<Certificate> {
        yasna::parse_der(der, |whole| {
            whole.read_sequence(|parts| {
                let certificate = parts.next().read_sequence(fields)?;
                // The signature, which TLS looks at.
                skip(parts, 2)?;
                Ok(certificate)
            })
        })
    }
}

fn skip(fields: &mut BERReaderSeq<'_, '_>, count: usize) -> ASN1Result<()> {
    (0..count).try_for_each(|_| fields.next().read_der().map(drop))
}

fn fields(fields: &mut BERReaderSeq<'_, '_>) -> ASN1Result<Certificate> {
    fields.read_optional(|version| version.read_tagged(Tag::context(0), |it| it.read_der()))?;
    // Serial number, algorithm, issuer.
    skip(fields, 3)?;
    let expires = fields.next().read_sequence(|times| {
        skip(times, 1)?;
        time(times.next())
    })?;
    let subject = fields.next().collect_sequence_of(|set| {
        set.collect_set_of(|pair| {
            pair.read_sequence(|pair| Ok((pair.next().read_oid()?, pair.next().read_tagged_der()?)))
        })
    })?;
    // The key.
    skip(fields, 1)?;
    let extensions = fields.read_optional(|all| {
        all.read_tagged(Tag::context(3), |all| all.collect_sequence_of(extension))
    })?;
    let name = subject.iter().flatten().find(|(kind, _)| kind.components() == COMMON_NAME);
    let common_name = name.map(|(_, text)| shown(text.value()));
    let mut found = Certificate { common_name, names: Vec::new(), expires, key_id: None };
    for (kind, value) in extensions.into_iter().flatten() {
        match &kind[..] {
            SUBJECT_KEY_ID => found.key_id = Some(yasna::parse_der(&value, |it| it.read_bytes())?),
            SUBJECT_ALT_NAME => {
                let names = yasna::parse_der(&value, |names| {
                    names.collect_sequence_of(|it| it.read_tagged_der())
                })?;
                found.names = names.iter().map(name_text).collect();
            }
            _ => {}
        }
    }
    Ok(found)
}

/// An extension's kind and value.
fn extension(extension: BERReader<'_, '_>) -> ASN1Result<(Vec<u64>, Vec<u8>)> {
    extension.read_sequence(|parts| {
        let kind = parts.next().read_oid()?.into_components();
        // Whether it is critical.
        parts.read_optional(|critical| critical.read_bool())?;
        Ok((kind, parts.next().read_bytes()?))
    })
}

/// As a terminal may show it.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).replace(char::is_control, "?")
}

fn name_text(name: &TaggedDerValue) -> String {
    let value = name.value();
    match name.tag().tag_number {
        IP_ADDRESS => match (<[u8; 4]>::try_from(value), <[u8; 16]>::try_from(value)) {
            (Ok(four), _) => IpAddr::from(four).to_string(),
            (_, Ok(six)) => IpAddr::from(six).to_string(),
            _ => shown(value),
        },
        _ => shown(value),
    }
}

fn time(reader: BERReader<'_, '_>) -> ASN1Result<WallTime> {
    let is_short = reader.lookahead_tag()? == yasna::tags::TAG_UTCTIME;
    let nanos = if is_short {
        reader.read_utctime()?.datetime().unix_timestamp_nanos()
    } else {
        reader.read_generalized_time()?.datetime().unix_timestamp_nanos()
    };
    // Times beyond ours are told as the first or last of them.
    Ok(WallTime::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;
    use rustls::pki_types::pem::PemObject;

    use super::{Certificate, CertificateDer};
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
            assert!(Certificate::of(&der[..length]).is_err(), "{length}");
        }
        for place in 0..der.len() {
            for byte in [0, 0x17, 0x30, 0x39, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = der.to_vec();
                changed[place] = byte;
                let _ = Certificate::of(&changed);
            }
        }
    }
}
