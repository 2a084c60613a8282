//! Writing bytes into a file.

use format::share::inode::FileKind;
use format::share::operation::{Operation, Procedure};
use format::share::place::BLOCK_BYTES;
use units::FileId;

use crate::attributes::{Attributes, before};
use crate::blocks::{Present, WRITE_EXTRA_BLOCKS};
use crate::content_change;
use crate::error::{ErrorKind, Result, require};
use crate::operations::set_attributes::drop_set_id;
use crate::permission::{WRITE, permits};
use crate::source::Source;
use crate::transaction::{Caller, Transaction};

impl<'d, P: Present> Transaction<'_, 'd, P> {
    /// Writes bytes at an offset. The owner may, whatever the mode: a client that has the file open
    /// may.
    ///
    /// # Errors
    /// `Stale`, `IsDirectory`, `Invalid` of what is no file, `Access`, `FileTooLarge`, `NoSpace`;
    /// `TransactionFull`; those of reading.
    pub fn write(
        &mut self,
        caller: &Caller<'_>,
        id: FileId,
        offset: u64,
        bytes: &'d [u8],
    ) -> Result<Attributes> {
        self.update(caller, bytes.len() / BLOCK_BYTES + WRITE_EXTRA_BLOCKS, |work| {
            let old = work.layer.object(id)?;
            require(old.kind != FileKind::Directory, ErrorKind::IsDirectory)?;
            require(old.kind == FileKind::File, ErrorKind::Invalid)?;
            let may = work.user.owns(&old) || permits(&old, work.user, WRITE);
            require(may, ErrorKind::Access)?;
            if bytes.is_empty() {
                return Ok((Attributes::of(id.inode, &old), None));
            }
            let mut inode = (*old).clone();
            content_change::write(&mut work.layer, &mut inode, offset, bytes)?;
            drop_set_id(work, &mut inode);
            work.touched.push(id.inode);
            work.put_modified(id.inode, inode);
            let record = Operation {
                range: Some((offset, bytes.len() as u64)),
                before: Some(before(&old)),
                ..work.record(Procedure::Write, id)
            };
            Ok((Attributes::of(id.inode, &*work.layer.object(id)?), Some(record)))
        })
    }
}
