//! The settings: by flags, by the configuration file, by default, in this order of precedence.
//!
//! Flags and file have the same form, [`Settings`]; [`Config`] is what came of them. An unknown
//! field in the file is an error, and so is a `${VAR}` that is not set.

use std::collections::BTreeMap;
use std::net::SocketAddrV6;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use units::{Malformed, Network, Role, Size, Span};
use volume::Rates;

use crate::StartError;
use crate::buffers::{BUFFERS_BYTES_DEFAULT, BUFFERS_BYTES_MIN};
use crate::hooks::Hook;
use crate::listening::{Listening, SocketAccess};
use crate::relay_settings::{Intercept, InterceptSettings};
use crate::tls::TlsFiles;
use crate::who::{AccessConfig, Certificates};

/// How long a client may take to send the head of a request, and then its body.
pub(crate) const HTTP_PATIENCE: Duration = Duration::from_secs(30);

/// Where the configuration is read from when no file is named.
pub const CONFIG_FILE_DEFAULT: &str = "/etc/hindsight/config.toml";
/// Memory for map pages and pending map entries, in bytes.
const MEMORY_BYTES_DEFAULT: u64 = 384 << 20;
/// Memory below which the engine cannot be expected to work, in bytes.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
/// The least memory of write buffers, if there are any.
const WRITE_MEMORY_BYTES_MIN: u64 = 16 << 20;
/// The most memory for requests that wait, in bytes: all of it is allocated at the start.
const BUFFERS_BYTES_MAX: u64 = 16 << 30;
/// NBD connections of a listener at once.
const NBD_CONNECTIONS_MAX_DEFAULT: usize = 1024;
/// Where HTTP is served over TCP, to those who have the token.
const HTTP_TCP_DEFAULT: &str = "127.0.0.1:9820";
/// The longest beginning of the names of iSCSI targets: half of what a name has.
const ISCSI_BASE_BYTES_MAX: usize = 111;
/// The names and numbers of groups.
const GROUP_FILE: &str = "/etc/group";
/// The longest configuration file, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Settings as flags or as the configuration file give them; what is `None` or empty is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The directory of the pool.
    pub pool: Option<PathBuf>,
    /// A block device or file that holds the pool instead of `POOL/pool.img`.
    pub device: Option<PathBuf>,
    /// Lay out a pool on the device if it is blank.
    pub create: Option<bool>,
    /// Size of a new pool file, such as `100GiB`.
    pub pool_size: Option<String>,
    /// Memory for the map, such as `384MiB`.
    pub memory: Option<String>,
    /// Memory for writes that wait to be written to files and disks, such as `512MiB`; `0` is none.
    pub write_memory: Option<String>,
    /// Memory for requests that wait for a device or their client, such as `64MiB`.
    pub buffers: Option<String>,
    /// Whether that memory is kept from request to request; `false` only to measure what it gives.
    pub buffer_pool: Option<bool>,
    /// Bytes a second that a scrub reads at most, such as `100MiB`.
    pub scrub_rate: Option<String>,
    /// Bytes a second that a member gets at most which is brought up to date.
    pub rebuild_rate: Option<String>,
    /// Serve beyond this machine without TLS and authentication.
    pub insecure: Option<bool>,
    /// The NBD listeners.
    pub nbd: NbdSettings,
    /// The HTTP listeners.
    pub http: HttpSettings,
    /// The iSCSI listeners and targets.
    pub iscsi: IscsiSettings,
    /// The NFS listeners.
    pub nfs: NfsSettings,
    /// Relays before NFS servers.
    pub intercept: Vec<InterceptSettings>,
    /// Commands around captures, by name: only in the file.
    pub hooks: BTreeMap<String, HookSettings>,
    /// The rights that no token has.
    pub access: AccessSettings,
    /// The log on standard error.
    pub log: LogSettings,
}

/// The rights that no token has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessSettings {
    /// The role of those whom the mode of the unix sockets lets in, but root and the server's user.
    pub group_role: Option<String>,
    /// Whether what can take history away is taken from elsewhere than the unix socket.
    pub remote_deletes: Option<bool>,
    /// The certificates that are let in over NBD and HTTP: `any`, or `named`.
    pub certificates: Option<String>,
}

