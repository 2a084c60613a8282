//! What the simulator can do to a pool, one thing at a time.

use hindsight_volume::{Architecture, Compaction, Granularity, VolumeChange};
use units::Moment;

use crate::oracle::Change;

/// One step of a run.
#[derive(Clone, Debug)]
pub enum Action {
    /// Writes and zeroes; each as one op of one batch.
    Write(String, Vec<Change>),
    /// A flush.
    Flush(String),
    /// Compares a range of the present.
    Read(String, u64, usize),
    /// Opens a moment, compares it, and holds the view when told to.
    View(String, Moment, bool),
    /// Lets go of the oldest view that is held.
    DropView,
    /// Compares a diff of two seqs.
    Diff(String, u64, u64),
    /// Compares data and holes of the present.
    Extents(String),
    /// A new volume of so many bytes.
    Create(String, u64, Granularity, u64),
    /// A new volume that begins as a file: what the content is drawn from, and its length.
    Import(String, u64, u64, Granularity, u64),
    /// A clone: source, moment, new name.
    Clone(String, Moment, String),
    /// Deletes a volume.
    Delete(String),
    /// Deletes a volume into the trash, and takes it out again after half a minute.
    Bin(String),
    /// Captures a version.
    CreateVersion(String),
    /// Deletes one.
    DeleteVersion(String, u64),
    /// Captures volumes at one instant.
    CaptureTogether(Vec<String>),
    /// Deletes such a capture, whichever is drawn of those that there are.
    DeleteCapture(u64),
    /// Sets a schedule: volume, seconds, how many stay.
    Schedule(String, u64, u32),
    /// Sets the schedule of a group: its volumes, seconds, how many captures stay.
    ScheduleGroup(Vec<String>, u64, u32),
    /// Compacts or uncompacts one.
    Compact(String, u64, Compaction),
    /// Names a moment: volume, name, moment, pinned.
    CreateMark(String, String, Moment, bool),
    /// Deletes a mark.
    DeleteMark(String, String),
    /// Goes back.
    Revert(String, Moment),
    /// Changes the size.
    Resize(String, u64),
    /// Changes settings.
    Change(String, VolumeChange),
    /// Changes the architecture.
    Convert(String, Architecture),
    /// Background work of so many bytes.
    Step(u64),
    /// So many steps of background work of so many bytes each.
    Steps(u32, u64),
    /// Lets time pass on both clocks, in nanoseconds.
    Wait(u64),
    /// Sets the wall clock, in nanoseconds since 1970.
    JumpTo(u64),
    /// Closes the pool and opens it again.
    Restart,
    /// Closes the pool, throws its map away, builds it again from the log, and opens the pool.
    Rebuild,
    /// Ends the process without closing, at once or in the middle of a later action.
    Kill,
    /// Cuts the power at once.
    PowerCut,
    /// Halts the machine after so many more changes of the media.
    HaltAfter(u64),
    /// Arms an I/O error.
    Fault(sim::Op, u64),
    /// Limits the space of the media, or ends the limit.
    SpaceLimit(Option<u64>),
    /// Compares everything.
    CheckAll,
}

impl Action {
    /// The volume that it asks for a moment of, or changes otherwise than by writing.
    pub fn asks_about(&self) -> Option<&str> {
        match self {
            Action::View(name, ..)
            | Action::Diff(name, ..)
            | Action::Clone(name, ..)
            | Action::CreateVersion(name)
            | Action::CreateMark(name, ..)
            | Action::Revert(name, _)
            | Action::Resize(name, _)
            | Action::Change(name, _)
            | Action::Convert(name, _) => Some(name),
            _ => None,
        }
    }
}
