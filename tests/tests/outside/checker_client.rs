//! The checker's own clients, NBD and iSCSI, against servers of other people, so that they are
//! right before they judge ours.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use hindsight_tests::client::Client;
use hindsight_tests::command::skips_without_root;
use hindsight_tests::disk::wait_until;
use hindsight_tests::iscsi::Iscsi;
use hindsight_tests::nbd::{EINVAL, EPERM, Nbd, Reply, Request};
use hindsight_tests::random::Random;
use hindsight_tests::tgt::Tgt;

use crate::stage;

struct Peer(Child);

impl Peer {
    fn start(command: &mut Command, socket: &Path) -> Result<Peer> {
        let child = command.stdin(Stdio::null()).spawn().with_context(|| format!("{command:?}"))?;
        let peer = Peer(child);
        // The socket is there before anybody listens on it.
        wait_until("the peer listens", || Ok(UnixStream::connect(socket).is_ok()))?;
        Ok(peer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Random writes, flushes and reads, 20 in flight, zeroes too where `zeroes`, compared with a copy
/// in memory, which is returned.
fn exercise(link: &mut dyn Client, zeroes: bool) -> Result<Vec<u8>> {
    ensure!(link.size() == 8 << 20 && !link.is_read_only(), "{} bytes", link.size());
    let unit = link.unit();
    let mut random = Random::new(7);
    let mut copy = link.read(0, 8 << 20)?;
    for _ in 0..20 {
        for slot in 0..20 {
            let offset = (slot * 400_000 + random.below(1000)) / unit * unit;
            let length = random.between(1, 300_000).next_multiple_of(unit);
            let range = usize::try_from(offset)?..usize::try_from(offset + length)?;
            if zeroes && random.chance(20) {
                copy[range].fill(0);
                let length = u32::try_from(length)?;
                link.send(&Request::Zero { offset, length, no_hole: false, fast: false })?;
            } else {
                random.fill(&mut copy[range.clone()]);
                let bytes = copy[range].to_vec();
                link.send(&Request::Write { offset, bytes, fua: slot == 3 })?;
            }
        }
        for _ in 0..20 {
            let completion = link.wait()?;
            ensure!(matches!(completion.reply, Reply::Done), "{completion:?}");
        }
        link.demand(&Request::Flush)?;
    }
    ensure!(link.read(0, 8 << 20)? == copy, "other bytes than were written");
    Ok(copy)
}

fn exercise_nbd(socket: &Path, export: &str) -> Result<()> {
    let mut link = Nbd::connect(socket, export)?;
    let copy = exercise(&mut link, true)?;
    ensure!(link.has_status(), "no base:allocation");
    let mut at = 0;
    for run in link.status()? {
        let end = at + run.length as usize;
        ensure!(run.flags & 2 == 0 || copy[at..end].iter().all(|byte| *byte == 0), "a false zero");
        at = end;
    }
    ensure!(at == 8 << 20, "a status of {at} bytes");
    link.disconnect()
}

#[test]
fn the_client_agrees_with_nbdkit() -> Result<()> {
    let folder = stage::folder()?;
    let socket = folder.path().join("s");
    let mut command = Command::new("nbdkit");
    command.arg("--foreground").arg("-U").arg(&socket).args(["memory", "8M"]);
    let _peer = Peer::start(&mut command, &socket)?;
    exercise_nbd(&socket, "")
}

#[test]
fn the_client_agrees_with_qemu_nbd() -> Result<()> {
    let folder = stage::folder()?;
    let (socket, image) = (folder.path().join("s"), folder.path().join("image"));
    std::fs::File::create(&image)?.set_len(8 << 20)?;
    let mut command = Command::new("qemu-nbd");
    command.args(["--persistent", "--format=raw", "--export-name=disk", "--socket"]).arg(&socket);
    let _peer = Peer::start(command.arg(&image), &socket)?;
    ensure!(hindsight_tests::nbd::list(&socket)? == ["disk"]);
    exercise_nbd(&socket, "disk")
}

#[test]
fn the_client_tells_refusals_from_failures() -> Result<()> {
    let folder = stage::folder()?;
    let socket = folder.path().join("s");
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--readonly", "-U"]).arg(&socket).args(["memory", "8M"]);
    let _peer = Peer::start(&mut command, &socket)?;
    let mut link = Nbd::connect(&socket, "")?;
    let reply = link.ask(&Request::Write { offset: 0, bytes: vec![1], fua: false })?;
    ensure!(link.is_read_only() && matches!(reply, Reply::Error(EPERM)), "{reply:?}");
    Ok(())
}

fn exercise_iscsi(uri: &str, has_digests: bool) -> Result<()> {
    let mut link = Iscsi::connect(uri, has_digests)?;
    // tgt wants a block of data with WRITE SAME.
    exercise(&mut link, false)?;
    let beyond = link.ask(&Request::Read { offset: 8 << 20, length: 512 })?;
    ensure!(matches!(beyond, Reply::Error(EINVAL)), "{beyond:?}");
    link.log_out()
}

#[test]
fn the_initiator_agrees_with_tgt() -> Result<()> {
    if skips_without_root("the_initiator_agrees_with_tgt") {
        return Ok(());
    }
    let folder = stage::folder()?;
    let disk = folder.path().join("disk");
    std::fs::File::create(&disk)?.set_len(8 << 20)?;
    let tgt = Tgt::start(&disk)?;
    exercise_iscsi(tgt.uri(), false)?;
    tgt.set_digests()?;
    exercise_iscsi(tgt.uri(), true)
}
