//! The order of locks: a thread that holds one waits only for those below it in this list.
//!
//! The list is all there is of the order: `ranked` holds the locks of the engine against it. Locks
//! that are not in it are inside one structure, and none of these is waited for under them (but for
//! the map, while a page table loads a page of it).

/// Where a lock stands, the outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The right to change what members a served pool has, and the file that names them.
    Members,
    /// The register of metrics, while the engine is asked for them.
    Metrics,
    /// The right to run schedules. Only ever tried.
    Schedules,
    /// The right to open a share, or to revert one.
    Shares,
    /// The right to change a share.
    ShareTurn,
    /// A share as it is for readers, who share it; held alone while a transaction is written.
    ShareGate,
    /// A volume's size is being changed; what is written for it may have to make room.
    Resizing,
    /// The right to do background work.
    Work,
    /// The scrub under way.
    Scrub,
    /// A volume's pins; several by the volume's id.
    Pins,
    /// The right to share memory out.
    Sharing,
    /// The right to destage a volume's cache.
    Destaging,
    /// The right to add slabs to a current store.
    Growing,
    /// A log; several by the volume's id. First its batches between seq and end, which a thread
    /// waits for that closes the gate or flushes; then its state, locked while the gate is closed.
    Log,
    /// The right to write down the events of members.
    MembersNoted,
    /// The pool's books: numbers given out, and the right to commit.
    Books,
    // From here on what is in memory; held for no longer than to look or to change it.
    /// Volumes by name.
    Volumes,
    /// Deleted volumes that are still there.
    Ghosts,
    /// Made iSCSI targets by name.
    Targets,
    /// Tokens by name and id.
    Tokens,
    /// Groups by name.
    Groups,
    /// Schedules of groups.
    GroupSchedules,
    /// A volume's schedule.
    Schedule,
    /// Searches for equal blocks.
    Dedup,
    /// Blocks that are still to come home.
    Destage,
    /// Timelines by id.
    Timelines,
    /// Files that are being imported.
    Sources,
    /// A volume's versions that are still to be counted.
    Counting,
    /// Compactions of versions that were asked for by hand.
    Compactions,
    /// Whether a conversion is under way.
    Conversion,
    /// The state of the encoding.
    Encoding,
    /// Places that wait for the end of a window.
    Deferred,
    /// Timelines that a reclamation has still to merge.
    Reclaiming,
    /// When a volume was reclaimed last.
    Pass,
    /// A volume's cache.
    Cache,
    /// A volume's present.
    Present,
    /// A volume's record.
    Record,
    /// Every opening that may hold map pages.
    Openings,
    /// Slabs of a current store.
    CurrentSlabs,
    /// Slabs of a base.
    BaseSlabs,
    /// Samples of the space in use.
    Samples,
    /// The last measured history of volumes.
    Measured,
    /// Figures of map runs.
    Figures,
    /// The report of a scrub.
    ScrubTold,
    /// Other short answers of a pool or a volume that nothing is asked under.
    Noted,
    /// How far copying from a file is.
    CopyProgress,
    /// The file that is copied from.
    CopyFile,
    /// Which pending entries of a timeline were counted.
    Newest,
    /// A timeline's parts.
    Timeline,
    /// Its pending entries.
    Pending,
    /// The file at a timeline.
    Outside,
    /// A volume's parts of its time index.
    TimeRuns,
    /// The superblock, and the zones that the catalogue is in: a commit that is being filled may
    /// need another zone, and much of the above may be held while it is.
    CatalogueFile,
    /// Zones that map runs are written to.
    MapZones,
    /// Free and occupied zones.
    Zones,
    /// Segments by number.
    Segments,
    /// Segments made ready ahead of need.
    Spares,
    /// Recordings of requests, by volume.
    Taps,
    // From here on those of devices, which know of none of the above: much of it may be held while
    // a device is asked.
    /// The right to make new members of an array ready.
    ArrayGrowing,
    /// The right to bring an array's members up to date.
    ArrayWork,
    /// The right to settle an array's parity and to take marks off.
    ArrayTidying,
    /// Those who write to an array, who share it.
    ArrayWriters,
    /// Layers, each before what it lies over; `block`'s `layers/order` numbers their locks.
    Layers,
    /// Labels that are being written and name a successor.
    Turning,
    /// An array's labels and maps.
    ArrayBook,
    /// Devices that wait to take a member's place.
    ArraySpares,
    /// The device in a member's place, and its successor.
    MemberPlace,
    /// Ranges that are copied to a successor, by their gates.
    Copying,
    /// A lock under which nothing is waited for.
    Leaf,
}
