//! Values that go in and out of pools and volumes.

mod access;
mod reservations;
mod settings;
mod share;
mod space;
mod stamp;

use std::sync::Arc;

use history::IoCount;
use serde::{Deserialize, Serialize};
use units::{MapExtent, Sensitivity, Seq, WallTime};

pub use access::{Access, AccessChange, Credential, Secret};
pub use reservations::{InitiatorPort, Registration, Reservation, ReservationKind, Reservations};
pub use settings::{
    Architecture, CacheChange, CacheSetting, Encoding, EncodingChange, EncodingSetting,
    Granularity, VolumeChange, VolumeSpec,
};
pub use share::{Allowed, Metadata, PastAccess, SHARE_BYTES, ShareChange, ShareSetting, Squash};
pub use space::{
    AgeBytes, DedupInfo, Growth, Holder, KeptFor, PoolSpace, PoolStatus, Sacrifice, VolumeSpace,
};
pub use stamp::Stamp;

/// Whether a value is the one that records say nothing about.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The content of a cache now, and its work since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Bytes that may wait to be written.
    pub dirty_limit_bytes: u64,
    /// Bytes that do.
    pub dirty_bytes: u64,
    /// Bytes that are on the device as well.
    pub clean_bytes: u64,
    /// Blocks read from it.
    pub hits: u64,
    /// Blocks that were read and not in it.
    pub misses: u64,
    /// Blocks that were written again before they were destaged, and so never were.
    pub absorbed: u64,
    /// Blocks that were destaged.
    pub destaged: u64,
}

/// A volume's cache as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheInfo {
    /// The request.
    pub setting: CacheSetting,
    /// Bytes that it got: less where the pool has been opened with less memory.
    pub granted_bytes: u64,
    /// Its content and its work.
    pub used: CacheUse,
}

/// The request for the data of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compaction {
    /// Packs blocks that were written over, whatever the volume's encoding and age.
    Compacted,
    /// It is taken out of packs, and stays raw.
    Uncompacted,
}

/// A compaction that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionInfo {
    /// The request.
    pub wish: Compaction,
    /// How far it is.
    pub state: CompactionState,
    /// When it was asked for.
    pub asked: WallTime,
    /// Blocks of the version that were packed when it was done.
    pub packed: u64,
    /// Blocks that were not: the present's, and what does not pay.
    pub raw: u64,
}

/// How far a compaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionState {
    /// It waits for a pass over the map.
    Waiting,
    /// So many map entries of all were gone over.
    Running {
        /// Gone over.
        passed: u64,
        /// Of so many.
        entries: u64,
    },
    /// All was gone over.
    Done,
}

/// A volume's encoding as it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodingInfo {
    /// The request; `None` is raw.
    pub setting: Option<EncodingSetting>,
    /// Bytes that encoded versions take.
    pub packed_bytes: u64,
    /// Bytes of the blocks that they are versions of.
    pub unpacked_bytes: u64,
    /// Bytes of packs for versions that are gone, kept until their packs are packed anew.
    pub shadow_bytes: u64,
    /// Versions that were packed since the pool was opened, some of them anew with others.
    pub packed: u64,
    /// Versions that a pack would not have made much smaller.
    pub left: u64,
    /// Packs that did not decode to what went in.
    pub faults: u64,
}

/// History that is kept although a smaller window or history limit was set: setting what held
/// before loses nothing. The record of a volume has it as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grace {
    /// Until when, in nanoseconds since 1970.
    pub until_ns: u64,
    /// The window that history expires by until then, in nanoseconds.
    pub window_ns: u64,
    /// The history limit until then.
    pub history_limit_bytes: Option<u64>,
}

/// A change of architecture whose background work is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversionInfo {
    /// The one before.
    pub from: Architecture,
    /// The one now.
    pub to: Architecture,
    /// Bytes that are where they belong, of those that were not.
    pub done_bytes: u64,
    /// Bytes that were not, since the change or since the pool was opened.
    pub total_bytes: u64,
}

/// A file that a volume shall begin as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportSpec {
    /// Its path, from the root on.
    pub file: String,
    /// Its bytes are the volume's, whatever they look like.
    pub as_raw: bool,
}

/// A file that a volume began as and that is still being copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportInfo {
    /// Its path.
    pub file: String,
    /// Bytes that the volume no longer needs it for.
    pub done_bytes: u64,
    /// Its length in bytes.
    pub total_bytes: u64,
    /// Bytes that are read from it as they are: nothing verifies them before they are copied.
    pub unverified_bytes: u64,
    /// Why what was not copied cannot be read, or why copying rests.
    pub trouble: Option<String>,
}

