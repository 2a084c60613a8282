//! `hindsight serve`.

use std::path::{Path, PathBuf};

use api::ExitCode;
use server::{
    CONFIG_FILE_DEFAULT, HttpSettings, InterceptSettings, IscsiSettings, LogSettings, NbdSettings,
    NfsSettings, Settings, StartError,
};

use crate::failure;

/// Flags of `serve`; each wins over the configuration file.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the pool; one is made when it is empty or missing.
    #[arg(long, value_name = "DIR")]
    pool: Option<PathBuf>,
    /// Configuration file [default: /etc/hindsight/config.toml if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to serve NBD: none, ADDRESS:PORT or unix:/path; may be given several times
    /// [default: DIR/nbd.sock].
    #[arg(long, value_name = "WHERE")]
    nbd: Vec<String>,
    /// Where to serve the HTTP API: none, ADDRESS:PORT or unix:/path; may be given several times
    /// [default: DIR/api.sock, and 127.0.0.1:9820 for those who have the token in DIR/token].
    #[arg(long, value_name = "WHERE")]
    http: Vec<String>,
    /// Permissions of both unix sockets; who may use that of the API may do everything
    /// [default: 0600].
    #[arg(long, value_name = "MODE")]
    socket_mode: Option<String>,
    /// Group of both unix sockets, by name or number.
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<String>,
    /// Where to serve iSCSI: none or ADDRESS:PORT; may be given several times [default: none].
    #[arg(long, value_name = "WHERE")]
    iscsi: Vec<String>,
    /// Where to serve shares over NFS: none or ADDRESS:PORT; may be given several times
    /// [default: none].
    #[arg(long, value_name = "WHERE")]
    nfs: Vec<String>,
    /// A relay before an NFS server that a share follows, as LISTEN,FORM,SHARE,PRIMARY: FORM is
    /// append, overwrite or inline (which has no PRIMARY), PRIMARY is HOST:PORT:/EXPORT or
    /// HOST:PORT,MOUNTPORT:/EXPORT; may be given several times.
    #[arg(long, value_name = "RELAY")]
    intercept: Vec<InterceptSettings>,
    /// Certificate chain for NBD over TCP, PEM.
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate, PEM.
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Certificates that NBD clients must be signed by, PEM.
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Certificate chain for HTTP over TCP, PEM.
    #[arg(long, value_name = "FILE")]
    http_tls_cert: Option<PathBuf>,
    /// Private key of that certificate, PEM.
    #[arg(long, value_name = "FILE")]
    http_tls_key: Option<PathBuf>,
    /// Certificates that those of HTTP clients must be signed by, PEM; a client may show a token
    /// instead of one.
    #[arg(long, value_name = "FILE")]
    http_tls_client_ca: Option<PathBuf>,
    /// NBD connections of each listener at once [default: 1024].
    #[arg(long, value_name = "N")]
    nbd_connections_max: Option<usize>,
    /// Serve beyond this machine without TLS and authentication.
    #[arg(long)]
    insecure: bool,
    /// Keep the pool on this block device or file instead of DIR/pool.img.
    #[arg(long, value_name = "PATH")]
    device: Option<PathBuf>,
    /// Lay out a pool on the device if it is blank.
    #[arg(long, requires = "device")]
    create: bool,
    /// Size of a new pool file [default: that of the file system it lies on].
    #[arg(long, value_name = "SIZE")]
    pool_size: Option<String>,
    /// Memory for the map [default: 384MiB].
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Memory for writes that wait to be written to the pool's files and disks; 0 has them go to
    /// the page cache [default: a sixteenth of the machine's, 64MiB to 1GiB].
    #[arg(long, value_name = "SIZE")]
    write_memory: Option<String>,
    /// Memory for requests that wait for a device or for their client [default: 64MiB].
    #[arg(long, value_name = "SIZE")]
    buffers: Option<String>,
    /// Allocate that memory for each request, to measure what it gives not to.
    #[arg(long)]
    no_buffer_pool: bool,
    /// Bytes a second that a scrub reads at most, of all copies [default: no limit].
    #[arg(long, value_name = "SIZE")]
    scrub_rate: Option<String>,
    /// Bytes a second that a member gets at most which is brought up to date [default: no limit].
    #[arg(long, value_name = "SIZE")]
    rebuild_rate: Option<String>,
    /// Form of the log on standard error: text or json [default: text].
    #[arg(long, value_name = "FORM")]
    log_format: Option<String>,
    /// Level of the log: error, warn, info, debug, trace [default: info].
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

/// Serves until told to stop.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let named = args.config.clone();
    let flags = upper(args);
    server::serve(&|| {
        let lower = match &named {
            Some(file) => Settings::from_file(file)?,
            None => Settings::from_file_if_there(Path::new(CONFIG_FILE_DEFAULT))?,
        };
        Ok(flags.clone().over(lower))
    })?;
    Ok(ExitCode::Done)
}

/// What to exit with when a server, or a pool without one, could not be opened.
pub fn judge(error: &anyhow::Error) -> Option<failure::Judgement> {
    error.downcast_ref::<StartError>().map(|start| (start.exit_code(), start.hint()))
}

fn upper(args: Args) -> Settings {
    Settings {
        pool: args.pool,
        device: args.device,
        create: args.create.then_some(true),
        pool_size: args.pool_size,
        memory: args.memory,
        write_memory: args.write_memory,
        buffers: args.buffers,
        scrub_rate: args.scrub_rate,
        rebuild_rate: args.rebuild_rate,
        buffer_pool: args.no_buffer_pool.then_some(false),
        insecure: args.insecure.then_some(true),
        nbd: NbdSettings {
            listen: args.nbd,
            socket_mode: args.socket_mode.clone(),
            socket_group: args.socket_group.clone(),
            tls_cert: args.tls_cert,
            tls_key: args.tls_key,
            tls_client_ca: args.tls_client_ca,
            connections_max: args.nbd_connections_max,
        },
        http: HttpSettings {
            listen: args.http,
            socket_mode: args.socket_mode,
            socket_group: args.socket_group,
            tls_cert: args.http_tls_cert,
            tls_key: args.http_tls_key,
            tls_client_ca: args.http_tls_client_ca,
        },
        iscsi: IscsiSettings { listen: args.iscsi, ..IscsiSettings::default() },
        nfs: NfsSettings { listen: args.nfs, ..NfsSettings::default() },
        intercept: args.intercept,
        hooks: std::collections::BTreeMap::new(),
        access: server::AccessSettings::default(),
        log: LogSettings { format: args.log_format, level: args.log_level },
    }
}
