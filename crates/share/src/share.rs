//! A share in the present: who reads it and who changes it.
//!
//! 1. One transaction at a time is made (`turn`). Readers share the gate; a transaction has it
//!    alone while its blocks are written and taken up in the cache. So every reader sees the tree
//!    between two transactions.
//! 2. A read of a file holds the gate only to look at its inode, before and after. If an operation
//!    changed the file meanwhile, what was read may be of two states, or another file's, and it is
//!    read again.
//! 3. Nothing is read or changed while the share is suspended: its volume may then be reverted.

use std::sync::atomic::{AtomicU64, Ordering};

use env::{Rank, RankedMutex, RankedReadGuard, RankedRwLock};
use format::share::inode::{Content, FileKind, InodeBlock};
use format::share::log::{FreeNumbers, LogBlock, State, log_block};
use format::share::name_hash;
use format::share::place::{BLOCK_BYTES, ROOT_BLOCK, inode_block};
use format::share::root::{HINT_BLOCKS, ShareRoot};
use units::{FileId, Generation, Inode, Seq, WallTime};

use crate::blocks::{
    BlockWrite, Present, UPDATE_BLOCKS_MAX, WHOLE_BLOCKS_MIN, WRITE_EXTRA_BLOCKS, Wait,
};
use crate::cache::Cache;
use crate::error::{Error, ErrorKind, Result, TooSmall, require};
use crate::moment::{Ends, Moment, read_ends, read_log_block};
use crate::operations::read::SeenReads;
use crate::permission::Credentials;
use crate::source::{Meta, Source};
use crate::tree::{ReadBytes, check_read, read_content};

/// Times that a read is tried beside transactions before it keeps them out.
const READ_TRIES: usize = 3;

/// A share.
pub struct Share<P> {
    pub(crate) present: P,
    pub(crate) cache: Cache,
    /// Its identity; `log_hint` is the one in `settled`.
    pub(crate) root: ShareRoot,
    pub(crate) turn: RankedMutex<()>,
    /// Blocks of the operation log before this one are given up by the next transaction.
    pub(crate) log_wanted: AtomicU64,
    pub(crate) settled: RankedRwLock<Settled>,
    /// The reads that the operation log has.
    pub(crate) reads: RankedMutex<SeenReads>,
}

/// The state that the last transaction left.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub root: ShareRoot,
    pub last: LogBlock,
    /// A random number of this opening, or of the revert since.
    pub incarnation: u64,
    /// How often the blocks were looked at anew.
    pub loads: u64,
    /// The use that it is of.
    pub usable: Usable,
}

/// The use that a share is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usable {
    /// Everything.
    All,
    /// Reading.
    ToRead,
    /// Nothing.
    Not,
}

/// How a share is opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// A random number, another one for each opening.
    pub incarnation: u64,
    /// Decoded blocks that are kept in memory.
    pub cache_blocks_max: usize,
}

/// The beginning of a new share.
#[derive(Clone, Debug)]
pub struct ShareSpec {
    /// A random number.
    pub share_id: u128,
    /// Another one, which nobody outside gets to know.
    pub hash_key: u128,
    /// Its birth.
    pub created: WallTime,
    /// The owner of the directory at the top.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its mode.
    pub mode: u16,
}

/// Counters of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes of blocks with data and nodes of directories.
    pub data_bytes: u64,
    /// Objects.
    pub inodes: u64,
    /// Objects that there may still be.
    pub inodes_free: u64,
    /// The number of the last operation.
    pub operations: u64,
    /// The time of the last change.
    pub changed: WallTime,
}

impl<P: Present> Share<P> {
    /// Makes a share in blocks that are all zeros.
    ///
    /// # Errors
    /// `Exists` if there is something; `Invalid` if the volume's whole writes are too small;
    /// `Storage`.
    pub fn make(present: P, spec: &ShareSpec, opening: Opening) -> Result<Share<P>> {
        check_size(&present)?;
        let mut bytes = [0; BLOCK_BYTES];
        present.read(ROOT_BLOCK, &mut bytes, Wait::May)?;
        require(bytes == [0; BLOCK_BYTES], ErrorKind::Exists)?;
        let root = ShareRoot {
            share_id: spec.share_id,
            hash_key: spec.hash_key,
            created: spec.created,
            log_hint: 0,
            features_read_only: 0,
            features_compatible: 0,
        };
        let mut state = State::empty(spec.created);
        state.inodes = 1;
        state.incarnation = opening.incarnation;
        state.free[0] = FreeNumbers { height: 0, next: Inode::ROOT.0 + 1 };
        let top = top_directory(spec, generation(opening.incarnation, present.seq()));
        let [log, inode] = [log_block(0), inode_block(Inode::ROOT)];
        let blocks = [
            (ROOT_BLOCK, root.encode()),
            (log, LogBlock::new(0, state).encode(root.address(log))),
            (inode, top.encode(root.address(inode))),
        ];
        let writes: Vec<BlockWrite<'_>> = blocks
            .iter()
            .map(|(block, bytes)| BlockWrite::Data { block: *block, bytes: &bytes[..] })
            .collect();
        present.write_whole(&writes, Wait::May)?;
        Share::open(present, opening)
    }

