//! A stack over members, with what has to outlive the program: who belongs to it, who failed, which
//! regions may be in flight. The format is `docs/format/label.md`.
//!
//! Invariants
//! 1. A member is out on the others before a request is answered that it did not take part in.
//! 2. What is written is marked before: see `marks`.

mod add;
mod assemble;
mod attach;
mod book;
mod build;
mod candidate;
mod device;
mod found;
mod grow;
mod kept;
mod marks;
mod materials;
mod member;
mod opening;
mod regions;
mod renewed;
mod replace;
mod shared;
mod spares;
mod successor;
mod top;
mod upkeep;

pub use candidate::{ArrayError, Candidate, Identities};
pub use device::{Array, MemberStatus};
pub use found::{has_label, is_superseded, named_by};
pub use grow::{Added, strangers};
pub use materials::Materials;
pub use opening::Opening;
pub use shared::Event;
pub use spares::SpareStatus;
