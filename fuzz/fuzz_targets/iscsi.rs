//! PDUs and texts that an initiator, or a target, may send: decoded or refused, never a panic.

#![no_main]

use hindsight_wire::iscsi::decode;
use hindsight_wire::iscsi::encode;
use hindsight_wire::iscsi::frame::Frame;
use hindsight_wire::iscsi::negotiation::{Negotiation, Wishes};
use hindsight_wire::iscsi::{Digests, chap, names, text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, bool, &[u8])| {
    let (header, data, bytes) = input;
    if let Ok(Some(frame)) = Frame::measure(bytes, Digests { header, data }, 1 << 18) {
        if let Some(pdu) = frame.pdu(bytes) {
            let _ = decode::ahs(pdu.ahs);
            let _ = encode::sense_of_segment(pdu.data);
            if let Ok(request) = decode::request(pdu.bhs) {
                assert_eq!(decode::request(&encode::request(&request)), Ok(request));
            }
            if let Ok(response) = decode::response(pdu.bhs) {
                assert_eq!(decode::response(&encode::response(&response)), Ok(response));
            }
        }
    }
    if let Ok(pairs) = text::parse(bytes) {
        let mut negotiation = Negotiation::new(Wishes::default(), header);
        for pair in &pairs {
            let _ = negotiation.answer(pair);
            let _ = text::binary(pair.value);
            if let Ok(name) = names::fold(pair.value) {
                let _ = names::split("iqn.x", &name);
            }
        }
        let now = negotiation.parameters();
        assert!(now.send_segment_bytes >= 512 && now.first_burst_bytes <= now.max_burst_bytes);
        let _ = chap::answer(&pairs);
    }
});
