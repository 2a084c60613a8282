//! The layout of a pool on its device: making one, the superblock, and how many zones it has.

use std::sync::Arc;

use block::{BlockDevice, Purpose, Zones};
use format::FORMAT_VERSION;
use format::superblock::{COPY_OFFSETS, FEATURES_INCOMPATIBLE_KNOWN, Superblock};
use parking_lot::Mutex;

use crate::catalogue::{Catalogue, CatalogueMedia, write_superblock, write_superblock_twice};
use crate::pool::handle::Pool;
use crate::{Error, Machine, PoolFormat, Result};

/// Zones of the smallest pool.
const ZONES_MIN: u64 = 48;
/// Room kept for the catalogue to grow, in bytes.
const CATALOGUE_GROWTH_BYTES: u64 = 8 << 20;
/// The map of a pool that is full of blocks has less than one part in so many of it (22 bytes for
/// each), and a merge writes it beside the one that is there.
const MAP_SHARE: u32 = 150;

/// How many zones of `total` are kept for reclamation: 2 % for merges, of a large pool as much as a
/// map of all of it takes, and room for the catalogue, which grows by its own size at a time.
pub fn reserve_of(total: u32, zone_bytes: u64) -> u32 {
    let catalogue = u32::try_from(CATALOGUE_GROWTH_BYTES / zone_bytes).expect("few zones");
    (total / 50).clamp(6, 64.max(total / MAP_SHARE)) + catalogue.min(total / 4)
}

/// How many zones a pool on so many bytes can have.
pub fn zones_within(device_bytes: u64, zone_bytes: u64) -> u32 {
    u32::try_from(device_bytes / zone_bytes).unwrap_or(u32::MAX)
}

/// Reads the superblock: the newest sound copy.
///
/// # Errors
/// `Unusable` with what was found at each copy.
pub fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut best: Option<Superblock> = None;
    let mut found = Vec::new();
    for (copy, &offset) in COPY_OFFSETS.iter().enumerate() {
        let mut bytes = vec![0; format::PAGE_BYTES];
        if offset + bytes.len() as u64 > device.len_bytes() {
            found.push(format!("copy {copy}: beyond the end of the device"));
            continue;
        }
        // A device that lost a write has an older one, which is as sound: all of them are asked.
        for way in 0..device.copies(offset, bytes.len() as u64) {
            if let Err(e) = device.read_copy(way, offset, &mut bytes) {
                found.push(format!("copy {copy}: {e}"));
                continue;
            }
            match Superblock::decode(&bytes, copy) {
                Ok(superblock) => {
                    if best.as_ref().is_none_or(|b| b.generation < superblock.generation) {
                        best = Some(superblock);
                    }
                }
                Err(e) => found.push(format!("copy {copy}: {e}")),
            }
        }
    }
    let Some(superblock) = best else {
        let text = format!("{} holds no pool: {}", device.describe(), found.join("; "));
        return Err(Error::unusable(text));
    };
    if superblock.device_bytes > device.len_bytes() {
        let text = format!(
            "{} has {} bytes, but its pool was made on {}",
            device.describe(),
            device.len_bytes(),
            superblock.device_bytes
        );
        return Err(Error::unusable(text));
    }
    Ok(superblock)
}

impl Pool {
    /// Lets the pool on a device that became longer, and that nobody has open, use what is new.
    /// Returns the bytes that it used before, and after.
    ///
    /// # Errors
    /// `Unusable` when there is no pool, or one that this program may only read; the device's.
    pub fn grow(device: &Arc<dyn BlockDevice>) -> Result<(u64, u64)> {
        let mut superblock = read_superblock(&**device)?;
        if superblock.is_read_only_here() {
            return Err(Error::unusable("the pool has features that this program does not know"));
        }
        let before = superblock.device_bytes;
        let count = zones_within(device.len_bytes(), superblock.zone_bytes);
        superblock.device_bytes = u64::from(count) * superblock.zone_bytes;
        if superblock.device_bytes > before {
            // Both pairs of copies: none is left that says less.
            write_superblock_twice(&**device, &mut superblock)?;
        }
        Ok((before, superblock.device_bytes))
    }

    /// Lays out an empty pool on `device`.
    ///
    /// # Errors
    /// `Exists` when there is a pool already; `Invalid` sizes; the device's.
    pub fn create(
        device: &Arc<dyn BlockDevice>,
        machine: &Machine,
        format: &PoolFormat,
    ) -> Result<()> {
        let zone_bytes = format.zone_bytes;
        if !zone_bytes.is_power_of_two() || !((256 << 10)..=(32 << 20)).contains(&zone_bytes) {
            let text = format!("a zone cannot have {zone_bytes} bytes");
            return Err(Error::invalid(text).with_hint("a power of two from 256 KiB to 32 MiB"));
        }
        let count = device.len_bytes() / zone_bytes;
        if count < ZONES_MIN {
            let text = format!("{} is too small for a pool", device.describe());
            let least = format!("at least {} bytes", ZONES_MIN * zone_bytes);
            return Err(Error::invalid(text).with_hint(least));
        }
        if read_superblock(&**device).is_ok() {
            return Err(Error::exists(format!("{} holds a pool already", device.describe())));
        }
        let count = u32::try_from(count)
            .map_err(|_| Error::invalid("the device has too many zones; use larger ones"))?;
        let mut zones = Zones::new(count, 0);
        zones.occupy(0);
        let halves = [machine.entropy.next_u64(), machine.entropy.next_u64()];
        let superblock = Superblock {
            format_version: FORMAT_VERSION,
            features_compatible: 0,
            features_read_only: 0,
            features_incompatible: FEATURES_INCOMPATIBLE_KNOWN,
            pool_id: u128::from(halves[0]) << 64 | u128::from(halves[1]),
            generation: 1,
            zone_bytes,
            device_bytes: u64::from(count) * zone_bytes,
            created: machine.clock.wall(),
            secret: machine.entropy.next_u64(),
            catalogue_bytes: 0,
            catalogue_zones: Vec::new(),
        };
        device.allocate(0, zone_bytes)?;
        write_superblock(&**device, &superblock)?;
        let zones = Mutex::new(zones);
        let target = Arc::clone(device);
        let take_zone = Box::new(move || {
            let zone = zones
                .lock()
                .take_unbacked(Purpose::Reclaim)
                .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::StorageFull))?;
            target
                .allocate(u64::from(zone) * zone_bytes, zone_bytes)
                .map_err(std::io::Error::other)?;
            Ok(zone)
        });
        let media = CatalogueMedia::new(Arc::clone(device), superblock, take_zone);
        Catalogue::create(media).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::reserve_of;

    #[test]
    fn a_reserve_has_room_for_the_map_of_a_pool_that_is_full() {
        for zones in [50, 320, 9_600, 32_768, 1 << 20] {
            let reserve = u64::from(reserve_of(zones, 32 << 20));
            assert!(reserve * 4096 >= u64::from(zones) * 22, "{reserve} of {zones}");
        }
    }
}
