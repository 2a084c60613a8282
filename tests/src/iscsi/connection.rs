//! A session of one connection: login, commands, and a thread each that sends and that receives.

use std::collections::HashMap;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail, ensure};

use super::answers::Answers;
use super::commands::{BLOCK_BYTES, Command};
use super::pdu::{
    COMMAND, DATA_BYTES_MAX, Digests, FINAL, IMMEDIATE, LOGIN, LOGIN_RESPONSE, LOGOUT, Pdu,
};
use crate::client::{Client, Completions};
use crate::nbd::{PATIENCE, Reply, Request};

/// Makes the names of initiators differ, as those of machines do.
static INITIATORS: AtomicU64 = AtomicU64::new(0);

/// What was agreed at the login.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    pub digests: Digests,
    /// Longest data of a PDU that the target takes, bytes.
    pub segment_max: usize,
    /// Longest data that go with a command, bytes.
    pub first_burst: usize,
}

/// A command that has not ended.
#[derive(Debug)]
pub(super) struct InFlight {
    pub command: Command,
    /// What it has read so far: bytes come in order.
    pub read: Vec<u8>,
}

/// What both threads and the caller know.
#[derive(Debug)]
pub(super) struct State {
    pub cmd_sn: u32,
    pub max_cmd_sn: u32,
    pub exp_stat_sn: u32,
    pub in_flight: HashMap<u32, InFlight>,
    pub has_ended: bool,
}

/// A session with one unit of a target.
pub(super) struct Session {
    pub agreed: Agreed,
    unit: u8,
    pub state: Mutex<State>,
    /// The window has grown.
    pub grown: Condvar,
    out: Mutex<Sender<Vec<u8>>>,
}

impl Session {
    /// Sends a PDU in its turn.
    pub fn put(&self, pdu: Pdu) {
        // The thread that sends has ended with the connection, which others tell of.
        let _ = self.out.lock().expect("no holder panics").send(pdu.bytes(self.agreed.digests));
    }

    /// Sends a command under a tag.
    pub fn begin(&self, state: &mut State, tag: u32, command: Command) {
        let (reads, writes) = (command.reads > 0, !command.data.is_empty());
        let flags = FINAL | u8::from(reads) << 6 | u8::from(writes) << 5 | 1;
        let mut pdu = Pdu::new(COMMAND, flags, tag);
        let expected = u32::try_from(command.data.len()).expect("commands are short");
        pdu.header[9] = self.unit;
        pdu.set(20, expected.max(command.reads));
        pdu.set(24, state.cmd_sn);
        pdu.set(28, state.exp_stat_sn);
        pdu.header[32..].copy_from_slice(&command.cdb);
        let immediate = self.agreed.first_burst.min(self.agreed.segment_max);
        pdu.data = command.data[..command.data.len().min(immediate)].to_vec();
        state.cmd_sn = state.cmd_sn.wrapping_add(1);
        state.in_flight.insert(tag, InFlight { command, read: Vec::new() });
        self.put(pdu);
    }
}

/// A connection to a unit.
pub struct Iscsi {
    session: Arc<Session>,
    stream: TcpStream,
    completions: Completions,
    threads: Vec<JoinHandle<()>>,
    next_tag: u32,
    size: u64,
    is_read_only: bool,
}

impl Iscsi {
    /// Logs in to `iscsi://ADDRESS:PORT/TARGET/UNIT`, with digests or without, as an initiator that
    /// nobody else is.
    pub fn connect(uri: &str, has_digests: bool) -> Result<Iscsi> {
        let number = u32::try_from(INITIATORS.fetch_add(1, Ordering::Relaxed))?;
        Iscsi::connect_as(number, uri, has_digests)
    }

