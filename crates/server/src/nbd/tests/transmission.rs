//! Requests and replies in all three styles, and what may not wait for what.

use std::sync::atomic::Ordering;
use std::time::Duration;

use volume::ErrorKind;
use wire::nbd::limits::PAYLOAD_BYTES_MAX;
use wire::nbd::{ChunkKind, Command, CommandFlags, ReplyStyle, Request};

use super::client::{Client, data_of};
use super::memory::SIZE;
use super::rig::{eventually, memory, memory_with};
use crate::serving::Limits;

const STYLES: [ReplyStyle; 3] = [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended];
const INVALID: u32 = 22;
const NO_SPACE: u32 = 28;
const PERM: u32 = 1;

#[test]
fn any_range_is_written_and_read_in_every_style() {
    let (rig, disk) = memory();
    for style in STYLES {
        let mut client = Client::begin(&rig, "disk", style);
        for (offset, length) in
            [(0, 4096), (1, 1), (511, 8193), (4096, 65536), (777, 300_001), (1 << 20, 20 << 20)]
        {
            let bytes: Vec<u8> = (0..length).map(|i| (i * 7 + 1) as u8).collect();
            assert_eq!(client.ask(Command::Write, offset, &bytes), 0);
            assert!(client.read(offset, length) == Ok(bytes), "{style:?} {offset} {length}");
        }
        assert_eq!(client.ask_for(Command::Trim, 4096, 8192, &[]), 0);
        assert_eq!(client.ask_for(Command::WriteZeroes, 100, 50, &[]), 0);
        assert_eq!(client.read(4096, 8192), Ok(vec![0; 8192]));
        assert_eq!(client.read(100, 50), Ok(vec![0; 50]));
        assert_eq!(client.ask_for(Command::Cache, 0, SIZE, &[]), 0);
        assert_eq!(client.ask(Command::Flush, 0, &[]), 0);
        assert_eq!(client.read(5, 0), Ok(vec![]));
        assert_eq!(client.ask(Command::Write, 5, &[]), 0);
        assert_eq!(client.ask(Command::Trim, 5, &[]), 0);
    }
    assert_eq!(disk.flushes.load(Ordering::SeqCst), 3);
}

#[test]
fn a_client_that_waits_for_each_answer_is_polled_for() {
    let processors = std::thread::available_parallelism().expect("known").get();
    let (rig, _) = memory();
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Simple);
    if processors == 1 {
        // The client needs it.
        (0..1000).for_each(|_| assert_eq!(client.read(0, 512), Ok(vec![0; 512])));
        assert_eq!(rig.context.counters.polled_ns.load(Ordering::Relaxed), 0);
        return;
    }
    eventually("a data thread stayed awake", || {
        assert_eq!(client.read(0, 512), Ok(vec![0; 512]));
        rig.context.counters.polled_ns.load(Ordering::Relaxed) > 0
    });
}

#[test]
fn errors_are_those_of_the_specification_and_the_connection_lives_on() {
    let (rig, _) = memory();
    for style in STYLES {
        let mut client = Client::begin(&rig, "disk", style);
        assert_eq!(client.read(SIZE - 1, 2), Err(INVALID));
        assert_eq!(client.read(u64::MAX, 2), Err(INVALID));
        assert_eq!(client.ask(Command::Write, SIZE - 1, b"ab"), NO_SPACE);
        assert_eq!(client.ask(Command::Write, SIZE, &vec![1; 1 << 20]), NO_SPACE);
        assert_eq!(client.ask_for(Command::WriteZeroes, SIZE, 1, &[]), NO_SPACE);
        assert_eq!(client.ask_for(Command::Trim, SIZE, 1, &[]), INVALID);
        assert_eq!(client.ask_for(Command::Cache, SIZE, 1, &[]), INVALID);
        assert_eq!(client.ask_for(Command::BlockStatus, 0, 1, &[]), INVALID);
        assert_eq!(client.ask(Command::Unknown(99), 0, &[]), INVALID);
        assert_eq!(client.ask(Command::Flush, 1, &[]), INVALID);
        let too_much = vec![1; PAYLOAD_BYTES_MAX as usize + 1];
        if style != ReplyStyle::Extended {
            assert_eq!(client.ask(Command::Write, 0, &too_much), INVALID);
        }
        assert_eq!(client.read(0, 16), Ok(vec![0; 16]));
        let mut past = Client::begin(&rig, "disk@past", style);
        assert_eq!(past.ask(Command::Write, 0, &vec![1; 300_000]), PERM);
        assert_eq!(past.ask_for(Command::Trim, 0, 1, &[]), PERM);
        assert_eq!(past.ask_for(Command::Resize, 0, 0, &[]), PERM);
        assert_eq!(past.ask(Command::Flush, 0, &[]), 0);
        assert_eq!(past.read(0, 16), Ok(vec![0; 16]));
    }
}

