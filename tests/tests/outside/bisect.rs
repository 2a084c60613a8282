//! `hindsight bisect`: the write that broke a check among thousands, what it says of checks that do
//! not go its way, and that nothing of it stays.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use hindsight_tests::command::{call, run, skips_without_root};
use hindsight_tests::disk::wait_until;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::stage::Stage;

const BLOCK: u64 = 4096;
/// It is all zeros while the check succeeds.
const BROKEN: u64 = 7 * BLOCK;

/// Fails when the block is no longer zeros; of NBD, and of a file.
const BY_NBD: &str = "! qemu-io -r -f raw -c 'read -P 0 28672 4096' \"$HINDSIGHT_URI\" | \
                      grep -q 'verification failed'";
const BY_DISK: &str = "test -z \"$(dd if=$HINDSIGHT_DISK bs=4096 skip=7 count=1 status=none | \
                       tr -d '\\0')\"";

/// Blocks are written one after the other, each write flushed if `flush_every` comes to it; the one
/// of number `breaks` is that which is looked at. Answers its seq.
fn written(stage: &Stage, writes: u64, breaks: u64, flush_every: u64) -> Result<u64> {
    fs::create_dir_all(stage.path("tmp"))?;
    let mut commands = String::new();
    for number in 1..=writes {
        let at = if number == breaks { BROKEN } else { (8 + number % 200) * BLOCK };
        commands += &format!("write -P {} {at} {BLOCK}\n", number % 255 + 1);
        if number % flush_every == 0 {
            commands += "flush\n";
        }
    }
    let file = stage.path("commands");
    fs::write(&file, commands)?;
    let input = Stdio::from(fs::File::open(file)?);
    run(Command::new("qemu-io")
        .args(["-t", "writeback", "-f", "raw", &stage.server.uri("vol")])
        .stdin(input))?;
    Ok(breaks)
}

fn bisect(stage: &Stage, more: &[&str], script: &str) -> Result<Output> {
    let arguments = [&["bisect", "vol", "--json"], more, &["--", "sh", "-c", script]].concat();
    let mut command = stage.server.command(&arguments);
    Ok(command.env("TMPDIR", stage.path("tmp")).output()?)
}

fn found(output: &Output) -> Result<Value> {
    ensure!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn seqs(found: &Value) -> Option<(u64, u64)> {
    Some((found["last_good"]["seq"].as_u64()?, found["first_bad"]["seq"].as_u64()?))
}

/// The names of all volumes.
fn volumes(stage: &Stage) -> Result<Vec<String>> {
    let all: Value = serde_json::from_str(&stage.server.run(&["volume", "list", "--json"])?)?;
    let names = all.as_array().context("a list")?.iter();
    Ok(names.filter_map(|volume| volume["name"].as_str().map(str::to_owned)).collect())
}

/// The mounts of looks, and the directories for them; those of this test alone.
fn mounts(stage: &Stage) -> Result<(usize, usize)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let own = format!(" {}/hindsight-vol-scratch-", stage.text("tmp"));
    let mounts = mounts.lines().filter(|line| line.contains(&own)).count();
    Ok((mounts, fs::read_dir(stage.path("tmp"))?.count()))
}

#[test]
fn the_write_that_broke_it_is_found_among_thousands() -> Result<()> {
    let stage = Stage::new("vol", "1MiB")?;
    let (writes, broke) = (3000, 1234);
    let seq = written(&stage, writes, broke, 10)?;
    let ends = ["--good", "seq:0", "--bad", "latest", "--attach", "nbd"];
    let by_write = bisect(&stage, &[&ends[..], &["--step", "write", "--mark"]].concat(), BY_NBD)?;
    let told = found(&by_write)?;
    ensure!(seqs(&told) == Some((seq - 1, seq)), "{told}");
    ensure!(told["written"] == serde_json::json!([{"offset": BROKEN, "length": BLOCK}]), "{told}");
    let runs = told["runs"].as_array().context("runs")?.len();
    ensure!(runs <= 12 + 2, "{runs} runs for {writes} writes");
    let marks = stage.server.run(&["mark", "list", "vol"])?;
    ensure!(marks.contains("bisect-bad-1234") && marks.contains("bisect-good-1233"), "{marks}");
    // Five looks at once cut by six, with the same answer.
    let five = [&ends[..], &["--step", "write", "--jobs", "5"]].concat();
    let told = found(&bisect(&stage, &five, BY_NBD)?)?;
    ensure!(seqs(&told) == Some((seq - 1, seq)), "{told}");
    let runs = told["runs"].as_array().context("runs")?.len();
    ensure!(runs <= 5 * 5 + 2, "{runs} runs for {writes} writes, five at once");
    // At what was flushed it lies between two of the flushes, with nothing flushed between.
    let told = found(&bisect(&stage, &ends, BY_NBD)?)?;
    ensure!(seqs(&told) == Some((1230, 1240)), "{told}");
    ensure!(volumes(&stage)? == ["vol"], "{:?}", volumes(&stage)?);
    Ok(())
}

