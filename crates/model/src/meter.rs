//! Measuring temporal distances: for each write, how long until the same extent is written again.
//!
//! 1. At most `entries_max` extents are remembered. When there are more, the share of extents that
//!    are looked at halves (those whose hash is below a falling threshold), and each pair counts
//!    for as many as stand behind it.
//! 2. Which extents are looked at depends on their addresses alone, so long and short distances are
//!    kept alike.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use super::histogram::Histogram;
use super::places::{self, Places};
use super::profile::{Counts, Distances, GROUPS, Profile, Together};
use crate::error::{Error, ErrorKind, Result};
use crate::{Request, RequestKind};

/// Extents that are remembered unless told otherwise: about 200 MiB while the table grows,
/// and exact for 16 GiB of different blocks written.
pub const ENTRIES_MAX_DEFAULT: usize = 4 << 20;
const EXTENT_BYTES_MIN: u64 = 512;
const EXTENT_BYTES_MAX: u64 = 1 << 20;
/// Extents that a device can have, so that device and extent fit in a key.
const EXTENTS_MAX: u64 = 1 << 48;
/// A longer write is no request that a device was asked for.
const WRITE_BYTES_MAX: u64 = 1 << 32;
/// The engine empties its cache when nobody wrote for so long (`volume/write/write_back`).
const PAUSE_NS: u64 = 5_000_000_000;
/// Bits of a time, which shares a word with a class: four years.
const TIME_BITS: u32 = 57;

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct MeterSettings {
    /// Bytes of an extent: a power of two, 512 B to 1 MiB.
    pub extent_bytes: u64,
    /// Extents that are remembered.
    pub entries_max: usize,
}

impl Default for MeterSettings {
    fn default() -> MeterSettings {
        MeterSettings { extent_bytes: 4096, entries_max: ENTRIES_MAX_DEFAULT }
    }
}

/// Keys are mixed already; the table's tags and places need bits that the threshold leaves free.
#[derive(Clone, Default)]
pub struct Mixed(u64);

/// The state of tables whose keys come from [`mix`].
pub type MixedState = BuildHasherDefault<Mixed>;

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are integers");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

/// The time of an extent's last write, and the class of the distances between its writes.
#[derive(Clone, Copy, Debug)]
struct LastWrite(u64);

impl LastWrite {
    fn new(time_ns: u64, class: u8) -> LastWrite {
        LastWrite(time_ns | u64::from(class) << TIME_BITS)
    }

    fn time_ns(self) -> u64 {
        self.0 & ((1 << TIME_BITS) - 1)
    }

    fn class(self) -> u8 {
        (self.0 >> TIME_BITS) as u8
    }
}

/// How far a device was used, and where its streams are.
#[derive(Clone, Copy, Debug, Default)]
struct Device {
    span_bytes: u64,
    read_end_bytes: u64,
    write_end_bytes: u64,
    written_ns: Option<u64>,
    /// When the engine's cache was emptied last: what was written until then is not in it.
    emptied_ns: Option<u64>,
}

/// Measures a workload, request by request.
#[derive(Clone)]
pub struct Meter {
    settings: MeterSettings,
    /// Of each extent, the time of its last write and the class of its distances.
    last_writes: HashMap<u64, LastWrite, MixedState>,
    /// How often the share of extents was halved.
    halvings: u32,
    pairs: Vec<Histogram>,
    places: Places,
    together: Together,
    counts: Counts,
    devices: Vec<Device>,
}

impl Meter {
    /// Begins to measure.
    ///
    /// # Errors
    /// `Setting` when a setting is out of its range.
    pub fn new(settings: MeterSettings) -> Result<Meter> {
        let MeterSettings { extent_bytes, entries_max } = settings;
        let in_range = (EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX).contains(&extent_bytes);
        if !(in_range && extent_bytes.is_power_of_two()) {
            return Err(Error::setting(format!("an extent of {extent_bytes} bytes"))
                .with_hint("give a power of two, 512 to 1MiB"));
        }
        if entries_max < 1024 {
            return Err(Error::setting("fewer than 1024 extents to remember"));
        }
        Ok(Meter {
            settings,
            last_writes: HashMap::default(),
            halvings: 0,
            pairs: vec![Histogram::default(); GROUPS],
            places: Places::default(),
            together: Together::default(),
            counts: Counts::default(),
            devices: Vec::new(),
        })
    }

