//! Healing: what is done when bytes are not what their checksum says.
//!
//! A reader that has a checksum (of the map, of runs, packs or headers) finds the bytes wrong, and
//! asks the stack to [`heal`](crate::BlockDevice::heal) them. The layer that has redundancy reads
//! all copies and settles, as DARC does (SYSTOR'10, Fig. 4 and Table 4), and as it does not say:
//! what was wrong once may be right when it is read again.
//!
//! Invariants: 1. no bytes are answered as right that the caller did not call right; 2. a copy is
//! written only with bytes that the caller called right; 3. no checksum is overruled here: when all
//! copies agree against it, the caller is told so, and decides.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use format::checksum::block_crc;

use crate::{BlockDevice, Result};

/// Says whether bytes are what their checksum says.
pub type Right<'a> = dyn Fn(&[u8]) -> bool + 'a;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All copies were right this time; nothing was written.
    Transient,
    /// Some copy was right; the others were written back.
    Recovered,
    /// All copies say the same, and it is not right: the checksum may be what is wrong.
    Agreed,
    /// No copy is right.
    Unrecoverable,
}

/// What healing took, counted as DARC's Table 4 does.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Reads and writes of copies while healing.
    pub data_ios: AtomicU64,
    /// Checksums computed while healing.
    pub checksums: AtomicU64,
}

impl Ledger {
    /// Adds to a count.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// Copies to choose from and to write: the layer that has them holds off writers meanwhile.
pub struct Copies<'a> {
    /// How many there are.
    pub count: usize,
    /// Reads one. One that fails is as good as wrong.
    pub read: &'a dyn Fn(usize, &mut [u8]) -> Result<()>,
    /// Writes one, durably. Where it fails the layer has done about it what is to be done.
    pub write_back: &'a dyn Fn(usize, &[u8]) -> Result<()>,
}

/// Reads all copies, settles, and writes the right bytes over the wrong ones.
///
/// # Errors
/// When no copy could be read: the last one's.
pub fn settle(
    copies: &Copies<'_>,
    buffer: &mut [u8],
    right: &Right<'_>,
    ledger: &Ledger,
) -> Result<Outcome> {
    // Of each that could be read, whether it is right.
    let mut said: Vec<Option<(bool, Vec<u8>)>> = Vec::with_capacity(copies.count);
    let mut failure = None;
    for copy in 0..copies.count {
        let mut bytes = vec![0; buffer.len()];
        Ledger::add(&ledger.data_ios, 1);
        said.push(match (copies.read)(copy, &mut bytes) {
            Err(error) => {
                failure = Some(error);
                None
            }
            Ok(()) => {
                Ledger::add(&ledger.checksums, 1);
                Some((right(&bytes), bytes))
            }
        });
    }
    let good = said.iter().flatten().find(|(is_right, _)| *is_right);
    Ok(match (good, failure) {
        (Some((_, good)), _) => {
            buffer.copy_from_slice(good);
            let is_wrong = |copy: &usize| !matches!(said[*copy], Some((true, _)));
            let wrong: Vec<usize> = (0..copies.count).filter(is_wrong).collect();
            for &copy in &wrong {
                Ledger::add(&ledger.data_ios, 1);
                // A copy that cannot be written is the layer's to put out; the bytes are there.
                let _ = (copies.write_back)(copy, good);
            }
            if wrong.is_empty() { Outcome::Transient } else { Outcome::Recovered }
        }
        (None, Some(error)) if said.iter().all(Option::is_none) => return Err(error),
        // Several say the same, and it is not right.
        _ if said.len() > 1 && said[0].is_some() && said.iter().all(|s| *s == said[0]) => {
            Outcome::Agreed
        }
        _ => Outcome::Unrecoverable,
    })
}

/// What can be done where there is one copy: look again.
///
/// # Errors
/// Those of the device.
pub fn read_again<D: BlockDevice + ?Sized>(
    device: &D,
    offset: u64,
    buffer: &mut [u8],
    right: &Right<'_>,
) -> Result<Outcome> {
    device.read_at(offset, buffer)?;
    Ok(if right(buffer) { Outcome::Transient } else { Outcome::Unrecoverable })
}

