//! The client's side of RPC, MOUNT and NFS version 3: calls to bytes, and replies to values.
//!
//! [`calls`] and [`replies`] are the counterparts of the decoders and encoders of [`crate::rpc`],
//! [`crate::mount`] and [`crate::nfs3`], whose types they share.

pub mod calls;
pub mod replies;
