//! Traces changed on the way: cut, and scaled.
//!
//! 1. What is changed is still a source: in order, each device named.

use crate::error::{Error, Result};
use crate::{Devices, Request, RequestKind, Source};

/// The unit in which addresses are scaled.
const BLOCK_BYTES: u64 = units::BLOCK_BYTES;

/// What of a trace is kept.
#[derive(Clone, Debug, Default)]
pub struct Cut {
    /// From this time on, nanoseconds.
    pub since_ns: u64,
    /// Up to this time, and not at it.
    pub until_ns: Option<u64>,
    /// Only of these devices; of all when empty.
    pub devices: Vec<String>,
    /// Only of these kinds; of all when empty.
    pub kinds: Vec<RequestKind>,
    /// Only what is in this range of addresses: from, up to and without.
    pub range_bytes: Option<(u64, u64)>,
    /// At most so many.
    pub requests_max: Option<u64>,
}

/// A source that gives only a part of another. Its time 0 is `since_ns` of the other.
pub struct CutSource<S> {
    inner: S,
    cut: Cut,
    given: u64,
}

impl<S: Source> CutSource<S> {
    /// Cuts a source.
    pub fn new(inner: S, cut: Cut) -> CutSource<S> {
        CutSource { inner, cut, given: 0 }
    }

    /// The source that is cut.
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// What is left of a request.
    fn keep(&self, mut request: Request) -> Option<Request> {
        let Cut { since_ns, devices, kinds, range_bytes, .. } = &self.cut;
        request.time_ns = request.time_ns.checked_sub(*since_ns)?;
        let name = self.inner.devices().name(request.device);
        if !devices.is_empty() && !devices.iter().any(|device| device == name) {
            return None;
        }
        if !kinds.is_empty() && !kinds.contains(&request.kind) {
            return None;
        }
        if let Some((from, to)) = *range_bytes
            && request.kind != RequestKind::Flush
        {
            let start = request.offset_bytes.max(from);
            let end = request.end_bytes().min(to);
            request.length_bytes = end.checked_sub(start).filter(|length| *length > 0)?;
            request.offset_bytes = start;
        }
        Some(request)
    }
}

impl<S: Source> Source for CutSource<S> {
    fn next(&mut self) -> Result<Option<Request>> {
        while self.cut.requests_max.is_none_or(|max| self.given < max) {
            let Some(request) = self.inner.next()? else { break };
            if self.cut.until_ns.is_some_and(|until| request.time_ns >= until) {
                break;
            }
            if let Some(kept) = self.keep(request) {
                self.given += 1;
                return Ok(Some(kept));
            }
        }
        Ok(None)
    }

    fn devices(&self) -> &Devices {
        self.inner.devices()
    }

    fn start(&self) -> u64 {
        match self.inner.start() {
            0 => 0,
            start => start.saturating_add(self.cut.since_ns),
        }
    }
}

/// How a trace is stretched.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Times are multiplied by this: 0.5 is twice as fast.
    pub time: f64,
    /// Addresses are multiplied by this, in whole blocks; lengths stay.
    pub space: f64,
}

/// A source whose times and addresses are scaled.
#[derive(Debug)]
pub struct ScaledSource<S> {
    inner: S,
    scale: Scale,
}

impl<S: Source> ScaledSource<S> {
    /// Scales a source.
    ///
    /// # Errors
    /// `Setting` unless both factors are above 0 and at most a million.
    pub fn new(inner: S, scale: Scale) -> Result<ScaledSource<S>> {
        for (name, factor) in [("time", scale.time), ("space", scale.space)] {
            if !(factor > 0.0 && factor <= 1e6) {
                let message = format!("a factor of {name} is above 0 and at most 1000000");
                return Err(Error::setting(message));
            }
        }
        Ok(ScaledSource { inner, scale })
    }

    /// The source that is scaled.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Source> Source for ScaledSource<S> {
    fn next(&mut self) -> Result<Option<Request>> {
        let Some(mut request) = self.inner.next()? else { return Ok(None) };
        // Doubles are exact up to 2^53 ns, 104 days; what is lost beyond is below a microsecond.
        // Rounding keeps order: the product never falls as its factor rises.
        if self.scale.time != 1.0 {
            request.time_ns = (request.time_ns as f64 * self.scale.time) as u64;
        }
        if self.scale.space != 1.0 && request.kind != RequestKind::Flush {
            let (block, within) =
                (request.offset_bytes / BLOCK_BYTES, request.offset_bytes % BLOCK_BYTES);
            let block = (block as f64 * self.scale.space) as u64;
            request.offset_bytes = block.saturating_mul(BLOCK_BYTES).saturating_add(within);
            if !request.is_valid() {
                return Err(Error::setting("an address is beyond 2^63 bytes when scaled")
                    .with_hint("give a smaller --space"));
            }
        }
        Ok(Some(request))
    }

    fn devices(&self) -> &Devices {
        self.inner.devices()
    }

    fn start(&self) -> u64 {
        self.inner.start()
    }
}

/// A source with a flush after every so many writes of each device.
pub struct FlushedSource<S> {
    inner: S,
    every: u64,
    /// Writes of each device since its last flush.
    writes: Vec<u64>,
    due: Option<Request>,
}

impl<S: Source> FlushedSource<S> {
    /// Adds flushes to a source.
    ///
    /// # Errors
    /// `Setting` for none at all.
    pub fn new(inner: S, every: u64) -> Result<FlushedSource<S>> {
        if every == 0 {
            return Err(Error::setting("a flush comes after one write or more"));
        }
        Ok(FlushedSource { inner, every, writes: Vec::new(), due: None })
    }
}

impl<S: Source> Source for FlushedSource<S> {
    fn next(&mut self) -> Result<Option<Request>> {
        if let Some(flush) = self.due.take() {
            return Ok(Some(flush));
        }
        let Some(request) = self.inner.next()? else { return Ok(None) };
        if request.kind == RequestKind::Write {
            let device = request.device as usize;
            if device >= self.writes.len() {
                self.writes.resize(device + 1, 0);
            }
            self.writes[device] += 1;
            if self.writes[device].is_multiple_of(self.every) {
                let kind = RequestKind::Flush;
                let flush = Request { kind, offset_bytes: 0, length_bytes: 0, ..request };
                self.due = Some(Request { is_fua: false, ..flush });
            }
        }
        Ok(Some(request))
    }

    fn devices(&self) -> &Devices {
        self.inner.devices()
    }

    fn start(&self) -> u64 {
        self.inner.start()
    }
}
