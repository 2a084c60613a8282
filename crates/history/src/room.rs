//! Zones taken and given back, with their space on the device.
//!
//! A pool may be a sparse file on a file system that others fill. So a zone's space is reserved
//! before the zone is used, and some zones for reclamation are reserved ahead: when the device has
//! no more room, history can still be given up and things can still be deleted.
//!
//! Deliberately unaware of readers, segments and what a zone holds.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

use block::{DeviceErrorKind, Purpose, Zones};
use env::{Rank, RankedMutex};

use crate::pool_device::PoolDevice;
use crate::{Error, ErrorKind, Result};

/// Zones tried for space at opening, at most: those kept by an earlier opening are among the
/// lowest free ones, and asking for them again succeeds on a full device too.
const TRIED_MAX: usize = 256;
/// Bytes given back to the device at a time. It keeps writers of the same file waiting (a file
/// system drops the pages of a hole under the file's lock).
const PIECE_BYTES: u64 = 1 << 20;

/// The zones of a pool's device.
pub struct Room {
    pool_device: PoolDevice,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    zones: RankedMutex<Zones>,
    /// The device had no room for a zone when it was last asked.
    device_full: AtomicBool,
}

impl Deref for Room {
    type Target = PoolDevice;

    fn deref(&self) -> &PoolDevice {
        &self.pool_device
    }
}

impl Room {
    pub(crate) fn new(pool_device: PoolDevice, zone_bytes: u64, zones: Zones) -> Room {
        Room {
            pool_device,
            zone_bytes,
            zones: RankedMutex::new(Rank::Zones, zones),
            device_full: AtomicBool::new(false),
        }
    }

    /// The first byte of a zone on the device.
    pub fn zone_offset(&self, zone: u32) -> u64 {
        u64::from(zone) * self.zone_bytes
    }

    /// Has more zones from now on, the last so many of which are kept for reclamation. A take that
    /// failed before may succeed.
    pub fn extend_zones(&self, count: u32, reserve_count: u32) {
        self.zones.lock().extend(count, reserve_count);
    }

    /// Used, free and reserve zones. On a full device only those count as free that have their
    /// space.
    pub fn zone_counts(&self) -> (u32, u32, u32) {
        let zones = self.zones.lock();
        let used = zones.count() - zones.free_count();
        let free = if self.is_device_full() { zones.backed_count() } else { zones.free_count() };
        (used, free, zones.reserve_count())
    }

    /// Zones in all.
    pub fn zone_count(&self) -> u32 {
        self.zones.lock().count()
    }

    /// Whether the device had no room for a zone when it was last asked.
    pub fn is_device_full(&self) -> bool {
        self.device_full.load(Ordering::Acquire)
    }

    /// Whether more than half of the reserve for reclamation is free.
    pub fn has_half_of_reserve(&self) -> bool {
        self.zones.lock().has_half_of_reserve(self.is_device_full())
    }

    /// Takes a zone whose space is reserved on the device.
    ///
    /// # Errors
    /// `Full` when there is none for this purpose or the device has no room for it; those of the
    /// device.
    pub(crate) fn take_zone(&self, purpose: Purpose) -> Result<u32> {
        loop {
            let unbacked = {
                let mut zones = self.zones.lock();
                if let Some(zone) = zones.take_backed(purpose) {
                    let is_known = zones.is_known(zone);
                    drop(zones);
                    if !is_known {
                        self.reserve_again(zone);
                    }
                    return Ok(zone);
                }
                zones.take_unbacked(purpose)
            };
            let Some(zone) = unbacked else { break };
            if !self.back(zone)? {
                break;
            }
        }
        let kept = match purpose {
            Purpose::Data => None,
            Purpose::Reclaim => self.zones.lock().take_kept(),
        };
        kept.ok_or_else(|| {
            let text = if self.is_device_full() {
                "the file system or device under the pool is full"
            } else {
                "the pool has no free zone"
            };
            Error::new(ErrorKind::Full, text)
        })
    }

