//! Decoded packs, kept for a while.

use std::collections::VecDeque;
use std::sync::Arc;

use format::location::Location;
use format::pack::{Pack, PackDecoder, PackHeader};
use parking_lot::Mutex;

use crate::Result;
use crate::hash::FastMap;

/// Bytes of decoded packs that are kept.
const KEPT_BYTES: usize = 8 << 20;
/// Decoders that wait for the next pack.
const IDLE_DECODERS: usize = 8;

/// Decoded packs by location, first in first out, and what decodes them.
#[derive(Default)]
pub struct PackCache {
    kept: Mutex<Kept>,
    idle: Mutex<Vec<PackDecoder>>,
}

#[derive(Default)]
struct Kept {
    packs: FastMap<Location, Arc<Pack>>,
    queue: VecDeque<Location>,
    bytes: usize,
}

impl PackCache {
    /// A pack that was decoded before.
    pub fn get(&self, location: Location) -> Option<Arc<Pack>> {
        self.kept.lock().packs.get(&location).cloned()
    }

    /// Keeps a pack; the first that came goes for it.
    pub fn keep(&self, location: Location, pack: &Arc<Pack>) {
        let mut kept = self.kept.lock();
        if kept.packs.insert(location, Arc::clone(pack)).is_some() {
            return;
        }
        kept.queue.push_back(location);
        kept.bytes += pack.memory_bytes();
        while kept.bytes > KEPT_BYTES {
            let oldest = kept.queue.pop_front().expect("what has bytes is queued");
            let gone = kept.packs.remove(&oldest).expect("what is queued is kept");
            kept.bytes -= gone.memory_bytes();
        }
    }

    /// Decodes a pack.
    ///
    /// # Errors
    /// Those of its format.
    pub fn decode(&self, header: &PackHeader, bytes: &[u8]) -> Result<Pack> {
        let mut decoder = self.idle.lock().pop().unwrap_or_default();
        let pack = decoder.decode(header, bytes);
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_DECODERS {
            idle.push(decoder);
        }
        Ok(pack?)
    }
}
