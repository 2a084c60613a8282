//! iSCSI through other people's initiators: libiscsi's conformance tests and its tools, qemu-io and
//! qemu-img.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hindsight_tests::client::Client;
use hindsight_tests::command::{call, output};
use hindsight_tests::iscsi::Iscsi;
use hindsight_tests::nbd::{Reply, Request};

use crate::stage::{Stage, folder};

/// Conformance tests that are skipped, and why.
const REFUSED: [(&str, &str); 10] = [
    ("PreventAllow.", "there is no medium that could be removed"),
    ("StartStopUnit.Simple", "there is no medium that could be removed"),
    ("Sanitize.", "a history keeps what SANITIZE promises to be gone"),
    ("ReadDefectData", "there are no defects to list"),
    ("ExtendedCopy.", "not in this release"),
    ("ReceiveCopyResults.", "not in this release"),
    ("WriteAtomic16.", "not in this release"),
    ("WriteSame10.ZeroBlocks", "a WRITE SAME of no blocks is refused, as the block limits say"),
    ("WriteSame16.ZeroBlocks", "a WRITE SAME of no blocks is refused, as the block limits say"),
    ("ReadOnly.", "the present can be written; it runs against a moment"),
];

/// Conformance tests that no target can pass, or none with physical blocks of 4 KiB.
const FLAWED: [(&str, &str); 2] = [
    ("GetLBAStatus.UnmapSingle", "asks about block i + 1 and wants an answer about block i + 8"),
    ("iSCSITMF.LUNResetSimpleAsync", "looks at the outcome before anything was sent"),
];

/// The same of the suite that has more tests than Debian's (`ISCSI_TEST_CU` names it), and those of
/// it that want a proof of CHAP, which others give.
const OF_NEWER: [(&str, &str); 5] = [
    ("CompareAndWrite.InvalidDataOutSize", "sends a right command, and wants it to be wrong"),
    ("iSCSITMF.AbortTaskSimpleAsync", "looks at the outcome before anything was sent"),
    ("iSCSISendTargets.Simple", "asks for all targets where RFC 7143 forbids it"),
    ("iSCSISendTargets.Invalid", "asks for all targets where RFC 7143 forbids it"),
    ("iSCSICHAP.", "the volume has no CHAP"),
];

/// Tests that are to run, fewer would mean that the tool is another one.
const CONFORMANCE_MIN: usize = 230;

/// A stage with iSCSI, and the URL of a target.
fn stage(volume: &str, size: &str) -> Result<Stage> {
    Stage::with(volume, size, &["--iscsi", "127.0.0.1:0"])
}

/// Where iSCSI is served since the last start.
fn portal(stage: &Stage) -> Result<String> {
    let talk = stage.server.talk();
    let line = talk.lines().rev().find_map(|line| line.strip_prefix("iscsi "));
    Ok(line.context("no iSCSI listener")?.to_owned())
}

/// The name of a volume's target, as discovery tells it.
fn target(stage: &Stage, volume: &str) -> Result<String> {
    let listed = call("iscsi-ls", &[&format!("iscsi://{}", portal(stage)?)])?;
    let names = listed.lines().filter_map(|line| line.strip_prefix("Target:"));
    let mut names = names.filter_map(|line| line.split(' ').next());
    let found = names.find(|name| name.ends_with(&format!(":{volume}")));
    Ok(found.with_context(|| format!("{volume} is not in: {listed}"))?.to_owned())
}

fn url(stage: &Stage, target: &str) -> Result<String> {
    Ok(format!("iscsi://{}/{target}/0", portal(stage)?))
}

pub fn qemu_io(url: &str, commands: &[&str]) -> Result<String> {
    // The past is opened for reading only.
    let access: &[&str] = if url.contains(":at:") { &["-r", "-f", "raw"] } else { &["-f", "raw"] };
    let commands = commands.iter().flat_map(|command| ["-c", command]);
    let arguments: Vec<&str> = access.iter().copied().chain(commands).chain([url]).collect();
    let said = call("qemu-io", &arguments)?;
    ensure!(!said.contains("failed") && !said.contains("error"), "{said}");
    Ok(said)
}

/// The tool of libiscsi's conformance tests.
fn tool() -> String {
    std::env::var("ISCSI_TEST_CU").unwrap_or_else(|_| "iscsi-test-cu".to_owned())
}

