//! Formats with one request a line: MSR Cambridge, Alibaba, Tencent, Systor '17, FIU, SPC.

use super::fields::{Fault, columns, scaled, seconds, whole};
use super::lines::{LineParser, Parsed};
use crate::error::Result;
use crate::source::Devices;
use crate::{Request, RequestKind};

const SECTOR_BYTES: u64 = 512;
/// From 1601, where Windows counts from, to 1970.
const FILETIME_EPOCH_NS: u128 = 11_644_473_600 * 1_000_000_000;
const FILETIME_NS: u128 = 100;

const BAD_TIME: Fault = "no time";
const BAD_OFFSET: Fault = "no offset";
const BAD_LENGTH: Fault = "no length";
const BAD_KIND: Fault = "neither a read nor a write";
const BAD_DEVICE: Fault = "no device";

/// Names the device only once the rest of the line is sound: a torn line names none.
fn named(
    parsed: std::result::Result<(Request, &[u8]), Fault>,
    devices: &mut Devices,
) -> Result<Parsed> {
    match parsed {
        Ok((_, [])) => Ok(Err(BAD_DEVICE)),
        Ok((request, key)) => {
            let device = if request.is_valid() { devices.number(key)? } else { 0 };
            Ok(Ok(Some(Request { device, ..request })))
        }
        Err(fault) => Ok(Err(fault)),
    }
}

fn letter(text: &[u8]) -> std::result::Result<RequestKind, Fault> {
    match text {
        b"R" | b"r" => Ok(RequestKind::Read),
        b"W" | b"w" => Ok(RequestKind::Write),
        _ => Err(BAD_KIND),
    }
}

fn request(time_ns: u64, kind: RequestKind, offset_bytes: u64, length_bytes: u64) -> Request {
    Request { time_ns, kind, offset_bytes, length_bytes, ..Request::default() }
}

/// `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: 100 ns since 1601, bytes.
pub(super) struct Msr;

impl LineParser for Msr {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Parsed> {
        named(msr(line), devices)
    }
}

fn msr(line: &[u8]) -> std::result::Result<(Request, &[u8]), Fault> {
    let ([time, host, disk, kind, offset, length, _response], 7) = columns(line) else {
        return Err("not seven fields");
    };
    let filetime = u128::from(whole(time, BAD_TIME)?) * FILETIME_NS;
    let nanos = filetime.checked_sub(FILETIME_EPOCH_NS).and_then(|ns| u64::try_from(ns).ok());
    let time_ns = nanos.ok_or("a time before 1970 or after 2554")?;
    let kind = match kind {
        b"Read" => RequestKind::Read,
        b"Write" => RequestKind::Write,
        _ => return Err(BAD_KIND),
    };
    if host.is_empty() || disk.is_empty() {
        return Err(BAD_DEVICE);
    }
    // Host and disk stand beside each other: `host,disk` names the device.
    let start = host.as_ptr() as usize - line.as_ptr() as usize;
    let end = disk.as_ptr() as usize + disk.len() - line.as_ptr() as usize;
    let request = request(time_ns, kind, whole(offset, BAD_OFFSET)?, whole(length, BAD_LENGTH)?);
    Ok((request, &line[start..end]))
}

/// `device_id,opcode,offset,length,timestamp`: bytes, microseconds since 1970.
pub(super) struct Alibaba;

impl LineParser for Alibaba {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Parsed> {
        named(alibaba(line), devices)
    }
}

fn alibaba(line: &[u8]) -> std::result::Result<(Request, &[u8]), Fault> {
    let ([device, kind, offset, length, time], 5) = columns(line) else {
        return Err("not five fields");
    };
    let kind = letter(kind)?;
    let time_ns = scaled(time, 1000, BAD_TIME)?;
    Ok((request(time_ns, kind, whole(offset, BAD_OFFSET)?, whole(length, BAD_LENGTH)?), device))
}

/// `Timestamp,Offset,Size,IOType,VolumeID`: seconds since 1970, sectors, 0 reads and 1 writes.
pub(super) struct Tencent;

impl LineParser for Tencent {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Parsed> {
        named(tencent(line), devices)
    }
}

