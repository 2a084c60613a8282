//! Handshakes: what each option gets, and that its failure leaves the connection usable.

use std::io::{Read, Write};

use wire::nbd::limits::{META_CONTEXTS_MAX, OPTION_BYTES_MAX, OPTION_SKIP_BYTES_MAX};
use wire::nbd::{
    ClientFlags, Command, InfoItem, OptionCode, OptionReplyKind, ReplyStyle, TransmissionFlags,
    encode,
};

use super::client::Client;
use super::memory::SIZE;
use super::rig::memory;

fn info(name: &str, items: &[u16]) -> Vec<u8> {
    let mut data = Vec::new();
    encode::info_request(name, items, &mut data);
    data
}

fn meta(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    encode::meta_request(name, queries, &mut data);
    data
}

fn flags(export: &[u8]) -> TransmissionFlags {
    TransmissionFlags(u16::from_be_bytes([export[10], export[11]]))
}

#[test]
fn exports_are_listed_with_descriptions() {
    let (rig, _) = memory();
    let mut client = Client::connect(&rig);
    let replies = client.option(OptionCode::LIST, &[]);
    assert_eq!(replies.len(), 3);
    assert_eq!(replies[0].data, b"\0\0\0\x04diskit is disk");
    let refused = client.option(OptionCode::LIST, b"x");
    assert_eq!(refused[0].kind, OptionReplyKind::INVALID);
    assert_eq!(client.option(OptionCode::ABORT, &[])[0].kind, OptionReplyKind::ACK);
    assert!(client.is_closed());
}

#[test]
fn info_tells_what_is_asked() {
    let (rig, _) = memory();
    let mut client = Client::connect(&rig);
    let replies = client.option(OptionCode::INFO, &info("", &[InfoItem::NAME, 3, 2, 77]));
    assert_eq!(replies.len(), 5);
    assert_eq!(replies[0].data[2..10], SIZE.to_be_bytes());
    let can = flags(&replies[0].data);
    assert!(can.has(TransmissionFlags::FUA.with(TransmissionFlags::RESIZE)));
    assert!(!can.has(TransmissionFlags::READ_ONLY) && !can.has(TransmissionFlags::DF));
    assert_eq!(replies[1].data, b"\0\x01disk");
    assert_eq!(replies[3].data, b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0");
    let past = client.option(OptionCode::INFO, &info("disk@past", &[]));
    let can = flags(&past[0].data);
    assert!(can.has(TransmissionFlags::READ_ONLY));
    assert!(!can.has(TransmissionFlags::TRIM) && !can.has(TransmissionFlags::RESIZE));
}

#[test]
fn an_unknown_export_is_named_in_the_refusal_and_another_can_be_chosen() {
    let (rig, _) = memory();
    let mut client = Client::connect(&rig);
    let refused = client.option(OptionCode::GO, &info("nope", &[]));
    assert_eq!(refused[0].kind, OptionReplyKind::UNKNOWN);
    assert_eq!(refused[0].data, b"no volume `nope`; try disk");
    let unknown = client.option(OptionCode(77), b"whatever");
    assert_eq!(unknown[0].kind, OptionReplyKind::UNSUPPORTED);
    let tls = client.option(OptionCode::START_TLS, &[]);
    assert_eq!(tls[0].kind, OptionReplyKind::POLICY);
    let chosen = client.option(OptionCode::GO, &info("disk", &[]));
    assert_eq!(chosen.last().expect("one").kind, OptionReplyKind::ACK);
    assert_eq!(client.read(0, 512), Ok(vec![0; 512]));
}

#[test]
fn an_export_name_begins_at_once_or_disconnects() {
    let (rig, _) = memory();
    let mut client = Client::connect(&rig);
    let mut option = Vec::new();
    encode::option(OptionCode::EXPORT_NAME, b"disk", &mut option);
    client.socket.write_all(&option).expect("send");
    let mut answer = [0; 10];
    client.socket.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer[..8], SIZE.to_be_bytes());
    assert_eq!(client.read(4096, 512), Ok(vec![0; 512]));

    let mut client = Client::connect(&rig);
    option.clear();
    encode::option(OptionCode::EXPORT_NAME, b"nope", &mut option);
    client.socket.write_all(&option).expect("send");
    assert!(client.is_closed());
}

#[test]
fn a_client_that_wants_padding_gets_it() {
    let (rig, _) = memory();
    let mut socket = std::os::unix::net::UnixStream::connect(&rig.socket).expect("connect");
    socket.read_exact(&mut [0; 18]).expect("a greeting");
    let flags = ClientFlags { fixed_newstyle: true, no_zeroes: false };
    let mut bytes = encode::client_flags(flags).to_vec();
    encode::option(OptionCode::EXPORT_NAME, b"", &mut bytes);
    socket.write_all(&bytes).expect("send");
    let mut answer = [0xff; 134];
    socket.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer[10..], [0; 124]);
}

