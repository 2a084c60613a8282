//! Layers that keep something of their own on one member: they are made anew when another device
//! takes the member's place, or the member itself does, which lost what they kept there.
//!
//! What they keep is made before the device has a label that names it: that takes a while,
//! and until then nobody relies on it. From before the member's device is another one until they
//! are opened on that, or that came to nothing, requests to them wait.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use env::{RankedRwLock, RankedWriteGuard};

use super::candidate::Spare;
use super::kept::{Kept, of_device};
use super::materials::{Device, missing};
use super::member::MemberDevice;
use crate::heal::{Outcome, Right};
use crate::layers::order::LayerLock;
use crate::{BlockDevice, Result, Resync};

/// The layers on a member, under which the device may become another one.
pub(super) struct Renewed {
    pub(super) member: usize,
    below: Arc<MemberDevice>,
    kept: Kept,
    layer: RankedRwLock<Device>,
    len_bytes: u64,
}

impl Renewed {
    /// What was opened on a member, so deep in a stack, or stands for what could not be.
    pub fn new(
        (member, below): (usize, &Arc<MemberDevice>),
        kept: Kept,
        (layer, depth): (Device, usize),
    ) -> Renewed {
        let (below, len_bytes) = (Arc::clone(below), layer.len_bytes());
        let layer = LayerLock::Renewed.rw_lock(depth, layer);
        Renewed { member, below, kept, layer, len_bytes }
    }

    /// Has the layers alone, when all requests to them have ended; others wait.
    pub fn alone(&self) -> Alone<'_> {
        Alone { renewed: self, layer: self.layer.write() }
    }

    /// Makes what the layers keep, as of a device on which nothing was written.
    pub(super) fn make_on(&self, spare: &Spare) -> Result<()> {
        let (path, device) = (spare.path.clone(), spare.device.clone());
        let alone = MemberDevice::new(spare.id, self.below.data_bytes(), path, device);
        let alone: Device = Arc::new(alone);
        self.kept.make(&alone).map_err(|error| of_device(error, &alone))
    }
}

/// The right to make layers anew.
pub(super) struct Alone<'r> {
    renewed: &'r Renewed,
    layer: RankedWriteGuard<'r, Device>,
}

impl Alone<'_> {
    /// Takes the layers away; if no others are put there requests fail.
    pub fn take(&mut self) -> Device {
        std::mem::replace(&mut *self.layer, missing(self.renewed.len_bytes))
    }

    /// Puts back what was taken away.
    pub fn put(&mut self, layer: Device) {
        *self.layer = layer;
    }

    /// Opens the layers on what is in the member's place now.
    pub fn open(&mut self) -> Result<()> {
        let Renewed { below, kept, .. } = self.renewed;
        let below = Arc::clone(below) as Device;
        let opened = kept.open(Arc::clone(&below));
        *self.layer = opened.map_err(|unopened| of_device(unopened.error, &below))?;
        Ok(())
    }
}

impl BlockDevice for Renewed {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    forward! {
        self.layer.read() =>
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
        fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool>;
        fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()>;
        fn flush(&self) -> Result<()>;
        fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()>;
        fn discard(&self, offset: u64, length_bytes: u64) -> Result<()>;
        fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()>;
        fn copies(&self, offset: u64, length_bytes: u64) -> usize;
        fn read_copy(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<()>;
        fn ways(&self) -> usize;
        fn read_way(&self, way: usize, offset: u64, buffer: &mut [u8]) -> Result<()>;
        fn heal(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome>;
        fn resync(&self, offset: u64, length_bytes: u64, which: Resync) -> Result<()>;
        fn disagreements(&self, offset: u64, length_bytes: u64) -> Result<Vec<Range<u64>>>;
        fn describe(&self) -> String;
    }
}
