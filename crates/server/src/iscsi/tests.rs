//! Sessions over real sockets: memory below, a raw initiator above.

mod hostile;
mod initiator;
mod login;
mod order;
