//! Iometer's patterns, as DARC used them. Iometer keeps a number of requests outstanding; a trace
//! needs times, so here they arrive at a rate. Whoever keeps requests outstanding takes them as
//! they come, and leaves the times.
//!
//! Where the numbers are from: sizes of 4 KiB and more, shares of writes, and what is random are in
//! DARC's text (3.1.2). It says "up to 4 KB" for 80 % of the file server's requests and 68 % of the
//! web server's; how these are split is in the patterns that Iometer came with (Intel's file server
//! and web server; fio's example `iometer-file-access-server` has the same).

use super::random::{Arrivals, Random, bounds};
use super::step::{Step, check_capacity, check_rate};
use crate::error::Result;
use crate::{Request, RequestKind};

const SECTOR_BYTES: u64 = 512;

/// The five patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Sequential writes of 64 KiB.
    SequentialWrite,
    /// Sequential reads of 64 KiB.
    SequentialRead,
    /// Random 4 KiB, a third writes.
    Oltp,
    /// Random, many sizes, a fifth writes.
    FileServer,
    /// Random reads of many sizes.
    WebServer,
}

struct Shape {
    is_random: bool,
    write_percent: u64,
    /// Sizes in bytes, and in how many percent of the requests.
    sizes: &'static [(u64, f64)],
}

impl Pattern {
    /// Every one there is, in DARC's order.
    pub const ALL: [Pattern; 5] = [
        Pattern::SequentialWrite,
        Pattern::SequentialRead,
        Pattern::Oltp,
        Pattern::FileServer,
        Pattern::WebServer,
    ];

    /// What DARC calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Pattern::SequentialWrite => "WS",
            Pattern::SequentialRead => "RS",
            Pattern::Oltp => "OLTP",
            Pattern::FileServer => "FS",
            Pattern::WebServer => "WEB",
        }
    }

    fn shape(self) -> Shape {
        const K: u64 = 1024;
        match self {
            Pattern::SequentialWrite => {
                Shape { is_random: false, write_percent: 100, sizes: &[(64 * K, 100.0)] }
            }
            Pattern::SequentialRead => {
                Shape { is_random: false, write_percent: 0, sizes: &[(64 * K, 100.0)] }
            }
            Pattern::Oltp => Shape { is_random: true, write_percent: 33, sizes: &[(4 * K, 100.0)] },
            Pattern::FileServer => Shape {
                is_random: true,
                write_percent: 20,
                sizes: &[
                    (K / 2, 10.0),
                    (K, 5.0),
                    (2 * K, 5.0),
                    (4 * K, 60.0),
                    (8 * K, 2.0),
                    (16 * K, 4.0),
                    (32 * K, 4.0),
                    (64 * K, 10.0),
                ],
            },
            Pattern::WebServer => Shape {
                is_random: true,
                write_percent: 0,
                sizes: &[
                    (K / 2, 22.0),
                    (K, 15.0),
                    (2 * K, 8.0),
                    (4 * K, 23.0),
                    (8 * K, 15.0),
                    (16 * K, 2.0),
                    (32 * K, 6.0),
                    (64 * K, 7.0),
                    (128 * K, 1.0),
                    (512 * K, 1.0),
                ],
            },
        }
    }
}

pub(super) struct Iometer {
    shape: Shape,
    bounds: Vec<u64>,
    arrivals: Arrivals,
    sectors: u64,
    next_sector: u64,
}

impl Iometer {
    pub(super) fn new(pattern: Pattern, rate: f64, capacity_bytes: u64) -> Result<Iometer> {
        let shape = pattern.shape();
        let largest = shape.sizes.iter().map(|(size, _)| size / SECTOR_BYTES).max();
        let sectors = check_capacity(capacity_bytes, SECTOR_BYTES, largest.unwrap_or(1))?;
        let weights: Vec<f64> = shape.sizes.iter().map(|(_, percent)| *percent).collect();
        let arrivals = Arrivals::new(check_rate(rate)?);
        Ok(Iometer { shape, bounds: bounds(&weights), arrivals, sectors, next_sector: 0 })
    }
}

impl Step for Iometer {
    fn step(&mut self, random: &mut Random) -> Request {
        let time_ns = self.arrivals.next(random);
        let is_write = random.percent(self.shape.write_percent);
        let (length_bytes, _) = self.shape.sizes[random.pick(&self.bounds)];
        let length = length_bytes / SECTOR_BYTES;
        let sector = if self.shape.is_random {
            // Aligned to its own size, as Iometer does unless it is told otherwise.
            random.below(self.sectors / length) * length
        } else {
            let fits = self.next_sector + length <= self.sectors;
            if fits { self.next_sector } else { 0 }
        };
        self.next_sector = sector + length;
        Request {
            time_ns,
            device: 0,
            kind: if is_write { RequestKind::Write } else { RequestKind::Read },
            is_fua: false,
            offset_bytes: sector * SECTOR_BYTES,
            length_bytes,
        }
    }
}
