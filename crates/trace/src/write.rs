//! Writing traces: our own format, or an iolog that fio replays.
//!
//! 1. What is written is whole only after `finish`.

use std::io::Write;

use crate::native::{FrameEncoder, TRACE_HEADER_BYTES, TraceHeader};

use crate::error::{Error, ErrorKind, Result};
use crate::{Devices, Request, RequestKind, Source};

/// Formats that can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteFormat {
    /// Our own: `docs/format/trace.md`.
    #[default]
    Hindsight,
    /// `fio version 3 iolog`: `fio --read_iolog=FILE` replays it. Times are in microseconds, and
    /// FUA is lost.
    FioV3,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Written {
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time of the last request, nanoseconds.
    pub duration_ns: u64,
}

/// Writes all of a source.
///
/// # Errors
/// `Write`, and whatever the source fails with.
pub fn write_all(
    source: &mut dyn Source,
    format: WriteFormat,
    out: &mut dyn Write,
) -> Result<Written> {
    match format {
        WriteFormat::Hindsight => write_hindsight(source, out),
        WriteFormat::FioV3 => write_fio(source, out),
    }
}

/// Writes and counts.
struct Counting<'a> {
    out: &'a mut dyn Write,
    bytes: u64,
}

impl Counting<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(cannot_write)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn finish(self, requests: u64, duration_ns: u64) -> Result<Written> {
        self.out.flush().map_err(cannot_write)?;
        Ok(Written { requests, bytes: self.bytes, duration_ns })
    }
}

fn cannot_write(source: std::io::Error) -> Error {
    Error::new(ErrorKind::Write, "cannot write the trace").because(source)
}

fn write_hindsight(source: &mut dyn Source, out: &mut dyn Write) -> Result<Written> {
    let mut out = Counting { out, bytes: 0 };
    let mut encoder = FrameEncoder::default();
    let (mut requests, mut sealed, mut named, mut last_ns) = (0, 0, 0, 0);
    while let Some(request) = source.next()? {
        if out.bytes == 0 {
            out.put(&TraceHeader { start: source.start() }.encode())?;
        }
        let is_new = request.device as usize >= named;
        if !encoder.is_empty() && (is_new || !encoder.has_room()) {
            out.put(encoder.requests(sealed))?;
            sealed = requests;
            encoder.clear();
        }
        if is_new {
            named = put_names(&mut out, source.devices(), named)?;
        }
        encoder.push_request(&request);
        requests += 1;
        last_ns = request.time_ns;
    }
    if out.bytes == 0 {
        let header: [u8; TRACE_HEADER_BYTES] = TraceHeader { start: source.start() }.encode();
        out.put(&header)?;
    }
    if !encoder.is_empty() {
        out.put(encoder.requests(sealed))?;
    }
    out.put(&FrameEncoder::end(requests, last_ns))?;
    out.finish(requests, last_ns)
}

/// Writes the names that are new; how many there are then.
fn put_names(out: &mut Counting<'_>, devices: &Devices, named: usize) -> Result<usize> {
    for (number, name) in devices.names().iter().enumerate().skip(named) {
        out.put(&FrameEncoder::name(name, number as u64))?;
    }
    Ok(devices.names().len())
}

fn write_fio(source: &mut dyn Source, out: &mut dyn Write) -> Result<Written> {
    let mut out = Counting { out, bytes: 0 };
    out.put(b"fio version 3 iolog\n")?;
    let (mut requests, mut named, mut last_ns) = (0, 0, 0);
    while let Some(request) = source.next()? {
        let micros = request.time_ns / 1000;
        for name in source.devices().names().iter().skip(named) {
            out.put(format!("{micros} {name} add\n{micros} {name} open\n").as_bytes())?;
        }
        named = source.devices().names().len();
        out.put(fio_line(&request, micros, source.devices()).as_bytes())?;
        requests += 1;
        last_ns = request.time_ns;
    }
    for name in source.devices().names() {
        out.put(format!("{} {name} close\n", last_ns / 1000).as_bytes())?;
    }
    out.finish(requests, last_ns)
}

fn fio_line(request: &Request, micros: u64, devices: &Devices) -> String {
    let action = match request.kind {
        RequestKind::Read => "read",
        // fio has no write of zeros; what it costs a device is nearer to a write than to a trim.
        RequestKind::Write | RequestKind::Zero => "write",
        RequestKind::Trim => "trim",
        RequestKind::Flush => "sync",
    };
    let name = devices.name(request.device);
    format!("{micros} {name} {action} {} {}\n", request.offset_bytes, request.length_bytes)
}
