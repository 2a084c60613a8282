//! The records of the catalogue. Values are JSON, so that a pool can be explained by hand;
//! `docs/format/ catalogue.md` lists the tables. Segment records, of which there are many, are
//! fixed-width.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use units::{MapExtent, Role, Sensitivity};

use crate::retention::keep_rules::KeepRules;
use crate::types::{
    Access, AlarmKind, Architecture, CacheSetting, Compaction, Consistency, EncodingSetting, Grace,
    Granularity, Proof, Reservations, Secret, ShareSetting, is_default,
};

/// A volume, or what is left of a deleted one while a clone still needs its past.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeRecord {
    /// Its id, also its log's.
    pub id: u64,
    /// Its name; empty once deleted.
    pub name: String,
    /// Whether it was deleted.
    pub deleted: bool,
    /// Nanoseconds since 1970.
    pub created_ns: u64,
    /// The seq it began at (0, or the moment it was cloned from).
    pub created_seq: u64,
    /// Name and seq it was cloned from.
    pub cloned_from: Option<(String, u64)>,
    /// How far back the past can be opened.
    pub window_ns: u64,
    /// Bytes of history that may be kept.
    pub history_limit_bytes: Option<u64>,
    /// From which seq on which granularity holds; ascending, never empty.
    pub granularities: Vec<(u64, Granularity)>,
    /// From which seq on which size in bytes holds; ascending, never empty.
    pub sizes: Vec<(u64, u64)>,
    /// From which seq on which timeline is the volume; ascending, never empty.
    pub line: Vec<(u64, u64)>,
    /// Reverts and resizes in order.
    pub events: Vec<EventRecord>,
    /// The oldest seq that can be opened without a pin.
    pub horizon_seq: u64,
    /// Its time.
    pub horizon_ns: u64,
    /// The horizon at the last full merge.
    pub reclaimed_to: u64,
    /// All entries up to this seq are in runs.
    pub flushed_seq: u64,
    /// Time, bytes and flushes at `flushed_seq`.
    pub flushed_ns: u64,
    /// Bytes written up to `flushed_seq`.
    pub flushed_bytes_total: u64,
    /// Flushes up to `flushed_seq`.
    pub flushed_flushes_total: u64,
    /// Seqs (inclusive) lost in power cuts.
    pub voids: Vec<(u64, u64)>,
    /// The next version's number.
    pub next_version: u64,
    /// Where its data lives.
    #[serde(default, skip_serializing_if = "is_default")]
    pub architecture: Architecture,
    /// Ranges of slabs (first, end) in which everything was in place at a clean close; empty while
    /// the pool is open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placed: Vec<(u64, u64)>,
    /// Its write-back cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheSetting>,
    /// A change of architecture of which something is left to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversion: Option<ConversionRecord>,
    /// The unit in which its map keeps entries, in bytes.
    #[serde(default, skip_serializing_if = "MapExtent::is_block")]
    pub extent: MapExtent,
    /// The copy unit: the first write to one after a capture takes it along, in bytes.
    #[serde(default, skip_serializing_if = "MapExtent::is_block")]
    pub copy_unit: MapExtent,
    /// How its history is encoded; raw if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<EncodingSetting>,
    /// Equal blocks are stored once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dedup: bool,
    /// Entries of its runs that name blocks which several volumes share.
    #[serde(default, skip_serializing_if = "is_default")]
    pub common: u64,
    /// Bytes up to which there may be data beyond the size, that is to be cut off; 0 for none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub uncut: u64,
    /// Keeps for a while the history that a smaller window or history limit takes away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Grace>,
    /// The hook around its captures, unless another one is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// The access to it over iSCSI; everybody has it if nothing is said.
    #[serde(default, skip_serializing_if = "Access::is_open")]
    pub access: Access,
    /// Its persistent reservations, as far as they are to outlive the server.
    #[serde(default, skip_serializing_if = "Reservations::is_empty")]
    pub reservations: Reservations,
    /// It was deleted, and can be had back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trash: Option<TrashRecord>,
    /// It is a scratch clone, which goes by itself: from when on, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_until_ns: Option<u64>,
    /// The verdicts of checks on its moments, in the order in which they came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<Proof>,
    /// The watch over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchRecord>,
    /// Each batch of its log is there whole or not at all, and none without all before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// It is a share, with these settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "put_share", deserialize_with = "get_share")]
    pub share: Option<Arc<ShareSetting>>,
}

