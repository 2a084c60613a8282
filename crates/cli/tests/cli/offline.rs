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

#[test]
fn a_stack_with_a_layer_that_is_no_more_is_refused_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("directory");
    let pool = dir.path().join("pool");
    let at = pool.to_str().expect("UTF-8");
    let make = |stack| run(&["pool", "create", "--pool", at, "--stack", stack, "--size", "80MiB"]);
    for stack in ["integrity(a.img)", "mirror(integrity(a.img), integrity(b.img))"] {
        let made = make(stack);
        assert!(made.code != 0 && made.err.contains("integrity was removed"), "{made:?}");
        assert!(!pool.exists(), "{stack}: something is left of it");
    }
    // One that was made with it is not opened as something else.
    let made = make("mirror(a.img, b.img)");
    assert_eq!(made.code, 0, "{made:?}");
    let stack = pool.join("pool.stack");
    std::fs::write(&stack, "integrity(mirror(a.img, b.img))\n").expect("written");
    let member = || std::fs::read(pool.join("a.img")).expect("read");
    let before = member();
    for command in [&["serve", "--pool", at][..], &["pool", "rebuild", "--pool", at]] {
        let refused = run(command);
        assert!(refused.code != 0, "{refused:?}");
        let is_told = refused.err.contains("pool.stack") && refused.err.contains("export");
        assert!(is_told && refused.err.contains("integrity was removed"), "{refused:?}");
    }
    assert!(member() == before, "something was written");
    let text = std::fs::read_to_string(&stack).expect("read");
    assert_eq!(text, "integrity(mirror(a.img, b.img))\n");
}
