//! The data of one request in as many buffers as it takes, with room for the header of a reply
//! before it.

use smallvec::SmallVec;

use super::pool::{Buffer, CLASS_BYTES, HEADROOM};

/// Buffers that hold one request's data.
pub(crate) struct Chain {
    buffers: SmallVec<[Buffer; 1]>,
    /// Data bytes in the first buffer; every other is full but the last.
    first_bytes: usize,
    length: usize,
    /// Bytes of the header before the data.
    header_bytes: usize,
}

impl Chain {
    pub(super) fn new(buffers: SmallVec<[Buffer; 1]>, first_bytes: usize, length: usize) -> Chain {
        Chain { buffers, first_bytes, length, header_bytes: 0 }
    }

    /// Bytes of the data.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Where in its buffer the piece of that number ends; it begins at `HEADROOM`.
    fn end(first_bytes: usize, length: usize, index: usize) -> usize {
        let bytes = match index.checked_sub(1) {
            None => first_bytes,
            Some(before) => {
                let done = first_bytes + before * CLASS_BYTES[CLASS_BYTES.len() - 1];
                (length - done).min(CLASS_BYTES[CLASS_BYTES.len() - 1])
            }
        };
        HEADROOM + bytes
    }

    /// The data.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (first, length) = (self.first_bytes, self.length);
        let whole = self.buffers.iter().enumerate();
        whole.map(move |(i, buffer)| &buffer.bytes[HEADROOM..Chain::end(first, length, i)])
    }

    /// The data, to be filled.
    pub(crate) fn pieces_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let (first, length) = (self.first_bytes, self.length);
        let whole = self.buffers.iter_mut().enumerate();
        whole.map(move |(i, buffer)| &mut buffer.bytes[HEADROOM..Chain::end(first, length, i)])
    }

    /// Puts a whole reply into the first buffer, which is long enough: it has all there is to send.
    pub(crate) fn hold(&mut self, reply: &[u8]) {
        assert!(reply.len() <= self.first_bytes, "the reply was bounded by what was taken");
        self.buffers[0].bytes[HEADROOM..HEADROOM + reply.len()].copy_from_slice(reply);
        (self.first_bytes, self.length) = (reply.len(), reply.len());
        self.buffers.truncate(1);
    }

    /// The part of one buffer that is left to be filled when the first `filled` bytes are; empty at
    /// the end.
    pub(crate) fn unfilled(&mut self, mut filled: usize) -> &mut [u8] {
        for piece in self.pieces_mut() {
            if filled < piece.len() {
                return &mut piece[filled..];
            }
            filled -= piece.len();
        }
        &mut []
    }

    /// Copies data from `from` on, as much as `into` takes.
    pub(crate) fn copy_to(&self, mut from: usize, mut into: &mut [u8]) {
        for piece in self.pieces() {
            if from >= piece.len() {
                from -= piece.len();
                continue;
            }
            let piece = &piece[std::mem::take(&mut from)..];
            let (part, rest) = into.split_at_mut(piece.len().min(into.len()));
            part.copy_from_slice(&piece[..part.len()]);
            into = rest;
        }
    }

    /// Copies `bytes` into the data from `to` on.
    pub(crate) fn copy_from(&mut self, mut to: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = self.unfilled(to);
            let part = space.len().min(bytes.len());
            assert!(part > 0, "copied within what was taken");
            space[..part].copy_from_slice(&bytes[..part]);
            (to, bytes) = (to + part, &bytes[part..]);
        }
    }

    /// Puts a header before the data.
    pub(crate) fn set_header(&mut self, header: &[u8]) {
        let start = HEADROOM - header.len();
        self.buffers[0].bytes[start..HEADROOM].copy_from_slice(header);
        self.header_bytes = header.len();
    }

    /// Bytes of header and data.
    pub(crate) fn reply_bytes(&self) -> usize {
        self.header_bytes + self.length
    }

    /// Header and data, in order.
    pub(crate) fn reply(&self) -> impl Iterator<Item = &[u8]> {
        let (first, length) = (self.first_bytes, self.length);
        self.buffers.iter().enumerate().map(move |(i, buffer)| {
            let start = if i == 0 { HEADROOM - self.header_bytes } else { HEADROOM };
            &buffer.bytes[start..Chain::end(first, length, i)]
        })
    }
}
