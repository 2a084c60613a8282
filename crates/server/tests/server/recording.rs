//! Recordings of a volume, with readers that are quick, slow and gone.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

use api::{Client, ClientError, ProblemKind, RecordQuery, Rename};
use trace::native::{Frame, FrameHeader, FrameKind, TraceHeader};
use trace::{Request, RequestKind};

use crate::fixture::{Fixture, NBD_READ, NBD_WRITE, attach, kind, nbd_request, new_volume};

/// What is in a trace.
struct Trace {
    name: String,
    requests: Vec<Request>,
    lost: u64,
    has_end: bool,
}

fn decode(bytes: &[u8]) -> Trace {
    let header = TraceHeader::decode(bytes).expect("a header");
    assert!(header.start > 0);
    let mut at = 32;
    let mut trace = Trace { name: String::new(), requests: Vec::new(), lost: 0, has_end: false };
    while at < bytes.len() {
        assert!(!trace.has_end, "the end is the end");
        let whole = 40 + FrameHeader::peek(&bytes[at..], at as u64).expect("a frame").payload_bytes;
        let frame = Frame::decode(&bytes[at..at + whole], at as u64).expect("a frame");
        at += whole;
        if frame.header.kind != FrameKind::Names {
            assert_eq!(frame.header.before, trace.requests.len() as u64);
        }
        match frame.header.kind {
            FrameKind::Names => trace.name = frame.names().expect("a name")[0].to_owned(),
            FrameKind::Requests => frame.requests(&mut trace.requests).expect("requests"),
            FrameKind::Lost => trace.lost += u64::from(frame.header.count),
            FrameKind::End => trace.has_end = true,
        }
    }
    assert!(trace.requests.is_sorted_by_key(|request| request.time_ns));
    trace
}

/// Reads so many bytes, one by one, and awaits their replies.
fn read_bytes(stream: &UnixStream, count: u64) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let all: Vec<u8> =
                (0..count).flat_map(|at| nbd_request(NBD_READ, at % 4096, &[], 1)).collect();
            let mut sending = stream;
            sending.write_all(&all).expect("send");
        });
        let mut replies = vec![0; 17 * count as usize];
        let mut receiving = stream;
        receiving.read_exact(&mut replies).expect("every reply");
        assert!(replies.chunks(17).all(|reply| reply[4..8] == [0; 4]), "no errors");
    });
}

fn query(length: Option<&str>, limit: Option<&str>) -> RecordQuery {
    RecordQuery { length: length.map(str::to_owned), limit: limit.map(str::to_owned) }
}

fn another_client(fixture: &Fixture) -> Client {
    Client::new(fixture.client.address().clone()).expect("client")
}

