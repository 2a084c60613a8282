//! `hindsight file` on NTFS against ntfs-3g: whatever that leaves at its end is read by us, and by
//! itself from a clone of the same moment. In the middle of work it leaves what nobody can tell:
//! there we may refuse, and what both read must be the same.
//!
//! Compared are names, kinds, links, times, targets, sizes, streams and all bytes; with compressed
//! files, sparse ones, and names by the hundred.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hindsight_tests::command::{call, skips_without_root};
use hindsight_tests::disk::Disk;
use hindsight_tests::random::Random;
use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};

use crate::files::{bytes, latest, list, moments, storm, storm_time};
use crate::stage::{Stage, seed};

/// Modes as we show them, where ntfs-3g has none of its own.
const OPTIONS: &str = "compression,umask=022,fmask=133";
/// Times that work ends and begins again, unless `HINDSIGHT_MOMENTS` says how many.
const ROUNDS: usize = 3;
/// What marks a directory: files that are made in it are compressed.
const COMPRESSED: u32 = 0x800;

#[test]
fn ntfs_as_it_is_made_by_default_after_storms() -> Result<()> {
    reads_as_ntfs_3g("files: NTFS", &[], false)
}

#[test]
fn ntfs_with_small_clusters_after_storms() -> Result<()> {
    reads_as_ntfs_3g("files: NTFS, small clusters", &["-c", "512"], true)
}

#[test]
fn ntfs_with_large_clusters_after_storms() -> Result<()> {
    reads_as_ntfs_3g("files: NTFS, large clusters", &["-c", "65536"], true)
}

fn reads_as_ntfs_3g(name: &str, make: &[&str], is_for_hands: bool) -> Result<()> {
    if skips_without_root(name) || is_for_hands && moments().is_none() {
        return Ok(());
    }
    let mut random = Random::new(seed(name));
    let stage = Stage::new("vol", "256MiB")?;
    let disk = Disk::attach(&stage.server.uri("vol"), &stage.path("fuse"), false)?;
    call("mkntfs", &[&["-Q", "-q"], make, &[disk.device()]].concat())?;
    disk.detach()?;
    let rounds = moments().unwrap_or(ROUNDS);
    let (mut objects, mut within, mut refused) = (0, 0, 0);
    for _ in 0..rounds {
        let first = latest(&stage)?;
        work(&stage, &mut random, storm_time() / 2)?;
        let last = latest(&stage)?;
        objects += look(&stage, last, true)?.context("it was at rest, and refused")?;
        match look(&stage, random.between(first, last), false)? {
            Some(_) => within += 1,
            None => refused += 1,
        }
    }
    println!(
        "{name}: {objects} objects in {rounds} moments of rest; in the middle of work {within} \
         moments were read and {refused} refused"
    );
    Ok(())
}

/// A storm, from mount to unmount.
fn work(stage: &Stage, random: &mut Random, time: Duration) -> Result<()> {
    let mut disk = Disk::attach(&stage.server.uri("vol"), &stage.path("fuse"), false)?;
    disk.mount(&stage.path("mnt"), OPTIONS)?;
    let top = stage.path("mnt");
    let packed = top.join("packed");
    fs::create_dir_all(&packed)?;
    let flags = XattrFlags::empty();
    lsetxattr(&packed, "system.ntfs_attrib_be", &COMPRESSED.to_be_bytes(), flags)?;
    storm(&top, random, time, &mut |folder, random| more(folder, &packed, random))?;
    disk.detach()
}

