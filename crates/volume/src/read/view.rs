//! A read-only opening of a moment. Costs nothing to make; pins its moment while it is held.

use std::sync::Arc;

use units::Moment;

use crate::Result;
use crate::read::snapshot::Opening;
use crate::types::{Extent, Resolved, Wait};
use crate::volume::Volume;

/// A read-only opening of a moment. Its bytes never change.
pub struct View {
    volume: Arc<Volume>,
    resolved: Resolved,
    opening: Arc<Opening>,
}

impl View {
    pub(crate) fn open(volume: &Arc<Volume>, moment: &Moment) -> Result<Arc<View>> {
        let mut still = volume.stand_still_for(moment)?;
        let resolved = volume.resolve_with(moment, &still.pins)?;
        still.pins.add_view(resolved.seq);
        drop(still);
        match volume.open_at(resolved.seq) {
            Ok(opening) => Ok(Arc::new(View { volume: Arc::clone(volume), resolved, opening })),
            Err(e) => {
                unpin(volume, resolved);
                Err(e)
            }
        }
    }

    /// The moment, resolved.
    #[must_use]
    pub fn resolved(&self) -> Resolved {
        self.resolved
    }

    pub(crate) fn opening(&self) -> &Opening {
        &self.opening
    }

    /// Bytes of the volume at that moment.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.opening.size_bytes
    }

    /// The volume it looks at.
    #[must_use]
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// `OutOfBounds`, `Corrupt`, `Io`; `NotFound` once the volume is deleted.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_with(offset, buffer, Wait::Device).map(|_| ())
    }

    /// Reads if nothing has to wait for a device; `Ok(false)` means "would wait".
    ///
    /// # Errors
    /// Those of [`View::read`].
    pub fn try_read(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.read_with(offset, buffer, Wait::Never)
    }

    fn read_with(&self, offset: u64, buffer: &mut [u8], wait: Wait) -> Result<bool> {
        self.volume.check_there()?;
        self.opening.read(offset, buffer, wait)
    }

    /// Data and holes from `offset`, joined, at most `limit` of them.
    ///
    /// # Errors
    /// `OutOfBounds`, `Corrupt`, `Io`.
    pub fn extents(&self, offset: u64, length_bytes: u64, limit: usize) -> Result<Vec<Extent>> {
        self.opening.extents(offset, length_bytes, limit)
    }
}

impl Volume {
    /// Opens a moment read-only; it stays openable while the view is held.
    ///
    /// # Errors
    /// Those of resolving it.
    pub fn view(self: &Arc<Self>, moment: &Moment) -> Result<Arc<View>> {
        self.check_open()?;
        View::open(self, moment)
    }
}

fn unpin(volume: &Volume, resolved: Resolved) {
    volume.pins().lock().remove_view(resolved.seq);
}

impl Drop for View {
    fn drop(&mut self) {
        unpin(&self.volume, self.resolved);
    }
}
