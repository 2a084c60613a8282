//! Writing bytes into a file.

use format::share::inode::FileKind;
use format::share::operation::{Operation, Procedure};
use format::share::place::{BLOCK_BYTES, FILE_BYTES_MAX};
use units::FileId;

use crate::attributes::{Attributes, before};
use crate::blocks::{Present, WRITE_EXTRA_BLOCKS};
use crate::content_change;
use crate::error::{Error, ErrorKind, Result, require};
use crate::operations::set_attributes::drop_set_id;
use crate::permission::{WRITE, permits};
use crate::source::Source;
use crate::transaction::{Caller, Transaction};

const BLOCK: u64 = BLOCK_BYTES as u64;

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

    /// Blocks of a file become holes: it reads as if zeros had been written, as the record says.
    /// Those beyond its end stay holes.
    ///
    /// # Errors
    /// `Stale`, `Invalid` of what is no file, `Access`, `FileTooLarge`; `TransactionFull`; those of
    /// reading.
    pub fn make_hole(
        &mut self,
        caller: &Caller<'_>,
        id: FileId,
        first_block: u64,
        blocks: u64,
    ) -> Result<Attributes> {
        let end = first_block.checked_add(blocks).filter(|end| *end <= FILE_BYTES_MAX / BLOCK);
        let end = end.ok_or(Error::from(ErrorKind::FileTooLarge))?;
        self.update(caller, 1, |work| {
            let old = work.layer.object(id)?;
            require(old.kind == FileKind::File, ErrorKind::Invalid)?;
            let may = work.user.owns(&old) || permits(&old, work.user, WRITE);
            require(may, ErrorKind::Access)?;
            let bytes = first_block * BLOCK..old.size.min(end * BLOCK);
            if bytes.is_empty() {
                return Ok((Attributes::of(id.inode, &old), None));
            }
            let mut inode = (*old).clone();
            content_change::make_hole(&mut work.layer, &mut inode, first_block, blocks)?;
            drop_set_id(work, &mut inode);
            work.touched.push(id.inode);
            work.put_modified(id.inode, inode);
            let record = Operation {
                range: Some((bytes.start, bytes.end - bytes.start)),
                before: Some(before(&old)),
                ..work.record(Procedure::Write, id)
            };
            Ok((Attributes::of(id.inode, &*work.layer.object(id)?), Some(record)))
        })
    }
}
