//! Every format: a small sample, found out by itself, read to the byte.

use hindsight_trace::read::{BlockEvent, Format, Input, ReadOptions, Reader};
use hindsight_trace::write::{WriteFormat, write_all};
use hindsight_trace::{ErrorKind, Request, RequestKind, Source};

use crate::traces::{List, all, open, request};
use RequestKind::{Flush, Read, Trim, Write};

const MSR: &[u8] = include_bytes!("samples/msr.csv");
const SECOND: u64 = 1_000_000_000;

/// What a sample is read as, and in which format.
fn read(bytes: &[u8]) -> (Vec<Request>, Reader, &'static str) {
    let mut reader = open(bytes, ReadOptions::default()).expect("a known format");
    let requests = all(&mut reader);
    let format = reader.report().formats[0];
    assert_eq!(reader.report().malformed, 0, "{:?}", reader.report());
    assert_eq!(reader.report().requests, requests.len() as u64);
    (requests, reader, format)
}

#[test]
fn msr_is_read() {
    let (requests, reader, format) = read(MSR);
    assert_eq!(format, "msr");
    let expected = [
        request(0, 0, Read, 7_014_609_920, 24_576),
        request(1_332_052_600, 0, Write, 1_317_441_536, 8192),
        request(2_332_061_600, 1, Write, 2_436_440_064, 4096),
    ];
    assert_eq!(requests, expected);
    assert_eq!(reader.devices().names(), ["src1_0", "src1_1"]);
    // 2007-02-22T17:00:00.3Z.
    assert_eq!(reader.start() / SECOND, 1_172_163_600);
}

#[test]
fn alibaba_is_read() {
    let (requests, reader, format) = read(include_bytes!("samples/alibaba.csv"));
    assert_eq!(format, "alibaba");
    let expected = [
        request(0, 0, Write, 8_792_731_648, 16_384),
        request(46_000, 1, Read, 59_110_326_272, 4096),
        request(155_000, 0, Write, 8_792_748_032, 4096),
    ];
    assert_eq!(requests, expected);
    assert_eq!(reader.devices().names(), ["419", "725"]);
    assert_eq!(reader.start(), 1_577_808_144_360_767_000);
}

#[test]
fn tencent_is_read() {
    let (requests, reader, format) = read(include_bytes!("samples/tencent.csv"));
    assert_eq!(format, "tencent");
    let expected = [
        request(0, 0, Read, 12_910_952 * 512, 65_536),
        request(0, 0, Write, 6_338_688 * 512, 4096),
        request(SECOND, 1, Write, 1_904_106 * 512, 196_608),
    ];
    assert_eq!(requests, expected);
    assert_eq!(reader.devices().names(), ["1063", "1323"]);
}

#[test]
fn systor_is_read_and_what_has_no_type_is_skipped() {
    let (requests, reader, format) = read(include_bytes!("samples/systor.csv"));
    assert_eq!(format, "systor");
    let expected =
        [request(0, 0, Read, 2_200_240_128, 4096), request(3_813_000, 1, Write, 88_888_320, 8192)];
    assert_eq!(requests, expected);
    assert_eq!(reader.devices().names(), ["0", "4"]);
    assert_eq!(reader.report().skipped, 2, "the heading, and the one without a type");
}

#[test]
fn fiu_is_read_also_with_blanks_in_a_name() {
    let (requests, reader, format) = read(include_bytes!("samples/fiu.txt"));
    assert_eq!(format, "fiu");
    let expected = [
        request(0, 0, Write, 904_265_560 * 512, 4096),
        request(39_064, 0, Write, 926_858_672 * 512, 4096),
        request(467_651, 1, Read, 904_265_568 * 512, 8192),
    ];
    assert_eq!(requests, expected);
    assert_eq!(reader.devices().names(), ["6:0", "6:1"]);
    assert_eq!(reader.start(), 0, "its clock is nobody's");
}

