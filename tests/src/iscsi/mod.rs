//! An iSCSI initiator of our own, written from RFC 7143, SPC and SBC and apart from `wire`.
//!
//! 1. Many commands may be in flight, as many as the target's window allows; they are matched by
//!    their tags, in whatever order they end.
//! 2. An answer that the standards do not allow is an error of the connection, never ignored.
//! 3. Waiting is bounded: a command that does not end within [`PATIENCE`](crate::nbd::PATIENCE) is
//!    an error.
//! 4. A command that a unit attention or a full queue kept from being done is sent again, as every
//!    initiator does.

mod answers;
mod commands;
mod connection;
mod pdu;

pub use connection::Iscsi;
