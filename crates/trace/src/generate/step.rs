//! The base of all generators.

use super::random::Random;
use crate::Request;
use crate::error::{Error, Result};

/// One request after the other, for ever.
pub(super) trait Step: Send {
    fn step(&mut self, random: &mut Random) -> Request;
}

/// A rate that arrivals can have.
pub(super) fn check_rate(rate: f64) -> Result<f64> {
    if rate > 0.0 && rate <= 1e9 {
        return Ok(rate);
    }
    Err(Error::setting("a rate is above 0 and at most 1000000000 requests a second"))
}

/// A capacity in blocks of so many bytes, at least `blocks_min` of them.
pub(super) fn check_capacity(
    capacity_bytes: u64,
    block_bytes: u64,
    blocks_min: u64,
) -> Result<u64> {
    const CAPACITY_BYTES_MAX: u64 = 1 << 50;
    let blocks = capacity_bytes / block_bytes;
    if blocks < blocks_min || capacity_bytes > CAPACITY_BYTES_MAX {
        let least = units::Size(blocks_min.saturating_mul(block_bytes));
        return Err(Error::setting(format!("a capacity of {} bytes", capacity_bytes))
            .with_hint(format!("give {least} to 1PiB")));
    }
    Ok(blocks)
}