fn metric(fixture: &Fixture, name: &str) -> u64 {
    let (_, text) =
        fixture.raw("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
    line.expect(name).rsplit(' ').next().expect("a value").parse().expect("a number")
}

fn await_recordings(fixture: &Fixture, count: u64) {
    while metric(fixture, "hindsight_trace_recordings") != count {
        std::thread::yield_now();
    }
}

#[test]
fn a_recording_is_what_clients_asked_and_ends_with_the_volume() {
    let fixture = Fixture::with_volume();
    let trace = std::thread::scope(|scope| {
        let recording = scope.spawn(|| {
            let mut bytes = Vec::new();
            let done = another_client(&fixture).record("v", &query(None, None), &mut |part| {
                bytes.extend_from_slice(part);
                Ok(())
            });
            done.map(|()| bytes)
        });
        await_recordings(&fixture, 1);
        let mut stream = attach(&fixture.nbd_socket(), "v");
        stream.write_all(&nbd_request(NBD_WRITE, 8192, &[1; 4096], 4096)).expect("send");
        // Beyond the end: refused, and so not recorded.
        stream.write_all(&nbd_request(NBD_READ, 1 << 20, &[], 1)).expect("send");
        stream.read_exact(&mut [0; 32]).expect("two replies");
        // It goes on under another name, and one that gets the old name is not recorded.
        let name = Rename { name: "w".to_owned(), dry_run: false };
        fixture.client.rename_volume("v", &name).expect("rename");
        fixture.client.create_volume(&new_volume("v", 1 << 20)).expect("create");
        read_bytes(&attach(&fixture.nbd_socket(), "v"), 7);
        read_bytes(&stream, 3);
        drop(stream);
        fixture.client.delete_volume("w", false).expect("delete");
        recording.join().expect("no panic").expect("whole")
    });
    let trace = decode(&trace);
    let all: Vec<_> =
        trace.requests.iter().map(|r| (r.kind, r.offset_bytes, r.length_bytes)).collect();
    let read = |at| (RequestKind::Read, at, 1);
    assert_eq!(all, [(RequestKind::Write, 8192, 4096), read(0), read(1), read(2)]);
    assert_eq!((trace.name.as_str(), trace.lost, trace.has_end), ("v", 0, true));
    await_recordings(&fixture, 0);
}

#[test]
fn a_slow_reader_loses_requests_and_the_volume_does_not_wait() {
    const COUNT: u64 = 250_000;
    let fixture = Fixture::with_volume();
    let (go, gone) = mpsc::channel::<()>();
    let trace = std::thread::scope(|scope| {
        let fixture = &fixture;
        let recording = scope.spawn(move || {
            let mut bytes = Vec::new();
            let done = another_client(fixture).record("v", &query(None, None), &mut |part| {
                bytes.extend_from_slice(part);
                // Takes nothing until all is over; later calls find the sender gone.
                let _ = gone.recv();
                Ok(())
            });
            done.map(|()| bytes)
        });
        await_recordings(fixture, 1);
        let stream = attach(&fixture.nbd_socket(), "v");
        // All replies come, though nobody takes the recording.
        read_bytes(&stream, COUNT);
        let lost = metric(fixture, "hindsight_trace_lost_total");
        assert!(lost > 0, "more than there is room for");
        assert_eq!(metric(fixture, "hindsight_trace_requests_total") + lost, COUNT);
        drop(go);
        drop(stream);
        fixture.client.delete_volume("v", false).expect("delete");
        recording.join().expect("no panic").expect("whole")
    });
    let trace = decode(&trace);
    assert!(trace.has_end && trace.lost > 0);
    assert_eq!(trace.requests.len() as u64 + trace.lost, COUNT);
}

#[test]
fn a_reader_that_vanishes_ends_its_recording() {
    let fixture = Fixture::with_volume();
    let mut stream = TcpStream::connect(fixture.http_address().0).expect("connect");
    let asked = "GET /api/v1/volumes/v/trace HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(fixture.with_token(asked).as_bytes()).expect("send");
    await_recordings(&fixture, 1);
    drop(stream);
    await_recordings(&fixture, 0);
    read_bytes(&attach(&fixture.nbd_socket(), "v"), 10);
    assert_eq!(metric(&fixture, "hindsight_trace_requests_total"), 0);
}

#[test]
fn a_recording_ends_at_its_time_and_before_it_is_longer_than_asked() {
    let fixture = Fixture::with_volume();
    let stream = attach(&fixture.nbd_socket(), "v");
    let mut bytes = Vec::new();
    let limited = query(None, Some("4KiB"));
    fixture
        .client
        .record("v", &limited, &mut |part| {
            bytes.extend_from_slice(part);
            read_bytes(&stream, 2000);
            Ok(())
        })
        .expect("it ends");
    let trace = decode(&bytes);
    assert!(trace.has_end && bytes.len() <= 4096 && bytes.len() > 3800, "{}", bytes.len());

    let mut bytes = Vec::new();
    let timed = query(Some("1ms"), None);
    let mut keep = |part: &[u8]| {
        bytes.extend_from_slice(part);
        Ok(())
    };
    fixture.client.record("v", &timed, &mut keep).expect("it ends");
    assert!(decode(&bytes).has_end);
}

#[test]
fn bad_recordings_are_refused() {
    let fixture = Fixture::with_volume();
    let refused = |name: &str, length: Option<&str>, limit: Option<&str>| {
        kind(fixture.client.record(name, &query(length, limit), &mut |_| Ok(())))
    };
    assert_eq!(refused("w", None, None), ProblemKind::NotFound);
    for length in ["8d", "soon", ""] {
        assert_eq!(refused("v", Some(length), None), ProblemKind::Malformed, "{length}");
    }
    for limit in ["4095", "much", ""] {
        assert_eq!(refused("v", None, Some(limit)), ProblemKind::Malformed, "{limit}");
    }
    assert_eq!(fixture.send("GET", "/volumes/v/trace?length=1s", "").0, 400);
    let asked = "GET /api/v1/volumes/v/trace HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut many = Vec::new();
    for count in 1..=16 {
        let mut stream = TcpStream::connect(fixture.http_address().0).expect("connect");
        stream.write_all(fixture.with_token(asked).as_bytes()).expect("send");
        many.push(stream);
        await_recordings(&fixture, count);
    }
    assert_eq!(refused("v", None, None), ProblemKind::Busy);
    drop(many);
    await_recordings(&fixture, 0);
    let kept = |_: &[u8]| Err(std::io::Error::other("full"));
    let failed = fixture.client.record("v", &query(None, None), &mut { kept });
    assert!(matches!(failed, Err(ClientError::Keep(_))), "{failed:?}");
    await_recordings(&fixture, 0);
}
