//! What is in a trace, counted in one pass.

use serde::Serialize;

use crate::{Devices, Request, RequestKind, Result, Source};
use model::{Meter, MeterSettings, Profile};

const SECOND_NS: u64 = 1_000_000_000;
const BLOCK_BYTES: u64 = units::BLOCK_BYTES;
/// Powers of two that sizes are counted by.
const SIZES: usize = u64::BITS as usize;

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KindSummary {
    /// The kind's name.
    pub kind: &'static str,
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Reads and writes of about one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SizeSummary {
    /// The largest size: a power of two; the smallest is above half of it.
    pub up_to_bytes: u64,
    /// Requests.
    pub requests: u64,
}

/// Requests to one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceSummary {
    /// Its name.
    pub name: String,
    /// Requests.
    pub requests: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// The byte after the last one that was asked for.
    pub span_bytes: u64,
}

/// What is in a trace.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Requests.
    pub requests: u64,
    /// Nanoseconds since 1970 of the first request; 0 if not known.
    pub start: u64,
    /// From the first request to the last.
    pub duration_ns: u64,
    /// The most requests in one second of the trace.
    pub peak_per_second: u64,
    /// By kind.
    pub kinds: Vec<KindSummary>,
    /// Reads and writes by size; empty ones left out.
    pub sizes: Vec<SizeSummary>,
    /// Reads and writes that do not begin and end at whole blocks of 4 KiB.
    pub unaligned: u64,
    /// By device, in the order of the trace.
    pub devices: Vec<DeviceSummary>,
    /// Different blocks of 4 KiB that were written.
    pub written_blocks: f64,
    /// Whether that is an estimate from a sample.
    pub is_sampled: bool,
    /// Of the bytes read, those that followed the read before.
    pub sequential_read_share: f64,
    /// Of the bytes written, those that followed the write before.
    pub sequential_write_share: f64,
}

/// Counts all of a source; the profile that came with it is for the model.
///
/// # Errors
/// Whatever the source fails with, and `Limit` as the model's.
pub fn summarise(source: &mut dyn Source, settings: MeterSettings) -> Result<(Summary, Profile)> {
    let mut meter = Meter::new(settings)?;
    let mut kinds = [KindSummary::default(); RequestKind::ALL.len()];
    let mut sizes = [0_u64; SIZES];
    let mut devices: Vec<DeviceSummary> = Vec::new();
    let (mut second, mut in_second, mut peak, mut unaligned) = (0, 0, 0_u64, 0);
    while let Some(request) = source.next()? {
        meter.add(&request)?;
        let kind = &mut kinds[request.kind as usize];
        kind.requests += 1;
        kind.bytes = kind.bytes.saturating_add(request.length_bytes);
        count_device(&mut devices, &request, source.devices());
        if request.time_ns / SECOND_NS != second {
            (second, in_second) = (request.time_ns / SECOND_NS, 0);
        }
        in_second += 1;
        peak = peak.max(in_second);
        if matches!(request.kind, RequestKind::Read | RequestKind::Write) {
            let power = (request.length_bytes - 1).checked_ilog2().map_or(0, |log| log + 1);
            sizes[power as usize] += 1;
            let ends = request.offset_bytes | request.length_bytes;
            unaligned += u64::from(!ends.is_multiple_of(BLOCK_BYTES));
        }
    }
    let profile = meter.finish();
    let named = |kind: RequestKind| KindSummary { kind: kind.name(), ..kinds[kind as usize] };
    let sizes = sizes.into_iter().enumerate().filter(|(_, count)| *count > 0);
    let sized = |(power, requests): (usize, u64)| SizeSummary { up_to_bytes: 1 << power, requests };
    let summary = Summary {
        requests: profile.requests(),
        start: source.start(),
        duration_ns: profile.duration_ns(),
        peak_per_second: peak,
        kinds: RequestKind::ALL.map(named).to_vec(),
        sizes: sizes.map(sized).collect(),
        unaligned,
        devices,
        written_blocks: profile.distinct(),
        is_sampled: profile.is_sampled(),
        sequential_read_share: profile.sequential_read_share(),
        sequential_write_share: profile.sequential_write_share(),
    };
    Ok((summary, profile))
}

fn count_device(devices: &mut Vec<DeviceSummary>, request: &Request, names: &Devices) {
    let number = request.device as usize;
    while devices.len() <= number {
        let name = names.name(devices.len() as u32).to_owned();
        devices.push(DeviceSummary { name, ..DeviceSummary::default() });
    }
    let device = &mut devices[number];
    device.requests += 1;
    device.span_bytes = device.span_bytes.max(request.end_bytes());
    match request.kind {
        RequestKind::Read => device.read_bytes += request.length_bytes,
        RequestKind::Write => device.written_bytes += request.length_bytes,
        _ => {}
    }
}
