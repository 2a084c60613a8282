//! Pools on several members: one of which rots under a live file system, goes away and comes back.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hindsight_tests::client::Client;
use hindsight_tests::command::{self, skips_without_root};
use hindsight_tests::disk::Disk;
use hindsight_tests::image::Image;
use hindsight_tests::nbd::Request;
use hindsight_tests::random::Random;
use hindsight_tests::server::{self, Server};
use serde_json::Value;
use tempfile::TempDir;

use crate::stage::{folder, seed};

const BLOCK: usize = 4096;
/// What a member's label may use.
const AREA_BYTES: u64 = 1 << 20;
pub const VOLUME_BYTES: u64 = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// A server on a pool of several members, made for it.
fn on(stack: &str, folder: &TempDir) -> Result<Server> {
    let (program, pool) = (server::program()?, folder.path().join("pool"));
    let pool_text = pool.display().to_string();
    let make = ["pool", "create", "--pool", &pool_text, "--stack", stack, "--size", "256MiB"];
    command::run(std::process::Command::new(&program).args(make))?;
    Server::start(&program, &pool)
}

pub fn status(server: &Server) -> Result<Value> {
    server.http().get("/api/v1/pool")
}

/// Spoils a few bytes in every so many blocks of a member in which there is something.
fn spoil(member: &Path, random: &mut Random) -> Result<u64> {
    let file = File::options().read(true).write(true).open(member)?;
    let mut block = vec![0; BLOCK];
    let mut spoiled = 0;
    for offset in (AREA_BYTES..file.metadata()?.len()).step_by(BLOCK) {
        file.read_exact_at(&mut block, offset)?;
        if block.iter().any(|&byte| byte != 0) && random.below(3) == 0 {
            let at = random.below(BLOCK as u64 - 8);
            let mut bytes = [0; 8];
            random.fill(&mut bytes);
            file.write_all_at(&bytes, offset + at)?;
            spoiled += 1;
        }
    }
    Ok(spoiled)
}

