//! SCSI for a direct-access device: SAM-5, SPC-4, SBC-3, and the parts of SBC-4 that are served.
//!
//! Everything is big-endian. [`decode`] reads a CDB as a [`Command`] or says with which [`Sense`]
//! it is refused; [`encode`] is the initiator's side of that. The other modules are the data that
//! commands carry, and read what initiators send of it. Answers are written whole: the caller cuts
//! them to the allocation length.

pub mod capacity;
pub mod command;
pub mod decode;
pub mod encode;
mod identity;
pub mod inquiry;
pub mod lba_status;
pub mod log;
pub mod mode;
pub mod ports;
pub mod report_luns;
pub mod reservations;
pub mod sense;
pub mod supported_opcodes;
mod types;
pub mod unmap;
pub mod vpd;

pub use command::Command;
pub use identity::Identity;
pub use sense::{Code, Pointer, Sense, SenseKey};
pub use types::{Lun, Status};
