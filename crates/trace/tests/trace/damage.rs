//! What is wrong is counted and located, or an error; nothing panics, whatever the bytes.

use hindsight_trace::read::{Format, ReadOptions};
use hindsight_trace::write::{WriteFormat, write_all};
use hindsight_trace::{ErrorKind, Request, RequestKind, Source};
use proptest::prelude::{any, prop, proptest};

use crate::traces::{List, all, open, request};

const MSR: &str = include_str!("samples/msr.csv");

#[test]
fn malformed_lines_are_counted_and_located() {
    let text = MSR.replace("Write,1317441536", "Wrote,1317441536");
    let mut reader = open(text.as_bytes(), ReadOptions::default()).unwrap();
    assert_eq!(all(&mut reader).len(), 2);
    let report = reader.report();
    assert_eq!((report.requests, report.malformed), (2, 1));
    let found = &report.first_malformed[0];
    assert_eq!((found.line, found.byte), (2, 54));
    assert_eq!(found.reason, "neither a read nor a write");
    assert!(found.excerpt.starts_with("128166372016382155,src1,0,Wrote"), "{found:?}");
    let strict = ReadOptions { is_strict: true, ..ReadOptions::default() };
    let error = open(text.as_bytes(), strict).and_then(|mut reader| {
        loop {
            if reader.next()?.is_none() {
                return Ok(());
            }
        }
    });
    let error = error.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Malformed);
    assert!(error.message.starts_with("input:2: neither a read nor a write: "), "{error}");
}

#[test]
fn only_the_first_malformed_lines_are_kept() {
    let text: String = MSR.to_owned() + &"nonsense\n".repeat(1000);
    let options = ReadOptions { format: Some(Format::Msr), ..ReadOptions::default() };
    let mut reader = open(text.as_bytes(), options).unwrap();
    assert_eq!(all(&mut reader).len(), 3);
    assert_eq!((reader.report().malformed, reader.report().first_malformed.len()), (1000, 10));
}

#[test]
fn a_line_without_end_is_malformed_and_not_kept() {
    let text = MSR.to_owned() + &"7".repeat(3 << 20) + "\n" + MSR;
    let mut reader = open(text.as_bytes(), ReadOptions::default()).unwrap();
    assert_eq!(all(&mut reader).len(), 6);
    let found = &reader.report().first_malformed[0];
    assert_eq!((found.line, found.reason.as_str()), (4, "a line longer than any request"));
}

