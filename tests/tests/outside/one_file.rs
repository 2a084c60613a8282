//! Pools on one file, as a server makes them: they become mirrors while they are used.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hindsight_tests::image::Image;
use hindsight_tests::random::Random;
use hindsight_tests::server::{self, Server};
use tempfile::TempDir;

use crate::members::{
    VOLUME_BYTES, check, check_of, status, until_online, write_some, write_until,
};
use crate::stage::{folder, seed};

const MIB: u64 = 1 << 20;

/// A server on a pool of one file, with the volumes `v` and `w`.
fn on_one_file(folder: &TempDir) -> Result<Server> {
    let pool = folder.path().join("pool");
    let server = Server::start_with(&server::program()?, &pool, &["--pool-size", "256MiB"])?;
    server.run(&["volume", "create", "v", "--size", "16MiB"])?;
    server.run(&["volume", "create", "w", "--size", "16MiB"])?;
    Ok(server)
}

fn refusal(server: &Server, arguments: &[&str]) -> Result<String> {
    let output = server.output(arguments)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success(), "{arguments:?} was not refused");
    Ok(said)
}

fn member(server: &Server, name: &str) -> PathBuf {
    server.pool().join(name)
}

#[test]
fn a_pool_on_one_file_becomes_a_mirror_beside_a_writer_and_the_file_can_be_lost() -> Result<()> {
    let mut random = Random::new(seed("attach"));
    let folder = folder()?;
    let mut server = on_one_file(&folder)?;
    let mut image = Image::zeros(VOLUME_BYTES);
    write_some(&server, &mut random, &mut image)?;
    let first = member(&server, "pool.img").display().to_string();
    let stop = AtomicBool::new(false);
    let written = std::thread::scope(|scope| -> Result<Image> {
        let (server, stop) = (&server, &stop);
        let writer = scope.spawn(move || write_until(server, stop));
        let mut attach = || -> Result<()> {
            server.run(&["pool", "grow", "--size", "320MiB"])?;
            server.run(&["pool", "attach", "b.img", "--beside", &first])?;
            write_some(server, &mut random, &mut image)?;
            until_online(server)?;
            // A side more of the mirror that it is now.
            server.run(&["pool", "attach", "c.img"])?;
            write_some(server, &mut random, &mut image)?;
            until_online(server)
        };
        let outcome = attach();
        stop.store(true, Ordering::SeqCst);
        let written = writer.join().expect("no panic")?;
        outcome.map(|()| written)
    })?;
    let audit = server.run(&["pool", "audit"])?;
    ensure!(audit.matches("member-attached").count() == 2, "{audit}");
    ensure!(audit.matches("member-in").count() == 2, "{audit}");
    let metrics = String::from_utf8(server.http().send("GET", "/metrics", "", &[])?.body)?;
    ensure!(metrics.contains("hindsight_pool_member_in{member="), "{metrics}");
    let text = fs::read_to_string(member(&server, "pool.stack"))?;
    ensure!(text.trim() == "mirror(pool.img, b.img, c.img)", "{text}");
    server.kill();
    server.up()?;
    check(&server, &image)?;
    check_of(&server, "w", &written)?;
    // Each of the three has everything.
    for lost in ["pool.img", "b.img"] {
        until_online(&server)?;
        server.stop()?;
        fs::rename(member(&server, lost), folder.path().join(lost))?;
        server.up()?;
        ensure!(status(&server)?["state"] == "degraded", "{}", status(&server)?["state"]);
        check(&server, &image)?;
        check_of(&server, "w", &written)?;
        if lost == "b.img" {
            break;
        }
        write_some(&server, &mut random, &mut image)?;
        server.stop()?;
        fs::rename(folder.path().join(lost), member(&server, lost))?;
        server.up()?;
    }
    lose_and_grow(server, &mut random, (&mut image, &written), &first)
}

