//! Import and export of raw and qcow2 images.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::fixture::{Fixture, hindsight};

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// 1 MiB with data at both ends and a hole between.
fn image() -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    bytes[..5000].fill(7);
    bytes[(1 << 20) - 300..].fill(9);
    bytes
}

#[test]
fn images_come_in_and_go_out_unchanged() {
    let fixture = Fixture::new();
    let (raw, qcow2) = (fixture.path("in.img"), fixture.path("out.qcow2"));
    fs::write(&raw, image()).expect("write");
    let imported = fixture.run(&["volume", "import", "v", text(&raw), "--json"]).json();
    assert_eq!(imported["size"], 1 << 20);
    assert!(imported["live_bytes"].as_u64().expect("number") < 64 << 10, "holes stay holes");
    fixture.ok(&["mark", "create", "v", "m"]);
    assert!(fixture.qemu_io("v", &["write -P 1 0 1M"]));

    let exported = fixture.run(&["volume", "export", "v@mark:m", text(&qcow2), "--json"]).json();
    assert_eq!(exported["format"], "qcow2");
    fixture.ok(&["volume", "import", "w", text(&qcow2)]);
    let back = fixture.path("back.img");
    fixture.ok(&["volume", "export", "w", text(&back)]);
    assert!(fs::read(&back).expect("read") == image());

    let again = fixture.run(&["volume", "export", "w", text(&back)]);
    assert_eq!(again.code, 1, "{again:?}");
    fixture.ok(&["volume", "export", "v", text(&back), "--overwrite"]);
    assert!(fs::read(&back).expect("read") == vec![1; 1 << 20]);
    fixture.ok(&["volume", "import", "v", text(&raw), "--overwrite"]);
    fixture.ok(&["volume", "export", "v", text(&back), "--overwrite"]);
    assert!(fs::read(&back).expect("read") == image(), "zeros overwrite what was there");
}