#[test]
fn a_read_of_more_than_a_payload_overflows() {
    let (rig, disk) = memory();
    disk.bytes.lock().resize(80 << 20, 0);
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Structured);
    let longest = PAYLOAD_BYTES_MAX as usize;
    assert_eq!(client.read(0, longest + 1), Err(75));
    assert!(client.read(0, longest) == Ok(vec![0; longest]));
    disk.bytes.lock()[5] = 1;
    assert_eq!(client.read(0, longest).map(|bytes| bytes[5]), Ok(1));
}

#[test]
fn zeros_are_sent_as_a_hole_where_the_style_has_one() {
    let (rig, _) = memory();
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Structured);
    let request = client.request(Command::Read, 0, 65536);
    client.send(&Request { flags: CommandFlags::DF, ..request }, &[]);
    assert_eq!(client.reply(0).kind, Some(ChunkKind::OFFSET_HOLE));
    client.ask(Command::Write, 65535, b"x");
    client.send(&request, &[]);
    assert_eq!(client.reply(0).kind, Some(ChunkKind::OFFSET_DATA));
}

#[test]
fn writes_that_come_together_go_to_the_engine_together() {
    let (rig, disk) = memory();
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Simple);
    let mut burst = Vec::new();
    for block in 0..32_u64 {
        let request = client.request(Command::Write, block * 4096, 4096);
        burst.extend_from_slice(
            wire::nbd::encode::request(&request, client.style.headers()).as_bytes(),
        );
        burst.extend(vec![block as u8 + 1; 4096]);
    }
    std::io::Write::write_all(&mut client.socket, &burst).expect("send");
    for _ in 0..32 {
        assert_eq!(client.reply(0).error, 0);
    }
    assert!(disk.batches.load(Ordering::SeqCst) < 16);
    assert_eq!(client.read(31 * 4096, 1), Ok(vec![32]));
}

#[test]
fn a_read_behind_a_write_of_the_same_bytes_sees_it() {
    let (rig, _) = memory();
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Simple);
    let write = client.request(Command::Write, 8192, 4096);
    let read = client.request(Command::Read, 8190, 4);
    let mut burst = Vec::new();
    let headers = client.style.headers();
    burst.extend_from_slice(wire::nbd::encode::request(&write, headers).as_bytes());
    burst.extend(vec![7; 4096]);
    burst.extend_from_slice(wire::nbd::encode::request(&read, headers).as_bytes());
    std::io::Write::write_all(&mut client.socket, &burst).expect("send");
    assert_eq!(client.reply(0).cookie, write.cookie);
    assert_eq!(client.reply(4).payload, [0, 0, 7, 7]);
}

#[test]
fn cold_reads_run_side_by_side_and_hold_up_nothing() {
    let (rig, disk) = memory();
    disk.bytes.lock()[..4096].fill(9);
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Structured);
    disk.is_cold.store(true, Ordering::SeqCst);
    disk.close_gate();
    let mut cookies: Vec<u64> = Vec::new();
    for _ in 0..32 {
        let request = client.request(Command::Read, 0, 4096);
        client.send(&request, &[]);
        cookies.push(request.cookie);
    }
    eventually("32 cold reads at once", || disk.waiting.load(Ordering::SeqCst) == 32);
    assert_eq!(client.ask(Command::Write, 8192, &vec![1; 4096]), 0);
    disk.open_gate();
    for _ in 0..32 {
        let reply = client.reply(4096);
        cookies.retain(|c| *c != reply.cookie);
        assert_eq!(data_of(reply, 0, 4096), Ok(vec![9; 4096]));
    }
    assert!(cookies.is_empty());
}

