//! Protocols as types and codecs: no sockets, no clocks, no state beyond one message.
//!
//! Invariants: 1. no bytes make a decoder panic or allocate more than they hold; 2. whatever an
//! encoder writes, the decoder of the other side reads back as the same value.

pub mod der;
mod fields;
pub mod fuse;
pub mod iscsi;
pub mod mount;
pub mod nbd;
pub mod nfs3;
pub mod nfs_client;
pub mod rpc;
pub mod scsi;
pub mod xdr;
