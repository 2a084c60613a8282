//! The disks that are served, as traits: tests serve memory, `engine` serves a pool.

use std::sync::Arc;

use units::Seq;
use volume::{
    Access, Error, ErrorKind, Extent, InitiatorPort, Lack, OpenedName, Reservations, Result,
    RoomWait, TargetInfo, Updated, WriteOp, Written,
};

use crate::attach::{Part, VolumeId};

/// All that can be opened.
pub trait Exports: Send + Sync + 'static {
    /// Opens an export by name; the empty name is the default export.
    ///
    /// # Errors
    /// When there is no such export, in words for people.
    fn open(&self, name: &str) -> std::result::Result<Arc<dyn Export>, OpenError>;

    /// Opens a volume by its number, at a moment or now.
    ///
    /// # Errors
    /// When it cannot be opened, in words for people.
    fn open_unit(
        &self,
        volume: VolumeId,
        _moment: Option<Seq>,
    ) -> std::result::Result<Arc<dyn Export>, OpenError> {
        Err(OpenError::new(format!("no volume has the number {volume}")))
    }

    /// The iSCSI targets that were made of several.
    fn targets(&self) -> Vec<TargetInfo> {
        Vec::new()
    }

    /// The one of them with this name.
    fn target(&self, _name: &str) -> Option<TargetInfo> {
        None
    }

    /// At most `limit` of what is an iSCSI target, behind a name: its name, and who may log in.
    fn targets_after(&self, _name: &str, _limit: usize) -> Vec<(String, Access)> {
        Vec::new()
    }

    /// Keeps what an opened name of a moment means over restarts, and forgets others.
    ///
    /// # Errors
    /// The engine's.
    fn keep_opened_name(&self, _opened: &OpenedName, _forgotten: &[String]) -> Result<()> {
        Ok(())
    }

    /// The presents of all that can be opened.
    fn presents(&self) -> Vec<Arc<dyn Export>> {
        Vec::new()
    }

    /// Names what can be opened, at most `limit` of it.
    fn list(&self, limit: usize) -> Vec<Listed>;
}

/// Why a disk or a moment cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OpenError {
    /// For people.
    pub message: String,
    /// It may well be opened later: nothing is wrong with the name.
    pub may_pass: bool,
}

impl OpenError {
    /// There is no such thing.
    #[must_use]
    pub fn new(message: impl Into<String>) -> OpenError {
        OpenError { message: message.into(), may_pass: false }
    }
}

/// One export of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name, as it can be opened.
    pub name: String,
    /// The description, for people.
    pub description: String,
}

/// A disk that a client has open.
pub trait Export: Send + Sync + 'static {
    /// Its canonical name.
    fn name(&self) -> &str;
    /// The description, for people.
    fn description(&self) -> String;
    /// The volume, whatever it is called, and whether this is its present or its past, which nobody
    /// can write.
    fn part_of(&self) -> (VolumeId, Part);
    /// Whether its volume is there: it was not deleted since this was opened.
    fn is_served(&self) -> bool;
    /// The volume whose present it is.
    fn present_of(&self) -> Option<VolumeId> {
        let (volume, part) = self.part_of();
        (part == Part::Present).then_some(volume)
    }
    /// The moment of the past that it is.
    fn moment(&self) -> Option<Seq> {
        None
    }
    /// The access to it over iSCSI.
    fn access(&self) -> Access {
        Access::default()
    }
    /// Its persistent reservations over iSCSI, as far as they are kept; none where they cannot be.
    fn reservations(&self) -> Option<Reservations> {
        None
    }
    /// Keeps them over restarts, as a port has changed them.
    ///
    /// # Errors
    /// The engine's.
    fn keep_reservations(&self, _kept: &Reservations, _by: &InitiatorPort) -> Result<()> {
        Err(Error::new(ErrorKind::Invalid, "no reservation is kept here"))
    }
    /// The last time when it became another than its clients know, by a revert or a shrink; the
    /// past never does.
    fn last_rewrite(&self) -> Option<Seq> {
        None
    }
    /// Bytes.
    fn size_bytes(&self) -> u64;
    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// The engine's.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
    /// Fills `buffer` if that needs no waiting; `Ok(false)` means "would wait".
    ///
    /// # Errors
    /// The engine's.
    fn try_read(&self, offset: u64, buffer: &mut [u8]) -> Result<bool>;
    /// Writes in this order, but for the first `done` bytes, as far as it gets without waiting for
    /// room; unless it `may_wait`, also without waiting for another thread. Written means handed to
    /// the operating system.
    ///
    /// # Errors
    /// The engine's; then none of the writes counts as done.
    fn write_some(&self, ops: &[WriteOp<'_>], done: u64, may_wait: bool) -> Result<Written>;
    /// Reads a range, lets `change` make other bytes of it, and writes these, while nobody else
    /// writes there; what cannot be written has none.
    ///
    /// # Errors
    /// The engine's.
    fn update(
        &self,
        _offset: u64,
        _length_bytes: u64,
        _change: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<Updated> {
        Err(Error::new(ErrorKind::Invalid, "nothing is updated here"))
    }
    /// Waits for what a write lacks, and may do the work for it, as long as `goes_on`.
    ///
    /// # Errors
    /// The engine's: `Full` when there is nothing to wait for.
    fn wait_for(&self, lack: Lack, wait: &mut RoomWait, goes_on: &dyn Fn() -> bool) -> Result<()>;
    /// Makes everything acknowledged before this call durable. It may make room for that as long as
    /// `goes_on`.
    ///
    /// # Errors
    /// The engine's.
    fn flush(&self, goes_on: &dyn Fn() -> bool) -> Result<()>;
    /// Data and holes from `offset` on, at most `limit` of them.
    ///
    /// # Errors
    /// The engine's.
    fn extents(&self, offset: u64, length_bytes: u64, limit: usize) -> Result<Vec<Extent>>;
    /// Changes the size.
    ///
    /// # Errors
    /// The engine's.
    fn resize(&self, size_bytes: u64, never_smaller: bool) -> Result<()>;
    /// The differences between a moment of the same volume and this export.
    ///
    /// # Errors
    /// When the moment cannot be read or opened, in words for people.
    fn changes_since(&self, moment: &str) -> std::result::Result<Arc<dyn Changes>, OpenError>;
}

/// A part of a disk that differs between two moments, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Its length in bytes.
    pub length_bytes: u64,
    /// Whether it differs.
    pub differs: bool,
}

/// The differences between two moments.
pub trait Changes: Send + Sync + 'static {
    /// Stretches from `offset` on, at most `limit` and covering at least one byte.
    ///
    /// # Errors
    /// The engine's.
    fn extents(&self, offset: u64, length_bytes: u64, limit: usize) -> Result<Vec<Stretch>>;
}
