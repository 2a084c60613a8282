//! A device that waits to take a member's place.

use std::io::IoSlice;
use std::sync::Arc;

use format::label::{AREA_BYTES, Member, MemberStanding, PATH_BYTES_MAX};

use crate::{BlockDevice, Result};

/// A device that waits.
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

/// Makes the first MiB of what was a member or a spare blank: labels, and the mark of a write
/// buffer.
pub(super) fn wipe(device: &dyn BlockDevice) -> Result<()> {
    device.write_durable(0, &[IoSlice::new(&vec![0; AREA_BYTES as usize])])
}

/// A path as a label notes it.
pub(super) fn noted(path: &str) -> String {
    if path.len() <= PATH_BYTES_MAX { path.to_owned() } else { String::new() }
}
