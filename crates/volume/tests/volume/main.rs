//! The engine, one way of the data at a time.

mod audit;
mod golden;
mod past;
mod room;
mod story;
mod wide;
