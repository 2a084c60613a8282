//! What a target sends, until the connection ends.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::connection::{InFlight, Session, State};
use super::pdu::{
    ASYNC, DATA_IN, DATA_OUT, FINAL, IMMEDIATE, LOGOUT_RESPONSE, NO_TAG, NOP_IN, NOP_OUT, Pdu, R2T,
    RESPONSE,
};
use crate::nbd::{Completion, EINVAL, ENOSPC, EPERM, Reply};

const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;
const BUSY: u8 = 8;
const TASK_SET_FULL: u8 = 0x28;
const EIO: u32 = 5;
/// Until a command is sent again that met a busy unit.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Answers {
    stream: TcpStream,
    session: Arc<Session>,
    out: Sender<Result<Completion>>,
}

impl Answers {
    pub fn new(
        stream: TcpStream,
        session: Arc<Session>,
        out: Sender<Result<Completion>>,
    ) -> Answers {
        Answers { stream, session, out }
    }

    pub fn run(mut self) {
        loop {
            let outcome = Pdu::receive(&mut self.stream, self.session.agreed.digests)
                .and_then(|pdu| self.take(&pdu));
            let told = match outcome {
                Ok(None) => true,
                Ok(Some(completion)) => self.out.send(Ok(completion)).is_ok(),
                Err(error) => {
                    let _ = self.out.send(Err(error));
                    false
                }
            };
            if !told {
                self.session.state.lock().expect("no holder panics").has_ended = true;
                self.session.grown.notify_all();
                return;
            }
        }
    }

    fn take(&self, pdu: &Pdu) -> Result<Option<Completion>> {
        let mut state = self.session.state.lock().expect("no holder panics");
        // An R2T and a ping tell the number of the next status, the others their own.
        let has_status = match pdu.kind() {
            R2T => false,
            DATA_IN => pdu.flags() & 1 != 0,
            NOP_IN => pdu.tag() != NO_TAG,
            _ => true,
        };
        if has_status {
            let number = pdu.get(24);
            ensure!(number == state.exp_stat_sn, "StatSN {number}, not {}", state.exp_stat_sn);
            state.exp_stat_sn = number.wrapping_add(1);
        }
        if (pdu.get(32).wrapping_sub(state.max_cmd_sn) as i32) > 0 {
            state.max_cmd_sn = pdu.get(32);
            self.session.grown.notify_all();
        }
        match pdu.kind() {
            DATA_IN => self.data(&mut state, pdu),
            RESPONSE => self.response(state, pdu),
            R2T => self.send_data(&state, pdu).map(|()| None),
            NOP_IN => {
                self.pong(&state, pdu);
                Ok(None)
            }
            // It is asked to log out; the end of the connection follows.
            ASYNC => Ok(None),
            LOGOUT_RESPONSE => {
                Ok(Some(Completion { cookie: pdu.tag().into(), reply: Reply::Done }))
            }
            kind => bail!("a PDU of kind {kind:#x}: {:?}", pdu.header),
        }
    }

    fn data(&self, state: &mut State, pdu: &Pdu) -> Result<Option<Completion>> {
        let in_flight = state.in_flight.get_mut(&pdu.tag()).context("data of no command")?;
        let (at, wanted) = (pdu.get(40) as usize, in_flight.command.reads as usize);
        ensure!(at == in_flight.read.len(), "data at {at}, not {}", in_flight.read.len());
        in_flight.read.extend(&pdu.data);
        ensure!(in_flight.read.len() <= wanted, "data beyond what was asked for");
        if pdu.flags() & 1 == 0 {
            return Ok(None);
        }
        ensure!(pdu.header[3] == GOOD, "data with status {:#x}", pdu.header[3]);
        let ended = state.in_flight.remove(&pdu.tag()).expect("it was there");
        Ok(Some(Completion { cookie: pdu.tag().into(), reply: whole(ended, pdu)? }))
    }

