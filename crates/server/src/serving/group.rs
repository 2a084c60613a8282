//! Writes of one turn that go to the engine together; their bytes stay in the receive buffer.

use block::emptied;
use volume::WriteOp;

use super::asked::Asked;
use super::input::Input;

/// Most writes of one group.
const WRITES_MAX: usize = 256;

/// The memory of a group, kept from turn to turn.
pub(crate) struct GroupMemory<R> {
    ops: Vec<WriteOp<'static>>,
    requests: Vec<R>,
}

impl<R> Default for GroupMemory<R> {
    fn default() -> GroupMemory<R> {
        GroupMemory { ops: Vec::new(), requests: Vec::new() }
    }
}

/// Writes in the order in which they came.
pub(crate) struct Group<'b, R> {
    ops: Vec<WriteOp<'b>>,
    requests: Vec<R>,
}

impl<'b, R: Asked> Group<'b, R> {
    /// A group of none.
    pub(crate) fn within(memory: GroupMemory<R>) -> Group<'b, R> {
        Group { ops: emptied(memory.ops), requests: memory.requests }
    }

    /// The memory of a group that is written.
    pub(crate) fn into_memory(mut self) -> GroupMemory<R> {
        self.requests.clear();
        GroupMemory { ops: emptied(self.ops), requests: self.requests }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.ops.len() >= WRITES_MAX
    }

    pub(crate) fn add(&mut self, request: R, op: WriteOp<'b>) {
        if self.ops.capacity() == 0 {
            self.ops.reserve(32);
            self.requests.reserve(32);
        }
        self.ops.push(op);
        self.requests.push(request);
    }

    /// Whether a range shares a byte with one of the writes.
    pub(crate) fn overlaps(&self, offset: u64, length_bytes: u64) -> bool {
        let end = offset.saturating_add(length_bytes);
        let shares =
            |r: &R| r.offset() < end && offset < r.offset().saturating_add(r.length_bytes());
        self.requests.iter().any(shares)
    }

    /// The requests, with where in the receive buffer their payloads are.
    pub(crate) fn places(&self, input: &Input) -> Vec<(R, Option<usize>)> {
        let place = |op: &WriteOp<'_>| match op {
            WriteOp::Data { bytes, .. } => Some(input.place_of(bytes)),
            WriteOp::Zero { .. } => None,
        };
        self.requests.iter().copied().zip(self.ops.iter().map(place)).collect()
    }

    /// The writes to be made.
    pub(crate) fn ops(&self) -> &[WriteOp<'b>] {
        &self.ops
    }

    /// The requests that asked for it.
    pub(crate) fn requests(&self) -> &[R] {
        &self.requests
    }

    pub(crate) fn clear(&mut self) {
        self.ops.clear();
        self.requests.clear();
    }
}
