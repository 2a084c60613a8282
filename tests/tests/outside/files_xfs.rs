//! `hindsight file` on XFS against the kernel, as `files` does it for ext4, with a load that makes
//! what is XFS's own: trees of extents, directories of thousands of names, space that is taken and
//! not written, attributes within inodes and outside of them, blocks that files share.
//!
//! Compared are, besides what is compared there, extended attributes, inodes, links of directories,
//! and the times of changes. What is restored goes onto an XFS too: others have no room for all
//! attributes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use hindsight_tests::command::{call, run, skips_without_root};
use hindsight_tests::disk::Disk;
use hindsight_tests::random::Random;
use rustix::fs::{FallocateFlags, XattrFlags, fallocate, ioctl_ficlone, lsetxattr};
use rustix::fs::{lgetxattr, llistxattr, lremovexattr};
use serde_json::Value;

use crate::files::{bytes, compare, latest, look_at_moments, moments, same, storm, storm_time};
use crate::stage::{Stage, seed};

/// Files that are open and have no name any more, at most.
const OPEN_MAX: usize = 20;
/// Moments of a storm that are looked at, unless `HINDSIGHT_MOMENTS` says how many.
const MOMENTS: usize = 3;
const VALUE_BYTES_MAX: usize = 65536;

#[test]
fn xfs_as_it_is_made_by_default_at_moments_of_a_storm() -> Result<()> {
    reads_as_the_kernel("files: XFS", &[], false)
}

#[test]
fn xfs_with_small_blocks_at_moments_of_a_storm() -> Result<()> {
    let make = ["-b", "size=1024", "-l", "size=3600k"];
    reads_as_the_kernel("files: XFS, small blocks", &make, true)
}

#[test]
fn xfs_with_directories_of_large_blocks_at_moments_of_a_storm() -> Result<()> {
    let make = ["-b", "size=1024", "-n", "size=8192", "-l", "size=5200k"];
    reads_as_the_kernel("files: XFS, large directories", &make, true)
}

#[test]
fn xfs_with_reverse_maps_and_large_counts_at_moments_of_a_storm() -> Result<()> {
    let make = ["-m", "reflink=1,rmapbt=1,bigtime=1", "-i", "nrext64=1"];
    reads_as_the_kernel("files: XFS, reverse maps", &make, true)
}

#[test]
fn xfs_of_old_times_and_without_sparse_inodes_at_moments_of_a_storm() -> Result<()> {
    let make = ["-m", "reflink=0,bigtime=0,finobt=0,inobtcount=0", "-i", "sparse=0"];
    reads_as_the_kernel("files: XFS, as of old", &make, true)
}

/// An XFS in a file, mounted; it goes when it is dropped.
struct Beside(PathBuf);

