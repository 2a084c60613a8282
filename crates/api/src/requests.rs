//! The requests of clients: bodies and queries. Unknown fields are refused, so a typing mistake is
//! seen.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{Granularity, SizeInput, SpanInput};

/// A new volume.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// 1 to 128 characters of `A-Za-z0-9._-`, beginning with a letter or digit.
    pub name: String,
    /// Bytes: a multiple of 512, at least 4096, at most 4 PiB.
    pub size: SizeInput,
    /// `logging` (the default), `split-stream` (the present lies in place as well),
    /// `split-downstream` (the same, both written behind a cache), `redirect` (what has settled
    /// moves to a base in place), `checkpointing` (the present does), `hybrid` (as
    /// `split-downstream`, but what will rather be written again within its granularity window is
    /// put in place only if it was not), or `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// With `auto`: the volume whose clients show how this one will be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub like: Option<String>,
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
    /// Bytes of a map extent: 4096 (the default), 8192, 16384, 32768 or 65536.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extent: Option<SizeInput>,
    /// Bytes of a copy unit, as of an extent: what the first write to it after a capture takes
    /// along. More than 4096 is for `redirect` and `checkpointing` at `on-demand`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_unit: Option<SizeInput>,
    /// Bytes of a write-back cache; 0, the default but for `split-downstream` and `hybrid`: none.
    /// With one, writes that were not flushed are lost when the server dies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<SizeInput>,
    /// How much of the cache may wait to be written, in percent; 3 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_dirty_percent: Option<u8>,
    /// How versions that were written over are kept: `raw` (the default), `delta` or `xor` (TRAP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// How long ago a version was written over before it is encoded; 10 minutes by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encode_after: Option<SpanInput>,
    /// Whether equal blocks are stored once, within the volume and with its clones; false by
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup: Option<bool>,
}

/// A volume that begins as a file of the server's machine and is served at once: what was not
/// copied yet is read from the file. Only over the server's unix socket.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportVolume {
    /// Name of the new volume: 1 to 128 characters of `A-Za-z0-9._-`, beginning with a letter or
    /// digit.
    pub name: String,
    /// The file or block device: a path from the root on. Nobody may write to it until it is
    /// copied.
    pub file: String,
    /// `raw`: its bytes are the volume's, whatever they look like. Without it a file that looks
    /// like qcow2, VMDK or VHDX is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Where data lives, as for a new volume; `logging` by default. `auto` is not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Which writes are retained; `every-write` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "1s")]
    pub granularity: Option<Granularity>,
    /// How far back the past can be opened; 24 hours by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<SpanInput>,
}

/// Settings to change, one at least; those left out stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeVolume {
    /// A new size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<SizeInput>,
    /// Where data lives: `logging`, `split-stream`, `split-downstream`, `redirect`,
    /// `checkpointing` or `hybrid`. Changes at once; what follows from that is done in the
    /// background, and the past stays what it was.
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
    /// For how long what a smaller window or history limit takes away is kept: until then setting
    /// back what held before loses nothing. A day unless told otherwise; `0s` is not at all, and
    /// ends a grace period that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<SpanInput>,
    /// Bytes of the write-back cache; 0 switches it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<SizeInput>,
    /// How much of the cache may wait to be written, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_dirty_percent: Option<u8>,
    /// How versions that were written over are kept from now on: `raw`, `delta` or `xor`. Encoded
    /// versions stay encoded until they expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// How long ago a version was written over before it is encoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encode_after: Option<SpanInput>,
    /// Whether equal blocks are stored once. Shared blocks stay shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup: Option<bool>,
    /// Bytes of a copy unit; 4096 goes with a change to another architecture or granularity than
    /// those that may have a larger one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_unit: Option<SizeInput>,
    /// A hook of the server's configuration around captures that name none; null (or `none`) takes
    /// it away.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_of")]
    #[schema(value_type = Option<String>)]
    pub hook: Option<Option<String>>,
}

/// Tells `null` (`Some(None)`) from a field that is not there (`None`).
pub(crate) fn some_of<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// Another file or disk in the place of one that a pool is made of.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceMember {
    /// The member's path, as `GET /pool` shows it.
    pub member: String,
    /// The path of what takes its place: blank, or not there, then it is made as a sparse file.
    /// Relative to the pool's directory on the server.
    pub with: String,
}

/// Another file or disk beside those that a pool is made of.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachMember {
    /// The path of the new side: blank and as long at least; or not there, then it is made as a
    /// sparse file. Relative to the pool's directory on the server.
    pub with: String,
    /// A member of the pool's mirror, or its one file, as `GET /pool` shows it: to be sure that it
    /// is this pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

