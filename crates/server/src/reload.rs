//! SIGHUP: certificates and settings are loaded again while clients go on.
//!
//! Invariants
//! 1. All of it is read and checked before any of it holds: a mistake in one file changes nothing.
//! 2. Settings that cannot change without a start are told by name, and stay as they were.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use env::RankedRwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::gauge::ConstGauge;
use volume::Pool;

use crate::exposure::{AllTls, refuse_exposed};
use crate::hooks::Hooks;
use crate::nbd::NbdContext;
use crate::prometheus::tell;
use crate::tls::{Tls, TlsFiles};
use crate::{Config, LogSettings, StartError, logs};

/// The parts of a running server that a reload reaches.
pub(crate) struct Reloading {
    /// The configuration that holds now.
    pub(crate) config: Config,
    pub(crate) nbd: Arc<NbdContext>,
    /// The TLS of HTTP.
    pub(crate) http_tls: Arc<RankedRwLock<Tls>>,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) reloads: Arc<Reloads>,
}

impl Reloading {
    /// Goes on with what can be loaded again of `config`; answers what waits for the next start.
    pub(crate) fn reload(
        &mut self,
        pool: &Pool,
        config: &Config,
    ) -> Result<Vec<&'static str>, StartError> {
        let next = self.next(config);
        let changed = refuse_exposed(&next)
            .and_then(|()| AllTls::load(&next))
            .and_then(|tls| logs::set_level(&next.log).map(|()| tls));
        self.reloads.end(changed.is_ok());
        let AllTls { nbd, http } = changed?;
        *self.nbd.tls.write() = nbd;
        *self.http_tls.write() = http;
        self.hooks.replace(next.hooks.clone());
        // Else those of `pool set` stay.
        if next.rates != self.config.rates {
            pool.set_rates(next.rates);
        }
        self.config = next;
        Ok(differences(config, &self.config))
    }

    /// The configuration that holds, with all of `config` that needs no start.
    fn next(&self, config: &Config) -> Config {
        // It neither begins nor ends. Another authority lets in whom `access` has a say about, so
        // the two change together: at the next start.
        let has_access = config.access == self.config.access;
        let tls = |next: &Option<TlsFiles>, now: &Option<TlsFiles>| match (next, now) {
            (Some(next), Some(now)) if !has_access => {
                Some(TlsFiles { client_ca: now.client_ca.clone(), ..next.clone() })
            }
            (Some(next), Some(_)) => Some(next.clone()),
            _ => now.clone(),
        };
        Config {
            nbd_tls: tls(&config.nbd_tls, &self.config.nbd_tls),
            http_tls: tls(&config.http_tls, &self.config.http_tls),
            hooks: config.hooks.clone(),
            rates: config.rates,
            log: LogSettings {
                level: config.log.level.clone(),
                format: self.config.log.format.clone(),
            },
            ..self.config.clone()
        }
    }
}

/// The names of the settings in which two configurations differ.
fn differences(one: &Config, other: &Config) -> Vec<&'static str> {
    // Each field by name: a new one is not forgotten here.
    let Config {
        pool_dir,
        device,
        create,
        pool_size_bytes,
        memory_bytes,
        write_memory_bytes,
        buffers_bytes,
        is_buffer_pool,
        rates,
        insecure,
        nbd,
        nbd_tls,
        nbd_connections_max,
        http,
        http_tls,
        iscsi,
        iscsi_base,
        iscsi_announced,
        iscsi_trusted,
        nfs,
        nfs_trusted,
        intercepts,
        http_patience: _,
        hooks,
        access,
        log,
    } = one;
    let is_other = [
        ("pool", *pool_dir != other.pool_dir),
        ("device", *device != other.device),
        ("create", *create != other.create),
        ("pool_size", *pool_size_bytes != other.pool_size_bytes),
        ("memory", *memory_bytes != other.memory_bytes),
        ("write_memory", *write_memory_bytes != other.write_memory_bytes),
        ("buffers", *buffers_bytes != other.buffers_bytes),
        ("buffer_pool", *is_buffer_pool != other.is_buffer_pool),
        ("scrub_rate, rebuild_rate", *rates != other.rates),
        ("insecure", *insecure != other.insecure),
        ("nbd.listen", (&nbd.unix, &nbd.tcp) != (&other.nbd.unix, &other.nbd.tcp)),
        ("nbd.socket_mode, nbd.socket_group", nbd.access != other.nbd.access),
        (
            "nbd.tls_cert (TLS on or off), nbd.tls_client_ca (with access)",
            *nbd_tls != other.nbd_tls,
        ),
        ("nbd.connections_max", *nbd_connections_max != other.nbd_connections_max),
        ("http.listen", (&http.unix, &http.tcp) != (&other.http.unix, &other.http.tcp)),
        ("http.socket_mode, http.socket_group", http.access != other.http.access),
        (
            "http.tls_cert (TLS on or off), http.tls_client_ca (with access)",
            *http_tls != other.http_tls,
        ),
        ("iscsi.listen", iscsi.tcp != other.iscsi.tcp),
        ("iscsi.base", *iscsi_base != other.iscsi_base),
        ("iscsi.announce", *iscsi_announced != other.iscsi_announced),
        ("iscsi.trusted_networks", *iscsi_trusted != other.iscsi_trusted),
        ("nfs.listen", nfs.tcp != other.nfs.tcp),
        ("nfs.trusted_networks", *nfs_trusted != other.nfs_trusted),
        ("intercept", *intercepts != other.intercepts),
        ("access", *access != other.access),
        ("hooks", *hooks != other.hooks),
        ("log.level", log.level != other.log.level),
        ("log.format", log.format != other.log.format),
    ];
    is_other.into_iter().filter_map(|(name, is_other)| is_other.then_some(name)).collect()
}

/// How the last reload went.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    has_failed: AtomicBool,
}

impl Reloads {
    /// One ended.
    pub(crate) fn end(&self, well: bool) {
        self.has_failed.store(!well, Ordering::Relaxed);
    }
}

/// Tells Prometheus how the last reload went.
#[derive(Debug)]
pub(crate) struct ReloadCollector(pub(crate) Arc<Reloads>);

impl Collector for ReloadCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let gauge = ConstGauge::new(u64::from(!self.0.has_failed.load(Ordering::Relaxed)));
        let help = "Whether the configuration could be loaded when that was last asked for";
        tell(&mut encoder, ("hindsight_config_last_reload_successful", help), gauge)
    }
}
