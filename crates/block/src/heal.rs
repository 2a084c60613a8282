//! Healing: what is done when bytes are not what their checksum says.
//!
//! Whoever has a checksum (a reader of the map, of runs, packs or headers; the integrity layer)
//! reads, finds the bytes wrong, and asks the stack to [`heal`](crate::BlockDevice::heal) them. The
//! layer that has redundancy reads all copies and settles, as DARC does (SYSTOR'10, Fig. 4 and
//! Table 4), and as it does not say: what was wrong once may be right when it is read again.
//!
//! Invariants: 1. no bytes are answered as right that the caller did not call right; 2. a copy is
//! written only with bytes that the caller called right; 3. no checksum is overruled here: when all
//! copies agree against it, the caller is told so, and decides.

use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Reads and writes of stored checksums while healing.
    pub checksum_ios: AtomicU64,
    /// Checksums computed while healing.
    pub checksums: AtomicU64,
    /// Ranges that were right when they were read again.
    pub transient: AtomicU64,
    /// Ranges of which a copy was right.
    pub recovered: AtomicU64,
    /// Ranges of which the stored checksum was taken to be wrong.
    pub checksums_recovered: AtomicU64,
    /// Ranges of which no copy was right.
    pub unrecoverable: AtomicU64,
}

impl Ledger {
    /// Adds to a count.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// Counts how a healing ended; who overrules a checksum counts that.
    pub fn count(&self, outcome: Outcome) {
        match outcome {
            Outcome::Transient => Ledger::add(&self.transient, 1),
            Outcome::Recovered => Ledger::add(&self.recovered, 1),
            Outcome::Unrecoverable => Ledger::add(&self.unrecoverable, 1),
            Outcome::Agreed => {}
        }
    }
}

/// Copies to choose from and to write: the layer that has them holds off writers meanwhile.
pub trait Copies {
    /// How many there are.
    fn count(&self) -> usize;
    /// Reads one.
    ///
    /// # Errors
    /// Those of the device: the copy is as good as wrong.
    fn read(&self, copy: usize, buffer: &mut [u8]) -> Result<()>;
    /// Writes one, durably.
    ///
    /// # Errors
    /// Those of the device; the layer has done about it what is to be done.
    fn write_back(&self, copy: usize, bytes: &[u8]) -> Result<()>;
}

/// What a copy said.
enum Said {
    Right(Vec<u8>),
    Wrong(Vec<u8>),
    Nothing,
}

/// Reads all copies, settles, and writes the right bytes over the wrong ones.
///
/// # Errors
/// When no copy could be read: the last one's.
pub fn settle(
    copies: &dyn Copies,
    buffer: &mut [u8],
    right: &Right<'_>,
    ledger: &Ledger,
) -> Result<Outcome> {
    let mut said = Vec::with_capacity(copies.count());
    let mut failure = None;
    for copy in 0..copies.count() {
        let mut bytes = vec![0; buffer.len()];
        Ledger::add(&ledger.data_ios, 1);
        said.push(match copies.read(copy, &mut bytes) {
            Err(error) => {
                failure = Some(error);
                Said::Nothing
            }
            Ok(()) => {
                Ledger::add(&ledger.checksums, 1);
                if right(&bytes) { Said::Right(bytes) } else { Said::Wrong(bytes) }
            }
        });
    }
    let outcome = match said.iter().find_map(Said::right) {
        Some(good) => {
            buffer.copy_from_slice(good);
            let wrong = (0..said.len()).filter(|&copy| said[copy].right().is_none());
            let wrong: Vec<usize> = wrong.collect();
            for &copy in &wrong {
                Ledger::add(&ledger.data_ios, 1);
                // A copy that cannot be written is the layer's to put out; the bytes are there.
                let _ = copies.write_back(copy, good);
            }
            if wrong.is_empty() { Outcome::Transient } else { Outcome::Recovered }
        }
        None => match failure {
            Some(error) if said.iter().all(|s| matches!(s, Said::Nothing)) => return Err(error),
            _ if all_the_same(&said) => Outcome::Agreed,
            _ => Outcome::Unrecoverable,
        },
    };
    ledger.count(outcome);
    Ok(outcome)
}

impl Said {
    fn right(&self) -> Option<&Vec<u8>> {
        match self {
            Said::Right(bytes) => Some(bytes),
            Said::Wrong(_) | Said::Nothing => None,
        }
    }
}

/// Whether there are several copies and all say the same.
fn all_the_same(said: &[Said]) -> bool {
    let mut bytes = said.iter().map(|s| match s {
        Said::Right(bytes) | Said::Wrong(bytes) => Some(bytes),
        Said::Nothing => None,
    });
    let first = bytes.next().flatten();
    said.len() > 1 && first.is_some() && bytes.all(|b| b == first)
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

/// Pieces of a range of which each is somewhere else: `(offset there, range of the buffer)`.
pub type Piece<'d> = (&'d dyn BlockDevice, u64, std::ops::Range<usize>);

/// Heals a range that lies in several places, with checksums over the whole of it only: the copies
/// of each piece are tried with those of the others, and what made it right is what each piece is
/// healed to.
///
/// # Errors
/// Those of the devices.
pub fn heal_pieces(pieces: &[Piece<'_>], buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
    let counts: Vec<usize> =
        pieces.iter().map(|(d, at, part)| d.copies(*at, part.len() as u64)).collect();
    let combinations = counts.iter().try_fold(1_usize, |n, &c| n.checked_mul(c));
    let combinations = combinations.unwrap_or(COMBINATIONS_MAX).min(COMBINATIONS_MAX);
    for number in 0..combinations {
        let mut rest = number;
        let mut readable = true;
        for ((device, at, part), &count) in pieces.iter().zip(&counts) {
            let copy = rest % count;
            rest /= count;
            readable &= device.read_copy(copy, *at, &mut buffer[part.clone()]).is_ok();
        }
        if readable && right(buffer) {
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
            return Ok(outcome);
        }
    }
    Ok(Outcome::Unrecoverable)
}

/// Combinations of copies that are tried for a range in several places.
const COMBINATIONS_MAX: usize = 256;
