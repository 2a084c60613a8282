//! `hindsight file` against the kernel: file systems at work on a volume, and moments in the middle
//! of it, each read by us and mounted by the kernel, which replays its journal, from a clone.
//!
//! Compared are names, kinds, modes, owners, links, times, targets, sizes and all bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hindsight_tests::command::{call, output, run, skips_without_root};
use hindsight_tests::disk::{Disk, wait_until};
use hindsight_tests::random::Random;
use serde_json::Value;

use crate::stage::{Stage, seed};

/// How long a storm lasts: `HINDSIGHT_STORM_SECONDS`, or this.
const STORM_SECONDS: u64 = 3;
/// Moments of a storm that are looked at: `HINDSIGHT_MOMENTS`, or this.
const MOMENTS: usize = 6;
const FOLDERS: u64 = 12;

/// As many as were asked for.
pub fn moments() -> Option<usize> {
    std::env::var("HINDSIGHT_MOMENTS").ok().and_then(|n| n.parse().ok())
}

pub fn storm_time() -> Duration {
    let given = std::env::var("HINDSIGHT_STORM_SECONDS").ok().and_then(|n| n.parse().ok());
    Duration::from_secs(given.unwrap_or(STORM_SECONDS))
}

#[test]
fn ext4_with_a_small_journal_at_moments_of_a_storm() -> Result<()> {
    reads_as_the_kernel("files: ext4", &["mkfs.ext4", "-q", "-F", "-J", "size=4"], "defaults")
}

#[test]
fn ext4_with_small_blocks_and_inline_data_at_moments_of_a_storm() -> Result<()> {
    let make = ["mkfs.ext4", "-q", "-F", "-b", "1024", "-O", "inline_data", "-J", "size=1"];
    reads_as_the_kernel("files: ext4, small blocks", &make, "defaults")
}

#[test]
fn ext4_without_checksums_and_data_in_its_journal_at_moments_of_a_storm() -> Result<()> {
    let make = ["mkfs.ext4", "-q", "-F", "-O", "^metadata_csum,^64bit", "-J", "size=4"];
    reads_as_the_kernel("files: ext4, data in the journal", &make, "data=journal")
}

#[test]
fn ext3_at_moments_of_a_storm() -> Result<()> {
    reads_as_the_kernel("files: ext3", &["mkfs.ext3", "-q", "-F", "-J", "size=4"], "defaults")
}

fn reads_as_the_kernel(name: &str, make: &[&str], options: &str) -> Result<()> {
    if skips_without_root(name) {
        return Ok(());
    }
    let mut random = Random::new(seed(name));
    let stage = Stage::new("vol", "256MiB")?;
    let mut disk = Disk::attach(&stage.server.uri("vol"), &stage.path("fuse"), false)?;
    call(make[0], &[&make[1..], &[disk.device()]].concat())?;
    let first = latest(&stage)?;
    disk.mount(&stage.path("mnt"), options)?;
    storm(&stage.path("mnt"), &mut random, storm_time(), &mut |_, _| Ok(()))?;
    let last = latest(&stage)?;
    disk.unmount()?;
    disk.detach()?;
    let (ours, seqs) = (stage.path("ours"), (first..last, moments().unwrap_or(MOMENTS)));
    look_at_moments(name, &stage, &ours, seqs, &mut random, &mut |stage, _, said| {
        ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let objects = compare(stage, "defaults", &|theirs| same(&ours, theirs))?;
        fs::remove_dir_all(&ours)?;
        Ok(objects)
    })
}

/// What is done with a moment that was restored, or not, and cloned as `theirs`; how
/// many objects it has.
pub type Compare<'a> = dyn FnMut(&Stage, u64, &Output) -> Result<usize> + 'a;

