//! Formats of lines: a parser for one line, and what is around it.

use std::io::BufRead;

use super::base::{Decoder, Input, Shared, Spot, cannot_read};
use super::fields::Fault;
use crate::Request;
use crate::error::Result;
use crate::source::Devices;

/// A longer line is malformed; no format that is read here has lines half as long.
pub(super) const LINE_BYTES_MAX: usize = 4096;

/// What a line is.
pub(super) type Parsed = std::result::Result<Option<Request>, Fault>;

/// A parser of one line, without its end.
pub(super) trait LineParser {
    /// The request of a line, with the time of the trace's own clock; `None` for one that is none.
    /// The outer error is of more than this line.
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Parsed>;
}

pub(super) struct Lines {
    input: Input,
    parser: Box<dyn LineParser>,
    line: Vec<u8>,
    spot: Spot,
    next_byte: u64,
}

impl Lines {
    pub(super) fn new(input: Input, parser: Box<dyn LineParser>) -> Lines {
        let spot = Spot { line: 0, byte: 0 };
        Lines { input, parser, line: Vec::new(), spot, next_byte: 0 }
    }

    /// Reads the next line, or as much of it as a line may have. Whether there was one.
    fn advance(&mut self) -> Result<bool> {
        self.line.clear();
        self.spot = Spot { line: self.spot.line + 1, byte: self.next_byte };
        let mut is_any = false;
        loop {
            let bytes = loop {
                match self.input.bytes.fill_buf() {
                    Ok(_) => break self.input.bytes.fill_buf(),
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(cannot_read(&self.input.name, e)),
                }
            };
            let bytes = bytes.map_err(|e| cannot_read(&self.input.name, e))?;
            if bytes.is_empty() {
                return Ok(is_any);
            }
            is_any = true;
            let end = memchr::memchr(b'\n', bytes);
            let line = &bytes[..end.unwrap_or(bytes.len())];
            // One byte more than allowed shows that it is too long.
            let room = (LINE_BYTES_MAX + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(&line[..line.len().min(room)]);
            let consumed = line.len() + usize::from(end.is_some());
            self.input.bytes.consume(consumed);
            self.next_byte += consumed as u64;
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}

impl Decoder for Lines {
    fn next(&mut self, shared: &mut Shared) -> Result<Option<Request>> {
        while self.advance()? {
            let line = self.line.trim_ascii();
            if line.is_empty() || is_heading(self.spot.line, line) {
                shared.report.skipped += 1;
                continue;
            }
            let parsed = if self.line.len() > LINE_BYTES_MAX {
                Err("a line longer than any request")
            } else {
                self.parser.parse(line, &mut shared.devices)?
            };
            match parsed {
                Ok(Some(request)) if request.is_valid() => return Ok(Some(request)),
                Ok(Some(_)) => {
                    let reason = "a range of no length, or beyond 2^63 bytes";
                    shared.malformed(&self.input.name, self.spot, reason, line)?;
                }
                Ok(None) => shared.report.skipped += 1,
                Err(fault) => shared.malformed(&self.input.name, self.spot, fault, line)?,
            }
        }
        Ok(None)
    }
}

/// Whether a line names columns: the first one, and without a digit.
pub(super) fn is_heading(number: u64, line: &[u8]) -> bool {
    number == 1 && line.contains(&b',') && !line.iter().any(u8::is_ascii_digit)
}
