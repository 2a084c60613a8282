//! The answers of the server. Sizes in bytes, times RFC 3339 in UTC with nanoseconds, seqs
//! integers.
//!
//! The server fills these, the command line and other clients read them; fields may be added, so a
//! reader ignores those it does not know.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::space::{Growth, Sacrifice};
use crate::{Granularity, SensitivityName, SpanInput, Stamp, Time, Would};

/// A moment expression, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Resolved {
    /// The seq whose state it is.
    pub seq: u64,
    /// The time of that seq.
    pub time: Time,
    /// Whether that is the very moment asked for; if not, it is the last retained one before it.
    pub exact: bool,
}

/// A volume as it stands.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Bytes; of a share its address space, which says nothing of what it may come to hold.
    pub size: u64,
    /// Whether it is a share: its blocks are those of a file tree, and nothing serves it as a disk.
    #[serde(default)]
    pub share: bool,
    /// Something to know of what was asked for: in answers to a creation or a growth, where the
    /// volumes together may come to hold more than the pool can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Where data lives: `logging`, `split-stream`, `split-downstream`, `redirect`,
    /// `checkpointing` or `hybrid`.
    pub architecture: String,
    /// Which writes are retained.
    #[schema(value_type = String, example = "every-write")]
    pub granularity: Granularity,
    /// Bytes of a map extent: the unit in which the volume's map keeps entries.
    pub extent: u64,
    /// Bytes of a copy unit: the first write to one after a capture takes along what the capture
    /// shares of it with the present.
    #[serde(default)]
    pub copy_unit: u64,
    /// The newest capture's copies, of `redirect` and `checkpointing` at `on-demand`. Only in the
    /// answer to a GET of the volume; null without a capture, and where so much was written since
    /// that counting takes long, or the map cannot be read.
    #[serde(default)]
    pub copies: Option<Copies>,
    /// How far back the past can be opened.
    #[schema(value_type = String, example = "1d")]
    pub window: SpanInput,
    /// How many bytes of history may be kept; null is as many as the pool holds.
    pub history_limit: Option<u64>,
    /// How far back the past can be opened now, to the second.
    #[schema(value_type = String, example = "23h")]
    pub window_held: SpanInput,
    /// Whether that is all of the window, or everything since the volume was made. It is not after
    /// the history limit or a full pool took some of it, and while a larger window is filling.
    #[serde(default)]
    pub window_kept: bool,
    /// The settings before a smaller window or history limit, while they are kept; null otherwise.
    #[serde(default)]
    pub grace: Option<Grace>,
    /// `online`, or `refusing-writes` after a failed write or flush.
    pub state: String,
    /// The best NBD address of the present for a client on this machine; null without listeners.
    pub nbd_uri: Option<String>,
    /// The NBD address over TCP; null when that listener is off.
    pub nbd_tcp_uri: Option<String>,
    /// The name of the iSCSI target that is the present; null when iSCSI is off, or the volume's
    /// name too long for one.
    #[serde(default)]
    pub iscsi_name: Option<String>,
    /// The same target for clients that take a URL, on this machine.
    #[serde(default)]
    pub iscsi_uri: Option<String>,
    /// Clients attached to the present.
    pub clients: u64,
    /// Bytes of the present that are stored (holes excluded).
    pub live_bytes: u64,
    /// Whether `live_bytes` was counted; else it is an upper bound until the map is merged, and
    /// `history_bytes` a lower one.
    #[serde(default)]
    pub live_exact: bool,
    /// Bytes kept only for the past.
    pub history_bytes: u64,
    /// Bytes of history that stay because of versions, pinned marks, views and clones.
    pub pinned_bytes: u64,
    /// The hook around captures that name none; null without one.
    #[serde(default)]
    pub hook: Option<String>,
    /// Whether the server's configuration has that hook. If it does not, captures are made all the
    /// same, and say `quiesce-failed`.
    #[serde(default)]
    pub hook_known: bool,
    /// How soon the watch over it gives an alarm; not there where nothing watches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<SensitivityName>,
    /// The oldest moment that can be opened by time.
    pub oldest: Stamp,
    /// The present.
    pub latest: Stamp,
    /// When it was made.
    pub created: Time,
    /// The origin that it was cloned from.
    pub cloned_from: Option<ClonedFrom>,
    /// From when on it may go by itself, if it is a scratch clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_until: Option<Time>,
    /// Bytes some of which may not be in place yet, where the architecture wants them: after a
    /// revert or a crash, and with a base until they come home. Reads are right meanwhile.
    #[serde(default)]
    pub unplaced_bytes: u64,
    /// Of `hybrid`: bytes whose places wait until their granularity window is over, since they will
    /// rather be written again by then. The log answers meanwhile.
    #[serde(default)]
    pub deferred_bytes: u64,
    /// Seconds by which the time of its last write is ahead of the server's clock: it was written
    /// under a clock that was wrong, or the clock is now.
    #[serde(default)]
    pub time_ahead_seconds: u64,
    /// The change of architecture that is under way; null without one.
    #[serde(default)]
    pub conversion: Option<Conversion>,
    /// The file that it is still being imported from; null without one.
    #[serde(default)]
    pub import: Option<Import>,
    /// Whether the import that made it has not come to its end: it holds a part of the image.
    #[serde(default)]
    pub unfinished_import: bool,
    /// Its write-back cache; null without one.
    #[serde(default)]
    pub cache: Option<Cache>,
    /// How versions that were written over are kept.
    #[serde(default)]
    pub encoding: Encoding,
    /// Blocks of equal content that are stored once.
    #[serde(default)]
    pub dedup: Dedup,
    /// Bytes of blocks that lie in the volume's base, where the architecture has one.
    #[serde(default)]
    pub base_bytes: u64,
    /// How many versions there are.
    #[serde(default)]
    pub versions: u64,
    /// Device requests since the server started, by what they were for.
    #[serde(default)]
    pub device_io: Vec<DeviceIo>,
}