#[test]
fn an_unknown_format_is_named_with_its_first_bytes() {
    let error = open(b"\x7fELF\x02\x01\x01", ReadOptions::default()).err().unwrap();
    assert_eq!(error.kind, ErrorKind::UnknownFormat);
    assert!(error.message.ends_with(r#"it begins with "\x7fELF\x02\x01\x01""#), "{error}");
    assert!(error.hint.unwrap().contains("known formats are hindsight, fio-v2"));
    let error = open(b"fio version 1 iolog\n", ReadOptions::default()).err().unwrap();
    assert_eq!(error.kind, ErrorKind::UnknownFormat);
    let error = open(b"", ReadOptions::default()).err().unwrap();
    assert_eq!(error.message, "input is empty");
    let error = open(b"\x1f\x8b\x08\0", ReadOptions::default()).err().unwrap();
    assert!(error.hint.unwrap().contains("gzip -dc"));
}

#[test]
fn numbers_that_do_not_fit_are_malformed() {
    for line in [
        "128166372003061629,src1,0,Read,18446744073709551615,1,0",
        "128166372003061629,src1,0,Read,9223372036854775807,1,0",
        "128166372003061629,src1,0,Read,99999999999999999999,1,0",
        "0,src1,0,Read,0,1,0",
        "128166372003061629,src1,0,Read,0,0,0",
        "128166372003061629,,0,Read,0,1,0",
        "128166372003061629,src1,0,Read,-1,1,0",
    ] {
        let text = format!("{MSR}{line}\n");
        let mut reader = open(text.as_bytes(), ReadOptions::default()).unwrap();
        assert_eq!(all(&mut reader).len(), 3, "{line}");
        assert_eq!(reader.report().malformed, 1, "{line}");
    }
}

fn written(count: u64) -> Vec<u8> {
    let write = |i: u64| request(i * 1000, 0, RequestKind::Write, i * 7 % 1000 * 4096, 4096);
    let requests: Vec<Request> = (0..count).map(write).collect();
    let mut bytes = Vec::new();
    write_all(&mut List::new(requests), WriteFormat::Hindsight, &mut bytes).expect("memory");
    bytes
}

#[test]
fn a_trace_that_was_cut_off_gives_its_whole_frames_and_says_so() {
    let bytes = written(50_000);
    for cut in [bytes.len() - 40, bytes.len() - 50, bytes.len() / 2] {
        let mut reader = open(&bytes[..cut], ReadOptions::default()).unwrap();
        let requests = all(&mut reader);
        assert!(!requests.is_empty() && requests.len() <= 50_000);
        assert_eq!(reader.report().malformed, 1, "cut at {cut}");
    }
}

#[test]
fn damage_in_our_own_format_never_passes_for_a_request() {
    let bytes = written(20_000);
    let whole = all(&mut open(&bytes, ReadOptions::default()).unwrap());
    for place in (32..bytes.len()).step_by(997) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x10;
        let Ok(mut reader) = open(&damaged, ReadOptions::default()) else { continue };
        let Ok(requests) =
            std::iter::from_fn(|| reader.next().transpose()).collect::<Result<Vec<_>, _>>()
        else {
            continue;
        };
        assert_eq!(requests, whole[..requests.len()], "byte {place}");
        assert_eq!(reader.report().malformed, 1, "byte {place}");
    }
}

/// Reads whatever it is to its end, or to an error.
fn drain(bytes: &[u8], format: Option<Format>) {
    let options = ReadOptions { format, ..ReadOptions::default() };
    let Ok(mut reader) = open(bytes, options) else { return };
    let mut last_ns = 0;
    while let Ok(Some(request)) = reader.next() {
        assert!(request.is_valid(), "{request:?}");
        assert!(request.time_ns >= last_ns);
        assert!((request.device as usize) < reader.devices().names().len());
        last_ns = request.time_ns;
    }
}

/// A sample of every format.
fn samples() -> Vec<Vec<u8>> {
    vec![
        MSR.as_bytes().to_vec(),
        include_bytes!("samples/alibaba.csv").to_vec(),
        include_bytes!("samples/tencent.csv").to_vec(),
        include_bytes!("samples/systor.csv").to_vec(),
        include_bytes!("samples/fiu.txt").to_vec(),
        include_bytes!("samples/spc.txt").to_vec(),
        include_bytes!("samples/fio-v2.iolog").to_vec(),
        include_bytes!("samples/fio-v3.iolog").to_vec(),
        written(100),
    ]
}

proptest! {
    #[test]
    fn random_bytes_are_read_or_refused(bytes: Vec<u8>, format in 0..11_usize) {
        drain(&bytes, Format::ALL.get(format).copied());
    }

    #[test]
    fn records_of_random_fields_are_read_or_refused(
        tail in prop::collection::vec(any::<[u8; 44]>(), 1..20),
    ) {
        let bytes: Vec<u8> =
            tail.iter().flat_map(|tail| [&b"\x07\x74\x61\x65"[..], tail].concat()).collect();
        drain(&bytes, None);
    }

    #[test]
    fn damaged_samples_are_read_or_refused(
        sample in 0..9_usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        format in 0..20_usize,
    ) {
        let mut bytes = samples().swap_remove(sample);
        for (place, byte) in edits {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        drain(&bytes, Format::ALL.get(format).copied());
    }
}
