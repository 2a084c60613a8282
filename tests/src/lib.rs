//! Tests from outside: what they share.
//!
//! 1. Nothing here knows the engine or its crates: everything goes through the program, its
//!    sockets, its files and its exit codes, as a user's would.
//! 2. The NBD and HTTP clients are written apart from `wire` and `api`, so that a mistake in a
//!    codec does not hide itself.
//! 3. Whatever is started is ended by its own process id, also when a test fails.

pub mod checker;
pub mod command;
pub mod disk;
pub mod http;
pub mod image;
pub mod nbd;
pub mod postgres;
pub mod random;
pub mod server;
