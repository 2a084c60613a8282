//! The configuration file: whether the next start takes it, and what it opens to others.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use server::tls::{TlsFiles, TlsFrontEnd, load_tls, untimely};
use server::{Config, Listening, Settings, StartError};

use super::report::{Level, Report};

/// How long before its end a certificate is told of.
const CERTIFICATE_DAYS: u64 = 30;
const START_FAILS: &str = "the next start fails, and a reload changes nothing";

/// Looks at a configuration file; what it comes to. A pool that nothing else names may be its.
pub fn look(file: &Path, pool: &mut Option<PathBuf>, report: &mut Report) -> Option<Config> {
    let read = Settings::from_file(file).and_then(|mut settings| {
        settings.pool = pool.take().or(settings.pool);
        pool.clone_from(&settings.pool);
        // A file without a pool goes with a command line that names it: any does to judge the file.
        settings.pool.get_or_insert_with(|| "/var/lib/hindsight".into());
        Config::from_settings(settings)
    });
    let config = match read {
        Ok(config) => config,
        Err(error) if is_of_this_shell(&error) => {
            report.not_looked("configuration", error.to_string());
            return None;
        }
        Err(error) => {
            report.find(
                ("configuration", Level::Critical),
                error.to_string(),
                START_FAILS,
                error.hint().unwrap_or_else(|| format!("edit {}", file.display())),
            );
            return None;
        }
    };
    let both = [(&config.nbd_tls, TlsFrontEnd::Nbd), (&config.http_tls, TlsFrontEnd::Http)];
    for (files, front_end) in both {
        if let Some(files) = files {
            look_at_certificate(files, front_end, report);
        }
    }
    look_at_exposure(&config, report);
    Some(config)
}

/// Whether the reason lies here: a variable that only the unit sets, a file for the server's eyes.
fn is_of_this_shell(error: &StartError) -> bool {
    let StartError::ConfigFile { source, .. } = error else { return false };
    let denied = |e: &std::io::Error| e.kind() == std::io::ErrorKind::PermissionDenied;
    source.downcast_ref::<std::io::Error>().is_some_and(denied)
        || source.to_string().starts_with("the variable ")
}

fn look_at_certificate(files: &TlsFiles, front_end: TlsFrontEnd, report: &mut Report) {
    match load_tls(files, front_end) {
        Err(error) if error.is_denied() => report.not_looked("certificate", error.to_string()),
        Err(error) => {
            let flag = match front_end {
                TlsFrontEnd::Nbd => "--tls-cert",
                TlsFrontEnd::Http => "--http-tls-cert",
            };
            let command =
                format!("put files in their place that fit: hindsight serve --help, {flag}");
            let what = ("configuration", Level::Critical);
            return report.find(what, error.to_string(), START_FAILS, command);
        }
        Ok(_) => {}
    }
    let both = [
        (Some(&files.cert), "refuse it"),
        (files.client_ca.as_ref(), "are refused with what it signed"),
    ];
    for (cert, follows) in both {
        let Some(cert) = cert else { continue };
        let ends = |days: u64| untimely(cert, Duration::from_secs(days * 86_400));
        let command = "put a new one in its place, then: systemctl reload hindsight";
        let (cert, name) = (cert.display(), front_end.name());
        if let Some(why) = ends(0) {
            let what = format!("the certificate {cert} is not valid: {why}");
            let why = format!("{name} clients {follows}");
            report.find(("certificate", Level::Critical), what, why, command);
        } else if ends(CERTIFICATE_DAYS).is_some() {
            let what = format!("the certificate {cert} ends within {CERTIFICATE_DAYS} days");
            let why = format!("{name} clients {follows} from then on");
            report.find(("certificate", Level::Warning), what, why, command);
        }
    }
}

fn look_at_exposure(config: &Config, report: &mut Report) {
    let is_proved = |tls: &Option<TlsFiles>| tls.as_ref().is_some_and(|t| t.client_ca.is_some());
    let doors = [
        ("nbd", &config.nbd, is_proved(&config.nbd_tls)),
        ("http", &config.http, config.http_tls.is_some()),
        ("iscsi", &config.iscsi, false),
        ("nfs", &config.nfs, false),
    ];
    let open = |(name, at, is_safe): (_, &Listening, bool)| {
        (!is_safe && at.tcp.iter().any(|to| is_beyond(to))).then_some(name)
    };
    let open: Vec<&str> = doors.into_iter().filter_map(open).collect();
    if config.insecure && !open.is_empty() {
        report.find(
            ("insecure", Level::Warning),
            format!("`insecure` is set, and {} is served beyond this machine", open.join(", ")),
            "whoever reaches the address may read and change every volume",
            "take `insecure` away: operations.md, who gets in, has what helps",
        );
    }
}

/// Whether others than this machine reach an address; a name counts as one that they do.
fn is_beyond(address: &str) -> bool {
    let parsed: Result<SocketAddr, _> = address.parse();
    !address.starts_with("localhost:") && !parsed.is_ok_and(|address| address.ip().is_loopback())
}
