//! Parts of the slices of a vectored write.

use std::io::IoSlice;
use std::ops::Range;

/// The bytes `range` of slices that stand one after another.
pub(crate) fn cut<'a>(slices: &'a [IoSlice<'_>], range: Range<usize>) -> Vec<IoSlice<'a>> {
    let mut start = 0;
    let mut parts = Vec::new();
    for slice in slices {
        let end = start + slice.len();
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            parts.push(IoSlice::new(&slice[from - start..to - start]));
        }
        start = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::cut;

    #[test]
    fn every_part_is_that_of_the_slices_joined() {
        let slices = [&b"ab"[..], b"", b"cdefg", b"h"].map(IoSlice::new);
        for start in 0..=8 {
            for end in start..=8 {
                let parts = cut(&slices, start..end);
                let joined: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
                assert_eq!(joined, b"abcdefgh"[start..end]);
            }
        }
    }
}