/// A volume's copies for its newest capture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Copies {
    /// The seq of that version or pinned mark.
    pub captured_seq: u64,
    /// Bytes of its blocks that are the present's no more.
    pub kept_bytes: u64,
    /// Of these, bytes of blocks that have other content now; the rest was taken along.
    pub changed_bytes: u64,
    /// Changed of kept bytes; null where nothing is kept.
    pub space_efficiency: Option<f64>,
}

/// History that is kept although a smaller window or history limit was set. Setting back what held
/// before loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Grace {
    /// Until when.
    pub until: Time,
    /// The window that history expires by until then.
    pub window: SpanInput,
    /// The history limit until then; null is none.
    pub history_limit: Option<u64>,
}

/// A change of architecture whose background work is not done. Reads are right meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Conversion {
    /// The architecture before.
    pub from: String,
    /// The architecture now.
    pub to: String,
    /// Bytes that are where they belong, of those that were not.
    pub done_bytes: u64,
    /// Bytes that were not, since the change or since the server started.
    pub total_bytes: u64,
}

/// A file that a volume began as and that is still being copied. Its bytes are read as they are
/// there; should it change, they cannot be read any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Import {
    /// Its path on the server's machine; empty for a caller who sees only some volumes.
    pub file: String,
    /// Bytes that the volume no longer needs it for. Counted anew when the server starts.
    pub done_bytes: u64,
    /// Its length in bytes.
    pub total_bytes: u64,
    /// Bytes that no checksum guards before they are copied.
    pub unverified_bytes: u64,
    /// The fault, or the reason why copying rests; null while all is well.
    pub trouble: Option<String>,
}

/// How the history of a volume is kept. Counters are since the server started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Encoding {
    /// `raw`, `delta` or `xor`.
    pub kind: String,
    /// How long ago a version was written over before it is encoded; null while it is `raw`.
    #[schema(value_type = Option<String>, example = "10min")]
    pub after: Option<SpanInput>,
    /// Bytes that encoded versions take.
    pub packed_bytes: u64,
    /// Bytes of the blocks that they are versions of.
    pub unpacked_bytes: u64,
    /// Bytes of packs for versions that are gone, kept until their packs are packed anew.
    #[serde(default)]
    pub shadow_bytes: u64,
    /// Versions that were encoded, or encoded anew with others.
    pub encoded: u64,
    /// Versions that would not have become much smaller, and were left as they are.
    pub left: u64,
    /// Packs that did not decode to what went in; their versions were left as they are.
    pub faults: u64,
}

impl Default for Encoding {
    fn default() -> Encoding {
        Encoding {
            kind: "raw".to_owned(),
            after: None,
            packed_bytes: 0,
            unpacked_bytes: 0,
            shadow_bytes: 0,
            encoded: 0,
            left: 0,
            faults: 0,
        }
    }
}

/// Blocks of equal content that are stored once, within the volume's own log. Blocks that several
/// volumes have in common are told of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Dedup {
    /// Whether equal blocks are looked for.
    pub on: bool,
    /// Bytes of blocks that are stored once for several versions.
    pub shared_bytes: u64,
    /// Bytes of those versions, had each a block of its own.
    pub named_bytes: u64,
}

