//! Parity over the simulator's media: crashes, members that are lost, fail, rot, come back.

mod apart;
mod bringing;
mod crashes;
mod degraded;
mod differences;
mod kills;
mod looked;
mod members;
mod rig;
mod together;
mod ways;
