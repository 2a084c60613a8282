//! Which of the catalogue's two roots counts: more than one bit says so.
//!
//! The library below keeps two roots in its first page, each with a checksum, and a flag that names
//! the one of the last commit. The flag has no checksum: where it rots, or a device lost the write
//! that turned it, the root before is taken, which is sound and out of date. So whenever the
//! library writes its header, the number of the commit that it names is written behind it, sealed
//! by a checksum and within the same sector. A catalogue is opened at the greatest number that any
//! copy has sealed, or not at all.
//!
//! A number below the one that the flag names is that of a program that sealed nothing, and says
//! nothing. The greatest one cannot be of a commit that was not made: it is written with the flag,
//! after everything that the commit needs is durable.

use format::checksum::block_crc;

/// Bytes of the library's header: it writes them together.
pub const HEADER_BYTES: usize = 320;
/// With what is behind it.
pub const SEALED_BYTES: usize = HEADER_BYTES + 16;

/// The byte of flags, the flag that says that the second root counts, and the one that says that no
/// page needs to be checked after a crash.
pub const FLAGS: usize = 9;
pub const ROOT_SECOND: u8 = 1;
pub const TWO_PHASES: u8 = 4;

/// Where the roots begin, and in each the number of its commit and the checksum of it all.
const ROOTS: [usize; 2] = [64, 64 + 128];
const COMMIT: usize = 104;
pub const ROOT_CHECKSUMS: [usize; 2] = [ROOTS[0] + 112, ROOTS[1] + 112];

/// How what is behind the header begins.
const MAGIC: [u8; 4] = *b"HCOM";

fn number_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The number of the commit that the flag names, and that of the other root.
fn commits(header: &[u8]) -> (u64, u64) {
    let named = usize::from(header[FLAGS] & ROOT_SECOND != 0);
    (number_at(header, ROOTS[named] + COMMIT), number_at(header, ROOTS[1 - named] + COMMIT))
}

/// The header with what belongs behind it.
///
/// # Panics
/// If it is not as long as the library's.
pub fn sealed(header: &[u8]) -> [u8; SEALED_BYTES] {
    let mut bytes = [0; SEALED_BYTES];
    bytes[..HEADER_BYTES].copy_from_slice(header);
    bytes[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&MAGIC);
    let (named, _) = commits(header);
    bytes[HEADER_BYTES + 4..SEALED_BYTES - 4].copy_from_slice(&named.to_le_bytes());
    let crc = block_crc(&bytes[HEADER_BYTES..SEALED_BYTES - 4]);
    bytes[SEALED_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The number of the last commit, if it is sealed in a first page.
pub fn last_commit(page: &[u8]) -> Option<u64> {
    let seal = page.get(HEADER_BYTES..SEALED_BYTES)?;
    let is_sound = seal[..4] == MAGIC && block_crc(&seal[..12]).to_le_bytes() == seal[12..];
    is_sound.then(|| number_at(seal, 4))
}

/// A first page's statement, held against the last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Its root, or a later one.
    It,
    /// The same now that a flag was turned.
    Mended,
    /// Neither root is that one.
    Neither,
}

/// Turns the flags of a first page if that makes it name the last commit, and say that all of the
/// commit's pages were durable before its root was: each commit of this program is of that kind.
/// Without that flag the library takes the root before where this one's checksum is wrong.
pub fn put_right(page: &mut [u8], last: u64) -> Names {
    let before = page[FLAGS];
    match commits(page) {
        (named, _) if named >= last => {}
        (_, other) if other == last => page[FLAGS] ^= ROOT_SECOND,
        _ => return Names::Neither,
    }
    // Nothing is known of the commits of a program that sealed none.
    if last > 0 {
        page[FLAGS] |= TWO_PHASES;
    }
    if page[FLAGS] == before { Names::It } else { Names::Mended }
}

#[cfg(test)]
mod tests {
    use super::{
        COMMIT, FLAGS, HEADER_BYTES, Names, ROOT_SECOND, ROOTS, SEALED_BYTES, TWO_PHASES,
        last_commit, put_right, sealed,
    };

    fn header(commits: [u64; 2], flags: u8) -> [u8; SEALED_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[FLAGS] = flags;
        for (root, commit) in ROOTS.into_iter().zip(commits) {
            header[root + COMMIT..root + COMMIT + 8].copy_from_slice(&commit.to_le_bytes());
        }
        sealed(&header)
    }

    #[test]
    fn the_commit_that_the_flag_names_is_sealed() {
        for (flags, last) in [(6, 41), (6 | ROOT_SECOND, 42)] {
            let page = header([41, 42], flags);
            assert_eq!(last_commit(&page), Some(last));
            for at in HEADER_BYTES..SEALED_BYTES {
                let mut rotten = page;
                rotten[at] ^= 16;
                assert_eq!(last_commit(&rotten), None, "byte {at}");
            }
        }
        assert_eq!(last_commit(&[0; 4096]), None, "an older program seals nothing");
        assert_eq!(last_commit(&[0; HEADER_BYTES]), None);
    }

    #[test]
    fn a_flag_is_turned_back_only_to_the_last_commit() {
        let right = header([43, 42], 6);
        let mut page = right;
        page[FLAGS] ^= ROOT_SECOND;
        assert_eq!((put_right(&mut page, 43), page), (Names::Mended, right));
        assert_eq!((put_right(&mut page, 43), page), (Names::It, right));
        assert_eq!((put_right(&mut page, 42), page), (Names::It, right), "a later one");
        assert_eq!((put_right(&mut page, 44), page), (Names::Neither, right));
        assert_eq!((put_right(&mut page, 0), page), (Names::It, right), "nothing is known");
        page[FLAGS] &= !TWO_PHASES;
        assert_eq!((put_right(&mut page, 43), page), (Names::Mended, right));
    }
}
