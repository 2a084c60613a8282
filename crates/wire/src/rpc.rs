//! ONC RPC version 2 over a stream: RFC 5531.
//!
//! [`record`] finds the records in the bytes of a stream (section 11), [`decode`] reads the header
//! of the call in a record (section 9) and leaves the arguments to the program's own codec, and
//! [`encode`] writes the header of a reply, behind which the results go.
//!
//! Credentials are `AUTH_NONE` and `AUTH_SYS`; of others only the number is read, so that the
//! server can say what it asks for. Replies carry an empty verifier.

pub mod decode;
pub mod encode;
pub mod limits;
pub mod record;
mod types;

pub use types::{
    Accepted, ArgumentsError, AuthStat, AuthSys, Call, Credentials, Denied, Flavor, Gids, Reply,
};
