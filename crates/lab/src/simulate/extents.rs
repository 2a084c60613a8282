//! Extents by small numbers, so that what is known of each stands in a plain array.

use std::collections::HashMap;

use model::{Error, ErrorKind, Result};
use model::{MixedState, mix};
use trace::{Request, RequestKind};

/// Different extents of one simulation.
pub const EXTENTS_MAX: usize = 1 << 28;
/// A longer write is no request that a device was asked for.
const WRITE_BYTES_MAX: u64 = 1 << 32;

/// One extent written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// When.
    pub time_ns: u64,
    /// Which: extents are numbered as they come.
    pub extent: u32,
}

/// The numbers of extents.
pub struct Extents {
    shift: u32,
    numbers: HashMap<u64, u32, MixedState>,
}

impl Extents {
    /// Extents of this size: a power of two.
    ///
    /// # Errors
    /// `Setting` when it is none.
    pub fn new(extent_bytes: u64) -> Result<Extents> {
        if !extent_bytes.is_power_of_two() || !(512..=1 << 20).contains(&extent_bytes) {
            return Err(Error::setting(format!("an extent of {extent_bytes} bytes"))
                .with_hint("give a power of two, 512 to 1MiB"));
        }
        let numbers = HashMap::with_hasher(MixedState::default());
        Ok(Extents { shift: extent_bytes.trailing_zeros(), numbers })
    }

    /// The extents that a request writes, one after the other.
    ///
    /// # Errors
    /// `Limit` when there are too many different ones; `Malformed` for a write that no device is
    /// asked for.
    pub fn touch(&mut self, request: &Request, mut each: impl FnMut(Touch)) -> Result<()> {
        // Zeros and trims move no data in any architecture.
        if request.kind != RequestKind::Write {
            return Ok(());
        }
        let first = request.offset_bytes >> self.shift;
        let last = (request.end_bytes() - 1) >> self.shift;
        if request.length_bytes > WRITE_BYTES_MAX || last >= 1 << 48 {
            let message = format!("a write of {} bytes", request.length_bytes);
            return Err(Error::new(ErrorKind::Malformed, message));
        }
        for extent in first..=last {
            let next = self.numbers.len();
            let key = mix(u64::from(request.device) << 48 | extent);
            let extent = *self.numbers.entry(key).or_insert(next as u32);
            if self.numbers.len() > EXTENTS_MAX {
                let message = format!("more than {EXTENTS_MAX} different extents are written");
                return Err(Error::new(ErrorKind::Limit, message)
                    .with_hint("cut the trace, or take a larger extent"));
            }
            each(Touch { time_ns: request.time_ns, extent });
        }
        Ok(())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether none was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}
