//! `hindsight mount` against the kernel: what it shows of a moment is what the kernel shows of a
//! clone of it; and that it lets go, and refuses, as it says.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use hindsight_tests::command::{call, output, run, skips_without_root};
use hindsight_tests::disk::{Disk, wait_until};
use hindsight_tests::random::Random;

use crate::files::{compare, latest, made, moments, same, storm, storm_time};
use crate::stage::{Stage, seed};

/// Moments of a storm that are looked at: `HINDSIGHT_MOMENTS`, or this.
const MOMENTS: usize = 3;

/// Mounts, and unmounts whatever comes.
struct Mounted<'a> {
    stage: &'a Stage,
    at: String,
}

impl Mounted<'_> {
    fn new<'a>(stage: &'a Stage, of: &str, name: &str, more: &[&str]) -> Result<Mounted<'a>> {
        let at = stage.text(name);
        fs::create_dir_all(&at)?;
        stage.server.run(&[&["mount", of, &at], more].concat())?;
        Ok(Mounted { stage, at })
    }

    fn unmount(&self) -> Result<()> {
        // A process that another test just started may have what we had open, until it is a
        // program.
        wait_until("it is unmounted", || {
            Ok(self.stage.server.output(&["unmount", &self.at])?.status.success())
        })
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy", "--quiet", &self.at]).status();
    }
}

fn is_mounted(at: &str) -> Result<bool> {
    Ok(fs::read_to_string("/proc/self/mountinfo")?.contains(&format!(" {at} ")))
}

/// A few lines of Python, which has the system calls that are wanted here.
fn python(program: &str, arguments: &[&str]) -> Result<String> {
    run(Command::new("python3").args(["-c", program]).args(arguments))
}

#[test]
fn ext4_is_shown_as_the_kernel_shows_it() -> Result<()> {
    let name = "mount: ext4";
    if skips_without_root(name) {
        return Ok(());
    }
    let mut random = Random::new(seed(name));
    let stage = Stage::new("vol", "128MiB")?;
    let mut disk = Disk::attach(&stage.server.uri("vol"), &stage.path("fuse"), false)?;
    call("mkfs.ext4", &["-q", "-F", "-J", "size=4", disk.device()])?;
    let first = latest(&stage)?;
    disk.mount(&stage.path("mnt"), "defaults")?;
    storm(&stage.path("mnt"), &mut random, storm_time() / 2, &mut |_, _| Ok(()))?;
    let last = latest(&stage)?;
    disk.unmount()?;
    disk.detach()?;
    let mut objects = 0;
    for _ in 0..moments().unwrap_or(MOMENTS) {
        let of = format!("vol@seq:{}", random.between(first, last));
        let ours = Mounted::new(&stage, &of, "ours", &[])?;
        stage.server.run(&["clone", &of, "theirs"])?;
        let with = |theirs: &Path| same(&stage.path("ours"), theirs);
        objects += compare(&stage, "defaults", &with).with_context(|| of.clone())?;
        ours.unmount()?;
    }
    println!("{name}: {objects} objects between seq {first} and {last}");
    Ok(())
}

