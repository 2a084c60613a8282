//! The operations that change a tree, as NFSv3 has them: each one update of a transaction; and the
//! records of reads.

pub mod create;
pub mod read;
pub mod remove;
pub mod rename;
pub mod set_attributes;
pub mod write;