/// Runs one conformance test: `PASS`, `SKIP`, or what it said.
pub fn conforms(test: &str, urls: &[&str]) -> Result<Result<&'static str, String>> {
    let test = format!("ALL.{test}");
    let told = output(
        Command::new("timeout")
            .args(["30", &tool(), "--dataloss", "--normal", "-t", &test])
            .args(urls),
    )?;
    let said = String::from_utf8_lossy(&told.stdout).into_owned();
    if !told.status.success() || said.contains("had failures") {
        return Ok(Err(format!("{}\n{said}", told.status)));
    }
    Ok(Ok(if said.contains("SKIPPED") { "SKIP" } else { "PASS" }))
}

#[test]
fn libiscsis_conformance_tests_pass_but_for_those_that_are_refused() -> Result<()> {
    let stage = stage("vol", "128MiB")?;
    let url = url(&stage, &target(&stage, "vol")?)?;
    let listed = call(&tool(), &["--list"])?;
    let tests: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.strip_prefix("ALL."))
        .filter(|test| test.contains('.'))
        .collect();
    let is_newer = tests.len() > CONFORMANCE_MIN;
    ensure!(tests.len() >= CONFORMANCE_MIN, "{} tests", tests.len());
    let is_in = |list: &[(&str, &str)], test: &str| list.iter().any(|(t, _)| test.starts_with(t));
    let (mut passed, mut skipped) = (0, 0);
    let mut wrong = Vec::new();
    let flaws = |test: &str| is_in(&FLAWED, test) || is_newer && is_in(&OF_NEWER, test);
    for test in tests.into_iter().filter(|test| !flaws(test)) {
        // Those want a second path to the same unit, and others are disturbed by one.
        let paths = if test.starts_with("MultipathIO.") { 2 } else { 1 };
        match conforms(test, &[&*url, &*url][..paths])? {
            Ok("PASS") => passed += 1,
            Ok(_) if is_in(&REFUSED, test) => skipped += 1,
            Ok(what) => wrong.push(format!("{test}: {what}")),
            Err(said) => wrong.push(format!("{test}: {said}")),
        }
    }
    println!("{passed} passed, {skipped} skipped");
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    stage.server.run(&["volume", "show", "vol"]).map(drop)
}

#[test]
fn reservations_and_names_of_moments_outlive_the_server() -> Result<()> {
    let mut stage = stage("vol", "64MiB")?;
    let present = target(&stage, "vol")?;
    let wrote = |stage: &Stage, initiator: u32| -> Result<bool> {
        let mut session = Iscsi::connect_as(initiator, &url(stage, &present)?, false)?;
        let bytes = vec![0xbb; 4096];
        session.send(&Request::Write { offset: 1 << 20, bytes, fua: false })?;
        match session.wait() {
            Ok(completion) => Ok(matches!(completion.reply, Reply::Done)),
            // RESERVATION CONFLICT.
            Err(error) if error.to_string().contains("status 0x18") => Ok(false),
            Err(error) => Err(error),
        }
    };
    let reserved = |stage: &Stage| stage.server.run(&["target", "show", "vol"]);
    {
        let mut holder = Iscsi::connect_as(900_001, &url(&stage, &present)?, false)?;
        holder.register(7)?;
        holder.reserve(7)?;
        // Nobody is told of it, and its connection is not closed in order.
    }
    ensure!(wrote(&stage, 900_001)? && !wrote(&stage, 900_002)?, "one of them wrote");
    ensure!(reserved(&stage)?.contains("key 0x0000000000000007, kept over restarts"));
    qemu_io(&url(&stage, &format!("{present}:at:-1ms"))?, &["read -P 0xbb 1M 4k"])?;
    for is_killed in [true, false] {
        match is_killed {
            true => stage.server.kill(),
            false => stage.server.stop()?,
        }
        stage.server.up()?;
        // Before anybody is logged in, and after.
        ensure!(reserved(&stage)?.contains("write-exclusive by iqn.2026-11.org.example:checker"));
        ensure!(!wrote(&stage, 900_002)?, "{is_killed}: it wrote beside a reservation");
        ensure!(wrote(&stage, 900_001)?, "{is_killed}: the holder is kept out");
        ensure!(reserved(&stage)?.contains("write-exclusive by iqn.2026-11.org.example:checker"));
        let mut holder = Iscsi::connect_as(900_001, &url(&stage, &present)?, false)?;
        holder.send(&Request::Write { offset: 1 << 20, bytes: vec![0xcc; 4096], fua: false })?;
        holder.wait()?;
        std::thread::sleep(Duration::from_millis(20));
        // A name means the moment that it meant.
        qemu_io(&url(&stage, &format!("{present}:at:-1ms"))?, &["read -P 0xbb 1M 4k"])?;
    }
    // A clone is nobody's.
    stage.server.run(&["clone", "vol", "copy"])?;
    let shown = stage.server.run(&["target", "show", "copy"])?;
    ensure!(!shown.contains("reserved") && !shown.contains("registered"), "{shown}");
    Ok(())
}