    /// The same as the initiator of a number.
    pub fn connect_as(number: u32, uri: &str, has_digests: bool) -> Result<Iscsi> {
        let rest = uri.strip_prefix("iscsi://").with_context(|| format!("{uri}: no address"))?;
        let (address, rest) = rest.split_once('/').context("a target")?;
        let (target, unit) = rest.rsplit_once('/').context("a unit")?;
        let unit = unit.parse().with_context(|| format!("{uri}: the number of a unit"))?;
        let mut stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let (agreed, state) = log_in(&mut stream, number, target, has_digests)
            .with_context(|| format!("log in to {target}"))?;
        stream.set_read_timeout(None)?;
        let (out, sent) = mpsc::channel::<Vec<u8>>();
        let state = Mutex::new(state);
        let session =
            Arc::new(Session { agreed, unit, state, grown: Condvar::new(), out: Mutex::new(out) });
        let (done, completions) = mpsc::channel();
        let (mut to, from) = (stream.try_clone()?, stream.try_clone()?);
        let answers = Answers::new(from, Arc::clone(&session), done);
        let threads = vec![
            thread::spawn(move || {
                for bytes in sent {
                    if to.write_all(&bytes).is_err() {
                        // The thread that receives tells of it.
                        return;
                    }
                }
            }),
            thread::spawn(move || answers.run()),
        ];
        let (size, is_read_only) = (0, false);
        let completions = Completions(completions);
        let next_tag = 1;
        let mut made =
            Iscsi { session, stream, completions, threads, next_tag, size, is_read_only };
        made.look()?;
        Ok(made)
    }

    /// Asks what the unit is.
    fn look(&mut self) -> Result<()> {
        self.do_now(Command::test_unit_ready())?;
        let capacity = self.do_now(Command::read_capacity())?;
        ensure!(capacity.len() == 32, "a capacity of {} bytes", capacity.len());
        let last = u64::from_be_bytes(capacity[..8].try_into()?);
        let block = u32::from_be_bytes(capacity[8..12].try_into()?);
        self.size = (last + 1) * u64::from(block);
        let mode = self.do_now(Command::mode_sense())?;
        ensure!(mode.len() >= 4, "mode parameters of {} bytes", mode.len());
        self.is_read_only = mode[2] & 0x80 != 0;
        Ok(())
    }

    /// Registers under a key, to be kept over restarts of the target (APTPL).
    pub fn register(&mut self, key: u64) -> Result<()> {
        self.do_now(Command::reserve_out(0, 0, key)).map(drop)
    }

    /// Reserves the unit under the key of its registration: others may only read.
    pub fn reserve(&mut self, key: u64) -> Result<()> {
        self.do_now(Command::reserve_out(1, key, 0)).map(drop)
    }

    fn do_now(&mut self, command: Command) -> Result<Vec<u8>> {
        let tag = self.begin(command)?;
        let completion = self.wait()?;
        ensure!(completion.cookie == u64::from(tag), "an answer to another command");
        match completion.reply {
            Reply::Bytes(bytes) => Ok(bytes),
            Reply::Done => Ok(Vec::new()),
            other => bail!("{other:?}"),
        }
    }

    fn begin(&mut self, command: Command) -> Result<u32> {
        let tag = self.next_tag;
        self.next_tag += 1;
        let mut state = self.session.state.lock().expect("no holder panics");
        // The numbers go around.
        while !state.has_ended && (state.max_cmd_sn.wrapping_sub(state.cmd_sn) as i32) < 0 {
            let (waited, timeout) =
                self.session.grown.wait_timeout(state, PATIENCE).expect("no holder panics");
            ensure!(!timeout.timed_out(), "the window stayed shut for {PATIENCE:?}");
            state = waited;
        }
        // One that was sent to a connection that has ended is missed by its completion.
        self.session.begin(&mut state, tag, command);
        Ok(tag)
    }

