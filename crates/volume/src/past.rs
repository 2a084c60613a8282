//! The past: lineages, moments and what is between them, reverts, and what lies in other files.

pub mod backing_copy;
pub mod backing_file;
pub mod copy_job;
pub mod diff;
pub mod groups;
pub mod heat;
pub mod history;
pub mod import;
pub mod lineage;
pub mod resolve;
pub mod revert;
pub mod timeline;
pub mod written_over;
