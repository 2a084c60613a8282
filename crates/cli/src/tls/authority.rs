//! An authority that signs certificates of servers and clients.
//!
//! 1. Keys are ECDSA P-256. An authority made by other means signs too if its key is such a one and
//!    its subject is a common name alone: its certificate is read for what has to match.
//! 2. What it signs is looked at as TLS would before anybody gets it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
    SignatureAlgorithm, SigningKey, date_time_ymd,
};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use units::{Span, WallTime};

use super::certificate::Certificate;
use crate::failure::Failure;

pub const CA_CERT: &str = "ca-cert.pem";
pub const CA_KEY: &str = "ca-key.pem";
/// An authority is good for ten years.
pub const DAYS_MAX: u32 = 3650;
/// Names in a certificate: it travels with each handshake.
pub const NAMES_MAX: usize = 100;
/// Bytes of a hash that name a key, and of that those in an authority's name.
const KEY_ID_BYTES: usize = 20;
const NAME_BYTES: usize = 4;
const HINT: &str = "ca-cert.pem and ca-key.pem have to be one pair, not expired, with a common \
                    name alone as its subject; `hindsight tls init` makes such a pair";
const SECOND_NS: u64 = 1_000_000_000;
const DAY: Span = Span(86_400 * SECOND_NS);

/// A private key.
struct Key {
    pair: EcdsaKeyPair,
    pkcs8: Vec<u8>,
}

impl Key {
    fn make() -> anyhow::Result<Key> {
        let made =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
        Key::of(made.map_err(|_| anyhow!("the system has no random numbers"))?.as_ref())
    }

    fn of(pkcs8: &[u8]) -> anyhow::Result<Key> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8, &random);
        let pair = pair.map_err(|error| anyhow!("it is no key for ECDSA P-256: {error}"))?;
        Ok(Key { pair, pkcs8: pkcs8.to_vec() })
    }

    fn id(&self) -> Vec<u8> {
        digest(&SHA256, self.der_bytes()).as_ref()[..KEY_ID_BYTES].to_vec()
    }

    fn pem(&self) -> String {
        let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
        pem::encode_config(&Pem::new("PRIVATE KEY", &self.pkcs8[..]), config)
    }
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signed = self.pair.sign(&SystemRandom::new(), message);
        signed
            .map(|signature| signature.as_ref().to_vec())
            .map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

/// An authority: its key, its certificate, and what that says.
pub struct Authority {
    key: Key,
    pub pem: String,
    der: CertificateDer<'static>,
    said: Certificate,
}