/// Looks at random moments of a storm; some of them must have been replayed.
pub fn look_at_moments(
    name: &str,
    stage: &Stage,
    ours: &Path,
    (seqs, count): (Range<u64>, usize),
    random: &mut Random,
    each: &mut Compare<'_>,
) -> Result<()> {
    let mut counts = BTreeMap::new();
    let (mut files, mut took) = (0, Duration::ZERO);
    for _ in 0..count {
        let seq = random.between(seqs.start, seqs.end);
        let began = Instant::now();
        let said = restore(stage, seq, ours)?;
        took += began.elapsed();
        let how = if said.status.success() {
            let said: Value = serde_json::from_slice(&said.stdout)?;
            ensure!(said["left_out"] == serde_json::json!([]), "left out: {}", said["left_out"]);
            said["state"].as_str().context("state")?.to_owned()
        } else {
            String::from_utf8_lossy(&said.stderr).lines().next().unwrap_or_default().to_owned()
        };
        *counts.entry(how).or_insert(0) += 1;
        files += each(stage, seq, &said).with_context(|| format!("{name} at seq {seq}"))?;
    }
    println!(
        "{name}: {count} moments of seqs {seqs:?}, {files} objects, {counts:?}, {:?} each",
        took / u32::try_from(count.max(1))?
    );
    ensure!(counts.get("replayed").is_some_and(|&count| count > 0), "nothing was ever replayed");
    Ok(())
}

/// Has our reader put all of a moment into a folder, and makes a clone of it, `theirs`; what the
/// reader said.
fn restore(stage: &Stage, seq: u64, ours: &Path) -> Result<Output> {
    let (of, ours) = (format!("vol@seq:{seq}:/"), ours.to_str().context("UTF-8")?);
    let said = stage.server.output(&["file", "restore", &of, ours, "--json"])?;
    stage.server.run(&["clone", &format!("vol@seq:{seq}"), "theirs"])?;
    Ok(said)
}

/// Compares with the kernel's mount of the clone, which goes; the objects.
pub fn compare(
    stage: &Stage,
    options: &str,
    how: &dyn Fn(&Path) -> Result<usize>,
) -> Result<usize> {
    let mut disk = Disk::attach(&stage.server.uri("theirs"), &stage.path("fuse"), false)?;
    disk.mount(&stage.path("theirs"), options)?;
    let result = how(&stage.path("theirs"));
    // A process that another test just started may have what we had open, until it is a program.
    wait_until("the clone is unmounted", || Ok(disk.unmount().is_ok()))?;
    disk.detach()?;
    stage.server.run(&["volume", "delete", "theirs", "--now", "--force"])?;
    result
}

/// Compares two folders; how many objects they hold.
pub fn same(ours: &Path, theirs: &Path) -> Result<usize> {
    let (found, expected) = (list(ours, &ours.join("x"))?, list(theirs, &theirs.join("x"))?);
    // A file of many names is read once.
    let mut read = BTreeSet::new();
    for (path, known) in &expected {
        let here = found.get(path).with_context(|| format!("{path} is missing"))?;
        ensure!(here == known, "{path}: {here:?} is not {known:?}");
        let (a, b) = (ours.join(path), theirs.join(path));
        let files = (a.symlink_metadata()?, b.symlink_metadata()?);
        if files.0.is_file() && read.insert((files.0.ino(), files.1.ino())) {
            ensure!(fs::read(a)? == fs::read(b)?, "{path}: other bytes");
        }
    }
    let more = found.keys().find(|path| !expected.contains_key(*path));
    ensure!(more.is_none(), "{more:?} is not there");
    Ok(expected.len())
}

/// What is compared of an object besides its bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    mode: u32,
    owner: (u32, u32),
    links: u64,
    size: u64,
    modified: (i64, i64),
    target: Option<Vec<u8>>,
}

pub fn list(top: &Path, below: &Path) -> Result<BTreeMap<String, Known>> {
    let mut found = BTreeMap::new();
    let folder = below.parent().context("a folder")?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let metadata = path.symlink_metadata()?;
        let is_directory = metadata.is_dir();
        let target = if metadata.is_symlink() {
            Some(fs::read_link(&path)?.as_os_str().as_bytes().to_vec())
        } else {
            None
        };
        let known = Known {
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            // The folders of one file system count their links and bytes as others do not.
            links: if is_directory { 0 } else { metadata.nlink() },
            size: if is_directory { 0 } else { metadata.size() },
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            target,
        };
        let name = path.strip_prefix(top)?.to_string_lossy().into_owned();
        found.insert(name, known);
        if is_directory {
            found.extend(list(top, &path.join("x"))?);
        }
    }
    Ok(found)
}

