//! XDR, external data representation: RFC 4506.
//!
//! Everything is big-endian and in units of four bytes (section 3). [`Reader`] takes values off
//! bytes, with a limit for each length; [`Encode`] puts values behind others.
//!
//! Invariants: 1. a length is compared with its limit and with the bytes that are there before
//! anything is taken, and nothing is allocated; 2. padding is written as zeros, read as anything.

mod decode;
pub(crate) mod encode;
mod numbered;
mod padding;

pub use decode::{Reader, TEXT_BYTES_MAX, Text, XdrError};
pub use encode::{Encode, Writer};
pub use padding::padding;

pub(crate) use encode::fields_in_order;
pub(crate) use numbered::numbered;