/// Where and how HTTP is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSettings {
    /// `none`, `ADDRESS:PORT` or `unix:/path`.
    pub listen: Vec<String>,
    /// Permissions of the unix socket, octal: `0660`.
    pub socket_mode: Option<String>,
    /// The group of the unix socket, by name or number.
    pub socket_group: Option<String>,
    /// Certificate chain of the server, PEM: with it TCP speaks TLS.
    pub tls_cert: Option<PathBuf>,
    /// Its private key, PEM.
    pub tls_key: Option<PathBuf>,
    /// Authorities that sign clients' certificates, PEM; a client shows a certificate or a token.
    pub tls_client_ca: Option<PathBuf>,
}

/// Where and how NBD is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NbdSettings {
    /// `none`, `ADDRESS:PORT` or `unix:/path`.
    pub listen: Vec<String>,
    /// Permissions of the unix socket, octal: `0660`.
    pub socket_mode: Option<String>,
    /// The group of the unix socket, by name or number.
    pub socket_group: Option<String>,
    /// Certificate chain of the server, PEM.
    pub tls_cert: Option<PathBuf>,
    /// Its private key, PEM.
    pub tls_key: Option<PathBuf>,
    /// Certificates that clients must be signed by, PEM.
    pub tls_client_ca: Option<PathBuf>,
    /// Connections at once, of each listener.
    pub connections_max: Option<usize>,
}

/// Where and how iSCSI is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IscsiSettings {
    /// `none` or `ADDRESS:PORT`.
    pub listen: Vec<String>,
    /// The beginning of the names of all targets, such as `iqn.2026-11.org.example.store`.
    pub base: Option<String>,
    /// The `ADDRESS:PORT`s that discovery tells, where the one that an initiator came to is not the
    /// one that it knows.
    pub announce: Vec<String>,
    /// Networks, such as `10.1.0.0/16`, in which targets with CHAP are served.
    pub trusted_networks: Vec<String>,
}

/// Where NFS is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NfsSettings {
    /// `none` or `ADDRESS:PORT`.
    pub listen: Vec<String>,
    /// Networks, such as `10.1.0.0/16`, in which shares are served to those whom they allow.
    pub trusted_networks: Vec<String>,
}

/// Commands around a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HookSettings {
    /// Run before: an absolute path and arguments.
    pub before: Vec<String>,
    /// Run after, whatever came before: an absolute path and arguments.
    pub after: Vec<String>,
    /// A check of moments, run on a scratch clone: an absolute path and arguments.
    pub verify: Vec<String>,
    /// Run when a watch gives an alarm, whichever volume's: an absolute path and arguments.
    pub alarm: Vec<String>,
    /// How long each may take, and what `before` did may last, such as `30s`.
    pub timeout: Option<String>,
}

/// How the log is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// `text` or `json`.
    pub format: Option<String>,
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter by module.
    pub level: Option<String>,
}

