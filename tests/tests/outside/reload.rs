//! SIGHUP: certificates and settings are loaded again, and nothing ends by it.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hindsight_tests::client::Client;
use hindsight_tests::command::{self, call, signal};
use hindsight_tests::nbd::Request;
use hindsight_tests::server::{Server, program};
use hindsight_tests::{certificates, poll};

use crate::stage::{Stage, folder};

/// Says SIGHUP, and waits until the server has said `answer` once more.
fn hang_up(server: &Server, answer: &str) -> Result<()> {
    let said = server.talk().matches(answer).count();
    signal(server.process().context("it runs")?, "HUP")?;
    server.wait_until_said(answer, |talk| talk.matches(answer).count() > said)
}

const LOADED: &str = "the configuration was loaded again";
const STAYS: &str = "the configuration stays as it was";

/// Puts a certificate of a new authority in place of the server's.
fn replace_certificate(authority: &Path, own: &Path) -> Result<()> {
    certificates::authority(authority)?;
    certificates::signed(authority, "server", "/CN=localhost")?;
    for part in ["server-cert.pem", "server-key.pem"] {
        fs::copy(authority.join(part), own.join(part))?;
    }
    Ok(())
}

/// Whether a client that trusts `authority` gets in over TLS.
fn is_trusted(authority: &Path, port: &str) -> Result<bool> {
    let uri = format!("nbds://localhost:{port}/vol?tls-certificates={}", authority.display());
    Ok(command::output(Command::new("nbdinfo").args(["--size", &uri]))?.status.success())
}

#[test]
fn certificates_and_settings_are_loaded_again_while_clients_go_on() -> Result<()> {
    let own = folder()?;
    let (first, second) = (own.path().join("first"), own.path().join("second"));
    replace_certificate(&first, own.path())?;
    let config = own.path().join("config.toml");
    let text = format!(
        "[nbd]\nlisten = [\"127.0.0.1:0\"]\ntls_cert = {0:?}\ntls_key = {1:?}\n",
        own.path().join("server-cert.pem"),
        own.path().join("server-key.pem")
    );
    fs::write(&config, &text)?;
    let mut stage = Stage::with("vol", "8MiB", &["--config", &config.display().to_string()])?;
    let talk = stage.server.talk();
    let line = talk.lines().find_map(|line| line.strip_prefix("nbd 127.0.0.1:"));
    let port = line.and_then(|line| line.split(' ').next()).context("an NBD address")?;
    let mut link = stage.server.connect("vol")?;
    ensure!(is_trusted(&first, port)?);

    replace_certificate(&second, own.path())?;
    ensure!(!is_trusted(&second, port)?, "nobody has said so yet");
    hang_up(&stage.server, LOADED)?;
    ensure!(is_trusted(&second, port)? && !is_trusted(&first, port)?);

    let hook = "[hooks.quiet]\nbefore = [\"/bin/true\"]\n";
    fs::write(&config, format!("memory = \"64MiB\"\nscrub_rate = \"1MiB\"\n{text}{hook}"))?;
    ensure!(stage.server.run(&["volume", "set", "vol", "--hook", "quiet"]).is_err());
    hang_up(&stage.server, "these were changed, and hold from the next start on")?;
    ensure!(stage.server.talk().contains("settings=\"memory\""), "{}", stage.server.talk());
    stage.server.run(&["volume", "set", "vol", "--hook", "quiet"])?;
    let pool = stage.server.http().get("/api/v1/pool")?;
    ensure!(pool["scrub_rate_bytes"] == 1 << 20, "{pool}");

    // What is wrong changes nothing: the right certificate beside it does not hold either.
    let metrics = || -> Result<String> {
        Ok(String::from_utf8(stage.server.http().call("GET", "/metrics", None)?.body)?)
    };
    for (file, wrong) in [(&config, "memory = 7"), (&own.path().join("server-key.pem"), "no PEM")] {
        let right = fs::read(file)?;
        fs::write(file, wrong)?;
        hang_up(&stage.server, STAYS)?;
        ensure!(metrics()?.contains("hindsight_config_last_reload_successful 0"));
        ensure!(is_trusted(&second, port)?);
        fs::write(file, right)?;
    }
    hang_up(&stage.server, LOADED)?;
    ensure!(metrics()?.contains("hindsight_config_last_reload_successful 1"));
    link.demand(&Request::Write { offset: 0, bytes: vec![1; 4096], fua: true })?;
    stage.server.stop()
}

#[test]
fn a_hangup_kills_neither_a_server_that_starts_nor_one_that_stops() -> Result<()> {
    let own = folder()?;
    let config = own.path().join("config.toml");
    // The server stands still where it starts: it waits for the text of its configuration.
    call("mkfifo", &[&config.display().to_string()])?;
    let pool = own.path().join("pool");
    let mut child = Command::new(program()?)
        .args(["serve", "--http", "none", "--pool-size", "256MiB", "--config"])
        .arg(&config)
        .arg("--pool")
        .arg(&pool)
        .stdin(Stdio::null())
        .stderr(Stdio::from(fs::File::create(own.path().join("log"))?))
        .spawn()?;
    let caught = || -> Result<bool> {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        Ok(u64::from_str_radix(mask.context("a mask")?.trim(), 16)? & 1 == 1)
    };
    poll("it catches SIGHUP", caught)?;
    signal(child.id(), "HUP")?;
    let mut text = fs::File::options().write(true).open(&config)?;
    let whole = own.path().join("whole.toml");
    fs::write(&whole, "")?;
    fs::rename(&whole, &config)?;
    text.write_all(b"memory = \"32MiB\"\n")?;
    drop(text);
    let says = |what: &str| Ok(fs::read_to_string(own.path().join("log"))?.contains(what));
    poll("it is ready, and has done what it was told", || Ok(says("ready")? && says(LOADED)?))?;

    // A client that does not go holds a stop up.
    let mut idle = UnixStream::connect(pool.join("nbd.sock"))?;
    idle.write_all(&[0, 0, 0, 3])?;
    signal(child.id(), "TERM")?;
    poll("it stops", || says("stopping"))?;
    let began = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            // It may have ended, and nobody waited for it yet.
            None => drop(signal(child.id(), "HUP")),
        }
        ensure!(began.elapsed() < Duration::from_secs(60), "it does not stop");
    };
    ensure!(status.success() && says("stopped")?, "{status}");
    Ok(())
}
