//! iSCSI targets of several units, through libiscsi and an initiator of our own: one instant of a
//! group, numbers that stay, and volumes that are wanted alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use hindsight_tests::client::Client;
use hindsight_tests::command::call;
use hindsight_tests::iscsi::Iscsi;
use hindsight_tests::nbd::{Reply, Request};
use serde_json::Value;

use crate::iscsi::{conforms, qemu_io};
use crate::stage::Stage;

/// The URLs of the units of a target.
fn urls(stage: &Stage, target: &str) -> Result<Vec<String>> {
    let shown = stage.server.run(&["target", "show", target, "--json"])?;
    let shown: Value = serde_json::from_str(&shown)?;
    let luns = shown["luns"].as_array().context("units")?.iter();
    luns.map(|lun| Ok(lun["uri"].as_str().context("a URL")?.to_owned())).collect()
}

fn write(client: &mut Iscsi, number: u64) -> Result<()> {
    let mut bytes = vec![0; 4096];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let reply = client.ask(&Request::Write { offset: 0, bytes, fua: false })?;
    ensure!(matches!(reply, Reply::Done), "{reply:?}");
    Ok(())
}

fn number(url: &str) -> Result<u64> {
    let mut client = Iscsi::connect(url, false)?;
    ensure!(client.is_read_only(), "a moment can be written");
    let reply = client.ask(&Request::Read { offset: 0, length: 4096 })?;
    let Reply::Bytes(bytes) = reply else { anyhow::bail!("{reply:?}") };
    client.log_out()?;
    Ok(u64::from_le_bytes(bytes[..8].try_into()?))
}

fn stage() -> Result<Stage> {
    let stage = Stage::with("data", "64MiB", &["--iscsi", "127.0.0.1:0"])?;
    stage.server.run(&["volume", "create", "wal", "--size", "64MiB"])?;
    stage.server.run(&["group", "create", "bank", "data", "wal"])?;
    stage.server.run(&["target", "create", "disks", "--group", "bank"])?;
    Ok(stage)
}

#[test]
fn two_units_of_a_group_are_of_one_instant() -> Result<()> {
    let stage = stage()?;
    let both = urls(&stage, "disks")?;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = thread::spawn({
        let (stop, both) = (Arc::clone(&stop), both.clone());
        move || -> Result<u64> {
            let mut data = Iscsi::connect(&both[0], false)?;
            let mut wal = Iscsi::connect(&both[1], false)?;
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                count += 1;
                write(&mut data, count)?;
                write(&mut wal, count)?;
            }
            data.log_out()?;
            wal.log_out()?;
            Ok(count)
        }
    });
    let mut seen = Vec::new();
    for version in 0..8 {
        stage.server.run(&["group", "version", "bank"])?;
        let (name, at) = (format!("before-{version}"), format!("bank@v:{version}"));
        stage.server.run(&["target", "create", &name, "--group", &at])?;
        let past = urls(&stage, &name)?;
        let (data, wal) = (number(&past[0])?, number(&past[1])?);
        ensure!(data == wal || data == wal + 1, "version {version}: {data} and {wal}");
        seen.push((past, data, wal));
    }
    stop.store(true, Ordering::Relaxed);
    let count = writer.join().expect("no panic")?;
    ensure!(seen[7].1 > seen[0].1 && count > 100, "nobody wrote: {count}");
    // They still are what they were.
    for (past, data, wal) in &seen {
        ensure!((number(&past[0])?, number(&past[1])?) == (*data, *wal));
    }
    Ok(())
}

#[test]
fn a_unit_beyond_the_first_conforms_and_keeps_its_number() -> Result<()> {
    let mut stage = stage()?;
    let url = urls(&stage, "disks")?.remove(1);
    for test in [
        "Inquiry.AllocLength",
        "Inquiry.SupportedVPD",
        "CompareAndWrite.Simple",
        "ModeSense6.Residuals",
        "ProutReserve.Simple",
        "Read10.BeyondEol",
        "Reserve6.Logout",
        "TestUnitReady.Simple",
        "Unmap.Simple",
        "Write10.Residuals",
    ] {
        ensure!(conforms(test, &[&url])? == Ok("PASS"), "{test}");
    }
    qemu_io(&url, &["write -P 0x41 0 1M", "flush"])?;
    let absent = url.trim_end_matches('1').to_owned() + "2";
    ensure!(call("iscsi-inq", &[&absent]).is_err(), "a number without a unit");
    let listed = call("iscsi-ls", &["-s", url.rsplit_once("/iqn").context("a target")?.0])?;
    ensure!(listed.contains("Lun:1") && listed.contains(":disks"), "{listed}");
    // Over a kill and a rename; and a number that was taken out.
    stage.server.run(&["volume", "rename", "wal", "log"])?;
    stage.server.run(&["target", "set", "disks", "--remove-lun", "0"])?;
    stage.server.kill();
    stage.server.up()?;
    let url = urls(&stage, "disks")?.remove(0);
    ensure!(url.ends_with("/1"), "{url}");
    qemu_io(&url, &["read -P 0x41 0 1M"])?;
    let again = stage.server.output(&["target", "set", "disks", "--add-lun", "0=data"])?;
    ensure!(!again.status.success(), "a retired number was given again");
    stage.server.run(&["target", "set", "disks", "--add-lun", "2=data"])?;
    let taken = stage.server.output(&["volume", "create", "disks", "--size", "64MiB"])?;
    ensure!(!taken.status.success(), "a volume has the name of a target");
    Ok(())
}

#[test]
fn a_volume_is_reverted_and_deleted_without_its_neighbour() -> Result<()> {
    let stage = stage()?;
    let both = urls(&stage, "disks")?;
    let mut data = Iscsi::connect(&both[0], false)?;
    let mut wal = Iscsi::connect(&both[1], false)?;
    write(&mut wal, 1)?;
    stage.server.run(&["version", "create", "wal"])?;
    write(&mut wal, 2)?;
    let revert = ["revert", "wal", "--to", "v:0"];
    let refused = stage.server.output(&revert)?;
    ensure!(refused.status.code() == Some(11), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    // Each session has both units.
    ensure!(said.contains("2 clients are attached to wal") && said.contains("checker"), "{said}");
    stage.server.run(&[&revert[..], &["--force"]].concat())?;
    let reply = wal.ask(&Request::Read { offset: 0, length: 4096 })?;
    ensure!(matches!(reply, Reply::Error(_)), "it goes on in what was reverted: {reply:?}");
    write(&mut data, 3)?;
    let forced = ["volume", "delete", "wal", "--force"];
    stage.server.run(&forced)?;
    write(&mut data, 4)?;
    let removed = stage.server.output(&["target", "delete", "disks"])?;
    ensure!(removed.status.code() == Some(11), "{removed:?}");
    data.log_out()?;
    wal.log_out()?;
    stage.server.run(&["target", "delete", "disks"])?;
    ensure!(stage.server.run(&["pool", "audit", "--json"])?.contains("target-delete"));
    Ok(())
}
