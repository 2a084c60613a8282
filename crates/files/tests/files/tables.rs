//! Tables of parts, as sfdisk makes them.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::rc::Rc;

use hindsight_files::{Part, PartTable, Source};

pub fn table(script: &str) -> Vec<u8> {
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

fn parts(disk: &[u8]) -> hindsight_files::Result<(PartTable, Vec<Part>)> {
    let disk: Rc<dyn Source> = Rc::new(disk.to_vec());
    hindsight_files::parts(&disk)
}

fn shown(disk: &[u8]) -> (PartTable, Vec<(String, u64, u64, String)>) {
    let (table, parts) = parts(disk).unwrap();
    let shown = parts.into_iter().map(|part| {
        let [range] = &part.ranges[..] else { panic!("{part:?}") };
        (part.name.clone(), range.start, part.length(), part.label.clone())
    });
    (table, shown.collect())
}

fn part(name: &str, offset: u64, length: u64, label: &str) -> (String, u64, u64, String) {
    (name.to_owned(), offset, length, label.to_owned())
}

const MIB: u64 = 1 << 20;

#[test]
fn a_gpt_with_names() {
    let script =
        "label: gpt\nstart=2048,size=20480,name=boot\nstart=40960,size=20480,name=\"my root\"";
    let mut disk = table(script);
    let expected = (
        PartTable::Gpt,
        vec![part("p1", MIB, 10 * MIB, "boot"), part("p2", 20 * MIB, 10 * MIB, "my root")],
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
    let expected = vec![
        part("p1", MIB, MIB, ""),
        part("p5", 5 * MIB, MIB, ""),
        part("p6", 10 * MIB, 2 * MIB, ""),
    ];
    assert_eq!(found, (PartTable::Mbr, expected));
}

#[test]
fn a_disk_without_a_table_is_one_part() {
    let disk = vec![0; 4 << 20];
    assert_eq!(shown(&disk), (PartTable::None, vec![part("", 0, 4 << 20, "")]));
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
