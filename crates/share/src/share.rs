//! A share in the present: who reads it and who changes it.
//!
//! 1. One transaction at a time is made (`turn`). Readers share the gate; a transaction has it
//!    alone while its blocks are written and taken up in the cache. So every reader sees the tree
//!    between two transactions.
//! 2. A read of a file holds the gate only to look at its inode. If a transaction made holes
//!    meanwhile, what was read may be another file's, and it is read again.

use env::{Rank, RankedMutex, RankedReadGuard, RankedRwLock};
use format::share::inode::{Content, FileKind, InodeBlock};
use format::share::log::{FreeNumbers, LogBlock, State, log_block};
use format::share::place::{BLOCK_BYTES, ROOT_BLOCK, inode_block};
use format::share::root::ShareRoot;
use units::{FileId, Generation, Inode, WallTime};

use crate::blocks::{BlockWrite, Present, Wait};
use crate::cache::Cache;
use crate::error::{ErrorKind, Result, require};
use crate::moment::{Moment, read_ends, read_log_block};
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
    pub(crate) settled: RankedRwLock<Settled>,
}

/// The state that the last transaction left.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub root: ShareRoot,
    pub last: LogBlock,
    /// How many transactions made holes.
    pub holes_made: u64,
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
    /// `Exists` if there is something; `Storage`.
    pub fn make(present: P, spec: &ShareSpec, cache_blocks_max: usize) -> Result<Share<P>> {
        let mut bytes = [0; BLOCK_BYTES];
        present.read(ROOT_BLOCK, &mut bytes, Wait::May)?;
        require(bytes == [0; BLOCK_BYTES], ErrorKind::Exists)?;
        let root = ShareRoot {
            share_id: spec.share_id,
            hash_key: spec.hash_key,
            created: spec.created,
            log_hint: 0,
        };
        let mut state = State::empty(spec.created);
        state.inodes = 1;
        state.free[0] = FreeNumbers { height: 0, next: Inode::ROOT.0 + 1 };
        let top = top_directory(spec, Generation(present.seq().0 + 1));
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
        present.write_whole(&writes)?;
        Share::open(present, cache_blocks_max)
    }

    /// Opens the share that is in these blocks.
    ///
    /// # Errors
    /// `NotFound` if there is none; `Corrupt`, `Storage`.
    pub fn open(present: P, cache_blocks_max: usize) -> Result<Share<P>> {
        let (root, last) = read_ends(&present)?;
        Ok(Share {
            present,
            cache: Cache::new(cache_blocks_max),
            root,
            turn: RankedMutex::new(Rank::ShareTurn, ()),
            settled: RankedRwLock::new(Rank::ShareGate, Settled { root, last, holes_made: 0 }),
        })
    }

    /// Looks at the blocks anew, after a revert of the volume.
    ///
    /// # Errors
    /// As `open`; the share is as it was then, and has to be opened again.
    pub fn reload(&self) -> Result<()> {
        let _turn = self.turn.lock();
        let mut settled = self.settled.write();
        self.cache.clear();
        let (root, last) = read_ends(&self.present)?;
        require(root.share_id == self.root.share_id, ErrorKind::Stale)?;
        *settled = Settled { root, last, holes_made: settled.holes_made + 1 };
        Ok(())
    }

    /// The volume.
    pub fn present(&self) -> &P {
        &self.present
    }

    /// The tree as it is now. No transaction is written while this is held.
    pub fn tree(&self, wait: Wait) -> PresentTree<'_> {
        let settled = self.settled.read();
        PresentTree { moment: self.moment(wait), settled }
    }

    /// Reads a file into a buffer, beside transactions.
    ///
    /// # Errors
    /// As [`crate::Tree::read`].
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
            let (inode, holes_made) = {
                let tree = self.tree(wait);
                (tree.object(id)?, tree.settled.holes_made)
            };
            check_read(&inode, user)?;
            if matches!(inode.content, Content::Inline(_)) {
                return read_content(&moment, &inode, offset, buffer);
            }
            let read = read_content(&moment, &inode, offset, buffer)?;
            if self.settled.read().holes_made == holes_made {
                return Ok(read);
            }
        }
        let tree = self.tree(wait);
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
        let _settled = self.settled.read();
        read_log_block(&self.present, self.root.tag(), number)
    }

    pub(crate) fn moment(&self, wait: Wait) -> Moment<'_> {
        Moment { blocks: &self.present, cache: &self.cache, root: &self.root, wait }
    }
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
