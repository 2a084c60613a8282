//! TLS with a server: the authority that it is believed by, and why it is not.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, InvalidMessage, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::ExitCode;

/// The files by which a server is known, and its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTls {
    /// Certificates of the authorities that are believed, and of no others, PEM.
    pub ca: PathBuf,
    /// The client's own certificate chain, and its key, PEM.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// Why there is no TLS with a server, or none that is to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distrust {
    /// No authority is given.
    NoAuthority,
    /// The host is no name that a certificate could have.
    NoName,
    /// Another authority has signed its certificate.
    OtherAuthority,
    /// Its certificate has other names.
    OtherName,
    /// Its certificate has expired.
    Expired,
    /// Its certificate is not valid yet.
    NotYet,
    /// Its certificate is that of an authority.
    IsAuthority,
    /// It does not speak TLS.
    Plain,
    /// It does not take the certificate of this client.
    Refuses,
    /// Something else.
    Other,
}

impl Distrust {
    /// The exit code of a command that met it.
    pub(super) fn exit_code(self) -> ExitCode {
        match self {
            Distrust::NoAuthority | Distrust::NoName => ExitCode::Usage,
            Distrust::Refuses => ExitCode::Refused,
            _ => ExitCode::Failed,
        }
    }

    /// The remedy.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Distrust::NoAuthority => {
                "--ca FILE (HINDSIGHT_CA) names the certificate of the authority that signed the \
                 server's; those of the operating system are not looked at"
            }
            Distrust::NoName => "give it as https://host:port",
            Distrust::OtherAuthority => {
                "--ca FILE names the certificate of the authority that signed the server's; if \
                 that is the right one, somebody else answers there"
            }
            Distrust::OtherName => {
                "give the server by a name or address that its certificate has, or sign one with \
                 this name in subjectAltName"
            }
            Distrust::Expired => {
                "put a new one in its place on the server, then: systemctl reload hindsight; or \
                 the clock of this machine is wrong"
            }
            Distrust::NotYet => "the clock of this machine may be wrong",
            Distrust::IsAuthority => {
                "sign one for the server with it (docs/access.md, TLS): a certificate without \
                 CA:TRUE"
            }
            Distrust::Plain => "give it as http:// if it is a server of this machine",
            Distrust::Refuses => {
                "--cert and --key name a certificate that an authority of [http] tls_client_ca \
                 has signed, and that has not expired; without them a token is shown"
            }
            Distrust::Other => "`openssl s_client -connect HOST:PORT` shows what the server sends",
        }
    }

    fn of(error: &rustls::Error) -> Distrust {
        use CertificateError as Certificate;
        match error {
            rustls::Error::InvalidCertificate(why) => match why {
                Certificate::UnknownIssuer | Certificate::BadSignature => Distrust::OtherAuthority,
                Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                    Distrust::OtherName
                }
                Certificate::Expired | Certificate::ExpiredContext { .. } => Distrust::Expired,
                Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                    Distrust::NotYet
                }
                // The verifier's own error is of a crate that is none of ours.
                Certificate::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
                    Distrust::IsAuthority
                }
                _ => Distrust::Other,
            },
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Distrust::Plain,
            rustls::Error::AlertReceived(
                AlertDescription::CertificateRequired
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::UnknownCA
                | AlertDescription::DecryptError,
            ) => Distrust::Refuses,
            _ => Distrust::Other,
        }
    }
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Distrust::NoAuthority => "needs --ca: the authority that signed its certificate",
            Distrust::NoName => "has no name that a certificate could have",
            Distrust::OtherAuthority => "shows a certificate that no authority of --ca has signed",
            Distrust::OtherName => "shows a certificate of other names",
            Distrust::Expired => "shows a certificate that has expired",
            Distrust::NotYet => "shows a certificate that is not valid yet",
            Distrust::IsAuthority => "shows the certificate of an authority, and none of a server",
            Distrust::Plain => "does not speak TLS",
            Distrust::Refuses => "does not take the certificate of this client",
            Distrust::Other => "cannot be talked to: its TLS failed",
        })
    }
}

/// A file for TLS cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {}", path.display())]
pub struct TlsFileError {
    path: PathBuf,
    source: Box<dyn Error + Send + Sync>,
}

fn unfit<E: Into<Box<dyn Error + Send + Sync>>>(path: &Path) -> impl Fn(E) -> TlsFileError {
    |source| TlsFileError { path: path.to_owned(), source: source.into() }
}

/// Loads the files.
pub(super) fn load(files: &ClientTls) -> Result<Arc<ClientConfig>, TlsFileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&files.ca)? {
        roots.add(certificate).map_err(unfit(&files.ca))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(unfit(&files.ca))?;
    let builder = builder.with_root_certificates(roots);
    let mut config = match &files.own {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let loaded = PrivateKeyDer::from_pem_file(key).map_err(unfit(key))?;
            builder.with_client_auth_cert(certificates(cert)?, loaded).map_err(unfit(key))?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<_, _>>);
    let found: Vec<_> = found.map_err(unfit(path))?;
    if found.is_empty() {
        return Err(unfit(path)("it holds no certificate"));
    }
    Ok(found)
}

/// A handshake that can begin.
pub(super) struct Shaking {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Shaking {
    /// One with the server at `HOST:PORT`.
    pub(super) fn new(
        authority: &str,
        config: Option<&Arc<ClientConfig>>,
    ) -> Result<Shaking, (Distrust, io::Error)> {
        let failed = |why, text: &str| (why, io::Error::other(text));
        let config = config.ok_or_else(|| failed(Distrust::NoAuthority, "there is no --ca"))?;
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host);
        let name = name.map_err(|error| failed(Distrust::NoName, &error.to_string()))?;
        Ok(Shaking { connector: Arc::clone(config).into(), name })
    }

    pub(super) async fn shake(self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name, stream).await
    }
}

/// Why there is no TLS, if an error or a cause of it says that. A server says it last that it does
/// not take the certificate of its client: that is the error of an exchange.
pub(super) fn distrust(error: &(dyn Error + 'static)) -> Option<Distrust> {
    let mut next = Some(error);
    while let Some(cause) = next {
        let io = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(error) = io.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return Some(Distrust::of(error));
        }
        next = cause.source();
    }
    None
}
