//! Meters: what the cost model needs to know of each volume that NBD clients use.
//!
//! 1. A meter takes a bounded amount of memory however much is written: with more different blocks
//!    than it remembers it looks at a sample of them, and its answers carry their error.
//! 2. Only so many volumes have one; the others say so.
//! 3. It begins with the first client of the volume since the server started, and ends with the
//!    volume.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use env::{Rank, RankedMutex};
use model::{Meter, MeterSettings, Profile};
use trace::Request;

use crate::attach::VolumeId;

/// Blocks that a meter remembers: with its histograms it takes about 2.5 MiB.
const ENTRIES_MAX: usize = 16 << 10;
/// Volumes that have a meter.
const METERS_MAX: usize = 32;

/// The meters of a server.
#[derive(Default)]
pub struct Meters(RankedMutex<BTreeMap<VolumeId, Arc<VolumeMeter>>>);

/// The meter of one volume.
pub(crate) struct VolumeMeter {
    began: Instant,
    meter: RankedMutex<Meter>,
}

impl Meters {
    /// The meter of a volume that a client uses, with its name; `None` when too many have one.
    pub(crate) fn of(&self, volume: VolumeId, name: &str) -> Option<Arc<VolumeMeter>> {
        let mut meters = self.0.lock();
        if let Some(meter) = meters.get(&volume) {
            return Some(Arc::clone(meter));
        }
        if meters.len() >= METERS_MAX {
            tracing::info!(volume = name, "not measured: {METERS_MAX} volumes are already");
            return None;
        }
        let meter = Arc::new(VolumeMeter::new());
        meters.insert(volume, Arc::clone(&meter));
        Some(meter)
    }

    /// The measurements of a volume until now; `None` without any.
    pub(crate) fn profile(&self, volume: VolumeId) -> Option<Profile> {
        let meter = self.0.lock().get(&volume).cloned();
        meter.map(|meter| meter.profile())
    }

    /// Forgets a volume that was deleted.
    pub(crate) fn forget(&self, volume: VolumeId) {
        self.0.lock().remove(&volume);
    }
}

impl VolumeMeter {
    fn new() -> VolumeMeter {
        let settings = MeterSettings { entries_max: ENTRIES_MAX, ..MeterSettings::default() };
        let meter = Meter::new(settings).expect("these settings are in their range");
        VolumeMeter { began: Instant::now(), meter: RankedMutex::new(Rank::Leaf, meter) }
    }

    fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Takes requests into account, as of now; their times do not matter.
    pub(crate) fn add(&self, requests: &mut Vec<Request>) {
        let mut meter = self.meter.lock();
        // Under the lock, so that times do not fall.
        let time_ns = self.elapsed_ns();
        for request in requests.drain(..) {
            // The model takes no address beyond 2^60, and no volume has one.
            let _ = meter.add(&Request { time_ns, ..request });
        }
    }

    fn profile(&self) -> Profile {
        // A copy, so that no client waits while it is worked out.
        let mut meter = {
            let meter = self.meter.lock();
            meter.clone()
        };
        meter.advance(self.elapsed_ns());
        meter.profile()
    }
}

#[cfg(test)]
mod tests {
    use trace::{Request, RequestKind};

    use super::{ENTRIES_MAX, METERS_MAX, Meters};

    fn write(block: u64) -> Request {
        Request {
            time_ns: u64::MAX,
            device: 0,
            kind: RequestKind::Write,
            is_fua: false,
            offset_bytes: block * 4096,
            length_bytes: 4096,
        }
    }

    #[test]
    fn a_meter_counts_what_its_volume_was_asked_and_looks_at_a_sample_of_much() {
        let meters = Meters::default();
        assert!(meters.profile(1).is_none());
        let meter = meters.of(1, "a").expect("a meter");
        meter.add(&mut vec![write(1), write(2)]);
        meters.of(1, "a").expect("the same").add(&mut vec![write(1)]);
        let profile = meters.profile(1).expect("measured");
        assert_eq!((profile.writes(), profile.distinct(), profile.is_sampled()), (3, 2.0, false));
        assert!(profile.duration_ns() > 0);
        meter.add(&mut (0..2 * ENTRIES_MAX as u64).map(write).collect());
        let profile = meters.profile(1).expect("measured");
        assert!(profile.is_sampled());
        assert!((profile.distinct() / (2.0 * ENTRIES_MAX as f64) - 1.0).abs() < 0.05);
        meters.forget(1);
        assert!(meters.profile(1).is_none());
    }

    #[test]
    fn meters_are_few() {
        let meters = Meters::default();
        assert!((0..METERS_MAX as u64).all(|number| meters.of(number, "a").is_some()));
        assert!(meters.of(METERS_MAX as u64, "one more").is_none() && meters.of(0, "a").is_some());
    }
}
