//! ONC RPC, MOUNT 3 and NFS 3: bytes written by hand from the RFCs, round trips, limits, and bytes
//! that are damaged or random.
//!
//! `caller` and `replies` are the client's side of the protocols: they know the RFCs' orders of
//! fields a second time, and the bytes written by hand decide between both.

use hindsight_wire::nfs_client::{calls as caller, replies};

mod arbitrary;
mod golden_calls;
mod golden_results;
mod hostile;
mod lists;
mod mounting;
mod records;
mod round_trips;
mod rpc_messages;
mod xdr_values;

/// Bytes of hexadecimal digits; anything between them is left out.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("digits");
        u8::from_str_radix(pair, 16).expect("digits")
    };
    digits.chunks(2).map(byte).collect()
}
