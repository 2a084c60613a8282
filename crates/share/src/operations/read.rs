//! Reads, as the operation log has them, so that a repair can follow them.
//!
//! 1. The record of a read is written before the read is answered, so it comes before all that the
//!    reader does by what it read.
//! 2. Of one reader and file there is one for each state of the file.

use format::share::operation::{Operation, Procedure};
use units::FileId;

use crate::blocks::{Present, Wait};
use crate::error::{Error, ErrorKind, Result, require};
use crate::share::Share;
use crate::transaction::{Caller, Transaction};

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
        if self.reads.lock().has(&reader, operation) {
            return Ok(());
        }
        let begun = match wait {
            Wait::May => Some(self.begin(wait)?),
            Wait::MayNot => self.try_begin(wait)?,
        };
        let mut transaction = begun.ok_or(Error::from(ErrorKind::WouldWait))?;
        let incarnation = transaction.incarnation();
        // A revert meanwhile has taken away what was read: it is to be read again.
        require(operation <= transaction.last_operation(), ErrorKind::Unusable)?;
        transaction.read(caller, id, operation)?;
        transaction.commit()?;
        self.reads.lock().insert(incarnation, reader, operation);
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
