//! Commands that change what they find: COMPARE AND WRITE, ORWRITE. Each change is made while
//! nobody else writes there, over other front ends either.

use std::sync::Arc;
use std::time::{Duration, Instant};

use volume::{ErrorKind, Lack, RoomWait, Updated};
use wire::scsi::command::Transfer;
use wire::scsi::{Code, Sense, SenseKey, Status};

use super::super::SECTOR_BYTES;
use super::super::answer::{Ended, failure};
use super::super::core::Core;
use super::seldom::bytes;
use super::transfer::{Payload, offset};
use super::{Received, Step};
use crate::buffers::Chain;
use crate::serving::{Counts, Export, Kind, RequestKind};

/// How long a change waits for room on a thread that others want.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of an ORWRITE that are changed at a time: it is not one change.
const STEP_BYTES: usize = 64 << 10;

impl Core {
    /// Writes the second half of what was sent, if the first is what is stored.
    pub(super) fn compare_and_write(
        &mut self,
        received: &Received,
        transfer: &Transfer,
        payload: Payload<'_>,
    ) -> Step {
        let length = bytes(transfer.range.blocks) as usize;
        if received.sends() as usize != 2 * length {
            return self.finish(received, Sense::illegal(Code::INVALID_CDB_FIELD).into());
        }
        let start = offset(&transfer.range);
        self.change(received, transfer, payload, move |export, sent, goes_on| {
            let mut both = vec![0; 2 * length];
            sent.copy_to(0, &mut both);
            let (expected, new) = both.split_at(length);
            let mut differs = 0;
            let mut change = |stored: &mut [u8]| {
                let place = stored.iter().zip(expected).position(|(one, other)| one != other);
                match place {
                    Some(place) => differs = place as u64,
                    None => stored.copy_from_slice(new),
                }
                place.is_none()
            };
            match update(export, (start, length), &mut change, goes_on) {
                Ok(true) => Ended::Good,
                Ok(false) => Sense::new(SenseKey::MISCOMPARE, Code::MISCOMPARE)
                    .with_information(differs)
                    .into(),
                Err(ended) => ended,
            }
        })
    }

    /// Sets every bit that is set in what was sent.
    pub(super) fn or_write(
        &mut self,
        received: &Received,
        transfer: &Transfer,
        payload: Payload<'_>,
    ) -> Step {
        let start = offset(&transfer.range);
        self.change(received, transfer, payload, move |export, sent, goes_on| {
            let mut at = start;
            for part in sent.pieces().flat_map(|piece| piece.chunks(STEP_BYTES)) {
                let mut change = |stored: &mut [u8]| {
                    stored.iter_mut().zip(part).for_each(|(stored, sent)| *stored |= sent);
                    true
                };
                if let Err(ended) = update(export, (at, part.len()), &mut change, goes_on) {
                    return ended;
                }
                at += part.len() as u64;
            }
            Ended::Good
        })
    }

    /// Starts the job of a change, and makes it durable if that is asked for.
    fn change(
        &mut self,
        received: &Received,
        transfer: &Transfer,
        payload: Payload<'_>,
        make: impl FnOnce(&dyn Export, &Chain, &dyn Fn() -> bool) -> Ended + Send + 'static,
    ) -> Step {
        if payload.len() < SECTOR_BYTES as usize {
            return self.finish(received, Ended::Good);
        }
        let own = match self.own(received, payload) {
            Ok(own) => own,
            Err(step) => return step,
        };
        let disk = self.disk(received.request.lun);
        let is_durable = transfer.fua || !disk.nexus.mode().write_cache;
        let export = Arc::clone(&disk.export);
        self.goes_on(received);
        let (tag, goes_on) = (received.tag(), self.jobs.goes_on());
        self.start(Kind::Change, Counts::one(RequestKind::Write), move |out| {
            if !goes_on() {
                return 0;
            }
            let ended = match make(&*export, &own, &goes_on) {
                Ended::Good if is_durable => match export.flush(&goes_on) {
                    Ok(()) => Ended::Good,
                    Err(error) => failure(&error, true),
                },
                ended => ended,
            };
            out.add(tag, ended)
        });
        Step::Done
    }
}

/// Changes a range; whether `change` wanted that.
fn update(
    export: &dyn Export,
    (start, length): (u64, usize),
    change: &mut dyn FnMut(&mut [u8]) -> bool,
    goes_on: &dyn Fn() -> bool,
) -> Result<bool, Ended> {
    let until = Instant::now() + PATIENCE;
    let waits_on = || goes_on() && Instant::now() < until;
    let mut wait = RoomWait::default();
    loop {
        match export.update(start, length as u64, change) {
            Ok(Updated::Written) => return Ok(true),
            Ok(Updated::Unchanged) => return Ok(false),
            Ok(Updated::Lacks(lack)) => match export.wait_for(lack, &mut wait, &waits_on) {
                // Room is being made still: who asked may ask again.
                Err(error) if error.kind == ErrorKind::Full && !waits_on() => {
                    return Err(Ended::Status(Status::BUSY));
                }
                Err(error) => return Err(failure(&error, true)),
                Ok(()) if !goes_on() || lack != Lack::Turn && !waits_on() => {
                    return Err(Ended::Status(Status::BUSY));
                }
                Ok(()) => {}
            },
            Err(error) => return Err(failure(&error, true)),
        }
    }
}
