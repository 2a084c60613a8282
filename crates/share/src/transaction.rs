//! A transaction: updates that are applied in order in memory, and written as one.
//!
//! 1. All of it is there after a crash, or nothing: blocks of data, inodes, directories, free
//!    numbers, and the records of its operations.
//! 2. An update that fails leaves nothing behind. A transaction that is dropped, or whose writing
//!    fails, leaves the share as it was.
//! 3. An object that one sender (client and user) made, wrote or took a name from, another one does
//!    not write or take in the same transaction: between the two there has to be a moment, or a
//!    repair could not undo the one without the other.
//! 4. The time of changes rises strictly from operation to operation, whatever the clock does.

use std::collections::BTreeMap;

use std::sync::atomic::Ordering;

use env::RankedGuard;
use format::share::log::{CLOCK_MAX, LogBlock, TIME_MAX, log_block};
use format::share::name_hash;
use format::share::operation::{Cause, Operation, Origin, Procedure};
use format::share::place::{BLOCK_BYTES, LOG_BLOCKS, LOG_FIRST, ROOT_BLOCK};
use format::share::root::{HINT_BLOCKS, ShareRoot};
use units::{FileId, Generation, Inode, Seq, WallTime};

use crate::blocks::{BlockWrite, Present, UPDATE_BLOCKS_MAX, Wait, hole_parts};
use crate::error::{Error, ErrorKind, Result, require};
use crate::extents::{Extents, Piece};
use crate::layered::{Changes, Layered};
use crate::moment::Moment;
use crate::permission::Credentials;
use crate::share::{Share, Usable, generation};
use crate::source::{Meta, Source};
use crate::work::Work;

/// The sender of a request for a change, the request, and the time.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The user.
    pub user: &'a Credentials,
    /// The client's address, as IPv6.
    pub client: u128,
    /// The request's number.
    pub xid: u32,
    /// CRC32C of the request's arguments.
    pub arguments_crc: u32,
    /// The time by the clock.
    pub now: WallTime,
    /// The command that the change is part of, if it is no request over NFS.
    pub cause: Option<Cause>,
    /// The time that another server gave the same change, if this follows it: the time of
    /// modification is that. Rights were its business.
    pub followed_at: Option<WallTime>,
}

/// Updates of a share that are written together by [`Transaction::commit`], or not at all. It reads
/// as a [`crate::Tree`], with all updates so far. Bytes to be written are borrowed until then.
pub struct Transaction<'s, 'd, P> {
    share: &'s Share<P>,
    moment: Moment<'s>,
    changes: Changes<'d>,
    /// The last block of the operation log, and those that were begun after it.
    log: Vec<LogBlock>,
    operations: u64,
    /// The sender who made or changed the content of an object, or took a name from it.
    senders: BTreeMap<Inode, (u128, u32)>,
    seq_before: Seq,
    incarnation: u64,
    generation: Generation,
    blocks_max: usize,
    _turn: RankedGuard<'s, ()>,
}

impl<P: Present> Share<P> {
    /// Begins a transaction. Another one waits until this one ends.
    ///
    /// # Errors
    /// `ReadOnly`, `Unusable`.
    pub fn begin<'d>(&self, wait: Wait) -> Result<Transaction<'_, 'd, P>> {
        self.begin_in(self.turn.lock(), wait)
    }

    /// Begins a transaction, unless one is under way.
    ///
    /// # Errors
    /// As [`Share::begin`].
    pub fn try_begin<'d>(&self, wait: Wait) -> Result<Option<Transaction<'_, 'd, P>>> {
        self.turn.try_lock().map(|turn| self.begin_in(turn, wait)).transpose()
    }

    fn begin_in<'s, 'd>(
        &'s self,
        turn: RankedGuard<'s, ()>,
        wait: Wait,
    ) -> Result<Transaction<'s, 'd, P>> {
        let settled = match wait {
            Wait::May => self.settled.read(),
            Wait::MayNot => self.settled.try_read().ok_or(Error::from(ErrorKind::WouldWait))?,
        };
        require(settled.usable != Usable::Not, ErrorKind::Unusable)?;
        require(settled.usable == Usable::All, ErrorKind::ReadOnly)?;
        let (last, incarnation) = (settled.last.clone(), settled.incarnation);
        drop(settled);
        let last_first = last.state.log_first;
        let floors = last.state.free.map(|free| free.height);
        let seq_before = self.present.seq();
        let mut transaction = Transaction {
            share: self,
            moment: self.moment(wait),
            changes: Changes::new(last.state, floors),
            log: vec![last],
            operations: 0,
            senders: BTreeMap::new(),
            seq_before,
            incarnation,
            generation: generation(incarnation, seq_before),
            blocks_max: self.present.whole_blocks_max(),
            _turn: turn,
        };
        let wanted = self.log_wanted.load(Ordering::Relaxed);
        if wanted > last_first {
            transaction.forget_log_before(wanted);
        }
        Ok(transaction)
    }
}