#[test]
fn what_is_announced_is_told_by_discovery_and_by_target_show() -> Result<()> {
    let folder = folder()?;
    let config = folder.path().join("config.toml");
    std::fs::write(&config, "[iscsi]\nannounce = [\"192.0.2.7:3260\"]\n")?;
    let config = config.to_str().context("a path")?;
    let stage = Stage::with("vol", "8MiB", &["--iscsi", "127.0.0.1:0", "--config", config])?;
    let listed = call("iscsi-ls", &[&format!("iscsi://{}", portal(&stage)?)])?;
    ensure!(listed.contains(":vol Portal:192.0.2.7:3260,1"), "{listed}");
    stage.server.run(&["target", "create", "two", "--lun", "0=vol"])?;
    for name in ["vol", "two"] {
        let shown = stage.server.run(&["target", "show", name])?;
        ensure!(shown.contains("-p 192.0.2.7:3260 --login"), "{shown}");
    }
    // This machine still finds it where it is.
    qemu_io(&url(&stage, &target(&stage, "vol")?)?, &["write -P 1 0 4k"]).map(drop)
}

#[test]
fn a_moment_is_a_disk_that_keeps_its_meaning() -> Result<()> {
    let stage = stage("Pg_data", "64MiB")?;
    let present = target(&stage, ":1pg:0data")?;
    let now = url(&stage, &present)?;
    qemu_io(&now, &["write -P 0xaa 0 1M", "write -P 0x11 1M 4k", "flush"])?;
    stage.server.run(&["mark", "create", "Pg_data", "Before_it", "--pin"])?;
    qemu_io(&now, &["write -P 0xbb 0 1M", "discard 1M 4k", "flush"])?;
    let wants = ["read -P 0xaa 0 1M", "read -P 0x11 1M 4k"];
    let past = url(&stage, &format!("{present}:at:mark::1before:0it"))?;
    let ago = url(&stage, &format!("{present}:at:-1ms"))?;
    qemu_io(&past, &wants)?;
    // The commands know the same name.
    let shown = stage.server.run(&["target", "show", "Pg_data@mark:Before_it", "--json"])?;
    ensure!(shown.contains(&past), "{past} is not in {shown}");
    // It is read-only, to SCSI too.
    let refused = conforms("ReadOnly.ReadOnlySBC", &[&past])?;
    ensure!(refused == Ok("PASS"), "{refused:?}");
    let wrote = output(Command::new("qemu-io").args(["-f", "raw", "-c", "write 0 4k", &past]))?;
    ensure!(!wrote.status.success() || !wrote.stderr.is_empty(), "the past was written");
    // A mark of that name elsewhere, and another time ago: both names mean what they did.
    qemu_io(&ago, &["read -P 0xbb 0 1M", "read -P 0 1M 4k"])?;
    stage.server.run(&["mark", "delete", "Pg_data", "Before_it"])?;
    qemu_io(&now, &["write -P 0xcc 0 1M", "flush"])?;
    stage.server.run(&["mark", "create", "Pg_data", "Before_it"])?;
    qemu_io(&past, &wants)?;
    qemu_io(&ago, &["read -P 0xbb 0 1M"])?;
    qemu_io(&now, &["read -P 0xcc 0 1M"])?;
    // What is not there is refused.
    for name in [format!("{present}x"), format!("{present}:at:v:77")] {
        let told = output(Command::new("iscsi-inq").arg(url(&stage, &name)?))?;
        ensure!(!told.status.success(), "{name} was opened");
    }
    for (moment, code) in [("v:77", 10), ("seq:1000000", 13)] {
        let told = stage.server.output(&["target", "show", &format!("Pg_data@{moment}")])?;
        ensure!(told.status.code() == Some(code), "{moment}: {told:?}");
    }
    Ok(())
}

#[test]
fn what_was_acknowledged_is_there_when_the_server_was_killed() -> Result<()> {
    let mut stage = stage("vol", "64MiB")?;
    let name = target(&stage, "vol")?;
    for (round, byte) in ["0x21", "0x22", "0x23"].into_iter().enumerate() {
        let offset = format!("{round}M");
        let write = format!("write -P {byte} {offset} 1M");
        let odd = format!("write -f -P {byte} {} 512", (32 << 20) + round * 1536);
        qemu_io(&url(&stage, &name)?, &[&write, &odd])?;
        stage.server.kill();
        stage.server.up()?;
        let read = format!("read -P {byte} {offset} 1M");
        let odd = format!("read -P {byte} {} 512", (32 << 20) + round * 1536);
        qemu_io(&url(&stage, &name)?, &[&read, &odd])?;
        // The other front end says the same.
        call("qemu-io", &["-r", "-f", "raw", "-c", &read, "-c", &odd, &stage.server.uri("vol")])?;
    }
    Ok(())
}

