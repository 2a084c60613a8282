//! Reading the operation log: who changed something, and when.

use format::share::log::{LogBlock, log_block};
use format::share::operation::{Operation, Procedure, Target};
use format::share::place::{FILE_BYTES_MAX, LOG_BLOCKS};
use units::{Seq, WallTime};

use crate::blocks::Present;
use crate::error::{Error, Result, not_kept};
use crate::share::Share;

/// A record, with its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The record; its names are empty.
    pub record: Operation<'static>,
    /// The name.
    pub name: Box<[u8]>,
    /// The new name of a RENAME.
    pub new_name: Box<[u8]>,
}

impl Logged {
    fn of(operation: &Operation<'_>) -> Logged {
        Logged {
            record: Operation { name: &[], new_name: &[], ..*operation },
            name: operation.name.into(),
            new_name: operation.new_name.into(),
        }
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.record.number
    }

    /// Whether it has the parts that its procedure needs, and sizes that can be.
    fn is_whole(&self) -> bool {
        let record = &self.record;
        if record.procedure == Procedure::Read {
            return record.range.is_some();
        }
        let end = record.range.map_or(Some(0), |(offset, bytes)| offset.checked_add(bytes));
        let size = record.before.map_or(0, |before| before.size);
        if end.is_none_or(|end| end > FILE_BYTES_MAX) || size > FILE_BYTES_MAX {
            return false;
        }
        let (has_other, has_before) = (record.other.is_some(), record.before.is_some());
        match record.procedure {
            Procedure::Write => has_before && record.range.is_some(),
            Procedure::SetAttributes => has_before,
            Procedure::Create if has_before => has_other && record.range.is_some(),
            Procedure::Create
            | Procedure::MakeDirectory
            | Procedure::MakeSymlink
            | Procedure::MakeNode
            | Procedure::Link => has_other,
            Procedure::Remove | Procedure::RemoveDirectory => has_other && has_before,
            Procedure::Rename => {
                let is_whole = |target: Target| target.victim.is_some() == has_before;
                has_other && record.target.is_some_and(is_whole)
            }
            Procedure::Read | Procedure::Other(_) => true,
        }
    }
}

/// The operation log as it is now. Of a share that was reverted it is the log that the moment had
/// which it was reverted to, and what was done since.
pub struct OperationLog<'s, P> {
    share: &'s Share<P>,
    first: u64,
    last: u64,
}

impl<P: Present> Share<P> {
    /// Its operation log.
    pub fn operation_log(&self) -> OperationLog<'_, P> {
        let settled = self.settled.read();
        let last = settled.last.number;
        // Where the ring came round there are others.
        let first = settled.last.state.log_first.max((last + 1).saturating_sub(LOG_BLOCKS));
        drop(settled);
        OperationLog { share: self, first, last }
    }
}

impl<P: Present> OperationLog<'_, P> {
    /// The numbers of the blocks that there are.
    pub fn blocks(&self) -> std::ops::RangeInclusive<u64> {
        self.first..=self.last
    }

    /// The operations of a block.
    ///
    /// # Errors
    /// `Corrupt`, also of a block that is not there; `Storage`.
    pub fn operations(&self, block: u64) -> Result<Vec<Logged>> {
        let found = self.block(block)?;
        let all: Vec<Logged> = found.operations().map(|operation| Logged::of(&operation)).collect();
        match all.iter().all(Logged::is_whole) {
            true => Ok(all),
            false => Err(Error::damage(log_block(block), "a record without what it should have")),
        }
    }

    /// The first block with an operation at that time or later; the last one if there is none.
    ///
    /// # Errors
    /// As [`OperationLog::operations`].
    pub fn block_since(&self, time: WallTime) -> Result<u64> {
        self.first_block(|block| block.state.time >= time)
    }

    /// The block that has an operation, or the next one that is there.
    ///
    /// # Errors
    /// As [`OperationLog::operations`].
    pub fn block_of(&self, operation: u64) -> Result<u64> {
        self.first_block(|block| block.state.operation >= operation)
    }

    /// The first block of which something holds, as it does of all after it.
    fn first_block(&self, holds: impl Fn(&LogBlock) -> bool) -> Result<u64> {
        let (mut from, mut to) = (self.first, self.last);
        while from < to {
            let middle = from.midpoint(to);
            // One that is not there comes before those that are.
            if self.share.log_block(middle)?.is_some_and(|block| holds(&block)) {
                to = middle;
            } else {
                from = middle + 1;
            }
        }
        Ok(from)
    }

    fn block(&self, number: u64) -> Result<LogBlock> {
        let missing = || match number < *self.share.operation_log().blocks().start() {
            true => not_kept(),
            false => Error::damage(log_block(number), "a block of the operation log is missing"),
        };
        self.share.log_block(number)?.ok_or_else(missing)
    }
}

/// Where transactions begin and end, by the seq before them; those that were seen so far.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    all: Vec<Span>,
    /// The last operation before the first of them, and its opening's number.
    before: Option<(u64, u64)>,
}

/// The operations of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    /// The seq of the volume before it.
    before: Seq,
    /// The numbers of its first and last operation.
    operations: (u64, u64),
    incarnation: u64,
}

impl Transactions {
    /// Takes an operation up that lies before the transactions that are asked for.
    pub(crate) fn see_before(&mut self, logged: &Logged) {
        self.before = Some((logged.number(), logged.record.incarnation));
    }

    /// Takes the next operation up.
    pub(crate) fn see(&mut self, logged: &Logged) {
        let (before, number) = (logged.record.seq_before, logged.number());
        let incarnation = logged.record.incarnation;
        let is_read = logged.record.procedure == Procedure::Read;
        match self.all.last_mut() {
            // A read changes nothing, and has a transaction of its own.
            Some(last) if last.before == before || is_read && last.incarnation == incarnation => {
                last.operations.1 = number;
            }
            _ => {
                self.all.push(Span { before, operations: (number, number), incarnation });
            }
        }
    }

    /// The moment before an operation's transaction.
    pub(crate) fn before(&self, operation: u64) -> At {
        let index = self.index_of(operation);
        let seq = self.all[index].before;
        let last = match index.checked_sub(1) {
            Some(last) => Some((self.all[last].operations.1, self.all[last].incarnation)),
            None => self.before,
        };
        match last {
            Some((operation, incarnation)) => At { seq, operation, incarnation: Some(incarnation) },
            // Nothing tells what was before the first record that is kept.
            None => At { seq, operation: self.all[index].operations.0 - 1, incarnation: None },
        }
    }

    /// The moment after an operation's transaction; `now` is the seq after all of them.
    pub(crate) fn after(&self, operation: u64, now: Seq) -> At {
        let index = self.index_of(operation);
        let span = &self.all[index];
        let seq = self.all.get(index + 1).map_or(now, |next| next.before);
        At { seq, operation: span.operations.1, incarnation: Some(span.incarnation) }
    }

    fn index_of(&self, operation: u64) -> usize {
        let index = self.all.partition_point(|span| span.operations.1 < operation);
        assert!(index < self.all.len(), "operation {operation} was not seen");
        index
    }
}

/// A moment between two transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The seq of the volume.
    pub seq: Seq,
    /// The number of the last operation then.
    pub operation: u64,
    /// The random number of its opening: numbers of operations repeat after a revert.
    pub incarnation: Option<u64>,
}
