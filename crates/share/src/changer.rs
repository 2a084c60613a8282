//! Changes of a command (a restore, a repair): as root, each with its cause in the operation log.

use format::share::operation::Cause;
use units::WallTime;

use crate::blocks::{Present, Wait};
use crate::error::{Error, ErrorKind, Lack, Result};
use crate::permission::Credentials;
use crate::share::Share;
use crate::transaction::{Caller, Transaction};

/// Changes a share for a command.
pub struct Changer<'s, P> {
    /// The share.
    pub share: &'s Share<P>,
    /// The command.
    pub cause: Cause,
    /// The clock.
    pub now: &'s dyn Fn() -> WallTime,
    /// Waits for what the volume lacks; an error if that is not to be had.
    pub wait_for: &'s dyn Fn(Lack) -> Result<()>,
}

impl<P: Present> Changer<'_, P> {
    /// Does changes in one transaction: all or none. They are done again if the volume lacked
    /// something, so they may not rely on having been done once.
    ///
    /// # Errors
    /// Those of the changes; `ReadOnly`, `Unusable`; those of writing.
    pub fn change<'d, T>(
        &self,
        change: impl Fn(&mut Transaction<'_, 'd, P>, &Caller<'_>) -> Result<T>,
    ) -> Result<T> {
        let root = Credentials::root();
        loop {
            let caller = Caller {
                user: &root,
                client: 0,
                xid: 0,
                arguments_crc: 0,
                now: (self.now)(),
                cause: Some(self.cause),
                followed_at: None,
            };
            let mut transaction = self.share.begin(Wait::May)?;
            let changed = change(&mut transaction, &caller)?;
            match transaction.commit() {
                Ok(_) => return Ok(changed),
                Err(Error { kind: ErrorKind::Lacks(lack), .. }) => (self.wait_for)(lack)?,
                Err(error) => return Err(error),
            }
        }
    }
}
