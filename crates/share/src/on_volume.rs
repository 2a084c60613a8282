//! The ground of a share in the engine: the present of a strict volume, and views of its past.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use units::{BLOCK_BYTES, Seq};
use volume::{RoomWait, View, Volume, Whole, WriteOp};

use crate::blocks::{BlockWrite, Blocks, Present, Wait};
use crate::error::{Error, ErrorKind, Lack, Result};

/// The present of a volume.
pub struct VolumeBlocks {
    volume: Arc<Volume>,
    whole_blocks_max: usize,
    /// The last write left the log so far ahead that the map is to be written out before the next.
    is_ahead: AtomicBool,
}

impl VolumeBlocks {
    /// Of a strict volume.
    pub fn new(volume: Arc<Volume>) -> VolumeBlocks {
        let whole_blocks_max = volume.whole_blocks_max();
        VolumeBlocks { volume, whole_blocks_max, is_ahead: AtomicBool::new(false) }
    }

    /// The volume.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Waits for what a transaction lacked, and may do the work for it, as long as `goes_on`.
    ///
    /// # Errors
    /// `Full` if there is no room to be had, or `goes_on` says no; `Stale` once the volume is
    /// deleted; `Storage`.
    pub fn wait_for(
        &self,
        lack: Lack,
        wait: &mut RoomWait,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        let lack = match lack {
            Lack::Map => volume::Lack::Map,
            Lack::Room => volume::Lack::Room,
        };
        self.volume.wait_for(lack, wait, goes_on)?;
        if lack == volume::Lack::Map {
            self.is_ahead.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl From<volume::Error> for Error {
    fn from(error: volume::Error) -> Error {
        let kind = match error.kind {
            volume::ErrorKind::Corrupt => ErrorKind::Corrupt,
            volume::ErrorKind::Full => ErrorKind::Full,
            volume::ErrorKind::NotFound => ErrorKind::Stale,
            _ => ErrorKind::Storage,
        };
        Error::with_source(kind, error)
    }
}

/// Whether a read that does not wait was done.
fn done(was_done: bool) -> Result<()> {
    if was_done { Ok(()) } else { Err(Error::from(ErrorKind::WouldWait)) }
}

impl Blocks for VolumeBlocks {
    fn read(&self, first_block: u64, buffer: &mut [u8], wait: Wait) -> Result<()> {
        let offset = first_block * BLOCK_BYTES;
        match wait {
            Wait::May => Ok(self.volume.read(offset, buffer)?),
            Wait::MayNot => done(self.volume.try_read(offset, buffer)?),
        }
    }

    fn count_data(&self, first_block: u64, blocks: u64, wait: Wait) -> Result<u64> {
        count_data(first_block, blocks, wait, |offset, length_bytes| {
            self.volume.extents(offset, length_bytes, usize::MAX)
        })
    }
}

impl Present for VolumeBlocks {
    fn seq(&self) -> Seq {
        self.volume.last_seq()
    }

    fn whole_blocks_max(&self) -> usize {
        self.whole_blocks_max
    }

    fn write_whole(&self, writes: &[BlockWrite<'_>], wait: Wait) -> Result<Seq> {
        if self.is_ahead.load(Ordering::Relaxed) {
            return Err(Error::from(ErrorKind::Lacks(Lack::Map)));
        }
        let ops: Vec<WriteOp<'_>> = writes.iter().map(op_of).collect();
        match self.volume.try_write_whole(&ops, wait == Wait::May)? {
            Whole::Written { seq, is_ahead_of_map } => {
                self.is_ahead.store(is_ahead_of_map, Ordering::Relaxed);
                Ok(seq)
            }
            Whole::Lacks(volume::Lack::Turn) => Err(Error::from(ErrorKind::WouldWait)),
            Whole::Lacks(volume::Lack::Map) => Err(Error::from(ErrorKind::Lacks(Lack::Map))),
            Whole::Lacks(volume::Lack::Room) => Err(Error::from(ErrorKind::Lacks(Lack::Room))),
        }
    }
}

fn op_of<'a>(write: &BlockWrite<'a>) -> WriteOp<'a> {
    match *write {
        BlockWrite::Data { block, bytes } => WriteOp::Data { offset: block * BLOCK_BYTES, bytes },
        BlockWrite::Zero { block, count } => {
            WriteOp::Zero { offset: block * BLOCK_BYTES, length_bytes: count * BLOCK_BYTES }
        }
    }
}

/// A moment of a volume.
pub struct ViewBlocks(pub Arc<View>);

impl Blocks for ViewBlocks {
    fn read(&self, first_block: u64, buffer: &mut [u8], wait: Wait) -> Result<()> {
        let offset = first_block * BLOCK_BYTES;
        match wait {
            Wait::May => Ok(self.0.read(offset, buffer)?),
            Wait::MayNot => done(self.0.try_read(offset, buffer)?),
        }
    }

    fn count_data(&self, first_block: u64, blocks: u64, wait: Wait) -> Result<u64> {
        count_data(first_block, blocks, wait, |offset, length_bytes| {
            self.0.extents(offset, length_bytes, usize::MAX)
        })
    }
}

/// Blocks that are no holes. The map may have to be read for it, so who does not wait gets no
/// count.
fn count_data(
    first_block: u64,
    blocks: u64,
    wait: Wait,
    extents: impl Fn(u64, u64) -> volume::Result<Vec<volume::Extent>>,
) -> Result<u64> {
    if wait == Wait::MayNot {
        return Err(Error::from(ErrorKind::WouldWait));
    }
    let (mut at, end) = (first_block * BLOCK_BYTES, (first_block + blocks) * BLOCK_BYTES);
    let mut data_bytes = 0;
    while at < end {
        for extent in extents(at, end - at)? {
            data_bytes += if extent.hole { 0 } else { extent.length_bytes };
            at = extent.offset + extent.length_bytes;
        }
    }
    Ok(data_bytes / BLOCK_BYTES)
}
