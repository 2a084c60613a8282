//! The header of a reply: RFC 5531, section 9.

use super::{Accepted, Denied, Flavor, Reply};
use crate::xdr::{Encode, Writer};

const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;

/// A reply to the call `xid`, behind what `out` holds. Of a success the results go behind it; the
/// record's mark is the caller's.
pub fn reply(xid: u32, reply: &Reply, out: &mut Vec<u8>) {
    Writer::new(out).put(&xid).put(&REPLY).put(reply);
}

impl Encode for Reply {
    fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Reply::Accepted(accepted) => {
                let no_verifier: &[u8] = &[];
                out.put(&0_u32).put(&Flavor::NONE.0).put(&no_verifier).put(accepted);
            }
            Reply::Denied(denied) => {
                out.put(&1_u32).put(denied);
            }
        }
    }
}

impl Encode for Accepted {
    fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Accepted::Success => 0_u32.encode(out),
            Accepted::ProgUnavail => 1_u32.encode(out),
            Accepted::ProgMismatch { low, high } => {
                out.put(&2_u32).put(low).put(high);
            }
            Accepted::ProcUnavail => 3_u32.encode(out),
            Accepted::GarbageArgs => 4_u32.encode(out),
            Accepted::SystemErr => 5_u32.encode(out),
        }
    }
}

impl Encode for Denied {
    fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Denied::RpcMismatch => {
                out.put(&0_u32).put(&RPC_VERSION).put(&RPC_VERSION);
            }
            Denied::AuthError(stat) => {
                out.put(&1_u32).put(stat);
            }
        }
    }
}