impl<'s, 'd, P: Present> Transaction<'s, 'd, P> {
    /// The random number of the share's opening, or of the revert since.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The number of the last operation.
    pub(crate) fn last_operation(&self) -> u64 {
        self.changes.state.operation
    }

    /// How many operations changed something.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Gives up the blocks of the operation log before a number; not the last few thousand, by
    /// which the end is found. It is written with the next operation.
    fn forget_log_before(&mut self, number: u64) {
        // Before the blocks that this transaction writes.
        let last = self.log.first().expect("a log has a last block").number;
        let end = number.min(last / HINT_BLOCKS * HINT_BLOCKS);
        // Where the ring came round there are others, and where this transaction may come to.
        let taken = (last + 1 + self.blocks_max as u64).saturating_sub(LOG_BLOCKS);
        let mut first = self.changes.state.log_first.max(taken);
        while first < end {
            let block = log_block(first);
            let count = (end - first).min(LOG_FIRST + LOG_BLOCKS - block);
            self.changes.zero(block, count);
            first += count;
        }
        self.changes.state.log_first = first.min(last);
    }

    /// Applies an update with `data_blocks` blocks of data: all of it, or nothing if it fails. One
    /// that gives no operation back has changed nothing.
    pub(crate) fn update<'n, T>(
        &mut self,
        caller: &Caller<'_>,
        data_blocks: usize,
        change: impl FnOnce(&mut Work<'_, '_, 'd>) -> Result<(T, Option<Operation<'n>>)>,
    ) -> Result<T> {
        require(data_blocks + UPDATE_BLOCKS_MAX < self.blocks_max, ErrorKind::Invalid)?;
        let blocks = self.changes.blocks() + self.log.len() + data_blocks + UPDATE_BLOCKS_MAX;
        require(blocks <= self.blocks_max, ErrorKind::TransactionFull)?;
        let mut state = self.changes.state;
        state.operation += 1;
        state.incarnation = self.incarnation;
        let next = WallTime::from_nanos(state.time.as_nanos() + 1);
        require(next <= TIME_MAX && state.operation <= 1 << 62, ErrorKind::NoSpace)?;
        state.time = caller.now.min(CLOCK_MAX).max(next);
        let root = Credentials::root();
        let mut work = Work {
            layer: Layered::new(&*self, Changes::new(state, self.changes.floors)),
            user: if caller.followed_at.is_some() { &root } else { caller.user },
            now: caller.followed_at.unwrap_or(caller.now),
            time: state.time,
            operation: state.operation,
            generation: self.generation,
            touched: Vec::new(),
        };
        let (value, operation) = change(&mut work)?;
        let Work { layer: Layered { changes, .. }, touched, .. } = work;
        debug_assert!(changes.blocks() <= data_blocks + UPDATE_BLOCKS_MAX, "more than expected");
        if let Some(operation) = operation {
            let sender = (caller.client, caller.user.uid);
            let is_theirs = |inode| self.senders.get(inode).is_some_and(|own| *own != sender);
            require(!touched.iter().any(is_theirs), ErrorKind::TransactionFull)?;
            self.senders.extend(touched.into_iter().map(|inode| (inode, sender)));
            let origin = origin(caller);
            let (incarnation, seq_before) = (self.incarnation, self.seq_before);
            let cause = caller.cause;
            self.append(&Operation { origin, incarnation, seq_before, cause, ..operation });
            self.changes.absorb(changes);
            self.operations += 1;
        }
        Ok(value)
    }

    /// Puts a record into the operation log, of an operation that is about to be absorbed.
    fn append(&mut self, operation: &Operation<'_>) {
        let last = self.log.last_mut().expect("a log has a last block");
        if last.push(operation) {
            return;
        }
        last.state = self.changes.state;
        let mut next = LogBlock::new(last.number + 1, self.changes.state);
        assert!(next.push(operation), "a record fits into a block");
        self.log.push(next);
    }

    /// Writes all of it; the seq of the volume after it.
    ///
    /// # Errors
    /// Those of [`Present::write_whole`], and of reading the root, which is written again at times;
    /// `WouldWait` also if somebody reads the tree and the caller does not wait;
    /// `TransactionFull` if the volume takes less than it said. The share is as it was before.
    pub fn commit(mut self) -> Result<Seq> {
        if self.operations == 0 {
            return Ok(self.seq_before);
        }
        let last = self.log.last_mut().expect("a log has a last block");
        last.state = self.changes.state;
        let last = last.clone();
        let mut root = self.share.root;
        root.log_hint = last.number / HINT_BLOCKS * HINT_BLOCKS;
        let encoded = self.encode(&root)?;
        let writes: Vec<BlockWrite<'_>> = write_of_each(self.changes.extents(), &encoded);
        require(blocks_of(&writes) <= self.blocks_max as u64, ErrorKind::TransactionFull)?;
        let wait = self.moment.wait;
        let mut settled = match wait {
            Wait::May => self.share.settled.write(),
            Wait::MayNot => {
                let gate = self.share.settled.try_write();
                gate.ok_or(Error::from(ErrorKind::WouldWait))?
            }
        };
        let seq = self.share.present.write_whole(&writes, wait)?;
        // Inodes and nodes, which alone are in the cache, are freed one by one.
        for (block, piece) in self.changes.extents().iter() {
            if matches!(piece, Piece::Zero(1)) {
                self.share.cache.forget(block);
            }
        }
        for (block, meta) in self.changes.metas() {
            self.share.cache.insert(block, meta.clone());
        }
        (settled.root, settled.last) = (root, last);
        Ok(seq)
    }

    /// The blocks of structures that changed, as bytes.
    fn encode(&self, root: &ShareRoot) -> Result<Extents<'d>> {
        let mut encoded = Extents::default();
        for (block, meta) in self.changes.metas() {
            encoded.insert(block, Piece::Owned(meta.encode(root.address(block))));
        }
        for log in &self.log {
            let block = log_block(log.number);
            encoded.insert(block, Piece::Owned(log.encode(root.address(block))));
        }
        let first = self.log.first().expect("a log has a last block").number;
        if root.log_hint > first {
            let mut bytes = Box::new([0; BLOCK_BYTES]);
            self.share.present.read(ROOT_BLOCK, &mut bytes[..], self.moment.wait)?;
            ShareRoot::set_log_hint(&mut bytes, root.log_hint);
            encoded.insert(ROOT_BLOCK, Piece::Owned(bytes));
        }
        Ok(encoded)
    }
}