/// Folders are made, filled, removed and renamed into one another; hard and symbolic links, sparse
/// rewrites, files cut off, syncs of tiny files and of all: what makes journals wrap and revoke.
/// `more` is done between.
pub fn storm(
    top: &Path,
    random: &mut Random,
    time: Duration,
    more: &mut dyn FnMut(&Path, &mut Random) -> Result<()>,
) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < time {
        let folder = top.join(format!("folder-{}", random.below(FOLDERS)));
        let other = top.join(format!("folder-{}", random.below(FOLDERS)));
        more(&folder, random)?;
        // What is not there is as good: the next step makes it.
        match random.below(22) {
            0..6 => fill(&folder, random)?,
            6 => drop(fs::remove_dir_all(&folder)),
            7 => drop(fs::rename(&folder, other.join("inside"))),
            8 => drop(fs::rename(
                folder.join("inside"),
                top.join(format!("out-{}", random.below(9))),
            )),
            9 => drop(fs::remove_dir_all(top.join(format!("out-{}", random.below(9))))),
            10 => drop(fs::hard_link(folder.join("0"), other.join(random.below(90).to_string()))),
            11 => {
                let target = "t".repeat(random.index(120) + 1);
                drop(symlink(target, folder.join(format!("link-{}", random.below(9)))));
            }
            12..15 => rewrite(&folder.join("sparse"), random)?,
            15 => {
                if let Ok(file) = fs::OpenOptions::new().write(true).open(folder.join("sparse")) {
                    file.set_len(random.below(9 << 20))?;
                }
            }
            16 => sync(&folder.join("tiny"), random)?,
            17 => drop(fs::rename(folder.join("1"), other.join("2"))),
            18 => drop(fs::remove_file(folder.join("sparse"))),
            19 => drop(output(std::process::Command::new("mkfifo").arg(folder.join("pipe")))?),
            20 => {
                let (path, id) = (folder.join("3"), random.below(100_000) as u32);
                drop(chown(&path, Some(id), Some(id / 3)));
                drop(fs::set_permissions(&path, fs::Permissions::from_mode(id & 0o7777)));
            }
            _ => drop(call("sync", &["-f", top.to_str().context("UTF-8")?])?),
        }
    }
    Ok(())
}

pub fn bytes(random: &mut Random, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes
}