    /// Opens the share that is in these blocks.
    ///
    /// # Errors
    /// `NotFound` if there is none; `Invalid` if whole writes of the volume are too small;
    /// `Corrupt`, `Storage`.
    pub fn open(present: P, opening: Opening) -> Result<Share<P>> {
        check_size(&present)?;
        let ends = read_ends(&present)?;
        let (root, incarnation) = (ends.root, opening.incarnation);
        let settled = Settled::new(ends, incarnation);
        Ok(Share {
            present,
            cache: Cache::new(opening.cache_blocks_max),
            root,
            turn: RankedMutex::new(Rank::ShareTurn, ()),
            log_wanted: AtomicU64::new(0),
            settled: RankedRwLock::new(Rank::ShareGate, settled),
            reads: RankedMutex::new(Rank::Leaf, SeenReads::new(incarnation)),
        })
    }

    /// Stops all use: whoever reads or changes the share has ended, and others get `Unusable` until
    /// [`Share::reload`]. That is for reverts of the volume.
    pub fn suspend(&self) {
        let _turn = self.turn.lock();
        self.settled.write().usable = Usable::Not;
    }

    /// Looks at the blocks anew; `incarnation` is another random number. If that fails, the share
    /// is unusable until it succeeds.
    ///
    /// # Errors
    /// `Stale` if another share is there now; as [`Share::open`].
    pub fn reload(&self, incarnation: u64) -> Result<()> {
        let _turn = self.turn.lock();
        let mut settled = self.settled.write();
        settled.usable = Usable::Not;
        self.cache.clear();
        // The log may be shorter now.
        self.log_wanted.store(0, Ordering::Relaxed);
        *self.reads.lock() = SeenReads::new(incarnation);
        let ends = read_ends(&self.present)?;
        let same = |root: ShareRoot| ShareRoot { log_hint: 0, ..root };
        require(same(ends.root) == same(self.root), ErrorKind::Stale)?;
        let loads = settled.loads + 1;
        // Times of changes rise over a revert too: clients tell versions by them.
        let time = settled.last.state.time.max(ends.last.state.time);
        *settled = Settled { loads, ..Settled::new(ends, incarnation) };
        settled.last.state.time = time;
        Ok(())
    }

    /// A hash of bytes that nobody makes who does not know this share's key: for handles.
    pub fn sign(&self, bytes: &[u8]) -> u64 {
        // Another key than that of names, which clients see hashes of.
        name_hash::sip_hash(!self.root.hash_key, bytes)
    }

    /// The volume.
    pub fn present(&self) -> &P {
        &self.present
    }

    /// Bytes that one WRITE may have.
    pub fn write_bytes_max(&self) -> usize {
        (self.present.whole_blocks_max() - UPDATE_BLOCKS_MAX - WRITE_EXTRA_BLOCKS - 1) * BLOCK_BYTES
    }