#[test]
fn contexts_are_listed_and_chosen() {
    let (rig, _) = memory();
    let mut client = Client::connect(&rig);
    let early = client.option(OptionCode::SET_META_CONTEXT, &meta("disk", &["base:allocation"]));
    assert_eq!(early[0].kind, OptionReplyKind::INVALID);
    client.choose_style(ReplyStyle::Structured);
    let all = client.option(OptionCode::LIST_META_CONTEXT, &meta("disk", &[]));
    assert_eq!(all[0].data[4..], *b"base:allocation");
    assert_eq!(all[1].data[4..], *b"x-hindsight:changed@");
    let queries = ["base:", "other:x", "x-hindsight:changed@v:0", "base:"];
    let some = client.option(OptionCode::LIST_META_CONTEXT, &meta("disk", &queries));
    assert_eq!(some.len(), 3);
    assert_eq!(some[1].data[4..], *b"x-hindsight:changed@v:0");
    let queries = ["base:", "other:x", "x-hindsight:changed@v:0", "x-hindsight:changed@"];
    let chosen = client.option(OptionCode::SET_META_CONTEXT, &meta("disk", &queries));
    assert_eq!(chosen.len(), 2, "wildcards choose nothing");
    let outside = ["x-hindsight:changed@v:9"];
    let refused = client.option(OptionCode::SET_META_CONTEXT, &meta("disk", &outside));
    assert_eq!(refused[0].kind, OptionReplyKind::INVALID);
    assert_eq!(refused[0].data, b"v:9 is outside the window; from v:0");
    let unknown = client.option(OptionCode::SET_META_CONTEXT, &meta("nope", &[]));
    assert_eq!(unknown[0].kind, OptionReplyKind::UNKNOWN);
    let repeated = ["base:allocation"; META_CONTEXTS_MAX + 1];
    let chosen = client.option(OptionCode::SET_META_CONTEXT, &meta("disk", &repeated));
    assert_eq!(chosen.len(), 2, "named twice, chosen once");
}

#[test]
fn contexts_of_another_name_do_not_count() {
    let (rig, _) = memory();
    let mut client = Client::connect(&rig);
    client.choose_style(ReplyStyle::Structured);
    client.option(OptionCode::SET_META_CONTEXT, &meta("disk", &["base:allocation"]));
    client.option(OptionCode::GO, &info("disk@past", &[]));
    assert_eq!(client.ask_for(Command::BlockStatus, 0, 512, &[]), 22);
}

#[test]
fn extended_headers_take_precedence() {
    let (rig, _) = memory();
    let mut client = Client::connect(&rig);
    client.choose_style(ReplyStyle::Structured);
    client.choose_style(ReplyStyle::Extended);
    let refused = client.option(OptionCode::STRUCTURED_REPLY, &[]);
    assert_eq!(refused[0].kind, OptionReplyKind::EXTENDED_HEADERS_REQUIRED);
    client.option(OptionCode::SET_META_CONTEXT, &meta("disk", &["base:allocation"]));
    let chosen = client.option(OptionCode::GO, &info("disk", &[]));
    assert!(flags(&chosen[0].data).has(TransmissionFlags::STATUS_PAYLOAD));
    assert_eq!(client.read(0, 512), Ok(vec![0; 512]));
}

#[test]
fn an_option_at_the_limit_is_read_and_beyond_it_skipped_or_cut_off() {
    let (rig, _) = memory();
    let mut client = Client::connect(&rig);
    let data = vec![b'x'; OPTION_BYTES_MAX as usize];
    assert_eq!(client.option(OptionCode(50), &data)[0].kind, OptionReplyKind::UNSUPPORTED);
    let data = vec![b'x'; OPTION_BYTES_MAX as usize + 1];
    assert_eq!(client.option(OptionCode(50), &data)[0].kind, OptionReplyKind::TOO_BIG);
    let data = vec![b'x'; OPTION_SKIP_BYTES_MAX as usize];
    assert_eq!(client.option(OptionCode(50), &data)[0].kind, OptionReplyKind::TOO_BIG);
    assert_eq!(client.option(OptionCode::LIST, &[]).len(), 3);
    let mut bytes = Vec::new();
    encode::option(OptionCode(50), &[], &mut bytes);
    bytes[12..].copy_from_slice(&(OPTION_SKIP_BYTES_MAX + 1).to_be_bytes());
    client.socket.write_all(&bytes).expect("send");
    assert!(client.is_closed());
}