    /// Reserves the space of a zone once more that an earlier opening reserved: a write buffer
    /// takes only what it was told of. Where that cannot be, the zone is used without: a full XFS
    /// refuses it though the space is there.
    fn reserve_again(&self, zone: u32) {
        if self.device.allocate(self.zone_offset(zone), self.zone_bytes).is_ok() {
            self.zones.lock().note_known(zone);
        }
    }

    /// Reserves the space of a zone that was taken, and gives it back; false when the device is
    /// full.
    fn back(&self, zone: u32) -> Result<bool> {
        let backed = self.device.allocate(self.zone_offset(zone), self.zone_bytes);
        self.zones.lock().free(zone, backed.is_ok());
        match backed {
            Ok(()) => {
                self.device_full.store(false, Ordering::Release);
                Ok(true)
            }
            Err(e) if e.kind == DeviceErrorKind::Full => {
                self.device_full.store(true, Ordering::Release);
                Ok(false)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Reserves space for reclamation ahead of need, as far as there is room. A device that fails
    /// says so again when the space is needed.
    pub fn back_reserve(&self) {
        let mut refused = Vec::new();
        while refused.len() < TRIED_MAX {
            let zone = {
                let mut zones = self.zones.lock();
                if !zones.wants_backed() {
                    break;
                }
                zones.take_unbacked(Purpose::Reclaim)
            };
            let Some(zone) = zone else { break };
            match self.device.allocate(self.zone_offset(zone), self.zone_bytes) {
                Ok(()) => self.zones.lock().free(zone, true),
                Err(e) => {
                    if e.kind == DeviceErrorKind::Full {
                        self.device_full.store(true, Ordering::Release);
                    }
                    refused.push(zone);
                }
            }
        }
        let mut zones = self.zones.lock();
        refused.iter().for_each(|&zone| zones.free(zone, false));
    }

    /// Gives back a zone that was taken a moment ago, whether or not a write has failed since.
    pub(crate) fn free_unused(&self, zone: u32) {
        self.zones.lock().free(zone, true);
    }

    /// Frees a zone that no reader can know of. Its space stays reserved until it is used again or
    /// given back ([`Room::give_back`]). After a failure nothing is freed: whether the catalogue
    /// names the zone is not known, and what it names must stay reserved.
    pub fn free_zone(&self, zone: u32) {
        if !self.has_failed() {
            self.zones.lock().free(zone, true);
        }
    }

    /// Gives the space of free zones back to the device, about so many bytes of it, but for what is
    /// kept and spared; true when there is more. On a full device all of it is kept.
    pub fn give_back(&self, bytes_max: u64) -> bool {
        let mut given_bytes = 0;
        while given_bytes < bytes_max && !self.is_device_full() {
            match self.give_piece(true) {
                Some(bytes) => given_bytes += bytes,
                None => return false,
            }
        }
        !self.is_device_full() && self.zones.lock().has_giving()
    }

    /// Gives back what is spared as well: nothing will use it soon.
    pub fn give_back_spared(&self) {
        while !self.is_device_full() && self.give_piece(false).is_some() {}
    }

    /// Gives back one piece, and says how many bytes it had. The table is locked meanwhile: nobody
    /// takes the zone.
    fn give_piece(&self, spares: bool) -> Option<u64> {
        if self.has_failed() {
            return None;
        }
        let mut zones = self.zones.lock();
        let giving = zones.next_giving(spares)?;
        let bytes = PIECE_BYTES.min(self.zone_bytes - giving.given_bytes);
        // A device that cannot discard keeps the bytes; the zone is free all the same.
        let _ = self.device.discard(self.zone_offset(giving.zone) + giving.given_bytes, bytes);
        zones.gave(bytes, self.zone_bytes);
        Some(bytes)
    }
}
