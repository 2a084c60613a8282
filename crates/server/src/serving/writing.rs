//! Writes that are jobs, by the steps in which they are made: as far as they get, and on from
//! there once they have what they lacked.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use volume::{Error, ErrorKind, Lack, RoomWait, WriteOp, Written};

use super::asked::Asked;
use super::export::Export;
use super::input::Lent;
use super::latency::Counts;
use crate::buffers::Chain;

/// A write, or writes of one turn, with what is written.
pub(crate) struct Writing<R> {
    export: Arc<dyn Export>,
    what: What<R>,
    /// Bytes of it that are written.
    done: u64,
    lacks: Lack,
    wait: RoomWait,
    /// When it has waited long enough, since it first had to wait.
    until: Option<Instant>,
}

/// A write of a turn that was taken apart.
pub(crate) enum Rest<R> {
    /// All of it is written.
    Nothing,
    /// The rest of it goes on by itself.
    Own(Writing<R>),
    /// There is no memory for its rest.
    Dropped,
}

/// The data that is written.
pub(crate) enum What<R> {
    /// One write, with buffers of its own.
    Payload(R, Chain),
    /// Zeros.
    Zeros(R),
    /// A block of its range, again and again, in one buffer.
    Repeated(R, Chain),
    /// The writes that a turn gathered, in the receive buffer that they came in. Each with the
    /// place of its payload, if it has one.
    Turn(Lent, Vec<(R, Option<usize>)>),
}

/// The things that a job leaves behind for its session.
pub(crate) enum Left<R> {
    Nothing,
    /// The receive buffer, which it was lent.
    Input(Lent),
    /// A write that lacks something.
    Write(Box<Writing<R>>),
}

impl<R: Asked> What<R> {
    fn requests(&self) -> SmallVec<[R; 1]> {
        match self {
            What::Payload(request, _) | What::Repeated(request, _) | What::Zeros(request) => {
                SmallVec::from([*request])
            }
            What::Turn(_, requests) => requests.iter().map(|(request, _)| *request).collect(),
        }
    }

    fn ops(&self) -> SmallVec<[WriteOp<'_>; 4]> {
        match self {
            What::Zeros(request) => SmallVec::from_iter([request.zeros()]),
            What::Payload(request, payload) => {
                let mut offset = request.offset();
                let op = |bytes| {
                    let op = WriteOp::Data { offset, bytes };
                    offset += bytes.len() as u64;
                    op
                };
                payload.pieces().map(op).collect()
            }
            What::Repeated(request, pattern) => {
                let pattern = pattern.pieces().next().expect("a chain has a piece");
                let end = request.offset() + request.length_bytes();
                let starts = (request.offset()..end).step_by(pattern.len());
                let op = |offset: u64| {
                    let length = (end - offset).min(pattern.len() as u64) as usize;
                    WriteOp::Data { offset, bytes: &pattern[..length] }
                };
                starts.map(op).collect()
            }
            What::Turn(input, requests) => {
                let op = |(request, place): &(R, Option<usize>)| match place {
                    Some(place) => {
                        let bytes = input.at(*place, request.length_bytes() as usize);
                        WriteOp::Data { offset: request.offset(), bytes }
                    }
                    None => request.zeros(),
                };
                requests.iter().map(op).collect()
            }
        }
    }
}

impl<R: Asked> Writing<R> {
    /// Of a write of which nothing is done.
    pub(crate) fn new(export: &Arc<dyn Export>, what: What<R>) -> Writing<R> {
        Writing {
            export: Arc::clone(export),
            what,
            done: 0,
            lacks: Lack::Turn,
            wait: RoomWait::default(),
            until: None,
        }
    }

    /// The same of one of which so many bytes are done.
    pub(crate) fn after(self, done: u64, lacks: Lack) -> Writing<R> {
        Writing { done, lacks, ..self }
    }

    /// Whether it is to wait for room, or the map, before it goes on.
    pub(crate) fn has_to_wait(&self) -> bool {
        self.lacks != Lack::Turn
    }

    /// Whether it lacks room, perhaps for long, and is in the receive buffer of its session. The
    /// map is written out soon, and holds back who writes faster than that.
    pub(crate) fn is_to_be_taken_apart(&self) -> bool {
        self.lacks == Lack::Room && matches!(self.what, What::Turn(..))
    }

