//! Exposure of the listeners: TLS of NBD, and what must protect addresses that others can reach.

use std::sync::Arc;
use std::time::Duration;

use crate::listen::{self, Protection};
use crate::nbd::{load_tls, untimely};
use crate::{Config, StartError};

/// TLS for NBD over TCP, if there is any.
pub(crate) type Tls = Option<Arc<rustls::ServerConfig>>;

pub(crate) fn tls(config: &Config) -> Result<Tls, StartError> {
    let Some(files) = &config.nbd_tls else { return Ok(None) };
    let tls = load_tls(&files.cert, &files.key, files.client_ca.as_deref());
    let tls = tls.map_err(StartError::Tls)?;
    // No reason not to serve those who come by the unix socket.
    if let Some(why) = untimely(&files.cert, Duration::ZERO) {
        let cert = files.cert.display();
        tracing::warn!(%cert, why, "NBD clients over TCP will refuse the certificate");
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
        is_enough: config.insecure,
        trusted: &[],
        hint: "this release has no TLS for HTTP, and the token can be read on the way: put a proxy \
               that has TLS in front of a loopback address or the unix socket, or give --insecure \
               to allow it anyway",
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
