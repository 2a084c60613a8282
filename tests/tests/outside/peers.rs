//! Other people's tools that speak NBD (nbdinfo, nbdcopy, libnbd, qemu-io, qemu-img, fio); and
//! import and export, which stand on them.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use hindsight_tests::command::{call, run};
use hindsight_tests::random::Random;
use serde_json::Value;

use crate::stage::Stage;

/// A file of random bytes with holes in it.
fn random_file(stage: &Stage, name: &str, bytes: usize) -> Result<Vec<u8>> {
    let mut random = Random::new(11);
    let mut content = vec![0; bytes];
    for (index, part) in content.chunks_mut(100_000).enumerate() {
        if index % 4 != 3 {
            random.fill(part);
        }
    }
    fs::write(stage.path(name), &content)?;
    Ok(content)
}

#[test]
fn nbdinfo_shows_volumes_versions_and_sizes() -> Result<()> {
    let stage = Stage::new("vol", "16MiB")?;
    stage.server.run(&["version", "create", "vol", "--label", "empty"])?;
    stage.server.run(&["mark", "create", "vol", "start", "--pin"])?;
    stage.server.run(&["mark", "create", "vol", "loose"])?;
    let one: Value =
        serde_json::from_str(&call("nbdinfo", &["--json", &stage.server.uri("vol")])?)?;
    let export = &one["exports"][0];
    ensure!(export["export-size"] == 16 << 20, "{one}");
    for can in ["can_flush", "can_fua", "can_trim", "can_zero", "can_multi_conn", "can_cache"] {
        ensure!(export[can] == true, "{can}: {one}");
    }
    ensure!(export["is_read_only"] == false, "{one}");
    let past: Value =
        serde_json::from_str(&call("nbdinfo", &["--json", &stage.server.uri("vol@v:0")])?)?;
    ensure!(past["exports"][0]["is_read_only"] == true, "{past}");
    let names = hindsight_tests::nbd::list(&stage.server.nbd_socket())?;
    for name in ["vol", "vol@v:0", "vol@mark:start"] {
        ensure!(names.iter().any(|n| n == name), "{name} is not in {names:?}");
    }
    ensure!(!names.iter().any(|n| n.contains("loose")), "an unpinned mark in {names:?}");
    Ok(())
}

#[test]
fn nbdcopy_brings_an_image_in_and_its_past_out() -> Result<()> {
    let stage = Stage::new("vol", "24MiB")?;
    let content = random_file(&stage, "in", 24 << 20)?;
    call("nbdcopy", &["--flush", &stage.text("in"), &stage.server.uri("vol")])?;
    stage.server.run(&["version", "create", "vol"])?;
    let wipe = "write -z 0 24M";
    call("qemu-io", &["-f", "raw", "-c", wipe, "-c", "flush", &stage.server.uri("vol")])?;
    call("nbdcopy", &[&stage.server.uri("vol@v:0"), &stage.text("out")])?;
    ensure!(fs::read(stage.path("out"))? == content, "the version differs from what went in");
    call("nbdcopy", &[&stage.server.uri("vol"), &stage.text("now")])?;
    ensure!(fs::read(stage.path("now"))?.iter().all(|byte| *byte == 0), "the present is not zero");
    let map = call("nbdinfo", &["--map", &stage.server.uri("vol")])?;
    ensure!(map.contains("hole,zero") && !map.contains(" data"), "{map}");
    Ok(())
}

#[test]
fn qemu_io_writes_trims_and_reads_at_any_offset() -> Result<()> {
    let stage = Stage::new("vol", "8MiB")?;
    let uri = stage.server.uri("vol");
    let commands = [
        "write -P 0xaa 0 2M",
        "write -P 0xbb 1000 3000",
        "write -f -P 0xcc 1M 4k",
        "discard 512k 64k",
        "write -z 600k 5000",
        "flush",
        "read -P 0xaa 0 1000",
        "read -P 0xbb 1000 3000",
        "read -P 0xcc 1M 4k",
        "read -P 0 512k 64k",
        "read -P 0 600k 5000",
        "aio_write -P 0xdd 3M 64k",
        "aio_write -P 0xee 4M 64k",
        "aio_flush",
        "read -P 0xdd 3M 64k",
        "read -P 0xee 4M 64k",
    ];
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]);
    commands.iter().for_each(|c| {
        command.args(["-c", c]);
    });
    let said = run(command.arg(&uri))?;
    ensure!(!said.contains("failed") && !said.contains("error"), "{said}");
    Ok(())
}