impl Beside {
    fn mount(image: &Path, at: PathBuf) -> Result<Beside> {
        File::create(image)?.set_len(1 << 30)?;
        let image = image.to_str().context("UTF-8")?;
        call("mkfs.xfs", &["-q", image])?;
        fs::create_dir(&at)?;
        call("mount", &["-o", "loop", image, at.to_str().context("UTF-8")?])?;
        Ok(Beside(at))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// With few moments unless more are asked for (`HINDSIGHT_MOMENTS=200 HINDSIGHT_STORM_SECONDS=40`),
/// and kinds that are for hands only then.
fn reads_as_the_kernel(name: &str, options: &[&str], is_for_hands: bool) -> Result<()> {
    if skips_without_root(name) || is_for_hands && moments().is_none() {
        return Ok(());
    }
    let mut random = Random::new(seed(name));
    let stage = Stage::new("vol", "256MiB")?;
    let mut disk = Disk::attach(&stage.server.uri("vol"), &stage.path("fuse"), false)?;
    let mut make = Command::new("mkfs.xfs");
    // As the tests of XFS itself say it: a file system may be this small, and its log.
    make.envs([("TEST_DIR", "1"), ("TEST_DEV", "1"), ("QA_CHECK_FS", "1")]);
    run(make.args(["-q", "-f", "-L", "STORM"]).args(options).arg(disk.device()))?;
    // Long records, most of them not full, where the log is not made small; the golden image has
    // short ones.
    let long = if options.contains(&"-l") { "defaults" } else { "logbsize=256k" };
    disk.mount(&stage.path("mnt"), long)?;
    // The storm begins near the end of the log, and goes round it.
    while used(&disk)? < 0.8 {
        names(&stage.path("mnt/turning"), &mut random);
        call("sync", &["-f", &stage.text("mnt")])?;
    }
    let first = latest(&stage)?;
    let mut open = Vec::new();
    storm(&stage.path("mnt"), &mut random, storm_time(), &mut |folder, random| {
        more(folder, random, &mut open)
    })?;
    let (last, turns) = (latest(&stage)?, used(&disk)?);
    println!("{name}: the log went round {turns:.1} times");
    drop(open);
    disk.unmount()?;
    disk.detach()?;
    let beside = Beside::mount(&stage.path("beside"), stage.path("ours-on"))?;
    let ours = beside.0.join("ours");
    let seqs = (first..last, moments().unwrap_or(MOMENTS));
    look_at_moments(name, &stage, &ours, seqs, &mut random, &mut |stage, seq, said| {
        if said.status.success() {
            let listed = list(stage, seq)?;
            let with = |theirs: &Path| {
                same_within(theirs, &listed)?;
                same_attributes(&ours, theirs)?;
                same(&ours, theirs)
            };
            let objects = compare(stage, "nouuid", &with)?;
            fs::remove_dir_all(&ours)?;
            return Ok(objects);
        }
        // What is refused as damage is so for the kernel too: a moment within the write of a block.
        let refused = String::from_utf8_lossy(&said.stderr).into_owned();
        if ours.exists() {
            fs::remove_dir_all(&ours)?;
        }
        if !refused.contains("ends within") {
            let kernel = compare(stage, "nouuid", &read_all);
            println!("{name} at seq {seq}: {refused}\nThe kernel: {kernel:?}");
            ensure!(kernel.is_err(), "the kernel reads it: {refused}");
        }
        stage.server.output(&["volume", "delete", "theirs", "--now", "--force"])?;
        Ok(0)
    })
}

/// How often the log of a mounted disk was filled.
fn used(disk: &Disk) -> Result<f64> {
    let name = disk.device().trim_start_matches("/dev/");
    let said = fs::read_to_string(format!("/sys/fs/xfs/{name}/log/log_head_lsn"))?;
    let (turn, sector) = said.trim().split_once(':').context("a turn and a sector")?;
    let mut superblock = [0; 512];
    File::open(disk.device())?.read_exact_at(&mut superblock, 0)?;
    let number =
        |at: usize| superblock[at..at + 4].iter().fold(0.0, |n, &b| n * 256.0 + f64::from(b));
    let sectors = number(96) * number(4) / 512.0;
    Ok(turn.parse::<f64>()? - 1.0 + sector.parse::<f64>()? / sectors)
}

/// All objects of a moment, as they are told.
fn list(stage: &Stage, seq: u64) -> Result<BTreeMap<String, Value>> {
    let of = format!("vol@seq:{seq}:/");
    let told = stage.server.run(&["file", "list", &of, "--recursive", "--json"])?;
    let mut told: Value = serde_json::from_str(&told)?;
    let entries = told["entries"].take();
    let Value::Array(entries) = entries else { anyhow::bail!("entries: {entries}") };
    let named = |entry: Value| Some((entry["name"].as_str()?.to_owned(), entry));
    Ok(entries.into_iter().filter_map(named).collect())
}

/// What restoring does not bring along: inodes, links of directories, times of changes.
fn same_within(theirs: &Path, listed: &BTreeMap<String, Value>) -> Result<()> {
    let objects = walk(theirs)?;
    ensure!(objects.len() == listed.len(), "{} of {} listed", listed.len(), objects.len());
    for path in objects {
        let name = path.strip_prefix(theirs)?.to_string_lossy().into_owned();
        let told = listed.get(&name).with_context(|| format!("{name} is not listed"))?;
        let known = path.symlink_metadata()?;
        let changed = told["changed"].as_str().context("changed")?;
        let changed: jiff::Timestamp = changed.parse()?;
        let found = (told["inode"].as_u64(), told["links"].as_u64(), changed);
        let nanos = i32::try_from(known.ctime_nsec())?;
        let time = jiff::Timestamp::new(known.ctime(), nanos)?;
        let expected = (Some(known.ino()), Some(known.nlink()), time);
        ensure!(found == expected, "{name}: {found:?} is not {expected:?}");
        ensure!(told["size"].as_u64() == Some(known.len()) || known.is_dir(), "{name}: {told}");
    }
    Ok(())
}

/// Reads all files of a tree.
fn read_all(top: &Path) -> Result<usize> {
    let objects = walk(top)?;
    for path in &objects {
        if path.symlink_metadata()?.is_file() {
            fs::read(path)?;
        }
        attributes(path)?;
    }
    Ok(objects.len())
}

fn walk(top: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.symlink_metadata()?.is_dir() {
                waiting.push(path.clone());
            }
            found.push(path);
        }
    }
    Ok(found)
}

