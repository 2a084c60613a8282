//! Errors and lies that are armed in advance, and the record of what was asked of the media.

use std::io;
use std::ops::Range;

/// An operation of a media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A sync.
    Sync,
    /// A reservation of space.
    Allocate,
    /// Space given back.
    Discard,
}

/// One operation that the media was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpRecord {
    /// Which.
    pub op: Op,
    /// Byte offset (0 for a sync).
    pub offset: u64,
    /// Bytes (0 for a sync).
    pub length_bytes: u64,
    /// Whether it succeeded.
    pub ok: bool,
}

/// An error to come.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which operations fail.
    pub op: Op,
    /// Only those that touch this byte range; syncs touch every range.
    pub range: Option<Range<u64>>,
    /// How many matching operations succeed before.
    pub after: u64,
    /// How many fail; `None` is for ever.
    pub times: Option<u64>,
}

impl Failure {
    /// The next operation of this kind fails, wherever it is.
    #[must_use]
    pub fn once(op: Op) -> Failure {
        Failure { op, range: None, after: 0, times: Some(1) }
    }

    /// Every operation of this kind fails from now on.
    #[must_use]
    pub fn for_ever(op: Op) -> Failure {
        Failure { op, range: None, after: 0, times: None }
    }
}

/// A lie to come: the media says that all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trick {
    /// The next write is confirmed and never happens.
    LoseWrite,
    /// The next write lands at this byte offset instead.
    MisdirectWrite(u64),
    /// The next read returns what stands at this byte offset.
    MisdirectRead(u64),
}

/// The armed failures.
#[derive(Clone, Debug, Default)]
pub(crate) struct Armed {
    failures: Vec<Failure>,
    /// With how many operations of its kind come before.
    tricks: Vec<(Trick, u64)>,
}

impl Armed {
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failures.push(failure);
    }

    pub(crate) fn trick(&mut self, trick: Trick, after: u64) {
        self.tricks.push((trick, after));
    }

    pub(crate) fn clear(&mut self) {
        self.failures.clear();
        self.tricks.clear();
    }

    /// Whether this operation is to fail; uses up what was armed for it.
    pub(crate) fn strike(&mut self, op: Op, offset: u64, length: u64) -> io::Result<()> {
        for failure in &mut self.failures {
            let touches = op == Op::Sync
                || failure
                    .range
                    .as_ref()
                    .is_none_or(|r| offset < r.end && r.start < offset + length);
            if failure.op != op || !touches || failure.times == Some(0) {
                continue;
            }
            if failure.after > 0 {
                failure.after -= 1;
                continue;
            }
            failure.times = failure.times.map(|n| n - 1);
            return Err(io::Error::other("simulated input/output error"));
        }
        Ok(())
    }

    /// Takes the first armed lie about writes (or reads), if it is its turn.
    pub(crate) fn take_trick(&mut self, op: Op) -> Option<Trick> {
        let fits = |(trick, _): &(Trick, u64)| match trick {
            Trick::LoseWrite | Trick::MisdirectWrite(_) => op == Op::Write,
            Trick::MisdirectRead(_) => op == Op::Read,
        };
        let index = self.tricks.iter().position(fits)?;
        let (trick, after) = self.tricks[index];
        if after > 0 {
            self.tricks[index].1 -= 1;
            return None;
        }
        self.tricks.remove(index);
        Some(trick)
    }
}
