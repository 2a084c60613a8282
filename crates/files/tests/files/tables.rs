//! Tables of parts, as sfdisk makes them.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use hindsight_files::{PartTable, parts};

fn table(script: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk");
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let mut child = Command::new("/usr/sbin/sfdisk")
        .args(["-q", image.to_str().unwrap()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    fs::read(image).unwrap()
}

fn shown(disk: &Vec<u8>) -> (PartTable, Vec<(u32, u64, u64, String)>) {
    let (table, parts) = parts(disk).unwrap();
    let parts = parts.into_iter().map(|part| (part.number, part.offset, part.length, part.name));
    (table, parts.collect())
}

const MIB: u64 = 1 << 20;

#[test]
fn a_gpt_with_names() {
    let script =
        "label: gpt\nstart=2048,size=20480,name=boot\nstart=40960,size=20480,name=\"my root\"";
    let mut disk = table(script);
    let expected = (
        PartTable::Gpt,
        vec![(1, MIB, 10 * MIB, "boot".to_owned()), (2, 20 * MIB, 10 * MIB, "my root".to_owned())],
    );
    assert_eq!(shown(&disk), expected);
    // The first header is damaged: the copy at the end is as good.
    disk[512 + 20] ^= 1;
    assert_eq!(shown(&disk), expected);
    let end = disk.len();
    disk[end - 512 + 40] ^= 1;
    assert!(parts(&disk).unwrap_err().to_string().contains("GPT"));
}

#[test]
fn an_mbr_with_logical_parts() {
    let script = "label: dos\nstart=2048,size=2048\nstart=8192,size=40960,type=5\n\
                  start=10240,size=2048\nstart=20480,size=4096";
    let found = shown(&table(script));
    let none = String::new();
    let expected = vec![
        (1, MIB, MIB, none.clone()),
        (5, 5 * MIB, MIB, none.clone()),
        (6, 10 * MIB, 2 * MIB, none),
    ];
    assert_eq!(found, (PartTable::Mbr, expected));
}

#[test]
fn a_disk_without_a_table_is_one_part() {
    let disk = vec![0; 4 << 20];
    assert_eq!(shown(&disk), (PartTable::None, vec![(0, 0, 4 << 20, String::new())]));
}

#[test]
fn logical_parts_that_lead_back_end() {
    let mut disk = table("label: dos\nstart=8192,size=40960,type=5\nstart=10240,size=2048");
    // The first logical table leads to itself.
    let at = 8192 * 512;
    disk[at + 462 + 4] = 5;
    disk[at + 462 + 8..at + 462 + 12].fill(0);
    assert_eq!(shown(&disk).1.len(), 1);
}
