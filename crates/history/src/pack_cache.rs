//! Packs that were read, kept for a while with what was decoded of them.

use std::collections::VecDeque;
use std::sync::Arc;

use format::location::Location;
use format::pack::{PackDecoder, StoredPack};
use parking_lot::Mutex;

use crate::hash::FastMap;

/// Bytes of packs that are kept, as they were stored and of what was decoded of them.
const KEPT_BYTES: usize = 8 << 20;
/// Decoders that wait for the next pack.
const IDLE_DECODERS: usize = 8;

/// Packs by location, first in first out, and what decodes them.
#[derive(Default)]
pub struct PackCache {
    kept: Mutex<Kept>,
    idle: Mutex<Vec<PackDecoder>>,
}

#[derive(Default)]
struct Kept {
    /// With the bytes that they were counted with.
    packs: FastMap<Location, (Arc<StoredPack>, usize)>,
    queue: VecDeque<Location>,
    bytes: usize,
}

impl PackCache {
    /// A pack that was read before.
    pub fn get(&self, location: Location) -> Option<Arc<StoredPack>> {
        let mut kept = self.kept.lock();
        let (pack, counted) = kept.packs.get_mut(&location)?;
        let pack = Arc::clone(pack);
        // More of it may have been decoded since.
        let bytes = pack.memory_bytes();
        let before = std::mem::replace(counted, bytes);
        kept.bytes += bytes - before;
        Some(pack)
    }

    /// Keeps a pack; the first that came goes for it.
    pub fn keep(&self, location: Location, pack: &Arc<StoredPack>) {
        let mut kept = self.kept.lock();
        let bytes = pack.memory_bytes();
        kept.bytes += bytes;
        if let Some((_, counted)) = kept.packs.insert(location, (Arc::clone(pack), bytes)) {
            kept.bytes -= counted;
            return;
        }
        kept.queue.push_back(location);
        while kept.bytes > KEPT_BYTES {
            let oldest = kept.queue.pop_front().expect("what has bytes is queued");
            let (_, counted) = kept.packs.remove(&oldest).expect("what is queued is kept");
            kept.bytes -= counted;
        }
    }

    /// Lends one of the decoders.
    pub fn decode<T>(&self, with: impl FnOnce(&mut PackDecoder) -> T) -> T {
        let mut decoder = self.idle.lock().pop().unwrap_or_default();
        let made = with(&mut decoder);
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_DECODERS {
            idle.push(decoder);
        }
        made
    }
}