#[test]
fn a_flush_and_fua_are_answered_after_the_engines_flush() {
    let (rig, disk) = memory();
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Simple);
    disk.close_gate();
    let fua = Request { flags: CommandFlags::FUA, ..client.request(Command::Write, 0, 4096) };
    client.send(&fua, &[1; 4096]);
    let part = Request { flags: CommandFlags::FUA, ..client.request(Command::Write, 5000, 10) };
    client.send(&part, &[1; 10]);
    let flush = client.request(Command::Flush, 0, 0);
    client.send(&flush, &[]);
    eventually("flushes wait", || disk.waiting.load(Ordering::SeqCst) >= 2);
    assert_eq!(client.read(0, 1), Ok(vec![1]), "reads go on, and the flushes are not answered");
    assert_eq!(disk.flushes.load(Ordering::SeqCst), 0);
    disk.open_gate();
    let mut answered: Vec<u64> = (0..3).map(|_| client.reply(0).cookie).collect();
    answered.sort_unstable();
    assert_eq!(answered, [fua.cookie, part.cookie, flush.cookie]);
}

#[test]
fn failures_of_the_engine_have_their_error_numbers() {
    let (rig, disk) = memory();
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Structured);
    for (kind, errno) in [(ErrorKind::Full, NO_SPACE), (ErrorKind::Refused, 5), (ErrorKind::Io, 5)]
    {
        *disk.failure.lock() = Some(kind);
        assert_eq!(client.ask(Command::Write, 0, &[1; 4096]), errno);
        assert_eq!(client.ask(Command::Write, 1, &[1; 4]), errno);
    }
    assert_eq!(client.ask(Command::Flush, 0, &[]), 5);
    *disk.failure.lock() = None;
    assert_eq!(client.read(0, 4), Ok(vec![0; 4]));
}

#[test]
fn block_status_tells_holes_and_changes() {
    let (rig, _) = memory();
    let contexts = ["base:allocation", "x-hindsight:changed@v:0"];
    let mut client = Client::begin_with(&rig, "disk", ReplyStyle::Structured, &contexts);
    client.ask(Command::Write, 4096, &[1; 4096]);
    let request = client.request(Command::BlockStatus, 0, 65536);
    client.send(&request, &[]);
    let words = |bytes: &[u8]| -> Vec<u32> {
        bytes.as_chunks().0.iter().map(|w| u32::from_be_bytes(*w)).collect()
    };
    let first = client.reply(0);
    assert_eq!(words(&first.payload), [1, 4096, 3, 4096, 0, 57344, 3]);
    assert!(!first.is_done);
    let second = client.reply(0);
    assert_eq!(words(&second.payload), [2, 4096, 1, 61440, 0]);
    assert!(second.is_done);
    let one = Request { flags: CommandFlags::REQ_ONE, ..request };
    client.send(&one, &[]);
    assert_eq!(words(&client.reply(0).payload), [1, 4096, 3]);
    assert_eq!(words(&client.reply(0).payload), [2, 4096, 1]);
}

#[test]
fn block_status_counts_as_any_request_and_a_long_answer_comes_in_parts() {
    const REQUESTS: usize = 300;
    let (rig, disk) = memory();
    disk.bytes.lock().chunks_mut(2 * 4096).for_each(|blocks| blocks[0] = 1);
    let contexts = ["base:allocation", "x-hindsight:changed@v:0"];
    let mut client = Client::begin_with(&rig, "disk", ReplyStyle::Structured, &contexts);
    let all = client.request(Command::BlockStatus, 0, SIZE);
    (0..REQUESTS).for_each(|_| client.send(&all, &[]));
    let held = || rig.context.buffers.held_bytes();
    // A client that takes no answers: buffers keep them, no more than its share.
    eventually("answers are kept in buffers", || held() > 1 << 20);
    for _ in 0..REQUESTS {
        assert!(held() <= crate::buffers::BUFFERS_BYTES_DEFAULT / 4, "{}", held());
        let (first, second) = (client.reply(0), client.reply(0));
        assert!(first.payload.len() + second.payload.len() <= 64 << 10);
        assert!(!first.is_done && second.is_done);
    }
    let (mut at, mut extents) = (0, 0);
    while at < SIZE {
        let request = client.request(Command::BlockStatus, at, SIZE - at);
        client.send(&request, &[]);
        let (reply, _) = (client.reply(0), client.reply(0));
        for extent in reply.payload[4..].as_chunks::<8>().0 {
            let word = |at| u32::from_be_bytes(*extent[at..].first_chunk().expect("8 bytes"));
            let is_hole = at / 4096 % 2 == 1;
            assert_eq!((word(0), word(4)), (4096, if is_hole { 3 } else { 0 }), "at {at}");
            (at, extents) = (at + 4096, extents + 1);
        }
    }
    assert_eq!((at, extents), (SIZE, SIZE / 4096));
}

