//! Whether a range of a file has its blocks on the file system, by the kernel's FIEMAP.

#![expect(unsafe_code, reason = "no library has FIEMAP safe; the one call says what it relies on")]

use std::fs::File;
use std::io;

use rustix::ioctl::{Opcode, Updater, ioctl};

const FS_IOC_FIEMAP: Opcode = 0xc020_660b;
/// Extents that are asked for at once.
const EXTENTS: usize = 64;
/// The extent is not where a write could go: its place is not known yet, it waits for one, or it
/// is shared with another file.
const NOT_OURS: u32 = 0x0002 | 0x0004 | 0x2000;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [Extent; EXTENTS],
}

/// Whether every byte of a range has a block of its own.
///
/// # Errors
/// Those of the file system, which may not tell.
pub(crate) fn is_mapped(file: &File, offset: u64, length: u64) -> io::Result<bool> {
    let end = offset + length;
    let mut at = offset;
    while at < end {
        let mut map = Fiemap {
            start: at,
            length: end - at,
            flags: 0,
            mapped: 0,
            room: EXTENTS as u32,
            reserved: 0,
            extents: [Extent::default(); EXTENTS],
        };
        // SAFETY: FIEMAP reads and writes this structure, which has room for as many extents as it
        // says.
        unsafe { ioctl(file, Updater::<FS_IOC_FIEMAP, Fiemap>::new(&mut map))? };
        let told = &map.extents[..(map.mapped as usize).min(EXTENTS)];
        let before = at;
        for extent in told {
            if extent.logical > at || extent.flags & NOT_OURS != 0 {
                return Ok(false);
            }
            at = at.max(extent.logical.saturating_add(extent.length));
        }
        if at == before {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FallocateFlags, fallocate};

    use super::{EXTENTS, is_mapped};

    #[test]
    fn what_was_reserved_is_mapped_and_holes_are_not() {
        // On the disk of the project: not every file system tells.
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        file.set_len(16 << 20).expect("longer");
        if let Err(e) = is_mapped(&file, 0, 4096) {
            return println!("nothing tested, the file system does not tell: {e}");
        }
        assert!(!is_mapped(&file, 0, 16 << 20).expect("told"));
        // Every other MiB: more extents than are told at once are not needed for that.
        for at in (0..16).step_by(2) {
            fallocate(&file, FallocateFlags::empty(), at << 20, 1 << 20).expect("there is room");
        }
        for at in 0..16_u64 {
            let is_even = at % 2 == 0;
            assert_eq!(is_mapped(&file, at << 20, 1 << 20).expect("told"), is_even, "MiB {at}");
        }
        assert!(!is_mapped(&file, 0, (1 << 20) + 1).expect("told"));
        fallocate(&file, FallocateFlags::empty(), 0, 16 << 20).expect("there is room");
        assert!(is_mapped(&file, 0, 16 << 20).expect("told"));
        assert!(is_mapped(&file, 4096, 8192).expect("told"));
        // More extents than are told at once.
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        for odd in [0, 1] {
            for at in (odd..4 * EXTENTS as u64).step_by(2) {
                fallocate(&file, FallocateFlags::empty(), at << 12, 4096).expect("there is room");
            }
            let all = is_mapped(&file, 0, (4 * EXTENTS as u64) << 12).expect("told");
            assert_eq!(all, odd == 1);
        }
    }
}
