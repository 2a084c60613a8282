//! Reads, as the operation log has them, so that a repair can follow them.
//!
//! 1. The record of a read is written before the read is answered, so it comes before all that the
//!    reader does by what it read.
//! 2. Of one reader and file there is one for each state of the file.

use std::collections::HashMap;

use format::share::operation::{Operation, Procedure};
use units::FileId;

use crate::blocks::{Present, Wait};
use crate::error::{Error, ErrorKind, Result};
use crate::share::Share;
use crate::transaction::{Caller, Transaction};

/// Reads that are remembered; beyond that they are forgotten, and recorded once more.
const SEEN_MAX: usize = 64 << 10;

/// The reads that the operation log has: by client, user and file the last operation that had
/// changed the file.
#[derive(Debug, Default)]
pub(crate) struct SeenReads {
    /// The opening, or the revert, since which they are.
    incarnation: u64,
    all: HashMap<(u128, u32, FileId), u64>,
}

impl SeenReads {
    /// None, since an opening or a revert.
    pub(crate) fn new(incarnation: u64) -> SeenReads {
        SeenReads { incarnation, all: HashMap::new() }
    }
}

impl<P: Present> Share<P> {
    /// Puts a read of a file into the operation log, unless the log has it: as it was after an
    /// operation, [`crate::ReadBytes::operation`].
    ///
    /// # Errors
    /// Those of [`Share::begin`] and [`Transaction::commit`]; `WouldWait` also if another
    /// transaction is under way and the caller does not wait.
    pub fn log_read(
        &self,
        caller: &Caller<'_>,
        id: FileId,
        operation: u64,
        wait: Wait,
    ) -> Result<()> {
        let reader = (caller.client, caller.user.uid, id);
        if self.reads.lock().all.get(&reader).is_some_and(|seen| *seen >= operation) {
            return Ok(());
        }
        let begun = match wait {
            Wait::May => Some(self.begin(wait)?),
            Wait::MayNot => self.try_begin(wait)?,
        };
        let mut transaction = begun.ok_or(Error::from(ErrorKind::WouldWait))?;
        let incarnation = transaction.incarnation();
        transaction.read(caller, id, operation)?;
        transaction.commit()?;
        let mut reads = self.reads.lock();
        // A revert meanwhile may have taken it away.
        if reads.incarnation == incarnation {
            if reads.all.len() >= SEEN_MAX {
                reads.all.clear();
            }
            reads.all.insert(reader, operation);
        }
        Ok(())
    }
}

impl<P: Present> Transaction<'_, '_, P> {
    fn read(&mut self, caller: &Caller<'_>, id: FileId, operation: u64) -> Result<()> {
        self.update(caller, 0, |work| {
            let range = Some((operation, 0));
            Ok(((), Some(Operation { range, ..work.record(Procedure::Read, id) })))
        })
    }
}
