//! Commands on a pool without a server.

use crate::fixture::{Fixture, run};

#[test]
fn a_pool_is_inspected_and_rebuilt_and_keeps_its_past() {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "v", "--size", "1MiB"]);
    assert!(fixture.qemu_io("v", &["write -P 1 0 64k"]));
    fixture.ok(&["mark", "create", "v", "m"]);
    assert!(fixture.qemu_io("v", &["write -P 2 0 64k"]));
    let pool = fixture.path("pool");
    let pool = pool.to_str().expect("UTF-8").to_owned();
    let inspected = run(&["pool", "inspect", "--pool", &pool]);
    assert!(inspected.out.contains("pool.img copy 0 at byte 0: label"), "{inspected:?}");
    assert!(inspected.out.contains("copy 0 at byte 1048576: superblock"), "{inspected:?}");
    let locked = run(&["pool", "rebuild", "--pool", &pool]);
    assert_eq!(locked.code, 11, "{locked:?}");

    let (code, said, dir) = fixture.stop();
    assert_eq!((code, said), (0, vec!["stopping".to_owned(), "stopped".to_owned()]));
    let rebuilt = run(&["pool", "rebuild", "--pool", &pool, "--json"]).json();
    assert_eq!(rebuilt["damaged_bytes"], 0);
    assert!(rebuilt["writes"].as_u64().expect("number") >= 2);
    let fixture = Fixture::on(dir);
    assert!(fixture.qemu_io("v", &["read -P 2 0 64k"]));
    assert!(fixture.qemu_io("v@mark:m", &["read -P 1 0 64k"]));
}

#[test]
fn a_pool_that_is_none_is_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("file");
    std::fs::write(&file, [0; 300_000]).expect("write");
    let path = file.to_str().expect("UTF-8");
    let inspected = run(&["pool", "inspect", "--pool", path]);
    assert!(inspected.out.contains("copy 3 at byte 196608: unusable: "), "{inspected:?}");
    let rebuilt = run(&["pool", "rebuild", "--pool", path]);
    assert_eq!((rebuilt.code, rebuilt.out.as_str()), (1, ""), "{rebuilt:?}");
    assert_eq!(run(&["pool", "rebuild", "--pool", "/nonexistent"]).code, 1);
}
