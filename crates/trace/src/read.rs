//! Reading traces: every known format becomes the same requests, in order, from time 0 on.
//!
//! 1. Memory is bounded: a buffer, a line or a frame of each input, the names of the devices, and
//!    `ORDER_REQUESTS` requests that wait for earlier ones.
//! 2. Nothing in an input panics, and no number in it decides how much is allocated.
//! 3. What cannot be read is counted and located, or an error if `is_strict`; it never passes
//!    for a request.
//!
//! It opens no files: it is handed readers.

use std::io::{BufRead, Read};

use crate::error::{Error, ErrorKind, Result, shown};
use crate::source::{Devices, Source};
use crate::{Request, RequestKind};

mod blktrace;
mod detect;
mod fields;
mod fio;
mod lines;
mod native;
mod order;
mod tables;

use order::Order;

/// Formats of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Our own: `docs/format/trace.md`.
    Hindsight,
    /// `fio version 2 iolog`.
    FioV2,
    /// `fio version 3 iolog`.
    FioV3,
    /// MSR Cambridge.
    Msr,
    /// Alibaba block traces of 2020.
    Alibaba,
    /// Tencent CBS.
    Tencent,
    /// Systor '17.
    Systor,
    /// FIU I/O deduplication.
    Fiu,
    /// SPC trace file format.
    Spc,
    /// What `blktrace` writes.
    Blktrace,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 10] = [
        Format::Hindsight,
        Format::FioV2,
        Format::FioV3,
        Format::Msr,
        Format::Alibaba,
        Format::Tencent,
        Format::Systor,
        Format::Fiu,
        Format::Spc,
        Format::Blktrace,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Format::Hindsight => "hindsight",
            Format::FioV2 => "fio-v2",
            Format::FioV3 => "fio-v3",
            Format::Msr => "msr",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
            Format::Systor => "systor",
            Format::Fiu => "fiu",
            Format::Spc => "spc",
            Format::Blktrace => "blktrace",
        }
    }

    /// Whether its times are those of the clock on the wall.
    fn has_wall_clock(self) -> bool {
        matches!(self, Format::Msr | Format::Alibaba | Format::Tencent | Format::Systor)
    }
}

/// Which event of a request `blktrace` is taken to mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockEvent {
    /// It was queued.
    #[default]
    Queue,
    /// It was handed to the driver.
    Issue,
    /// It was completed.
    Complete,
}

/// How to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    /// The format of every input; found out by itself when `None`.
    pub format: Option<Format>,
    /// Whether the first malformed or late request is an error.
    pub is_strict: bool,
    /// For blktrace.
    pub event: BlockEvent,
}

/// Something to read, and what to call it in messages.
pub struct Input {
    /// Its name: a path, most often.
    pub name: String,
    /// Its bytes.
    pub bytes: Box<dyn BufRead>,
}

/// Something that was not read, and where.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Malformed {
    /// The input's name.
    pub input: String,
    /// Its line, from 1; 0 in formats that have none.
    pub line: u64,
    /// Its first byte, from 0.
    pub byte: u64,
    /// What is wrong with it.
    pub reason: String,
    /// How it begins.
    pub excerpt: String,
}

/// How reading went.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ReadReport {
    /// The formats of the inputs, in their order.
    pub formats: Vec<&'static str>,
    /// Requests that were given out.
    pub requests: u64,
    /// Lines or records that are no requests and need not be: headings, opened files.
    pub skipped: u64,
    /// Lines or records that could not be read.
    pub malformed: u64,
    /// The first of them.
    pub first_malformed: Vec<Malformed>,
    /// Requests that the recording of a trace had lost.
    pub lost: u64,
    /// Requests that were so much earlier than the ones before that their time was raised.
    pub late: u64,
}

/// Malformed lines that are located; the others are only counted.
const MALFORMED_KEPT: usize = 10;
/// How much of a malformed line is shown, and of an input in no known format.
const EXCERPT_BYTES: usize = 80;

/// What decoders share: names and the report.
struct Shared {
    devices: Devices,
    report: ReadReport,
    is_strict: bool,
}

/// Where a decoder is.
#[derive(Clone, Copy)]
struct Spot {
    line: u64,
    byte: u64,
}

impl Shared {
    /// Counts something that cannot be read, or makes it the error.
    fn malformed(&mut self, input: &str, spot: Spot, reason: &str, bytes: &[u8]) -> Result<()> {
        self.report.malformed += 1;
        let excerpt = shown(bytes, EXCERPT_BYTES);
        let found = Malformed {
            input: input.to_owned(),
            line: spot.line,
            byte: spot.byte,
            reason: reason.to_owned(),
            excerpt,
        };
        if self.is_strict {
            return Err(Error::new(ErrorKind::Malformed, found.to_string()));
        }
        if self.report.first_malformed.len() < MALFORMED_KEPT {
            self.report.first_malformed.push(found);
        }
        Ok(())
    }
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Malformed { input, line, byte, reason, excerpt } = self;
        match line {
            0 => write!(f, "{input}: byte {byte}: {reason}: {excerpt}"),
            _ => write!(f, "{input}:{line}: {reason}: {excerpt}"),
        }
    }
}

/// A decoder of one input: requests as they stand there, with the times of its own clock.
trait Decoder {
    fn next(&mut self, shared: &mut Shared) -> Result<Option<Request>>;
}

/// One input on its way.
struct Stream {
    decoder: Box<dyn Decoder>,
    head: Option<Request>,
}

