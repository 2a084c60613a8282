//! SCSI for a direct-access device: SAM-5, SPC-4, SBC-3, and the parts of SBC-4 that are served.
//!
//! Everything is big-endian. [`decode`] reads a CDB as a [`Command`] or says with which [`Sense`]
//! it is refused; the other modules are the data that commands carry, and read what initiators send
//! of it. Answers are written whole: the caller cuts them to the allocation length.

pub mod capacity;
pub mod command;
pub mod decode;
pub mod lba_status;
pub mod report_luns;
pub mod reservations;
pub mod sense;
mod types;
pub mod unmap;

pub use command::Command;
pub use sense::{Code, Pointer, Sense, SenseKey};
pub use types::{Lun, Status};
