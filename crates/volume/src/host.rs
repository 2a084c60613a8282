//! The pool, as the volumes in it and the catalogue's transactions see it: what they ask of it
//! without knowing it.

use std::sync::Arc;

use units::Seq;

use crate::Result;
use crate::names::VolumeName;
use crate::retention::explain::JudgedGroup;
use crate::retention::needed::Needed;
use crate::types::CacheSetting;

/// A request that found no room, from then on until it gets further.
#[derive(Debug, Default)]
pub struct RoomWait {
    pub(crate) since_ns: Option<u64>,
    pub(crate) tries: usize,
    /// Segments that had been made for writers when room was made for it last.
    pub(crate) made: u64,
}

/// A volume that is served.
pub struct Served {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: Arc<VolumeName>,
    /// The first timeline that its history is known of.
    pub first_timeline: Option<u64>,
}

/// The pool that volumes are in.
pub trait Host: Send + Sync {
    /// Does something with the right to do background work; nothing when `goes_on` says no before
    /// that is had.
    ///
    /// # Errors
    /// Those of the work.
    fn at_work(
        &self,
        goes_on: &dyn Fn() -> bool,
        work: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()>;

    /// Makes room for a request that found none, again and again as long as others take what was
    /// made: there is some, and it waits for it (back-pressure). False when it shall fail, also
    /// because `goes_on` says no.
    ///
    /// # Errors
    /// `Full` when nothing could be freed.
    fn wait_for_room(&self, wait: &mut RoomWait, goes_on: &dyn Fn() -> bool) -> Result<bool>;

    /// Makes room for a write that found none: reclaims what has expired, then sacrifices history,
    /// as long as `goes_on`.
    ///
    /// # Errors
    /// `Full` when nothing could be freed, or `goes_on` says no.
    fn make_room(&self, goes_on: &dyn Fn() -> bool) -> Result<()>;

    /// The moments of a timeline at or after `from` that can be opened.
    ///
    /// # Errors
    /// `Corrupt` or `Io`, from the time index of the timeline's own volume.
    fn needed(&self, timeline: u64, from: Seq) -> Result<Needed>;

    /// Fails unless a cache fits the memory by itself, and with the smallest share of it beside
    /// those of all volumes but `but`. A caller that has the books knows that nobody else is given
    /// the same memory.
    ///
    /// # Errors
    /// `Invalid` with what is possible.
    fn check_cache(&self, wanted: Option<CacheSetting>, but: Option<u64>) -> Result<()>;

    /// Gives every volume its cache, and the pages of maps what is left. The caller holds no lock
    /// but that of the work.
    fn share_memory(&self);

    /// The judgements of groups' schedules on the versions of a volume.
    fn judged_groups(&self, volume: u64) -> Vec<JudgedGroup>;

    /// The volumes that are served.
    fn served(&self) -> Vec<Served>;

    /// The numbers of those; `None` while one is made or deleted.
    fn served_ids(&self) -> Option<Vec<u64>>;
}
