//! What may become a member, what waits to, and why it cannot.

use std::io::IoSlice;
use std::sync::Arc;

use format::label::{AREA_BYTES, Member, MemberStanding, PATH_BYTES_MAX};
use units::WallTime;

use crate::{BlockDevice, DeviceError, Result};

/// Something that may be a member: where it is, and what is there.
#[derive(Clone)]
pub struct Candidate {
    /// Where.
    pub path: String,
    /// What can be read there; `None` if nothing can.
    pub device: Option<Arc<dyn BlockDevice>>,
}

/// A device that waits to take a member's place.
#[derive(Clone)]
pub(super) struct Spare {
    pub id: u128,
    pub path: String,
    /// What was found there; none if nothing was.
    pub device: Option<Arc<dyn BlockDevice>>,
}

impl Spare {
    pub fn data_bytes(&self) -> u64 {
        self.device.as_ref().map_or(0, |d| d.len_bytes().saturating_sub(AREA_BYTES))
    }

    /// Its row in the labels.
    pub fn row(&self) -> Member {
        Member {
            id: self.id,
            data_bytes: self.data_bytes(),
            out_generation: 0,
            standing: MemberStanding::Spare,
            path: noted(&self.path),
        }
    }
}

/// Random numbers and the time for a new array.
pub struct Identities<'a> {
    /// A random number of 128 bits.
    pub random: &'a mut dyn FnMut() -> u128,
    /// Now.
    pub now: WallTime,
}

/// Why members cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum ArrayError {
    /// They are not what they should be.
    #[error("{what}")]
    Refused {
        /// What is wrong.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// Something was in flight when they were used last.
    #[error("the pool was not stopped cleanly")]
    NotClosed,
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

pub(super) fn refused(what: impl Into<String>, hint: &str) -> ArrayError {
    ArrayError::Refused { what: what.into(), hint: hint.to_owned() }
}

/// Makes the first MiB of what was a member or a spare blank: labels, and the mark of a write
/// buffer.
pub(super) fn wipe(device: &dyn BlockDevice) -> Result<()> {
    device.write_durable(0, &[IoSlice::new(&vec![0; AREA_BYTES as usize])])
}

/// A path as a label notes it.
pub(super) fn noted(path: &str) -> String {
    if path.len() <= PATH_BYTES_MAX { path.to_owned() } else { String::new() }
}