/// Members of a pool that was attached are lost for good, and it grows.
fn lose_and_grow(
    mut server: Server,
    random: &mut Random,
    (image, written): (&mut Image, &Image),
    first: &str,
) -> Result<()> {
    // The file of a pool takes its own place where it is lost for good.
    server.stop()?;
    fs::remove_file(member(&server, "pool.img"))?;
    server.up()?;
    check(&server, image)?;
    server.run(&["pool", "replace", first, "pool.img"])?;
    let b = member(&server, "b.img").display().to_string();
    server.run(&["pool", "replace", &b, "d.img"])?;
    until_online(&server)?;
    server.stop()?;
    // What an attached pool grows by.
    let dir = server.pool().display().to_string();
    server.run(&["pool", "grow", "--pool", &dir, "--size", "513MiB"])?;
    server.up()?;
    ensure!(status(&server)?["size_bytes"] == 512 * MIB, "{}", status(&server)?["size_bytes"]);
    server.run(&["pool", "grow", "--add", "mirror(e.img, f.img)", "--size", "65MiB"])?;
    write_some(&server, random, image)?;
    let said = refusal(&server, &["pool", "attach", "g.img"])?;
    ensure!(said.contains("gets another side"), "{said}");
    ensure!(!member(&server, "g.img").exists(), "what was made for it is there");
    server.stop()?;
    fs::remove_file(member(&server, "c.img"))?;
    fs::remove_file(member(&server, "d.img"))?;
    server.up()?;
    check(&server, image)?;
    check_of(&server, "w", written)
}

#[test]
fn what_cannot_be_attached_is_refused_and_leaves_nothing() -> Result<()> {
    let mut random = Random::new(seed("not attached"));
    let folder = folder()?;
    let mut server = on_one_file(&folder)?;
    let mut image = Image::zeros(VOLUME_BYTES);
    write_some(&server, &mut random, &mut image)?;
    File::create(member(&server, "full.img"))?.set_len(512 * MIB)?;
    File::options().write(true).open(member(&server, "full.img"))?.write_all_at(b"x", 7000)?;
    File::create(member(&server, "short.img"))?.set_len(256 * MIB)?;
    let there = member(&server, "pool.img").display().to_string();
    for (what, words) in [
        (&["full.img"][..], "is not blank"),
        (&["short.img"], "bytes"),
        (&["pool.img"], "is there already"),
        (&[&there], "is there already"),
        (&["token"], "give the member another name"),
        (&["new.img", "--beside", "/nowhere"], "has no member /nowhere"),
        (&["a b.img"], "expected"),
    ] {
        let said = refusal(&server, &[&["pool", "attach"], what].concat())?;
        ensure!(said.contains(words), "{what:?}: {said}");
        ensure!(!member(&server, "pool.stack").exists(), "{what:?} left where to look");
    }
    ensure!(!member(&server, "new.img").exists(), "what was made for it is there");
    ensure!(status(&server)?["state"] == "online", "{}", status(&server)?);
    server.run(&["pool", "set", "--rebuild-rate", "1MiB"])?;
    server.run(&["pool", "attach", "new.img"])?;
    let said = refusal(&server, &["pool", "attach", "other.img"])?;
    ensure!(said.contains("not up to date") && !member(&server, "other.img").exists(), "{said}");
    let text = fs::read_to_string(member(&server, "pool.stack"))?;
    ensure!(text.trim() == "mirror(pool.img, new.img)", "{text}");
    check(&server, &image)?;
    server.stop()?;
    // A pool without a label is what it was, wherever it lies, and stays so.
    let (program, bare) = (server::program()?, folder.path().join("bare"));
    let file = folder.path().join("file.img");
    File::create(&file)?.set_len(256 * MIB)?;
    let device = ["--device", &file.display().to_string(), "--create"];
    let mut bare = Server::start_with(&program, &bare, &device)?;
    bare.run(&["volume", "create", "v", "--size", "16MiB"])?;
    let mut image = Image::zeros(VOLUME_BYTES);
    write_some(&bare, &mut random, &mut image)?;
    let said = refusal(&bare, &["pool", "attach", "new.img"])?;
    ensure!(said.contains("without a label") && said.contains("hint:"), "{said}");
    bare.stop()?;
    let old = folder.path().join("old");
    fs::create_dir(&old)?;
    fs::rename(&file, old.join("pool.img"))?;
    let old = Server::start(&program, &old)?;
    check(&old, &image)?;
    ensure!(status(&old)?["members"].as_array().is_some_and(Vec::is_empty), "it has members");
    old.run(&["pool", "grow", "--size", "512MiB"])?;
    ensure!(fs::metadata(old.pool().join("pool.img"))?.len() == 512 * MIB, "as long as it is told");
    let said = refusal(&old, &["pool", "attach", "new.img"])?;
    ensure!(said.contains("without a label") && !old.pool().join("pool.stack").exists(), "{said}");
    Ok(())
}

