//! Sessions of NFS over a pool in a file, or on faulty media, by a client of the tests' own.

pub(crate) mod client;
mod files;
mod hostile;
mod past;
pub(crate) mod rig;
mod seeds;