#[expect(clippy::ref_option, reason = "serde hands it so")]
fn put_share<S: Serializer>(
    share: &Option<Arc<ShareSetting>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    share.as_deref().serialize(serializer)
}

fn get_share<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Arc<ShareSetting>>, D::Error> {
    Ok(Option::deserialize(deserializer)?.map(Arc::new))
}

/// A volume that was deleted and can be had back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrashRecord {
    /// When it was deleted, in nanoseconds since 1970.
    pub deleted_ns: u64,
    /// When its grace period is over.
    pub until_ns: u64,
}

/// A watch over a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchRecord {
    /// How soon it gives an alarm.
    pub sensitivity: Sensitivity,
    /// Its alarms, in the order in which they were given: the first of all, and the newest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<AlarmRecord>,
}

/// An alarm of a watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlarmRecord {
    /// The mark at the moment before it began.
    pub mark: String,
    /// That moment.
    pub seq: u64,
    /// Its time, in nanoseconds since 1970.
    pub time_ns: u64,
    /// When the alarm was given, in nanoseconds since 1970.
    pub given_ns: u64,
    /// The cause.
    pub kind: AlarmKind,
    /// Bytes of it that were found by then.
    pub bytes: u64,
}

/// A change of architecture: what is left of it to do is told by slabs and map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConversionRecord {
    /// The architecture before.
    pub from: Architecture,
    /// When it was changed, in nanoseconds since 1970.
    pub since_ns: u64,
}

/// A revert or resize.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventRecord {
    /// The seq it took.
    pub seq: u64,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// `revert` or `resize`.
    pub kind: String,
    /// For people.
    pub detail: String,
}

/// A timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimelineRecord {
    /// Its id.
    pub id: u64,
    /// The volume whose log its writes are in.
    pub log: u64,
    /// Parent timeline and the last seq seen of it; or what is still being copied of it.
    pub parent: Option<(u64, u64)>,
    /// The file that has what nothing is known of here, until all of it was copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceRecord>,
}

/// A file that a volume began as and that is still being copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceRecord {
    /// Its path, from the root on.
    pub file: String,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// Its inode, or the number of a block device.
    pub inode: u64,
    /// When it was written last, in nanoseconds since 1970; 0 of a block device.
    pub modified_ns: i64,
    /// When it was last changed in any way, likewise.
    pub changed_ns: i64,
    /// Runs of what is copied from it have orders below this.
    pub orders_below: u64,
    /// It is no file, but the moment of the parent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moment: bool,
}

/// A run of map entries or of times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// Its id.
    pub id: u64,
    /// The timeline of a map run, the log of a time run.
    pub owner: u64,
    /// Order among the owner's runs: higher is newer.
    pub order: u64,
    /// Zone, first page and page count of each extent.
    pub extents: Vec<(u32, u32, u32)>,
    /// Entries in it.
    pub entries: u64,
}

/// A version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionRecord {
    /// Its seq.
    pub seq: u64,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Free text.
    pub label: String,
    /// Bytes that differ from the version before, once counted.
    pub bytes_changed: Option<u64>,
    /// The count is an upper bound.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_bound: bool,
    /// How quiet the volume was.
    #[serde(default, skip_serializing_if = "is_default")]
    pub consistency: Consistency,
    /// The schedule that made it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<ScheduledRecord>,
    /// How many files were open on it, if a hook told: they have a table of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
}

