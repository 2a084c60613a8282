//! The volumes of a pool, with the core and the memory that they share.

use std::collections::BTreeMap;
use std::sync::Arc;

use env::{Rank, RankedMutex};

use crate::catalogue::TargetRecord;
use crate::core::Core;
use crate::pool::registry::Registry;
use crate::pool::token_book::Tokens;
use crate::volume::Volume;
use crate::{Error, Result};

/// The volumes of a pool.
pub struct Volumes {
    pub(crate) core: Arc<Core>,
    pub(crate) registry: Registry,
    /// Bytes of memory for maps and caches.
    memory_bytes: u64,
    /// The right to share it out.
    pub(crate) sharing: RankedMutex<()>,
    /// Made targets by name; they change under the books.
    pub(crate) targets: RankedMutex<BTreeMap<String, TargetRecord>>,
    /// Tokens; they change under the books.
    pub(crate) tokens: RankedMutex<Tokens>,
}

/// The error of a name that no volume has.
#[must_use]
pub fn no_volume(name: &str) -> Error {
    Error::not_found(format!("there is no volume {name}"))
        .with_hint("`hindsight volume list` names them")
}

impl Volumes {
    /// None yet, over a core, with memory to share.
    pub fn new(core: Arc<Core>, memory_bytes: u64) -> Volumes {
        let sharing = RankedMutex::new(Rank::Sharing, ());
        let targets = RankedMutex::new(Rank::Targets, BTreeMap::new());
        let tokens = RankedMutex::new(Rank::Tokens, Tokens::default());
        Volumes { core, registry: Registry::default(), memory_bytes, sharing, targets, tokens }
    }

    /// Fails when a volume or a made target has this name: both are known as iSCSI targets by it.
    /// Under the books.
    pub(crate) fn check_unused(&self, name: &str) -> Result<()> {
        let what = match self.registry.named(name) {
            Some(_) => "a volume",
            None if self.targets.lock().contains_key(name) => "an iSCSI target",
            None => return Ok(()),
        };
        Err(Error::exists(format!("there is {what} {name} already")))
    }

    /// The volume with this name.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn volume(&self, name: &str) -> Result<Arc<Volume>> {
        self.registry.named(name).ok_or_else(|| no_volume(name))
    }

    /// Memory that it may use: caches have half of it.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// All volumes by name.
    #[must_use]
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        self.registry.served()
    }

    /// Refuses writes from now on, as after a failed write: what runs here is found to be broken.
    /// Reads go on; whoever waits to write is told.
    pub fn refuse_writes(&self) {
        self.core.store.fail();
        for volume in self.registry.all() {
            volume.log().wake();
        }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.core.is_closed() {
            return Err(Error::refused("the pool is closed"));
        }
        Ok(())
    }

    /// Bytes of zones in use, of free ones, and of those that new data can still take; cheap.
    #[must_use]
    pub fn room(&self) -> (u64, u64, u64) {
        let (used, free, reserve) = self.core.store.zone_counts();
        let bytes = |zones: u32| u64::from(zones) * self.core.store.zone_bytes;
        (bytes(used), bytes(free), bytes(free.saturating_sub(reserve)))
    }

    /// The level of the last warning that the pool gets full, in percent; 0 is none.
    #[must_use]
    pub fn warning_level(&self) -> u64 {
        self.core.books.lock().warning
    }

    /// Takes note of a level that was reached or left, in the audit log too.
    ///
    /// # Errors
    /// `Refused`.
    pub fn note_warning(&self, level: u64, detail: String) -> Result<()> {
        let mut tx = self.core.begin()?;
        let action = if level > tx.numbers.warning { "pool-warning" } else { "pool-warning-over" };
        tx.numbers.warning = level;
        tx.audit(action, "", detail)?;
        tx.commit().map(drop)
    }
}
