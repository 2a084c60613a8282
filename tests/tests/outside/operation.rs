//! What an operator sees: a pool that fills up, a server that is told to stop twice.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hindsight_tests::client::Client;
use hindsight_tests::nbd::{Reply, Request};
use hindsight_tests::{certificates, command};
use serde_json::{Value, json};

use crate::stage::{Stage, folder};

/// The error number of what finds no room.
const NO_SPACE: u32 = 28;

fn mib(place: u64, byte: u8) -> Request {
    Request::Write { offset: place << 20, bytes: vec![byte; 1 << 20], fua: false }
}

/// How full the pool was, of each warning in the log.
fn warnings(talk: &str) -> impl Iterator<Item = u64> {
    let warnings = talk.lines().filter(|line| line.contains(" WARN "));
    let numbers = warnings.filter_map(|line| line.split("the pool is ").nth(1)?.split(' ').next());
    numbers.filter_map(|number| number.parse().ok())
}

#[test]
fn a_pool_that_fills_up_says_so_before_it_is_full() -> Result<()> {
    // Background work has some zones at hand: few of a pool of this size.
    let mut stage = Stage::with("vol", "1GiB", &["--pool-size", "1GiB"])?;
    let http = stage.server.http();
    let pool = http.get("/api/v1/pool")?;
    ensure!(pool["warning"].is_null() && pool["fill_percent"].as_u64() < Some(50), "{pool}");
    let mut link = stage.server.connect("vol")?;
    let mut place = 0;
    for level in [75, 85, 95] {
        // Background work takes and gives a zone now and then: well above the level.
        while http.get("/api/v1/pool")?["fill_percent"].as_u64() < Some(level + 2) {
            // All of it is live, so that nothing can be given up for it.
            link.demand(&mib(place, 7))?;
            place += 1;
        }
        let is_warned = |talk: &str| warnings(talk).any(|percent| percent >= level);
        stage.server.wait_until_said(&format!("a warning of {level} %"), is_warned)?;
        let pool = http.get("/api/v1/pool")?;
        let percent = pool["fill_percent"].as_u64().unwrap_or_default();
        ensure!(percent < 100, "no write has failed yet: {pool}");
        let words = format!("the pool is {percent} % full");
        ensure!(pool["warning"].as_str().is_some_and(|w| w.contains(&words)), "{pool}");
        let metrics = String::from_utf8(http.call("GET", "/metrics", None)?.body)?;
        let gauge = format!("hindsight_pool_warning_ratio {}", level as f64 / 100.0);
        ensure!(metrics.contains(&gauge), "{gauge} is missing of {metrics}");
    }
    let shown = stage.server.run(&["pool", "status"])?;
    ensure!(shown.lines().any(|line| line.starts_with("warning ")), "{shown}");
    drop(link);
    stage.server.run(&["volume", "delete", "vol", "--force", "--now"])?;
    stage.server.wait_for_talk("the pool has more room again")?;
    let pool = http.get("/api/v1/pool")?;
    ensure!(pool["warning"].is_null(), "{pool}");
    stage.server.stop()
}

#[test]
fn a_pool_without_room_says_so_where_an_operator_looks() -> Result<()> {
    let mut stage = Stage::with("", "", &["--pool-size", "256MiB"])?;
    let (server, http) = (&stage.server, stage.server.http());
    let warned = |arguments: &[&str]| -> Result<bool> {
        let output = server.output(arguments)?;
        let talk = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{talk}");
        Ok(talk.contains("warning: the volumes may come to hold "))
    };
    ensure!(!warned(&["volume", "create", "vol", "--size", "16MiB"])?);
    ensure!(warned(&["volume", "create", "two", "--size", "1GiB"])?);
    ensure!(!warned(&["volume", "set", "two", "--window", "1h"])?, "nothing grew");
    ensure!(!warned(&["volume", "resize", "two", "16MiB"])?);
    ensure!(warned(&["volume", "resize", "vol", "2GiB"])?);
    // One that is also in place counts twice.
    let split = ["volume", "create", "three", "--size", "1MiB", "--architecture", "split-stream"];
    ensure!(warned(&split)?);
    let pool = http.get("/api/v1/pool")?;
    ensure!(pool["promised_bytes"] == (2048_u64 + 16 + 2) << 20, "{pool}");

    let ask = |target: &str| -> Result<(u16, String)> {
        let answer = http.call("GET", target, None)?;
        Ok((answer.status, String::from_utf8(answer.body)?))
    };
    ensure!(ask("/readyz")? == (200, "ok\n".to_owned()));
    let mut link = server.connect("vol")?;
    let mut failed = 0;
    for place in 0..300 {
        if failed == 2 {
            break;
        }
        failed += u64::from(matches!(link.ask(&mib(place, 7))?, Reply::Error(NO_SPACE)));
    }
    ensure!(failed == 2, "256 MiB do not take 300");
    let (status, ready) = ask("/readyz")?;
    let degraded = "degraded: writes fail for want of room: delete a version";
    ensure!(status == 200 && ready.starts_with(degraded), "{status} {ready}");
    ensure!(ask("/healthz")? == (200, "ok\n".to_owned()));
    let metrics = ask("/metrics")?.1;
    let count = format!("hindsight_nbd_no_space_total {failed}\n");
    ensure!(metrics.contains(&count), "{count} is missing of {metrics}");
    server.wait_for_talk("no room: writes fail with ENOSPC; to do: delete a version")?;
    drop(link);
    stage.server.stop()
}