/// Whether a range is right in one of its copies, or else in one of the ways of having all of the
/// device, of which a bounded number is tried. Nothing is healed, and `buffer` has anything.
pub fn is_right_somehow<D: BlockDevice + ?Sized>(
    device: &D,
    offset: u64,
    buffer: &mut [u8],
    right: &Right<'_>,
) -> bool {
    let copies = device.copies(offset, buffer.len() as u64);
    let (mut first, mut is_disputed) = (None, false);
    for copy in 0..copies {
        let crc = match device.read_copy(copy, offset, buffer) {
            Ok(()) if right(buffer) => return true,
            Ok(()) => Some(block_crc(buffer)),
            Err(_) => None,
        };
        is_disputed |= crc.is_none() || first.is_some_and(|first| first != crc);
        first.get_or_insert(crc);
    }
    // Where all say the same nothing is wrong with any of them: it is not there.
    let ways = device.ways();
    let tried = if is_disputed && ways > copies { ways.min(WAYS_MAX) } else { 0 };
    (0..tried).any(|way| device.read_way(way, offset, buffer).is_ok() && right(buffer))
}

/// Pieces of a range of which each is somewhere else: `(offset there, range of the buffer)`.
pub type Piece<'d> = (&'d dyn BlockDevice, u64, std::ops::Range<usize>);