fn tencent(line: &[u8]) -> std::result::Result<(Request, &[u8]), Fault> {
    let ([time, offset, length, kind, device], 5) = columns(line) else {
        return Err("not five fields");
    };
    let kind = match kind {
        b"0" => RequestKind::Read,
        b"1" => RequestKind::Write,
        _ => return Err(BAD_KIND),
    };
    let time_ns = seconds(time, BAD_TIME)?;
    let offset = scaled(offset, SECTOR_BYTES, BAD_OFFSET)?;
    Ok((request(time_ns, kind, offset, scaled(length, SECTOR_BYTES, BAD_LENGTH)?), device))
}

/// `Timestamp,Response,IOType,LUN,Offset,Size`: seconds since 1970, bytes; the type may be missing.
pub(super) struct Systor;

impl LineParser for Systor {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Parsed> {
        let ([_, _, kind, ..], count) = columns::<6>(line);
        if count == 6 && kind.is_empty() {
            // The capture lost what it was: no request that can be replayed, and no fault.
            return Ok(Ok(None));
        }
        named(systor(line), devices)
    }
}

fn systor(line: &[u8]) -> std::result::Result<(Request, &[u8]), Fault> {
    let ([time, _response, kind, device, offset, length], 6) = columns(line) else {
        return Err("not six fields");
    };
    let kind = letter(kind)?;
    let time_ns = seconds(time, BAD_TIME)?;
    Ok((request(time_ns, kind, whole(offset, BAD_OFFSET)?, whole(length, BAD_LENGTH)?), device))
}

/// `ASU,LBA,Size,Opcode,Timestamp`, and fields that nobody needs: sectors, bytes, seconds.
pub(super) struct Spc;

impl LineParser for Spc {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Parsed> {
        named(spc(line), devices)
    }
}

fn spc(line: &[u8]) -> std::result::Result<(Request, &[u8]), Fault> {
    let ([device, offset, length, kind, time], count) = columns(line);
    if count < 5 {
        return Err("fewer than five fields");
    }
    let kind = letter(kind)?;
    let offset = scaled(offset, SECTOR_BYTES, BAD_OFFSET)?;
    whole(device, BAD_DEVICE)?;
    Ok((request(seconds(time, BAD_TIME)?, kind, offset, whole(length, BAD_LENGTH)?), device))
}

/// `ts pid process lba size R/W major minor MD5`: nanoseconds, sectors. A process may have blanks
/// in its name, so fields are counted from the letter on.
pub(super) struct Fiu;

impl LineParser for Fiu {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Parsed> {
        named(fiu(line), devices)
    }
}

fn fiu(line: &[u8]) -> std::result::Result<(Request, &[u8]), Fault> {
    const TAIL: usize = 6;
    let mut rest = line;
    let mut tail = [&line[..0]; TAIL];
    // From the back: MD5, minor, major, letter, size, lba.
    for field in &mut tail {
        rest = rest.trim_ascii_end();
        let start = rest.iter().rposition(u8::is_ascii_whitespace).map_or(0, |blank| blank + 1);
        *field = &rest[start..];
        rest = &rest[..start];
    }
    let [md5, minor, major, kind, length, offset] = tail;
    let mut front = rest.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let (time, pid) = (front.next().unwrap_or_default(), front.next().unwrap_or_default());
    if front.next().is_none() {
        return Err("fewer than nine fields");
    }
    if !md5.iter().all(u8::is_ascii_hexdigit) {
        return Err("no checksum");
    }
    whole(pid, "no process")?;
    whole(major, BAD_DEVICE)?;
    whole(minor, BAD_DEVICE)?;
    let kind = letter(kind)?;
    let time_ns = whole(time, BAD_TIME)?;
    let offset = scaled(offset, SECTOR_BYTES, BAD_OFFSET)?;
    let request = request(time_ns, kind, offset, scaled(length, SECTOR_BYTES, BAD_LENGTH)?);
    let start = major.as_ptr() as usize - line.as_ptr() as usize;
    let end = minor.as_ptr() as usize + minor.len() - line.as_ptr() as usize;
    Ok((request, &line[start..end]))
}