#[test]
fn an_attachment_that_is_killed_is_completed_by_the_same_command() -> Result<()> {
    let mut random = Random::new(seed("killed attachment"));
    let folder = folder()?;
    let mut server = on_one_file(&folder)?;
    let mut image = Image::zeros(VOLUME_BYTES);
    let (mut killed, mut completed) = (0, 0);
    // Later and later, with a new file each time it became a side.
    for wait in (0..).step_by(3) {
        write_some(&server, &mut random, &mut image)?;
        let name = format!("n{completed}.img");
        let before = status(&server)?["members"].as_array().context("members")?.len();
        let attach = ["pool", "attach", &name];
        let mut client =
            server.command(&attach).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        std::thread::sleep(Duration::from_millis(wait));
        let is_done = client.try_wait()?.is_some();
        server.kill();
        let is_attached = client.wait()?.success();
        server.up()?;
        check(&server, &image)?;
        let now = status(&server)?["members"].as_array().context("members")?.len();
        ensure!(now == before + 1 || now == before && !is_attached, "{now} of {before}");
        killed += usize::from(!is_done);
        if now == before {
            write_some(&server, &mut random, &mut image)?;
            server.run(&attach)?;
        }
        completed += 1;
        until_online(&server)?;
        check(&server, &image)?;
        if (is_done && killed > 0) || completed == 12 {
            break;
        }
    }
    ensure!(killed > 0, "nothing was killed");
    // The last has everything by itself.
    server.stop()?;
    for number in 0..completed - 1 {
        fs::remove_file(member(&server, &format!("n{number}.img")))?;
    }
    fs::remove_file(member(&server, "pool.img"))?;
    server.up()?;
    check(&server, &image)
}

#[test]
fn an_attachment_that_was_begun_is_seen_through_from_each_of_its_steps() -> Result<()> {
    let mut random = Random::new(seed("begun attachment"));
    for step in ["made", "empty", "named", "named and cut short", "unfinished name"] {
        let folder = folder()?;
        let mut server = on_one_file(&folder)?;
        let mut image = Image::zeros(VOLUME_BYTES);
        write_some(&server, &mut random, &mut image)?;
        server.kill();
        let new = File::create(member(&server, "new.img"))?;
        if step != "empty" {
            new.set_len(257 * MIB)?;
        }
        match step {
            "made" | "empty" => {}
            "unfinished name" => fs::write(member(&server, "pool.stack.new"), "mirror(po")?,
            _ => fs::write(member(&server, "pool.stack"), "mirror(pool.img, new.img)\n")?,
        }
        if step == "named and cut short" {
            fs::remove_file(member(&server, "new.img"))?;
        }
        server.up()?;
        check(&server, &image)?;
        ensure!(status(&server)?["state"] == "online", "{step}: {}", status(&server)?);
        // Other changes do not take what was begun for a member.
        let spare = refusal(&server, &["pool", "spare", "add", "spare.img"])?;
        ensure!(spare.contains("can be replaced by itself"), "{step}: {spare}");
        server.run(&["pool", "attach", "new.img"])?;
        until_online(&server)?;
        server.stop()?;
        fs::remove_file(member(&server, "pool.img"))?;
        server.up()?;
        check(&server, &image).context(step)?;
    }
    Ok(())
}

