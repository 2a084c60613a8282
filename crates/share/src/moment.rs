//! A share at one moment as it is on its volume: decoded blocks by way of a cache.

use format::share::log::{LogBlock, State, log_block};
use format::share::place::{BLOCK_BYTES, ROOT_BLOCK};
use format::share::root::{HINT_BLOCKS, ShareRoot};

use crate::blocks::{Blocks, Wait};
use crate::cache::Cache;
use crate::error::{Error, ErrorKind, Result};
use crate::source::{Meta, Source};

/// Where reading a share begins.
#[derive(Debug)]
pub struct Ends {
    /// The root.
    pub root: ShareRoot,
    /// The last block of the operation log.
    pub last: LogBlock,
    /// Whether it is that.
    pub is_log_whole: bool,
}

/// The blocks of a moment.
#[derive(Clone, Copy)]
pub struct Moment<'s> {
    /// The volume.
    pub blocks: &'s dyn Blocks,
    /// Decoded blocks of this moment.
    pub cache: &'s Cache,
    /// The share that they are of.
    pub root: &'s ShareRoot,
    /// Whether to wait for a device.
    pub wait: Wait,
}

impl Source for Moment<'_> {
    fn root(&self) -> &ShareRoot {
        self.root
    }

    fn meta(&self, block: u64) -> Result<Option<Meta>> {
        if let Some(meta) = self.cache.get(block) {
            return Ok(Some(meta));
        }
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        self.blocks.read(block, &mut bytes[..], self.wait)?;
        let meta = Meta::decode(&bytes, self.root.address(block))?;
        if let Some(meta) = &meta {
            self.cache.insert(block, meta.clone());
        }
        Ok(meta)
    }

    fn data(&self, first_block: u64, buffer: &mut [u8]) -> Result<()> {
        self.blocks.read(first_block, buffer, self.wait)
    }

    fn count_data(&self, first_block: u64, blocks: u64) -> Result<u64> {
        self.blocks.count_data(first_block, blocks, self.wait)
    }
}

/// Reads the root and the last block of the operation log. If the log is damaged, it is one before
/// the last, or none of the log's at all; and the share is not to be changed.
///
/// # Errors
/// `NotFound` if there is no share; `Corrupt`, `Storage`.
pub fn read_ends(blocks: &dyn Blocks) -> Result<Ends> {
    let mut bytes = Box::new([0; BLOCK_BYTES]);
    blocks.read(ROOT_BLOCK, &mut bytes[..], Wait::May)?;
    if bytes.iter().all(|byte| *byte == 0) {
        return Err(Error::from(ErrorKind::NotFound));
    }
    let root = ShareRoot::decode(&bytes)?;
    match last_log_block(blocks, &root) {
        Ok(last) => Ok(Ends { root, last, is_log_whole: true }),
        Err(error) if error.kind == ErrorKind::Corrupt => {
            let last = last_sound_log_block(blocks, &root)?;
            Ok(Ends { root, last, is_log_whole: false })
        }
        Err(error) => Err(error),
    }
}

/// The last of those blocks of the log that are not damaged.
fn last_sound_log_block(blocks: &dyn Blocks, root: &ShareRoot) -> Result<LogBlock> {
    let mut last = LogBlock::new(root.log_hint, State::empty(root.created));
    for number in root.log_hint..root.log_hint + HINT_BLOCKS {
        match read_log_block(blocks, root, number) {
            Ok(found) => last = found.unwrap_or(last),
            Err(error) if error.kind == ErrorKind::Corrupt => {}
            Err(error) => return Err(error),
        }
    }
    Ok(last)
}

/// Finds the last block of the log by halving.
fn last_log_block(blocks: &dyn Blocks, root: &ShareRoot) -> Result<LogBlock> {
    let mut last = read_log_block(blocks, root, root.log_hint)?;
    let (mut there, mut missing) = (root.log_hint, root.log_hint + HINT_BLOCKS);
    while there + 1 < missing {
        let middle = there.midpoint(missing);
        match read_log_block(blocks, root, middle)? {
            Some(block) => {
                last = Some(block);
                there = middle;
            }
            None => missing = middle,
        }
    }
    let lost = || Error::damage(log_block(root.log_hint), "the operation log ends before its root");
    last.ok_or_else(lost)
}

/// Reads the block of the operation log with that number; none if the ring has not come to it yet,
/// or no longer has it.
///
/// # Errors
/// `Corrupt`, `Storage`.
pub fn read_log_block(
    blocks: &dyn Blocks,
    root: &ShareRoot,
    number: u64,
) -> Result<Option<LogBlock>> {
    let block = log_block(number);
    let mut bytes = Box::new([0; BLOCK_BYTES]);
    blocks.read(block, &mut bytes[..], Wait::May)?;
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let found = LogBlock::decode(&bytes, root.address(block))?;
    Ok((found.number == number).then_some(found))
}
