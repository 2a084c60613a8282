//! Finding out a trace's format from how it begins.

use std::io::Read;

use super::base::{EXCERPT_BYTES, Format, Input, cannot_read};
use super::lines::{LineParser, is_heading};
use super::{fio, tables};
use crate::error::{Error, ErrorKind, Result, shown};
use crate::source::Devices;

/// How much is looked at.
const BEGINNING_BYTES: u64 = 8192;
/// Lines that are looked at.
const LINES: usize = 32;

/// The first bytes of an input.
pub(super) fn beginning(input: &mut Input) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut limited = (&mut input.bytes).take(BEGINNING_BYTES);
    limited.read_to_end(&mut bytes).map_err(|e| cannot_read(&input.name, e))?;
    Ok(bytes)
}

/// The format of what begins so.
pub(super) fn format(name: &str, bytes: &[u8]) -> Result<Format> {
    if let Some(format) = by_magic(bytes).or_else(|| by_lines(bytes)) {
        return Ok(format);
    }
    let hint = match packed(bytes) {
        Some(program) => format!("it is compressed: {program} FILE | hindsight trace ... -"),
        None => {
            let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
            format!("known formats are {}; --format names one", names.join(", "))
        }
    };
    let message = match bytes {
        [] => format!("{name} is empty"),
        _ => {
            let first = shown(bytes, EXCERPT_BYTES);
            format!("{name} is in no trace format that is known: it begins with \"{first}\"")
        }
    };
    Err(Error::new(ErrorKind::UnknownFormat, message).with_hint(hint))
}

fn by_magic(bytes: &[u8]) -> Option<Format> {
    if bytes.starts_with(&crate::native::TRACE_MAGIC) {
        return Some(Format::Hindsight);
    }
    if super::blktrace::is_record(bytes) {
        return Some(Format::Blktrace);
    }
    let line = bytes.split(|byte| *byte == b'\n').next()?.trim_ascii();
    match line {
        b"fio version 2 iolog" => Some(Format::FioV2),
        b"fio version 3 iolog" => Some(Format::FioV3),
        _ => None,
    }
}

/// The format that most of the first lines are in, if at least half of them are.
fn by_lines(bytes: &[u8]) -> Option<Format> {
    let is_whole = (bytes.len() as u64) < BEGINNING_BYTES;
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    if !is_whole && lines.len() > 1 {
        lines.pop();
    }
    let lines: Vec<&[u8]> = lines
        .into_iter()
        .enumerate()
        .map(|(index, line)| (index as u64 + 1, line.trim_ascii()))
        .filter(|(number, line)| !line.is_empty() && !is_heading(*number, line))
        .map(|(_, line)| line)
        .take(LINES)
        .collect();
    let candidates: [(Format, &mut dyn LineParser); 8] = [
        (Format::Msr, &mut tables::Msr),
        (Format::Systor, &mut tables::Systor),
        (Format::Alibaba, &mut tables::Alibaba),
        (Format::Tencent, &mut tables::Tencent),
        (Format::Spc, &mut tables::Spc),
        (Format::Fiu, &mut tables::Fiu),
        // fio's logs without their first line.
        (Format::FioV3, &mut fio::V3),
        (Format::FioV2, &mut fio::V2::default()),
    ];
    let mut best = None;
    let mut best_count = 0;
    for (format, parser) in candidates {
        let mut devices = Devices::default();
        let is_request = |line: &&&[u8]| match parser.parse(line, &mut devices) {
            Ok(Ok(Some(request))) => request.is_valid(),
            _ => false,
        };
        let count = lines.iter().filter(is_request).count();
        if count > best_count {
            (best, best_count) = (Some(format), count);
        }
    }
    best.filter(|_| best_count * 2 >= lines.len())
}

/// The program that unpacks what begins so.
fn packed(bytes: &[u8]) -> Option<&'static str> {
    const PACKERS: [(&[u8], &str); 5] = [
        (b"\x1f\x8b", "gzip -dc"),
        (b"\x28\xb5\x2f\xfd", "zstd -dc"),
        (b"\xfd7zXZ\0", "xz -dc"),
        (b"BZh", "bzip2 -dc"),
        (b"PK\x03\x04", "unzip -p"),
    ];
    PACKERS.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, program)| *program)
}
