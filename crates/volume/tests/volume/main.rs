//! The engine, one way of the data at a time.

mod audit;
mod golden;
mod handover;
mod hook;
mod past;
mod room;
mod space;
mod story;
mod wide;
