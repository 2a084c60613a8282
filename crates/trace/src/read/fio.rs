//! fio's iologs, versions 2 and 3.

use super::base::flush;
use super::fields::{scaled, whole};
use super::lines::{LineParser, Parsed};
use crate::error::Result;
use crate::source::Devices;
use crate::{Request, RequestKind};

const MICROSECOND_NS: u64 = 1000;

/// `file action [offset length]`. Time passes only by `wait`, in microseconds since the wait
/// before.
#[derive(Default)]
pub(super) struct V2 {
    time_ns: u64,
}

/// `microseconds file action [offset length]`.
pub(super) struct V3;

impl LineParser for V2 {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Parsed> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let words: [&[u8]; 4] = std::array::from_fn(|_| words.next().unwrap_or_default());
        let [file, action, offset, _] = words;
        if file == b"fio" && action == b"version" {
            return Ok(Ok(None));
        }
        if action == b"wait" {
            let waited = scaled(offset, MICROSECOND_NS, "no time to wait for");
            let later = waited.and_then(|ns| self.time_ns.checked_add(ns).ok_or("too long"));
            return Ok(later.map(|ns| {
                self.time_ns = ns;
                None
            }));
        }
        request(self.time_ns, words, devices)
    }
}

impl LineParser for V3 {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Parsed> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let time = words.next().unwrap_or_default();
        if time == b"fio" {
            return Ok(Ok(None));
        }
        match scaled(time, MICROSECOND_NS, "no time") {
            Ok(ns) => {
                let words = std::array::from_fn(|_| words.next().unwrap_or_default());
                request(ns, words, devices)
            }
            Err(fault) => Ok(Err(fault)),
        }
    }
}

fn request(time_ns: u64, words: [&[u8]; 4], devices: &mut Devices) -> Result<Parsed> {
    let [file, action, offset, length] = words;
    let kind = match action {
        b"add" | b"open" | b"close" => return Ok(Ok(None)),
        b"read" => RequestKind::Read,
        b"write" => RequestKind::Write,
        b"trim" => RequestKind::Trim,
        b"sync" | b"datasync" | b"sync_file_range" => {
            return Ok(Ok(Some(flush(time_ns, devices.number(file)?))));
        }
        _ => return Ok(Err("no action that is known")),
    };
    let range = whole(offset, "no offset").and_then(|o| Ok((o, whole(length, "no length")?)));
    let (offset_bytes, length_bytes) = match range {
        Ok(range) => range,
        Err(fault) => return Ok(Err(fault)),
    };
    let mut request = Request { time_ns, kind, offset_bytes, length_bytes, ..Request::default() };
    if request.is_valid() {
        request.device = devices.number(file)?;
    }
    Ok(Ok(Some(request)))
}