impl Settings {
    /// Reads a configuration file; one that is not there sets nothing.
    ///
    /// # Errors
    /// Those of [`Settings::from_file`].
    pub fn from_file_if_there(path: &Path) -> Result<Settings, StartError> {
        match std::fs::metadata(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Settings::default()),
            _ => Settings::from_file(path),
        }
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// When it cannot be read, is not TOML, or has a field that does not exist or a `${VAR}` unset.
    pub fn from_file(path: &Path) -> Result<Settings, StartError> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| StartError::ConfigFile {
            path: path.to_owned(),
            source,
        };
        let length = std::fs::metadata(path).map_err(|e| failed(Box::new(e)))?.len();
        if length > CONFIG_BYTES_MAX {
            return Err(failed(format!("longer than {CONFIG_BYTES_MAX} bytes").into()));
        }
        let text = std::fs::read_to_string(path).map_err(|e| failed(Box::new(e)))?;
        Settings::from_toml(&text, &|name| std::env::var(name).ok()).map_err(failed)
    }

    /// Reads TOML; `variable` answers `${VAR}`.
    ///
    /// # Errors
    /// When it is not TOML, or has a field that does not exist or a `${VAR}` unset.
    pub fn from_toml(
        text: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Settings, Box<dyn std::error::Error + Send + Sync>> {
        // Variables are put in after parsing, so that no value of one can become syntax.
        let _: Settings = toml::from_str(text)?;
        let mut table: toml::Table = text.parse()?;
        for (_, value) in &mut table {
            expand(value, variable)?;
        }
        Ok(table.try_into()?)
    }

    /// These settings where they are set, `lower` where they are not.
    #[must_use]
    pub fn over(self, lower: Settings) -> Settings {
        Settings {
            pool: self.pool.or(lower.pool),
            device: self.device.or(lower.device),
            create: self.create.or(lower.create),
            pool_size: self.pool_size.or(lower.pool_size),
            memory: self.memory.or(lower.memory),
            write_memory: self.write_memory.or(lower.write_memory),
            buffers: self.buffers.or(lower.buffers),
            scrub_rate: self.scrub_rate.or(lower.scrub_rate),
            rebuild_rate: self.rebuild_rate.or(lower.rebuild_rate),
            buffer_pool: self.buffer_pool.or(lower.buffer_pool),
            insecure: self.insecure.or(lower.insecure),
            nbd: NbdSettings {
                listen: first_set(self.nbd.listen, lower.nbd.listen),
                socket_mode: self.nbd.socket_mode.or(lower.nbd.socket_mode),
                socket_group: self.nbd.socket_group.or(lower.nbd.socket_group),
                tls_cert: self.nbd.tls_cert.or(lower.nbd.tls_cert),
                tls_key: self.nbd.tls_key.or(lower.nbd.tls_key),
                tls_client_ca: self.nbd.tls_client_ca.or(lower.nbd.tls_client_ca),
                connections_max: self.nbd.connections_max.or(lower.nbd.connections_max),
            },
            http: self.http.over(lower.http),
            iscsi: IscsiSettings {
                listen: first_set(self.iscsi.listen, lower.iscsi.listen),
                base: self.iscsi.base.or(lower.iscsi.base),
                announce: first_set(self.iscsi.announce, lower.iscsi.announce),
                trusted_networks: first_set(
                    self.iscsi.trusted_networks,
                    lower.iscsi.trusted_networks,
                ),
            },
            nfs: NfsSettings {
                listen: first_set(self.nfs.listen, lower.nfs.listen),
                trusted_networks: first_set(self.nfs.trusted_networks, lower.nfs.trusted_networks),
            },
            intercept: first_set(self.intercept, lower.intercept),
            hooks: if self.hooks.is_empty() { lower.hooks } else { self.hooks },
            access: AccessSettings {
                group_role: self.access.group_role.or(lower.access.group_role),
                remote_deletes: self.access.remote_deletes.or(lower.access.remote_deletes),
                certificates: self.access.certificates.or(lower.access.certificates),
            },
            log: LogSettings {
                format: self.log.format.or(lower.log.format),
                level: self.log.level.or(lower.log.level),
            },
        }
    }
}

impl HttpSettings {
    fn over(self, lower: HttpSettings) -> HttpSettings {
        HttpSettings {
            listen: first_set(self.listen, lower.listen),
            socket_mode: self.socket_mode.or(lower.socket_mode),
            socket_group: self.socket_group.or(lower.socket_group),
            tls_cert: self.tls_cert.or(lower.tls_cert),
            tls_key: self.tls_key.or(lower.tls_key),
            tls_client_ca: self.tls_client_ca.or(lower.tls_client_ca),
        }
    }
}

fn first_set<T>(upper: Vec<T>, lower: Vec<T>) -> Vec<T> {
    if upper.is_empty() { lower } else { upper }
}

