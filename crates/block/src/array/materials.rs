//! The things that an array is built of.

use std::sync::Arc;

use super::member::MemberDevice;
use crate::layers::{CryptKey, KeySource};
use crate::{BlockDevice, InTurn, Together};

/// Fills bytes with what nobody can guess.
pub(super) type Random = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// What layers need that is neither on the members nor in the stack's text.
pub struct Materials<'a> {
    /// Reads a key; the error is for people.
    pub key: &'a dyn Fn(&KeySource) -> std::result::Result<CryptKey, String>,
    /// Fills bytes with what nobody can guess.
    pub random: Random,
    /// How several members are asked to make something durable.
    pub together: Arc<dyn Together>,
}

impl Materials<'_> {
    /// For stacks without `crypt`.
    #[must_use]
    pub fn none() -> Materials<'static> {
        Materials {
            key: &|source| Err(format!("nobody reads {source} here")),
            random: Arc::new(|bytes| bytes.fill(1)),
            together: Arc::new(InTurn),
        }
    }
}

pub(super) type Device = Arc<dyn BlockDevice>;

/// A device that answers nothing: stands for a member, or for what a layer keeps on one.
pub(super) fn missing(len_bytes: u64) -> Device {
    Arc::new(MemberDevice::new(0, len_bytes, "missing".to_owned(), None))
}
