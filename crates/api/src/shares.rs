//! Shares: volumes whose blocks are a file tree, which is served over NFS.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::requests::some_of;
use crate::{
    ClonedFrom, Conversion, Dedup, Encoding, Grace, Granularity, SizeInput, SpanInput, Stamp, Time,
};

/// A share as it stands. The paths below `/volumes/{volume}` (history, versions, marks, reverts,
/// clones, space) take its name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Share {
    /// Its name.
    pub name: String,
    /// Commands that mount it on this machine, one for each address; none while NFS is off.
    /// `NAME@MOMENT` in the place of its name is a moment of it.
    pub mount: Vec<String>,
    /// `stable`: changed names and attributes are on the device before the answer; `server`: they
    /// are with the operating system, and survive the server, not a power cut.
    pub metadata: String,
    /// Since when reads of files are in the operation log, so that a repair can follow them; null
    /// if they are not.
    pub reads_logged_since: Option<Time>,
    /// The relay before another NFS server that it belongs to; null without one.
    pub relay: Option<Relay>,
    /// The networks that may use it, in their order; of those that contain an address the smallest
    /// decides. Loopback may do all where none does, and others nothing.
    pub allowed: Vec<Allowed>,
    /// Where data lives: `logging`, `split-stream`, `redirect` or `checkpointing`.
    pub architecture: String,
    /// Which writes are retained.
    #[schema(value_type = String, example = "every-write")]
    pub granularity: Granularity,
    /// How far back the past can be opened.
    #[schema(value_type = String, example = "1d")]
    pub window: SpanInput,
    /// How many bytes of history may be kept; null is as many as the pool holds.
    pub history_limit: Option<u64>,
    /// How far back the past can be opened now, to the second.
    #[schema(value_type = String, example = "23h")]
    pub window_held: SpanInput,
    /// Whether that is all of the window, or everything since the share was made.
    pub window_kept: bool,
    /// The settings before a smaller window or history limit, while they are kept; null otherwise.
    pub grace: Option<Grace>,
    /// `online`, or `refusing-writes` after a failed write or flush.
    pub state: String,
    /// Clients attached to the present.
    pub clients: u64,
    /// Bytes of the present that are stored.
    pub live_bytes: u64,
    /// Whether `live_bytes` was counted; else it is an upper bound until the map is merged, and
    /// `history_bytes` a lower one.
    pub live_exact: bool,
    /// Bytes kept only for the past.
    pub history_bytes: u64,
    /// Bytes of history that stay because of versions, pinned marks, views and clones.
    pub pinned_bytes: u64,
    /// The hook around captures that name none; null without one.
    pub hook: Option<String>,
    /// Whether the server's configuration has that hook.
    pub hook_known: bool,
    /// The oldest moment that can be opened by time.
    pub oldest: Stamp,
    /// The present.
    pub latest: Stamp,
    /// When it was made.
    pub created: Time,
    /// The origin that it was cloned from.
    pub cloned_from: Option<ClonedFrom>,
    /// The change of architecture that is under way; null without one.
    pub conversion: Option<Conversion>,
    /// How versions of blocks that were written over are kept.
    pub encoding: Encoding,
    /// Blocks of equal content that are stored once.
    pub dedup: Dedup,
    /// Bytes of blocks, of the present or of the past, that lie in its base, where the architecture
    /// has one: the base image of UCDP's form I, whose overwrite pool is the log.
    #[serde(default)]
    pub base_bytes: u64,
    /// How many versions there are.
    pub versions: u64,
}

/// A relay before an NFS server, as the configuration has it: clients mount it instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Relay {
    /// `append` or `overwrite`: the share follows another server; `inline`: it is served itself.
    pub form: String,
    /// Where clients mount.
    pub listen: String,
    /// The export of the server behind it.
    pub primary: String,
    /// Connections of clients.
    pub clients: u64,
    /// How far the share follows; null of `inline`.
    pub follower: Option<Follower>,
}