fn same_attributes(ours: &Path, theirs: &Path) -> Result<()> {
    let mut read = BTreeSet::new();
    for path in walk(theirs)? {
        let beside = ours.join(path.strip_prefix(theirs)?);
        if !read.insert((beside.symlink_metadata()?.ino(), path.symlink_metadata()?.ino())) {
            continue;
        }
        let (found, expected) = (attributes(&beside)?, attributes(&path)?);
        let lengths = |found: &BTreeMap<Vec<u8>, Vec<u8>>| -> Vec<(String, usize)> {
            let of = |(name, value): (&Vec<u8>, &Vec<u8>)| {
                (String::from_utf8_lossy(name).into_owned(), value.len())
            };
            found.iter().map(of).collect()
        };
        let (a, b) = (lengths(&found), lengths(&expected));
        ensure!(found == expected, "{}: {a:?} is not {b:?}", path.display());
    }
    Ok(())
}

fn attributes(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0; VALUE_BYTES_MAX];
    let length = llistxattr(path, &mut names[..])?;
    let mut found = BTreeMap::new();
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; VALUE_BYTES_MAX];
        let length = lgetxattr(path, name, &mut value[..])
            .with_context(|| format!("{} of {}", String::from_utf8_lossy(name), path.display()))?;
        value.truncate(length);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}

/// What a storm does besides. Whatever cannot be done just now is left.
fn more(folder: &Path, random: &mut Random, open: &mut Vec<File>) -> Result<()> {
    match random.below(14) {
        0 => names(folder, random),
        12 => drop(File::open(folder).and_then(|folder| folder.sync_all())),
        13 => names(&folder.join("inside"), random),
        1 => drop(pieces(&folder.join("pieces"), random)),
        2 => drop(unwritten(&folder.join("space"), random)),
        3..6 => attribute(&folder.join(random.below(5).to_string()), random),
        6 => attribute(folder, random),
        7 => {
            let target = "a part of a target/".repeat(random.index(53) + 1);
            drop(symlink(target, folder.join(format!("long-{}", random.below(9)))));
        }
        8 => {
            let path = folder.join("open");
            let _ = fs::write(&path, bytes(random, 30_000));
            let opened = OpenOptions::new().read(true).write(true).open(&path);
            drop(fs::remove_file(&path));
            open.extend(opened.ok().filter(|_| open.len() < OPEN_MAX));
        }
        9 => {
            if let Some(file) = open.last() {
                let _ = file.write_all_at(&bytes(random, 5000), random.below(1 << 20));
            }
            if random.below(3) == 0 {
                open.clear();
            }
        }
        10 => drop(shared(folder, random)),
        _ => drop(fs::remove_file(folder.join(["pieces", "space", "shared"][random.index(3)]))),
    }
    Ok(())
}

