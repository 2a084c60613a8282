//! Writes that are jobs, by the steps in which they are made: as far as they get, and on from
//! there once they have what they lacked.

use std::sync::Arc;

use smallvec::SmallVec;
use volume::{Error, ErrorKind, Lack, RoomWait, WriteOp, Written};
use wire::nbd::{CommandFlags, ReplyStyle, Request, encode};

use super::answer::fail;
use super::export::Export;
use super::input::Lent;
use super::latency::Counts;
use super::replies::Replies;
use crate::buffers::Chain;

/// A write, or writes of one turn, with what is written.
pub(super) struct Writing {
    export: Arc<dyn Export>,
    style: ReplyStyle,
    what: What,
    /// Bytes of it that are written.
    done: u64,
    lacks: Lack,
    wait: RoomWait,
}

/// The data that is written.
pub(super) enum What {
    /// One write, with buffers of its own.
    Payload(Request, Chain),
    /// Zeros.
    Zeros(Request),
    /// The writes that a turn gathered, in the receive buffer that they came in. Each with the
    /// place of its payload, if it has one.
    Turn(Lent, Vec<(Request, Option<usize>)>),
}

/// The things that a job leaves behind for its session.
#[derive(Default)]
pub(super) enum Left {
    #[default]
    Nothing,
    /// The receive buffer, which it was lent.
    Input(Lent),
    /// A write that lacks something.
    Write(Box<Writing>),
}

impl What {
    fn requests(&self) -> SmallVec<[Request; 1]> {
        match self {
            What::Payload(request, _) | What::Zeros(request) => SmallVec::from([*request]),
            What::Turn(_, requests) => requests.iter().map(|(request, _)| *request).collect(),
        }
    }

    fn ops(&self) -> SmallVec<[WriteOp<'_>; 4]> {
        let zeros = |r: &Request| WriteOp::Zero { offset: r.offset, length_bytes: r.length_bytes };
        match self {
            What::Zeros(request) => SmallVec::from_iter([zeros(request)]),
            What::Payload(request, payload) => {
                let mut offset = request.offset;
                let op = |bytes| {
                    let op = WriteOp::Data { offset, bytes };
                    offset += bytes.len() as u64;
                    op
                };
                payload.pieces().map(op).collect()
            }
            What::Turn(input, requests) => {
                let op = |(request, place): &(Request, Option<usize>)| match place {
                    Some(place) => {
                        let bytes = input.at(*place, request.length_bytes as usize);
                        WriteOp::Data { offset: request.offset, bytes }
                    }
                    None => zeros(request),
                };
                requests.iter().map(op).collect()
            }
        }
    }
}

impl Writing {
    /// Of a write of which nothing is done.
    pub(super) fn new(export: &Arc<dyn Export>, style: ReplyStyle, what: What) -> Writing {
        Writing {
            export: Arc::clone(export),
            style,
            what,
            done: 0,
            lacks: Lack::Turn,
            wait: RoomWait::default(),
        }
    }

    /// The same of one of which so many bytes are done.
    pub(super) fn after(self, done: u64, lacks: Lack) -> Writing {
        Writing { done, lacks, ..self }
    }

    /// Whether it is to wait for room, or the map, before it goes on.
    pub(super) fn has_to_wait(&self) -> bool {
        self.lacks != Lack::Turn
    }

    /// How many requests it answers.
    pub(super) fn count(&self) -> u64 {
        match &self.what {
            What::Payload(..) | What::Zeros(_) => 1,
            What::Turn(_, requests) => requests.len() as u64,
        }
    }

    /// The requests that it answers, by kind.
    pub(super) fn counts(&self) -> Counts {
        match &self.what {
            What::Payload(request, _) | What::Zeros(request) => Counts::one(request),
            What::Turn(_, requests) => Counts::of(requests.iter().map(|(request, _)| request)),
        }
    }

    /// The things that it leaves behind once it is answered.
    pub(super) fn left(self) -> Left {
        match self.what {
            What::Turn(input, _) => Left::Input(input),
            What::Payload(..) | What::Zeros(_) => Left::Nothing,
        }
    }

    /// Writes as far as it gets, makes it durable if that is asked for, and adds the answers; the
    /// number of failures, or `None` when it lacks something.
    pub(super) fn go_on(&mut self, goes_on: &dyn Fn() -> bool, out: &mut Replies) -> Option<u64> {
        let written = self.export.write_some(&self.what.ops(), self.done, true);
        let outcome = match written {
            Ok(Written::Part { bytes, lacks }) => {
                if bytes > self.done {
                    self.wait = RoomWait::default();
                }
                (self.done, self.lacks) = (bytes, lacks);
                return None;
            }
            Ok(Written::All) => Ok(()),
            Err(error) => Err(error),
        };
        Some(self.answer(outcome, goes_on, out))
    }

    /// Waits for what it lacks, goes on, and so on to its end, unless `goes_on` says that nobody
    /// wants it any more; the number of failures.
    pub(super) fn go_on_patiently(&mut self, goes_on: &dyn Fn() -> bool, out: &mut Replies) -> u64 {
        loop {
            let mut waited = self.export.wait_for(self.lacks, &mut self.wait, goes_on);
            // The room may be there, but who wanted it went meanwhile. A write that lacks something
            // else is under way.
            if waited.is_ok() && self.lacks == Lack::Room && !goes_on() {
                waited = Err(Error::new(ErrorKind::Full, "nobody waits for the room any more"));
            }
            if let Err(error) = waited {
                return self.answer(Err(error), goes_on, out);
            }
            if let Some(failures) = self.go_on(goes_on, out) {
                return failures;
            }
        }
    }

    fn answer(
        &self,
        outcome: Result<(), Error>,
        goes_on: &dyn Fn() -> bool,
        out: &mut Replies,
    ) -> u64 {
        let requests = self.what.requests();
        let durable = requests.iter().any(|request| request.flags.has(CommandFlags::FUA));
        match outcome.and_then(|()| if durable { self.export.flush(goes_on) } else { Ok(()) }) {
            Ok(()) => {
                for request in &requests {
                    out.done.extend_from_slice(encode::done(self.style, request).as_bytes());
                }
                0
            }
            Err(e) => requests.iter().map(|r| fail(self.style, r, &e, &mut out.words)).sum(),
        }
    }
}
