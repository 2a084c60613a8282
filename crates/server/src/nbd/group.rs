//! Writes of one turn that go to the engine together; their bytes stay in the receive buffer.

use block::emptied;
use units::BLOCK_BYTES;
use volume::WriteOp;
use wire::nbd::Request;

/// Most writes of one group.
const WRITES_MAX: usize = 256;

/// The memory of a group, kept from turn to turn.
#[derive(Default)]
pub(super) struct GroupMemory {
    ops: Vec<WriteOp<'static>>,
    requests: Vec<Request>,
}

/// Writes in the order in which they came.
pub(super) struct Group<'b> {
    ops: Vec<WriteOp<'b>>,
    requests: Vec<Request>,
}

impl<'b> Group<'b> {
    /// A group of none.
    pub(super) fn within(memory: GroupMemory) -> Group<'b> {
        Group { ops: emptied(memory.ops), requests: memory.requests }
    }

    /// The memory of a group that is written.
    pub(super) fn into_memory(mut self) -> GroupMemory {
        self.requests.clear();
        GroupMemory { ops: emptied(self.ops), requests: self.requests }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.ops.len() >= WRITES_MAX
    }

    pub(super) fn add(&mut self, request: Request, op: WriteOp<'b>) {
        if self.ops.capacity() == 0 {
            self.ops.reserve(32);
            self.requests.reserve(32);
        }
        self.ops.push(op);
        self.requests.push(request);
    }

    /// Whether a range shares a byte with one of the writes.
    pub(super) fn overlaps(&self, offset: u64, length_bytes: u64) -> bool {
        let end = offset.saturating_add(length_bytes);
        let shares =
            |r: &Request| r.offset < end && offset < r.offset.saturating_add(r.length_bytes);
        self.requests.iter().any(shares)
    }

    /// The writes to be made.
    pub(super) fn ops(&self) -> &[WriteOp<'b>] {
        &self.ops
    }

    /// The requests that asked for it.
    pub(super) fn requests(&self) -> &[Request] {
        &self.requests
    }

    pub(super) fn clear(&mut self) {
        self.ops.clear();
        self.requests.clear();
    }
}

/// Whether a write covers whole blocks, so that nothing has to be read first.
pub(super) fn is_whole_blocks(request: &Request) -> bool {
    request.offset.is_multiple_of(BLOCK_BYTES) && request.length_bytes.is_multiple_of(BLOCK_BYTES)
}