/// A volume's write-back cache. Counters are since the server started, in blocks of 4 KiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cache {
    /// Bytes that were asked for.
    pub size: u64,
    /// Bytes that it has: less where the server was given less memory since.
    pub granted_bytes: u64,
    /// How much of it may wait to be written, in percent.
    pub dirty_percent: u8,
    /// Always true: a write that was acknowledged and not flushed is lost when the server dies.
    pub volatile: bool,
    /// Bytes that may wait to be written.
    pub dirty_limit_bytes: u64,
    /// Bytes that wait.
    pub dirty_bytes: u64,
    /// Bytes that are on the device as well.
    pub clean_bytes: u64,
    /// Blocks read from it.
    pub hits: u64,
    /// Blocks that were read and not in it.
    pub misses: u64,
    /// Blocks that were written again before they were destaged, and so never reached the device.
    pub absorbed: u64,
    /// Blocks that were destaged.
    pub destaged: u64,
}

/// Device requests of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceIo {
    /// `current-read` and `-write` (the present, in place), `history-` (the log), `journal-write`
    /// (the log on the way into place), `before-image-` (what leaves its place for the log before
    /// it is overwritten), `deferred-` (what `hybrid` puts in place after all), `copy-` (other
    /// blocks put elsewhere), `map-`, or `other`.
    pub kind: String,
    /// How many.
    pub requests: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// Where a clone started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClonedFrom {
    /// The volume.
    pub volume: String,
    /// The seq of that volume.
    pub seq: u64,
}

/// A captured, pinned moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// 0, 1, 2 ...; never used twice in a volume.
    pub number: u64,
    /// Its seq.
    pub seq: u64,
    /// Its time.
    pub time: Time,
    /// Free text.
    pub label: String,
    /// Bytes that differ from the version before it (for the first: from the empty volume).
    pub bytes_changed: u64,
    /// Whether that was counted; if not yet, or if that would take long, it is an upper bound.
    #[serde(default)]
    pub bytes_exact: bool,
    /// When the next version was captured; null for the newest.
    #[serde(default)]
    pub until: Option<Time>,
    /// How long that was after this one; null for the newest.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "1h")]
    pub span: Option<SpanInput>,
    /// `people` or `schedule`.
    #[serde(default)]
    pub made_by: String,
    /// `crash-consistent`, `quiesced` (by a hook) or `quiesce-failed`.
    #[serde(default)]
    pub consistency: String,
    /// How many files were open on it at the capture, if its hook told; null if it did not.
    #[serde(default)]
    pub open_files: Option<u64>,
    /// Why its hook failed: told once, in the answer to the call that captured it.
    #[serde(default)]
    pub hook_failure: Option<String>,
    /// How the volume keeps what only versions of this age need: `raw`, `delta` or `xor`.
    #[serde(default)]
    pub encoding: String,
    /// Volumes that were cloned from it; they keep its moment when it is deleted.
    #[serde(default)]
    pub clones: Vec<String>,
    /// Views that are open on it; they keep its moment while they are.
    #[serde(default)]
    pub views: u64,
    /// Whether it was compacted by hand, and some of it is packed.
    pub compacted: bool,
    /// The last request by hand: to compact or to uncompact it; null without one.
    #[serde(default)]
    pub job: Option<Job>,
}

/// Files that were open on a volume when a version was captured, as its hook told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenFiles {
    /// How many; null if the hook told nothing.
    pub count: Option<u64>,
    /// The first of them: at most 1000, and 64 KiB; control characters as escapes.
    pub paths: Vec<String>,
}

/// Work that goes on in the background because somebody asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// The volume and the number of the version, with a dot between them; or `scrub`.
    pub id: String,
    /// `compact`, `uncompact` or `scrub`.
    pub kind: String,
    /// The volume; empty for a scrub, which is of the pool.
    pub volume: String,
    /// The number of the version; 0 for a scrub.
    pub version: u64,
    /// `waiting`, `running`, `done`, or `stopped` (a scrub).
    pub state: String,
    /// How much of it is done.
    pub percent: u64,
    /// When it was asked for.
    pub asked: Time,
    /// Blocks of the version that were packed when it was done.
    pub packed: u64,
    /// Blocks of it that were not: those without a version beside them, and what does not pay.
    pub raw: u64,
}

/// The versions that were deleted, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeletedVersions {
    /// How many versions.
    pub count: u64,
    /// Whether this only says what would be done.
    pub dry_run: bool,
    /// The planned actions; empty once they are done.
    #[serde(default)]
    pub would: Vec<Would>,
}