/// As how many blocks the volume counts all of these.
fn blocks_of(writes: &[BlockWrite<'_>]) -> u64 {
    let blocks = writes.iter().map(|write| match write {
        BlockWrite::Data { bytes, .. } => (bytes.len() / BLOCK_BYTES) as u64,
        BlockWrite::Zero { block, count } => hole_parts(*block, *count),
    });
    blocks.sum()
}

/// All pieces of both, which do not overlap.
fn write_of_each<'e>(data: &'e Extents<'_>, structures: &'e Extents<'_>) -> Vec<BlockWrite<'e>> {
    let pieces = data.iter().chain(structures.iter());
    pieces
        .map(|(block, piece)| match (piece.bytes(), piece.blocks()) {
            (Some(bytes), _) => BlockWrite::Data { block, bytes },
            (None, count) => BlockWrite::Zero { block, count },
        })
        .collect()
}

fn origin(caller: &Caller<'_>) -> Origin {
    let mut groups = Vec::with_capacity(caller.user.groups.len() * 4);
    for group in &caller.user.groups {
        groups.extend_from_slice(&group.to_le_bytes());
    }
    Origin {
        client: caller.client,
        xid: caller.xid,
        arguments_crc: caller.arguments_crc,
        uid: caller.user.uid,
        gid: caller.user.gid,
        groups_hash: name_hash::sip_hash(0, &groups),
    }
}

impl<P: Present> Source for Transaction<'_, '_, P> {
    fn root(&self) -> &ShareRoot {
        self.moment.root
    }

    fn meta(&self, block: u64) -> Result<Option<Meta>> {
        self.changes.meta(&self.moment, block)
    }

    fn data(&self, first_block: u64, buffer: &mut [u8]) -> Result<()> {
        self.changes.data(&self.moment, first_block, buffer)
    }

    fn count_data(&self, first_block: u64, blocks: u64) -> Result<u64> {
        self.changes.count_data(&self.moment, first_block, blocks)
    }
}

impl Work<'_, '_, '_> {
    /// The record of this operation, without what only some have. The transaction says whose it is.
    pub(crate) fn record(&self, procedure: Procedure, object: FileId) -> Operation<'static> {
        Operation {
            procedure,
            number: self.operation,
            time: self.time,
            incarnation: 0,
            seq_before: Seq::ZERO,
            origin: Origin::default(),
            object,
            other: None,
            target: None,
            range: None,
            before: None,
            cause: None,
            set: None,
            name: &[],
            new_name: &[],
        }
    }
}