#[test]
fn no_stale_side_is_ever_served() -> Result<()> {
    let mut random = Random::new(seed("stale side"));
    let folder = folder()?;
    let mut server = on_one_file(&folder)?;
    let mut image = Image::zeros(VOLUME_BYTES);
    write_some(&server, &mut random, &mut image)?;
    server.run(&["pool", "set", "--rebuild-rate", "1MiB"])?;
    server.run(&["pool", "attach", "new.img"])?;
    ensure!(status(&server)?["behind_bytes"] != 0, "it is behind");
    server.kill();
    let (old, new, stack) =
        (member(&server, "pool.img"), member(&server, "new.img"), member(&server, "pool.stack"));
    let away = folder.path().join("away");
    // Without what has everything it does not start.
    fs::rename(&old, &away)?;
    let error = server.up().err().context("of a side that has not everything")?.to_string();
    ensure!(error.contains("pool.img is missing") && error.contains("not up to date"), "{error}");
    fs::rename(&away, &old)?;
    // A side that is not there is out, and comes back.
    fs::rename(&new, &away)?;
    server.up()?;
    ensure!(status(&server)?["state"] == "degraded", "{}", status(&server)?["state"]);
    check(&server, &image)?;
    write_some(&server, &mut random, &mut image)?;
    server.stop()?;
    fs::rename(&away, &new)?;
    server.up()?;
    until_online(&server)?;
    check(&server, &image)?;
    server.stop()?;
    // Of the two the new one goes on alone, and the old one is what is behind.
    fs::rename(&old, &away)?;
    server.up()?;
    write_some(&server, &mut random, &mut image)?;
    server.stop()?;
    fs::rename(&away, &old)?;
    let named = fs::read_to_string(&stack)?;
    fs::remove_file(&stack)?;
    let error = server.up().err().context("without pool.stack")?.to_string();
    ensure!(error.contains("new.img)") && error.contains("pool.stack"), "{error}");
    fs::write(&stack, "pool.img\n")?;
    let error = server.up().err().context("with an older pool.stack")?.to_string();
    ensure!(error.contains("new.img may have what"), "{error}");
    let output = server.output(&["pool", "rebuild", "--pool", &old.display().to_string()])?;
    ensure!(!output.status.success(), "the map of a stale side was built again");
    fs::write(&stack, &named)?;
    server.up()?;
    until_online(&server)?;
    check(&server, &image)?;
    server.stop()?;
    fs::remove_file(&new)?;
    server.up()?;
    check(&server, &image)
}

#[test]
fn the_one_file_is_replaced_rebuilt_and_inspected_as_any_member() -> Result<()> {
    let mut random = Random::new(seed("one file"));
    let folder = folder()?;
    let mut server = on_one_file(&folder)?;
    let mut image = Image::zeros(VOLUME_BYTES);
    write_some(&server, &mut random, &mut image)?;
    let first = member(&server, "pool.img");
    ensure!(fs::metadata(&first)?.len() == 257 * MIB, "the pool, and its label");
    let busy = refusal(&server, &["pool", "grow", "--pool", &first.display().to_string()])?;
    ensure!(busy.contains("another server has"), "{busy}");
    server.stop()?;
    for path in [server.pool().display().to_string(), first.display().to_string()] {
        let text = server.run(&["pool", "inspect", "--pool", &path])?;
        ensure!(text.contains("array_id") && text.contains("pool_id"), "{text}");
        server.run(&["pool", "rebuild", "--pool", &path])?;
        ensure!(!member(&server, "pool.stack").exists(), "nothing else is named");
    }
    server.run(&["pool", "grow", "--pool", &first.display().to_string(), "--size", "288MiB"])?;
    ensure!(fs::metadata(&first)?.len() == 289 * MIB, "the pool, and its label");
    server.up()?;
    ensure!(status(&server)?["size_bytes"] == 288 * MIB, "{}", status(&server)?["size_bytes"]);
    check(&server, &image)?;
    server.run(&["pool", "replace", &first.display().to_string(), "next.img"])?;
    write_some(&server, &mut random, &mut image)?;
    let paths = |server: &Server| Ok::<_, anyhow::Error>(status(server)?["members"].to_string());
    while paths(&server)?.contains("pool.img") {
        std::thread::sleep(Duration::from_millis(50));
    }
    server.kill();
    server.up()?;
    check(&server, &image)?;
    // The pool may be moved, and be where it is told.
    server.stop()?;
    fs::remove_file(&first)?;
    let other = folder.path().join("other");
    fs::rename(server.pool(), &other)?;
    let server = Server::start(&server::program()?, &other)?;
    check(&server, &image)
}
