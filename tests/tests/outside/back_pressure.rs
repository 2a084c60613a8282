//! Clients that ask for much and take nothing: the server's memory stays within what it was told,
//! and it goes on to serve others.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hindsight_tests::client::Client;
use hindsight_tests::nbd::{Nbd, Reply, Request};

use crate::stage::Stage;

const READ: u16 = 0;
const WRITE: u16 = 1;
const MIB: u64 = 1 << 20;
/// The longest request that there is.
const LONGEST: u32 = 32 << 20;
/// Clients that take nothing.
const GREEDY: usize = 12;
/// What the server is told to hold for requests that wait.
const BUFFERS_BYTES: u64 = 48 * MIB;
/// What a connection has for itself: 512 KiB to receive, at most 1 MiB to send, one buffer.
const CONNECTION_BYTES: u64 = MIB * 8 / 5;
/// What the map and all else may have taken meanwhile.
const SLACK_BYTES: u64 = 24 * MIB;

#[test]
fn clients_that_take_no_replies_do_not_fill_the_servers_memory() -> Result<()> {
    let more = ["--buffers", "48MiB", "--memory", "16MiB"];
    let stage = Stage::with("disk", "128MiB", &more)?;
    let socket = stage.server.nbd_socket();
    let mut modest = stage.server.connect("disk")?;
    for at in (0..128 * MIB).step_by(MIB as usize) {
        let bytes = vec![(at / MIB) as u8 + 1; MIB as usize];
        ensure!(matches!(
            modest.ask(&Request::Write { offset: at, bytes, fua: false })?,
            Reply::Done
        ));
    }
    let process = stage.server.process().context("it runs")?;
    let before = anonymous_bytes(process)?;
    let mut greedy = Vec::new();
    for number in 0..GREEDY {
        let mut client = attach(&socket, "disk")?;
        for request in 0..64 {
            // Every other one asks for data and takes none; the rest send all but the end of some.
            let (command, length) = match number % 2 {
                0 => (READ, if request % 2 == 0 { LONGEST } else { MIB as u32 }),
                _ => (WRITE, LONGEST),
            };
            send(&mut client, &header(command, length))?;
            if command == WRITE {
                send(&mut client, &vec![7; LONGEST as usize - 1])?;
                break;
            }
        }
        greedy.push(client);
    }
    let most = before + BUFFERS_BYTES + GREEDY as u64 * CONNECTION_BYTES + SLACK_BYTES;
    let until = Instant::now() + Duration::from_secs(2);
    let mut highest = 0;
    while Instant::now() < until {
        highest = highest.max(anonymous_bytes(process)?);
        served(&mut modest)?;
        thread::sleep(Duration::from_millis(20));
    }
    println!("anonymous memory: {} KiB before, {} KiB at most", before >> 10, highest >> 10);
    ensure!(highest <= most, "{highest} bytes of memory, {before} before; {most} may be");
    drop(greedy);
    let long = Request::Read { offset: 0, length: LONGEST };
    ensure!(matches!(modest.ask(&long)?, Reply::Bytes(bytes) if bytes.len() == LONGEST as usize));
    Ok(())
}

/// Short requests of a client beside the greedy ones: whole blocks, and parts of blocks.
fn served(modest: &mut Nbd) -> Result<()> {
    for (offset, length) in [(4096, 4096), (512, 512), (4096, 64 << 10)] {
        let bytes = vec![9; length];
        let write = Request::Write { offset, bytes: bytes.clone(), fua: false };
        modest.demand(&write)?;
        let read = modest.ask(&Request::Read { offset, length: length as u32 })?;
        ensure!(matches!(read, Reply::Bytes(found) if found == bytes), "{length} bytes are read");
    }
    Ok(())
}

/// Memory of a process that is not a file's.
fn anonymous_bytes(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib: u64 = line.context("RssAnon")?.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}

/// An export, by the shortest handshake there is; sends give up when the server does not receive.
fn attach(socket: &Path, export: &str) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.read_exact(&mut [0; 18])?;
    let length = u32::try_from(export.len())?.to_be_bytes();
    let option: [&[u8]; 5] =
        [&3_u32.to_be_bytes(), b"IHAVEOPT", &1_u32.to_be_bytes(), &length, export.as_bytes()];
    stream.write_all(&option.concat())?;
    stream.read_exact(&mut [0; 10])?;
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    Ok(stream)
}

fn header(command: u16, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(0_u16.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend([0; 16]);
    bytes.extend(length.to_be_bytes());
    bytes
}

/// Sends as much as the server receives.
fn send(client: &mut UnixStream, bytes: &[u8]) -> Result<()> {
    match client.write_all(bytes) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        sent => Ok(sent?),
    }
}