    fn response(
        &self,
        mut state: std::sync::MutexGuard<'_, State>,
        pdu: &Pdu,
    ) -> Result<Option<Completion>> {
        let ended = state.in_flight.remove(&pdu.tag()).context("an answer to no command")?;
        ensure!(pdu.header[2] == 0, "response {:#x}", pdu.header[2]);
        let again = |mut state: std::sync::MutexGuard<'_, State>| {
            self.session.begin(&mut state, pdu.tag(), ended.command.clone());
            Ok(None)
        };
        let reply = match pdu.header[3] {
            GOOD if ended.command.reads > 0 => whole(ended, pdu)?,
            GOOD => {
                ensure!(pdu.flags() & 6 == 0, "good, but for {} bytes", pdu.get(44));
                Reply::Done
            }
            BUSY | TASK_SET_FULL => {
                drop(state);
                thread::sleep(PAUSE);
                return again(self.session.state.lock().expect("no holder panics"));
            }
            CHECK_CONDITION => match sense(pdu)? {
                (6, _) => return again(state),
                (7, 0x2707) => Reply::Error(ENOSPC),
                (7, _) => Reply::Error(EPERM),
                (5, _) => Reply::Error(EINVAL),
                _ => Reply::Error(EIO),
            },
            status => bail!("status {status:#x}"),
        };
        Ok(Some(Completion { cookie: pdu.tag().into(), reply }))
    }

    /// Sends what the target is ready for.
    fn send_data(&self, state: &State, pdu: &Pdu) -> Result<()> {
        let in_flight = state.in_flight.get(&pdu.tag()).context("an R2T of no command")?;
        let (from, length) = (pdu.get(40) as usize, pdu.get(44) as usize);
        let asked = in_flight.command.data.get(from..from + length);
        let asked = asked.context("an R2T beyond the data")?;
        ensure!(!asked.is_empty(), "an R2T for nothing");
        let parts: Vec<&[u8]> = asked.chunks(self.session.agreed.segment_max).collect();
        for (number, part) in parts.iter().enumerate() {
            let flags = if number + 1 == parts.len() { FINAL } else { 0 };
            let mut out = Pdu::new(DATA_OUT, flags, pdu.tag());
            out.set(20, pdu.get(20));
            out.set(28, state.exp_stat_sn);
            out.set(36, u32::try_from(number)?);
            let before = number * self.session.agreed.segment_max;
            out.set(40, u32::try_from(from + before)?);
            out.data = part.to_vec();
            self.session.put(out);
        }
        Ok(())
    }

    /// Answers a ping, if it asks for it.
    fn pong(&self, state: &State, pdu: &Pdu) {
        if pdu.get(20) == NO_TAG {
            return;
        }
        let mut out = Pdu::new(NOP_OUT | IMMEDIATE, FINAL, NO_TAG);
        out.set(20, pdu.get(20));
        out.set(24, state.cmd_sn);
        out.set(28, state.exp_stat_sn);
        self.session.put(out);
    }
}

/// All that a read was to have, but for what its status says is missing.
fn whole(ended: InFlight, status: &Pdu) -> Result<Reply> {
    let missing = if status.flags() & 2 == 0 { 0 } else { status.get(44) as usize };
    let (had, wanted) = (ended.read.len(), ended.command.reads as usize);
    ensure!(had + missing == wanted, "{had} of {wanted} bytes, {missing} are told of");
    Ok(Reply::Bytes(ended.read))
}

/// The key and the code of a sense.
fn sense(pdu: &Pdu) -> Result<(u8, u16)> {
    let sense = pdu.data.get(2..).context("no sense")?;
    let byte = |at: usize| sense.get(at).copied().context("a short sense");
    Ok(match byte(0)? & 0x7f {
        0x70 | 0x71 => (byte(2)? & 0xf, u16::from_be_bytes([byte(12)?, byte(13)?])),
        0x72 | 0x73 => (byte(1)? & 0xf, u16::from_be_bytes([byte(2)?, byte(3)?])),
        kind => bail!("a sense of kind {kind:#x}"),
    })
}
