//! Blocks that writes ended within: who appends goes on in such a block, and has no need to read
//! back what was written a moment before.
//!
//! Invariant: a block of these is answered only if it has the checksum that the group says, so one
//! that something else has changed since is not.

use std::io::IoSlice;
use std::ops::Range;

use format::checksum::block_crc;
use format::integrity::BLOCK_BYTES;
use parking_lot::Mutex;

/// Those who append at a time that are remembered.
const PLACES: usize = 4;

/// Some of the last blocks.
#[derive(Default)]
pub(super) struct LastBlocks {
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    blocks: Vec<LastBlock>,
    /// Which one makes room next.
    turn: usize,
}

struct LastBlock {
    number: u64,
    bytes: Box<[u8; BLOCK_BYTES]>,
}

impl LastBlocks {
    /// Forgets what is remembered of blocks that become something else.
    pub(super) fn forget(&self, blocks: Range<u64>) {
        let mut places = self.places.lock();
        places.blocks.retain(|block| !blocks.contains(&block.number));
    }

    /// Remembers the last block of a write of whole blocks, which are numbers `first` to `last`.
    pub(super) fn keep(&self, first: u64, last: u64, whole: &[IoSlice<'_>]) {
        let mut places = self.places.lock();
        let Places { blocks, turn } = &mut *places;
        let place = match blocks.iter().position(|block| block.number == first) {
            Some(place) => place,
            None if blocks.len() < PLACES => {
                blocks.push(LastBlock { number: last, bytes: Box::new([0; BLOCK_BYTES]) });
                blocks.len() - 1
            }
            None => {
                *turn = (*turn + 1) % PLACES;
                *turn
            }
        };
        blocks[place].number = last;
        copy_last(whole, &mut blocks[place].bytes);
        let mut number = 0;
        blocks.retain(|block| {
            number += 1;
            number - 1 == place || !(first..=last).contains(&block.number)
        });
    }

    /// Fills `buffer` with a block if it is remembered, and is what this is the checksum of.
    pub(super) fn get(&self, number: u64, stored: u32, buffer: &mut [u8; BLOCK_BYTES]) -> bool {
        let places = self.places.lock();
        let Some(block) = places.blocks.iter().find(|block| block.number == number) else {
            return false;
        };
        buffer.copy_from_slice(&block.bytes[..]);
        block_crc(buffer) == stored
    }
}

/// The last bytes of slices that have that many.
fn copy_last(slices: &[IoSlice<'_>], into: &mut [u8; BLOCK_BYTES]) {
    let mut left = into.len();
    for slice in slices.iter().rev() {
        let count = slice.len().min(left);
        into[left - count..left].copy_from_slice(&slice[slice.len() - count..]);
        left -= count;
        if left == 0 {
            return;
        }
    }
    assert!(left == 0, "whole blocks are written");
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use format::checksum::block_crc;
    use format::integrity::BLOCK_BYTES;

    use super::{LastBlocks, PLACES};

    #[test]
    fn one_who_appends_takes_one_place_and_a_block_that_is_another_by_now_is_not_answered() {
        let last = LastBlocks::default();
        let bytes: Vec<u8> = (0..3 * BLOCK_BYTES).map(|i| (i / 100) as u8).collect();
        let (head, tail) = bytes.split_at(BLOCK_BYTES + 77);
        let slices = [IoSlice::new(head), IoSlice::new(tail)];
        let end = &bytes[2 * BLOCK_BYTES..];
        let mut buffer = [0; BLOCK_BYTES];
        for number in (0..100).step_by(2) {
            last.keep(number, number + 2, &slices);
        }
        assert!(last.get(100, block_crc(end), &mut buffer) && buffer == end);
        assert!(!last.get(100, block_crc(end) ^ 1, &mut buffer));
        assert!(!last.get(98, block_crc(end), &mut buffer));
        last.keep(300, 302, &slices);
        last.keep(299, 303, &slices);
        assert!(!last.get(302, block_crc(end), &mut buffer), "it was written over");
        assert!(last.get(303, block_crc(end), &mut buffer));
        last.forget(303..304);
        assert!(!last.get(303, block_crc(end), &mut buffer));
        for other in 0..PLACES as u64 - 1 {
            last.keep(1000 + 10 * other, 1002 + 10 * other, &slices);
        }
        assert!(last.get(100, block_crc(end), &mut buffer), "others took other places");
        for other in 0..PLACES as u64 {
            last.keep(2000 + 10 * other, 2002 + 10 * other, &slices);
        }
        assert!(!last.get(100, block_crc(end), &mut buffer), "there are no more places");
    }
}
