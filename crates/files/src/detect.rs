//! Which file system a part of a disk holds.

use std::rc::Rc;

use crate::error::{Error, Result};
use crate::ext4;
use crate::fat;
use crate::lvm;
use crate::ntfs;
use crate::part::Part;
use crate::source::{Source, fetched};
use crate::system::FileSystem;
use crate::tree::Tree;
use crate::xfs;

/// What is recognised by a magic number alone: where it stands, and which it is.
const KNOWN: &[(&str, u64, &[u8])] = &[
    ("btrfs", 0x1_0040, b"_BHRfS_M"),
    ("exfat", 3, b"EXFAT   "),
    ("luks", 0, b"LUKS\xba\xbe"),
    ("bitlocker", 3, b"-FVE-FS-"),
    ("f2fs", 0x400, b"\x10\x20\xf5\xf2"),
    ("squashfs", 0, b"hsqs"),
    ("swap", 0xff6, b"SWAPSPACE2"),
    ("iso9660", 0x8001, b"CD001"),
];

fn has(source: &dyn Source, at: u64, magic: &[u8]) -> Result<bool> {
    if at + magic.len() as u64 > source.size() {
        return Ok(false);
    }
    Ok(fetched(source, at, magic.len())? == magic)
}

impl FileSystem {
    /// What a source holds; none if nothing is recognised.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn of(source: &dyn Source) -> Result<Option<FileSystem>> {
        if let Some(found) = ext4::recognise(source)? {
            return Ok(Some(found));
        }
        if let Some(found) = fat::recognise(source)? {
            return Ok(Some(found));
        }
        if let Some(found) = xfs::recognise(source)? {
            return Ok(Some(found));
        }
        if let Some(found) = lvm::recognise(source)? {
            return Ok(Some(found));
        }
        if let Some(found) = ntfs::recognise(source)? {
            return Ok(Some(found));
        }
        for (kind, at, magic) in KNOWN {
            if has(source, *at, magic)? {
                let (label, uuid) = (Vec::new(), String::new());
                return Ok(Some(FileSystem { kind, label, uuid, is_readable: false }));
            }
        }
        Ok(None)
    }
}

/// Opens the file system of a part of a disk.
///
/// # Errors
/// There is none that can be read, which is named if it is known; those of the disk.
pub fn open(disk: &Rc<dyn Source>, part: &Part) -> Result<(FileSystem, Box<dyn Tree>)> {
    if let Some(refused) = &part.refused {
        return Err(Error::unsupported(refused));
    }
    let part: Rc<dyn Source> = Rc::new(part.of(disk));
    let Some(found) = FileSystem::of(&*part)? else {
        return Err(Error::unsupported("no file system that is known"));
    };
    let tree: Box<dyn Tree> = match found.kind {
        kind if kind.starts_with("ext") => Box::new(ext4::Ext4::open(part)?),
        kind if kind.starts_with("fat") => Box::new(fat::Fat::open(part)?),
        "ntfs" => Box::new(ntfs::Ntfs::open(part)?),
        "xfs" => Box::new(xfs::Xfs::open(part)?),
        "lvm" => return Err(Error::unsupported("its logical volumes are parts of their own")),
        kind => return Err(Error::unsupported(format!("no reader for {kind}"))),
    };
    Ok((found, tree))
}
