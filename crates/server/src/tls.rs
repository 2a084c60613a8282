//! The TLS of front ends from PEM files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, RootCertStore, ServerConfig};

/// The TLS of a front end, if it has any.
pub(crate) type Tls = Option<Arc<ServerConfig>>;

/// The TLS files of a front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain of the server, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Authorities that sign clients' certificates, PEM; without it clients are asked for none.
    pub client_ca: Option<PathBuf>,
}

/// The front ends that speak TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFrontEnd {
    /// Where there is a client CA, every client shows a certificate.
    Nbd,
    /// A client shows a certificate or none: tokens are shown behind it.
    Http,
}

impl TlsFrontEnd {
    /// As people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TlsFrontEnd::Nbd => "NBD",
            TlsFrontEnd::Http => "HTTP",
        }
    }
}

/// Why TLS files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read as PEM.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: pem::Error,
    },
    /// A file holds no certificate.
    #[error("{} holds no certificate", path.display())]
    NoCertificate {
        /// Which.
        path: PathBuf,
    },
    /// The files do not fit together.
    #[error("TLS by {}, its key and the client CA cannot be used: {source}", cert.display())]
    Unfit {
        /// The certificate.
        cert: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl TlsError {
    /// Whether the process may not read a file that may be good.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        let TlsError::File { source: pem::Error::Io(source), .. } = self else { return false };
        source.kind() == io::ErrorKind::PermissionDenied
    }
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}

/// Loads the server's certificate chain and key, and what clients' are signed by, if anything.
///
/// # Errors
/// When a file cannot be read, or they do not fit together.
pub fn load_tls(files: &TlsFiles, front_end: TlsFrontEnd) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|source| TlsError::File { path: files.key.clone(), source })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unfit(&files.cert, error))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| unfit(&files.cert, error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match front_end {
                TlsFrontEnd::Nbd => verifier,
                TlsFrontEnd::Http => verifier.allow_unauthenticated(),
            };
            builder.with_client_cert_verifier(
                verifier.build().map_err(|error| unfit(&files.cert, error))?,
            )
        }
    };
    let mut config =
        builder.with_single_cert(chain, key).map_err(|error| unfit(&files.cert, error))?;
    if front_end == TlsFrontEnd::Http {
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
    }
    if files.client_ca.is_some() {
        // A session that is taken up again shows no certificate: one that has expired since would
        // be let in.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

/// Why the first certificate of a file is not valid so long from now, if that is so: clients will
/// say so too.
#[must_use]
pub fn untimely(cert: &Path, ahead: Duration) -> Option<String> {
    let certificate = certificates(cert).ok()?.into_iter().next()?;
    let mut roots = RootCertStore::empty();
    // The signer does not matter: only its time is asked for, which comes first.
    roots.add(certificate.clone()).ok()?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    let name = ServerName::try_from("localhost").ok()?;
    let verifier = verifier.build().ok()?;
    let then = Duration::from_secs(UnixTime::now().as_secs()).saturating_add(ahead);
    let then = UnixTime::since_unix_epoch(then);
    let verified = verifier.verify_server_cert(&certificate, &[], &name, &[], then);
    match verified {
        Err(rustls::Error::InvalidCertificate(
            why @ (CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }),
        )) => Some(why.to_string()),
        _ => None,
    }
}

/// Whether the first certificate of a file is good for a server of this name.
pub(crate) fn has_name(cert: &Path, name: &str) -> bool {
    let found = certificates(cert).ok().and_then(|all| all.into_iter().next());
    let (Some(certificate), Ok(name)) = (found, ServerName::try_from(name)) else { return false };
    ParsedCertificate::try_from(&certificate)
        .is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
}

fn unfit(cert: &Path, error: impl std::error::Error + Send + Sync + 'static) -> TlsError {
    TlsError::Unfit { cert: cert.to_owned(), source: Box::new(error) }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::File { path: path.to_owned(), source };
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(failed)?
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    if found.is_empty() {
        return Err(TlsError::NoCertificate { path: path.to_owned() });
    }
    Ok(found)
}