/// What is NTFS' own.
fn more(folder: &Path, packed: &Path, random: &mut Random) -> Result<()> {
    if random.below(4) > 0 {
        return Ok(());
    }
    let number = random.below(30);
    match random.below(4) {
        0 => {
            // Runs of one byte, of text, and of what cannot be compressed.
            let mut content = vec![number as u8; random.index(100_000)];
            content.extend("so much of the same ".repeat(random.index(9000)).bytes());
            content.extend(bytes(random, number as usize * 5000));
            fs::write(packed.join(number.to_string()), content)?;
        }
        1 => drop(fs::remove_file(packed.join(number.to_string()))),
        2 => {
            let file = fs::OpenOptions::new().write(true).open(packed.join(number.to_string()));
            if let Ok(file) = file {
                use std::os::unix::fs::FileExt;
                let content = bytes(random, 3000);
                file.write_all_at(&content, random.below(200_000))?;
            }
        }
        _ => {
            // As much as ext4 has room for, onto which it is restored.
            let value = bytes(random, number as usize * number as usize);
            let name = format!("user.stream {}", number % 3);
            // What is not there has none.
            let _ = lsetxattr(folder.join("2"), name, &value, XattrFlags::empty());
        }
    }
    Ok(())
}

/// Looks at a moment in both ways; how many objects there are, unless one of the two refuses.
fn look(stage: &Stage, seq: u64, is_at_rest: bool) -> Result<Option<usize>> {
    let ours = stage.path("ours");
    let of = format!("vol@seq:{seq}:/");
    let said = stage.server.output(&["file", "restore", &of, &stage.text("ours"), "--json"])?;
    let code = said.status.code();
    ensure!(code == Some(0) || code == Some(14) && !is_at_rest, "at seq {seq}: {said:?}");
    let mut objects = None;
    if code == Some(0) {
        stage.server.run(&["clone", &format!("vol@seq:{seq}"), "theirs"])?;
        let mut disk = Disk::attach(&stage.server.uri("theirs"), &stage.path("fuse"), false)?;
        match disk.mount(&stage.path("theirs"), &format!("ro,{OPTIONS}")) {
            Ok(()) => {
                let found = same(&ours, &stage.path("theirs"), is_at_rest);
                objects = found.with_context(|| format!("at seq {seq}"))?;
            }
            Err(error) if is_at_rest => return Err(error),
            Err(_) => {}
        }
        disk.detach()?;
        stage.server.run(&["volume", "delete", "theirs", "--now", "--force"])?;
    }
    drop(fs::remove_dir_all(&ours));
    Ok(objects)
}

/// Compares two folders; how many objects they hold. Not at rest only what both read, which may be
/// nothing.
fn same(ours: &Path, theirs: &Path, is_at_rest: bool) -> Result<Option<usize>> {
    let found = list(ours, &ours.join("x"))?;
    let expected = match list(theirs, &theirs.join("x")) {
        Ok(expected) => expected,
        Err(error) if is_at_rest => return Err(error),
        Err(_) => return Ok(None),
    };
    let mut read = BTreeSet::new();
    for (path, known) in &expected {
        let (a, b) = (ours.join(path), theirs.join(path));
        let is_odd = fs::symlink_metadata(&b)?.file_type();
        // Empty files that are marked as the system's are pipes to ntfs-3g alone.
        if is_odd.is_fifo() {
            continue;
        }
        let here = found.get(path);
        if is_at_rest {
            let here = here.with_context(|| format!("{path} is missing"))?;
            ensure!(here == known, "{path}: {here:?} is not {known:?}");
        }
        let Ok(metadata) = fs::symlink_metadata(&a) else { continue };
        if metadata.is_file() && is_odd.is_file() && read.insert(metadata.ino()) {
            match fs::read(&b) {
                Ok(there) => ensure!(fs::read(&a)? == there, "{path}: other bytes"),
                Err(error) => ensure!(!is_at_rest, "{path}: {error}"),
            }
            same_streams(&a, &b).with_context(|| path.clone())?;
        }
    }
    let more = found.keys().find(|path| !expected.contains_key(*path));
    ensure!(!is_at_rest || more.is_none(), "{more:?} is not there");
    Ok(Some(expected.len()))
}

