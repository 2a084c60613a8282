//! Changes of a command (a restore, a repair, an import): as root, each with its cause in the
//! operation log.

use std::cell::Cell;

use format::share::inode::FileKind;
use format::share::operation::Cause;
use units::{FileId, WallTime};

use crate::attributes::Attributes;
use crate::blocks::{Present, Wait};
use crate::error::{Error, ErrorKind, Lack, Result, require};
use crate::permission::Credentials;
use crate::share::Share;
use crate::transaction::{Caller, Transaction};
use crate::tree::Tree;

/// Times that names are looked at anew because others changed them meanwhile.
const TRIES: usize = 8;

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
    /// Operations that it did until now.
    pub done: Cell<u64>,
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
            let operations = transaction.operations();
            match transaction.commit() {
                Ok(_) => {
                    self.done.set(self.done.get() + operations);
                    return Ok(changed);
                }
                Err(Error { kind: ErrorKind::Lacks(lack), .. }) => (self.wait_for)(lack)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// The object that has a name now.
    ///
    /// # Errors
    /// `Stale`, `NotDirectory`; those of reading.
    pub(crate) fn look(&self, directory: FileId, name: &[u8]) -> Result<Option<Attributes>> {
        match self.share.tree(Wait::May)?.look_up(&Credentials::root(), directory, name) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Does as many changes as there are, each by its index, in as few transactions as they need.
    ///
    /// # Errors
    /// As [`Changer::change`].
    pub(crate) fn change_each<'d>(
        &self,
        count: usize,
        change: impl Fn(&mut Transaction<'_, 'd, P>, &Caller<'_>, usize) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        while done < count {
            done = self.change(|transaction, caller| {
                let mut at = done;
                while at < count {
                    match change(transaction, caller, at) {
                        Err(error) if error.kind == ErrorKind::TransactionFull && at > done => {
                            break;
                        }
                        changed => changed?,
                    }
                    at += 1;
                }
                Ok(at)
            })?;
        }
        Ok(())
    }

    /// Takes away what is there, and makes something else: at once, if a transaction has room for
    /// both.
    ///
    /// # Errors
    /// As [`Changer::change`]; `NotSync` if what is there changed.
    pub(crate) fn in_place_of<'d, R>(
        &self,
        parent: FileId,
        name: &[u8],
        there: Option<&Attributes>,
        make: impl Fn(&mut Transaction<'_, 'd, P>, &Caller<'_>) -> Result<R>,
    ) -> Result<R> {
        let both = self.change(|transaction, caller| {
            take_away(transaction, caller, parent, name, there)?;
            make(transaction, caller)
        });
        match both {
            Err(error) if error.kind == ErrorKind::TransactionFull && there.is_some() => {
                self.change(|transaction, caller| {
                    take_away(transaction, caller, parent, name, there)
                })?;
                self.change(&make)
            }
            both => both,
        }
    }
}

/// Takes a name away from what was looked at: if it is another, or changed, the caller looks again.
fn take_away<P: Present>(
    transaction: &mut Transaction<'_, '_, P>,
    caller: &Caller<'_>,
    parent: FileId,
    name: &[u8],
    there: Option<&Attributes>,
) -> Result<()> {
    let Some(there) = there else { return Ok(()) };
    let found = transaction.look_up(&Credentials::root(), parent, name)?;
    let is_it = found.id == there.id && found.changed == there.changed;
    require(is_it, ErrorKind::NotSync)?;
    match found.kind {
        FileKind::Directory => transaction.remove_directory(caller, parent, name),
        _ => transaction.remove(caller, parent, name),
    }
}

/// Does what looks at names and changes them, anew where somebody else changed them meanwhile.
///
/// # Errors
/// Those of the work; `Exists`, `NotFound` and the like at the last try.
pub(crate) fn not_overtaken<R>(mut work: impl FnMut() -> Result<R>) -> Result<R> {
    for _ in 1..TRIES {
        match work() {
            Err(error) if is_overtaken(&error) => {}
            done => return done,
        }
    }
    work()
}

/// Whether somebody else changed what was looked at.
fn is_overtaken(error: &Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::Exists
            | ErrorKind::NotFound
            | ErrorKind::NotSync
            | ErrorKind::Stale
            | ErrorKind::NotEmpty
            | ErrorKind::IsDirectory
            | ErrorKind::NotDirectory
    )
}
