//! Sessions over real sockets: memory below, a raw initiator above.

mod hostile;
mod initiator;
mod limits;
mod login;
mod order;
mod reservations;
mod thin;
mod tokens;
mod units;