/// A moment expression, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The seq whose state it is.
    pub seq: Seq,
    /// The time of that seq.
    pub time: WallTime,
    /// Whether that is the very moment asked for.
    pub exact: bool,
}

/// The verdict of a check on a moment; the record of a volume has it as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The moment.
    pub seq: u64,
    /// Its time, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The hook that was the check.
    pub hook: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// When it was asked for, in nanoseconds since 1970.
    pub proved_ns: u64,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// How it ended, in words.
    pub said: String,
}

/// The verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The moment serves.
    Good,
    /// It does not.
    Bad,
    /// The check could not tell, or did not come to an end.
    Unknown,
}

units::names!(Verdict: Good "good", Bad "bad", Unknown "unknown");

/// A watch over what is written over on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchInfo {
    /// How soon it gives an alarm.
    pub sensitivity: Sensitivity,
    /// Its alarms, in the order in which they were given.
    pub alarms: Vec<Alarm>,
}

/// An alarm of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The mark at the moment before it began.
    pub mark: String,
    /// That moment.
    pub at: Stamp,
    /// When it was given.
    pub given: WallTime,
    /// The cause.
    pub kind: AlarmKind,
    /// Bytes of it that were found by then.
    pub bytes: u64,
    /// Whether the mark is there and holds the moment.
    pub is_held: bool,
}

/// The cause of an alarm of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlarmKind {
    /// Data was written over with what looks random, as encryption does.
    Scrambled,
    /// Data was written over with zeros, or trimmed.
    Wiped,
}

units::names!(AlarmKind: Scrambled "scrambled", Wiped "wiped");

/// A volume as it stands.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    /// Its number, which it keeps whatever it is called.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Bytes.
    pub size_bytes: u64,
    /// Where data lives.
    pub architecture: Architecture,
    /// Which writes are retained.
    pub granularity: Granularity,
    /// The unit in which its map keeps entries.
    pub extent: MapExtent,
    /// The copy unit, which the first write to it after a capture takes along.
    pub copy_unit: MapExtent,
    /// Whether each batch of its log is there whole or not at all.
    pub strict: bool,
    /// Nanoseconds.
    pub window_ns: u64,
    /// Bytes.
    pub history_limit_bytes: Option<u64>,
    /// How far back the past can be opened now, in nanoseconds.
    pub held_ns: u64,
    /// Whether that is the window, or everything since the volume was made.
    pub is_held: bool,
    /// The old settings, while they still hold.
    pub grace: Option<Grace>,
    /// `online`, or `refusing-writes` after a failed write or flush.
    pub state: &'static str,
    /// Bytes of the present that are stored (holes excluded).
    pub live_bytes: u64,
    /// Whether that is so; else it is an upper bound, until the map's runs are merged.
    pub live_exact: bool,
    /// Bytes kept only for the past.
    pub history_bytes: u64,
    /// Bytes of history that stay because of versions, pinned marks, views and clones.
    pub pinned_bytes: u64,
    /// The hook around captures that name none.
    pub hook: Option<String>,
    /// The oldest moment that can be opened by time.
    pub oldest: Stamp,
    /// The present.
    pub latest: Stamp,
    /// Its settings as a share, if it is one.
    pub share: Option<Arc<ShareSetting>>,
    /// When it was made.
    pub created: WallTime,
    /// The volume and seq it was cloned from.
    pub cloned_from: Option<(String, Seq)>,
    /// How soon the watch over it gives an alarm, if there is one.
    pub watch: Option<Sensitivity>,
    /// When that gave the last alarm.
    pub alarmed: Option<WallTime>,
    /// The newest moment that a check found good.
    pub proved_good: Option<WallTime>,
    /// From when on it may go by itself, if it is a scratch clone.
    pub scratch_until: Option<WallTime>,
    /// Counters since the pool was opened.
    pub counters: VolumeCounters,
    /// Bytes some of which may not be in place yet, or not at home, where they belong; reads are
    /// right meanwhile.
    pub unplaced_bytes: u64,
    /// Of `hybrid`: bytes of the present whose places wait until their granularity window is over.
    pub deferred_bytes: u64,
    /// By how much the time of the last write is ahead of the clock, in nanoseconds.
    pub time_ahead_ns: u64,
    /// The change of architecture under way.
    pub conversion: Option<ConversionInfo>,
    /// The file that is still being imported.
    pub import: Option<ImportInfo>,
    /// Its write-back cache. With one, what is acknowledged and not flushed is lost with the
    /// process.
    pub cache: Option<CacheInfo>,
    /// How its history is kept.
    pub encoding: EncodingInfo,
    /// The result of deduplication.
    pub dedup: DedupInfo,
    /// Bytes of blocks at home in the volume's base, of the present or of the past.
    pub base_bytes: u64,
    /// How many versions there are.
    pub versions: u64,
    /// Device requests since the pool was opened, by what they were for.
    pub device_io: Vec<IoCount>,
}

