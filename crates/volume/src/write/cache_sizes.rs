//! The memory of all caches of a pool: who gets how much, and what is refused.
//!
//! All together have at most half of the pool's memory; what they take is taken from the pages of
//! maps. Where they were promised more, each gets a share.

use std::sync::Arc;

use units::{BLOCK_BYTES, Size};

use crate::pool::volumes::Volumes;
use crate::types::{Architecture, CacheChange, CacheInfo, CacheSetting};
use crate::volume::Volume;
use crate::write::Writer;
use crate::write::cache::Limits;
use crate::{Error, Result};

/// The smallest cache, in bytes.
const CACHE_BYTES_MIN: u64 = 64 << 10;
/// The cache of an architecture that needs one, unless another size is given.
const CACHE_BYTES_DEFAULT: u64 = 64 << 20;
/// How much of a cache may wait to be written, unless another share is given (Laden 4.2).
const DIRTY_PERCENT_DEFAULT: u8 = 3;

/// The setting that a volume's cache shall have: `before` is the old one.
///
/// # Errors
/// `Invalid` where the architecture does not allow it.
pub fn setting(
    architecture: Architecture,
    before: Option<CacheSetting>,
    change: CacheChange,
) -> Result<Option<CacheSetting>> {
    let default = architecture.needs_cache().then_some(CACHE_BYTES_DEFAULT);
    let CacheChange { bytes, dirty_percent } = change;
    let wanted = bytes.or(before.map(|b| b.bytes)).or(default).unwrap_or(0);
    let name = architecture.name();
    if wanted == 0 {
        if architecture.needs_cache() {
            return Err(Error::invalid(format!("{name} needs a cache"))
                .with_hint("give it one of some size, or take split-stream or logging"));
        }
        return match dirty_percent {
            None => Ok(None),
            Some(_) => Err(Error::invalid("there is no cache of which a part may be dirty")
                .with_hint("give the size of the cache as well")),
        };
    }
    if wanted < CACHE_BYTES_MIN {
        return Err(Error::invalid(format!("a cache of {wanted} bytes is too small"))
            .with_hint(format!("at least {}", Size(CACHE_BYTES_MIN))));
    }
    let dirty_percent =
        dirty_percent.or(before.map(|b| b.dirty_percent)).unwrap_or(DIRTY_PERCENT_DEFAULT);
    if !(1..=100).contains(&dirty_percent) {
        return Err(Error::invalid(format!("{dirty_percent} percent of a cache cannot be dirty"))
            .with_hint("1 to 100; 3 unless given"));
    }
    Ok(Some(CacheSetting { bytes: wanted, dirty_percent }))
}

impl Volumes {
    /// Memory that all caches may have together.
    fn caches_bytes_max(&self) -> u64 {
        self.memory_bytes() / 2
    }

    /// Fails unless a cache fits the memory by itself, and with the smallest share of it beside
    /// those of all volumes but `but`. The caller has the books, so that nobody else is given the
    /// same memory.
    ///
    /// # Errors
    /// `Invalid` with what is possible.
    pub(crate) fn check_cache(&self, wanted: Option<CacheSetting>, but: Option<u64>) -> Result<()> {
        let Some(wanted) = wanted else { return Ok(()) };
        let most = self.caches_bytes_max();
        let memory = Size(self.memory_bytes());
        if wanted.bytes > most {
            let text = format!(
                "a cache of {} does not fit: caches have at most half of the pool's memory, \
                 which is {memory}",
                Size(wanted.bytes)
            );
            let hint = format!("at most {} here; or more --memory for the server", Size(most));
            return Err(Error::invalid(text).with_hint(hint));
        }
        let volumes = self.registry.served();
        let others = volumes.iter().filter(|volume| Some(volume.id) != but);
        let count = others.filter(|volume| volume.record.lock().cache.is_some()).count() as u64;
        if (count + 1).saturating_mul(CACHE_BYTES_MIN) > most {
            let text = format!("{count} caches are as many as there can be with memory {memory}");
            return Err(Error::invalid(text)
                .with_hint("switch one off, or give the server more with --memory"));
        }
        Ok(())
    }