/// Reads traces; several are merged by time.
pub struct Reader {
    streams: Vec<Stream>,
    shared: Shared,
    order: Order,
    has_wall_clock: bool,
    base_ns: Option<u64>,
    is_at_end: bool,
}

impl Reader {
    /// Begins to read.
    ///
    /// # Errors
    /// `UnknownFormat` with the first bytes; `Read`; `Malformed` for a damaged header; `Setting`
    /// when inputs with times of the day are to be merged with others.
    pub fn open(inputs: Vec<Input>, options: ReadOptions) -> Result<Reader> {
        let report = ReadReport::default();
        let shared = Shared { devices: Devices::default(), report, is_strict: options.is_strict };
        let mut reader = Reader {
            streams: Vec::new(),
            shared,
            order: Order::default(),
            has_wall_clock: true,
            base_ns: None,
            is_at_end: false,
        };
        for (index, input) in inputs.into_iter().enumerate() {
            let (decoder, format, has_wall_clock) = decoder(input, options)?;
            if index > 0 && has_wall_clock != reader.has_wall_clock {
                let message = "some inputs have times of day, others only times since a start";
                return Err(Error::setting(message).with_hint("convert them one by one"));
            }
            reader.has_wall_clock = has_wall_clock;
            reader.shared.report.formats.push(format.name());
            reader.streams.push(Stream { decoder, head: None });
        }
        for stream in &mut reader.streams {
            stream.head = stream.decoder.next(&mut reader.shared)?;
        }
        Ok(reader)
    }

    /// How it went so far.
    #[must_use]
    pub fn report(&self) -> &ReadReport {
        &self.shared.report
    }

    /// The earliest head of all inputs.
    fn merge(&mut self) -> Result<Option<Request>> {
        let heads = self.streams.iter().enumerate();
        let first = heads
            .filter_map(|(i, stream)| Some((stream.head?.time_ns, i)))
            .min()
            .map(|(_, index)| index);
        let Some(index) = first else { return Ok(None) };
        let stream = &mut self.streams[index];
        let next = stream.decoder.next(&mut self.shared)?;
        Ok(std::mem::replace(&mut stream.head, next))
    }

    fn check_end(&mut self) -> Result<()> {
        let report = &self.shared.report;
        let Some(first) = report.first_malformed.first().filter(|_| report.requests == 0) else {
            return Ok(());
        };
        let count = report.malformed;
        let message = format!("nothing could be read: {count} malformed, the first at {first}");
        Err(Error::new(ErrorKind::Malformed, message).with_hint("is --format right?"))
    }
}

impl Source for Reader {
    fn next(&mut self) -> Result<Option<Request>> {
        while !self.is_at_end && !self.order.is_full() {
            match self.merge()? {
                Some(request) => self.order.push(request),
                None => self.is_at_end = true,
            }
        }
        let Some((mut request, is_late)) = self.order.pop() else {
            self.check_end()?;
            return Ok(None);
        };
        if is_late {
            self.shared.report.late += 1;
            if self.shared.is_strict {
                let number = self.shared.report.requests + 1;
                let message = format!("request {number} is earlier than the one before");
                return Err(Error::new(ErrorKind::Malformed, message));
            }
        }
        let base_ns = *self.base_ns.get_or_insert(request.time_ns);
        request.time_ns -= base_ns;
        self.shared.report.requests += 1;
        Ok(Some(request))
    }

    fn devices(&self) -> &Devices {
        &self.shared.devices
    }

    fn start(&self) -> u64 {
        self.base_ns.filter(|_| self.has_wall_clock).unwrap_or_default()
    }
}

fn decoder(mut input: Input, options: ReadOptions) -> Result<(Box<dyn Decoder>, Format, bool)> {
    let format = match options.format {
        Some(format) => format,
        None => {
            let beginning = detect::beginning(&mut input)?;
            input.bytes = Box::new(std::io::Cursor::new(beginning.clone()).chain(input.bytes));
            detect::format(&input.name, &beginning)?
        }
    };
    let lines = |input, parser| Box::new(lines::Lines::new(input, parser)) as Box<dyn Decoder>;
    let decoder: Box<dyn Decoder> = match format {
        Format::Hindsight => {
            let decoder = native::Native::open(input)?;
            let has_wall_clock = decoder.has_wall_clock();
            return Ok((Box::new(decoder), format, has_wall_clock));
        }
        Format::Blktrace => Box::new(blktrace::Blktrace::new(input, options.event)),
        Format::FioV2 => lines(input, Box::<fio::V2>::default()),
        Format::FioV3 => lines(input, Box::new(fio::V3)),
        Format::Msr => lines(input, Box::new(tables::Msr)),
        Format::Alibaba => lines(input, Box::new(tables::Alibaba)),
        Format::Tencent => lines(input, Box::new(tables::Tencent)),
        Format::Systor => lines(input, Box::new(tables::Systor)),
        Format::Fiu => lines(input, Box::new(tables::Fiu)),
        Format::Spc => lines(input, Box::new(tables::Spc)),
    };
    Ok((decoder, format, format.has_wall_clock()))
}

fn cannot_read(input: &str, source: std::io::Error) -> Error {
    Error::new(ErrorKind::Read, format!("cannot read {input}")).because(source)
}

/// A flush at this time.
fn flush(time_ns: u64, device: u32) -> Request {
    Request { time_ns, device, kind: RequestKind::Flush, ..Request::default() }
}
