//! Sessions over a pool.