#[test]
fn a_volume_that_exists_is_overwritten_only_when_asked_and_the_printed_command_undoes_it() {
    let fixture = Fixture::new();
    let (raw, back) = (fixture.path("in.img"), fixture.path("back.img"));
    fs::write(&raw, image()).expect("write");
    // On demand: no moment but a version is retained, so the undo needs one.
    fixture.ok(&["volume", "create", "v", "--size", "1MiB", "--granularity", "on-demand"]);
    assert!(fixture.qemu_io("v", &["write -P 1 0 1M"]));
    let refused = fixture.run(&["volume", "import", "v", text(&raw)]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("there is a volume v already"), "{refused:?}");
    assert!(fixture.qemu_io("v", &["read -P 1 0 1M"]), "nothing was written");

    let done = fixture.run(&["volume", "import", "v", text(&raw), "--overwrite"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(fixture.qemu_io("v", &["read -P 7 0 5000", "write -P 3 8k 4k"]));
    let undo = done.err.lines().find_map(|line| line.strip_prefix("to undo: hindsight "));
    let undo: Vec<&str> = undo.expect("an undo line").split(' ').collect();
    fixture.ok(&undo);
    fixture.ok(&["volume", "export", "v", text(&back)]);
    assert!(fs::read(&back).expect("read") == vec![1; 1 << 20]);
}

#[test]
fn an_image_of_another_size_overwrites_nothing() {
    let fixture = Fixture::new();
    let raw = fixture.path("in.img");
    fs::write(&raw, image()).expect("write");
    for (name, size) in [("small", "64KiB"), ("large", "2MiB")] {
        fixture.ok(&["volume", "create", name, "--size", size]);
        let ran = fixture.run(&["volume", "import", name, text(&raw), "--overwrite"]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains("hint: hindsight volume resize"), "{ran:?}");
        let shown = fixture.run(&["volume", "show", name, "--json"]).json();
        assert_eq!(shown["latest"]["seq"], 0, "nothing was written");
    }
}

#[test]
fn streams_come_in_and_go_out_whole() {
    let fixture = Fixture::new();
    let mut bytes = image();
    bytes.extend_from_slice(&[5; 700 << 10]);
    bytes.resize(3 << 19, 0);
    let import = |arguments: &[&str], bytes: &[u8]| fixture.pipe(arguments, bytes);
    let size = (3 << 19).to_string();
    let ran = import(&["volume", "import", "v", "-", "--size", &size, "--json"], &bytes);
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let out = fixture.pipe(&["volume", "export", "v", "-"], b"");
    assert!(out.status.success() && out.stdout == bytes, "standard output has the bytes alone");
    let shown = fixture.run(&["volume", "show", "v", "--json"]).json();
    assert!(shown["live_bytes"].as_u64().expect("number") < 1 << 20, "zeros became a hole");

    // Through named pipes, both ways at once.
    let pipe = fixture.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    std::thread::scope(|scope| {
        scope.spawn(|| fixture.ok(&["volume", "export", "v", text(&pipe)]));
        fixture.ok(&["volume", "import", "w", text(&pipe), "--size", &size]);
    });
    let back = fixture.path("back.img");
    fixture.ok(&["volume", "export", "w", text(&back)]);
    assert!(fs::read(&back).expect("read") == bytes);
}

#[test]
fn a_stream_of_another_length_fails_and_leaves_what_was_there() {
    let fixture = Fixture::new();
    let import = |arguments: &[&str], bytes: usize| fixture.pipe(arguments, &vec![7; bytes]);
    let new = ["volume", "import", "v", "-"];
    assert_eq!(import(&new, 8192).status.code(), Some(2), "no size is given");
    for bytes in [0, 8191, 8193, 20 << 20] {
        let ran = import(&["volume", "import", "v", "-", "--size", "8KiB"], bytes);
        assert_eq!(ran.status.code(), Some(1), "{bytes}: {ran:?}");
        assert!(String::from_utf8_lossy(&ran.stderr).contains("8192 bytes"), "{ran:?}");
        assert_eq!(fixture.run(&["volume", "show", "v"]).code, 10, "nothing is left");
    }
    fixture.ok(&["volume", "create", "v", "--size", "8KiB", "--granularity", "on-demand"]);
    assert!(fixture.qemu_io("v", &["write -P 1 0 8k"]));
    let ran = import(&["volume", "import", "v", "-", "--overwrite"], 4096);
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    let undo = told.lines().find_map(|line| line.strip_prefix("to undo: hindsight "));
    fixture.ok(&undo.expect("an undo line").split(' ').collect::<Vec<_>>());
    assert!(fixture.qemu_io("v", &["read -P 1 0 8k"]));
}

#[test]
fn endings_that_say_another_format_and_qcow2_streams_are_refused() {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "v", "--size", "64KiB"]);
    let vmdk = fixture.path("out.vmdk");
    assert_eq!(fixture.run(&["volume", "export", "v", text(&vmdk)]).code, 2);
    fixture.ok(&["volume", "export", "v", text(&vmdk), "--format", "raw"]);
    assert_eq!(fixture.run(&["volume", "export", "v", "-", "--format", "qcow2"]).code, 2);
    let import = ["volume", "import", "w", "-", "--format", "qcow2", "--size", "64KiB"];
    assert_eq!(fixture.run(&import).code, 2);
    assert_eq!(fixture.run(&["volume", "import", "w", text(&vmdk), "--size", "1MiB"]).code, 2);
}

