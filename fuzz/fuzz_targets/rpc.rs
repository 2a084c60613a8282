//! A stream of records and the calls in them, as a client may send them: found and decoded, or
//! refused, never a panic.

#![no_main]

use hindsight_wire::mount;
use hindsight_wire::rpc::decode;
use hindsight_wire::rpc::limits::RECORD_BYTES_MAX;
use hindsight_wire::rpc::record::{Found, Search};
use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "calls to NFS are for the other target")]
#[path = "../../crates/wire/tests/nfs3/caller.rs"]
mod caller;

fuzz_target!(|input: (u8, &[u8])| {
    let (step, mut stream) = input;
    let step = usize::from(step) + 1;
    body(stream);
    loop {
        let at_once = Search::default().find(stream);
        // The same in pieces.
        let mut search = Search::default();
        let mut received = 0;
        let found = loop {
            let found = search.find(&stream[..received]);
            let Ok(Found::Beginning(least)) = found else { break found };
            assert!(received < least && least <= RECORD_BYTES_MAX);
            if received == stream.len() {
                break found;
            }
            received = (received + step).min(stream.len());
        };
        assert_eq!(found, at_once);
        let Ok(Found::Whole(record)) = at_once else { return };
        let pieces: usize = record.pieces().map(<[u8]>::len).sum();
        let whole = record.body();
        assert_eq!(whole.len(), pieces);
        body(&whole);
        stream = &stream[record.stream_bytes()..];
    }
});

fn body(bytes: &[u8]) {
    let Ok(call) = decode::call(bytes) else { return };
    assert!(bytes.ends_with(call.arguments));
    assert_eq!(decode::call(&caller::rpc_call(&call)), Ok(call));
    if let Ok(mounting) = mount::decode::call(call.procedure, call.arguments) {
        let (procedure, encoded) = caller::mount_call(&mounting);
        assert_eq!(mount::decode::call(procedure, &encoded), Ok(mounting));
    }
}
