//! Reading traces: every known format becomes the same requests, in order, from time 0 on.
//!
//! 1. Memory is bounded: a buffer, a line or a frame of each input, the names of the devices, and
//!    `ORDER_REQUESTS` requests that wait for earlier ones.
//! 2. Nothing in an input panics, and no number in it decides how much is allocated.
//! 3. What cannot be read is counted and located, or an error if `is_strict`; it never passes
//!    for a request.
//!
//! It opens no files: it is handed readers.

use std::io::Read;

use crate::Request;
use crate::error::{Error, ErrorKind, Result};
use crate::source::{Devices, Source};

mod base;
mod blktrace;
mod detect;
mod fields;
mod fio;
mod lines;
mod native;
mod order;
mod tables;

pub use base::{BlockEvent, Format, Input, Malformed, ReadOptions, ReadReport};
use base::{Decoder, Shared};
use order::Order;

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