fn same_streams(ours: &Path, theirs: &Path) -> Result<()> {
    for number in 0..3 {
        let name = format!("user.stream {number}");
        let value = |path: &Path| {
            let mut value = vec![0; 64 << 10];
            let length = lgetxattr(path, &name, &mut value[..]).ok()?;
            value.truncate(length);
            Some(value)
        };
        ensure!(value(ours) == value(theirs), "another {name}");
    }
    Ok(())
}

/// What a reader cannot know is named, and left out of what is restored with it.
#[test]
fn what_windows_keeps_elsewhere_is_left_out() -> Result<()> {
    if skips_without_root("files: NTFS, elsewhere") {
        return Ok(());
    }
    let stage = Stage::new("vol", "64MiB")?;
    let mut disk = Disk::attach(&stage.server.uri("vol"), &stage.path("fuse"), false)?;
    call("mkntfs", &["-Q", "-q", disk.device()])?;
    // 100 characters there, 300 bytes here: no mount of this machine could make it.
    let long = "\u{6f22}".repeat(100);
    fs::write(stage.path("some"), "text")?;
    call("ntfscp", &["-q", disk.device(), &stage.text("some"), &long])?;
    disk.mount(&stage.path("mnt"), OPTIONS)?;
    let folder = stage.path("mnt/folder");
    fs::create_dir(&folder)?;
    for name in ["plain", "apart"] {
        fs::write(folder.join(name), "text")?;
    }
    // A mark of Windows' own compression, which keeps the bytes in another stream.
    let mark = [0x17, 0, 0, 0x80, 16, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    let flags = XattrFlags::empty();
    lsetxattr(folder.join("apart"), "user.stream", b"value", flags)?;
    lsetxattr(folder.join("apart"), "system.ntfs_reparse_data", &mark, flags)?;
    disk.unmount()?;
    disk.detach()?;
    let cat = stage.server.output(&["file", "cat", "vol:/folder/apart"])?;
    let said = String::from_utf8_lossy(&cat.stderr);
    ensure!(cat.status.code() == Some(14) && said.contains("elsewhere (tag 80000017)"), "{cat:?}");
    let to = stage.text("to");
    let restored = stage.server.output(&["file", "restore", "vol:/folder", &to])?;
    let said = String::from_utf8_lossy(&restored.stderr);
    ensure!(restored.status.code() == Some(3) && said.contains("apart: file: "), "{restored:?}");
    ensure!(fs::read(stage.path("to/plain"))? == b"text" && !stage.path("to/apart").exists());
    let all = stage.server.output(&["file", "restore", "vol:/", &stage.text("all")])?;
    let said = String::from_utf8_lossy(&all.stderr);
    ensure!(all.status.code() == Some(3) && said.contains("more than 255 bytes"), "{all:?}");
    ensure!(fs::read(stage.path("all/folder/plain"))? == b"text");
    let cat = stage.server.output(&["file", "cat", &format!("vol:/{long}")])?;
    ensure!(cat.stdout == b"text", "{cat:?}");
    // It is the same as before, as far as anything is told of it.
    let diff = stage.server.run(&["file", "diff", "vol", "vol", "/folder"])?;
    ensure!(!diff.contains("apart"), "{diff}");
    let stat = stage.server.run(&["file", "stat", "vol:/folder/apart"])?;
    ensure!(stat.contains("user.stream"), "{stat}");
    let alone = stage.server.output(&["file", "restore", "vol:/folder/apart", &stage.text("a")])?;
    ensure!(alone.status.code() == Some(14), "{alone:?}");
    let archive = stage.server.output(&["file", "tar", "vol:/folder"])?;
    ensure!(archive.status.code() == Some(3), "{archive:?}");
    fs::write(stage.path("tar"), &archive.stdout)?;
    let members = call("tar", &["-tf", &stage.text("tar")])?;
    ensure!(members == "folder/\nfolder/plain\n", "{members}");
    Ok(())
}