/// A version that was compacted or uncompacted by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompactionRecord {
    /// The request.
    pub wish: Compaction,
    /// When, in nanoseconds since 1970.
    pub asked_ns: u64,
    /// Whether all of it was gone over since.
    pub done: bool,
    /// Past blocks of the version that were packed then.
    pub packed: u64,
    /// Blocks that were not: the present's, and what does not pay.
    pub raw: u64,
}

/// Volumes that are captured together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupRecord {
    /// Its id; none is used twice.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Ids of its volumes, ascending.
    pub members: Vec<u64>,
    /// Nanoseconds since 1970.
    pub created_ns: u64,
    /// The next capture's number.
    pub next_version: u64,
    /// The hook around its captures, unless another one is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
}

/// The moment that a name came to mean when an iSCSI initiator first opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenedNameRecord {
    /// The volume's id; there need not be such a volume any more.
    pub volume: u64,
    /// The moment.
    pub seq: u64,
    /// The first start at which it could not be opened any more, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_ns: Option<u64>,
}

/// A made iSCSI target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetRecord {
    /// Its id; none is used twice.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Nanoseconds since 1970.
    pub created_ns: u64,
    /// Its units, ascending by number.
    pub units: Vec<UnitRecord>,
    /// Numbers of units that were taken out, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired: Vec<u16>,
    /// The access to it; everybody has it if nothing is said.
    #[serde(default, skip_serializing_if = "Access::is_open")]
    pub access: Access,
}

/// A unit of a made target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitRecord {
    /// Its number.
    pub number: u16,
    /// The volume.
    pub volume: u64,
    /// The moment of it; none is the present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// The letters by which it is found.
    pub id: String,
    /// SHA-256 of its secret, 64 hex digits.
    pub secret_sha256: String,
    /// Its rights.
    pub role: Role,
    /// Patterns of the names of volumes that it sees; none are all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// Nanoseconds since 1970.
    pub created_ns: u64,
    /// Its maker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
    /// When it is no longer good, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ns: Option<u64>,
    /// The secret by which it logs in over iSCSI (CHAP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<Secret>,
    /// The day of its last use, counted from 1970; 0 before the first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub used_day: u64,
}

/// A capture of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupVersionRecord {
    /// The clock's time, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Free text.
    pub label: String,
    /// How quiet the volumes were.
    #[serde(default, skip_serializing_if = "is_default")]
    pub consistency: Consistency,
    /// Volume ids and the numbers of their versions.
    pub versions: Vec<(u64, u64)>,
    /// The schedule of the group that made it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<ScheduledRecord>,
}

/// That a schedule made a version or a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduledRecord {
    /// Which schedule.
    pub schedule: u64,
    /// The clock's time, in nanoseconds since 1970: unlike the time of the version it can go back.
    pub made_ns: u64,
}

/// When a volume or a group is captured, and which of these versions stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleRecord {
    /// Its id; none is used twice.
    pub id: u64,
    /// Nanoseconds between captures; or else there is a cron line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ns: Option<u64>,
    /// A cron line, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Which versions stay.
    pub keep: KeepRules,
    /// The label of its versions.
    pub label: String,
    /// The hook around its captures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// The hook whose check looks at its versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prove: Option<String>,
    /// When it was set, in nanoseconds since 1970.
    pub set_ns: u64,
    /// Up to when it is done, in nanoseconds since 1970.
    pub done_ns: u64,
}

/// A mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MarkRecord {
    /// Its seq.
    pub seq: u64,
    /// Nanoseconds since 1970 of that seq.
    pub time_ns: u64,
    /// Whether it pins its moment.
    pub pinned: bool,
    /// When it was made.
    pub created_ns: u64,
}

