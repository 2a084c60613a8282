//! Writes and discards: whole blocks of a group at a time, with the rest of the first and the last.
//!
//! Invariant: who writes or discards blocks holds their range: alone where the layer guards them.

use std::io::IoSlice;

use format::checksum::CrcStream;
use format::integrity::BLOCK_BYTES;

use super::IntegrityDevice;
use super::geometry::{BLOCK, Span, block_number, blocks_of, spans};
use super::group::Known;
use crate::slices::cut;
use crate::{BlockDevice, Operation, Result};

impl<D: BlockDevice> IntegrityDevice<D> {
    pub(super) fn write(&self, offset: u64, slices: &[IoSlice<'_>], durable: bool) -> Result<()> {
        let length: u64 = slices.iter().map(|s| s.len() as u64).sum();
        self.check(Operation::Write, offset, length)?;
        if length == 0 {
            return Ok(());
        }
        for span in spans(blocks_of(offset, length)) {
            self.by_guard(span, |span, is_exempt| {
                let part = span.bytes(offset, length);
                let within = (part.start - offset) as usize..(part.end - offset) as usize;
                let cut_out;
                let slices = if within.len() as u64 == length {
                    slices
                } else {
                    cut_out = cut(slices, within);
                    &cut_out[..]
                };
                match is_exempt {
                    true => self.write_exempt(span, part.start, slices, durable),
                    false => self.write_span(span, part.start, slices, durable),
                }
            })?;
        }
        Ok(())
    }

    /// Writes `slices` at `offset`, which lies in blocks of one group whose range is held.
    pub(super) fn write_span(
        &self,
        span: &Span,
        offset: u64,
        slices: &[IoSlice<'_>],
        durable: bool,
    ) -> Result<()> {
        self.refuse_damaged(span)?;
        let edges = self.edges(span, offset, slices)?;
        let whole = edges.around(slices);
        self.begin(span)?;
        let written = if durable {
            self.below.write_durable(span.offset(), &whole)
        } else {
            self.below.write_at(span.offset(), &whole)
        };
        let last = self.blocks_in(span.group);
        let mut is_new = false;
        self.end(span, |group| {
            if written.is_err() {
                return group.doubt(span.blocks.clone());
            }
            is_new = group.any_unwritten(span);
            group.renew(span, last);
            for (block, checksum) in span.blocks.clone().zip(checksums(&whole)) {
                group.set(block, checksum);
            }
        })?;
        written?;
        if edges.tail.is_empty() {
            self.last.forget(span.numbers());
        } else {
            self.last.keep(span.numbers().start, span.numbers().end - 1, &whole);
        }
        // What the page calls never written reads as zeros, also after the program was killed and
        // the data is with the operating system: so that has to have the page as well.
        match (durable, is_new) {
            (true, _) => {
                self.with_group(span.group, |group| self.write_page_durably(span.group, group))
            }
            (false, true) => self.with_group(span.group, |group| self.hand_over(span.group, group)),
            (false, false) => Ok(()),
        }
    }

    /// What a write leaves of its first and last block.
    fn edges(&self, span: &Span, offset: u64, slices: &[IoSlice<'_>]) -> Result<Edges> {
        let length: usize = slices.iter().map(|s| s.len()).sum();
        let head = (offset % BLOCK) as usize;
        let tail = span.length() - head - length;
        let mut edges = Edges { head: Vec::new(), tail: Vec::new() };
        let mut block = [0; BLOCK_BYTES];
        if head > 0 {
            self.read_edge(span.group, span.blocks.start, &mut block)?;
            edges.head = block[..head].to_vec();
        }
        if tail > 0 {
            if head == 0 || span.blocks.len() > 1 {
                self.read_edge(span.group, span.blocks.end - 1, &mut block)?;
            }
            edges.tail = block[BLOCK_BYTES - tail..].to_vec();
        }
        Ok(edges)
    }

    /// The bytes of a block of which a write leaves something.
    fn read_edge(&self, group: u64, block: usize, buffer: &mut [u8; BLOCK_BYTES]) -> Result<()> {
        let number = block_number(group, block);
        match self.with_group(group, |g| Ok(g.known(block)))? {
            Known::Checksum(stored) if self.last.get(number, stored, buffer) => Ok(()),
            _ => self.read_held(group, block, buffer),
        }
    }

    /// Forgets blocks that one guards, whose range is held.
    pub(super) fn discard_part(&self, span: &Span, is_exempt: bool) -> Result<()> {
        let last = self.blocks_in(span.group);
        let discard = || self.below.discard(span.offset(), span.length() as u64);
        if is_exempt {
            return discard();
        }
        if !self.with_group(span.group, |group| Ok(group.any_written(span)))? {
            return discard();
        }
        self.last.forget(span.numbers());
        self.begin(span)?;
        let discarded = discard();
        self.end(span, |group| {
            group.renew(span, last);
            span.blocks.clone().for_each(|block| group.clear(block));
        })?;
        discarded
    }
}

/// Bytes of the first and last block of a write that it leaves as they are.
struct Edges {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Edges {
    fn around<'a>(&'a self, slices: &'a [IoSlice<'a>]) -> Vec<IoSlice<'a>> {
        let edge = |bytes: &'a Vec<u8>| (!bytes.is_empty()).then(|| IoSlice::new(bytes));
        let middle = slices.iter().map(|slice| IoSlice::new(slice));
        edge(&self.head).into_iter().chain(middle).chain(edge(&self.tail)).collect()
    }
}

/// The checksums of whole blocks that lie in slices.
fn checksums(slices: &[IoSlice<'_>]) -> Vec<u32> {
    let mut checksums = Vec::new();
    let (mut stream, mut left) = (CrcStream::default(), BLOCK_BYTES);
    for slice in slices {
        let mut rest: &[u8] = slice;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(left));
            stream.append(piece);
            left -= piece.len();
            rest = after;
            if left == 0 {
                checksums.push(stream.crc());
                (stream, left) = (CrcStream::default(), BLOCK_BYTES);
            }
        }
    }
    assert!(left == BLOCK_BYTES, "whole blocks are written");
    checksums
}
