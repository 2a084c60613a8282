//! Ranges of media by pieces, and slices by ranges.

use std::io::IoSlice;
use std::ops::Range;

use env::PIECE_BYTES;

/// The parts of a range, piece by piece: the piece, where in it, how many bytes.
pub(super) fn parts(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + length;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (piece, within) = (at / PIECE_BYTES, at % PIECE_BYTES);
        let take = (PIECE_BYTES - within).min(end - at);
        at += take;
        let size = |n: u64| usize::try_from(n).expect("within a piece");
        Some((piece, size(within), size(take)))
    })
}

/// The slices of a range of what `slices` are one after another.
pub(super) fn slices_of<'s>(slices: &'s [IoSlice<'_>], range: Range<usize>) -> Vec<IoSlice<'s>> {
    let mut cut = Vec::with_capacity(slices.len());
    let mut begin = 0;
    for slice in slices {
        let end = begin + slice.len();
        let (first, last) = (range.start.max(begin), range.end.min(end));
        if first < last {
            cut.push(IoSlice::new(&slice[first - begin..last - begin]));
        }
        begin = end;
    }
    cut
}