/// Heals a range that lies in several places, with checksums over the whole of it only: the copies
/// of each piece are tried with those of the others, and what made it right is what each piece is
/// healed to. Where no copies do, the ways of having all of the devices are tried.
///
/// # Errors
/// Those of the devices.
pub fn heal_pieces(pieces: &[Piece<'_>], buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
    if !found_by_copies(pieces, buffer, right) && !found_by_ways(pieces, buffer, right) {
        return Ok(Outcome::Unrecoverable);
    }
    let mut outcome = Outcome::Transient;
    for (device, at, part) in pieces {
        let good = buffer[part.clone()].to_vec();
        let healed = device.heal(*at, &mut buffer[part.clone()], &|bytes| bytes == good)?;
        if healed == Outcome::Recovered {
            outcome = healed;
        }
        // It was right a moment ago, whatever was written meanwhile.
        buffer[part.clone()].copy_from_slice(&good);
    }
    Ok(outcome)
}

/// Combinations that are tried for a range in several places.
const COMBINATIONS_MAX: usize = 256;
/// Ways of the devices that are tried, at most.
const WAYS_MAX: usize = 1024;
/// Bytes of ranges that are read for that: what is lost shall not keep everybody waiting.
const WAYS_BYTES_MAX: usize = 64 << 20;

/// Whether the whole is right with its pieces as `read` reads each.
fn is_right_by(
    pieces: &[Piece<'_>],
    buffer: &mut [u8],
    right: &Right<'_>,
    mut read: impl FnMut(usize, &Piece<'_>, &mut [u8]) -> Result<()>,
) -> bool {
    let mut is_readable = true;
    for (number, piece) in pieces.iter().enumerate() {
        is_readable &= read(number, piece, &mut buffer[piece.2.clone()]).is_ok();
    }
    is_readable && right(buffer)
}

/// Reads the pieces so that the whole is right, if any copies of theirs make it so.
fn found_by_copies(pieces: &[Piece<'_>], buffer: &mut [u8], right: &Right<'_>) -> bool {
    let copies = |(device, at, part): &Piece<'_>| device.copies(*at, part.len() as u64);
    let counts: Vec<usize> = pieces.iter().map(copies).collect();
    found_among(&counts, COMBINATIONS_MAX, |choice| {
        is_right_by(pieces, buffer, right, |piece, (device, at, _), bytes| {
            device.read_copy(choice[piece], *at, bytes)
        })
    })
}

/// The same of the ways of their devices, if there are more of these than copies.
///
/// Devices are wrong as a whole more often than in a place, so all are read in the same way first.
/// That tells as well in which ways a piece says something else than in those before: only these
/// are combined.
fn found_by_ways(pieces: &[Piece<'_>], buffer: &mut [u8], right: &Right<'_>) -> bool {
    let has_more =
        |(device, at, part): &Piece<'_>| device.ways() > device.copies(*at, part.len() as u64);
    if !pieces.iter().any(has_more) {
        return false;
    }
    let affordable = WAYS_BYTES_MAX / buffer.len().max(1);
    let counts: Vec<usize> = pieces.iter().map(|(device, ..)| device.ways()).collect();
    let most = counts.iter().copied().max().unwrap_or(1).min(WAYS_MAX).min(affordable);
    let mut differing: Vec<BTreeMap<u32, usize>> = vec![BTreeMap::new(); pieces.len()];
    for way in 0..most {
        let is_right = is_right_by(pieces, buffer, right, |piece, (device, at, _), bytes| {
            let way = way % counts[piece];
            device.read_way(way, *at, bytes)?;
            differing[piece].entry(block_crc(bytes)).or_insert(way);
            Ok(())
        });
        if is_right {
            return true;
        }
    }
    let mut ways: Vec<Vec<usize>> =
        differing.into_iter().map(|of_piece| of_piece.into_values().collect()).collect();
    ways.iter_mut().for_each(|of_piece| of_piece.sort_unstable());
    let counts: Vec<usize> = ways.iter().map(Vec::len).collect();
    found_among(&counts, COMBINATIONS_MAX.min(affordable), |choice| {
        is_right_by(pieces, buffer, right, |piece, (device, at, _), bytes| {
            device.read_way(ways[piece][choice[piece]], *at, bytes)
        })
    })
}

/// Tries combinations of choices, each among so many, until one is right.
fn found_among(counts: &[usize], most: usize, mut is_right: impl FnMut(&[usize]) -> bool) -> bool {
    let all = counts.iter().try_fold(1_usize, |all, &count| all.checked_mul(count));
    let mut choice = vec![0; counts.len()];
    (0..all.unwrap_or(most).min(most)).any(|number| {
        let mut rest = number;
        for (choice, &count) in choice.iter_mut().zip(counts) {
            *choice = rest % count;
            rest /= count;
        }
        is_right(&choice)
    })
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::{Outcome, Piece, WAYS_MAX, heal_pieces};
    use crate::{BlockDevice, Result};

    /// A device that says in every way something else, and is asked how often.
    struct Told {
        copies: usize,
        ways: usize,
        asked: AtomicUsize,
    }

    impl BlockDevice for Told {
        fn len_bytes(&self) -> u64 {
            1 << 40
        }
        fn read_at(&self, _offset: u64, _buffer: &mut [u8]) -> Result<()> {
            panic!("asked for copies and ways only")
        }
        fn write_at(&self, _offset: u64, _slices: &[IoSlice<'_>]) -> Result<()> {
            panic!("nothing is right")
        }
        fn flush(&self) -> Result<()> {
            Ok(())
        }
        fn allocate(&self, _offset: u64, _length_bytes: u64) -> Result<()> {
            Ok(())
        }
        fn discard(&self, _offset: u64, _length_bytes: u64) -> Result<()> {
            Ok(())
        }
        fn copies(&self, _offset: u64, _length_bytes: u64) -> usize {
            self.copies
        }
        fn read_copy(&self, _copy: usize, _offset: u64, buffer: &mut [u8]) -> Result<()> {
            buffer.fill(1);
            Ok(())
        }
        fn ways(&self) -> usize {
            self.ways
        }
        fn read_way(&self, way: usize, _offset: u64, buffer: &mut [u8]) -> Result<()> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            buffer.fill((way % 251) as u8);
            Ok(())
        }
        fn describe(&self) -> String {
            "told".to_owned()
        }
    }

    /// How often a way is asked for where nothing is right.
    fn asked(copies: usize, ways: usize, length: usize) -> usize {
        let told = Told { copies, ways, asked: AtomicUsize::new(0) };
        let pieces: [Piece<'_>; 2] =
            [(&told, 0, 0..length / 2), (&told, 1 << 20, length / 2..length)];
        let outcome = heal_pieces(&pieces, &mut vec![0; length], &|_| false);
        assert_eq!(outcome.expect("readable"), Outcome::Unrecoverable);
        told.asked.load(Ordering::Relaxed)
    }

    #[test]
    fn what_is_lost_is_looked_for_in_few_ways() {
        assert_eq!(asked(2, 2, 8192), 0, "a mirror has no way that is no copy");
        assert_eq!(asked(1, 1, 8192), 0);
        assert_eq!(asked(2, 4, 8192), 2 * (4 + 16), "all, and each with each");
        assert_eq!(asked(4, 5489, 8192), 2 * (WAYS_MAX + 256));
        assert_eq!(asked(4, 5489, 2 << 20), 2 * (32 + 32), "long ones in fewer");
    }
}
