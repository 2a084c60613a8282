//! The engine on a real file: the ways of the data, one by one.

mod audit;
mod handover;
mod hook;
mod story;
