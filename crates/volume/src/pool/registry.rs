//! The volumes of a pool: those that are served, by name, and those that are not.
//!
//! Invariant: a volume is served or withdrawn under the books, as its record says. It is buried
//! once the commit that removed it is done.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use env::{Rank, RankedRwLock};

use crate::volume::Volume;

/// The volumes of a pool.
pub struct Registry {
    /// Those that are served, by name.
    served: RankedRwLock<BTreeMap<String, Arc<Volume>>>,
    /// Deleted ones: those in the trash, and those whose past a clone still needs, by id.
    ghosts: RankedRwLock<BTreeMap<u64, Arc<Volume>>>,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry {
            served: RankedRwLock::new(Rank::Volumes, BTreeMap::new()),
            ghosts: RankedRwLock::new(Rank::Ghosts, BTreeMap::new()),
        }
    }
}

impl Registry {
    /// Adds a volume, to those that are served or to the others.
    pub fn add(&self, volume: Arc<Volume>) {
        let before = match volume.is_served() {
            true => self.served.write().insert(volume.name().to_owned(), volume),
            false => self.ghosts.write().insert(volume.id, volume),
        };
        assert!(before.is_none(), "a name and a number are one volume's");
    }

    /// The volume that is served under a name.
    pub fn named(&self, name: &str) -> Option<Arc<Volume>> {
        self.served.read().get(name).cloned()
    }

    /// Those that are served, by name.
    pub fn served(&self) -> Vec<Arc<Volume>> {
        self.served.read().values().cloned().collect()
    }

    /// At most `limit` of those behind a name for which `is_wanted` holds.
    pub fn served_after(
        &self,
        name: &str,
        limit: usize,
        is_wanted: impl Fn(&Volume) -> bool,
    ) -> Vec<Arc<Volume>> {
        let served = self.served.read();
        let behind = served.range::<str, _>((Bound::Excluded(name), Bound::Unbounded));
        behind.map(|(_, volume)| volume).filter(|it| is_wanted(it)).take(limit).cloned().collect()
    }

    /// Their numbers; `None` while one is made or deleted.
    pub fn served_ids(&self) -> Option<Vec<u64>> {
        Some(self.served.try_read()?.values().map(|volume| volume.id).collect())
    }

    /// Those of these that are served, in the order that is given: that of locks is by id.
    pub fn by_ids(&self, ids: &[u64]) -> Vec<Arc<Volume>> {
        ids.iter().filter_map(|&id| self.by_id(id)).collect()
    }

    /// The one of this number that is served.
    pub fn by_id(&self, id: u64) -> Option<Arc<Volume>> {
        self.served.read().values().find(|volume| volume.id == id).cloned()
    }

    /// Those that are not served, by id.
    pub fn ghosts(&self) -> Vec<Arc<Volume>> {
        self.ghosts.read().values().cloned().collect()
    }

    /// Every volume, deleted ones that are still there included, by id. None is missing while it
    /// goes from one map into the other.
    pub fn all(&self) -> Vec<Arc<Volume>> {
        let served = self.served.read();
        let mut all: Vec<_> = served.values().cloned().collect();
        all.extend(self.ghosts.read().values().cloned());
        drop(served);
        all.sort_by_key(|v| v.id);
        all
    }

    /// A volume that was served under a name has another one now.
    pub fn rename(&self, before: &str, volume: &Arc<Volume>) {
        let mut served = self.served.write();
        let there = served.remove(before);
        assert!(there.is_some_and(|it| Arc::ptr_eq(&it, volume)), "{before} was its name");
        let other = served.insert(volume.name().to_owned(), Arc::clone(volume));
        assert!(other.is_none(), "a name is one volume's");
    }

    /// Takes a volume from those that are served to those that are not.
    pub fn withdraw(&self, volume: &Arc<Volume>) {
        let mut served = self.served.write();
        self.ghosts.write().insert(volume.id, Arc::clone(volume));
        served.remove(volume.name());
    }

    /// Takes a volume, under the name that it has now, to those that are served.
    pub fn serve_again(&self, volume: &Arc<Volume>) {
        let mut served = self.served.write();
        let other = served.insert(volume.name().to_owned(), Arc::clone(volume));
        assert!(other.is_none(), "a name is one volume's");
        assert!(self.ghosts.write().remove(&volume.id).is_some(), "it was not served");
    }

    /// Nothing is left of a volume that is not served.
    pub fn bury(&self, ghost: &Volume) {
        self.ghosts.write().remove(&ghost.id);
        ghost.set_buried();
    }

    /// Forgets one that is served, as if it were only being made.
    #[cfg(test)]
    pub fn forget(&self, name: &str) {
        self.served.write().remove(name);
    }
}