    /// Gives every volume its cache, and the pages of maps what is left. The caller holds no lock
    /// but that of the work.
    pub(crate) fn share_memory(&self) {
        let _sharing = self.sharing.lock();
        for (volume, _) in self.in_trash() {
            // Waiting writes go out, and none is added.
            let setting = volume.record.lock().cache;
            setting.into_iter().for_each(|setting| volume.grant_cache(setting, CACHE_BYTES_MIN));
        }
        let volumes = self.registry.served();
        let wanted = |v: &Arc<Volume>| v.record.lock().cache;
        let total: u64 = volumes.iter().filter_map(|v| Some(wanted(v)?.bytes)).sum();
        let most = self.caches_bytes_max();
        let mut granted_bytes = 0;
        for volume in &volumes {
            let Some(setting) = wanted(volume) else { continue };
            let bytes = grant(setting.bytes, total, most);
            granted_bytes += bytes;
            volume.grant_cache(setting, bytes);
        }
        let pages = (self.memory_bytes() / 8 * 5).saturating_sub(granted_bytes);
        self.core.store.set_page_cache_bytes(usize::try_from(pages).unwrap_or(usize::MAX));
    }
}

/// The share of a cache of `bytes` where all want `total` and may have `most`.
fn grant(bytes: u64, total: u64, most: u64) -> u64 {
    if total <= most {
        return bytes;
    }
    let share = u128::from(bytes) * u128::from(most) / u128::from(total);
    u64::try_from(share).expect("less than the whole").max(CACHE_BYTES_MIN)
}

impl Writer {
    fn limits(&self, setting: CacheSetting, bytes: u64) -> Limits {
        let blocks = usize::try_from(bytes / BLOCK_BYTES).unwrap_or(usize::MAX);
        let dirty = blocks as u128 * u128::from(setting.dirty_percent) / 100;
        let dirty = usize::try_from(dirty).expect("a part of it").max(1);
        Limits { blocks, dirty, group: self.piece_bytes_max() / BLOCK_BYTES as usize }
    }

    /// Another size of a cache that is on, or the first.
    fn grant_cache(&self, setting: CacheSetting, bytes: u64) {
        let limits = self.limits(setting, bytes);
        let switched = self.log().with_gate(|gate| -> history::Result<()> {
            // Changed since it was asked: whoever did that shares the memory out after this.
            if self.record.lock().cache != Some(setting) {
                return Ok(());
            }
            if self.cache().is_on() {
                self.cache().set(Some(limits));
                return Ok(());
            }
            // Just made, just opened, or just switched on: writes went the other way until now.
            self.cache().hold();
            self.cache().set_granularity(self.granularity_now());
            self.cache().set(Some(limits));
            self.cache().remember_rewrites(self.architecture() == Architecture::Hybrid);
            self.cache().release(gate.last_seq(), gate.last_time());
            Ok(())
        });
        // A pool that refuses writes needs no cache.
        drop(switched);
    }

    /// Its cache, as it stands.
    pub(crate) fn cache_info(&self) -> Option<CacheInfo> {
        let setting = self.record.lock().cache?;
        let granted_bytes = self.cache().blocks_max() as u64 * BLOCK_BYTES;
        Some(CacheInfo { setting, granted_bytes, used: self.cache().told() })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use block::{BlockDevice, MediaDevice};
    use sim::{SimClock, SimEntropy, SimMedia};
    use units::WallTime;

    use crate::types::{CacheChange, CacheSetting, VolumeChange, VolumeSpec};
    use crate::{Machine, Pool, PoolFormat, PoolOptions, Volume};

    /// A volume with a cache of 1 MiB, and its pool.
    pub(crate) fn cached_volume() -> (Arc<Pool>, Arc<Volume>) {
        let media = Arc::new(SimMedia::new(64 << 20, 1));
        let device: Arc<dyn BlockDevice> = Arc::new(MediaDevice::new(media));
        let clock = Arc::new(SimClock::new(WallTime::from_nanos(1_795_255_200_000_000_000)));
        let machine = Machine { clock, entropy: Arc::new(SimEntropy::new(1)) };
        Pool::create(&device, &machine, &PoolFormat { zone_bytes: 1 << 20 }).expect("made");
        let options = PoolOptions { memory_bytes: 16 << 20 };
        let pool = Pool::open(device, machine, options).expect("opened");
        let spec = VolumeSpec {
            window_ns: 1 << 60,
            cache: CacheChange { bytes: Some(1 << 20), dirty_percent: None },
            ..VolumeSpec::new("v", 8 << 20)
        };
        let volume = pool.create_volume(&spec).expect("made");
        (pool, volume)
    }

    #[test]
    fn who_comes_late_with_memory_does_not_switch_on_what_was_switched_off() {
        let (_pool, volume) = cached_volume();
        assert!(volume.cache().is_on());
        let off = CacheChange { bytes: Some(0), dirty_percent: None };
        volume.change(&VolumeChange { cache: off, ..VolumeChange::default() }).expect("off");
        // Somebody who shares memory out had asked for the setting before.
        volume.grant_cache(CacheSetting { bytes: 1 << 20, dirty_percent: 3 }, 1 << 20);
        assert!(!volume.cache().is_on(), "it was switched off");
    }
}