#[test]
fn the_disk_of_a_look_can_be_written_to_and_files_be_read() -> Result<()> {
    if skips_without_root("bisect: disk") {
        return Ok(());
    }
    let stage = Stage::new("vol", "1MiB")?;
    let seq = written(&stage, 40, 23, 1)?;
    let script = format!(
        "{BY_DISK}; verdict=$?; \
         printf x | dd of=$HINDSIGHT_DISK bs=1 seek=30000 conv=notrunc,fsync status=none && \
         test \"$(dd if=$HINDSIGHT_DISK bs=1 skip=30000 count=1 status=none)\" = x && \
         exit $verdict; exit 200"
    );
    let told = found(&bisect(&stage, &["--good", "seq:0", "--bad", "latest", "--keep"], &script)?)?;
    ensure!(seqs(&told) == Some((seq - 1, seq)), "{told}");
    ensure!(volumes(&stage)? == ["vol", "vol-bad-23", "vol-good-22"], "{:?}", volumes(&stage)?);
    ensure!(mounts(&stage)? == (0, 0));
    // What is no file system cannot be told.
    let files = ["--good", "seq:0", "--bad", "latest", "--attach", "files"];
    let untold = bisect(&stage, &files, "true")?;
    let said = String::from_utf8_lossy(&untold.stderr).into_owned();
    ensure!(untold.status.code() == Some(1) && said.contains("cannot tell"), "{untold:?}");
    Ok(())
}

#[test]
fn checks_that_do_not_go_its_way_are_told() -> Result<()> {
    let stage = Stage::new("vol", "1MiB")?;
    written(&stage, 64, 20, 1)?;
    let ends = ["--good", "seq:0", "--bad", "latest", "--attach", "nbd", "--step", "write"];
    let at = |script: &str| bisect(&stage, &ends, script);
    for (script, code, says) in [
        ("true", 1, "--scan 16 looks at 16 moments"),
        ("false", 1, "was said to be good"),
        ("exit 125", 1, "at which it can tell"),
        (
            "test $HINDSIGHT_SEQ = 0 && exit 0; test $HINDSIGHT_SEQ = 64 && exit 1; exit 130",
            1,
            "--good seq:0 --bad seq:64",
        ),
        ("kill -KILL $$", 1, "by a signal"),
        // Only the ends can be told.
        ("test $HINDSIGHT_SEQ = 0 && exit 0; test $HINDSIGHT_SEQ = 64 && exit 1; exit 125", 3, ""),
        // In the middle it cannot be told; beside it, it can.
        ("test $HINDSIGHT_SEQ = 32 && exit 125; test $HINDSIGHT_SEQ -lt 20", 0, ""),
    ] {
        let output = at(script)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(code) && said.contains(says), "{script}: {output:?}");
        if code == 0 {
            ensure!(seqs(&found(&output)?) == Some((19, 20)), "{script}: {output:?}");
        }
        ensure!(volumes(&stage)? == ["vol"], "{script}: {:?}", volumes(&stage)?);
    }
    for (more, code) in [
        (&["--good", "latest", "--bad", "seq:3"][..], 2),
        (&["--good", "seq:3", "--bad", "seq:3"], 2),
        (&["--good", "seq:3", "--bad", "seq:999"], 13),
        (&["--good", "seq:3", "--bad", "latest", "--step", "never"], 2),
    ] {
        let output = bisect(&stage, more, "true")?;
        ensure!(output.status.code() == Some(code), "{more:?}: {output:?}");
    }
    Ok(())
}

