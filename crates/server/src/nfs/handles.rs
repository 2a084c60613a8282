//! File handles: 40 bytes that name an object of a share at a moment, for as long as it is there.
//!
//! | bytes | |
//! | --- | --- |
//! | 0 to 7 | the volume's number |
//! | 8 to 15 | the seq of the moment; 0 is the present |
//! | 16 to 23 | the inode; its highest byte is 1 for the list of moments that it shows |
//! | 24 to 31 | the generation |
//! | 32 to 39 | a hash of all before, keyed by the share |
//!
//! All are little-endian. Nothing of the process is in them, so they survive it.

use units::{FileId, Generation, Inode, Seq};
use wire::nfs3::FileHandle;

use crate::attach::VolumeId;

const SIGNED_BYTES: usize = 32;
const KIND_SHIFT: u32 = 56;
const MOMENTS: u64 = 1;

/// A handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    /// The volume.
    pub(crate) volume: VolumeId,
    /// The moment; none is the present.
    pub(crate) moment: Option<Seq>,
    /// The object.
    pub(crate) file: FileId,
    /// It is the list of moments that a directory shows: `.hindsight`.
    pub(crate) is_moments: bool,
}

impl Handle {
    /// The parts of a handle, and its hash, which is to be held against the share's.
    pub(crate) fn read(handle: &FileHandle) -> Option<(Handle, u64)> {
        let words: [u8; SIGNED_BYTES + 8] = handle.as_bytes().try_into().ok()?;
        let word = |at: usize| {
            let bytes = words[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        let [volume, seq, inode, generation, hash] = [0, 8, 16, 24, 32].map(word);
        let number = inode & ((1 << KIND_SHIFT) - 1);
        let handle = Handle {
            volume,
            moment: (seq > 0).then_some(Seq(seq)),
            file: FileId { inode: Inode(number), generation: Generation(generation) },
            is_moments: inode >> KIND_SHIFT == MOMENTS,
        };
        (inode >> KIND_SHIFT <= MOMENTS).then_some((handle, hash))
    }

    /// The part that is signed.
    pub(crate) fn signed(&self) -> [u8; SIGNED_BYTES] {
        let kind = if self.is_moments { MOMENTS << KIND_SHIFT } else { 0 };
        let seq = self.moment.map_or(0, |seq| seq.0);
        let words = [self.volume, seq, self.file.inode.0 | kind, self.file.generation.0];
        let mut bytes = [0; SIGNED_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The handle, with its hash.
    pub(crate) fn file_handle(&self, hash: u64) -> FileHandle {
        let mut bytes = [0; SIGNED_BYTES + 8];
        bytes[..SIGNED_BYTES].copy_from_slice(&self.signed());
        bytes[SIGNED_BYTES..].copy_from_slice(&hash.to_le_bytes());
        FileHandle::new(&bytes).expect("40 bytes are a handle")
    }

    /// The number that clients see of an inode: in the past another one than in the present, so
    /// that `cp` and `tar` do not take the two for one file.
    pub(crate) fn file_number(moment: Option<Seq>, inode: Inode, is_moments: bool) -> u64 {
        /// Above the numbers of inodes.
        const INODE_BITS: u32 = 35;
        /// Below the highest bit, which breaks old clients, and that of listings.
        const PAST_BITS: u32 = 62 - INODE_BITS;
        let listing = if is_moments { 1 << 62 } else { 0 };
        let past = moment.map_or(0, |seq| {
            (seq.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PAST_BITS)).max(1)
        });
        listing | past << INODE_BITS | inode.0
    }
}

#[cfg(test)]
mod tests {
    use units::{FileId, Generation, Inode, Seq};
    use wire::nfs3::FileHandle;

    use super::Handle;

    #[test]
    fn a_handle_is_read_as_it_was_made_and_other_lengths_are_none() {
        for (moment, is_moments) in [(None, false), (Some(Seq(7)), true), (Some(Seq(1)), false)] {
            let file = FileId { inode: Inode((1 << 34) - 1), generation: Generation(9 << 55) };
            let handle = Handle { volume: 3, moment, file, is_moments };
            let bytes = handle.file_handle(0x1234_5678_9abc_def0);
            assert_eq!(Handle::read(&bytes), Some((handle, 0x1234_5678_9abc_def0)));
            let bytes = bytes.as_bytes();
            for length in (0..bytes.len()).chain([41, 64]) {
                let mut other = bytes.to_vec();
                other.resize(length, 0);
                let other = FileHandle::new(&other).expect("it is short");
                assert_eq!(Handle::read(&other), None);
            }
            let mut other = bytes.to_vec();
            other[23] = 2;
            assert_eq!(Handle::read(&FileHandle::new(&other).expect("short")), None);
        }
    }

    #[test]
    fn moments_have_numbers_of_their_own_with_63_bits() {
        let number = |moment, inode| Handle::file_number(moment, Inode(inode), false);
        assert_eq!(number(None, 17), 17);
        for seq in 1..2000 {
            for inode in [1, 2, (1 << 34) - 1] {
                let past = number(Some(Seq(seq)), inode);
                assert!(past >> 62 == 0 && past >> 35 > 0, "{past:x}");
                assert_ne!(past, number(Some(Seq(seq + 1)), inode));
                assert_ne!(past, Handle::file_number(Some(Seq(seq)), Inode(inode), true));
            }
        }
    }
}
