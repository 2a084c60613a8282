//! Generators of workloads: endless, seeded, streaming.
//!
//! 1. The same workload and seed make the same requests everywhere and for ever; a test holds
//!    digests of each. All arithmetic is on integers or on doubles by functions of our
//!    dependencies that do not ask the machine's mathematics library.
//! 2. Memory is what a workload needs, never what it has made.

use crate::error::Result;
use crate::{Devices, Request, Source};

mod cello;
mod iometer;
mod random;
mod servers;
mod spc1;
mod spread;
mod step;

pub use iometer::Pattern;
pub use spc1::Walk;
pub use spread::{Spread, SpreadSettings};

use random::Random;
use step::Step;

/// What is generated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// Like SPC-1: a data store, a user store and a log, by business scaling units.
    Spc1 {
        /// Business scaling units, 50 requests a second each.
        bsu: u32,
        /// Bytes of the three stores together: 45, 45 and 10 %.
        capacity_bytes: u64,
        /// Whether the log (ASU 3) is written; Laden leaves it out.
        has_log: bool,
        /// How the random walk goes.
        walk: Walk,
    },
    /// A workgroup's file server, tuned to where Laden's cello99 trace has its crossovers.
    Cello,
    /// One of Iometer's patterns.
    Iometer {
        /// Which.
        pattern: Pattern,
        /// Requests a second.
        rate: f64,
        /// Bytes of the device.
        capacity_bytes: u64,
    },
    /// Requests of one size at random places.
    Spread(SpreadSettings),
    /// A mail store's, on two devices: pages of a database, and its log. Our stand-in for
    /// `JetStress`.
    Mail {
        /// Requests a second.
        rate: f64,
        /// Bytes of the database.
        data_bytes: u64,
        /// Bytes of the log, which is written round and round.
        log_bytes: u64,
    },
    /// Passes over a database with look-ups between. Our stand-in for TPC-H's queries.
    Queries {
        /// Requests a second.
        rate: f64,
        /// Bytes of the database.
        capacity_bytes: u64,
    },
}

/// How much is generated, and from which seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// The seed.
    pub seed: u64,
    /// Up to this time, nanoseconds, and not at it.
    pub duration_ns: Option<u64>,
    /// So many requests.
    pub requests_max: Option<u64>,
}

/// A workload as a source.
pub struct Generator {
    step: Box<dyn Step>,
    random: Random,
    devices: Devices,
    extent: Extent,
    given: u64,
}

impl Generator {
    /// Prepares a workload.
    ///
    /// # Errors
    /// `Setting` when a setting is out of its range.
    pub fn new(workload: Workload, extent: Extent) -> Result<Generator> {
        let mut random = Random::new(extent.seed);
        let (step, devices): (Box<dyn Step>, &[&str]) = match workload {
            Workload::Spc1 { bsu, capacity_bytes, has_log, walk } => {
                let step = spc1::Spc1::new(bsu, capacity_bytes, has_log, walk, &mut random)?;
                (Box::new(step), &["asu1", "asu2", "asu3"])
            }
            Workload::Cello => (Box::new(cello::Cello::new()), &["cello"]),
            Workload::Iometer { pattern, rate, capacity_bytes } => {
                let step = iometer::Iometer::new(pattern, rate, capacity_bytes)?;
                (Box::new(step), &["iometer"])
            }
            Workload::Mail { rate, data_bytes, log_bytes } => {
                let step = servers::Mail::new(rate, data_bytes, log_bytes)?;
                (Box::new(step), &["data", "log"])
            }
            Workload::Queries { rate, capacity_bytes } => {
                (Box::new(servers::Queries::new(rate, capacity_bytes)?), &["database"])
            }
            Workload::Spread(settings) => {
                (Box::new(spread::SpreadStep::new(settings)?), &[settings.spread.name()])
            }
        };
        let devices = Devices::of(devices)?;
        Ok(Generator { step, random, devices, extent, given: 0 })
    }
}

impl Source for Generator {
    fn next(&mut self) -> Result<Option<Request>> {
        if self.extent.requests_max.is_some_and(|max| self.given >= max) {
            return Ok(None);
        }
        let request = self.step.step(&mut self.random);
        if self.extent.duration_ns.is_some_and(|end| request.time_ns >= end) {
            // Nothing comes after: times do not fall.
            self.extent.requests_max = Some(self.given);
            return Ok(None);
        }
        self.given += 1;
        Ok(Some(request))
    }

    fn devices(&self) -> &Devices {
        &self.devices
    }

    fn start(&self) -> u64 {
        0
    }
}
