//! Import and export of raw and qcow2 images.

use std::fs;
use std::path::Path;
use std::process::Command;

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
    fixture.ok(&["volume", "import", "v", text(&raw)]);
    fixture.ok(&["volume", "export", "v", text(&back), "--overwrite"]);
    assert!(fs::read(&back).expect("read") == image(), "zeros overwrite what was there");
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
    assert!(import(&base).contains("hint: hindsight volume resize"));
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