/// Puts the values of variables into every string of `value`; `$${` stands for `${`.
fn expand(
    value: &mut toml::Value,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<(), String> {
    match value {
        toml::Value::String(text) => *text = expand_text(text, variable)?,
        toml::Value::Array(values) => {
            for value in values {
                expand(value, variable)?;
            }
        }
        toml::Value::Table(table) => {
            for (_, value) in table {
                expand(value, variable)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn expand_text(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = &from[2..];
            continue;
        }
        let (name, after) =
            from[2..].split_once('}').ok_or_else(|| format!("`{from}` has no closing brace"))?;
        let value = variable(name).ok_or_else(|| format!("the variable {name} is not set"))?;
        expanded.push_str(before);
        expanded.push_str(&value);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Everything a server needs to know to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The directory of the pool.
    pub pool_dir: PathBuf,
    /// A block device or file that holds the pool instead of `pool.img` in the directory.
    pub device: Option<PathBuf>,
    /// Whether to lay out a pool on the device if it is blank.
    pub create: bool,
    /// Size of a new pool file in bytes; `None` is that of the file system it lies on.
    pub pool_size_bytes: Option<u64>,
    /// Memory for the map in bytes.
    pub memory_bytes: u64,
    /// Memory for writes that wait, in bytes: 0 is none, `None` the default.
    pub write_memory_bytes: Option<u64>,
    /// Memory for requests that wait, in bytes.
    pub buffers_bytes: usize,
    /// Whether it is kept from request to request.
    pub is_buffer_pool: bool,
    /// How fast scrubs and rebuilds may be.
    pub rates: Rates,
    /// Whether to serve beyond this machine without TLS and authentication.
    pub insecure: bool,
    /// NBD listeners.
    pub nbd: Listening,
    /// TLS of the NBD listeners.
    pub nbd_tls: Option<TlsFiles>,
    /// NBD connections at once, of each listener.
    pub nbd_connections_max: usize,
    /// HTTP listeners.
    pub http: Listening,
    /// TLS of the HTTP listeners.
    pub http_tls: Option<TlsFiles>,
    /// iSCSI listeners: TCP only.
    pub iscsi: Listening,
    /// The beginning of the names of iSCSI targets, if not one of the pool's own.
    pub iscsi_base: Option<String>,
    /// The addresses that discovery over iSCSI tells, if not those of the listeners.
    pub iscsi_announced: Vec<String>,
    /// Networks in which iSCSI is served to those who prove themselves.
    pub iscsi_trusted: Vec<Network>,
    /// NFS listeners: TCP only.
    pub nfs: Listening,
    /// Networks in which NFS is served to those whom shares allow.
    pub nfs_trusted: Vec<Network>,
    /// Relays before NFS servers.
    pub intercepts: Vec<Intercept>,
    /// How long a client of HTTP may take to send the head of a request, and then its body. No
    /// setting: tests have less.
    pub http_patience: Duration,
    /// Commands around captures, by name.
    pub hooks: BTreeMap<String, Hook>,
    /// The rights that no token has.
    pub access: AccessConfig,
    /// The log on standard error.
    pub log: LogSettings,
}

impl Config {
    /// The configuration that settings make, with defaults where nothing is set.
    ///
    /// # Errors
    /// When something is missing, or is set to what cannot be.
    pub fn from_settings(settings: Settings) -> Result<Config, StartError> {
        let pool_dir = settings.pool.ok_or_else(|| {
            StartError::setting("no pool is named", "give its directory: --pool DIR")
        })?;
        // Clients get the sockets as URIs, which need absolute paths.
        let pool_dir = std::path::absolute(&pool_dir)
            .map_err(|e| StartError::Path { path: pool_dir, source: e })?;
        let access_config = rights(&settings.access)?;
        let NbdSettings { tls_cert, tls_key, tls_client_ca, .. } = &settings.nbd;
        let nbd_tls = tls(tls_cert, tls_key, tls_client_ca, "give --tls-cert and --tls-key")?;
        let asks = nbd_tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let mut nbd = listening(&settings.nbd.listen, pool_dir.join("nbd.sock"), None, "--nbd")?;
        nbd.access = access(settings.nbd.socket_mode, settings.nbd.socket_group)?;
        if access_config.certificates == Certificates::Named && !asks && !nbd.tcp.is_empty() {
            return Err(StartError::setting(
                "access.certificates = \"named\", and no client of NBD is asked for one",
                "give --tls-cert, --tls-key and --tls-client-ca, or leave NBD over TCP out",
            ));
        }
        let tcp = Some(HTTP_TCP_DEFAULT);
        let mut http = listening(&settings.http.listen, pool_dir.join("api.sock"), tcp, "--http")?;
        let HttpSettings { tls_cert, tls_key, tls_client_ca, .. } = &settings.http;
        let hint = "give --http-tls-cert and --http-tls-key";
        let http_tls = tls(tls_cert, tls_key, tls_client_ca, hint)?;
        http.access = access(settings.http.socket_mode, settings.http.socket_group)?;
        let memory_bytes = size(settings.memory, "--memory")?.unwrap_or(MEMORY_BYTES_DEFAULT);
        if memory_bytes < MEMORY_BYTES_MIN {
            return Err(StartError::setting("--memory is too little", "give at least 16MiB"));
        }
        Ok(Config {
            device: settings.device,
            create: settings.create.unwrap_or(false),
            pool_size_bytes: size(settings.pool_size, "--pool-size")?,
            memory_bytes,
            write_memory_bytes: write_memory(settings.write_memory)?,
            buffers_bytes: buffers(settings.buffers)?,
            is_buffer_pool: settings.buffer_pool.unwrap_or(true),
            rates: Rates {
                scrub: rate(settings.scrub_rate, "--scrub-rate")?,
                rebuild: rate(settings.rebuild_rate, "--rebuild-rate")?,
            },
            insecure: settings.insecure.unwrap_or(false),
            nbd,
            nbd_connections_max: settings
                .nbd
                .connections_max
                .unwrap_or(NBD_CONNECTIONS_MAX_DEFAULT),
            nbd_tls,
            http,
            http_tls,
            iscsi: tcp_listening(&settings.iscsi.listen, "--iscsi")?,
            iscsi_base: settings.iscsi.base.map(|base| iscsi_base(&base)).transpose()?,
            iscsi_announced: announced(&settings.iscsi.announce)?,
            iscsi_trusted: networks(&settings.iscsi.trusted_networks, "iscsi.trusted_networks")?,
            nfs: tcp_listening(&settings.nfs.listen, "--nfs")?,
            nfs_trusted: networks(&settings.nfs.trusted_networks, "nfs.trusted_networks")?,
            intercepts: settings.intercept.iter().map(relay).collect::<Result<_, _>>()?,
            http_patience: HTTP_PATIENCE,
            hooks: hooks(settings.hooks)?,
            access: access_config,
            log: settings.log,
            pool_dir,
        })
    }
}

fn rights(settings: &AccessSettings) -> Result<AccessConfig, StartError> {
    let default = AccessConfig::default();
    let role = settings.group_role.as_deref().map(str::parse::<Role>).transpose();
    let role = role.map_err(|error| malformed("access.group_role", &error))?;
    let certificates = match settings.certificates.as_deref() {
        None => default.certificates,
        Some("any") => Certificates::Any,
        Some("named") => Certificates::Named,
        Some(other) => {
            let text = format!("access.certificates: `{other}` is neither any nor named");
            return Err(StartError::setting(text, "named lets in those that have a token's name"));
        }
    };
    Ok(AccessConfig {
        certificates,
        group_role: role.unwrap_or(default.group_role),
        remote_deletes: settings.remote_deletes.unwrap_or(default.remote_deletes),
    })
}

/// The memory of write buffers: enough to be of use, or none.
fn write_memory(text: Option<String>) -> Result<Option<u64>, StartError> {
    let bytes = size(text, "--write-memory")?;
    if bytes.is_some_and(|bytes| bytes > 0 && bytes < WRITE_MEMORY_BYTES_MIN) {
        return Err(StartError::setting(
            "--write-memory is too little",
            "give 0, or 16MiB or more",
        ));
    }
    Ok(bytes)
}

/// Memory for requests that wait: enough for the longest one.
fn buffers(text: Option<String>) -> Result<usize, StartError> {
    match size(text, "--buffers")? {
        None => Ok(BUFFERS_BYTES_DEFAULT),
        Some(bytes) if (BUFFERS_BYTES_MIN as u64..=BUFFERS_BYTES_MAX).contains(&bytes) => {
            Ok(bytes as usize)
        }
        Some(_) => Err(StartError::setting(
            "--buffers is out of range",
            "give 48MiB (the longest request takes 32MiB) to 16GiB",
        )),
    }
}

/// How long a command of a hook may take, by default and at most.
const HOOK_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
const HOOK_TIMEOUT_MAX: Duration = Duration::from_secs(3600);

fn hooks(settings: BTreeMap<String, HookSettings>) -> Result<BTreeMap<String, Hook>, StartError> {
    settings.into_iter().map(|(name, hook)| Ok((name.clone(), one_hook(&name, hook)?))).collect()
}

fn one_hook(name: &str, settings: HookSettings) -> Result<Hook, StartError> {
    let wrong =
        |what: String, hint: &str| Err(StartError::setting(format!("hooks.{name}: {what}"), hint));
    if units::VolumeName::check(name).is_err() {
        return wrong("this is no name".to_owned(), "letters, digits, dots, dashes, underscores");
    }
    if name == volume::NO_HOOK {
        return wrong("that means no hook at all".to_owned(), "give it another name");
    }
    let all = [&settings.before, &settings.after, &settings.verify, &settings.alarm];
    for argv in all {
        if argv.first().is_some_and(|program| !program.starts_with('/')) {
            let what = format!("`{}` is no absolute path", argv[0]);
            return wrong(what, "such as before = [\"/usr/sbin/fsfreeze\", \"-f\", \"/mnt\"]");
        }
    }
    if all.iter().all(|argv| argv.is_empty()) {
        let what = "it has neither `before` nor `after` nor `verify` nor `alarm`".to_owned();
        return wrong(what, "give `before` and `after`, or `verify`, or `alarm`");
    }
    let timeout = match &settings.timeout {
        None => HOOK_TIMEOUT_DEFAULT,
        Some(text) => match Span::from_str(text) {
            Ok(span) => Duration::from_nanos(span.0),
            Err(e) => return wrong(e.message, e.hint.as_deref().unwrap_or_default()),
        },
    };
    if timeout.is_zero() || timeout > HOOK_TIMEOUT_MAX {
        return wrong("its timeout is out of range".to_owned(), "more than nothing, at most 1h");
    }
    let HookSettings { before, after, verify, alarm, .. } = settings;
    Ok(Hook { before, after, verify, alarm, timeout })
}

fn size(text: Option<String>, flag: &str) -> Result<Option<u64>, StartError> {
    let Some(text) = text else { return Ok(None) };
    match Size::from_str(&text) {
        Ok(size) => Ok(Some(size.0)),
        Err(e) => Err(StartError::Setting { message: format!("{flag}: {e}"), hint: e.hint }),
    }
}

/// Bytes a second, if there is a limit.
fn rate(text: Option<String>, flag: &str) -> Result<Option<NonZeroU64>, StartError> {
    match size(text, flag)? {
        None => Ok(None),
        Some(bytes) if bytes >= volume::RATE_BYTES_MIN => Ok(NonZeroU64::new(bytes)),
        Some(_) => Err(StartError::setting(
            format!("{flag} is too little"),
            "give at least 64KiB (a second), or leave it out: then there is no limit",
        )),
    }
}

fn tls(
    cert: &Option<PathBuf>,
    key: &Option<PathBuf>,
    client_ca: &Option<PathBuf>,
    hint: &str,
) -> Result<Option<TlsFiles>, StartError> {
    match (cert.clone(), key.clone(), client_ca.clone()) {
        (Some(cert), Some(key), client_ca) => Ok(Some(TlsFiles { cert, key, client_ca })),
        (None, None, None) => Ok(None),
        _ => Err(StartError::setting("TLS needs a certificate and its key", hint)),
    }
}

/// Mode and group of a unix socket; without a setting its owner alone may use it.
fn access(mode: Option<String>, group: Option<String>) -> Result<SocketAccess, StartError> {
    let mut access = SocketAccess::default();
    if let Some(text) = mode {
        access.mode = match u32::from_str_radix(&text, 8) {
            Ok(mode) if mode <= 0o777 => mode,
            _ => {
                let text = format!("`{text}` are no permissions of a socket");
                return Err(StartError::setting(text, "give octal digits, such as 0660"));
            }
        };
    }
    access.group = group.map(|group| group_number(&group)).transpose()?;
    Ok(access)
}

fn group_number(group: &str) -> Result<u32, StartError> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string(GROUP_FILE)
        .map_err(|source| StartError::Path { path: GROUP_FILE.into(), source })?;
    let number = |line: &str| {
        let mut fields = line.split(':');
        (fields.next() == Some(group)).then(|| fields.nth(1)?.parse().ok()).flatten()
    };
    groups.lines().find_map(number).ok_or_else(|| {
        let text = format!("there is no group {group} in {GROUP_FILE}");
        StartError::setting(text, "give the number of one that is known elsewhere")
    })
}

/// The listeners that `texts` come to: `none` for none; a TCP address is where TCP is served, and
/// leaves the unix socket; a unix socket alone means no TCP.
fn listening(
    texts: &[String],
    unix_default: PathBuf,
    tcp_default: Option<&str>,
    flag: &str,
) -> Result<Listening, StartError> {
    let access = SocketAccess::default();
    if texts.is_empty() {
        let tcp = tcp_default.map(str::to_owned).into_iter().collect();
        return Ok(Listening { unix: Some(unix_default), tcp, access });
    }
    if texts.iter().any(|t| t == "none") {
        return if texts.len() == 1 {
            Ok(Listening::default())
        } else {
            Err(StartError::setting(format!("{flag}: none and others exclude each other"), ""))
        };
    }
    let mut unix = None;
    let mut tcp = Vec::new();
    for text in texts {
        let path = text.strip_prefix("unix:").or_else(|| text.starts_with('/').then_some(text));
        match path {
            Some(path) if unix.is_none() && path.starts_with('/') => {
                unix = Some(PathBuf::from(path));
            }
            Some(_) => {
                return Err(StartError::setting(
                    format!("{flag}: `{text}` cannot be the unix socket"),
                    "give one absolute path, as in unix:/run/hindsight/nbd.sock",
                ));
            }
            None => tcp.push(tcp_address(text, flag)?),
        }
    }
    Ok(Listening { unix: unix.or(Some(unix_default)), tcp, access })
}

/// The listeners of what is served over TCP only, and when it is asked for.
fn tcp_listening(texts: &[String], flag: &str) -> Result<Listening, StartError> {
    let tcp = match texts {
        [only] if only == "none" => Vec::new(),
        _ => texts.iter().map(|text| tcp_address(text, flag)).collect::<Result<_, _>>()?,
    };
    Ok(Listening { tcp, ..Listening::default() })
}

fn relay(settings: &InterceptSettings) -> Result<Intercept, StartError> {
    let listen = tcp_listening(std::slice::from_ref(&settings.listen), "intercept")?;
    Intercept::new(settings, listen)
}

/// Networks whose listeners are believed.
fn networks(texts: &[String], field: &str) -> Result<Vec<Network>, StartError> {
    let network = |text: &String| text.parse().map_err(|error| malformed(field, &error));
    texts.iter().map(network).collect()
}

fn malformed(field: &str, error: &Malformed) -> StartError {
    StartError::setting(format!("{field}: {error}"), error.hint.as_deref().unwrap_or_default())
}

/// The beginning of the names of targets, with room for those of volumes and moments.
fn iscsi_base(text: &str) -> Result<String, StartError> {
    match wire::iscsi::names::fold(text) {
        Ok(base) if base.starts_with("iqn.") && base.len() <= ISCSI_BASE_BYTES_MAX => Ok(base),
        _ => Err(StartError::setting(
            format!("iscsi.base: `{text}` is no beginning of names"),
            "give iqn., a year and month, and a domain that was yours: iqn.2026-11.org.example",
        )),
    }
}

/// Addresses as initiators are told them: of other machines, so nothing is looked up.
fn announced(texts: &[String]) -> Result<Vec<String>, StartError> {
    let of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    let is_name = |host: &str| !host.is_empty() && host.bytes().all(of_a_name);
    let is_address = |text: &&String| match text.split_once(':') {
        Some((host, port)) if is_name(host) => port.parse::<u16>().is_ok_and(|port| port > 0),
        _ => text.parse::<SocketAddrV6>().is_ok_and(|address| address.port() > 0),
    };
    match texts.iter().find(|text| !is_address(text)) {
        None => Ok(texts.to_vec()),
        Some(wrong) => Err(StartError::setting(
            format!("iscsi.announce: `{wrong}` is not an address"),
            "give ADDRESS:PORT or NAME:PORT, as initiators reach this server: 192.0.2.7:3260",
        )),
    }
}

fn tcp_address(text: &str, flag: &str) -> Result<String, StartError> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    if port.is_some_and(|port| port.parse::<u16>().is_ok()) {
        return Ok(text.to_owned());
    }
    Err(StartError::setting(
        format!("{flag}: `{text}` is not an address"),
        "give ADDRESS:PORT (port 0 picks a free one), unix:/path or none",
    ))
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
