//! The server: HTTP and NBD sessions over one pool, and the threads that do its background work.
//!
//! `attach` knows which clients hold which volume (entered by NBD sessions, asked by HTTP).

mod attach;

pub use attach::{Attachment, Attachments};