/// A sealed or open segment, as of the last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRecord {
    /// Its zone.
    pub zone: u32,
    /// Bytes used.
    pub end: u32,
    /// Its log.
    pub log: u64,
    /// Its nonce.
    pub nonce: u64,
    /// Highest seq in it.
    pub last_seq: u64,
    /// Entries of runs that name it.
    pub live_entries: i64,
    /// Whether no more batches follow.
    pub sealed: bool,
    /// Versions packed into it, or names that its shared batches have; 0 for other segments.
    pub packed: u32,
    /// Whether its batches are shared.
    pub shared: bool,
}

impl SegmentRecord {
    /// Bytes of an encoded record.
    pub const BYTES: usize = 48;

    /// Little-endian, in the order of the fields.
    #[must_use]
    pub fn encode(&self) -> [u8; SegmentRecord::BYTES] {
        let flags = u64::from(self.sealed) | u64::from(self.shared) << 1;
        let words = [
            u64::from(self.zone) | u64::from(self.end) << 32,
            self.log,
            self.nonce,
            self.last_seq,
            self.live_entries as u64,
            flags | u64::from(self.packed) << 32,
        ];
        let mut bytes = [0; SegmentRecord::BYTES];
        bytes.copy_from_slice(words.map(u64::to_le_bytes).as_flattened());
        bytes
    }

    /// The record, if there are exactly so many bytes.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<SegmentRecord> {
        let (words, []) = bytes.as_chunks() else { return None };
        let words: &[[u8; 8]; 6] = words.try_into().ok()?;
        let [first, log, nonce, last_seq, live_entries, last] = words.map(u64::from_le_bytes);
        Some(SegmentRecord {
            zone: (first & 0xffff_ffff) as u32,
            end: (first >> 32) as u32,
            log,
            nonce,
            last_seq,
            live_entries: live_entries as i64,
            sealed: last & 1 != 0,
            shared: last & 2 != 0,
            packed: (last >> 32) as u32,
        })
    }
}

/// The part of a pool that a scrub is looking at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubPhase {
    /// Segments, in the order of their zones.
    #[default]
    Segments,
    /// Runs, in the order of their numbers.
    Runs,
    /// The catalogue.
    Catalogue,
    /// The parity, if all of its data was right or is again.
    Parity,
}

/// How far a scrub is, and what it has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubRecord {
    /// When it began.
    pub started_ns: u64,
    /// When it came to its end or was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
    /// It was stopped before its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// The part that it is looking at.
    pub phase: ScrubPhase,
    /// The zone, the run, the page of the catalogue, or the region of the array that comes next.
    pub next: u64,
    /// Bytes of the segment, or pages of the run, that it is done with.
    pub offset: u32,
    /// Bytes that were read, of all copies.
    pub read_bytes: u64,
    /// Ranges of which a copy was wrong.
    pub wrong: u64,
    /// Of these: written again from a copy that was right.
    pub healed: u64,
    /// Of these: blocks that no copy had, written again from another version.
    #[serde(default, skip_serializing_if = "is_default")]
    pub repaired: u64,
    /// Of these: versions in packs that no copy had and that readers have from another version.
    #[serde(default, skip_serializing_if = "is_default")]
    pub elsewhere: u64,
    /// Blocks and pages that are needed and wrong on every copy.
    pub lost: u64,
    /// The first of these, for people.
    pub losses: Vec<String>,
    /// Segments and ranges in them that the runs are to be asked about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspects: Vec<(u64, u32, u32)>,
}

/// How often there is a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubScheduleRecord {
    /// Nanoseconds from the beginning of one to that of the next.
    pub every_ns: u64,
    /// When that was set.
    pub set_ns: u64,
}

/// The space in use at some time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Bytes of zones in use.
    pub pool_bytes: u64,
    /// Volume ids and bytes of their logs that the map points to.
    pub volumes: Vec<(u64, u64)>,
    /// Volume ids and bytes of their history, as far as that was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<(u64, u64)>,
}