/// A share that follows another server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Follower {
    /// `comparing`: it is being made what the server has; `following`: it does what the server did.
    pub state: String,
    /// Operations that the server did and the share has not done yet.
    pub waiting: u64,
    /// Bytes of them.
    pub waiting_bytes: u64,
    /// Operations that the share did since the start.
    pub followed: u64,
    /// Objects that were compared since the start.
    pub compared: u64,
    /// How often it had to compare, the first time after the start included.
    pub comparisons: u64,
    /// Objects of the server that the share cannot hold, or that cannot be read there.
    pub left_out: u64,
    /// The trouble that it has now; null without any.
    pub trouble: Option<String>,
}

/// A network that may use a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Allowed {
    /// The network, such as `10.1.0.0/16`, or the address.
    pub network: String,
    /// Whether it may only read.
    pub read_only: bool,
    /// The users that are taken for nobody: `none`, `root` or `all`.
    pub squash: String,
    /// The user that nobody is.
    pub anonymous_uid: u32,
    /// Its group.
    pub anonymous_gid: u32,
    /// Whether it may come from any port; else only from one below 1024.
    pub any_port: bool,
    /// The users that may look into the past: `none`, `root` or `all`.
    pub past: String,
}

/// A network that is to be allowed. An entry of the same network gives way to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Allow {
    /// A network, such as `10.1.0.0/16`, or an address.
    pub network: String,
    /// Whether it may only read; false by default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The users that are taken for nobody: `none`, `root` (the default) or `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub squash: Option<String>,
    /// The user that nobody is; 65534 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anonymous_uid: Option<u32>,
    /// Its group; 65534 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anonymous_gid: Option<u32>,
    /// Whether it may come from any port; else, by default, only from one below 1024, which the
    /// superuser of its machine alone can have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_port: bool,
    /// The users that may look into the past: `none`, `root` or `all` (the default), by the modes
    /// and owners of then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past: Option<String>,
}

/// Which network is allowed no more.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DenyQuery {
    /// The network of the entry that goes.
    #[param(example = "10.1.0.0/16")]
    pub network: String,
}

/// A new share.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateShare {
    /// 1 to 128 characters of `A-Za-z0-9._-`, beginning with a letter or digit.
    pub name: String,
    /// `logging` (the default), `split-stream`, `redirect` or `checkpointing`: those that need no
    /// cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Which writes are retained; `every-write` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "1s")]
    pub granularity: Option<Granularity>,
    /// How far back the past can be opened; 24 hours by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<SpanInput>,
    /// How many bytes of history may be kept; without it, as many as the pool holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_limit: Option<SizeInput>,
    /// How versions of blocks that were written over are kept: `raw` (the default), `delta` or
    /// `xor` (TRAP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// How long ago a version was written over before it is encoded; 10 minutes by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encode_after: Option<SpanInput>,
    /// Whether equal blocks are stored once, within the share and with its clones; false by
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup: Option<bool>,
    /// When changed names and attributes are durable: `stable` (the default), before the answer;
    /// or `server`, at the next flush.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// Whether reads of files are in the operation log, so that a repair can follow them; false by
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_reads: Option<bool>,
}

/// Settings of a share to change, one at least; those left out stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeShare {
    /// When changed names and attributes are durable: `stable` or `server`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// Whether reads of files are in the operation log from now on, so that a repair can follow
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_reads: Option<bool>,
    /// Where data lives: `logging`, `split-stream`, `redirect` or `checkpointing`. Changes at once;
    /// what follows from that is done in the background, and the past stays what it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Which writes are retained from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "1s")]
    pub granularity: Option<Granularity>,
    /// How far back the past can be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<SpanInput>,
    /// How many bytes of history may be kept; null takes the limit away.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_of")]
    #[schema(value_type = Option<SizeInput>)]
    pub history_limit: Option<Option<SizeInput>>,
    /// For how long what a smaller window or history limit takes away is kept; a day unless told
    /// otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<SpanInput>,
    /// How versions of blocks that were written over are kept from now on: `raw`, `delta` or `xor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// How long ago a version was written over before it is encoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encode_after: Option<SpanInput>,
    /// Whether equal blocks are stored once. Shared blocks stay shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup: Option<bool>,
    /// A hook of the server's configuration around captures that name none; null (or `none`) takes
    /// it away.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_of")]
    #[schema(value_type = Option<String>)]
    pub hook: Option<Option<String>>,
}