    /// Takes the writes of a turn apart, so that the receive buffer is free while they wait: `own`
    /// makes a copy of a payload.
    pub(crate) fn take_apart(
        self,
        mut own: impl FnMut(&R, &[u8]) -> Option<Chain>,
    ) -> (Lent, Vec<(R, Rest<R>)>) {
        let Writing { export, what, done: mut done_of_all, lacks, .. } = self;
        let What::Turn(lent, requests) = what else {
            unreachable!("only the writes of a turn are taken apart")
        };
        let apart = |(request, place): (R, Option<usize>)| {
            let length = request.length_bytes();
            let done = done_of_all.min(length);
            done_of_all -= done;
            if done == length {
                return (request, Rest::Nothing);
            }
            let what = match place {
                None => Some(What::Zeros(request)),
                Some(place) => own(&request, lent.at(place, length as usize))
                    .map(|payload| What::Payload(request, payload)),
            };
            match what {
                None => (request, Rest::Dropped),
                Some(what) => (request, Rest::Own(Writing::new(&export, what).after(done, lacks))),
            }
        };
        let parts = requests.into_iter().map(apart).collect();
        (lent, parts)
    }

    /// It waits from now on, if it did not before; until when.
    pub(crate) fn begin_to_wait(&mut self) -> Option<Instant> {
        if self.until.is_none() {
            self.until = R::PATIENCE.map(|patience| Instant::now() + patience);
        }
        self.until
    }

    /// How many requests it answers.
    pub(crate) fn count(&self) -> u64 {
        match &self.what {
            What::Payload(..) | What::Repeated(..) | What::Zeros(_) => 1,
            What::Turn(_, requests) => requests.len() as u64,
        }
    }

    /// The requests that it answers, by kind.
    pub(crate) fn counts(&self) -> Counts {
        match &self.what {
            What::Payload(request, _) | What::Repeated(request, _) | What::Zeros(request) => {
                Counts::one(request.kind())
            }
            What::Turn(_, requests) => {
                Counts::of(requests.iter().map(|(request, _)| request.kind()))
            }
        }
    }

    /// The things that it leaves behind once it is answered.
    pub(crate) fn left(self) -> Left<R> {
        match self.what {
            What::Turn(input, _) => Left::Input(input),
            What::Payload(..) | What::Repeated(..) | What::Zeros(_) => Left::Nothing,
        }
    }

    /// Writes as far as it gets, makes it durable if that is asked for, and adds the answers; the
    /// number of failures, or `None` when it lacks something.
    pub(crate) fn go_on(
        &mut self,
        goes_on: &dyn Fn() -> bool,
        out: &mut R::Replies,
    ) -> Option<u64> {
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
    pub(crate) fn go_on_patiently(
        &mut self,
        goes_on: &dyn Fn() -> bool,
        out: &mut R::Replies,
    ) -> u64 {
        let until = self.until;
        let is_early = || until.is_none_or(|until| Instant::now() < until);
        let waits_on = || goes_on() && is_early();
        loop {
            let mut waited = self.export.wait_for(self.lacks, &mut self.wait, &waits_on);
            // The room may be there, but who wanted it went meanwhile. A write that lacks something
            // else is under way.
            if waited.is_ok() && self.lacks == Lack::Room && !goes_on() {
                waited = Err(Error::new(ErrorKind::Full, "nobody waits for the room any more"));
            }
            // Room is being made still: who asked may ask again.
            if waited.as_ref().is_err_and(|error| error.kind == ErrorKind::Full)
                && goes_on()
                && !is_early()
            {
                waited = Err(Error::new(ErrorKind::Busy, "there is no room yet"));
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
        out: &mut R::Replies,
    ) -> u64 {
        let requests = self.what.requests();
        let durable = requests.iter().any(Asked::is_durable);
        let outcome = outcome.and_then(|()| match durable {
            true => self.export.flush(goes_on),
            false => Ok(()),
        });
        requests.iter().map(|request| request.answer(outcome.as_ref().copied(), out)).sum()
    }
}
