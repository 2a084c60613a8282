//! A layer that keeps something of its own on one member: it is made anew when another device
//! takes the member's place, or the member itself does, which lost what the layer kept there.
//!
//! What the layer keeps is made before the device has a label that names it: that takes a while,
//! and until then nobody relies on it. The layer is taken away before the member's device is
//! another one, which waits for requests under way, and is opened before anything is written to it.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use format::label;
use parking_lot::RwLock;

use super::Shared;
use super::build::Missing;
use super::member::MemberDevice;
use super::spares::Spare;
use crate::heal::{Ledger, Outcome, Right};
use crate::layers::{IntegrityDevice, IntegrityOptions};
use crate::{BlockDevice, Guard, Result, Resync};

type Device = Arc<dyn BlockDevice>;

/// An integrity layer on a member, under which the device may become another one.
pub(super) struct Renewed {
    member: usize,
    below: Arc<MemberDevice>,
    options: IntegrityOptions,
    ledger: Arc<Ledger>,
    layer: RwLock<Device>,
    len_bytes: u64,
}

impl Renewed {
    /// What was opened on a member, or stands for what could not be.
    pub fn new(
        (member, below): (usize, &Arc<MemberDevice>),
        options: IntegrityOptions,
        ledger: &Arc<Ledger>,
        layer: Device,
    ) -> Renewed {
        let (below, ledger) = (Arc::clone(below), Arc::clone(ledger));
        let len_bytes = layer.len_bytes();
        Renewed { member, below, options, ledger, layer: RwLock::new(layer), len_bytes }
    }

    /// Takes the layer away, when all requests to it have ended; until another is put there
    /// requests fail.
    pub fn take(&self) -> Device {
        let missing = Arc::new(Missing::new(self.len_bytes));
        std::mem::replace(&mut *self.layer.write(), missing)
    }

    /// Puts back what was taken away.
    pub fn put(&self, layer: Device) {
        *self.layer.write() = layer;
    }

    /// Opens the layer on what is in the member's place now.
    pub fn open(&self) -> Result<()> {
        let below = Arc::clone(&self.below) as Device;
        let layer = IntegrityDevice::open(below, self.options, Arc::clone(&self.ledger))?;
        self.put(Arc::new(layer));
        Ok(())
    }

    /// Makes what the layer keeps, as of a device on which nothing was written.
    fn make_on(&self, spare: &Spare) -> Result<()> {
        let (path, device) = (spare.path.clone(), spare.device.clone());
        let alone = MemberDevice::new(spare.id, self.below.data_bytes(), path, device);
        IntegrityDevice::format(&(Arc::new(alone) as Device), spare.id)
    }
}

impl Shared {
    /// Notes a layer that is made anew with its member.
    pub(super) fn note_renewed(&self, layer: &Arc<Renewed>) {
        let mut renewed = self.renewed.lock();
        // That of a growth that came to nothing may be there.
        renewed.retain(|other| other.member != layer.member);
        renewed.push(Arc::clone(layer));
    }

    /// The layer that keeps something of its own on a member.
    pub(super) fn renewed(&self, member: usize) -> Option<Arc<Renewed>> {
        self.renewed.lock().iter().find(|layer| layer.member == member).cloned()
    }

    /// Makes what layers keep on the device that is to take a member's place. If that is the
    /// member's own it is nobody's before: who finds it half made takes it for blank.
    pub(super) fn make_ready(&self, member: usize, with: &Spare, is_own: bool) -> Result<()> {
        let Some(layer) = self.renewed(member) else { return Ok(()) };
        if let Some(device) = with.device.as_ref().filter(|_| is_own) {
            let zeros = vec![0; label::layout::BYTES];
            for offset in label::COPY_OFFSETS {
                device.write_durable(offset, &[IoSlice::new(&zeros)])?;
            }
        }
        layer.make_on(with)
    }
}

impl BlockDevice for Renewed {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.layer.read().read_at(offset, buffer)
    }
    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.layer.read().try_read_at(offset, buffer)
    }
    fn read_unverified(&self, offset: u64, buffer: &mut [u8], may_wait: bool) -> Result<bool> {
        self.layer.read().read_unverified(offset, buffer, may_wait)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.layer.read().write_at(offset, slices)
    }
    fn flush(&self) -> Result<()> {
        self.layer.read().flush()
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.layer.read().allocate(offset, length_bytes)
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.layer.read().discard(offset, length_bytes)
    }
    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.layer.read().write_durable(offset, slices)
    }
    fn copies(&self, offset: u64, length_bytes: u64) -> usize {
        self.layer.read().copies(offset, length_bytes)
    }
    fn read_copy(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.layer.read().read_copy(copy, offset, buffer)
    }
    fn ways(&self) -> usize {
        self.layer.read().ways()
    }
    fn read_way(&self, way: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.layer.read().read_way(way, offset, buffer)
    }
    fn heal(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
        self.layer.read().heal(offset, buffer, right)
    }
    fn resync(&self, offset: u64, length_bytes: u64, which: Resync) -> Result<()> {
        self.layer.read().resync(offset, length_bytes, which)
    }
    fn guard(&self, offset: u64, length_bytes: u64, by: Guard) -> Result<()> {
        self.layer.read().guard(offset, length_bytes, by)
    }
    fn disagreements(&self, offset: u64, length_bytes: u64) -> Result<Vec<Range<u64>>> {
        self.layer.read().disagreements(offset, length_bytes)
    }
    fn describe(&self) -> String {
        self.layer.read().describe()
    }
}
