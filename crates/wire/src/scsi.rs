//! SCSI for a direct-access device: SAM-5, SPC-4, SBC-3, and the parts of SBC-4 that are served.
//!
//! Everything is big-endian.

pub mod sense;
mod types;

pub use sense::{Code, Pointer, Sense, SenseKey};
pub use types::{Lun, Status};
