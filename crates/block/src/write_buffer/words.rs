//! The words of a slot, and maps of grains.

use std::sync::atomic::{AtomicU64, Ordering};

use env::{MAP_WORDS, SlotWords};

/// The piece that a slot has.
pub(super) fn piece_of(words: &SlotWords) -> u64 {
    words[0].load(Ordering::Acquire)
}

/// Gives a slot another piece. Nothing of the one before may be left to be written.
pub(super) fn set_piece(words: &SlotWords, piece: u64) {
    assert!(words[1..].iter().all(|w| w.load(Ordering::Acquire) == 0), "a slot that is clean");
    words[0].store(piece, Ordering::Release);
}

/// The grains `first..end` were put into the slot, and are to be written.
pub(super) fn set_dirty(words: &SlotWords, first: usize, end: usize) {
    for_words(first, end, |word, bits| {
        words[1 + word].fetch_or(bits, Ordering::AcqRel);
    });
}

/// Forgets that `first..end` were to be written.
pub(super) fn forget_dirty(words: &SlotWords, first: usize, end: usize) {
    for_words(first, end, |word, bits| {
        words[1 + word].fetch_and(!bits, Ordering::AcqRel);
    });
}

/// What is to be written becomes what is being written.
pub(super) fn begin_writing(words: &SlotWords) {
    for word in 0..MAP_WORDS {
        let bits = words[1 + word].load(Ordering::Acquire);
        if bits != 0 {
            // In this order: a process that dies in between has both.
            words[1 + MAP_WORDS + word].fetch_or(bits, Ordering::AcqRel);
            words[1 + word].fetch_and(!bits, Ordering::AcqRel);
        }
    }
}

/// The grains `first..end` are being written as well.
pub(super) fn set_writing(words: &SlotWords, first: usize, end: usize) {
    for_words(first, end, |word, bits| {
        words[1 + MAP_WORDS + word].fetch_or(bits, Ordering::AcqRel);
    });
}

/// What was being written is there.
pub(super) fn end_writing(words: &SlotWords) {
    words[1 + MAP_WORDS..].iter().for_each(|word| word.store(0, Ordering::Release));
}

/// What was being written is to be written again.
pub(super) fn undo_writing(words: &SlotWords) {
    for word in 0..MAP_WORDS {
        let bits = words[1 + MAP_WORDS + word].load(Ordering::Acquire);
        words[1 + word].fetch_or(bits, Ordering::AcqRel);
        words[1 + MAP_WORDS + word].store(0, Ordering::Release);
    }
}

/// The grains that are being written.
pub(super) fn writing(words: &SlotWords) -> Vec<u64> {
    words[1 + MAP_WORDS..].iter().map(|word| word.load(Ordering::Acquire)).collect()
}

/// The grains that the media may lack.
pub(super) fn lacking(words: &SlotWords) -> Vec<u64> {
    let (dirty, writing) = words[1..].split_at(MAP_WORDS);
    let either =
        |(d, w): (&AtomicU64, &AtomicU64)| d.load(Ordering::Acquire) | w.load(Ordering::Acquire);
    dirty.iter().zip(writing).map(either).collect()
}

/// Calls `f` with each word that has some of the bits `first..end`, and which those are.
pub(super) fn for_words(first: usize, end: usize, mut f: impl FnMut(usize, u64)) {
    let mut at = first;
    while at < end {
        let (word, low) = (at / 64, at % 64);
        let count = (64 - low).min(end - at);
        f(word, (u64::MAX >> (64 - count)) << low);
        at += count;
    }
}

/// The ranges of bits that are set.
pub(super) fn runs(map: &[u64]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (word, &bits) in map.iter().enumerate() {
        let mut low = 0;
        while low < 64 && bits >> low != 0 {
            let first = low + (bits >> low).trailing_zeros() as usize;
            let count = (!(bits >> first)).trailing_zeros() as usize;
            let (first, end) = (word * 64 + first, word * 64 + (first + count).min(64));
            match runs.last_mut() {
                Some(last) if last.1 == first => last.1 = end,
                _ => runs.push((first, end)),
            }
            low = end - word * 64;
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use env::{MAP_WORDS, SlotWords};

    use super::{
        begin_writing, end_writing, for_words, forget_dirty, lacking, piece_of, runs, set_dirty,
        set_piece, undo_writing, writing,
    };

    #[test]
    fn runs_are_the_bits_that_were_set() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % n
        };
        for _ in 0..2000 {
            let mut plain = [false; 256];
            let mut map = [0_u64; 4];
            for _ in 0..below(6) {
                let first = below(256);
                let end = first + below(257 - first);
                plain[first..end].fill(true);
                for_words(first, end, |word, bits| map[word] |= bits);
            }
            let mut seen = [false; 256];
            let runs = runs(&map);
            runs.iter().for_each(|&(first, end)| seen[first..end].fill(true));
            assert_eq!(seen, plain);
            assert!(runs.windows(2).all(|two| two[0].1 < two[1].0), "as few as possible");
        }
    }

    #[test]
    fn what_the_media_lack_is_never_forgotten_between_two_words() {
        let words: SlotWords = std::array::from_fn(|_| AtomicU64::new(0));
        set_piece(&words, 7);
        set_dirty(&words, 60, 200);
        let before = lacking(&words);
        begin_writing(&words);
        assert_eq!(lacking(&words), before);
        set_dirty(&words, 100, 110);
        undo_writing(&words);
        assert_eq!((lacking(&words), writing(&words)), (before, vec![0; MAP_WORDS]));
        begin_writing(&words);
        set_dirty(&words, 0, 1);
        end_writing(&words);
        assert_eq!(runs(&lacking(&words)), [(0, 1)]);
        forget_dirty(&words, 0, 64);
        assert_eq!((runs(&lacking(&words)), piece_of(&words)), (Vec::new(), 7));
    }
}