fn fill(folder: &Path, random: &mut Random) -> Result<()> {
    if fs::create_dir_all(folder).is_err() {
        return Ok(());
    }
    for number in 0..random.below(60) {
        let at_most = if random.below(4) == 0 { 40_000 } else { 200 };
        let length = random.index(at_most);
        // A full disk is not what is looked at; folders go again.
        if fs::write(folder.join(number.to_string()), bytes(random, length)).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn rewrite(path: &Path, random: &mut Random) -> Result<()> {
    let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let Ok(file) = file else { return Ok(()) };
    for _ in 0..random.below(8) {
        let length = random.index(30_000) + 1;
        let _ = file.write_all_at(&bytes(random, length), random.below(8 << 20));
    }
    Ok(())
}

fn sync(path: &Path, random: &mut Random) -> Result<()> {
    let length = random.index(100) + 1;
    if fs::write(path, bytes(random, length)).is_ok() {
        fs::File::open(path)?.sync_all()?;
    }
    Ok(())
}

pub fn latest(stage: &Stage) -> Result<u64> {
    let volume: Value = stage.server.http().get("/api/v1/volumes/vol")?;
    volume["latest"]["seq"].as_u64().context("latest.seq")
}

/// A volume with an ext4 that mke2fs makes of a folder; no root is needed.
pub fn made(stage: &Stage) -> Result<()> {
    let top = stage.path("top");
    fs::create_dir_all(top.join("etc/deep"))?;
    fs::write(top.join("etc/fstab"), "one\n")?;
    fs::write(top.join("etc/deep/big"), vec![7; 300_000])?;
    symlink("fstab", top.join("etc/link"))?;
    fs::hard_link(top.join("etc/fstab"), top.join("etc/again"))?;
    // mke2fs 1.47.0 takes whole seconds along.
    for name in ["etc/fstab", "etc/deep/big", "etc/link", "etc/deep", "etc"] {
        let path = top.join(name).display().to_string();
        call("touch", &["-h", "-d", "2026-11-21 10:00:00", &path])?;
    }
    let image = stage.text("image");
    call("mke2fs", &["-q", "-F", "-t", "ext4", "-d", &stage.text("top"), &image, "64M"])?;
    stage.server.run(&["volume", "import", "vol", &image, "--format", "raw"])?;
    Ok(())
}

#[test]
fn archives_are_what_tar_takes_apart() -> Result<()> {
    let stage = Stage::new("", "")?;
    made(&stage)?;
    let archive = fs::File::create(stage.path("a.tar"))?;
    let mut command = stage.server.command(&["file", "tar", "vol:/etc"]);
    let status = command.stdout(Stdio::from(archive)).status()?;
    ensure!(status.success(), "{status}");
    fs::create_dir(stage.path("apart"))?;
    call("tar", &["-xpf", &stage.text("a.tar"), "-C", &stage.text("apart")])?;
    ensure!(same(&stage.path("apart/etc"), &stage.path("top/etc"))? == 5);
    Ok(())
}

#[test]
fn parts_and_failures_have_their_words() -> Result<()> {
    let stage = Stage::new("", "")?;
    made(&stage)?;
    let parts: Value =
        serde_json::from_str(&stage.server.run(&["file", "list", "vol", "--json"])?)?;
    ensure!(parts[0]["kind"] == "ext4" && parts[0]["state"] == "clean", "{parts}");
    let cat = stage.server.output(&["file", "cat", "vol:/etc/fstab"])?;
    ensure!(cat.stdout == b"one\n", "{cat:?}");
    ensure!(String::from_utf8_lossy(&cat.stderr).contains("ext4, clean"), "{cat:?}");
    stage.server.run(&["volume", "create", "empty", "--size", "1MiB"])?;
    stage.server.run(&["share", "create", "home"])?;
    for (arguments, code, says) in [
        (&["cat", "vol:/etc/nothing"][..], 10, "there is no nothing"),
        (&["cat", "vol:/etc/link/x"], 1, "symbolic link, to fstab"),
        (&["cat", "vol:/etc"], 1, "is no file"),
        (&["cat", "vol:p3/etc"], 10, "there is no part p3"),
        (&["cat", "empty:/x"], 14, "no file system"),
        (&["list", "vol@seq:999999:/"], 13, "seq"),
        (&["list", "home:/"], 2, "is a share"),
        (&["cat", "nothing:/x"], 10, "nothing"),
        (&["cat", "vol/etc"], 2, "colon"),
        (&["cat", "vol"], 2, "path is lacking"),
    ] {
        let found = stage.server.output(&[&["file"], arguments].concat())?;
        let said = String::from_utf8_lossy(&found.stderr).into_owned();
        ensure!(
            found.status.code() == Some(code) && said.contains(says),
            "{arguments:?}: {found:?}"
        );
    }
    let to = stage.text("fstab");
    stage.server.run(&["file", "restore", "vol:/etc/fstab", &to])?;
    ensure!(fs::read(&to)? == b"one\n");
    let again = stage.server.output(&["file", "restore", "vol:/etc/fstab", &to])?;
    ensure!(again.status.code() == Some(1), "{again:?}");
    stage.server.run(&["file", "restore", "vol:/etc/fstab", &to, "--force"])?;
    Ok(())
}

/// Writes a file of the host into the file system, as debugfs writes.
fn write(disk: &Path, commands: &[&str]) -> Result<()> {
    for command in commands {
        let mut debugfs = std::process::Command::new("debugfs");
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        run(debugfs.env("PATH", path).args(["-w", "-R", command]).arg(disk).stdin(Stdio::null()))?;
    }
    Ok(())
}

/// A disk on which a directory has the name of a link that leads outside gets nothing through it.
#[test]
fn a_restore_goes_through_no_link() -> Result<()> {
    let stage = Stage::new("", "")?;
    let (top, outside) = (stage.path("top"), stage.path("outside"));
    fs::create_dir_all(top.join("etc/eviX"))?;
    fs::create_dir(&outside)?;
    symlink(&outside, top.join("etc/evil"))?;
    fs::write(top.join("etc/eviX/passwd"), "root\n")?;
    let image = stage.text("image");
    let features = ["-t", "ext4", "-O", "^metadata_csum"];
    let more = ["-d", &stage.text("top"), &image, "16M"];
    call("mke2fs", &[&["-q", "-F"], &features[..], &more].concat())?;
    let mut bytes = fs::read(&image)?;
    let at = bytes.windows(4).position(|four| four == b"eviX").context("a name on the disk")?;
    bytes[at + 3] = b'l';
    fs::write(&image, bytes)?;
    stage.server.run(&["volume", "import", "vol", &image, "--format", "raw"])?;
    let listed = stage.server.run(&["file", "list", "vol:/etc"])?;
    ensure!(listed == "evil\nevil\n", "{listed}");
    for force in [&[][..], &["--force"]] {
        let to = stage.text("ours");
        let restored = [&["file", "restore", "vol:/etc", &to], force].concat();
        // Which of the two stays is as good; neither was gone through.
        stage.server.output(&restored)?;
        let found = fs::read_dir(&outside)?.count();
        ensure!(found == 0, "{found} objects outside, {force:?}");
    }
    Ok(())
}

/// Versions of a file, written through the image and imported over the volume one after the other.
#[test]
fn versions_are_found_and_differences_told() -> Result<()> {
    if skips_without_root("files: versions") {
        return Ok(());
    }
    let stage = Stage::new("", "")?;
    made(&stage)?;
    let host = stage.text("host");
    let mut seqs = vec![latest(&stage)?];
    for round in 0..4 {
        fs::write(&host, format!("version {round}").repeat(1000 * (round + 1)))?;
        let disk = Disk::attach(&stage.server.uri("vol"), &stage.path("fuse"), false)?;
        let device = Path::new(disk.device()).to_owned();
        match round {
            2 => write(&device, &["rm etc/fstab"])?,
            _ => write(&device, &["rm etc/fstab", &format!("write {host} etc/fstab")])?,
        }
        disk.detach()?;
        seqs.push(latest(&stage)?);
    }
    let at = |seq: u64| format!("vol@seq:{seq}");
    for (round, &seq) in seqs.iter().enumerate().skip(1) {
        let found = stage.server.output(&["file", "cat", &format!("{}:/etc/fstab", at(seq))])?;
        match round - 1 {
            2 => ensure!(found.status.code() == Some(10), "{found:?}"),
            round => {
                let expected = format!("version {round}").repeat(1000 * (round + 1));
                ensure!(found.stdout == expected.as_bytes(), "at {seq}");
            }
        }
    }
    let since = format!("seq:{}", seqs[0]);
    let told =
        stage.server.run(&["file", "history", "vol:/etc/fstab", "--since", &since, "--json"])?;
    let told: Value = serde_json::from_str(&told)?;
    let told = told.as_array().context("a list")?;
    // The last state of each version is one that we wrote.
    for (&seq, size) in seqs.iter().zip([Some(4), Some(9000), Some(18_000), None, Some(36_000)]) {
        let at = |v: &&Value| v["seq"].as_u64() <= Some(seq) && Some(seq) <= v["last"].as_u64();
        let version =
            told.iter().find(at).with_context(|| format!("nothing at {seq}: {told:?}"))?;
        ensure!(version["size"].as_u64() == size, "at {seq}: {version}");
    }
    let found =
        stage.server.run(&["file", "find", "vol:/etc/fstab", "--since", &since, "--json"])?;
    let found: Value = serde_json::from_str(&found)?;
    let found = found.as_array().context("a list")?;
    ensure!(found.last().is_some_and(|last| last["last"].as_u64() == seqs.last().copied()));
    let differ = |a: usize, b: usize, path: &str| -> Result<Value> {
        let said =
            stage.server.run(&["file", "diff", &at(seqs[a]), &at(seqs[b]), path, "--json"])?;
        Ok(serde_json::from_str(&said)?)
    };
    let removed = differ(2, 3, "/")?;
    ensure!(removed[0]["path"] == "/etc/fstab" && removed[0]["change"] == "removed", "{removed}");
    ensure!(differ(3, 3, "/")? == serde_json::json!([]));
    let ranges = differ(1, 2, ":/etc/fstab")?;
    ensure!(ranges.as_array().is_some_and(|ranges| !ranges.is_empty()), "{ranges}");
    if removed.as_array().map(Vec::len) != Some(1) {
        bail!("more than one path: {removed}");
    }
    let none = output(&mut stage.server.command(&["file", "find", "vol:/never"]))?;
    ensure!(none.status.code() == Some(10), "{none:?}");
    Ok(())
}
