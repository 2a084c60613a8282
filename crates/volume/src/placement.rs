//! Where current data lives: in the log alone, in a current store, or at places of a base; the way
//! there, and from one architecture to another.

pub mod base;
pub mod conversion;
pub mod current_store;
pub mod deferred;
pub mod destage;
pub mod in_place;
pub mod migration;
