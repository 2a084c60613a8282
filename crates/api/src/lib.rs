//! The HTTP API as types, its OpenAPI document, and a client for it.
//!
//! Server and command line share these types, so that what one sends the other reads. The document
//! is generated from the server's handlers; a test there fails when the checked-in copy is stale.

mod client;
mod dry_run;
mod files;
mod group;
mod model;
mod operations;
mod problem;
mod rename;
mod requests;
mod scalar;
mod schedule;
mod shares;
mod space;
mod stamp;
mod targets;
mod timeline;
mod tokens;
mod trash;
mod types;
mod verification;
mod watch;

pub use client::{
    Client, ClientError, ClientTls, Distrust, Page, ServerAddress, TlsFileError, found,
};
pub use dry_run::Would;
pub use files::{
    ArchiveQuery, FileDiffQuery, FileDifference, FileEntry, FileQuery, ImportFilesQuery,
    ImportedFiles, RestoreFiles, RestoredFiles, TreeQuery, path_bytes, path_text,
};
pub use group::{
    ChangeGroup, CloneGroup, CreateGroup, Group, GroupReverted, GroupVersion, MemberResolved,
    MemberReverted, MemberVersion,
};
pub use model::{
    Advice, AdviceQuery, ArchitectureIos, Crossovers, DeviceIos, EngineIos, Forecast, Model,
    ModelQuery, Plan, Shares,
};
pub use operations::{
    DependentOperation, Operation, OperationsQuery, RepairChange, RepairShare, ShareRepair,
    VersionsOfQuery,
};
pub use problem::{ExitCode, PROBLEM_MEDIA_TYPE, Problem, ProblemKind};
pub use rename::{Rename, Renamed};
pub use requests::{
    AttachMember, AuditQuery, ChangePool, ChangeVolume, CreateClone, CreateMark, CreateVersion,
    CreateVolume, DiffQuery, ForceQuery, GrowPool, HistoryQuery, ImportVolume, ListQuery,
    MarkQuery, RangeQuery, RecordQuery, ReplaceMember, ResolveQuery, Revert, SetScrub, Spare,
};
pub use scalar::{SizeInput, SpanInput, Time};
pub use schedule::{ApplyRetention, Explained, Keep, Pruned, Schedule, SetKeep, SetSchedule};
pub use shares::{Allow, Allowed, ChangeShare, CreateShare, DenyQuery, Follower, Relay, Share};
pub use space::{AgeBytes, Growth, Holder, Sacrifice, VolumeSpace};
pub use stamp::Stamp;
pub use targets::{
    ChangeMadeTarget, ChangeTarget, ChapCredential, CreateTarget, IscsiAccess, IscsiRegistration,
    IscsiReservation, IscsiReservations, IscsiSession, IscsiTarget, MadeTarget, NewLun, TargetLun,
};
pub use timeline::{EventCount, Heat, HeatQuery, Server, Timeline, TimelineQuery};
pub use tokens::{AccessToken, CreateCode, CreateToken, Login, LoginCode, Pattern, RoleName, Who};
pub use trash::{DeleteQuery, DeletedVolume, DryRunQuery, Undelete};
pub use types::{
    AuditRecord, Bucket, Cache, ClonedFrom, Conversion, Copies, Dedup, DeletedVersions, DeviceIo,
    Encoding, Event, Grace, Healed, History, Import, Job, Mark, Member, OpenFiles, Pool, Range,
    Resolved, Reverted, Scrub, Version, Volume, WriteBuffer,
};
pub use units::Granularity;
pub use verification::{Verification, Verify};
pub use watch::{SensitivityName, SetWatch, Watch, WatchAlarm};

/// The OpenAPI 3.1 document of the API, as served at `/api/v1/openapi.json`.
pub const OPENAPI_JSON: &str = include_str!("../openapi.json");

/// The media type of a recorded trace.
pub const TRACE_MEDIA_TYPE: &str = "application/vnd.hindsight.trace";

/// The mark that a volume has while an image is imported into it that it was made for.
pub const UNFINISHED_IMPORT: &str = "unfinished-import";

/// Where the API begins.
pub const API_PREFIX: &str = "/api/v1";