#[test]
fn bytes_overwritten_under_a_live_file_system_are_healed_and_told() -> Result<()> {
    if skips_without_root("ext4 on a member that rots") {
        return Ok(());
    }
    let mut random = Random::new(seed("members"));
    let folder = folder()?;
    let server = on("stripe(mirror(a.img, b.img), mirror(c.img, d.img))", &folder)?;
    server.run(&["volume", "create", "vol", "--size", "128MiB"])?;
    let mut disk = Disk::attach(&server.uri("vol"), &folder.path().join("fuse"), false)?;
    command::call("mkfs.ext4", &["-q", "-F", disk.device()])?;
    let mount = folder.path().join("mnt");
    disk.mount(&mount, "noatime")?;
    let mut files = Vec::new();
    for number in 0..40 {
        let mut bytes = vec![0; usize::try_from(random.between(1, 300_000))?];
        random.fill(&mut bytes);
        let path = mount.join(format!("{number}"));
        fs::write(&path, &bytes)?;
        File::open(&path)?.sync_all()?;
        files.push((path, bytes));
    }
    let spoiled = spoil(&server.pool().join("a.img"), &mut random)?;
    ensure!(spoiled > 100, "{spoiled} blocks were spoiled");
    // So that nothing is answered from the kernel's own memory.
    disk.unmount()?;
    disk.detach()?;
    let mut disk = Disk::attach(&server.uri("vol"), &folder.path().join("fuse"), false)?;
    disk.mount(&mount, "noatime")?;
    for (path, bytes) in &files {
        ensure!(fs::read(path)? == *bytes, "{} is another", path.display());
    }
    disk.unmount()?;
    command::call("e2fsck", &["-fn", disk.device()])?;
    disk.detach()?;
    let status = status(&server)?;
    let healed = status["healed"]["recovered"].as_u64().context("a number")?;
    ensure!(healed > 10 && status["healed"]["unrecoverable"] == 0, "{}", status["healed"]);
    ensure!(status["state"] == "online", "{}", status["state"]);
    let metrics = String::from_utf8(server.http().send("GET", "/metrics", "", &[])?.body)?;
    let line = metrics
        .lines()
        .find(|line| line.starts_with("hindsight_pool_healed_total{outcome=\"recovered\"}"));
    ensure!(line.is_some_and(|line| !line.ends_with(" 0")), "{line:?}");
    let began = Instant::now();
    while !server.run(&["pool", "audit"])?.contains("written again from another copy") {
        ensure!(began.elapsed() < PATIENCE, "the audit log does not say so");
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

pub fn write_some(server: &Server, random: &mut Random, image: &mut Image) -> Result<()> {
    write_to(server, "v", random, image)
}

fn write_to(server: &Server, volume: &str, random: &mut Random, image: &mut Image) -> Result<()> {
    let mut client = server.connect(volume)?;
    for _ in 0..60 {
        let length = random.between(1, 40) * BLOCK as u64;
        let offset = random.below(VOLUME_BYTES - length);
        let mut bytes = vec![0; usize::try_from(length)?];
        random.fill(&mut bytes);
        image.write(offset, &bytes);
        client.demand(&Request::Write { offset, bytes, fua: false })?;
    }
    client.demand(&Request::Flush)?;
    Ok(())
}

fn wait_until_online(server: &Server) -> Result<()> {
    let began = Instant::now();
    while status(server)?["state"] != "online" {
        ensure!(began.elapsed() < PATIENCE, "{}", status(server)?["members"]);
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

pub fn check(server: &Server, image: &Image) -> Result<()> {
    check_of(server, "v", image)
}

pub fn check_of(server: &Server, volume: &str, image: &Image) -> Result<()> {
    let mut client = server.connect(volume)?;
    for offset in (0..VOLUME_BYTES).step_by(1 << 20) {
        let bytes = client.read(offset, 1 << 20)?;
        ensure!(bytes == image.read(offset, 1 << 20), "other bytes at {offset}");
    }
    Ok(())
}

/// Waits until every member has everything.
pub fn until_online(server: &Server) -> Result<()> {
    let began = Instant::now();
    while status(server)?["state"] != "online" {
        let members = &status(server)?["members"];
        ensure!(began.elapsed() < PATIENCE, "a member never came up: {members}");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

#[test]
fn a_member_that_was_away_gets_what_it_missed_and_can_then_be_the_only_one() -> Result<()> {
    let mut random = Random::new(seed("away"));
    let folder = folder()?;
    let mut server = on("mirror(a.img, b.img)", &folder)?;
    server.run(&["volume", "create", "v", "--size", "16MiB"])?;
    let mut image = Image::zeros(VOLUME_BYTES);
    write_some(&server, &mut random, &mut image)?;
    server.stop()?;
    let pool = server.pool().to_owned();
    let member = |name: &str| pool.join(name);
    let (a, b, away) = (member("a.img"), member("b.img"), member("away"));
    fs::rename(&b, &away)?;
    server.up()?;
    ensure!(status(&server)?["state"] == "degraded", "without b.img");
    write_some(&server, &mut random, &mut image)?;
    server.kill();
    fs::rename(&away, &b)?;
    server.up()?;
    check(&server, &image)?;
    until_online(&server)?;
    let audit = server.run(&["pool", "audit"])?;
    ensure!(audit.contains("member-out") && audit.contains("member-in"), "{audit}");
    server.stop()?;
    fs::rename(&a, &away)?;
    server.up()?;
    check(&server, &image)?;
    write_some(&server, &mut random, &mut image)?;
    server.stop()?;
    // Now a.img is the older one; and where it was used alone meanwhile, neither is taken.
    fs::rename(&b, member("b-alone"))?;
    fs::rename(&away, &a)?;
    server.up()?;
    server.stop()?;
    fs::rename(member("b-alone"), &b)?;
    let inspected = server.run(&["pool", "inspect", "--pool", &pool.display().to_string()])?;
    ensure!(inspected.contains("stack                 mirror(0, 1)"), "{inspected}");
    let error = server.up().err().context("they were used apart")?.to_string();
    ensure!(error.contains("used apart"), "{error}");
    Ok(())
}

#[test]
fn a_member_is_replaced_while_clients_write_and_the_old_one_can_be_thrown_away() -> Result<()> {
    let mut random = Random::new(seed("replaced"));
    let folder = folder()?;
    let mut server = on("mirror(a.img, b.img)", &folder)?;
    server.run(&["volume", "create", "v", "--size", "16MiB"])?;
    let mut image = Image::zeros(VOLUME_BYTES);
    write_some(&server, &mut random, &mut image)?;
    let pool = server.pool().to_owned();
    let a = pool.join("a.img").display().to_string();
    let refused = server.output(&["pool", "replace", &a, "b.img"])?;
    ensure!(!refused.status.success(), "b.img is a member");
    // All that both have is copied, at this speed for some seconds: the old one counts meanwhile.
    server.run(&["pool", "set", "--rebuild-rate", "2MiB"])?;
    server.run(&["pool", "replace", &a, "new.img"])?;
    let states = |server: &Server| -> Result<String> {
        let members = status(server)?["members"].clone();
        let members = members.as_array().context("members")?.iter();
        let states = members.map(|member| member["state"].as_str().unwrap_or("").to_owned());
        Ok(states.collect::<Vec<_>>().join(" "))
    };
    ensure!(states(&server)? == "in in copying", "{}", states(&server)?);
    ensure!(status(&server)?["state"] == "online", "{}", status(&server)?["state"]);
    write_some(&server, &mut random, &mut image)?;
    ensure!(status(&server)?["behind_bytes"] != 0, "the old one was given up at once");
    // A kill in the midst: the old one has everything, the new one waits as a spare.
    server.kill();
    server.up()?;
    check(&server, &image)?;
    ensure!(states(&server)? == "in in spare", "{}", states(&server)?);
    server.run(&["pool", "replace", &a, "new.img"])?;
    write_some(&server, &mut random, &mut image)?;
    let began = Instant::now();
    while states(&server)? != "in in" {
        ensure!(began.elapsed() < PATIENCE, "{}", status(&server)?["members"]);
        std::thread::sleep(Duration::from_millis(50));
    }
    write_some(&server, &mut random, &mut image)?;
    server.kill();
    fs::remove_file(pool.join("a.img"))?;
    fs::remove_file(pool.join("b.img"))?;
    server.up()?;
    check(&server, &image)?;
    // The labels say so at once, and where to look is written down every some seconds.
    let began = Instant::now();
    while fs::read_to_string(pool.join("pool.stack"))?.trim() != "mirror(new.img, b.img)" {
        ensure!(began.elapsed() < PATIENCE, "{:?}", fs::read_to_string(pool.join("pool.stack")));
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Damages both copies of the header that a layer keeps behind a member's label.
fn spoil_headers(member: &Path) -> Result<()> {
    let file = File::options().read(true).write(true).open(member)?;
    for at in [AREA_BYTES + 100, AREA_BYTES + (64 << 10) + 100] {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        file.write_all_at(&[byte[0] ^ 8], at)?;
    }
    Ok(())
}

#[test]
fn a_member_that_lost_its_layers_header_takes_its_own_place() -> Result<()> {
    let mut random = Random::new(seed("itself"));
    let folder = folder()?;
    let key = folder.path().join("key");
    fs::write(&key, [5; 64])?;
    let crypt = |name: &str| format!("crypt[key=file:{}]({name})", key.display());
    let stack = format!("mirror({}, {})", crypt("a.img"), crypt("b.img"));
    let mut server = on(&stack, &folder)?;
    server.run(&["volume", "create", "v", "--size", "16MiB"])?;
    let mut image = Image::zeros(VOLUME_BYTES);
    write_some(&server, &mut random, &mut image)?;
    let (a, b) = (server.pool().join("a.img"), server.pool().join("b.img"));
    let path = a.display().to_string();
    let in_use = server.output(&["pool", "replace", &path, "a.img"])?;
    let said = String::from_utf8_lossy(&in_use.stderr).into_owned();
    ensure!(said.contains("is in use"), "{said}");
    // By another name of the same file, too: where members are looked for stays as it was.
    let in_use = server.output(&["pool", "replace", &path, &path])?;
    ensure!(!in_use.status.success(), "a member that is in use took its own place");
    let text = fs::read_to_string(server.pool().join("pool.stack"))?;
    ensure!(text.trim() == stack, "{text}");
    server.stop()?;
    spoil_headers(&a)?;
    server.up()?;
    ensure!(status(&server)?["state"] == "degraded", "{}", status(&server)?);
    server.run(&["pool", "replace", &path, "a.img"])?;
    write_some(&server, &mut random, &mut image)?;
    until_online(&server)?;
    check(&server, &image)?;
    server.stop()?;
    fs::remove_file(b)?;
    server.up()?;
    check(&server, &image)
}

#[test]
fn no_member_has_the_name_of_a_file_of_the_pool_itself() -> Result<()> {
    let folder = folder()?;
    for name in ["pool.stack", "pool.stack.new", "pool.img", "nbd.sock", "./pool.stack"] {
        let stack = format!("mirror({name}, b.img)");
        let error = on(&stack, &folder).err().with_context(|| format!("{name} was taken"))?;
        ensure!(error.to_string().contains("give the member another name"), "{error}");
        ensure!(!folder.path().join("pool/b.img").exists(), "nothing is left of it");
    }
    // What is refused may be given again: disks that were there are as they were.
    fs::create_dir_all(folder.path().join("pool"))?;
    for name in ["c.img", "d.img"] {
        File::create(folder.path().join("pool").join(name))?.set_len(40 << 20)?;
    }
    let missing = "mirror(crypt[key=env:NOT_THERE](c.img), crypt[key=env:NOT_THERE](d.img))";
    ensure!(on(missing, &folder).is_err(), "there is no such key");
    let zeros = |name: &str| -> Result<bool> {
        let bytes = fs::read(folder.path().join("pool").join(name))?;
        Ok(bytes[..1 << 20].iter().all(|&byte| byte == 0))
    };
    ensure!(zeros("c.img")? && zeros("d.img")?, "something is left of it");
    let error = on("mirror(b.img, ./b.img)", &folder).err().context("one file twice")?;
    ensure!(error.to_string().contains("b.img and ./b.img are the same file"), "{error}");
    ensure!(!folder.path().join("pool/b.img").exists(), "nothing is left of it");
    Ok(())
}

/// What is cut off a member reads as an error of that member, and comes back as it is written.
#[test]
fn a_member_that_somebody_cuts_while_it_is_served_fails_alone() -> Result<()> {
    let mut random = Random::new(seed("cut"));
    for length in [0, 40 << 20] {
        let folder = folder()?;
        let mut server = on("parity(a.img, b.img, c.img)", &folder)?;
        server.run(&["volume", "create", "v", "--size", "16MiB"])?;
        let mut image = Image::zeros(VOLUME_BYTES);
        write_some(&server, &mut random, &mut image)?;
        let member = server.pool().join("a.img");
        let whole = fs::metadata(&member)?.len();
        let set_len = |length| File::options().write(true).open(&member)?.set_len(length);
        set_len(length)?;
        for _ in 0..4 {
            write_some(&server, &mut random, &mut image)?;
            check(&server, &image)?;
        }
        ensure!(status(&server)?["state"] != "refusing-writes", "{}", status(&server)?);
        if length == 0 {
            continue;
        }
        for is_clean in [false, true] {
            if is_clean {
                server.stop()?;
            } else {
                server.kill();
            }
            server.up()?;
            ensure!(status(&server)?["state"] == "degraded", "{}", status(&server)?);
            write_some(&server, &mut random, &mut image)?;
            check(&server, &image)?;
        }
        server.stop()?;
        let dir = server.pool().display().to_string();
        let there = fs::metadata(&member)?.len();
        // A write that was under way may have made it longer, and nobody reads what lies before it.
        ensure!((length..whole).contains(&there), "it has {there} bytes");
        let grow = server.output(&["pool", "grow", "--pool", &dir, "--size", "1GiB"])?;
        let said = String::from_utf8_lossy(&grow.stderr).into_owned();
        ensure!(
            !grow.status.success() && said.contains(&format!("it has {there} bytes")),
            "{said}"
        );
        ensure!(fs::metadata(&member)?.len() == there, "it was made longer");
        set_len(whole)?;
        server.up()?;
        wait_until_online(&server)?;
        server.stop()?;
        fs::remove_file(server.pool().join("b.img"))?;
        server.up()?;
        check(&server, &image)?;
    }
    Ok(())
}

#[test]
fn a_spare_takes_the_place_of_a_member_that_is_gone() -> Result<()> {
    let mut random = Random::new(seed("spare"));
    let folder = folder()?;
    let mut server = on("mirror(a.img, b.img) spare(c.img)", &folder)?;
    server.run(&["volume", "create", "v", "--size", "16MiB"])?;
    let mut image = Image::zeros(VOLUME_BYTES);
    write_some(&server, &mut random, &mut image)?;
    let pool = server.pool().to_owned();
    let refused = server.output(&["pool", "spare", "add", "a.img"])?;
    ensure!(!refused.status.success(), "a.img is a member");
    let shown = server.run(&["pool", "spare", "add", "d.img"])?;
    ensure!(shown.contains("d.img") && shown.contains("spare"), "{shown}");
    // A write buffer marks it, where there is one.
    std::thread::sleep(Duration::from_millis(500));
    for _ in 0..2 {
        server.run(&["pool", "spare", "remove", &pool.join("d.img").display().to_string()])?;
        let first = fs::read(pool.join("d.img"))?[..1 << 20].to_vec();
        ensure!(first.iter().all(|byte| *byte == 0), "it is not blank");
        server.run(&["pool", "spare", "add", "d.img"])?;
    }
    server.run(&["pool", "spare", "remove", &pool.join("d.img").display().to_string()])?;
    let stack = || fs::read_to_string(pool.join("pool.stack"));
    ensure!(stack()?.trim() == "mirror(a.img, b.img) spare(c.img)", "{}", stack()?);
    server.kill();
    fs::rename(pool.join("b.img"), pool.join("away"))?;
    server.up()?;
    write_some(&server, &mut random, &mut image)?;
    let began = Instant::now();
    let is_done = |server: &Server| -> Result<bool> {
        Ok(status(server)?["state"] == "online" && stack()?.trim() == "mirror(a.img, c.img)")
    };
    while !is_done(&server)? {
        ensure!(began.elapsed() < PATIENCE, "{}, {}", stack()?, status(&server)?["members"]);
        std::thread::sleep(Duration::from_millis(100));
    }
    let audit = server.run(&["pool", "audit"])?;
    ensure!(audit.contains("spare-added") && audit.contains("member-replaced"), "{audit}");
    server.kill();
    fs::remove_file(pool.join("a.img"))?;
    server.up()?;
    check(&server, &image)
}

#[test]
fn a_pool_with_parity_heals_loses_a_member_and_gets_another() -> Result<()> {
    for (stack, lost) in [
        ("parity(a.img, b.img, c.img)", &["b.img"][..]),
        ("parity[failures=2](a.img, b.img, c.img, d.img)", &["a.img", "d.img"][..]),
    ] {
        let mut random = Random::new(seed("parity"));
        let folder = folder()?;
        let mut server = on(stack, &folder)?;
        server.run(&["volume", "create", "v", "--size", "16MiB"])?;
        let mut image = Image::zeros(VOLUME_BYTES);
        write_some(&server, &mut random, &mut image)?;
        let pool = server.pool().to_owned();
        let spoiled = spoil(&pool.join("c.img"), &mut random)?;
        ensure!(spoiled > 100, "{spoiled} blocks were spoiled");
        check(&server, &image)?;
        server.run(&["pool", "scrub", "--wait"])?;
        ensure!(status(&server)?["healed"]["recovered"] != 0, "nothing was healed");
        write_some(&server, &mut random, &mut image)?;
        server.kill();
        for member in lost {
            fs::remove_file(pool.join(member))?;
        }
        server.up()?;
        ensure!(status(&server)?["state"] == "degraded", "without {lost:?}");
        check(&server, &image)?;
        write_some(&server, &mut random, &mut image)?;
        for member in lost {
            let path = pool.join(member).display().to_string();
            server.run(&["pool", "replace", &path, &format!("new-{member}")])?;
        }
        write_some(&server, &mut random, &mut image)?;
        let began = Instant::now();
        while status(&server)?["state"] != "online" {
            ensure!(began.elapsed() < PATIENCE, "{}", status(&server)?["members"]);
            std::thread::sleep(Duration::from_millis(100));
        }
        server.kill();
        server.up()?;
        check(&server, &image)?;
    }
    Ok(())
}

#[test]
fn a_pool_with_parity_opens_though_members_rotted_while_the_server_was_down() -> Result<()> {
    for (stack, rotten) in [
        ("parity(a.img, b.img, c.img)", &["b.img"][..]),
        ("parity[failures=2](a.img, b.img, c.img, d.img)", &["a.img", "c.img"][..]),
    ] {
        let mut random = Random::new(seed("rotten"));
        let folder = folder()?;
        let mut server = on(stack, &folder)?;
        server.run(&["volume", "create", "v", "--size", "16MiB"])?;
        let mut image = Image::zeros(VOLUME_BYTES);
        write_some(&server, &mut random, &mut image)?;
        server.stop()?;
        for member in rotten {
            // All of it, so that the catalogue is among it.
            for _ in 0..8 {
                spoil(&server.pool().join(member), &mut random)?;
            }
        }
        server.up()?;
        check(&server, &image)?;
        write_some(&server, &mut random, &mut image)?;
        let scrubbed = server.run(&["pool", "scrub", "--wait"])?;
        ensure!(scrubbed.contains(" 0 lost"), "{scrubbed}");
        server.kill();
        server.up()?;
        check(&server, &image)?;
    }
    Ok(())
}

#[test]
fn a_pool_grows_by_new_members_and_has_everything() -> Result<()> {
    let mut random = Random::new(seed("grown"));
    let folder = folder()?;
    let mut server = on("mirror(a.img, b.img)", &folder)?;
    server.run(&["volume", "create", "v", "--size", "16MiB"])?;
    server.run(&["volume", "create", "w", "--size", "16MiB"])?;
    let mut image = Image::zeros(VOLUME_BYTES);
    write_some(&server, &mut random, &mut image)?;
    let pool = server.pool().to_owned();
    let dir = pool.display().to_string();
    let grow =
        ["pool", "grow", "--pool", &dir, "--add", "mirror(c.img, d.img)", "--size", "256MiB"];
    let refused = server.output(&grow)?;
    ensure!(!refused.status.success(), "a server has it open");
    let size = |server: &Server| -> Result<u64> {
        status(server)?["size_bytes"].as_u64().context("a size")
    };
    let before = size(&server)?;
    let mut other = Image::zeros(VOLUME_BYTES);
    for _ in 0..20 {
        write_to(&server, "w", &mut random, &mut other)?;
    }
    server.stop()?;
    server.run(&grow)?;
    server.up()?;
    let grown = size(&server)?;
    ensure!(grown > before + (200 << 20), "{grown} bytes were {before}");
    check(&server, &image)?;
    for _ in 0..40 {
        write_some(&server, &mut random, &mut image)?;
    }
    let used = status(&server)?["used_bytes"].as_u64().context("used bytes")?;
    ensure!(used > before, "{used} bytes are used: nothing came to the new members");
    server.kill();
    fs::remove_file(pool.join("a.img"))?;
    fs::remove_file(pool.join("d.img"))?;
    server.up()?;
    check(&server, &image)
}

/// Writes to volume `w` until told to stop; what is there then.
pub fn write_until(server: &Server, stop: &AtomicBool) -> Result<Image> {
    let mut random = Random::new(seed("beside growth"));
    let mut image = Image::zeros(VOLUME_BYTES);
    while !stop.load(Ordering::SeqCst) {
        write_to(server, "w", &mut random, &mut image)?;
    }
    Ok(image)
}

#[test]
fn a_pool_grows_while_it_is_written_to_and_has_everything() -> Result<()> {
    let mut random = Random::new(seed("grown online"));
    let folder = folder()?;
    let mut server = on("mirror(a.img, b.img)", &folder)?;
    server.run(&["volume", "create", "v", "--size", "16MiB"])?;
    server.run(&["volume", "create", "w", "--size", "16MiB"])?;
    let pool = server.pool().to_owned();
    let size = |server: &Server| -> Result<u64> {
        status(server)?["size_bytes"].as_u64().context("a size")
    };
    let before = size(&server)?;
    let add = |server: &Server, part: &str| {
        server.output(&["pool", "grow", "--add", part, "--size", "256MiB"])
    };
    for part in ["stripe(c.img, d.img)", "mirror(c.img, b.img)", "mirror(c.img"] {
        ensure!(!add(&server, part)?.status.success(), "{part} was added");
    }
    ensure!(!pool.join("c.img").exists() && !pool.join("d.img").exists(), "what was made is there");
    ensure!(size(&server)? == before, "it is as large as it was");

    let stop = AtomicBool::new(false);
    let mut image = Image::zeros(VOLUME_BYTES);
    let written = std::thread::scope(|scope| -> Result<Image> {
        let (server, stop) = (&server, &stop);
        let writer = scope.spawn(move || write_until(server, stop));
        let mut grow = || -> Result<()> {
            for part in ["mirror(c.img, d.img)", "parity(e.img, f.img, g.img)"] {
                write_some(server, &mut random, &mut image)?;
                server.run(&["pool", "grow", "--add", part, "--size", "256MiB"])?;
                write_some(server, &mut random, &mut image)?;
            }
            Ok(())
        };
        let outcome = grow();
        stop.store(true, Ordering::SeqCst);
        let written = writer.join().expect("no panic")?;
        outcome.map(|()| written)
    })?;
    let grown = size(&server)?;
    ensure!(grown > before + (600 << 20), "{grown} bytes were {before}");
    let again = add(&server, "parity(e.img, f.img, g.img)")?;
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    ensure!(!again.status.success() && said.contains("nothing to grow by"), "{said}");
    let audit = server.run(&["pool", "audit"])?;
    ensure!(audit.contains("pool-grow") && audit.contains("mirror(c.img, d.img)"), "{audit}");
    let text = fs::read_to_string(pool.join("pool.stack"))?;
    let wanted = "concat(mirror(a.img, b.img), mirror(c.img, d.img), parity(e.img, f.img, g.img))";
    ensure!(text.trim() == wanted, "{text}");
    // So much that the new members have some of it.
    for _ in 0..30 {
        write_some(&server, &mut random, &mut image)?;
    }
    server.kill();
    server.up()?;
    ensure!(size(&server)? == grown, "{} bytes", size(&server)?);
    check(&server, &image)?;
    check_of(&server, "w", &written)?;
    server.stop()?;
    for lost in ["a.img", "d.img", "f.img"] {
        fs::remove_file(pool.join(lost))?;
    }
    server.up()?;
    ensure!(status(&server)?["state"] == "degraded", "{}", status(&server)?["state"]);
    check(&server, &image)?;
    check_of(&server, "w", &written)
}

#[test]
fn a_pool_on_one_file_grows_while_it_is_written_to_and_a_kill_takes_nothing_away() -> Result<()> {
    let mut random = Random::new(seed("longer"));
    let folder = folder()?;
    let pool = folder.path().join("pool");
    let mut server = Server::start_with(&server::program()?, &pool, &["--pool-size", "256MiB"])?;
    server.run(&["volume", "create", "v", "--size", "16MiB"])?;
    server.run(&["volume", "create", "w", "--size", "16MiB"])?;
    let size = |server: &Server| -> Result<u64> {
        status(server)?["size_bytes"].as_u64().context("a size")
    };
    ensure!(size(&server)? == 256 << 20, "{}", size(&server)?);
    let nothing = server.output(&["pool", "grow", "--size", "128MiB"])?;
    let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
    ensure!(!nothing.status.success() && said.contains("nothing to grow by"), "{said}");
    let members = server.output(&["pool", "grow", "--add", "mirror(c.img, b c)"])?;
    ensure!(!members.status.success() && !pool.join("c.img").exists(), "members were added");
    let stop = AtomicBool::new(false);
    let mut image = Image::zeros(VOLUME_BYTES);
    let written = std::thread::scope(|scope| -> Result<Image> {
        let (server, stop) = (&server, &stop);
        let writer = scope.spawn(move || write_until(server, stop));
        let mut grow = || -> Result<()> {
            for bytes in ["512MiB", "1GiB"] {
                write_some(server, &mut random, &mut image)?;
                server.run(&["pool", "grow", "--size", bytes])?;
                write_some(server, &mut random, &mut image)?;
            }
            Ok(())
        };
        let outcome = grow();
        stop.store(true, Ordering::SeqCst);
        let written = writer.join().expect("no panic")?;
        outcome.map(|()| written)
    })?;
    ensure!(size(&server)? == 1 << 30, "{}", size(&server)?);
    ensure!(fs::metadata(pool.join("pool.img"))?.len() == (1 << 30) + AREA_BYTES, "its label too");
    ensure!(server.run(&["pool", "audit"])?.contains("pool-grow"), "it is in the audit log");
    server.kill();
    server.up()?;
    ensure!(size(&server)? == 1 << 30, "{}", size(&server)?);
    check(&server, &image)?;
    check_of(&server, "w", &written)?;
    // One that somebody cut is not made long again: what was cut off would be zeros.
    server.stop()?;
    let file = pool.join("pool.img");
    File::options().write(true).open(&file)?.set_len(512 << 20)?;
    let dir = pool.display().to_string();
    let cut = server.output(&["pool", "grow", "--pool", &dir, "--size", "2GiB"])?;
    let said = String::from_utf8_lossy(&cut.stderr).into_owned();
    ensure!(!cut.status.success() && said.contains("when it became a member"), "{said}");
    ensure!(fs::metadata(&file)?.len() == 512 << 20, "it was made longer");
    Ok(())
}

#[test]
fn a_growth_that_was_not_completed_is_told_and_completed_while_the_server_runs() -> Result<()> {
    let mut random = Random::new(seed("begun"));
    let folder = folder()?;
    let mut server = on("mirror(a.img, b.img)", &folder)?;
    server.run(&["volume", "create", "v", "--size", "16MiB"])?;
    let mut image = Image::zeros(VOLUME_BYTES);
    write_some(&server, &mut random, &mut image)?;
    let pool = server.pool().to_owned();
    server.stop()?;
    // As a crash leaves it before anything is written to the new ones.
    fs::write(pool.join("pool.stack"), "concat(mirror(a.img, b.img), mirror(c.img, d.img))\n")?;
    File::create(pool.join("c.img"))?.set_len(128 << 20)?;
    File::create(pool.join("d.img"))?;
    let dir = pool.display().to_string();
    let refused = server.output(&["pool", "grow", "--pool", &dir])?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(said.contains("--add 'mirror(c.img, d.img)'"), "{said}");
    server.up()?;
    check(&server, &image)?;
    let audit = server.run(&["pool", "audit"])?;
    ensure!(audit.contains("member-ignored") && audit.contains("pool grow"), "{audit}");
    let before = status(&server)?["size_bytes"].as_u64().context("a size")?;
    server.run(&["pool", "grow", "--add", "mirror(c.img, d.img)", "--size", "128MiB"])?;
    let after = status(&server)?["size_bytes"].as_u64().context("a size")?;
    ensure!(after >= before + (120 << 20), "{after} bytes were {before}");
    write_some(&server, &mut random, &mut image)?;
    server.kill();
    server.up()?;
    check(&server, &image)
}

#[test]
fn a_growth_that_is_killed_is_completed_by_the_same_command() -> Result<()> {
    let mut random = Random::new(seed("killed growth"));
    let folder = folder()?;
    let mut server = on("mirror(a.img, b.img)", &folder)?;
    server.run(&["volume", "create", "v", "--size", "16MiB"])?;
    let mut image = Image::zeros(VOLUME_BYTES);
    write_some(&server, &mut random, &mut image)?;
    let pool = server.pool().to_owned();
    let dir = pool.display().to_string();
    let mut stack = String::from("mirror(a.img, b.img)");
    let (mut killed, mut number) = (0, 0);
    // Later and later, until one is not killed. Some are begun over what a server left open.
    for wait in (0..).step_by(2) {
        if number % 3 == 0 {
            server.kill()
        } else {
            server.stop()?
        }
        let part = format!("mirror(c{number}.img, d{number}.img)");
        let grow = ["pool", "grow", "--pool", &dir, "--add", &part, "--size", "64MiB"];
        let mut growth =
            server.command(&grow).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        std::thread::sleep(Duration::from_millis(wait));
        let is_done = growth.try_wait()?.is_some();
        growth.kill()?;
        ensure!(growth.wait()?.success() || !is_done, "{part} was refused");
        if !is_done {
            killed += 1;
            if number % 2 == 0 {
                server.up()?;
                check(&server, &image)?;
                write_some(&server, &mut random, &mut image)?;
                server.stop()?;
            }
            let again = server.output(&grow)?;
            let said = String::from_utf8_lossy(&again.stderr).into_owned();
            ensure!(again.status.success() || said.contains("nothing to grow by"), "{said}");
        }
        stack += &format!(", {part}");
        server.up()?;
        let text = fs::read_to_string(pool.join("pool.stack"))?;
        ensure!(text.trim() == format!("concat({stack})"), "{text}");
        ensure!(status(&server)?["state"] == "online", "{}", status(&server)?);
        let bytes = status(&server)?["size_bytes"].as_u64().context("a size")?;
        number += 1;
        ensure!(bytes >= (240 + 60 * number) << 20, "{bytes} bytes with {number} parts");
        check(&server, &image)?;
        write_some(&server, &mut random, &mut image)?;
        // A growth may be through before this thread is let go on: then one that is not is waited
        // for.
        if (is_done && killed > 0) || number == 14 {
            break;
        }
    }
    ensure!(killed > 0, "nothing was killed");
    Ok(())
}

#[test]
fn an_encrypted_pool_is_nothing_without_its_key() -> Result<()> {
    let mut random = Random::new(seed("crypt"));
    let folder = folder()?;
    let key = folder.path().join("key");
    let mut bytes = [0; 64];
    random.fill(&mut bytes);
    fs::write(&key, bytes)?;
    let stack = format!("crypt[key=file:{}](mirror(a.img, b.img))", key.display());
    let mut server = on(&stack, &folder)?;
    server.run(&["volume", "create", "v", "--size", "16MiB"])?;
    let mut client = server.connect("v")?;
    let plain = vec![b'#'; 1 << 20];
    client.demand(&Request::Write { offset: 0, bytes: plain.clone(), fua: true })?;
    drop(client);
    server.stop()?;
    for member in ["a.img", "b.img"] {
        let bytes = fs::read(server.pool().join(member))?;
        let shows = bytes.windows(16).step_by(16).any(|window| window.iter().all(|&b| b == b'#'));
        ensure!(!shows, "{member} has plain text");
    }
    fs::write(&key, [7; 64])?;
    let error = server.up().err().context("with another key")?.to_string();
    ensure!(error.contains("wrong key"), "{error}");
    fs::write(&key, bytes)?;
    server.up()?;
    let mut client = server.connect("v")?;
    ensure!(client.read(0, 1 << 20)? == plain, "other bytes");
    Ok(())
}
