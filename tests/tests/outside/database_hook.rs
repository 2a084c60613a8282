//! PostgreSQL in backup mode around a capture, by the hook that is shipped and installed with make.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use hindsight_tests::command::{call, skips_without_root};
use hindsight_tests::disk::Disk;
use hindsight_tests::postgres::Postgres;
use serde_json::Value;

use crate::stage::{Stage, folder};

/// Sessions that hold a backup.
const HOLDING: &str = "select count(*) from pg_stat_activity \
    where application_name = 'psql' and query like '%pg_backup_start%' and pid <> pg_backend_pid()";

/// Installs the hook below a folder; its program.
fn install(folder: &Path) -> Result<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the project")?;
    let (top, destination) = (top.display().to_string(), format!("DESTDIR={}", folder.display()));
    call("make", &["-s", "-C", &top, "install-hooks", &destination, "PREFIX=/opt"])?;
    Ok(folder.join("opt/lib/hindsight/pg-hook"))
}

/// A configuration with the hook, for the cluster whose socket is in a folder.
fn configure(folder: &Path, hook: &Path, sockets: &Path) -> Result<PathBuf> {
    let config = folder.join("config.toml");
    let state = format!("HINDSIGHT_PG_STATE={}", folder.join("state").display());
    let (hook, sockets) = (hook.display().to_string(), sockets.display().to_string());
    let text = format!(
        "[hooks.pg]\n\
         before = [\"/usr/bin/env\", {state:?}, {hook:?}, \"start\", \"-h\", {sockets:?}, \"-U\", \
         \"postgres\"]\n\
         after = [\"/usr/bin/env\", {state:?}, {hook:?}, \"stop\"]\n"
    );
    fs::write(&config, text)?;
    Ok(config)
}

#[test]
fn a_database_in_backup_mode_is_captured_and_goes_on() -> Result<()> {
    if skips_without_root("PostgreSQL in backup mode") {
        return Ok(());
    }
    let own = folder()?;
    let hook = install(own.path())?;
    let sockets = own.path().join("socket");
    let config = configure(own.path(), &hook, &sockets)?;
    let stage = Stage::with("db", "1GiB", &["--config", &config.display().to_string()])?;
    let mount = stage.path("mnt");
    let mut disk = Disk::attach(&stage.server.uri("db"), &stage.path("fuse"), false)?;
    call("mkfs.ext4", &["-q", "-F", disk.device()])?;
    disk.mount(&mount, "defaults")?;
    let mut postgres = Postgres::at(&mount.join("data"), &sockets)?;
    postgres.init()?;
    postgres.start()?;
    postgres.query("create table t as select generate_series(1, 1000) as n")?;

    let capture = || -> Result<Value> {
        let made = stage.server.run(&["version", "create", "db", "--json", "--hook", "pg"])?;
        Ok(serde_json::from_str(&made)?)
    };
    let quiesced = capture()?;
    ensure!(quiesced["consistency"] == "quiesced", "{quiesced}\n{}", stage.server.talk());
    ensure!(postgres.query(HOLDING)? == "0", "the backup has ended with the capture");
    let label = fs::read_to_string(own.path().join("state/pg-hook-pg/backup_label"))?;
    ensure!(label.contains("START WAL LOCATION") && label.contains("hindsight"), "{label}");
    postgres.query("insert into t select generate_series(1001, 2000)")?;
    postgres.stop("fast")?;
    // Nobody answers: captured all the same, and it says so.
    let failed = capture()?;
    ensure!(failed["consistency"] == "quiesce-failed", "{failed}");
    stage.server.wait_for_talk("pg-hook start: the session has ended")?;
    disk.detach()?;

    stage.server.run(&["clone", "db@v:0", "past"])?;
    let mut disk = Disk::attach(&stage.server.uri("past"), &stage.path("fuse"), false)?;
    disk.mount(&mount, "defaults")?;
    let mut postgres = Postgres::at(&mount.join("data"), &sockets)?;
    postgres.start()?;
    ensure!(postgres.query("select count(*) from t")? == "1000", "as it was at the capture");
    postgres.stop("fast")?;
    disk.detach()
}

#[test]
fn a_backup_that_nobody_ends_is_ended_by_the_watchdog() -> Result<()> {
    if skips_without_root("the watchdog of a backup") {
        return Ok(());
    }
    let own = folder()?;
    let hook = install(own.path())?;
    let sockets = own.path().join("socket");
    let mut postgres = Postgres::at(&own.path().join("data"), &sockets)?;
    postgres.init()?;
    postgres.start()?;
    let (state, sockets) = (own.path().display().to_string(), sockets.display().to_string());
    let run = |seconds: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new(&hook);
        command.args(arguments).env("HINDSIGHT_PG_STATE", &state);
        command.env("HINDSIGHT_PG_SECONDS", seconds).stdin(std::process::Stdio::null());
        hindsight_tests::command::output(&mut command)
    };
    let start = ["start", "-h", &sockets, "-U", "postgres"];
    ensure!(run("600", &start)?.status.success(), "it is begun");
    ensure!(!run("600", &start)?.status.success(), "one at a time");
    ensure!(run("600", &["stop"])?.status.success(), "it is ended");
    // Long enough to begin a backup on any machine: nothing is left for its checkpoint to write.
    postgres.query("checkpoint")?;
    ensure!(run("10", &start)?.status.success(), "it is begun again");
    hindsight_tests::disk::wait_until("the watchdog", || Ok(postgres.query(HOLDING)? == "0"))?;
    let stop = run("10", &["stop"])?;
    let said = String::from_utf8_lossy(&stop.stderr).into_owned();
    ensure!(!stop.status.success() && said.contains("its time was over"), "{said}");
    ensure!(run("600", &start)?.status.success(), "it can be begun again");
    ensure!(postgres.query(HOLDING)? == "1", "it is held");
    ensure!(run("600", &["stop"])?.status.success(), "and ended");
    ensure!(postgres.query(HOLDING)? == "0", "nobody holds it");
    postgres.stop("fast")
}