#[test]
fn spc_is_read() {
    let (requests, _, format) = read(include_bytes!("samples/spc.txt"));
    assert_eq!(format, "spc");
    let expected = [
        request(0, 0, Write, 20_941_264 * 512, 8192),
        request(2_335_000, 0, Write, 20_939_840 * 512, 8192),
        request(698_294_000, 1, Read, 3072 * 512, 4096),
    ];
    assert_eq!(requests, expected);
}

#[test]
fn fio_version_2_waits() {
    let (requests, reader, format) = read(include_bytes!("samples/fio-v2.iolog"));
    assert_eq!(format, "fio-v2");
    let expected = [
        request(0, 0, Write, 4096, 8192),
        request(500_000, 0, Flush, 0, 0),
        request(500_000, 0, Trim, 0, 65_536),
    ];
    assert_eq!(requests, expected);
    assert_eq!(reader.devices().names(), ["/dev/sda"]);
}

#[test]
fn fio_version_3_has_times() {
    let (requests, _, format) = read(include_bytes!("samples/fio-v3.iolog"));
    assert_eq!(format, "fio-v3");
    let expected = [
        request(0, 0, Read, 0, 4096),
        request(52_000_000, 0, Write, 4096, 512),
        request(52_018_000, 0, Flush, 0, 0),
    ];
    assert_eq!(requests, expected);
}

/// A record of blktrace, with something hanging on it.
fn record(is_big: bool, time: u64, sector: u64, bytes: u32, action: u32, tail: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    let mut put = |value: u64, size: usize| {
        let all = if is_big { value.to_be_bytes() } else { value.to_le_bytes() };
        record.extend_from_slice(if is_big { &all[8 - size..] } else { &all[..size] });
    };
    put(0x6561_7407, 4);
    put(1, 4);
    put(time, 8);
    put(sector, 8);
    put(bytes.into(), 4);
    put(action.into(), 4);
    put(4711, 4);
    put(8 << 20 | 16, 4);
    put(0, 4);
    put(0, 2);
    put(tail.len() as u64, 2);
    record.extend_from_slice(tail);
    record
}

const WRITE: u32 = 1 << 17;
const READ: u32 = 1 << 16;
const FLUSH: u32 = 1 << 18;
const NOTICE: u32 = 1 << 26;
const DISCARD: u32 = 1 << 29;
const FUA: u32 = 1 << 31;

fn blktrace(is_big: bool) -> Vec<u8> {
    [
        record(is_big, 1000, 0, 0, NOTICE | 1, b"name"),
        record(is_big, 2000, 8, 4096, WRITE | FUA | 1, b""),
        record(is_big, 2100, 8, 4096, WRITE | 7, b"xy"),
        record(is_big, 3000, 64, 512, READ | 1, b""),
        record(is_big, 4000, 0, 1 << 20, WRITE | DISCARD | 1, b""),
        record(is_big, 5000, 0, 0, WRITE | FLUSH | 1, b""),
        record(is_big, 6000, 16, 4096, WRITE | FLUSH | 1, b""),
    ]
    .concat()
}

#[test]
fn blktrace_is_read_in_either_order_of_bytes() {
    let fua = Request { is_fua: true, ..request(0, 0, Write, 4096, 4096) };
    let expected = [
        fua,
        request(1000, 0, Read, 32_768, 512),
        request(2000, 0, Trim, 0, 1 << 20),
        request(3000, 0, Flush, 0, 0),
        request(4000, 0, Flush, 0, 0),
        request(4000, 0, Write, 8192, 4096),
    ];
    for is_big in [false, true] {
        let (requests, reader, format) = read(&blktrace(is_big));
        assert_eq!(format, "blktrace");
        assert_eq!(requests, expected);
        assert_eq!(reader.devices().names(), ["8:16"]);
    }
    let options = ReadOptions { event: BlockEvent::Issue, ..ReadOptions::default() };
    assert_eq!(all(&mut open(&blktrace(false), options).unwrap()).len(), 1);
}