#[test]
fn extended_block_status_has_64_bits_and_filters_by_context() {
    let (rig, disk) = memory();
    disk.bytes.lock().resize(128 << 20, 0);
    let contexts = ["base:allocation", "x-hindsight:changed@v:0"];
    let mut client = Client::begin_with(&rig, "disk", ReplyStyle::Extended, &contexts);
    let mut ask = |payload: &[u8]| {
        let mut request = client.request(Command::BlockStatus, 0, payload.len() as u64);
        request.flags = CommandFlags::PAYLOAD_LEN;
        client.send(&request, payload);
        client.reply(0)
    };
    let mut payload = (128_u64 << 20).to_be_bytes().to_vec();
    payload.extend(1_u32.to_be_bytes());
    let reply = ask(&payload);
    assert_eq!((reply.kind, reply.is_done), (Some(ChunkKind::BLOCK_STATUS_EXT), true));
    let mut expected = [1_u32.to_be_bytes(), 1_u32.to_be_bytes()].concat();
    expected.extend((128_u64 << 20).to_be_bytes());
    expected.extend(3_u64.to_be_bytes());
    assert_eq!(reply.payload, expected);
    payload.extend(1_u32.to_be_bytes());
    assert_eq!(ask(&payload).error, INVALID, "named twice");
    payload.truncate(8);
    payload.extend(3_u32.to_be_bytes());
    assert_eq!(ask(&payload).error, INVALID, "unknown");
    assert_eq!(ask(&payload[..9]).error, INVALID, "malformed");
    assert_eq!(ask(&[0; 1000]).error, INVALID, "too long");
    payload[..8].copy_from_slice(&(1_u64 << 40).to_be_bytes());
    assert_eq!(ask(&payload).error, INVALID, "beyond the end");
    assert_eq!(client.read(0, 1), Ok(vec![0]));
}

#[test]
fn resize_changes_what_is_in_bounds() {
    let (rig, _) = memory();
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Structured);
    assert_eq!(client.ask_for(Command::Resize, SIZE + 4096, 0, &[]), 0);
    assert_eq!(client.ask(Command::Write, SIZE, &[1; 4096]), 0);
    assert_eq!(client.ask_for(Command::Resize, 2 << 30, 0, &[]), NO_SPACE);
    let other = Client::begin(&rig, "disk", ReplyStyle::Simple);
    assert_eq!(client.ask_for(Command::Resize, SIZE, 0, &[]), PERM, "somebody else is here");
    drop(other);
    eventually("the other is gone", || rig.attached() == 1);
    assert_eq!(client.ask_for(Command::Resize, SIZE, 0, &[]), 0);
    assert_eq!(client.ask(Command::Write, SIZE, &[1; 4096]), NO_SPACE);
}

#[test]
fn a_forced_detach_ends_the_session_in_order() {
    let (rig, disk) = memory();
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Simple);
    let _past = Client::begin(&rig, "disk@past", ReplyStyle::Simple);
    eventually("attached", || rig.attached() == 1);
    disk.close_gate();
    let flush = client.request(Command::Flush, 0, 0);
    client.send(&flush, &[]);
    eventually("the flush waits", || disk.waiting.load(Ordering::SeqCst) == 1);
    rig.disconnect();
    disk.open_gate();
    assert_eq!(client.reply(0).cookie, flush.cookie);
    assert!(client.is_closed());
    eventually("detached", || rig.attached() == 0);
}

#[test]
fn a_stopping_server_carries_out_what_it_received() {
    let (mut rig, disk) = memory();
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Simple);
    disk.close_gate();
    let flush = client.request(Command::Flush, 0, 0);
    client.send(&flush, &[]);
    eventually("the flush waits", || disk.waiting.load(Ordering::SeqCst) == 1);
    let gate = std::sync::Arc::clone(&disk);
    let opener = std::thread::spawn(move || gate.open_gate());
    rig.stop();
    opener.join().expect("it opens the gate");
    assert_eq!(client.reply(0).cookie, flush.cookie);
    assert!(client.is_closed());
}

#[test]
fn a_client_that_takes_no_replies_is_waited_for_only_so_long() {
    let limits = Limits { farewell: Duration::from_millis(100), ..Limits::default() };
    let (mut rig, disk) = memory_with(limits);
    disk.bytes.lock().fill(1);
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Simple);
    for _ in 0..64 {
        let request = client.request(Command::Read, 0, 1 << 20);
        client.send(&request, &[]);
    }
    eventually("reads arrive", || rig.context.counters.jobs.load(Ordering::SeqCst) > 0);
    rig.stop();
}
