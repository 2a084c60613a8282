//! A workgroup's file server: short distances between writes of the same page.
//!
//! The trace that Laden used (cello99, an hour of March 1999) cannot be had. What the paper says of
//! it is where its crossovers are: with 64 MB of cache checkpointing costs less than
//! split-downstream at 5 minutes and coarser; with about 100 MB they cross at 10 minutes; with
//! 256 MB a write waits about 10 minutes in the cache. Three groups of pages, each written at
//! random, and a share of new pages have these properties; sizes, rates and groups were fitted to
//! them with the model's own formulas. What it says about file servers beyond that is nothing.

use super::random::{Arrivals, Random, bounds};
use super::step::Step;
use crate::{Request, RequestKind};

const PAGE_BYTES: u64 = 8192;
const WRITES_PER_SECOND: f64 = 19.3;
/// Reads are as many as writes: the paper does not say how many there were.
const READ_PERCENT: u64 = 50;
/// Share of the writes, and pages that they go to: tables that every update touches, directories
/// and tables of inodes, and files in use.
const GROUPS: [(f64, u64); 3] = [(0.467, 3), (0.400, 256), (0.117, 608)];
/// Share of the writes that go to pages never written before.
const NEW_SHARE: f64 = 0.016;
/// Pages of the device; reads go anywhere.
const DEVICE_PAGES: u64 = (8 << 30) / PAGE_BYTES;

pub(super) struct Cello {
    arrivals: Arrivals,
    bounds: Vec<u64>,
    next_new: u64,
}

impl Cello {
    pub(super) fn new() -> Cello {
        let mut weights: Vec<f64> = GROUPS.iter().map(|(share, _)| *share).collect();
        weights.push(NEW_SHARE);
        let rate = WRITES_PER_SECOND * 100.0 / (100 - READ_PERCENT) as f64;
        let next_new = first_page(GROUPS.len());
        Cello { arrivals: Arrivals::new(rate), bounds: bounds(&weights), next_new }
    }
}

/// Where a group begins: one after the other.
fn first_page(group: usize) -> u64 {
    GROUPS[..group].iter().map(|(_, pages)| pages).sum()
}

impl Step for Cello {
    fn step(&mut self, random: &mut Random) -> Request {
        let time_ns = self.arrivals.next(random);
        let is_read = random.percent(READ_PERCENT);
        let page = if is_read {
            random.below(DEVICE_PAGES)
        } else {
            let group = random.pick(&self.bounds);
            match GROUPS.get(group) {
                Some((_, pages)) => first_page(group) + random.below(*pages),
                None => {
                    // From the device's end it begins anew; a week later.
                    let page = self.next_new;
                    let next = page + 1;
                    self.next_new =
                        if next < DEVICE_PAGES { next } else { first_page(GROUPS.len()) };
                    page
                }
            }
        };
        Request {
            time_ns,
            device: 0,
            kind: if is_read { RequestKind::Read } else { RequestKind::Write },
            is_fua: false,
            offset_bytes: page * PAGE_BYTES,
            length_bytes: PAGE_BYTES,
        }
    }
}
