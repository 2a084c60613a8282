//! Memory of vectors, used again for what borrows something else.

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
