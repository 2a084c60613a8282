//! Requests survive the way to bytes and back; bytes that are no trace are refused.

use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};

use model::{Request, RequestKind};

use super::{Frame, FrameEncoder, FrameHeader, TraceHeader};

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let offset =
        prop_oneof![0..1_u64 << 20, (0..1_u64 << 40).prop_map(|o| o * 512), 0..1_u64 << 62];
    let length = prop_oneof![1..9_u64, (1..128_u64).prop_map(|l| l * 4096), 1..1_u64 << 61];
    let one = (0..1_u64 << 40, 0..3_u32, 0..5_usize, any::<bool>(), offset, length);
    prop::collection::vec(one, 1..60).prop_map(|list| {
        let mut time_ns = 0;
        let mut end = 0;
        let each = list.into_iter().map(|(step, device, kind, is_fua, offset, length)| {
            time_ns += step;
            let kind = RequestKind::ALL[kind];
            let is_flush = kind == RequestKind::Flush;
            // Every other one begins where the one before ended.
            let offset = if step % 2 == 0 && end < 1 << 62 { end } else { offset };
            let (offset_bytes, length_bytes) = if is_flush { (0, 0) } else { (offset, length) };
            let request = Request { time_ns, device, kind, is_fua, offset_bytes, length_bytes };
            end = request.end_bytes();
            request
        });
        each.collect()
    })
}

fn encoded(requests: &[Request], before: u64) -> Vec<u8> {
    let mut encoder = FrameEncoder::default();
    for request in requests {
        encoder.push_request(request);
    }
    encoder.requests(before).to_vec()
}

proptest! {
    #[test]
    fn requests_round_trip(requests in requests(), before in any::<u64>()) {
        let bytes = encoded(&requests, before);
        let frame = Frame::decode(&bytes, 0).unwrap();
        prop_assert_eq!(frame.header.before, before);
        let mut decoded = Vec::new();
        frame.requests(&mut decoded).unwrap();
        prop_assert_eq!(decoded, requests);
    }

    #[test]
    fn no_bit_of_a_frame_can_turn(requests in requests(), place in any::<prop::sample::Index>()) {
        let mut bytes = encoded(&requests, 0);
        let bit = place.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Frame::decode(&bytes, 0).is_err());
    }

    #[test]
    fn any_payload_is_decoded_or_refused(count in 1..40_u32, payload: Vec<u8>) {
        let mut encoder = FrameEncoder::default();
        encoder.bytes.extend_from_slice(&payload);
        encoder.count = count;
        let bytes = encoder.seal(super::FrameKind::Requests, 0, 0).to_vec();
        if let Ok(frame) = Frame::decode(&bytes, 0) {
            let mut decoded = Vec::new();
            if frame.requests(&mut decoded).is_ok() {
                prop_assert!(decoded.iter().all(Request::is_valid));
                prop_assert!(decoded.windows(2).all(|w| w[0].time_ns <= w[1].time_ns));
            }
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes: Vec<u8>) {
        let _ = TraceHeader::decode(&bytes);
        let _ = FrameHeader::peek(&bytes, 0);
        let _ = Frame::decode(&bytes, 0);
    }
}

#[test]
fn a_random_write_of_a_block_takes_few_bytes() {
    let mut encoder = FrameEncoder::default();
    let write = |i: u64| Request {
        time_ns: i * 200_000,
        offset_bytes: (i * 7919 % 1_000_000) * 4096,
        length_bytes: 4096,
        ..Request::default()
    };
    for i in 0..1000 {
        encoder.push_request(&write(i));
    }
    let bytes = encoder.requests(0).len();
    assert!(bytes < 8200, "{bytes} bytes for 1000 writes");
}

#[test]
fn a_name_of_a_device_round_trips() {
    let bytes = FrameEncoder::name("sda", 3);
    let frame = Frame::decode(&bytes, 0).unwrap();
    assert_eq!((frame.header.before, frame.names().unwrap()), (3, vec!["sda"]));
}

#[test]
fn what_was_lost_is_a_frame_without_a_payload() {
    let bytes = FrameEncoder::lost(u32::MAX, 7, 9);
    let header = Frame::decode(&bytes, 0).unwrap().header;
    assert_eq!((header.kind, header.count), (super::FrameKind::Lost, u32::MAX));
    assert_eq!((header.before, header.time_ns, header.payload_bytes), (7, 9, 0));
    let mut encoder = FrameEncoder::default();
    encoder.count = 1;
    encoder.bytes.push(0);
    let bytes = encoder.seal(super::FrameKind::Lost, 0, 0).to_vec();
    assert!(Frame::decode(&bytes, 0).is_err());
    let bytes = FrameEncoder::default().seal(super::FrameKind::Lost, 0, 0).to_vec();
    assert!(Frame::decode(&bytes, 0).is_err(), "nothing lost is no frame");
}

#[test]
fn another_version_is_named() {
    let mut bytes = TraceHeader { start: 5 }.encode();
    bytes[12] = 9;
    let crc = format::checksum::structure_crc(super::SALT, &bytes, super::layout::CRC);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    let error = TraceHeader::decode(&bytes).unwrap_err();
    assert_eq!(error.found, "trace version 9");
}
