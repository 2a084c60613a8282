//! Archives: what is written is read again, here and by GNU tar and Python; what GNU tar makes is
//! read; and nothing that was damaged is taken for more than an error.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use hindsight_files::{Attributes, Identity, Kind, Link, Member, Reader, Time, What, Writer};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert_eq, proptest};

fn attributes(kind: Kind, size: u64, owner: (u32, u32), modified: Time) -> Attributes {
    Attributes {
        kind,
        mode: 0o4751,
        owner: Some(owner),
        size,
        links: 1,
        identity: Identity { inode: 1, generation: 0 },
        modified: Some(modified),
        changed: None,
        accessed: None,
        device: Some((7, 30_000_000)),
    }
}

/// All members of an archive, and their content.
fn read_all(bytes: &[u8]) -> std::io::Result<Vec<(Member, Vec<u8>)>> {
    let mut reader = Reader::new(bytes);
    let mut found = Vec::new();
    while let Some(member) = reader.next_member()? {
        let mut content = Vec::new();
        if member.what == What::File {
            (&mut reader).take(64 << 20).read_to_end(&mut content)?;
        }
        found.push((member, content));
    }
    Ok(found)
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = (1_u8..=255).prop_filter("a name", |byte| *byte != b'/');
    vec(byte, 1..260)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_again(
        members in vec(
            (name(), any::<(u32, u32)>(), -3_000_000_000_i64..20_000_000_000, 0..1_000_000_000_u32,
             vec(any::<u8>(), 0..2000), 0..6_usize, vec((name(), vec(any::<u8>(), 0..40)), 0..3)),
            0..8),
        step in 1..700_usize,
    ) {
        let mut writer = Writer::new(Vec::new());
        let mut wanted = Vec::new();
        for (name, owner, seconds, nanos, content, kind, extended) in &members {
            let target = [&content[..content.len().min(1)], b"to"].concat();
            let target: Vec<u8> = target.into_iter().filter(|byte| *byte != 0).collect();
            let (kind, link, what) = match kind {
                0 => (Kind::File, Link::None, What::File),
                1 => (Kind::Directory, Link::None, What::Directory),
                2 => (Kind::Symlink, Link::Symbolic(&target), What::Symlink(target.clone())),
                3 => (Kind::File, Link::Hard(&target), What::Link(target.clone())),
                4 => (Kind::CharacterDevice, Link::None, What::CharacterDevice(7, 30_000_000)),
                _ => (Kind::Fifo, Link::None, What::Fifo),
            };
            let modified = Time { seconds: *seconds, nanos: *nanos };
            let is_file = what == What::File;
            let size = if is_file { content.len() as u64 } else { 0 };
            let told = attributes(kind, size, *owner, modified);
            writer.member(name, &told, link, extended).unwrap();
            if is_file {
                for part in content.chunks(step) {
                    writer.content(part).unwrap();
                }
            }
            let mut name = name.clone();
            if kind == Kind::Directory {
                name.push(b'/');
            }
            let member = Member {
                name, what, mode: 0o4751, uid: owner.0, gid: owner.1, size, modified,
                accessed: None, extended: extended.clone(), has_more: false,
            };
            wanted.push((member, if is_file { content.clone() } else { Vec::new() }));
        }
        writer.finish().unwrap();
        let bytes = std::mem::take(writer.get_mut());
        prop_assert_eq!(bytes.len() % 10_240, 0);
        prop_assert_eq!(read_all(&bytes).unwrap(), wanted);
        // Cut anywhere before its end it is not whole.
        let cut = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last * step / 700);
        let error = read_all(&bytes[..cut]).unwrap_err();
        prop_assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_damaged_makes_no_reader_panic(
        flips in vec((0..24_000_usize, any::<u8>()), 1..20), fixes in any::<bool>(),
    ) {
        let mut bytes = sample().clone();
        for (at, byte) in flips {
            let length = bytes.len();
            bytes[at % length] = byte;
        }
        if fixes {
            // With sums that are right the fields are looked at.
            for header in bytes.chunks_exact_mut(512) {
                let others = header.iter().enumerate().filter(|(at, _)| !(148..156).contains(at));
                let sum: u64 = others.map(|(_, byte)| u64::from(*byte)).sum::<u64>() + 8 * 32;
                header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
        }
        let mut reader = Reader::new(&bytes[..]);
        let mut buffer = vec![0; 4096];
        for _ in 0..100 {
            match reader.next_member() {
                Ok(Some(_)) => {
                    let _ = reader.read(&mut buffer);
                }
                Ok(None) | Err(_) => break,
            }
        }
    }
}

/// Archives of GNU tar, one behind the other, with all that has fields of its own.
fn sample() -> &'static Vec<u8> {
    static SAMPLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    SAMPLE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        tree(dir.path());
        let mut bytes = tar(dir.path(), &["--format=gnu", "-S"]);
        bytes.extend(tar(dir.path(), &["--format=posix", "-S"]));
        // The ends of archives in the middle are taken out.
        let blocks = bytes.chunks(512).filter(|block| block.iter().any(|byte| *byte != 0));
        blocks.take(46).flatten().copied().collect()
    })
}