#[test]
fn an_import_that_fails_leaves_no_volume() {
    let fixture = Fixture::new();
    let broken = fixture.path("broken.qcow2");
    let made = Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2", "-o", "preallocation=falloc", text(&broken), "8M"])
        .status();
    assert!(made.expect("qemu-img").success());
    // Its L1 table (whose place is at byte 40 of the header) names a table at no cluster's start.
    let mut bytes = fs::read(&broken).expect("read");
    let place: [u8; 8] = bytes[40..48].try_into().expect("8 bytes");
    let place = usize::try_from(u64::from_be_bytes(place)).expect("small");
    bytes[place..place + 8].copy_from_slice(&0x8000_0000_0005_0200_u64.to_be_bytes());
    fs::write(&broken, bytes).expect("write");
    let ran = fixture.run(&["volume", "import", "v", text(&broken)]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(fixture.run(&["volume", "show", "v"]).code, 10, "no part of it stays");
}

#[test]
fn images_that_cannot_be_used_are_refused() {
    let fixture = Fixture::new();
    let import = |file: &Path| {
        let ran = fixture.run(&["volume", "import", "v", text(file)]);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
        assert!(ran.err.starts_with("error: "), "{ran:?}");
        ran.err
    };
    import(&fixture.path("nothing"));
    let base = fixture.path("base.img");
    fs::write(&base, image()).expect("write");
    let (elsewhere, data) = (fixture.path("elsewhere.qcow2"), fixture.path("data.raw"));
    let option = format!("data_file={},data_file_raw=on", text(&data));
    let made = Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2", "-o", &option, text(&elsewhere), "1M"])
        .status();
    assert!(made.expect("qemu-img").success());
    assert!(import(&elsewhere).contains("another file"));
    let overlay = fixture.path("overlay.qcow2");
    let made = Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"])
        .args([&base, &overlay])
        .status();
    assert!(made.expect("qemu-img").success());
    assert!(import(&overlay).contains("overlay"));
    assert_eq!(fixture.run(&["volume", "show", "v"]).code, 10, "nothing was created");
    fixture.ok(&["volume", "create", "v", "--size", "64KiB"]);
    assert!(import(&base).contains("there is a volume v already"));
}

#[test]
fn without_qemu_img_the_hint_says_how_to_get_it() {
    let fixture = Fixture::new();
    let raw = fixture.path("in.img");
    fs::write(&raw, image()).expect("write");
    let mut command = hindsight();
    command.args(["volume", "import", "v", text(&raw), "--server", &fixture.server()]);
    let output = command.env("PATH", "/nonexistent").output().expect("run");
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        told,
        "error: qemu-img is not installed\nhint: install it: apt-get install qemu-utils\n"
    );
}

