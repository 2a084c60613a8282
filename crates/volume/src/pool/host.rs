//! The pool as the volumes in it see it.

use std::sync::Arc;

use units::Seq;

use crate::Result;
use crate::host::{Host, RoomWait, Served};
use crate::pool::Engine;
use crate::pool::volumes::Volumes;
use crate::retention::explain::JudgedGroup;
use crate::retention::groups::Groups;
use crate::retention::needed::Needed;
use crate::types::CacheSetting;
use crate::volume::Volume;

impl Host for Engine {
    fn at_work(
        &self,
        goes_on: &dyn Fn() -> bool,
        work: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        self.lock_work(goes_on).map_or(Ok(()), |_work| work())
    }

    fn wait_for_room(&self, wait: &mut RoomWait, goes_on: &dyn Fn() -> bool) -> Result<bool> {
        self.wait_for_room(wait, goes_on)
    }

    fn make_room(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        self.make_room(goes_on)
    }

    fn needed(&self, timeline: u64, from: Seq) -> Result<Needed> {
        Volumes::needed(self, timeline, from)
    }

    fn check_cache(&self, wanted: Option<CacheSetting>, but: Option<u64>) -> Result<()> {
        Volumes::check_cache(self, wanted, but)
    }

    fn share_memory(&self) {
        Volumes::share_memory(self);
    }

    fn judged_groups(&self, volume: u64) -> Vec<JudgedGroup> {
        Groups::judged_groups(self, volume)
    }

    fn served(&self) -> Vec<Served> {
        let told = |volume: &Arc<Volume>| Served {
            id: volume.id,
            name: Arc::clone(&volume.name),
            first_timeline: volume.record.lock().line.first().map(|&(_, timeline)| timeline),
        };
        self.registry.served().iter().map(told).collect()
    }

    fn served_ids(&self) -> Option<Vec<u64>> {
        self.registry.served_ids()
    }
}