/// A tree with long names, links, times, and files with holes.
fn tree(dir: &Path) {
    fs::create_dir(dir.join("sub")).unwrap();
    fs::write(dir.join("sub/plain"), b"content").unwrap();
    fs::hard_link(dir.join("sub/plain"), dir.join("sub/z-second")).unwrap();
    symlink("sub/plain", dir.join("link")).unwrap();
    symlink("x".repeat(150), dir.join("long-link")).unwrap();
    fs::write(dir.join("n".repeat(220)), vec![7; 1000]).unwrap();
    let sparse = fs::File::create(dir.join("sparse")).unwrap();
    for at in [0, 1 << 20, 3 << 20, 5 << 20, 6 << 20, 7 << 20] {
        sparse.write_all_at(b"some bytes between holes", at).unwrap();
    }
    sparse.set_len(9 << 20).unwrap();
    fs::File::create(dir.join("empty-hole")).unwrap().set_len(1 << 20).unwrap();
    fs::set_permissions(dir.join("sub"), fs::Permissions::from_mode(0o2751)).unwrap();
}

fn tar(dir: &Path, options: &[&str]) -> Vec<u8> {
    let mut command = Command::new("tar");
    command.args(options).args(["--sort=name", "-cf", "-", "-C"]).arg(dir).arg(".");
    let made = command.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    made.stdout
}

/// Kind, mode, owner, time and content of an object.
type Object = (What, u16, u32, Time, Vec<u8>);

/// What lies in a directory, as members tell it.
fn expected(dir: &Path) -> BTreeMap<Vec<u8>, Object> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(path) = open.pop() {
        let meta = path.symlink_metadata().unwrap();
        let below = path.strip_prefix(dir).unwrap().as_os_str().as_bytes();
        let (what, content) = if meta.is_dir() {
            open.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
            (What::Directory, Vec::new())
        } else if meta.is_symlink() {
            let target = path.read_link().unwrap();
            (What::Symlink(target.as_os_str().as_bytes().to_vec()), Vec::new())
        } else {
            (What::File, fs::read(&path).unwrap())
        };
        let modified = Time { seconds: meta.mtime(), nanos: meta.mtime_nsec() as u32 };
        let mode = (meta.mode() & 0o7777) as u16;
        found.insert(below.to_vec(), (what, mode, meta.uid(), modified, content));
    }
    found
}