    /// The tree as it is now. No transaction is written while this is held.
    ///
    /// # Errors
    /// `Unusable`.
    pub fn tree(&self, wait: Wait) -> Result<PresentTree<'_>> {
        let settled = match wait {
            Wait::May => self.settled.read(),
            Wait::MayNot => self.settled.try_read().ok_or(Error::from(ErrorKind::WouldWait))?,
        };
        require(settled.usable != Usable::Not, ErrorKind::Unusable)?;
        Ok(PresentTree { moment: self.moment(wait), settled })
    }

    /// Reads a file into a buffer, beside transactions.
    ///
    /// # Errors
    /// As [`crate::Tree::read`]; `Unusable`.
    pub fn read(
        &self,
        user: &Credentials,
        id: FileId,
        offset: u64,
        buffer: &mut [u8],
        wait: Wait,
    ) -> Result<ReadBytes> {
        let moment = self.moment(wait);
        for _ in 0..READ_TRIES {
            let (inode, loads) = {
                let tree = self.tree(wait)?;
                (tree.object(id)?, tree.settled.loads)
            };
            check_read(&inode, user)?;
            let read = read_content(&moment, &inode, offset, buffer);
            if matches!(inode.content, Content::Inline(_)) {
                return read;
            }
            let after = self.tree(wait)?;
            // If it is gone, this says so.
            let is_same = after.object(id)?.operation == inode.operation;
            if is_same && after.settled.loads == loads {
                return read;
            }
        }
        let tree = self.tree(wait)?;
        let inode = tree.object(id)?;
        check_read(&inode, user)?;
        read_content(&tree, &inode, offset, buffer)
    }

    /// Counters, without a walk.
    pub fn statistics(&self) -> Statistics {
        let state = self.settled.read().last.state;
        Statistics {
            data_bytes: state.used * BLOCK_BYTES as u64,
            inodes: state.inodes,
            inodes_free: Inode::END.0 - 1 - state.inodes,
            operations: state.operation,
            changed: state.time,
        }
    }

    /// The number of the last block of the operation log.
    pub fn last_log_block(&self) -> u64 {
        self.settled.read().last.number
    }

    /// A block of the operation log; none if the ring does not have it.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`.
    pub fn log_block(&self, number: u64) -> Result<Option<LogBlock>> {
        let settled = self.settled.read();
        require(settled.usable != Usable::Not, ErrorKind::Unusable)?;
        if number < settled.last.state.log_first {
            return Ok(None);
        }
        read_log_block(&self.present, &self.root, number)
    }

    /// Lets the next transaction give up the operation log before a time, if that is worth a write;
    /// but for the last few thousand blocks, by which its end is found.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`.
    pub fn forget_log_before(&self, time: WallTime) -> Result<()> {
        let log = self.operation_log();
        let first = log.block_since(time)?;
        let is_worth = first >= log.blocks().start() + HINT_BLOCKS;
        self.log_wanted.store(if is_worth { first } else { 0 }, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn moment(&self, wait: Wait) -> Moment<'_> {
        Moment { blocks: &self.present, cache: &self.cache, root: &self.root, wait }
    }
}

impl Settled {
    fn new(ends: Ends, incarnation: u64) -> Settled {
        let is_known = ends.root.features_read_only == 0;
        let usable = if is_known && ends.is_log_whole { Usable::All } else { Usable::ToRead };
        Settled { root: ends.root, last: ends.last, incarnation, loads: 0, usable }
    }
}

/// Refuses a volume whose batches do not take any update.
fn check_size(present: &impl Present) -> Result<()> {
    let most = present.whole_blocks_max();
    if most >= WHOLE_BLOCKS_MIN {
        return Ok(());
    }
    let source = TooSmall { least: WHOLE_BLOCKS_MIN, most };
    Err(Error::with_source(ErrorKind::Invalid, source))
}

/// The generation of what a transaction makes.
pub(crate) fn generation(incarnation: u64, seq_before: Seq) -> Generation {
    let bits = (incarnation ^ seq_before.0) & ((1 << 62) - 1);
    Generation(if bits == 0 { 1 << 62 } else { bits })
}

fn top_directory(spec: &ShareSpec, generation: Generation) -> InodeBlock {
    InodeBlock {
        generation,
        kind: FileKind::Directory,
        mode: spec.mode & 0o7777,
        links: 2,
        uid: spec.uid,
        gid: spec.gid,
        size: BLOCK_BYTES as u64,
        used: 0,
        accessed: spec.created,
        modified: spec.created,
        changed: spec.created,
        created: spec.created,
        parent: Inode::ROOT,
        entries: 0,
        verifier: None,
        device: (0, 0),
        operation: 0,
        content: Content::Entries(Default::default()),
    }
}

/// The tree of a share between two transactions.
pub struct PresentTree<'s> {
    moment: Moment<'s>,
    settled: RankedReadGuard<'s, Settled>,
}

impl PresentTree<'_> {
    /// Counters and free numbers, after the last operation.
    pub fn state(&self) -> &State {
        &self.settled.last.state
    }

    /// The random number of this opening, or of the revert since.
    pub fn incarnation(&self) -> u64 {
        self.settled.incarnation
    }
}

impl Source for PresentTree<'_> {
    fn root(&self) -> &ShareRoot {
        &self.settled.root
    }

    fn meta(&self, block: u64) -> Result<Option<Meta>> {
        self.moment.meta(block)
    }

    fn data(&self, first_block: u64, buffer: &mut [u8]) -> Result<()> {
        self.moment.data(first_block, buffer)
    }

    fn count_data(&self, first_block: u64, blocks: u64) -> Result<u64> {
        self.moment.count_data(first_block, blocks)
    }
}
