//! Block devices and the layers over them.
//!
//! A layer implements [`BlockDevice`] over other block devices, forwards by default and overrides
//! only what it changes. Offsets and lengths are bytes; no alignment is demanded.

use std::io::IoSlice;
use std::ops::Range;

/// Makes methods that pass a request on as it came, to what an expression of `self` names.
macro_rules! forward {
    ($to:expr => $(fn $name:ident(&$this:ident $(, $arg:ident: $kind:ty)*) -> $answer:ty;)+) => {
        $(fn $name(&$this $(, $arg: $kind)*) -> $answer {
            $to.$name($($arg),*)
        })+
    };
}

mod array;
mod error;
pub mod heal;
mod layers;
mod layout;
mod media;
mod range_set;
mod ranges;
mod slices;
mod space;
pub mod stack;
mod together;
mod write_buffer;

pub use array::{
    Added, Array, ArrayError, Candidate, Event, Identities, Materials, MemberStatus, Opening,
    SpareStatus, has_label, is_superseded, named_by, strangers,
};
pub use error::{DeviceError, DeviceErrorKind, Operation};
pub use heal::{Ledger, Outcome, Right};
pub use layers::{
    CryptDevice, CryptError, CryptKey, KeySource, MemoryDevice, Standing, StripeDevice, TrialDevice,
};
pub use layout::Layout;
pub use media::MediaDevice;
pub use slices::{emptied, is_zero};
pub use space::{Purpose, Zones};
pub use together::{InTurn, Together, make_steps};
pub use write_buffer::{BufferStatus, Found, WriteBuffer, WriteBuffers};

/// Result of a device operation.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// Which copies a resync may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resync {
    /// Those of members that are not up to date; nobody reads them yet.
    Stale,
    /// All but the first good one: after a crash, where writes may have arrived in part.
    All,
    /// None: nobody has anything in the range, and what was there may be forgotten. Redundancy that
    /// is computed need not agree there before somebody writes there, or asks for it.
    Unused,
    /// Those that need not agree after [`Resync::Unused`] or a discard.
    Loose,
    /// Those that are computed from others, where [`BlockDevice::disagreements`] found them to
    /// differ. Of what is there by then, which was verified just now. All that they are computed
    /// from has to be in the range, but for what nobody can reach. Layers look at what they keep
    /// beside the data themselves.
    Computed,
    /// Those of members that are not up to date, of what layers keep beside the data alone: nobody
    /// has anything in the range.
    Beside,
}

/// An array of bytes with the durability rules of [`env::Media`], stackable.
pub trait BlockDevice: Send + Sync {
    /// Length in bytes.
    fn len_bytes(&self) -> u64;
    /// Refuses a request that lies beyond the end.
    ///
    /// # Errors
    /// `OutOfRange`.
    fn check(&self, operation: Operation, offset: u64, length_bytes: u64) -> Result<()> {
        if offset.checked_add(length_bytes).is_some_and(|end| end <= self.len_bytes()) {
            return Ok(());
        }
        let (kind, range) = (DeviceErrorKind::OutOfRange, (offset, length_bytes));
        Err(DeviceError::new(kind, operation, range, self.describe(), "beyond the end"))
    }
    /// Fills `buffer` from `offset`; never short.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
    /// Fills `buffer` if that needs no waiting; `Ok(false)` means "would wait" and leaves it
    /// unspecified.
    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.read_at(offset, buffer).map(|()| true)
    }
    /// Whether a range is known to say nothing but zeros, without being read; false where it is
    /// not.
    fn is_hole(&self, _offset: u64, _length_bytes: u64) -> bool {
        false
    }
    /// Whether a write to a range can begin without another one to the device before it, which it
    /// would wait for. It stays so for as long as a flush takes, at least.
    fn is_ready(&self, _offset: u64, _length_bytes: u64) -> bool {
        true
    }
    /// Writes all slices one after another from `offset`; never short.
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()>;
    /// Makes every write that returned before this call durable.
    fn flush(&self) -> Result<()>;
    /// Takes the length of what it is on anew, as [`env::Media::lengthen`]; what has more below it
    /// keeps its own.
    fn lengthen(&self, _len_bytes: Option<u64>) -> Result<u64> {
        Ok(self.len_bytes())
    }
    /// Reserves real space for a range.
    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()>;
    /// Gives a range back; it reads as anything until it is written again.
    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()>;
    /// A write that is on the device when it returns; nothing is said of others.
    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.write_at(offset, slices)?;
        self.flush()
    }
    /// In how many independent ways a range can be had: 1 without redundancy. Where parts of it
    /// differ in that, the most of them.
    fn copies(&self, _offset: u64, _length_bytes: u64) -> usize {
        1
    }
    /// Fills `buffer` in one of these ways, the last there is if there are fewer, and heals
    /// nothing. Which way is which may change when a member fails or comes back.
    fn read_copy(&self, _copy: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_at(offset, buffer)
    }
    /// In how many ways all of the device can be read, so that one of them is right wherever as
    /// much is wrong as redundancy can make good: each leaves out some of what it is made of.
    fn ways(&self) -> usize {
        1
    }
    /// Fills `buffer` in one of these ways, and heals nothing; way 0 leaves out nothing. Which way
    /// is which may change when a member fails or comes back.
    fn read_way(&self, _way: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_at(offset, buffer)
    }
    /// Settles a range that was read and found wrong: see [`heal`]. `buffer` has the right bytes
    /// afterwards, unless the outcome says that there are none.
    fn heal(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
        heal::read_again(self, offset, buffer, right)
    }
    /// Makes all ways of having a range agree.
    fn resync(&self, _offset: u64, _length_bytes: u64, _which: Resync) -> Result<()> {
        Ok(())
    }
    /// Where in a range what is computed from others is not what they say: the ranges of all that
    /// it is computed from there. Once these were seen to be right it may be computed anew
    /// ([`Resync::Computed`]).
    fn disagreements(&self, _offset: u64, _length_bytes: u64) -> Result<Vec<Range<u64>>> {
        Ok(Vec::new())
    }
    /// Where a write met what [`BlockDevice::disagreements`] would tell of, since this was asked
    /// last: what was written there cannot be had from the others before that is settled.
    fn noticed(&self) -> Vec<Range<u64>> {
        Vec::new()
    }
    /// The stack from here down, for people: `crypt(file pool.img)`.
    fn describe(&self) -> String;
}