#[test]
fn what_gnu_tar_makes_is_read() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    for options in [
        &["--format=gnu"][..],
        &["--format=gnu", "-S"],
        &["--format=posix"],
        &["--format=posix", "-S"],
        &["--format=oldgnu", "-S"],
    ] {
        let mut wanted = expected(dir.path());
        let is_posix = options[0] == "--format=posix";
        let mut seen = 0;
        for (member, content) in read_all(&tar(dir.path(), options)).unwrap() {
            let name = member.name.strip_prefix(b"./").unwrap();
            let name = name.strip_suffix(b"/").unwrap_or(name);
            let (what, mode, uid, modified, bytes) = wanted.remove(name).unwrap();
            if let What::Link(first) = &member.what {
                assert_eq!(first, b"./sub/plain");
                seen += 1;
                continue;
            }
            let modified = if is_posix { modified } else { Time { nanos: 0, ..modified } };
            let told = (member.what, member.mode, member.uid, member.modified);
            assert_eq!(told, (what, mode, uid, modified), "{options:?}");
            assert!(content == bytes, "{options:?} {}", String::from_utf8_lossy(name));
        }
        assert_eq!((wanted.len(), seen), (0, 1), "{options:?}");
    }
    // Forms that are not read are told, never taken for content.
    for version in ["0.0", "0.1"] {
        let version = format!("--sparse-version={version}");
        let read = read_all(&tar(dir.path(), &["--format=posix", "-S", &version])).unwrap();
        let sparse = read.iter().filter(|(member, _)| matches!(member.what, What::Unknown(_)));
        assert_eq!(sparse.count(), 2, "{version}");
    }
}

#[test]
fn what_is_written_is_read_by_others() {
    let mut writer = Writer::new(Vec::new());
    let time = Time { seconds: -5, nanos: 250_000_000 };
    let long = vec![b'l'; 180];
    for (name, size) in [(&b"small"[..], 3_u64), (&long, 1500)] {
        let told = attributes(Kind::File, size, (70_000, 5_000_000), time);
        writer.member(name, &told, Link::None, &[]).unwrap();
        writer.content(b"cc").unwrap();
        assert_eq!(writer.left(), size - 2);
        writer.content(&vec![0; size as usize - 2]).unwrap();
    }
    let told = attributes(Kind::Directory, 0, (1, 2), Time { seconds: 9_999_999_999, nanos: 0 });
    writer.member(b"dir", &told, Link::None, &[]).unwrap();
    writer.finish().unwrap();
    let bytes = std::mem::take(writer.get_mut());

    let dir = tempfile::tempdir().unwrap();
    let extracting = Command::new("tar")
        .args(["-xf", "-", "-C"])
        .arg(dir.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    extracting.stdin.as_ref().unwrap().write_all(&bytes).unwrap();
    let extracted = extracting.wait_with_output().unwrap();
    assert!(extracted.status.success(), "{}", String::from_utf8_lossy(&extracted.stderr));
    assert_eq!(fs::read(dir.path().join("small")).unwrap(), b"cc\0");
    let meta = dir.path().join("small").metadata().unwrap();
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (-5, 250_000_000));
    assert_eq!(dir.path().join(Path::new(&"l".repeat(180))).metadata().unwrap().len(), 1500);
    assert_eq!(dir.path().join("dir").metadata().unwrap().mtime(), 9_999_999_999);

    let program = "import sys, tarfile\n\
        for m in tarfile.open(fileobj=sys.stdin.buffer, mode='r|'):\n \
        print(m.name[:5], m.size, m.uid, m.gid, oct(m.mode), m.mtime)";
    let reading = Command::new("python3")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    reading.stdin.as_ref().unwrap().write_all(&bytes).unwrap();
    let read = reading.wait_with_output().unwrap();
    let read = String::from_utf8(read.stdout).unwrap();
    assert_eq!(
        read,
        "small 3 70000 5000000 0o4751 -4.75\n\
         lllll 1500 70000 5000000 0o4751 -4.75\n\
         dir 0 1 2 0o4751 9999999999.0\n"
    );
}