impl Authority {
    /// A new one, named after its key, so that no two have one name.
    pub fn make() -> anyhow::Result<Authority> {
        let key = Key::make()?;
        let id: String = key.id()[..NAME_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        let begins = now()?.saturating_sub(DAY);
        let expires = begins.saturating_add(days(DAYS_MAX));
        let mut params = params(&format!("hindsight CA {id}"), key.id(), begins, expires);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let made = params.self_signed(&key)?;
        let said = Certificate::of(made.der()).context("it is none")?;
        Ok(Authority { key, pem: made.pem(), der: made.into(), said })
    }

    /// That of a directory.
    pub fn read(dir: &Path) -> anyhow::Result<Authority> {
        let (cert, path) = (certificate(dir)?, dir.join(CA_KEY));
        let said = Certificate::read(&cert)?;
        let pem = std::fs::read_to_string(&cert)?;
        // Every client gets this file.
        if pem.contains("PRIVATE KEY") {
            let failure = Failure::new(format!("there is a private key in {}", cert.display()));
            return Err(failure.with_hint("leave only certificates in it").into());
        }
        let der = CertificateDer::from_pem_slice(pem.as_bytes())?;
        let cannot = || format!("cannot read the key of the authority from {}", path.display());
        let key = PrivatePkcs8KeyDer::from_pem_file(&path).with_context(cannot)?;
        let key = Key::of(key.secret_pkcs8_der()).with_context(cannot)?;
        Ok(Authority { key, pem, der, said })
    }

    pub fn key_pem(&self) -> String {
        self.key.pem()
    }

    /// The certificate and the key, PEM, of a server with these names, or without any of a client.
    pub fn issue(
        &self,
        common_name: &str,
        names: &[ServerName<'static>],
        good_days: u32,
    ) -> anyhow::Result<(String, String)> {
        let key = Key::make()?;
        let begins = now()?.saturating_sub(DAY);
        let expires = begins.saturating_add(days(good_days)).min(self.said.expires);
        let mut params = params(common_name, key.id(), begins, expires);
        params.is_ca = IsCa::ExplicitNoCa;
        params.subject_alt_names = names.iter().map(alternative).collect::<Result<_, _>>()?;
        params.extended_key_usages = vec![match names {
            [] => ExtendedKeyUsagePurpose::ClientAuth,
            _ => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        params.use_authority_key_identifier_extension = self.said.key_id.is_some();
        let own = self.said.common_name.as_deref().unwrap_or_default();
        let own_id = self.said.key_id.clone().unwrap_or_default();
        let own = self::params(own, own_id, begins, expires);
        let cert = params.signed_by(&key, &Issuer::new(own, &self.key))?;
        self.check(cert.der(), names).map_err(|error| {
            let said = format!("nobody would take what the authority signs: {error:#}");
            Failure::new(said).with_hint(HINT)
        })?;
        Ok((cert.pem(), key.pem()))
    }

    /// Looks at a certificate as TLS will.
    fn check(&self, cert: &CertificateDer<'_>, names: &[ServerName<'_>]) -> anyhow::Result<()> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone())?;
        let (roots, now) = (Arc::new(roots), UnixTime::now());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        if names.is_empty() {
            let clients = WebPkiClientVerifier::builder_with_provider(roots, provider).build()?;
            clients.verify_client_cert(cert, &[], now)?;
            return Ok(());
        }
        let servers = WebPkiServerVerifier::builder_with_provider(roots, provider).build()?;
        for name in names {
            servers.verify_server_cert(cert, &[], name, &[], now)?;
        }
        Ok(())
    }
}

fn alternative(name: &ServerName<'_>) -> Result<SanType, rcgen::Error> {
    match name {
        ServerName::IpAddress(address) => Ok(SanType::IpAddress((*address).into())),
        name => Ok(SanType::DnsName(name.to_str().as_ref().try_into()?)),
    }
}

/// The certificate of the authority in a directory; an error says what a directory is for.
pub fn certificate(dir: &Path) -> anyhow::Result<PathBuf> {
    let cert = dir.join(CA_CERT);
    if cert.try_exists().with_context(|| format!("cannot read {}", cert.display()))? {
        return Ok(cert);
    }
    let failure = Failure::new(format!("there is no {}", cert.display()));
    let hint = format!("hindsight tls init --name storage.example {} makes it", dir.display());
    Err(failure.with_hint(hint).into())
}

/// This second.
pub fn now() -> anyhow::Result<WallTime> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.context("the clock of this machine is before 1970")?;
    Ok(WallTime::from_nanos(since.as_secs().saturating_mul(SECOND_NS)))
}

fn days(count: u32) -> Span {
    Span(DAY.0.saturating_mul(count.into()))
}

fn params(name: &str, id: Vec<u8>, begins: WallTime, expires: WallTime) -> CertificateParams {
    let time = |time: WallTime| date_time_ymd(1970, 1, 1) + Duration::from_nanos(time.as_nanos());
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = time(begins);
    params.not_after = time(expires);
    // A serial number is positive and has at most as many bytes.
    let mut serial = id.clone();
    serial.iter_mut().take(1).for_each(|first| *first &= 0x7f);
    params.serial_number = Some(serial.into());
    params.key_identifier_method = KeyIdMethod::PreSpecified(id);
    params
}