#[test]
fn our_own_format_gives_back_what_was_written() {
    let requests: Vec<Request> = (0..20_000)
        .map(|i| request(i * 1000, (i % 3) as u32, Write, i * 7 % 1000 * 4096, 4096))
        .collect();
    let mut bytes = Vec::new();
    let written =
        write_all(&mut List::new(requests.clone()), WriteFormat::Hindsight, &mut bytes).unwrap();
    assert_eq!((written.requests, written.bytes), (20_000, bytes.len() as u64));
    let (found, reader, format) = read(&bytes);
    assert_eq!(format, "hindsight");
    assert_eq!(found, requests);
    assert_eq!(reader.devices().names().len(), 8);
}

#[test]
fn what_fio_is_given_comes_back() {
    let requests = vec![
        request(0, 0, Write, 0, 4096),
        request(1_000_000, 1, Read, 8192, 512),
        request(2_000_000, 0, Trim, 0, 65_536),
        request(2_000_000, 0, Flush, 0, 0),
    ];
    let mut bytes = Vec::new();
    write_all(&mut List::new(requests.clone()), WriteFormat::FioV3, &mut bytes).unwrap();
    let (found, _, format) = read(&bytes);
    assert_eq!(format, "fio-v3");
    assert_eq!(found, requests);
}

#[test]
fn the_time_of_day_survives_our_own_format() {
    let mut bytes = Vec::new();
    let mut reader = open(MSR, ReadOptions::default()).unwrap();
    write_all(&mut reader, WriteFormat::Hindsight, &mut bytes).unwrap();
    let (requests, again, _) = read(&bytes);
    assert_eq!(again.start(), reader.start());
    assert_eq!(requests, read(MSR).0);
}

#[test]
fn several_inputs_are_merged_by_time() {
    let input = |name: &str, text: &str| Input {
        name: name.to_owned(),
        bytes: Box::new(std::io::Cursor::new(text.as_bytes().to_vec())),
    };
    let inputs = vec![
        input("a", "1,0,512,W,1.0\n1,0,512,W,3.0\n"),
        input("b", "2,0,512,W,0.5\n2,0,512,W,2.0\n"),
    ];
    let mut reader = Reader::open(inputs, ReadOptions::default()).unwrap();
    let devices: Vec<u32> = all(&mut reader).iter().map(|request| request.device).collect();
    let names: Vec<&str> = devices.iter().map(|device| reader.devices().name(*device)).collect();
    assert_eq!(names, ["2", "1", "2", "1"]);
    let mixed = vec![input("a", "1,0,512,W,1.0\n"), input("b", "419,W,0,512,15778081443607\n")];
    let error = Reader::open(mixed, ReadOptions::default()).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Setting);
}

#[test]
fn requests_out_of_order_are_sorted_and_what_is_too_late_is_counted() {
    let line = |i: u64| format!("0,{i},512,W,{i}.0\n");
    // Swapped in pairs: sorted.
    let swapped: String = (0..1000).map(|i| line(i ^ 1)).collect();
    let (requests, ..) = read(swapped.as_bytes());
    assert!(requests.windows(2).all(|w| w[0].time_ns <= w[1].time_ns));
    assert_eq!(requests[1].offset_bytes, 512);
    // One that comes 10,000 later than it should.
    let late: String = (1..10_001).chain([0]).map(line).collect();
    let mut reader = open(late.as_bytes(), ReadOptions::default()).unwrap();
    let requests = all(&mut reader);
    assert_eq!((requests.len(), reader.report().late), (10_001, 1));
    assert!(requests.windows(2).all(|w| w[0].time_ns <= w[1].time_ns));
    let strict = ReadOptions { is_strict: true, ..ReadOptions::default() };
    let mut reader = open(late.as_bytes(), strict).unwrap();
    let error = std::iter::from_fn(|| reader.next().transpose()).find_map(Result::err);
    assert_eq!(error.unwrap().kind, ErrorKind::Malformed);
}

#[test]
fn a_named_format_is_not_guessed_at() {
    let options = ReadOptions { format: Some(Format::Tencent), ..ReadOptions::default() };
    let mut reader = open(MSR, options).unwrap();
    let error = reader.next().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Malformed);
    assert!(error.message.contains("3 malformed, the first at input:1: not five"), "{error}");
}