#[test]
fn looks_are_had_at_once_and_ends_that_are_alike_are_scanned_between() -> Result<()> {
    let stage = Stage::new("vol", "1MiB")?;
    written(&stage, 64, 20, 1)?;
    let ends = ["--good", "seq:0", "--bad", "latest", "--attach", "nbd", "--step", "write"];
    // Each look waits until three have begun; the two ends are not enough of them.
    let begun = stage.text("begun");
    fs::create_dir(&begun)?;
    let script = format!(
        "touch {begun}/$HINDSIGHT_SEQ; case $HINDSIGHT_SEQ in 0) exit 0;; 64) exit 1;; esac; \
         for turn in $(seq 300); do \
         [ $(ls {begun} | wc -l) -ge 5 ] && {{ [ $HINDSIGHT_SEQ -lt 20 ]; exit; }}; sleep 0.1; \
         done; exit 200"
    );
    let told = found(&bisect(&stage, &[&ends[..], &["--jobs", "3"]].concat(), &script)?)?;
    ensure!(seqs(&told) == Some((19, 20)), "{told}");
    // It was bad for a while: both ends are good.
    let was_bad = "[ $HINDSIGHT_SEQ -lt 20 ] || [ $HINDSIGHT_SEQ -gt 40 ]";
    let scan = |more: &[&str], script: &str| bisect(&stage, &[&ends[..], more].concat(), script);
    let told = found(&scan(&["--scan", "7", "--jobs", "4"], was_bad)?)?;
    ensure!(seqs(&told) == Some((19, 20)), "{told}");
    // It was good for a while, and it was the other way round at both ends.
    for script in [
        "[ $HINDSIGHT_SEQ -gt 19 ] && [ $HINDSIGHT_SEQ -lt 41 ]",
        "case $HINDSIGHT_SEQ in 0) exit 1;; 64) exit 0;; esac; [ $HINDSIGHT_SEQ -lt 41 ]",
    ] {
        let told = found(&scan(&["--scan", "7"], script)?)?;
        ensure!(seqs(&told) == Some((40, 41)), "{script}: {told}");
    }
    let none = scan(&["--scan", "7"], "true")?;
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    ensure!(none.status.code() == Some(1) && said.contains("at 7 moments between"), "{none:?}");
    for wrong in [["--jobs", "0"], ["--jobs", "65"], ["--scan", "0"], ["--scan", "1001"]] {
        ensure!(scan(&wrong, "true")?.status.code() == Some(2), "{wrong:?}");
    }
    ensure!(volumes(&stage)? == ["vol"], "{:?}", volumes(&stage)?);
    Ok(())
}

#[test]
fn nothing_stays_of_a_search_that_is_ended() -> Result<()> {
    if skips_without_root("bisect: ended") {
        return Ok(());
    }
    let stage = Stage::new("vol", "1MiB")?;
    written(&stage, 40, 23, 1)?;
    let begun = stage.text("begun");
    let script = format!("touch {begun}-$HINDSIGHT_SEQ && exec sleep 600");
    let ends = ["--good", "seq:0", "--bad", "latest", "--jobs", "2"];
    let arguments = [&["bisect", "vol"], &ends[..], &["--", "sh", "-c", &script]].concat();
    for signal in ["INT", "KILL"] {
        let mut search = stage.server.command(&arguments);
        search.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        search.env("TMPDIR", stage.path("tmp"));
        let mut search = search.spawn().context("bisect")?;
        for seq in [0, 40] {
            let begun = stage.path(&format!("begun-{seq}"));
            wait_until("the command runs", || Ok(begun.exists()))?;
            fs::remove_file(&begun)?;
        }
        ensure!(mounts(&stage)? == (2, 2));
        call("kill", &["-s", signal, &search.id().to_string()])?;
        let status = search.wait()?;
        wait_until("the mount is gone", || Ok(mounts(&stage)? == (0, 0)))?;
        if signal == "INT" {
            ensure!(status.code() == Some(130), "{status}");
            ensure!(volumes(&stage)? == ["vol"], "{:?}", volumes(&stage)?);
            continue;
        }
        // Its clone goes by itself; what was run is no process of ours any more, and ends here.
        ensure!(volumes(&stage)?.len() == 3, "{:?}", volumes(&stage)?);
        // Not by `kill -KILL -N`: that of procps takes N for -1 where it begins with 1, and ends
        // all that runs on the machine.
        let group = Pid::from_raw(i32::try_from(search.id())?).context("a number")?;
        kill_process_group(group, Signal::KILL)?;
    }
    Ok(())
}
