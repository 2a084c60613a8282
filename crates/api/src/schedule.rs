//! Schedules of versions and their keep rules: what is asked, and what is answered.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::requests::some_of;
use crate::{SpanInput, Time, Would};

/// Which versions of a schedule stay, as restic's `forget` means it, in UTC; a rule of 0 is none,
/// and without any rule all stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Keep {
    /// The newest so many.
    pub last: u32,
    /// The newest of each of the last so many hours that have one.
    pub hourly: u32,
    /// The same of days.
    pub daily: u32,
    /// The same of ISO weeks.
    pub weekly: u32,
    /// The same of months.
    pub monthly: u32,
    /// The same of years.
    pub yearly: u32,
    /// Those not older than this before the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<SpanInput>,
}

/// Keep rules to set; those left out stay as they are, and 0 takes one away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetKeep {
    /// The newest so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u32>,
    /// The newest of each of the last so many hours that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hourly: Option<u32>,
    /// The same of days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily: Option<u32>,
    /// The same of ISO weeks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weekly: Option<u32>,
    /// The same of months.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monthly: Option<u32>,
    /// The same of years.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yearly: Option<u32>,
    /// Those not older than this before the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<SpanInput>,
}

impl SetKeep {
    fn is_nothing(&self) -> bool {
        *self == SetKeep::default()
    }
}

/// All rules, as they are to be.
impl From<Keep> for SetKeep {
    fn from(keep: Keep) -> SetKeep {
        SetKeep {
            last: Some(keep.last),
            hourly: Some(keep.hourly),
            daily: Some(keep.daily),
            weekly: Some(keep.weekly),
            monthly: Some(keep.monthly),
            yearly: Some(keep.yearly),
            within: Some(keep.within.unwrap_or(SpanInput(units::Span(0)))),
        }
    }
}

/// A schedule: `every` or `cron`, one of the two. Fields that are left out stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSchedule {
    /// The multiples of a span since 1970, at least `1s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<SpanInput>,
    /// A line of cron with five fields, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0 * * * *")]
    pub cron: Option<String>,
    /// Which of its versions stay.
    #[serde(default, skip_serializing_if = "SetKeep::is_nothing")]
    pub keep: SetKeep,
    /// The label of its versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// A hook of the server's configuration, around each capture: `none` is none at all, and null
    /// that which is set for the volume or group.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_of")]
    #[schema(value_type = Option<String>)]
    pub hook: Option<Option<String>>,
    /// A hook of the server's configuration whose `verify` looks at each of its versions; null for
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_of")]
    #[schema(value_type = Option<String>)]
    pub prove: Option<Option<String>>,
    /// Only say what would be done, and which versions would go.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// A schedule as it stands; counters since the server started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// The volume; null of a group's.
    pub volume: Option<String>,
    /// The group; null of a volume's. Fields about versions are about captures then.
    #[serde(default)]
    pub group: Option<String>,
    /// The span between captures; null with `cron`.
    pub every: Option<SpanInput>,
    /// A line of cron; null with `every`.
    pub cron: Option<String>,
    /// Which of its versions stay.
    pub keep: Keep,
    /// The label of its versions.
    pub label: String,
    /// The hook around each capture.
    #[serde(default)]
    pub hook: Option<String>,
    /// The hook whose check looks at its versions.
    #[serde(default)]
    pub prove: Option<String>,
    /// When it was set.
    pub set: Time,
    /// The next capture.
    pub next: Option<Time>,
    /// The number of its newest version.
    pub newest: Option<u64>,
    /// The clock's time when that was captured.
    pub newest_time: Option<Time>,
    /// Captures.
    pub captures: u64,
    /// Captures and prunings that failed.
    pub failures: u64,
    /// Versions that were pruned.
    pub pruned: u64,
    /// Why the last attempt failed; null if it did not.
    pub error: Option<String>,
    /// Whether this only says what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Where it was just set, or would be: its versions that no rule keeps now, and that go next.
    #[serde(default)]
    pub goes: Vec<Explained>,
    /// The planned actions on these; empty when it was no dry run.
    #[serde(default)]
    pub would: Vec<Would>,
}

/// Why a version stays or goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explained {
    /// Its number.
    pub number: u64,
    /// Its time: for a schedule's, what the clock said.
    pub time: Time,
    /// `people`, `schedule`, `group-schedule` (of a group that the volume is in), or
    /// `removed-schedule`. Only those of a schedule that there is are ever pruned.
    pub made_by: String,
    /// The rules that keep it with its place in each, such as `hourly 3/48`.
    pub rules: Vec<String>,
    /// Whether it stays for now.
    pub stays: bool,
    /// When it will go if the schedule goes on as it is; null if that is not known, or never.
    pub goes: Option<Time>,
}

/// Prune now.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyRetention {
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// The versions that were pruned, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pruned {
    /// Numbers of versions, or of captures of a group, ascending.
    pub versions: Vec<u64>,
    /// Whether this only says what would be done.
    pub dry_run: bool,
    /// The planned actions; empty once they are done.
    #[serde(default)]
    pub would: Vec<Would>,
}
