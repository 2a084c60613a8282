//! Exposure of the listeners: TLS, and what must protect addresses that others can reach.

use std::time::Duration;

use crate::listen::{self, Protection};
use crate::tls::{Tls, TlsFiles, TlsFrontEnd, load_tls, untimely};
use crate::who::Certificates;
use crate::{Config, StartError};

/// The TLS of a server over TCP.
#[derive(Clone, Debug)]
pub(crate) struct AllTls {
    pub(crate) nbd: Tls,
    pub(crate) http: Tls,
}

impl AllTls {
    pub(crate) fn load(config: &Config) -> Result<AllTls, StartError> {
        let has_authority = config.http_tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        if has_authority && config.access.certificates == Certificates::Any {
            tracing::warn!(
                "every certificate of http.tls_client_ca is an admin's: [access] certificates = \
                 \"named\" gives each what the token of its name may"
            );
        }
        Ok(AllTls {
            nbd: tls(config.nbd_tls.as_ref(), TlsFrontEnd::Nbd)?,
            http: tls(config.http_tls.as_ref(), TlsFrontEnd::Http)?,
        })
    }
}

fn tls(files: Option<&TlsFiles>, front_end: TlsFrontEnd) -> Result<Tls, StartError> {
    let Some(files) = files else { return Ok(None) };
    let tls = load_tls(files, front_end).map_err(StartError::Tls)?;
    // No reason not to serve those who come by the unix socket.
    if let Some(why) = untimely(&files.cert, Duration::ZERO) {
        let (cert, name) = (files.cert.display(), front_end.name());
        tracing::warn!(%cert, why, "{name} clients over TCP will refuse the certificate");
    }
    Ok(Some(tls))
}

pub(crate) fn nbd_protection(config: &Config) -> Protection<'_> {
    let authenticates = config.nbd_tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    Protection {
        is_enough: config.insecure || authenticates,
        trusted: &[],
        hint: "give --tls-cert, --tls-key and --tls-client-ca, or --insecure to allow it anyway",
    }
}

pub(crate) fn http_protection(config: &Config) -> Protection<'_> {
    Protection {
        // Every client shows a token or a certificate.
        is_enough: config.insecure || config.http_tls.is_some(),
        trusted: &[],
        hint: "give --http-tls-cert and --http-tls-key; without TLS the token can be read on the \
               way: --insecure allows that anyway",
    }
}

/// iSCSI has no encryption: CHAP is enough in networks that the operator trusts. That every login
/// there has to be proved the logins see to, so that a volume that is made later is protected too.
pub(crate) fn iscsi_protection(config: &Config) -> Protection<'_> {
    Protection {
        is_enough: config.insecure,
        trusted: &config.iscsi_trusted,
        hint: "iSCSI has no encryption: give a loopback address, or name the network in [iscsi] \
               trusted_networks, where targets with CHAP are served, or give --insecure to serve \
               all of them to everybody",
    }
}

/// NFS has neither encryption nor a proof of who asks: it is served in networks that the operator
/// trusts. There each share has a list of whom it allows, and an empty one allows nobody.
pub(crate) fn nfs_protection(config: &Config) -> Protection<'_> {
    Protection {
        is_enough: config.insecure,
        trusted: &config.nfs_trusted,
        hint: "NFS has no encryption, and believes who asks: give a loopback address, or name the \
               network in [nfs] trusted_networks, or give --insecure to serve it in any",
    }
}

pub(crate) fn refuse_exposed(config: &Config) -> Result<(), StartError> {
    listen::check(&config.nbd, nbd_protection(config))?;
    listen::check(&config.iscsi, iscsi_protection(config))?;
    listen::check(&config.nfs, nfs_protection(config))?;
    for intercept in &config.intercepts {
        listen::check(&intercept.listening, nfs_protection(config))?;
    }
    listen::check(&config.http, http_protection(config))
}
