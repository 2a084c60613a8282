//! Real clients: libnbd's tools and Python bindings, and QEMU's.

use std::path::Path;
use std::process::{Command, Output};

use super::rig::{Rig, memory};

fn run(program: &str, arguments: &[&str]) -> Output {
    match Command::new(program).args(arguments).output() {
        Ok(output) => output,
        Err(error) => panic!("{program} cannot be run ({error}): scripts/install-packages gets it"),
    }
}

fn succeeds(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {text} {errors}");
    text
}

/// Runs Python with a connected libnbd handle `h`, on Debian's own interpreter.
pub(super) fn python(script: &str) -> String {
    succeeds("/usr/bin/python3", &["-c", script])
}

/// Runs openssl in a directory, with words that blanks divide, after a clock that says `date`.
pub(crate) fn openssl(directory: &Path, date: &str, words: &str) {
    let at_time = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/at-time");
    let mut command = Command::new(at_time);
    command.args([date, "openssl"]).args(words.split(' ')).current_dir(directory);
    let output = command.output().expect("run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {words}: {errors}");
}

/// Asks openssl for a key of its own.
pub(crate) const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

fn path(rig: &Rig, name: &str) -> String {
    rig.dir.path().join(name).to_str().expect("a plain path").to_owned()
}

#[test]
fn nbdinfo_lists_and_describes() {
    let (rig, _) = memory();
    let text = succeeds("nbdinfo", &[&rig.uri("disk")]);
    for line in ["export=\"disk\"", "can_multi_conn: true", "can_fast_zero: true", "can_df: true"] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let json = succeeds("nbdinfo", &["--list", "--json", &rig.uri("")]);
    assert!(json.contains("\"disk@past\""), "{json}");
    let map = succeeds("nbdinfo", &["--map=x-hindsight:changed@v:0", &rig.uri("disk")]);
    let lines: Vec<Vec<&str>> = map.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(lines, [vec!["0", "4096", "1"], vec!["4096", "67104768", "0"]]);
}

#[test]
fn nbdcopy_brings_back_what_it_took() {
    let (rig, _) = memory();
    let source = path(&rig, "source");
    let bytes: Vec<u8> =
        (0..64_u32 << 20).map(|i| if i & 0x4_0000 == 0 { 0 } else { (i >> 7) as u8 }).collect();
    std::fs::write(&source, &bytes).expect("write");
    succeeds("nbdcopy", &[&source, &rig.uri("disk")]);
    let target = path(&rig, "target");
    succeeds("nbdcopy", &["--connections=4", &rig.uri("disk@past"), &target]);
    assert!(std::fs::read(&target).expect("read") == bytes);
}

#[test]
fn qemu_img_and_qemu_io_read_write_and_compare() {
    let (rig, _) = memory();
    let uri = rig.uri("disk");
    let script = [
        "write -P 7 100 5000",
        "write -f -P 9 8192 4096",
        "read -P 7 100 5000",
        "write -z 4096 100",
        "read -P 0 4096 100",
        "flush",
        "discard 8192 4096",
        "aio_write -P 1 1M 2M",
        "aio_write -P 2 4M 64k",
        "aio_flush",
        "read -P 1 1M 2M",
    ];
    let mut arguments = vec!["-f", "raw"];
    for line in script {
        arguments.extend(["-c", line]);
    }
    arguments.push(&uri);
    let text = succeeds("qemu-io", &arguments);
    assert!(!text.contains("failed"), "{text}");
    let image = path(&rig, "image.qcow2");
    succeeds("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, &image]);
    succeeds("qemu-img", &["compare", "-f", "qcow2", "-F", "raw", &image, &uri]);
    succeeds("qemu-img", &["map", "--output=json", "-f", "raw", &uri]);
}

#[test]
fn libnbd_in_its_strict_mode_finds_nothing_to_complain_about() {
    let (rig, _) = memory();
    let script = r#"
import nbd
h = nbd.NBD()
h.add_meta_context("base:allocation")
h.add_meta_context("x-hindsight:changed@v:0")
h.set_export_name("disk")
h.connect_unix("SOCKET")
assert h.get_structured_replies_negotiated()
h.pwrite(b"a" * 5000, 3000, nbd.CMD_FLAG_FUA)
assert h.pread(5002, 2999) == b"\0" + b"a" * 5000 + b"\0"
chunks = []
def chunk(data, offset, status, error):
    chunks.append((offset, len(data), status))
h.pread_structured(8192, 0, chunk, nbd.CMD_FLAG_DF)
assert chunks == [(0, 8192, nbd.READ_DATA)], chunks
h.zero(4096, 4096, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FAST_ZERO)
h.trim(65536, 65536, nbd.CMD_FLAG_FUA)
h.cache(1 << 20, 0)
h.flush()
found = {}
def extent(context, offset, entries, error):
    found.setdefault(context, []).extend(entries)
h.block_status(65536, 0, extent)
assert found["base:allocation"] == [4096, 0, 61440, 3], found
assert found["x-hindsight:changed@v:0"] == [4096, 1, 61440, 0], found
h.set_strict_mode(0)
for call, errno in [
    (lambda: h.pread(512, 1 << 26), "EINVAL"),
    (lambda: h.pwrite(b"x" * 512, 1 << 26), "ENOSPC"),
    (lambda: h.trim(512, 1 << 26), "EINVAL"),
    (lambda: h.zero(512, 1 << 26), "ENOSPC"),
    (lambda: h.block_status(0, 0, extent), "EINVAL"),
]:
    try:
        call()
        raise SystemExit("no error where " + errno + " is due")
    except nbd.Error as error:
        assert error.errno == errno, (error.errno, errno)
assert h.pread(4, 3000) == b"aaaa"
# Many requests in flight, answered in any order.
buffers = [nbd.Buffer(4096) for _ in range(200)]
cookies = [h.aio_pread(b, i * 4096) for i, b in enumerate(buffers)]
while cookies:
    cookies = [c for c in cookies if not h.aio_command_completed(c)]
    if cookies: h.poll(-1)
h.shutdown()
"#;
    python(&script.replace("SOCKET", &path(&rig, "nbd.sock")));
}

#[test]
fn an_unknown_export_is_explained() {
    let (rig, _) = memory();
    let output = run("nbdinfo", &[&rig.uri("nope")]);
    assert!(!output.status.success());
    let debug = run("env", &["LIBNBD_DEBUG=1", "nbdinfo", &rig.uri("nope")]);
    assert!(String::from_utf8_lossy(&debug.stderr).contains("try disk"));
}