/// Counters of one volume since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeCounters {
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests (trims and zeroes included).
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes completed.
    pub flushes: u64,
    /// Blocks whose checksum did not match.
    pub checksum_errors: u64,
    /// Blocks that had rotted in place; the log answered.
    pub rotten_places: u64,
}

/// A captured, pinned moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// 0, 1, 2 ...; never used twice in a volume.
    pub number: u64,
    /// Its moment.
    pub stamp: Stamp,
    /// Free text.
    pub label: String,
    /// Bytes that differ from the version before it (for the first: from the empty volume).
    pub bytes_changed: u64,
    /// Whether that was counted; if not, it is an upper bound.
    pub bytes_exact: bool,
    /// When the next version was captured; `None` for the newest.
    pub until: Option<WallTime>,
    /// How many files were open on it, if a hook told.
    pub open_files: Option<u64>,
    /// Whether a schedule made it.
    pub is_scheduled: bool,
    /// How quiet the volume was.
    pub consistency: Consistency,
    /// How the volume keeps what only versions of this age need.
    pub encoding: Encoding,
    /// The request for it by hand.
    pub compaction: Option<CompactionInfo>,
    /// The others that need its moment.
    pub dependants: Dependants,
}

/// How quiet a volume was when a version of it was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Consistency {
    /// As after a power cut: nobody was told.
    #[default]
    CrashConsistent,
    /// The users of the volume were quiet.
    Quiesced,
    /// It was told to be, and could not, or not long enough.
    QuiesceFailed,
}

units::names!(
    Consistency: CrashConsistent "crash-consistent",
    Quiesced "quiesced",
    QuiesceFailed "quiesce-failed"
);

/// The others that need a moment besides the version on it: it stays for them when the version is
/// deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependants {
    /// Volumes that were cloned from it.
    pub clones: Vec<String>,
    /// Views that are open on it.
    pub views: usize,
}

/// Part of a list of versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionPage {
    /// Ascending by number.
    pub versions: Vec<Version>,
    /// The number at which to go on; `None` at the end.
    pub next: Option<u64>,
}

/// How a volume is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// How long it can be had back; a week if nothing is said, and not at all for 0.
    pub grace_ns: Option<u64>,
    /// Whether versions and pinned marks go with it.
    pub force: bool,
    /// Only say what would be deleted.
    pub dry_run: bool,
}

/// A volume that was deleted, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedVolume {
    /// Its number: several of one name may have been deleted.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Bytes of its present.
    pub size_bytes: u64,
    /// When it was deleted.
    pub deleted: WallTime,
    /// Until when it can be had back.
    pub until: WallTime,
    /// Bytes of the present that are stored.
    pub live_bytes: u64,
    /// Bytes kept only for the past.
    pub history_bytes: u64,
    /// Versions it has.
    pub versions: u64,
    /// Pinned marks it has.
    pub pinned_marks: u64,
}

/// A name for a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its name.
    pub name: String,
    /// Its moment.
    pub stamp: Stamp,
    /// Whether the moment is kept however old it gets.
    pub pinned: bool,
    /// When the mark was made.
    pub created: WallTime,
}

/// One write request.
#[derive(Clone, Copy, Debug)]
pub enum WriteOp<'a> {
    /// Store these bytes at this offset.
    Data {
        /// Byte offset.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Make this range read as zeros (trim and write-zeroes alike: a map entry, nothing stored).
    Zero {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length_bytes: u64,
    },
}

/// A run of bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Byte offset.
    pub offset: u64,
    /// Bytes.
    pub length_bytes: u64,
    /// Whether it is a hole (reads as zeros, takes no space).
    pub hole: bool,
}

/// A byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Byte offset.
    pub offset: u64,
    /// Bytes.
    pub length_bytes: u64,
}

/// Part of a diff.
#[derive(Clone, Debug, Default)]
pub struct DiffPage {
    /// Ranges (whole blocks, joined where adjacent, cut at the size) whose content differs,
    /// ascending.
    pub ranges: Vec<Range>,
    /// Offset at which to go on; `None` at the end.
    pub next_offset: Option<u64>,
}