/// A name for a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Mark {
    /// Its name.
    pub name: String,
    /// The seq it names.
    pub seq: u64,
    /// The time of that seq.
    pub time: Time,
    /// Whether the moment is kept however old it gets.
    pub pinned: bool,
    /// When the mark was made.
    pub created: Time,
}

/// The writes of one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bucket {
    /// Start of the interval.
    pub time: Time,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Flushes completed.
    pub flushes: u64,
}

/// Something that happened to a volume besides writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its seq.
    pub seq: u64,
    /// Its time.
    pub time: Time,
    /// `created`, `cloned`, `version`, `mark`, `revert`, `resize`, `proof` or
    /// `kept`: the moment before a command, where not every write is retained.
    pub kind: String,
    /// The label, the name, where the revert went.
    pub detail: String,
}

/// A page of a volume's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// Intervals in which something was written, ascending.
    pub buckets: Vec<Bucket>,
    /// Events in the range of the query, all of them on the first page.
    pub events: Vec<Event>,
    /// Give this as `next` for the following page; null at the end.
    pub next: Option<String>,
}

/// The effect of a revert, real or planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reverted {
    /// The present before it.
    pub from: Stamp,
    /// The moment made present.
    pub to: Stamp,
    /// Bytes that differ between the two.
    pub changed_bytes: u64,
    /// The seq of the revert itself; that of `from` when nothing was done.
    pub seq: u64,
    /// Whether this only says what would be done.
    pub dry_run: bool,
    /// The planned actions; empty once they are done.
    #[serde(default)]
    pub would: Vec<Would>,
    /// The moment to revert to for undoing this.
    #[schema(example = "seq:12345")]
    pub undo: String,
}

/// A byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Range {
    /// Byte offset.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// Writes that wait in memory, until they are written to a file or disk of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WriteBuffer {
    /// The path of the file or disk.
    pub path: String,
    /// `in-use`; `failed` after a write from it has; `off`: writes go to the page cache.
    pub state: String,
    /// Why it is off, or what failed.
    pub why: Option<String>,
    /// The file in memory that what waits is in.
    pub memory: Option<String>,
    /// Bytes of that.
    pub size_bytes: u64,
    /// Bytes of it in which something waits.
    pub waiting_bytes: u64,
}

/// The pool as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// Identity, 16 hex digits.
    pub id: String,
    /// `online` or `refusing-writes`.
    pub state: String,
    /// The stack of layers and devices, as one line.
    pub layers: String,
    /// Version of the on-disk format.
    pub format_version: u32,
    /// Version of the server.
    pub server_version: String,
    /// How many volumes there are.
    pub volumes: u64,
    /// Bytes of all zones.
    pub size_bytes: u64,
    /// Bytes of zones in use.
    pub used_bytes: u64,
    /// Bytes of zones that are free.
    pub free_bytes: u64,
    /// Bytes that new data can still take: less than what is free by a reserve, and by what the
    /// file system under a sparse pool file lacks.
    pub available_bytes: u64,
    /// Bytes that the volumes may come to hold, the history of none of them counted: their sizes,
    /// twice where the present is also in place.
    #[serde(default)]
    pub promised_bytes: u64,
    /// Of what data may take in all, how much is used, in percent.
    pub fill_percent: u64,
    /// The warning of things to come, from 75 percent on.
    pub warning: Option<String>,
    /// The level of that: 75, 85 or 95; 0 without a warning. It is left 3 percent below.
    #[serde(default)]
    pub warning_percent: u64,
    /// Bytes of the present of all volumes; what clones share counts for each.
    #[serde(default)]
    pub live_bytes: u64,
    /// Whether they were counted; else they are an upper bound.
    #[serde(default)]
    pub live_exact: bool,
    /// Bytes kept only for the past.
    #[serde(default)]
    pub history_bytes: u64,
    /// Of these: what versions, pinned marks, views, clones and reverts see.
    #[serde(default)]
    pub pinned_bytes: u64,
    /// Deleted volumes that can be had back.
    #[serde(default)]
    pub trash_volumes: u64,
    /// Bytes of their presents and histories; not among those of the volumes above.
    #[serde(default)]
    pub trash_bytes: u64,
    /// Bytes of blocks that are stored once for several volumes, and belong to none of them.
    #[serde(default)]
    pub common_bytes: u64,
    /// Bytes of the versions that these are stored for, had each a block of its own.
    #[serde(default)]
    pub common_named_bytes: u64,
    /// How fast `used_bytes` grow; null before that can be told.
    #[serde(default)]
    pub growth: Option<Growth>,
    /// How long what is available lasts if it goes on like this; null if it does not grow.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "12d")]
    pub full_in: Option<SpanInput>,
    /// The history that would be given up first when a write finds no room; null without any.
    #[serde(default)]
    pub next_sacrifice: Option<Sacrifice>,
    /// Bytes in used zones that reclamation would free now.
    pub reclaimable_bytes: u64,
    /// Bytes of log segments; with `current_bytes`, `map_bytes` and `catalogue_bytes` the sum of
    /// `used_bytes`.
    pub log_bytes: u64,
    /// Bytes of current stores.
    #[serde(default)]
    pub current_bytes: u64,
    /// Bytes of map runs.
    pub map_bytes: u64,
    /// Bytes of catalogue and superblocks.
    pub catalogue_bytes: u64,
    /// Map entries that are not yet in runs.
    pub pending_entries: u64,
    /// Blocks whose checksum did not match since the server started.
    pub checksum_errors: u64,
    /// Wrong reads since the server started, and how they ended.
    #[serde(default)]
    pub healed: Healed,
    /// The files or disks that the pool is made of, if it is made of several.
    #[serde(default)]
    pub members: Vec<Member>,
    /// Bytes that members which came back have still to get before they are in again.
    #[serde(default)]
    pub behind_bytes: u64,
    /// The scrub that is running, or the last one; null before the first.
    #[serde(default)]
    pub scrub: Option<Scrub>,
    /// How long after the beginning of a scrub the next one begins; null if none does by itself.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "30d")]
    pub scrub_every: Option<SpanInput>,
    /// Bytes a second that a scrub reads at most, of all copies; null if there is no limit.
    #[serde(default)]
    pub scrub_rate_bytes: Option<u64>,
    /// Bytes a second that a member gets at most which is brought up to date; null for no limit.
    #[serde(default)]
    pub rebuild_rate_bytes: Option<u64>,
    /// How writes to its files and disks wait in memory; one for each that is open.
    #[serde(default)]
    pub write_buffers: Vec<WriteBuffer>,
}

