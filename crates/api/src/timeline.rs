//! The past as a picture: what was written when in columns, where two moments differ; and the
//! server that tells it.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{Event, Resolved, Stamp, Time, Who};

/// A range, and the columns in which it is told.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TimelineQuery {
    /// From this moment; the oldest by default. One before the window's start is that.
    pub since: Option<String>,
    /// To this moment; the present by default.
    pub until: Option<String>,
    /// Columns: 1 to 4000, 800 by default.
    pub points: Option<usize>,
}

/// The writes by time. Of `n` columns edge `i` is `since + (until - since) * i / n`, and column `i`
/// is what was written after edge `i`, up to and at edge `i + 1`. Writes that wait in a write-back
/// cache are in none yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Timeline {
    /// Where the first column begins.
    pub since: Time,
    /// Where the last one ends.
    pub until: Time,
    /// The seqs at the edges, one more than there are columns.
    pub seqs: Vec<u64>,
    /// Bytes written in each column.
    pub bytes: Vec<u64>,
    /// Flushes completed in each column.
    pub flushes: Vec<u64>,
    /// The events of the range, ascending; null where there are more than 500.
    pub events: Option<Vec<Event>>,
    /// How many events of each kind each column has, where `events` is null; empty otherwise.
    pub event_counts: Vec<EventCount>,
    /// Where the window begins.
    pub oldest: Stamp,
    /// The last write.
    pub latest: Stamp,
}

/// The events of one kind in one column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventCount {
    /// The column, from 0 on.
    pub column: u64,
    /// As of an event.
    pub kind: String,
    /// How many.
    pub count: u64,
}

/// Two moments, and the parts in which their differences are counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HeatQuery {
    /// The earlier moment.
    pub from: String,
    /// The later moment; the present by default.
    pub to: Option<String>,
    /// Parts at most: 1 to 16384, 1024 by default.
    pub cells: Option<u64>,
}

/// Where two moments of a volume differ, by checksums alone: nothing is read but the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Heat {
    /// The first moment.
    pub from: Resolved,
    /// The second one.
    pub to: Resolved,
    /// Bytes of a part; the last may be shorter.
    pub cell_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks that differ in each part.
    pub blocks: Vec<u64>,
    /// Bytes of all blocks that differ.
    pub changed_bytes: u64,
}

/// The server, and where it listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Server {
    /// Its version.
    pub version: String,
    /// The time of its clock.
    pub time: Time,
    /// When it was started.
    pub started: Time,
    /// Where the web page is, and this API over TCP, for programs of the server's machine; missing
    /// when that listener is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    /// The unix socket of NBD; null when that listener is off.
    pub nbd_socket: Option<String>,
    /// The address of NBD over TCP.
    pub nbd: Option<String>,
    /// The address of iSCSI.
    pub iscsi: Option<String>,
    /// The addresses of NFS.
    pub nfs: Vec<String>,
    /// The caller, and its rights; not told by older servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<Who>,
    /// The hooks around captures that its configuration names.
    pub hooks: Vec<String>,
}
