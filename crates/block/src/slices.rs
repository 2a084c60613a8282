//! Slices of bytes, and vectors of them.

use std::io::IoSlice;
use std::ops::Range;

/// Whether there is nothing but zeros.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    // Most data gives itself away in its first bytes; zeros are compared in long steps.
    let (steps, rest) = bytes.as_chunks::<64>();
    steps.iter().all(|step| *step == [0; 64]) && rest.iter().all(|&b| b == 0)
}

/// The slices of a range of what `slices` are one after another.
pub(crate) fn cut<'s>(slices: &'s [IoSlice<'_>], range: Range<usize>) -> Vec<IoSlice<'s>> {
    let mut cut = Vec::with_capacity(slices.len());
    let mut start = 0;
    for slice in slices {
        let end = start + slice.len();
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            cut.push(IoSlice::new(&slice[from - start..to - start]));
        }
        start = end;
    }
    cut
}

/// An empty vector in the memory of one that has done its service, for elements of the same size
/// and alignment; for others, one without memory. It lets what borrows from a request be gathered
/// without an allocation per request: the memory is kept under a type that borrows nothing.
#[must_use]
pub fn emptied<A, B>(mut old: Vec<A>) -> Vec<B> {
    old.clear();
    // The standard library collects in place here, which a test holds it to.
    old.into_iter().map(|_| unreachable!("there are no elements")).collect()
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::emptied;

    #[test]
    fn the_memory_stays_and_the_elements_go() {
        let kept: Vec<IoSlice<'static>> = Vec::with_capacity(100);
        let place = kept.as_ptr().cast::<u8>();
        let bytes = [7_u8; 10];
        let mut borrowing = emptied(kept);
        borrowing.push(IoSlice::new(&bytes));
        let kept: Vec<IoSlice<'static>> = emptied(borrowing);
        assert_eq!((kept.len(), kept.capacity()), (0, 100));
        assert_eq!(kept.as_ptr().cast::<u8>(), place);
    }
}