/// A look at every copy of everything that is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scrub {
    /// `running`, `done` or `stopped`.
    pub state: String,
    /// When it began.
    pub started: Time,
    /// When it ended; null while it runs.
    pub ended: Option<Time>,
    /// How much is done.
    pub progress_percent: u64,
    /// Bytes that were read, of all copies.
    pub read_bytes: u64,
    /// Ranges of which a copy was wrong or could not be read.
    pub wrong: u64,
    /// Of these: written again from a copy that was right.
    pub healed: u64,
    /// Of these: blocks that no copy had, written again from another version with the same bytes.
    #[serde(default)]
    pub repaired: u64,
    /// Of these: versions in packs that no copy had; readers get the bytes of another version.
    #[serde(default)]
    pub elsewhere: u64,
    /// Blocks and pages that are needed and wrong on every copy.
    pub lost: u64,
    /// The first of these, for people.
    pub losses: Vec<String>,
}

/// Ranges that were read and were not what their checksum says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Healed {
    /// Another copy was right, and was written over the wrong one.
    pub recovered: u64,
    /// Right when they were read again.
    pub transient: u64,
    /// Wrong on every copy: an error to whoever asked.
    pub unrecoverable: u64,
}

/// A file or disk of a pool that is made of several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Where it was found last.
    pub path: String,
    /// Its identity: 32 hex digits.
    pub id: String,
    /// `in`; `stale`: it gets what it missed; `out`: it failed or was not there; `spare`: it waits
    /// to take the place of one that is out; `copying`: a spare that gets all that a member has,
    /// and takes its place then.
    pub state: String,
    /// Whether it can be opened.
    pub present: bool,
    /// Bytes of it that the pool uses.
    pub size_bytes: u64,
    /// Requests that failed on it since the server started.
    pub errors: u64,
    /// Bytes read from it since then.
    pub read_bytes: u64,
    /// Bytes written to it since then.
    pub written_bytes: u64,
}

/// One line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// Position in the log; only rises.
    pub number: u64,
    /// When.
    pub time: Time,
    /// `volume-create`, `volume-delete`, `version-delete`, `revert`, `expire` ...
    pub action: String,
    /// The volume.
    pub volume: String,
    /// For people, with seqs and reasons.
    pub detail: String,
    /// The caller: `unix:1000 ann` over a unix socket, `token:nightly`, `pool-token` (the one in
    /// DIR/token), `cert:node3` over TLS. It is missing for the server's own acts, and in
    /// records of older servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// The address that the caller came from; none over a unix socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The same as `who`, for older clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
}