/// The writes of one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Start of the interval.
    pub time: WallTime,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Flushes completed.
    pub flushes: u64,
}

/// Something that happened to a volume besides writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub stamp: Stamp,
    /// `created`, `cloned`, `version`, `mark`, `revert`, `resize`.
    pub kind: &'static str,
    /// For people: the label, the name, where the revert went.
    pub detail: String,
}

/// Part of a volume's history.
#[derive(Clone, Debug, Default)]
pub struct HistoryPage {
    /// Intervals in which something was written, ascending.
    pub buckets: Vec<Bucket>,
    /// Events in the range of the query (all of them on the first page).
    pub events: Vec<Event>,
    /// Time at which to go on; `None` at the end.
    pub next: Option<WallTime>,
}

/// The writes between two moments, in columns of equal length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineColumns {
    /// Where the first column begins.
    pub since: WallTime,
    /// Where the last one ends.
    pub until: WallTime,
    /// The seqs at the edges of columns: one more than there are columns.
    pub seqs: Vec<Seq>,
    /// Bytes written in each.
    pub bytes: Vec<u64>,
    /// Flushes completed in each.
    pub flushes: Vec<u64>,
    /// Events of the same range, ascending.
    pub events: Vec<Event>,
    /// Where the window begins.
    pub oldest: Stamp,
    /// The last write in the log.
    pub latest: Stamp,
}

/// How many blocks of each part of a volume differ between two moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heat {
    /// The moments.
    pub between: (Resolved, Resolved),
    /// Bytes of a part, but for the last, which may be shorter.
    pub cell_bytes: u64,
    /// Blocks that differ in each.
    pub blocks: Vec<u64>,
}

/// The effect of a revert, real or planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevertReport {
    /// The present before it; `revert --to seq:FROM` undoes it.
    pub from: Stamp,
    /// The moment made present.
    pub to: Stamp,
    /// Bytes that differ between the two (whole blocks).
    pub changed_bytes: u64,
    /// Whether that was counted; else it is an upper bound (so much was written in between).
    pub changed_exact: bool,
    /// The seq of the revert itself (`from` when nothing was done).
    pub seq: Seq,
}

/// One line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Position in the log; only rises.
    pub number: u64,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// `volume-create`, `volume-delete`, `version-delete`, `revert`, `expire` ...
    pub action: String,
    /// The volume.
    pub volume: String,
    /// For people, with seqs and reasons.
    pub detail: String,
    /// The caller as older programs named it; none of what this program writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The caller; `None` for the pool's own acts, and in records of older programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// The address that it called from, over TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// The things that a call may wait for by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// For nothing: it gives up.
    Never,
    /// For a device, a commit, and others' turns.
    Device,
    /// Also until room was made.
    Room,
}

/// How much background work to do in one step.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Stop after about this many bytes of device reads and writes.
    pub bytes: u64,
}

/// How a scrub is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubState {
    /// Under way; after a restart of the server too.
    Running,
    /// Everything was looked at.
    Done,
    /// Somebody stopped it.
    Stopped,
}

units::names!(ScrubState: Running "running", Done "done", Stopped "stopped");

/// The step of an opening after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SettlePhase {
    /// The catalogue does not hold together as it is read at first: other ways are tried.
    Catalogue,
    /// Parity is held against its data, where there is some.
    Agreement,
    /// All copies of what was in flight are looked at.
    #[default]
    Copies,
    /// The parity of it is computed where there is some, and the marks on it are taken back.
    Parity,
    /// Nothing is left to do.
    Done,
}

/// How far the opening of a pool on members is, and what it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settling {
    /// Its present work.
    pub phase: SettlePhase,
    /// Bytes of the regions that were in flight; 0 after a clean stop.
    pub unsettled_bytes: u64,
    /// Bytes that were read of all copies.
    pub read_bytes: u64,
    /// How much of what it is doing is done.
    pub percent: u64,
    /// How often the catalogue was tried in vain, and how often it may be.
    pub trials: (u64, u64),
    /// Ranges of which a copy was wrong.
    pub wrong: u64,
    /// Nanoseconds that it took before: the catalogue and the log.
    pub recovered_ns: u64,
    /// Nanoseconds that looking at copies took.
    pub copies_ns: u64,
    /// Nanoseconds that computing parity and taking marks back took.
    pub parity_ns: u64,
}