/// Paths, and sizes and times of files: FAT has neither owners nor modes.
fn fat(top: &Path) -> Result<Vec<(String, u64, i64)>> {
    let mut found = Vec::new();
    let mut open = vec![top.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let known = path.symlink_metadata()?;
            let name = path.strip_prefix(top)?.display().to_string();
            if known.is_dir() {
                found.push((name, 0, 0));
                open.push(path);
            } else {
                found.push((name, known.size(), known.mtime()));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Written by mtools, as the kernels of test machines may not know FAT.
#[test]
fn fat_is_shown_as_mtools_wrote_it() -> Result<()> {
    if skips_without_root("mount: FAT") {
        return Ok(());
    }
    let stage = Stage::new("vol", "64MiB")?;
    let image = stage.text("image");
    let mut seqs = Vec::new();
    call("mkfs.vfat", &["-F", "32", "-C", &image, "65536"])?;
    for round in 0..3_u8 {
        let top = stage.path("top").join(format!("Ordner mit {round} \u{00FC}"));
        fs::create_dir_all(&top)?;
        fs::write(top.join("SHORT.TXT"), vec![round; 100_000 * usize::from(round)])?;
        fs::write(top.join("a name that is longer than eight and three.text"), "x")?;
        let text = top.display().to_string();
        let times = format!("touch -d '2026-11-21 10:00:0{} UTC' \"$1\"/* \"$1\"", round * 2);
        call("sh", &["-c", &times, "sh", &text])?;
        let mut copy = Command::new("mcopy");
        copy.args(["-i", &image, "-s", "-m", "-Q", &text, "::/"]);
        run(copy.env("TZ", "UTC").env("LC_ALL", "C.UTF-8"))?;
        call("nbdcopy", &[&image, &stage.server.uri("vol")])?;
        seqs.push((latest(&stage)?, fat(&stage.path("top"))?));
    }
    for (seq, there) in seqs {
        let ours = Mounted::new(&stage, &format!("vol@seq:{seq}"), "ours", &[])?;
        let found = fat(&stage.path("ours"))?;
        ensure!(found == there, "{found:?} is not {there:?}");
        for (name, ..) in found.iter().filter(|(_, size, _)| *size > 0) {
            let bytes = ["ours", "top"].map(|top| fs::read(stage.path(top).join(name)));
            let [Ok(a), Ok(b)] = bytes else { anyhow::bail!("{name} cannot be read") };
            ensure!(a == b, "{name}: other bytes");
        }
        ours.unmount()?;
    }
    Ok(())
}

#[test]
fn attributes_holes_and_odd_names_are_those_of_the_disk() -> Result<()> {
    if skips_without_root("mount: attributes") {
        return Ok(());
    }
    let stage = Stage::new("", "")?;
    let top = stage.path("top");
    fs::create_dir(&top)?;
    fs::write(top.join(OsStr::from_bytes(b"\xFF\xFE")), "odd\n")?;
    fs::write(top.join("attributes"), "x")?;
    let text = top.display().to_string();
    let set = "import os,sys; os.setxattr(sys.argv[1]+'/attributes', 'user.colour', b'blue')";
    python(set, &[&text])?;
    let holes = "import sys; f=open(sys.argv[1]+'/sparse','wb'); f.seek(4<<20); \
                 f.write(b'x'*8192); f.truncate(9<<20)";
    python(holes, &[&text])?;
    let image = stage.text("image");
    call("mke2fs", &["-q", "-F", "-t", "ext4", "-d", &text, &image, "32M"])?;
    stage.server.run(&["volume", "import", "vol", &image, "--format", "raw"])?;
    let ours = Mounted::new(&stage, "vol", "ours", &[])?;
    ensure!(fs::read(stage.path("ours").join(OsStr::from_bytes(b"\xFF\xFE")))? == b"odd\n");
    let get = "import os,sys; p=sys.argv[1]+'/attributes'; print(os.listxattr(p), \
               os.getxattr(p, 'user.colour'))";
    ensure!(python(get, &[&ours.at])? == "['user.colour'] b'blue'\n");
    let seek = "import os,sys; f=os.open(sys.argv[1]+'/sparse',0); \
                print(os.lseek(f,0,os.SEEK_DATA), os.lseek(f,4<<20,os.SEEK_HOLE))";
    ensure!(python(seek, &[&ours.at])? == "4194304 4202496\n");
    let sparse = stage.path("ours/sparse").metadata()?;
    ensure!((sparse.size(), sparse.blocks()) == (9 << 20, 16), "{sparse:?}");
    ensure!(fs::read(stage.path("ours/sparse"))? == fs::read(top.join("sparse"))?);
    let wrong = fs::write(stage.path("ours/new"), "x").err().and_then(|e| e.raw_os_error());
    ensure!(wrong == Some(30), "{wrong:?} is not EROFS");
    ours.unmount()?;
    let disk = Mounted::new(&stage, "vol", "ours", &["--disk"])?;
    ensure!(fs::read(stage.path("ours/disk"))? == fs::read(&image)?, "the disk has other bytes");
    disk.unmount()
}

#[test]
fn a_mounted_moment_stays_and_a_server_that_is_gone_is_an_error() -> Result<()> {
    if skips_without_root("mount: held") {
        return Ok(());
    }
    let mut stage = Stage::new("", "")?;
    made(&stage)?;
    let seq = latest(&stage)?;
    let big = vec![7; 300_000];
    {
        let ours = Mounted::new(&stage, &format!("vol@seq:{seq}"), "ours", &[])?;
        stage.server.run(&["volume", "set", "vol", "--window", "1s", "--grace", "0s"])?;
        let uri = stage.server.uri("vol");
        call("qemu-io", &["-f", "raw", "-c", "write -P 9 0 8M", "-c", "write -P 9 8M 24M", &uri])?;
        // The next write goes after it. What is open can be resolved as long as it is.
        let name = format!("vol@seq:{}", seq + 1);
        wait_until("the moment has left the window", || {
            call("qemu-io", &["-f", "raw", "-c", "write -P 9 0 4k", &uri])?;
            Ok(stage.server.output(&["resolve", &name])?.status.code() == Some(13))
        })?;
        // Nothing of it was looked at before.
        ensure!(fs::read(stage.path("ours/etc/deep/big"))? == big, "other bytes");
        ours.unmount()?;
    }
    stage.server.run(&["volume", "set", "vol", "--window", "1d"])?;
    stage.server.run(&["volume", "import", "again", &stage.text("image"), "--format", "raw"])?;
    let at = {
        let ours = Mounted::new(&stage, "again", "ours", &[])?;
        ensure!(fs::read(stage.path("ours/etc/fstab"))? == b"one\n");
        std::mem::forget(ours);
        stage.text("ours")
    };
    stage.server.kill();
    let failed = fs::read(stage.path("ours/etc/deep/big")).err().and_then(|e| e.raw_os_error());
    ensure!(failed == Some(5), "{failed:?} is not EIO");
    run(Command::new(hindsight_tests::server::program()?).args(["unmount", &at]))?;
    ensure!(!is_mounted(&at)?);
    Ok(())
}

#[test]
fn mounts_end_by_signals_and_refuse_in_words() -> Result<()> {
    if skips_without_root("mount: ends") {
        return Ok(());
    }
    let stage = Stage::new("", "")?;
    made(&stage)?;
    let at = stage.text("ours");
    fs::create_dir(&at)?;
    let mut child =
        stage.server.command(&["mount", "vol", &at, "--foreground"]).spawn().context("mount")?;
    wait_until("it is mounted", || is_mounted(&at))?;
    ensure!(fs::read(stage.path("ours/etc/fstab"))? == b"one\n");
    call("kill", &["-TERM", &child.id().to_string()])?;
    ensure!(child.wait()?.success());
    ensure!(!is_mounted(&at)?);
    // One that is killed leaves a mount behind that `unmount` takes away.
    let mut child =
        stage.server.command(&["mount", "vol", &at, "--foreground"]).spawn().context("mount")?;
    wait_until("it is mounted", || is_mounted(&at))?;
    child.kill()?;
    child.wait()?;
    stage.server.run(&["unmount", &at])?;
    stage.server.run(&["volume", "create", "empty", "--size", "1MiB"])?;
    stage.server.run(&["share", "create", "home"])?;
    let held = Mounted::new(&stage, "vol", "ours", &[])?;
    let (other, file) = (stage.text("other"), stage.text("image"));
    fs::create_dir(&other)?;
    for (arguments, code, says) in [
        (&["mount", "vol", &at][..], 11, "is mounted"),
        (&["mount", "vol", &file], 2, "no directory"),
        (&["mount", "vol", "/nowhere/at/all"], 1, "/nowhere"),
        (&["mount", "nothing", &other], 10, "nothing"),
        (&["mount", "empty", &other], 14, "mount --disk"),
        (&["mount", "home", &other], 2, "is a share"),
        (&["mount", "vol@seq:999999", &other], 13, "seq"),
        (&["mount", "vol", &other, "--part", "p3"], 10, "p3"),
        (&["mount", "vol", &other, "--disk", "--part", "p1"], 2, "--part"),
        (&["unmount", &other], 10, "no mount"),
    ] {
        let found = stage.server.output(arguments)?;
        let said = String::from_utf8_lossy(&found.stderr).into_owned();
        let is_right = found.status.code() == Some(code) && said.contains(says);
        ensure!(is_right, "{arguments:?}: {found:?}");
        ensure!(!is_mounted(&other)?, "{arguments:?}");
    }
    let open = fs::File::open(stage.path("ours/etc/deep/big"))?;
    let busy = output(&mut stage.server.command(&["unmount", &at]))?;
    ensure!(busy.status.code() == Some(11), "{busy:?}");
    drop(open);
    held.unmount()
}
