//! Sessions of NFS over a pool in a file, by a client of the tests' own.

mod client;
mod files;
mod hostile;
mod past;
mod rig;