    /// Takes a request into account. Times must not fall.
    ///
    /// # Errors
    /// `Limit` for an address, a length or a time beyond what is measured.
    pub fn add(&mut self, request: &Request) -> Result<()> {
        assert!(request.time_ns >= self.counts.last_ns, "a source is in order");
        if request.time_ns >> TIME_BITS != 0 {
            let message = format!("a time of {} ns", request.time_ns);
            return Err(Error::new(ErrorKind::Limit, message)
                .with_hint("the model takes four years from the first request on"));
        }
        self.counts.requests += 1;
        self.counts.last_ns = request.time_ns;
        let number = request.device as usize;
        if number >= self.devices.len() {
            self.devices.resize(number + 1, Device::default());
        }
        let device = &mut self.devices[number];
        device.span_bytes = device.span_bytes.max(request.end_bytes());
        let counts = &mut self.counts;
        match request.kind {
            RequestKind::Read => {
                counts.read_requests += 1;
                counts.read_bytes += request.length_bytes;
                if device.read_end_bytes == request.offset_bytes {
                    counts.sequential_read_bytes += request.length_bytes;
                }
                device.read_end_bytes = request.end_bytes();
            }
            RequestKind::Write => {
                counts.write_requests += 1;
                counts.written_bytes += request.length_bytes;
                if device.write_end_bytes == request.offset_bytes {
                    counts.sequential_write_bytes += request.length_bytes;
                }
                device.write_end_bytes = request.end_bytes();
                let before = device.written_ns.replace(request.time_ns);
                counts.devices_written += u64::from(before.is_none());
                if let Some(before) = before.filter(|at| request.time_ns - at > PAUSE_NS) {
                    device.emptied_ns = Some(before);
                }
                let emptied_ns = device.emptied_ns;
                self.add_write(request, emptied_ns)?;
            }
            RequestKind::Flush => device.emptied_ns = Some(request.time_ns),
            // Zeros and trims move no data in any architecture.
            RequestKind::Zero | RequestKind::Trim => {}
        }
        if request.is_fua {
            self.devices[number].emptied_ns = Some(request.time_ns);
        }
        Ok(())
    }

    fn add_write(&mut self, request: &Request, emptied_ns: Option<u64>) -> Result<()> {
        let first = request.offset_bytes / self.settings.extent_bytes;
        let end = request.end_bytes().div_ceil(self.settings.extent_bytes);
        if end > EXTENTS_MAX || request.length_bytes > WRITE_BYTES_MAX {
            let Request { offset_bytes, length_bytes, .. } = request;
            let message = format!("a write of {length_bytes} bytes at {offset_bytes}");
            return Err(Error::new(ErrorKind::Limit, message)
                .with_hint("the model takes writes of up to 4GiB, and 2^48 extents a device"));
        }
        self.counts.writes += end - first;
        for extent in first..end {
            let key = mix(u64::from(request.device) << 48 | extent);
            self.touch(key, request.time_ns, emptied_ns);
        }
        Ok(())
    }

    #[inline]
    fn touch(&mut self, key: u64, time_ns: u64, emptied_ns: Option<u64>) {
        if key > u64::MAX >> self.halvings {
            return;
        }
        match self.last_writes.entry(key) {
            Entry::Occupied(mut entry) => {
                let before = *entry.get();
                let distance_ns = time_ns - before.time_ns();
                let weight = (1_u64 << self.halvings) as f64;
                self.pairs[group(key)].add(distance_ns, weight);
                self.places.add(before.class(), distance_ns, weight);
                if emptied_ns.is_some_and(|emptied| before.time_ns() <= emptied) {
                    self.together.parted += weight;
                } else {
                    self.together.pairs.add(distance_ns, weight);
                }
                let class = places::next_class(before.class(), distance_ns);
                entry.insert(LastWrite::new(time_ns, class));
            }
            Entry::Vacant(entry) => {
                entry.insert(LastWrite::new(time_ns, 0));
                if self.last_writes.len() > self.settings.entries_max {
                    self.halve();
                }
            }
        }
    }

    /// Looks at half as many extents from now on.
    fn halve(&mut self) {
        while self.last_writes.len() > self.settings.entries_max {
            self.halvings += 1;
            let threshold = u64::MAX >> self.halvings;
            self.last_writes.retain(|key, _| *key <= threshold);
        }
    }

    /// Says that nothing more came until now: the last writes have lived until then. Times must not
    /// fall.
    pub fn advance(&mut self, time_ns: u64) {
        assert!(time_ns >= self.counts.last_ns, "time goes on");
        self.counts.last_ns = time_ns;
    }

    /// Extents written so far.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.counts.writes
    }

    /// What was measured.
    #[must_use]
    pub fn finish(self) -> Profile {
        self.profile()
    }

    /// What was measured so far.
    #[must_use]
    pub fn profile(&self) -> Profile {
        let weight = (1_u64 << self.halvings) as f64;
        let mut lasts = vec![Histogram::default(); GROUPS];
        let (mut places, mut together) = (self.places.clone(), self.together.clone());
        // Of several devices the one that was emptied last speaks for all.
        let emptied_ns = self.devices.iter().filter_map(|device| device.emptied_ns).max();
        for (key, last) in &self.last_writes {
            let span_ns = self.counts.last_ns - last.time_ns();
            lasts[group(*key)].add(span_ns, weight);
            if emptied_ns.is_some_and(|emptied| last.time_ns() <= emptied) {
                together.left += weight;
            } else {
                together.lasts.add(span_ns, weight);
            }
            places.add_last(last.class(), span_ns, weight);
        }
        let distinct = self.last_writes.len() as f64 * weight;
        let span_bytes = self.devices.iter().map(|device| device.span_bytes).sum();
        let is_sampled = self.halvings > 0;
        let extent_bytes = self.settings.extent_bytes;
        let pairs = self.pairs.clone();
        let distances = Distances { pairs, lasts, places, together };
        Profile::new(self.counts, extent_bytes, span_bytes, distinct, is_sampled, distances)
    }
}

/// Which part of the sample an extent belongs to: by bits that the threshold leaves free.
fn group(key: u64) -> usize {
    (key % GROUPS as u64) as usize
}

/// Mixes all bits of a key; invertible, so different extents keep different keys.
#[inline]
pub fn mix(key: u64) -> u64 {
    let key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}
