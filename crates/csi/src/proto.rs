//! The messages of the Container Storage Interface, version 1, as its description has them; made by
//! `scripts/csi-messages`, but for what is not used: groups, health, metadata of snapshots.

/// A time, as protocol buffers have it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Timestamp {
    /// Seconds since 1970.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// And nanoseconds.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// All of them.
#[expect(
    clippy::all,
    missing_docs,
    reason = "made by a program; fields are those of the interface"
)]
#[rustfmt::skip]
pub mod v1;