/// Waits until nothing is read from the file any more.
fn wait_for_copy(fixture: &Fixture, volume: &str) {
    let start = std::time::Instant::now();
    while !fixture.run(&["volume", "show", volume, "--json"]).json()["import"].is_null() {
        assert!(start.elapsed().as_secs() < 60, "it is never copied");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_lazily_imported_image_is_served_at_once_and_copied_behind() {
    let fixture = Fixture::new();
    let raw = fixture.path("in.img");
    let mut expected = vec![3; 24 << 20];
    expected[5 << 20..9 << 20].fill(0);
    fs::write(&raw, &expected).expect("write");
    let ran = fixture.run(&["volume", "import", "v", text(&raw), "--lazy", "--json"]);
    assert!(ran.err.contains("do not write to it"), "{ran:?}");
    let imported = ran.json();
    assert_eq!((&imported["size"], &imported["oldest"]["seq"]), (&(24 << 20).into(), &1.into()));
    // A fast machine may have copied all of it before it answered.
    if !imported["import"].is_null() {
        assert_eq!(imported["import"]["total_bytes"], 24 << 20);
        assert!(imported["import"]["trouble"].is_null());
    }
    assert!(fixture.qemu_io("v", &["read -P 3 0 5M", "read -P 0 5M 4M", "write -P 1 100k 10k"]));
    fixture.ok(&["clone", "v@seq:1", "w"]);
    expected[100 << 10..110 << 10].fill(1);
    let out = fixture.path("out.img");
    fixture.ok(&["volume", "export", "v", text(&out)]);
    assert!(fs::read(&out).expect("read") == expected);
    wait_for_copy(&fixture, "v");
    let metrics = fixture.http("/metrics");
    assert!(metrics.contains("hindsight_volume_import_bytes{volume=\"v\"} 0"), "{metrics}");
    fs::remove_file(&raw).expect("nobody needs it");
    fixture.ok(&["volume", "export", "v", text(&out), "--overwrite"]);
    assert!(fs::read(&out).expect("read") == expected);
    expected[100 << 10..110 << 10].fill(3);
    fixture.ok(&["volume", "export", "w", text(&out), "--overwrite"]);
    assert!(fs::read(&out).expect("read") == expected, "the clone is the image");
    let audit = fixture.ok(&["pool", "audit"]);
    assert!(audit.contains("volume-import") && audit.contains("imported"), "{audit}");
    let (code, _, dir) = fixture.stop();
    assert_eq!(code, 0);
    let fixture = Fixture::on(dir);
    fixture.ok(&["volume", "export", "w", text(&out), "--overwrite"]);
    assert!(fs::read(&out).expect("read") == expected, "after a restart");
}

#[test]
fn what_cannot_be_imported_lazily_is_refused_by_name() {
    let fixture = Fixture::new();
    let (raw, qcow2) = (fixture.path("in.img"), fixture.path("in.qcow2"));
    fs::write(&raw, image()).expect("write");
    let made =
        Command::new("qemu-img").args(["create", "-q", "-f", "qcow2", text(&qcow2), "1M"]).status();
    assert!(made.expect("qemu-img").success());
    let lazily = |file: &Path, more: &[&str]| {
        let arguments = [&["volume", "import", "v", text(file), "--lazy"], more].concat();
        let ran = fixture.run(&arguments);
        assert!(ran.code != 0 && ran.out.is_empty(), "{ran:?}");
        ran.err
    };
    assert!(lazily(&qcow2, &[]).contains("qcow2"));
    assert!(lazily(&raw, &["--format", "qcow2"]).contains("qcow2"));
    assert!(lazily(&fixture.path("nothing"), &[]).starts_with("error: "));
    assert!(lazily(fixture.dir.path(), &[]).contains("neither a file nor a block device"));
    // Whoever may only come over TCP names no files of this machine.
    let (address, token) = fixture.http_address();
    let server = format!("http://{address}/?token={token}");
    let told = lazily(&raw, &["--server", &server]);
    assert!(told.contains("unix socket"), "{told}");
    assert_eq!(fixture.run(&["volume", "show", "v"]).code, 10, "nothing was created");
    fixture.ok(&["volume", "create", "v", "--size", "64KiB"]);
    assert!(lazily(&raw, &[]).contains("there is a volume v already"));
}

#[test]
fn an_import_that_was_interrupted_is_told_and_begun_anew() {
    for signal in ["TERM", "KILL"] {
        let fixture = Fixture::new();
        let mut import = hindsight();
        import.args(["volume", "import", "v", "-", "--size", "8MiB"]);
        import.env("HINDSIGHT_SERVER", fixture.server()).stdin(Stdio::piped());
        let mut import = import.spawn().expect("spawn");
        let mut stdin = import.stdin.take().expect("piped");
        std::io::Write::write_all(&mut stdin, &vec![7; 6 << 20]).expect("written");
        let shown = || fixture.run(&["volume", "show", "v", "--json"]);
        let is_begun = || {
            let shown = shown();
            shown.code == 0 && shown.json()["live_bytes"].as_u64().is_some_and(|bytes| bytes > 0)
        };
        while !is_begun() {
            assert!(import.try_wait().expect("asked").is_none(), "it waits for the rest");
        }
        let pid = import.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().expect("kill").success());
        assert!(!import.wait().expect("ended").success());
        assert_eq!(shown().json()["unfinished_import"], true, "{signal}");
        assert!(fixture.ok(&["volume", "show", "v"]).contains("unfinished"));
        let raw = fixture.path("in.img");
        let mut image = vec![0; 8 << 20];
        image[..5000].fill(9);
        fs::write(&raw, &image).expect("write");
        fixture.ok(&["volume", "import", "v", text(&raw)]);
        assert_eq!(shown().json()["unfinished_import"], false);
        let back = fixture.path("back.img");
        fixture.ok(&["volume", "export", "v", text(&back)]);
        assert!(fs::read(&back).expect("read") == image, "{signal}: what was there is gone");
        assert_eq!(fixture.run(&["volume", "import", "v", text(&raw)]).code, 1, "it is complete");
    }
}
