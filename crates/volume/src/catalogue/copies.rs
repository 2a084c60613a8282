//! Which copy of the catalogue is right, where there are several.
//!
//! The library below checks every page when a catalogue is opened, against checksums in other
//! pages, and may write while it does. So each copy is tried with what is written kept in memory,
//! and the first that holds together is put in the place of the others before it is really opened.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use parking_lot::Mutex;
use redb::Builder;
use units::BLOCK_BYTES;

use super::{CACHE_BYTES, CatalogueMedia, guarded};

/// A copy of the catalogue, and what was written over it.
struct Trial {
    media: CatalogueMedia,
    copy: usize,
    written: Mutex<Written>,
}

struct Written {
    len: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trial").field("copy", &self.copy).finish_non_exhaustive()
    }
}

impl Trial {
    /// A page as it is now; zeros beyond what the copy has.
    fn page(&self, written: &Written, page: u64) -> io::Result<Vec<u8>> {
        if let Some(bytes) = written.pages.get(&page) {
            return Ok(bytes.clone());
        }
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        if (page + 1) * BLOCK_BYTES <= redb::StorageBackend::len(&self.media)? {
            self.media.read_copy(self.copy, page * BLOCK_BYTES, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Calls `each` with each page of a range, the part of it and the part of the range.
    fn each(
        offset: u64,
        length: usize,
        mut each: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let within = (at % BLOCK_BYTES) as usize;
            let count = (BLOCK_BYTES as usize - within).min(length - done);
            each(at / BLOCK_BYTES, within..within + count, done..done + count)?;
            done += count;
        }
        Ok(())
    }
}

impl redb::StorageBackend for Trial {
    fn len(&self) -> io::Result<u64> {
        Ok(self.written.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let written = self.written.lock();
        Trial::each(offset, out.len(), |page, of_page, of_out| {
            out[of_out].copy_from_slice(&self.page(&written, page)?[of_page]);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.written.lock().len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = self.written.lock();
        Trial::each(offset, data.len(), |page, of_page, of_data| {
            let mut bytes = self.page(&written, page)?;
            bytes[of_page].copy_from_slice(&data[of_data]);
            written.pages.insert(page, bytes);
            Ok(())
        })
    }
}

/// Puts the first copy that holds together in the place of the others. Where none does, opening it
/// says what is wrong.
///
/// # Errors
/// The device's.
pub fn settle_copies(media: &CatalogueMedia) -> io::Result<()> {
    let copies = media.copies();
    if copies == 1 {
        return Ok(());
    }
    for copy in 0..copies {
        let written = Written { len: redb::StorageBackend::len(media)?, pages: BTreeMap::new() };
        let trial = Trial { media: media.clone(), copy, written: Mutex::new(written) };
        let holds = guarded(|| {
            let mut builder = Builder::new();
            builder.set_cache_size(CACHE_BYTES);
            let mut database = builder.create_with_backend(trial).ok()?;
            let holds = database.check_integrity().is_ok();
            drop(database);
            holds.then_some(())
        });
        if holds.flatten().is_some() {
            return media.spread(copy);
        }
    }
    Ok(())
}
