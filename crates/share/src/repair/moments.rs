//! The moments that a repair reads.

use std::sync::Arc;

use format::share::inode::InodeBlock;
use format::share::place::BLOCK_BYTES;
use units::{FileId, Seq};

use crate::blocks::{Blocks, Wait};
use crate::content;
use crate::error::{ErrorKind, Result, not_kept};
use crate::operation_log::At;
use crate::past::Past;
use crate::source::Source;

/// Bytes of which is asked whether all are holes.
const STEP_BYTES: u64 = 1 << 30;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A range by the steps in which it is asked whether all is holes.
pub(crate) fn steps(start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let step_of = |at: u64| at / STEP_BYTES;
    let numbers = if start < end { step_of(start)..step_of(end - 1) + 1 } else { 0..0 };
    numbers.map(move |step| (start.max(step * STEP_BYTES), end.min((step + 1) * STEP_BYTES)))
}

/// Whether a range of a file has any data.
///
/// # Errors
/// Those of reading.
pub(crate) fn has_data(
    tree: &dyn Source,
    inode: &InodeBlock,
    start: u64,
    end: u64,
) -> Result<bool> {
    let (first, last) = (start / BLOCK, end.div_ceil(BLOCK));
    Ok(content::count_data(tree, inode, first, last - first)? > 0)
}

/// The present that a repair is planned by, and the moments of its past.
pub struct Moments<'a, B> {
    /// The share as it is: the repair is of the operations until then.
    pub present: Arc<Past<B>>,
    /// The seq of that.
    pub seq: Seq,
    /// Opens the moment of a seq; it may be another one near it.
    pub at: &'a dyn Fn(Seq) -> Result<Arc<Past<B>>>,
}

impl<B: Blocks> Moments<'_, B> {
    /// Opens a moment between two transactions, which has to be that very one.
    ///
    /// # Errors
    /// `NotFound` if it is not kept; those of opening.
    pub(crate) fn open(&self, at: At) -> Result<Arc<Past<B>>> {
        let is_it = |past: &Past<B>| {
            let state = past.state();
            let is_same = at.incarnation.is_none_or(|own| own == state.incarnation);
            state.operation == at.operation && is_same
        };
        if is_it(&self.present) {
            return Ok(Arc::clone(&self.present));
        }
        let past = (self.at)(at.seq)?;
        if is_it(&past) { Ok(past) } else { Err(not_kept()) }
    }

    /// An object as it was.
    ///
    /// # Errors
    /// As [`Moments::open`]; `NotFound` if it was not there.
    pub(crate) fn object(&self, id: FileId, at: At) -> Result<Arc<InodeBlock>> {
        let found = self.open(at)?.tree(Wait::May).object(id);
        found.map_err(|error| if error.kind == ErrorKind::Stale { not_kept() } else { error })
    }

    /// Whether a range of a file had any data.
    ///
    /// # Errors
    /// As [`Moments::object`].
    pub(crate) fn has_data(
        &self,
        (id, at): (FileId, Option<At>),
        start: u64,
        end: u64,
    ) -> Result<bool> {
        let Some(at) = at else { return Ok(false) };
        let inode = self.object(id, at)?;
        has_data(&self.open(at)?.tree(Wait::May), &inode, start, end)
    }

    /// Reads bytes of a file as it was; zeros beyond its end, and if there is no moment.
    ///
    /// # Errors
    /// As [`Moments::object`].
    pub(crate) fn read(
        &self,
        (id, at): (FileId, Option<At>),
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        let Some(at) = at else {
            buffer.fill(0);
            return Ok(());
        };
        let inode = self.object(id, at)?;
        let past = self.open(at)?;
        let count = content::read(&past.tree(Wait::May), &inode, offset, buffer)?;
        buffer[count..].fill(0);
        Ok(())
    }
}