    /// Logs out, and waits for the end of the connection.
    pub fn log_out(mut self) -> Result<()> {
        let mut pdu = Pdu::new(LOGOUT | IMMEDIATE, FINAL, self.next_tag);
        {
            let state = self.session.state.lock().expect("no holder panics");
            pdu.set(24, state.cmd_sn);
            pdu.set(28, state.exp_stat_sn);
        }
        self.session.put(pdu);
        let completion = self.wait()?;
        ensure!(completion.cookie == u64::from(self.next_tag), "an answer to another command");
        Ok(())
    }
}

impl Client for Iscsi {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn unit(&self) -> u64 {
        BLOCK_BYTES
    }

    fn completions(&self) -> &Completions {
        &self.completions
    }

    /// Waits while the window has no room.
    fn send(&mut self, request: &Request) -> Result<u64> {
        Ok(self.begin(Command::of(request)?)?.into())
    }
}

impl Drop for Iscsi {
    fn drop(&mut self) {
        // Already closed by the target: nothing to do.
        let _ = self.stream.shutdown(Shutdown::Both);
        // Ends the thread that sends.
        *self.session.out.lock().expect("no holder panics") = mpsc::channel().0;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn log_in(
    stream: &mut TcpStream,
    number: u32,
    target: &str,
    has_digests: bool,
) -> Result<(Agreed, State)> {
    let name = format!("iqn.2026-11.org.example:checker-{}-{number}", std::process::id());
    let digest = if has_digests { "CRC32C" } else { "None" };
    let own_max = DATA_BYTES_MAX.to_string();
    let pairs = [
        ("InitiatorName", name.as_str()),
        ("TargetName", target),
        ("SessionType", "Normal"),
        ("HeaderDigest", digest),
        ("DataDigest", digest),
        ("ImmediateData", "Yes"),
        ("InitialR2T", "Yes"),
        ("FirstBurstLength", "16384"),
        ("MaxRecvDataSegmentLength", &own_max),
    ];
    // From the negotiation of operation to full feature, in one step.
    let mut pdu = Pdu::new(LOGIN | IMMEDIATE, FINAL | 1 << 2 | 3, 0);
    let number = number.to_be_bytes();
    pdu.header[8..14].copy_from_slice(&[0x80, 0, number[0], number[1], number[2], number[3]]);
    pdu.set(24, 1);
    for (key, value) in pairs {
        pdu.data.extend(format!("{key}={value}\0").bytes());
    }
    stream.write_all(&pdu.bytes(Digests::default()))?;
    let answer = Pdu::receive(stream, Digests::default())?;
    ensure!(answer.kind() == LOGIN_RESPONSE, "a PDU of kind {:#x}", answer.kind());
    let status = u16::from_be_bytes([answer.header[36], answer.header[37]]);
    ensure!(status == 0, "refused with status {status:#06x}");
    ensure!(answer.flags() == (FINAL | 1 << 2 | 3), "the login goes on: {:#x}", answer.flags());
    let text = String::from_utf8(answer.data.clone()).context("keys in UTF-8")?;
    let keys: HashMap<&str, &str> =
        text.split('\0').filter_map(|pair| pair.split_once('=')).collect();
    let number = |key: &str, default: usize| -> Result<usize> {
        keys.get(key).map_or(Ok(default), |value| value.parse().with_context(|| key.to_owned()))
    };
    let has = |key: &str| keys.get(key) == Some(&"CRC32C");
    let agreed = Agreed {
        digests: Digests { header: has("HeaderDigest"), data: has("DataDigest") },
        segment_max: number("MaxRecvDataSegmentLength", 8192)?,
        first_burst: match keys.get("ImmediateData") {
            Some(&"Yes") => number("FirstBurstLength", 16_384)?.min(16_384),
            _ => 0,
        },
    };
    ensure!(agreed.digests.header == has_digests && agreed.digests.data == has_digests, "{text:?}");
    let state = State {
        cmd_sn: answer.get(28),
        max_cmd_sn: answer.get(32),
        exp_stat_sn: answer.get(24).wrapping_add(1),
        in_flight: HashMap::new(),
        has_ended: false,
    };
    Ok((agreed, state))
}
