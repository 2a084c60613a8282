//! Parity over the simulator's media: crashes, members that are lost, fail, rot, come back.

mod ahead;
mod bringing;
mod crashes;
mod degraded;
mod kills;
mod looked;
mod members;
mod rig;
mod rot;
mod together;
mod ways;

#[path = "../shared/settling.rs"]
mod settling;
