//! What a volume may hold after requests that raced with each other or with a `kill -9`.
//!
//! A piece is a range within one block that the same requests cover throughout. Of each piece:
//! 1. If a request that covers it was acknowledged, it holds the bytes of such a one, or of one
//!    that was not acknowledged, but of none that was acknowledged before another was sent.
//! 2. If none was acknowledged, it may also hold what was there before.

use anyhow::{Result, bail};

use super::plan::Op;
use crate::image::{Image, PAGE_BYTES};
use crate::nbd::describe;

/// The image that is there, if it is one of those that may be.
pub(super) fn settle(before: &Image, ops: &[Op], found: &[u8]) -> Result<Image> {
    let mut after = before.clone();
    for (offset, length) in pieces(ops) {
        let covering: Vec<&Op> = ops.iter().filter(|op| op.covers(offset, length)).collect();
        let range = to_index(offset)..to_index(offset + length);
        let is_possible = possible(before, &covering, offset, length)
            .iter()
            .any(|candidate| candidate == &found[range.clone()]);
        if !is_possible {
            let list: Vec<String> = covering.iter().map(|op| explain(op)).collect();
            bail!(
                "{length} bytes at {offset} are neither before nor after: {:02x?}...\n{}",
                &found[range.start..range.end.min(range.start + 16)],
                list.join("\n")
            );
        }
        after.write(offset, &found[range]);
    }
    if let Some(at) = after.first_difference(0, found) {
        bail!("byte {at} changed though no request touched it");
    }
    Ok(after)
}

/// Whether `first` was over before `second` was sent.
pub(super) fn precedes(first: &Op, second: &Op) -> bool {
    matches!((first.done_as, second.sent_after), (Some(done), Some(sent)) if done < sent)
}

fn possible(before: &Image, covering: &[&Op], offset: u64, length: u64) -> Vec<Vec<u8>> {
    let acknowledged: Vec<&&Op> = covering.iter().filter(|op| op.done_as.is_some()).collect();
    let mut possible: Vec<Vec<u8>> = covering
        .iter()
        .filter(|op| op.sent_after.is_some())
        .filter(|op| !acknowledged.iter().any(|later| precedes(op, later)))
        .map(|op| op.bytes(offset, length))
        .collect();
    if acknowledged.is_empty() {
        possible.push(before.read(offset, length));
    }
    possible
}

/// The ranges, ascending, that are covered by the same requests throughout and cross no block.
fn pieces(ops: &[Op]) -> Vec<(u64, u64)> {
    let mut cuts: Vec<u64> = Vec::new();
    for op in ops {
        let end = op.offset + op.length;
        cuts.push(op.offset);
        cuts.push(end);
        let first = op.offset.div_ceil(PAGE_BYTES);
        cuts.extend((first..=end / PAGE_BYTES).map(|block| block * PAGE_BYTES));
    }
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2)
        .map(|pair| (pair[0], pair[1] - pair[0]))
        .filter(|&(offset, length)| ops.iter().any(|op| op.covers(offset, length)))
        .collect()
}

fn explain(op: &Op) -> String {
    let sent = op.sent_after.map_or("not sent".to_owned(), |n| format!("sent after {n}"));
    let done = op.done_as.map_or("not acknowledged".to_owned(), |n| format!("done as {n}"));
    format!("  {} ({sent}, {done})", describe(&op.request))
}

fn to_index(number: u64) -> usize {
    usize::try_from(number).expect("images are small")
}

#[cfg(test)]
mod tests {
    use super::{Image, Op, settle, to_index};
    use crate::nbd::Request;

    fn op(offset: u64, byte: u8, length: u64, sent: u64, done: Option<u64>) -> Op {
        let bytes = vec![byte; to_index(length)];
        let request = Request::Write { offset, bytes, fua: false };
        Op { request, offset, length, sent_after: Some(sent), done_as: done }
    }

    #[test]
    fn an_acknowledged_write_that_is_gone_is_found() {
        let before = Image::zeros(8192);
        let ops = [op(100, 1, 50, 0, Some(0))];
        let mut found = vec![0; 8192];
        assert!(settle(&before, &ops, &found).is_err());
        found[100..150].fill(1);
        assert!(settle(&before, &ops, &found).is_ok());
        found[149] = 0;
        assert!(settle(&before, &ops, &found).is_err());
    }

    #[test]
    fn a_write_that_was_not_acknowledged_may_be_there_or_not_but_not_torn_in_a_block() {
        let before = Image::zeros(8192);
        let ops = [op(4000, 1, 200, 0, None)];
        let mut found = vec![0; 8192];
        assert!(settle(&before, &ops, &found).is_ok());
        found[4000..4096].fill(1);
        assert!(settle(&before, &ops, &found).is_ok());
        found[4050] = 0;
        assert!(settle(&before, &ops, &found).is_err());
    }

    #[test]
    fn an_overwritten_write_does_not_come_back() {
        let before = Image::zeros(4096);
        let ops = [op(0, 1, 10, 0, Some(0)), op(0, 2, 10, 1, Some(1)), op(0, 3, 10, 0, None)];
        let with = |byte: u8| {
            let mut found = vec![0; 4096];
            found[..10].fill(byte);
            settle(&before, &ops, &found)
        };
        assert!(with(0).is_err() && with(1).is_err());
        assert!(with(2).is_ok() && with(3).is_ok());
    }
}
