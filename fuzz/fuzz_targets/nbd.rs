//! What an NBD client, or a server, may send: decoded or refused, never a panic.

#![no_main]

use hindsight_wire::nbd::{HeaderStyle, OptionCode, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, &[u8])| {
    let (code, bytes) = input;
    let _ = decode::option(OptionCode(code), bytes);
    let _ = decode::request(bytes, HeaderStyle::Compact);
    let _ = decode::request(bytes, HeaderStyle::Extended);
    let _ = decode::reply(bytes);
    let _ = decode::status_payload(bytes);
});
