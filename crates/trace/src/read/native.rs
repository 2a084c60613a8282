//! Our own format. Damage ends the reading of an input: unlike a line, a frame that does not
//! verify says nothing about what follows.

use std::io::Read;

use crate::native::{
    FRAME_HEADER_BYTES, FRAME_PAYLOAD_BYTES_MAX, Frame, FrameHeader, FrameKind, TRACE_HEADER_BYTES,
    TraceHeader,
};
use format::FormatError;

use super::base::{Decoder, Input, Shared, Spot, cannot_read};
use crate::Request;
use crate::error::{Error, ErrorKind, Result};

pub(super) struct Native {
    input: Input,
    header: TraceHeader,
    bytes: Vec<u8>,
    requests: Vec<Request>,
    /// How many of `requests` were given out.
    given: usize,
    /// Numbers here of the devices of the trace.
    devices: Vec<u32>,
    requests_total: u64,
    last_ns: u64,
    byte: u64,
    is_at_end: bool,
}

impl Native {
    pub(super) fn open(input: Input) -> Result<Native> {
        let bytes = vec![0; FRAME_HEADER_BYTES + FRAME_PAYLOAD_BYTES_MAX];
        let mut native = Native {
            input,
            header: TraceHeader::default(),
            bytes,
            requests: Vec::new(),
            given: 0,
            devices: Vec::new(),
            requests_total: 0,
            last_ns: 0,
            byte: 0,
            is_at_end: false,
        };
        let filled = native.read(0, TRACE_HEADER_BYTES)?;
        native.header = TraceHeader::decode(&native.bytes[..filled]).map_err(|error| {
            let message = format!("{} is no trace that this program reads", native.input.name);
            Error::new(ErrorKind::Malformed, message).because(error)
        })?;
        Ok(native)
    }

    pub(super) fn has_wall_clock(&self) -> bool {
        self.header.start != 0
    }

    /// Fills `bytes[from..to]` as far as the input goes.
    fn read(&mut self, from: usize, to: usize) -> Result<usize> {
        let mut filled = from;
        while filled < to {
            match self.input.bytes.read(&mut self.bytes[filled..to]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(cannot_read(&self.input.name, e)),
            }
        }
        self.byte += (filled - from) as u64;
        Ok(filled)
    }

    /// Reads one frame.
    fn advance(&mut self, shared: &mut Shared) -> Result<()> {
        let at = self.byte;
        let filled = self.read(0, FRAME_HEADER_BYTES)?;
        if filled == 0 {
            return self.stop(shared, at, "the end is missing: the trace was cut off");
        }
        let header = match FrameHeader::peek(&self.bytes[..filled], at) {
            Ok(header) => header,
            Err(error) => return self.stop(shared, at, &error.to_string()),
        };
        let whole = self.read(FRAME_HEADER_BYTES, FRAME_HEADER_BYTES + header.payload_bytes)?;
        match self.take(shared, at, whole)? {
            Ok(()) => Ok(()),
            Err(error) => {
                self.requests.clear();
                self.stop(shared, at, &error.to_string())
            }
        }
    }

    /// Takes over what the frame in `bytes[..whole]` holds.
    fn take(
        &mut self,
        shared: &mut Shared,
        at: u64,
        whole: usize,
    ) -> Result<std::result::Result<(), FormatError>> {
        let frame = match Frame::decode(&self.bytes[..whole], at) {
            Ok(frame) => frame,
            Err(error) => return Ok(Err(error)),
        };
        match frame.header.kind {
            FrameKind::Names => {
                let names = match frame.names() {
                    Ok(names) => names,
                    Err(error) => return Ok(Err(error)),
                };
                let named = self.devices.len() as u64;
                if let Err(error) = follows(at, frame.header.before, named) {
                    return Ok(Err(error));
                }
                for name in names {
                    self.devices.push(shared.devices.number(name.as_bytes())?);
                }
                return Ok(Ok(()));
            }
            FrameKind::Requests => {
                self.requests.clear();
                self.given = 0;
                if let Err(error) = frame.requests(&mut self.requests) {
                    return Ok(Err(error));
                }
            }
            FrameKind::Lost => shared.report.lost += u64::from(frame.header.count),
            FrameKind::End => self.is_at_end = true,
        }
        let frame_header = frame.header;
        Ok(self.check(at, &frame_header))
    }

    /// Whether the frame follows the ones before, and gives devices the numbers that hold here.
    fn check(&mut self, at: u64, header: &FrameHeader) -> std::result::Result<(), FormatError> {
        follows(at, header.before, self.requests_total)?;
        if header.time_ns < self.last_ns {
            let expected = format!("a time of {} ns or later", self.last_ns);
            return Err(wrong(at, expected, format!("{} ns", header.time_ns)));
        }
        if header.kind == FrameKind::Requests {
            self.requests_total += self.requests.len() as u64;
            self.last_ns = self.requests.last().map_or(self.last_ns, |request| request.time_ns);
            // Times become those of the clock; beyond 2554 they stand still.
            for request in &mut self.requests {
                let Some(&device) = self.devices.get(request.device as usize) else {
                    let found = format!("device {}", request.device);
                    return Err(wrong(at, "a device that was named".to_owned(), found));
                };
                request.device = device;
                request.time_ns = request.time_ns.saturating_add(self.header.start);
            }
        }
        Ok(())
    }

    fn stop(&mut self, shared: &mut Shared, byte: u64, reason: &str) -> Result<()> {
        self.is_at_end = true;
        shared.malformed(&self.input.name, Spot { line: 0, byte }, reason, &[])
    }
}

/// Fails unless a frame says that as much came before it as did.
fn follows(at: u64, said: u64, counted: u64) -> std::result::Result<(), FormatError> {
    if said == counted {
        return Ok(());
    }
    Err(wrong(at, format!("a frame after {counted}"), format!("one after {said}")))
}

fn wrong(at: u64, expected: String, found: String) -> FormatError {
    let kind = format::FormatErrorKind::Invalid;
    FormatError { kind, structure: "trace frame", address: at, expected, found }
}

impl Decoder for Native {
    fn next(&mut self, shared: &mut Shared) -> Result<Option<Request>> {
        loop {
            if let Some(request) = self.requests.get(self.given) {
                self.given += 1;
                return Ok(Some(*request));
            }
            if self.is_at_end {
                return Ok(None);
            }
            self.requests.clear();
            self.given = 0;
            self.advance(shared)?;
        }
    }
}