#[test]
fn a_second_sigterm_stops_at_once_and_loses_nothing() -> Result<()> {
    let mut stage = Stage::new("vol", "8MiB")?;
    let mut link = stage.server.connect("vol")?;
    link.demand(&mib(1, 5))?;
    // Half a request: the server waits a while for the rest of it. It says that it does: one whose
    // beginning it has not read is no request yet.
    let mut half = UnixStream::connect(stage.path("pool/api.sock"))?;
    half.write_all(
        b"POST /api/v1/volumes HTTP/1.1\r\nHost: localhost\r\nContent-Type: \
        application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n",
    )?;
    let mut told = [0; 25];
    half.read_exact(&mut told)?;
    ensure!(&told == b"HTTP/1.1 100 Continue\r\n\r\n", "{}", String::from_utf8_lossy(&told));
    half.write_all(b"{")?;
    let process = stage.server.process().expect("it runs");
    command::signal(process, "TERM")?;
    stage.server.wait_for_talk("stopping")?;
    command::signal(process, "TERM")?;
    let code = stage.server.wait()?;
    ensure!(code == Some(130), "exit code {code:?}: {}", stage.server.talk());
    ensure!(stage.server.talk().contains("stopped at once"), "{}", stage.server.talk());
    stage.server.up()?;
    ensure!(stage.server.connect("vol")?.read(1 << 20, 1 << 20)? == vec![5; 1 << 20]);
    stage.server.stop()
}

#[test]
fn versions_marks_and_reverts_of_many_clients_at_once_all_end() -> Result<()> {
    let stage = Stage::new("vol", "8MiB")?;
    let (done, is_done) = mpsc::channel();
    let calls: [(&str, Value); 4] = [
        ("versions", json!({})),
        ("revert", json!({ "to": "seq:0" })),
        ("versions", json!({ "label": "again" })),
        ("revert", json!({ "to": "latest" })),
    ];
    for (path, body) in calls {
        let (http, done) = (stage.server.http(), done.clone());
        thread::spawn(move || {
            let target = format!("/api/v1/volumes/vol/{path}");
            let made =
                (0..40).try_for_each(|_| http.expect("POST", &target, Some(&body)).map(drop));
            let _ = done.send(made);
        });
    }
    for _ in 0..4 {
        let made = is_done.recv_timeout(Duration::from_secs(120));
        made.context("some call was never answered")??;
    }
    let versions = stage.server.http().get("/api/v1/volumes/vol/versions")?;
    ensure!(versions.as_array().is_some_and(|list| list.len() == 80), "{versions}");
    Ok(())
}

#[test]
fn a_clock_that_was_wrong_and_a_certificate_that_has_expired_are_told() -> Result<()> {
    let own = folder()?;
    certificates::authority(own.path())?;
    certificates::signed(own.path(), "server", "/CN=localhost")?;
    let config = own.path().join("config.toml");
    let [cert, key] = ["server-cert.pem", "server-key.pem"].map(|name| own.path().join(name));
    let tls = format!("tls_cert = {cert:?}\ntls_key = {key:?}\n");
    fs::write(&config, format!("[nbd]\nlisten = [\"127.0.0.1:0\"]\n{tls}"))?;
    let mut stage = Stage::with("vol", "8MiB", &["--config", &config.display().to_string()])?;
    let (expired, ahead) = ("clients over TCP will refuse the certificate", "ahead of the clock");
    ensure!(!stage.server.talk().contains(expired), "{}", stage.server.talk());
    stage.server.stop()?;
    // It is good for 30 days.
    let clock = own.path().join("clock");
    fs::write(&clock, "+60d")?;
    stage.server.set_clock(&clock)?;
    stage.server.up()?;
    stage.server.wait_for_talk(expired)?;
    stage.server.connect("vol")?.demand(&mib(0, 1))?;
    ensure!(!stage.server.run(&["volume", "show", "vol"])?.contains(ahead));
    stage.server.stop()?;
    fs::write(&clock, "+0")?;
    stage.server.up()?;
    stage.server.wait_for_talk("the last write is ahead of the clock")?;
    let shown = stage.server.run(&["volume", "show", "vol"])?;
    ensure!(shown.contains(ahead), "{shown}");
    Ok(())
}
