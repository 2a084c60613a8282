//! Requests of one size at random places: all alike, or few of them often (Zipf).

use rand_distr::Zipf;

use super::random::{Arrivals, Random};
use super::step::{Step, check_capacity, check_rate};
use crate::error::{Error, Result};
use crate::{Request, RequestKind};

/// How requests are spread over the addresses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// All alike.
    Uniform,
    /// The n-th most frequent is n to the power of the exponent rarer than the first.
    Zipf {
        /// The exponent, 0 to 10; 1 is what is mostly found.
        exponent: f64,
    },
}

impl Spread {
    pub(super) fn name(self) -> &'static str {
        match self {
            Spread::Uniform => "uniform",
            Spread::Zipf { .. } => "zipf",
        }
    }
}

/// What is generated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpreadSettings {
    /// How requests are spread.
    pub spread: Spread,
    /// Requests a second.
    pub rate: f64,
    /// How many percent of them are writes.
    pub write_percent: u8,
    /// Bytes of each.
    pub length_bytes: u64,
    /// Bytes of the device.
    pub capacity_bytes: u64,
}

pub(super) struct SpreadStep {
    zipf: Option<Zipf<f64>>,
    arrivals: Arrivals,
    write_percent: u64,
    length_bytes: u64,
    places: u64,
}

impl SpreadStep {
    pub(super) fn new(settings: SpreadSettings) -> Result<SpreadStep> {
        const LENGTH_BYTES_MAX: u64 = 1 << 30;
        if !(1..=LENGTH_BYTES_MAX).contains(&settings.length_bytes) {
            let message = format!("requests of {} bytes", settings.length_bytes);
            return Err(Error::setting(message).with_hint("give 1 to 1GiB"));
        }
        if settings.write_percent > 100 {
            return Err(Error::setting("more than 100 percent of writes"));
        }
        let places = check_capacity(settings.capacity_bytes, settings.length_bytes, 1)?;
        let zipf = match settings.spread {
            Spread::Uniform => None,
            Spread::Zipf { exponent } => {
                let refused = || Error::setting("a Zipf exponent is 0 to 10");
                if !(0.0..=10.0).contains(&exponent) {
                    return Err(refused());
                }
                Some(Zipf::new(places as f64, exponent).map_err(|_| refused())?)
            }
        };
        Ok(SpreadStep {
            zipf,
            arrivals: Arrivals::new(check_rate(settings.rate)?),
            write_percent: u64::from(settings.write_percent),
            length_bytes: settings.length_bytes,
            places,
        })
    }
}

impl Step for SpreadStep {
    fn step(&mut self, random: &mut Random) -> Request {
        let time_ns = self.arrivals.next(random);
        let is_write = random.percent(self.write_percent);
        let place = match &self.zipf {
            None => random.below(self.places),
            Some(zipf) => {
                let rank = (random.sample(zipf) as u64).clamp(1, self.places) - 1;
                // Frequent ones are not neighbours, so that runs of addresses are no artefact.
                scatter(rank, self.places)
            }
        };
        Request {
            time_ns,
            device: 0,
            kind: if is_write { RequestKind::Write } else { RequestKind::Read },
            is_fua: false,
            offset_bytes: place * self.length_bytes,
            length_bytes: self.length_bytes,
        }
    }
}

/// A permutation of `0..places`: rounds of a mixing of the next power of two, until it is inside.
fn scatter(rank: u64, places: u64) -> u64 {
    let bits = u64::BITS - (places - 1).leading_zeros();
    if bits == 0 {
        return 0;
    }
    let mask = u64::MAX >> (u64::BITS - bits);
    let mut place = rank;
    loop {
        // Odd factors and shifts to the right are invertible, and so is their sequence.
        place = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
        place ^= place >> bits.div_ceil(2);
        place = place.wrapping_mul(0xbf58_476d_1ce4_e5b9) & mask;
        place ^= place >> bits.div_ceil(2);
        if place < places {
            return place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::scatter;

    #[test]
    fn scattering_is_a_permutation() {
        for places in [1, 2, 3, 7, 8, 100, 1000, 4097] {
            let mut seen: Vec<u64> = (0..places).map(|rank| scatter(rank, places)).collect();
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..places), "{places}");
        }
    }
}
