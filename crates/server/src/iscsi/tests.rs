//! Sessions over real sockets.
