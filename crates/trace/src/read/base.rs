//! What is read, how, and how it went; what the decoders of all formats share.

use std::io::BufRead;

use crate::error::{Error, ErrorKind, Result, shown};
use crate::source::Devices;
use crate::{Request, RequestKind};

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
    pub(super) fn has_wall_clock(self) -> bool {
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
pub(super) const EXCERPT_BYTES: usize = 80;

/// What decoders share: names and the report.
pub(super) struct Shared {
    pub(super) devices: Devices,
    pub(super) report: ReadReport,
    pub(super) is_strict: bool,
}

/// Where a decoder is.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) line: u64,
    pub(super) byte: u64,
}

impl Shared {
    /// Counts something that cannot be read, or makes it the error.
    pub(super) fn malformed(
        &mut self,
        input: &str,
        spot: Spot,
        reason: &str,
        bytes: &[u8],
    ) -> Result<()> {
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
pub(super) trait Decoder {
    fn next(&mut self, shared: &mut Shared) -> Result<Option<Request>>;
}

pub(super) fn cannot_read(input: &str, source: std::io::Error) -> Error {
    Error::new(ErrorKind::Read, format!("cannot read {input}")).because(source)
}

/// A flush at this time.
pub(super) fn flush(time_ns: u64, device: u32) -> Request {
    Request { time_ns, device, kind: RequestKind::Flush, ..Request::default() }
}
