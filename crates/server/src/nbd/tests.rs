//! Sessions over real sockets: memory or a pool below, the project's own raw client or real tools
//! above.

mod client;
mod gone;
mod hostile;
pub(crate) mod memory;
mod negotiation;
mod pool;
pub(crate) mod rig;
mod room;
mod tls;
pub(crate) mod tools;
mod transmission;