/// Hundreds of names, which take a tree of hashes, and some of them gone again.
fn names(folder: &Path, random: &mut Random) {
    let many = folder.join("many");
    drop(fs::create_dir_all(&many));
    let first = many.join("first");
    drop(fs::write(&first, "first"));
    let count = random.below(900);
    let name = |number: u64| many.join(format!("a name of some length, number {number}"));
    for number in 0..count {
        drop(fs::hard_link(&first, name(number)));
    }
    let each = random.below(4) + 2;
    for number in (0..count).filter(|number| number % each == 0) {
        drop(fs::remove_file(name(number)));
    }
    if random.below(3) == 0 {
        drop(fs::remove_dir_all(&many));
    }
}

/// A file of very many pieces.
fn pieces(path: &Path, random: &mut Random) -> Result<()> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    let apart = random.below(4) * 4096 + 8192;
    for number in 0..random.below(700) {
        file.write_all_at(&bytes(random, 1000), number * apart)?;
    }
    if random.below(2) == 0 {
        file.sync_all()?;
    }
    Ok(())
}

/// Space that is taken, and written in part; holes in it.
fn unwritten(path: &Path, random: &mut Random) -> Result<()> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    let length = random.below(2 << 20) + 1;
    fallocate(&file, FallocateFlags::empty(), random.below(1 << 20), length)?;
    for _ in 0..random.below(30) {
        file.write_all_at(&bytes(random, 3000), random.below(length))?;
    }
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match random.below(4) {
        0 => fallocate(&file, hole, random.below(length), random.below(99_999) + 1)?,
        1 => fallocate(&file, FallocateFlags::ZERO_RANGE, random.below(length), 70_000)?,
        2 => fallocate(&file, FallocateFlags::KEEP_SIZE, length, 300_000)?,
        _ => file.sync_all()?,
    }
    Ok(())
}

/// Attributes short and long, of all namespaces, and lists of access.
fn attribute(path: &Path, random: &mut Random) {
    let number = random.below(12);
    let space = ["user", "user", "trusted", "security"][random.index(4)];
    let name = format!("{space}.an attribute, number {number}");
    let length = match random.below(8) {
        0..3 => random.index(30),
        3..6 => random.index(700),
        6 => random.index(9000),
        _ => random.index(VALUE_BYTES_MAX),
    };
    match random.below(9) {
        0 | 1 => drop(lremovexattr(path, name)),
        2 => {
            let mut entry = |tag: u16, id: u32| {
                let rights = (random.below(8) as u16).to_le_bytes();
                [&tag.to_le_bytes()[..], &rights, &id.to_le_bytes()].concat()
            };
            let tags = [(1, u32::MAX), (2, 77), (4, u32::MAX), (8, 7), (16, u32::MAX)];
            let mut list = 2_u32.to_le_bytes().to_vec();
            let all = tags.into_iter().chain([(32, u32::MAX)]);
            all.for_each(|(tag, id)| list.extend(entry(tag, id)));
            let _ = lsetxattr(path, "system.posix_acl_access", &list, XattrFlags::empty());
        }
        _ => drop(lsetxattr(path, name, &bytes(random, length), XattrFlags::empty())),
    }
}

/// A copy that shares its blocks, and is written to.
fn shared(folder: &Path, random: &mut Random) -> Result<()> {
    let from = File::open(folder.join(["sparse", "space", "0"][random.index(3)]))?;
    let to =
        OpenOptions::new().create(true).truncate(false).write(true).open(folder.join("shared"))?;
    ioctl_ficlone(&to, &from)?;
    for _ in 0..random.below(6) {
        to.write_all_at(&bytes(random, 6000), random.below(1 << 20))?;
    }
    Ok(())
}