#[test]
fn a_session_is_a_client_that_is_asked_to_leave() -> Result<()> {
    let mut stage = stage("vol", "64MiB")?;
    let url = url(&stage, &target(&stage, "vol")?)?;
    let mut client = Command::new("qemu-io")
        .args(["-f", "raw", &url])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut talk = client.stdin.take().context("piped")?;
    talk.write_all(b"write -P 7 0 4k\n")?;
    hindsight_tests::poll("the client writes", || {
        let shown = stage.server.run(&["volume", "show", "vol", "--json"])?;
        Ok(shown.contains("\"clients\": 1") || shown.contains("\"clients\":1"))
    })?;
    let listed = stage.server.run(&["target", "list", "--json"])?;
    ensure!(listed.contains("\"initiator\""), "{listed}");
    let deleted = stage.server.output(&["volume", "delete", "vol"])?;
    ensure!(deleted.status.code() == Some(11), "{deleted:?}");
    let began = Instant::now();
    stage.server.stop()?;
    ensure!(began.elapsed().as_secs() < 6, "the stop took {:?}", began.elapsed());
    client.kill()?;
    client.wait()?;
    stage.server.up()?;
    stage.server.run(&["volume", "delete", "vol"])?;
    Ok(())
}

#[test]
fn digests_and_short_segments_change_nothing() -> Result<()> {
    let stage = stage("vol", "64MiB")?;
    let name = target(&stage, "vol")?;
    let digests = format!("{}?header_digest=crc32c", url(&stage, &name)?);
    for test in ["Read16.Simple", "Write16.Simple", "Verify16.Simple", "Unmap.Simple"] {
        let done = conforms(test, &[&digests])?;
        ensure!(done == Ok("PASS"), "{test}: {done:?}");
    }
    let image = stage.text("image");
    call("qemu-img", &["create", "-q", "-f", "raw", &image, "64M"])?;
    call("qemu-io", &["-f", "raw", "-c", "write -P 0x5a 3M 9M", &image])?;
    call("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &image, &url(&stage, &name)?])?;
    let same =
        call("qemu-img", &["compare", "-f", "raw", "-F", "raw", &image, &url(&stage, &name)?])?;
    ensure!(same.contains("identical"), "{same}");
    Ok(())
}

/// Whether qemu-io reads a pattern over a URL.
fn reads(url: &str, pattern: &str) -> Result<bool> {
    let read = format!("read -P {pattern} 0 4k");
    let told = output(Command::new("qemu-io").args(["-r", "-f", "raw", "-c", &read, url]))?;
    let said = String::from_utf8_lossy(&told.stdout);
    Ok(told.status.success() && !said.contains("failed"))
}

#[test]
fn who_may_log_in_is_kept_with_the_volume_and_secrets_are_told_by_nobody() -> Result<()> {
    let mut stage = stage("vol", "64MiB")?;
    let name = target(&stage, "vol")?;
    qemu_io(&url(&stage, &name)?, &["write -P 0x31 0 4k", "flush"])?;
    let (secret, other) = ("one-of-initiators"[..16].to_owned(), "that-of-a-target".to_owned());
    let files = [stage.text("secret"), stage.text("other"), stage.text("short")];
    std::fs::write(&files[0], format!("{secret}\n"))?;
    std::fs::write(&files[1], &other)?;
    std::fs::write(&files[2], "short")?;
    let server = &stage.server;
    let chap = ["target", "set", "vol", "--chap-user", "me", "--chap-secret-file"];
    let refused = server.output(&[&chap[..], &[&files[2]]].concat())?;
    ensure!(!refused.status.success(), "a short secret was taken");
    let mutual = ["--mutual-user", "store", "--mutual-secret-file"];
    let both = [&chap[..], &[&files[0]], &mutual, &[&files[0]]].concat();
    ensure!(!server.output(&both)?.status.success(), "one secret proves both sides");
    let mut told = server.run(&[&chap[..], &[&files[0]], &mutual, &[&files[1]]].concat())?;
    // Over a restart, and for every moment.
    stage.server.stop()?;
    stage.server.up()?;
    let server = &stage.server;
    let portal = portal(&stage)?;
    for name in [name.clone(), format!("{name}:at:seq:1")] {
        let with = |who: &str| format!("iscsi://{who}{portal}/{name}/0");
        ensure!(!reads(&with(""), "0x31")?, "nobody was asked");
        ensure!(!reads(&with(&format!("me%{other}@")), "0x31")?, "any secret does");
        ensure!(!reads(&with(&format!("you%{secret}@")), "0x31")?, "any name does");
        ensure!(reads(&with(&format!("me%{secret}@")), "0x31")?, "nobody is let in");
        // The target proves itself to whoever asks: libiscsi sees whether it does.
        let proves = |secret_of_target: &str| {
            let mutual = format!("?target_user=store&target_password={secret_of_target}");
            let url = format!("{}{mutual}", with(&format!("me%{secret}@")));
            output(Command::new("iscsi-inq").arg(url)).map(|told| told.status.success())
        };
        ensure!(proves(&other)?, "the target proves nothing");
        ensure!(!proves("another-secret-1")?, "libiscsi takes any proof");
    }
    // Discovery, a clone, what is told, and what is logged.
    let listed = call("iscsi-ls", &[&format!("iscsi://{portal}")])?;
    ensure!(!listed.contains(&name), "{listed}");
    let listed = call("iscsi-ls", &[&format!("iscsi://me%{secret}@{portal}")])?;
    ensure!(listed.contains(&name), "{listed}");
    server.run(&["clone", "vol@latest", "copy"])?;
    let copy = format!("{}:copy", name.trim_end_matches(":vol"));
    ensure!(!reads(&format!("iscsi://{portal}/{copy}/0"), "0x31")?, "a clone is open");
    ensure!(reads(&format!("iscsi://me%{secret}@{portal}/{copy}/0"), "0x31")?);
    told += &server.run(&["target", "show", "vol", "--json"])?;
    ensure!(told.contains("\"chap_user\"") && told.contains("store"), "{told}");
    told += &server.run(&["volume", "show", "vol", "--json"])?;
    told += &server.run(&["pool", "audit", "--json"])?;
    ensure!(told.contains("target-set"), "{told}");
    told += &server.talk();
    ensure!(!told.contains(&secret) && !told.contains(&other), "a secret is told: {told}");
    // Only one that does not come, and the way back.
    let other = "target set vol --chap-user none --mutual-user none --allow iqn.2026-11.org:one";
    server.run(&other.split(' ').collect::<Vec<_>>())?;
    ensure!(!reads(&format!("iscsi://{portal}/{name}/0"), "0x31")?, "anybody is let in");
    server.run(&["target", "set", "vol", "--allow", "all"])?;
    ensure!(reads(&format!("iscsi://{portal}/{name}/0"), "0x31")?);
    Ok(())
}

/// A client that has written to a disk and dies without a word.
fn dies_writing(stage: &Stage, url: &str) -> Result<()> {
    let mut client = Command::new("qemu-io")
        .args(["-f", "raw", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let clients = |count: &str| {
        let shown = stage.server.run(&["volume", "show", "vol", "--json"])?;
        Ok(shown.contains(&format!("\"clients\": {count}")))
    };
    client.stdin.take().context("piped")?.write_all(b"write -P 0x66 4k 4k\nsleep 600000\n")?;
    hindsight_tests::poll("the client writes", || clients("1"))?;
    client.kill()?;
    client.wait()?;
    hindsight_tests::poll("the client is gone", || clients("0"))
}

#[test]
fn an_initiator_that_died_does_not_find_another_disk_when_it_comes_back() -> Result<()> {
    let stage = stage("vol", "64MiB")?;
    let url = url(&stage, &target(&stage, "vol")?)?;
    qemu_io(&url, &["write -P 0x31 0 4k", "flush"])?;
    dies_writing(&stage, &url)?;
    ensure!(reads(&url, "0x31")?, "its own disk is there for it");
    dies_writing(&stage, &url)?;
    stage.server.run(&["revert", "vol", "--to", "seq:1"])?;
    ensure!(!reads(&url, "0x31")?, "it goes on in what was reverted");
    // Another initiator is not concerned.
    call("iscsi-inq", &[&url])?;
    stage.server.run(&["volume", "rename", "vol", "old"])?;
    stage.server.run(&["volume", "create", "vol", "--size", "64MiB"])?;
    ensure!(!reads(&url, "0")?, "it goes on in another volume");
    call("iscsi-inq", &[&url])?;
    Ok(())
}
