//! The limits of NFS messages. A decoder refuses more before anything is taken.

use crate::rpc::limits::RECORD_BYTES_MAX;
use crate::xdr::TEXT_BYTES_MAX;

/// `NFS3_FHSIZE`: longest file handle, in bytes (2.4).
pub const FILE_HANDLE_BYTES_MAX: usize = 64;
/// Bytes of the verifiers of cookies, of CREATE and of WRITE (2.4).
pub const VERIFIER_BYTES: usize = 8;
/// Longest name in a directory, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest text of a symbolic link, in bytes: that of Linux.
pub const PATH_BYTES_MAX: usize = 4095;
/// Most data of one WRITE, in bytes, and what READ is to be held to.
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;
/// Longest answer to READDIR and READDIRPLUS, in bytes, whatever the client would take.
pub const LIST_BYTES_MAX: usize = 1 << 20;

const _: () = {
    assert!(TRANSFER_BYTES_MAX + 2048 < RECORD_BYTES_MAX, "a WRITE has room for its header");
    assert!(NAME_BYTES_MAX < TEXT_BYTES_MAX && PATH_BYTES_MAX < TEXT_BYTES_MAX);
};