#[test]
fn what_is_no_archive_is_named() {
    for (bytes, words) in [
        (&b"\x1f\x8b\x08"[..], "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\xfd7zXZ", "xz"),
        (b"BZh9", "bzip2"),
        (b"anything", "no archive"),
    ] {
        for length in [600, 100] {
            let block = [bytes, &[1; 600][..length]].concat();
            let error = read_all(&block).unwrap_err();
            let words =
                if length == 100 { words.replace("no archive", "middle") } else { words.into() };
            assert!(error.to_string().contains(&words), "{error}");
        }
    }
    assert_eq!(read_all(b"").unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(read_all(&[0; 512]).unwrap(), []);
}

/// A header with a sum that is right.
fn header(kind: u8, size: &[u8; 12]) -> [u8; 512] {
    let mut header = [0; 512];
    header[..4].copy_from_slice(b"name");
    header[124..136].copy_from_slice(size);
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum::<u64>() + 8 * 32;
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[test]
fn nothing_of_an_archive_takes_much_memory() {
    // 8 GiB that are told of one member; a little again and again; a name again and again.
    let much = header(b'x', b"77777777777\0").to_vec();
    let mut records = header(b'x', b"00001777775\0").to_vec();
    records.extend(b"5 a=\n".iter().cycle().take(0o1777775));
    records.extend([0; 3]);
    let long = [header(b'L', b"00000000001\0"), [b'n'; 512]].concat();
    for (bytes, times) in [(much, 1), (records, 1000), (long, 100_000)] {
        let error = read_all(&bytes.repeat(times)).unwrap_err();
        assert!(error.to_string().contains("about one member"), "{error}");
    }
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let huge = b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff";
    for kind in [b'0', b'S', b'Z', b'x'] {
        let hidden = [header(kind, huge), header(b'0', b"00000000000\0"), [0; 512]].concat();
        let error = read_all(&hidden).unwrap_err();
        assert_ne!(error.kind(), ErrorKind::UnexpectedEof, "{}: {error}", char::from(kind));
    }
}

#[test]
fn a_header_that_was_lost_to_zeros_is_not_the_end() {
    let member = [header(b'0', b"00000000003\0"), [b'c'; 512]].concat();
    let whole = [&member[..], &member, &[0; 1024]].concat();
    assert_eq!(read_all(&whole).unwrap().len(), 2);
    let mut damaged = whole.clone();
    damaged[1024..1536].fill(0);
    assert_eq!(read_all(&damaged).unwrap_err().kind(), ErrorKind::InvalidData);
    let two = whole.repeat(2);
    assert!(read_all(&two).unwrap_err().to_string().contains("several"));
}

#[test]
fn pieces_that_are_not_the_content_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let sparse = fs::File::create(dir.path().join("sparse")).unwrap();
    sparse.write_all_at(&[7; 4096], 1 << 20).unwrap();
    sparse.write_all_at(&[8; 4096], 3 << 20).unwrap();
    sparse.set_len(4 << 20).unwrap();
    let whole = tar(dir.path(), &["--format=gnu", "-S"]);
    assert_eq!(read_all(&whole).unwrap().len(), 2);
    let at = 512 + 386;
    // Longer than what is stored, over the next one, beyond the file.
    for (field, number) in [(at + 12, 8192_u64), (at, 3 << 20), (at + 24, 1 << 30)] {
        let mut damaged = whole.clone();
        damaged[field..field + 12].copy_from_slice(format!("{number:011o}\0").as_bytes());
        let header = &mut damaged[512..1024];
        let others = header.iter().enumerate().filter(|(at, _)| !(148..156).contains(at));
        let sum: u64 = others.map(|(_, byte)| u64::from(*byte)).sum::<u64>() + 8 * 32;
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        assert_eq!(read_all(&damaged).unwrap_err().kind(), ErrorKind::InvalidData, "{field}");
    }
}

#[test]
fn a_name_in_two_parts_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("d".repeat(90)).join("e".repeat(40));
    fs::create_dir_all(&below).unwrap();
    fs::write(below.join("f"), b"deep").unwrap();
    for format in ["--format=ustar", "--format=v7"] {
        let is_v7 = format == "--format=v7";
        let from = if is_v7 { below.as_path() } else { dir.path() };
        let read = read_all(&tar(from, &[format])).unwrap();
        let (member, content) = read.last().unwrap();
        let name = [&b"./"[..], &[b'd'; 90], b"/", &[b'e'; 40], b"/f"].concat();
        let wanted = if is_v7 { &b"./f"[..] } else { &name };
        assert_eq!((&member.name[..], &content[..]), (wanted, &b"deep"[..]), "{format}");
    }
}
