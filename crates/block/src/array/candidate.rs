//! What may become a member, and why it cannot.

use std::sync::Arc;

use units::WallTime;

use crate::{BlockDevice, DeviceError};

/// Something that may be a member: where it is, and what is there.
#[derive(Clone)]
pub struct Candidate {
    /// Where.
    pub path: String,
    /// What can be read there; `None` if nothing can.
    pub device: Option<Arc<dyn BlockDevice>>,
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