#[test]
fn qemu_img_converts_to_and_from_a_volume() -> Result<()> {
    let stage = Stage::new("vol", "24MiB")?;
    random_file(&stage, "raw", 24 << 20)?;
    let (raw, qcow2, uri) = (stage.text("raw"), stage.text("qcow2"), stage.server.uri("vol"));
    call("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &raw, &qcow2])?;
    call("qemu-img", &["convert", "-n", "-f", "qcow2", "-O", "raw", &qcow2, &uri])?;
    call("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &uri, &qcow2])?;
    let past = stage.server.uri("vol@latest");
    call("qemu-img", &["compare", "-f", "raw", "-F", "raw", &past, &raw])?;
    Ok(())
}

#[test]
fn fio_verifies_what_it_wrote() -> Result<()> {
    let stage = Stage::new("vol", "64MiB")?;
    for (name, more) in [
        ("small", ["--rw=randwrite", "--bs=4k", "--iodepth=32", "--io_size=32M"]),
        ("mixed", ["--rw=randrw", "--bsrange=512-64k", "--iodepth=16", "--io_size=32M"]),
        ("trims", ["--rw=randtrimwrite", "--bs=8k", "--iodepth=8", "--io_size=16M"]),
    ] {
        let uri = format!("--uri={}", stage.server.uri("vol"));
        let mut command = Command::new("fio");
        command
            .args(["--ioengine=nbd", "--size=64M", "--fsync=64", "--thread", "--randseed=7"])
            // Two writes to one place in flight have no order, which fio would not forgive.
            .args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"])
            .arg("--serialize_overlap=1")
            .arg(format!("--name={name}"))
            .arg(uri)
            .args(more)
            .current_dir(stage.path("."));
        run(&mut command).with_context(|| name.to_owned())?;
    }
    Ok(())
}

#[test]
fn libnbd_from_python_sees_what_the_specification_says() -> Result<()> {
    let stage = Stage::new("vol", "8MiB")?;
    let script = r#"
import nbd
h = nbd.NBD()
h.add_meta_context("base:allocation")
h.set_export_name("vol")
h.connect_unix(SOCKET)
assert h.get_structured_replies_negotiated()
assert h.get_size() == 8 << 20
h.pwrite(b"x" * 5000, 3333, nbd.CMD_FLAG_FUA)
assert h.pread(5002, 3332) == b"\0" + b"x" * 5000 + b"\0"
h.zero(1000, 4000, nbd.CMD_FLAG_NO_HOLE)
h.trim(100, 3400)
assert h.pread(100, 3400) == b"\0" * 100
if h.can_fast_zero():
    h.zero(4096, 1 << 20, nbd.CMD_FLAG_FAST_ZERO)
h.cache(1 << 20, 0)
h.flush()
runs = []
h.block_status(8 << 20, 0, lambda name, offset, entries, error: runs.extend(entries) or 0)
assert sum(runs[0::2]) <= 8 << 20, runs
assert runs[1] & 1 == 0, runs
for call in (lambda: h.pread(1, 8 << 20), lambda: h.pwrite(b"x", 8 << 20)):
    h.set_strict_mode(0)
    try:
        call()
        raise SystemExit("beyond the end was served")
    except nbd.Error as error:
        assert error.errno in ("EINVAL", "ENOSPC"), error.errno
assert h.pread(1, 3333) == b"x"
h.shutdown()
"#;
    let script = script.replace("SOCKET", &format!("{:?}", stage.server.nbd_socket()));
    // Debian's python3-libnbd belongs to Debian's Python, which need not be the first in PATH.
    run(Command::new("/usr/bin/python3").args(["-c", &script]))?;
    Ok(())
}

#[test]
fn import_and_export_keep_every_byte() -> Result<()> {
    let stage = Stage::new("", "")?;
    let content = random_file(&stage, "raw", 20 << 20)?;
    let (raw, qcow2) = (stage.text("raw"), stage.text("in.qcow2"));
    call("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &raw, &qcow2])?;
    stage.server.run(&["volume", "import", "from-raw", &raw])?;
    stage.server.run(&["volume", "import", "from-qcow2", &qcow2])?;
    for volume in ["from-raw", "from-qcow2"] {
        let out = stage.text(&format!("{volume}.raw"));
        stage.server.run(&["volume", "export", volume, &out])?;
        ensure!(fs::read(&out)? == content, "{volume} as raw differs");
        let uri = stage.server.uri(volume);
        call("qemu-io", &["-f", "raw", "-c", "write -P 1 0 1M", "-c", "flush", &uri])?;
        let image = stage.text(&format!("{volume}.qcow2"));
        stage.server.run(&["volume", "export", &format!("{volume}@latest"), &image])?;
        call("qemu-img", &["compare", "-f", "qcow2", "-F", "raw", &image, &uri])?;
    }
    Ok(())
}