/// The parts by which a pool is to grow.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrowPool {
    /// Layers over new members, behind what there is: `mirror(c.img, d.img)`. These are blank, or
    /// not there, then they are made as sparse files. Relative to the pool's directory on the
    /// server. Without it a pool on one file or device grows by what that has become, or by `size`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add: Option<String>,
    /// The size of members that are made; without `add` that of the pool in its one file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<SizeInput>,
}

/// A file or disk that waits to take the place of one that fails.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Spare {
    /// Its path, relative to the pool's directory on the server. One that is added must be blank,
    /// or not there, then it is made as a sparse file.
    pub path: String,
}

/// A revert.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Revert {
    /// The moment to make present.
    pub to: String,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Go on although clients are attached: they are disconnected.
    #[serde(default)]
    pub force: bool,
}

/// A clone.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateClone {
    /// The name of the new volume; only a scratch clone gets one by itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The moment it starts at; the present by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Bytes of a map extent of the new volume; those of its origin by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extent: Option<SizeInput>,
    /// Whether the background copies all of it, so that it shares nothing in the end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
    /// A scratch clone: it goes by itself when this time is over and nobody has it open, when the
    /// pool is full, and with the server. Renamed, it stays. At most 7d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<SpanInput>,
}

/// A version of the present.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVersion {
    /// Free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// A hook of the server's configuration, around the capture: that which is set for the volume
    /// or group if none is named here, and none at all for `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
}

/// A mark.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateMark {
    /// Its name.
    pub name: String,
    /// The moment it names; the present by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Keep the moment however old it gets.
    #[serde(default)]
    pub pin: bool,
}

/// Go on although clients are attached.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ForceQuery {
    /// Go on although clients are attached; they are disconnected.
    #[serde(default)]
    pub force: bool,
}

/// Which moment.
#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ResolveQuery {
    /// A moment expression.
    #[param(example = "-5min")]
    pub at: String,
}

/// Which part of a history.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HistoryQuery {
    /// From this moment; the oldest by default.
    pub since: Option<String>,
    /// To this moment; the present by default.
    pub until: Option<String>,
    /// Length of an interval; `1s` by default.
    pub step: Option<String>,
    /// Intervals in a page: 1 to 10000, 1000 by default.
    pub limit: Option<usize>,
    /// The `next` of the page before.
    pub next: Option<String>,
}

/// A part of the audit log.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Entries in a page: 1 to 10000, which is the default.
    pub limit: Option<usize>,
    /// From the entry after this number on, or with `newest` from the one before it.
    pub next: Option<u64>,
    /// The newest entries first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub newest: bool,
}

/// How long a volume is recorded, at most.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RecordQuery {
    /// A span such as `60s`, at most `7d`; until the client leaves by default.
    #[serde(rename = "for")]
    #[param(rename = "for")]
    pub length: Option<String>,
    /// Bytes that the trace may have, such as `1GiB`; at least `4KiB`.
    pub limit: Option<String>,
}

/// Which part of a diff.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DiffQuery {
    /// One moment.
    pub from: String,
    /// The other; the present by default.
    pub to: Option<String>,
    /// The volume that the other is of, if it is another one: a clone, the origin, or a clone of
    /// that.
    pub to_volume: Option<String>,
    /// Ranges in a page: 1 to 65536, 65536 by default.
    pub limit: Option<usize>,
    /// The `next` in the Link header of the page before.
    pub next: Option<u64>,
}

/// Which part of a list.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Entries in a page: 1 to 10000, 10000 by default.
    pub limit: Option<usize>,
    /// The `next` in the Link header of the page before.
    pub next: Option<u64>,
}

/// Which versions.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RangeQuery {
    /// The first number.
    pub from: u64,
    /// The last number.
    pub to: u64,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Which mark.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MarkQuery {
    /// Its name.
    pub name: String,
}

/// Changes of how the pool is run, until the server is started again; settings that are not named
/// stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangePool {
    /// How many bytes a second a scrub reads at most, of all copies; null for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_of")]
    #[schema(value_type = Option<SizeInput>, example = "100MiB")]
    pub scrub_rate: Option<Option<SizeInput>>,
    /// How many bytes a second members get at most that are brought up to date; null for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_of")]
    #[schema(value_type = Option<SizeInput>, example = "100MiB")]
    pub rebuild_rate: Option<Option<SizeInput>>,
}

/// How often the pool is scrubbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetScrub {
    /// How long after the beginning of a scrub the next one begins, an hour at least; null for
    /// never. It has to be given: a body that was forgotten must not end all scrubs.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(value_type = Option<String>, example = "30d", required = true)]
    pub every: Option<SpanInput>,
}
