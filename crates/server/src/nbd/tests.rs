//! Tests of NBD sessions.
