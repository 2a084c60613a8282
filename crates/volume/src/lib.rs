//! Pools and the volumes in them: writing, reading, the past, versions, marks, clones, reverts.
//!
//! Everything here is synchronous and thread-safe; `Pool::step` does background work and is called by the
//! server's threads or by the simulator.

use std::sync::Arc;

use block::BlockDevice;
use env::{Clock, Entropy};
use units::{Moment, Seq, WallTime};

mod error;
mod types;

pub use error::{Error, ErrorKind, Result};
pub use types::{
    Architecture, AuditRecord, Bucket, Budget, DiffPage, Event, Extent, Granularity, HistoryPage,
    Mark, PoolStatus, Range, Resolved, RevertReport, Stamp, Version, VolumeChange, VolumeCounters,
    VolumeInfo, VolumeSpec, WriteOp,
};

/// The machine under a pool: its clock and its randomness.
#[derive(Clone)]
pub struct Machine {
    /// Wall and monotonic time.
    pub clock: Arc<dyn Clock>,
    /// Random numbers.
    pub entropy: Arc<dyn Entropy>,
}

/// What is fixed when a pool is made.
#[derive(Clone, Copy, Debug)]
pub struct PoolFormat {
    /// Bytes of a zone: a power of two from 256 KiB to 32 MiB.
    pub zone_bytes: u64,
}

impl Default for PoolFormat {
    fn default() -> Self {
        PoolFormat { zone_bytes: 32 << 20 }
    }
}

/// What may differ from one opening of a pool to the next.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Bytes of memory for map pages and pending map entries together.
    pub memory_bytes: u64,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions { memory_bytes: 384 << 20 }
    }
}

/// What `Pool::rebuild` found.
#[derive(Clone, Copy, Debug, Default)]
pub struct RebuildReport {
    /// Segments read.
    pub segments: u64,
    /// Writes put back into the map.
    pub writes: u64,
    /// Bytes of log that could not be read as batches.
    pub damaged_bytes: u64,
}

/// An open pool.
pub struct Pool {}

#[allow(unused_variables, missing_docs, clippy::todo)]
impl Pool {
    /// Lays out an empty pool on `device`.
    pub fn create(
        device: &Arc<dyn BlockDevice>,
        machine: &Machine,
        format: &PoolFormat,
    ) -> Result<()> {
        todo!()
    }
    /// Opens a pool and recovers what the log's tail holds.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        machine: Machine,
        options: PoolOptions,
    ) -> Result<Arc<Pool>> {
        todo!()
    }
    /// Throws the map away and builds it again from the log; the pool must not be open.
    pub fn rebuild(device: Arc<dyn BlockDevice>, machine: Machine) -> Result<RebuildReport> {
        todo!()
    }
    /// Does some background work; true when there is more to do now.
    pub fn step(&self, budget: Budget) -> Result<bool> {
        todo!()
    }
    /// Makes everything durable. The pool refuses writes afterwards.
    pub fn close(&self) -> Result<()> {
        todo!()
    }
    /// Checks every structure against every other; for tests, the simulator and scrub.
    pub fn verify_invariants(&self) -> Result<()> {
        todo!()
    }
    pub fn status(&self) -> PoolStatus {
        todo!()
    }
    pub fn create_volume(&self, spec: &VolumeSpec) -> Result<Arc<Volume>> {
        todo!()
    }
    pub fn volume(&self, name: &str) -> Result<Arc<Volume>> {
        todo!()
    }
    /// All volumes by name.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        todo!()
    }
    pub fn delete_volume(&self, name: &str) -> Result<()> {
        todo!()
    }
    pub fn clone_volume(&self, source: &str, at: &Moment, name: &str) -> Result<Arc<Volume>> {
        todo!()
    }
    /// Records with a number above `after`, oldest first.
    pub fn audit(&self, after: u64, limit: usize) -> Result<Vec<AuditRecord>> {
        todo!()
    }
}

/// An open volume.
pub struct Volume {}

#[allow(unused_variables, missing_docs, clippy::todo)]
impl Volume {
    pub fn name(&self) -> &str {
        todo!()
    }
    pub fn size_bytes(&self) -> u64 {
        todo!()
    }
    pub fn info(&self) -> Result<VolumeInfo> {
        todo!()
    }
    /// Writes; each op gets the next seq in order. Returned means handed to the operating system.
    pub fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<Seq> {
        todo!()
    }
    /// Makes everything acknowledged before this call durable.
    pub fn flush(&self) -> Result<()> {
        todo!()
    }
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        todo!()
    }
    /// Reads if nothing has to wait for a device; `Ok(false)` means "would wait".
    pub fn try_read(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        todo!()
    }
    /// Data and holes from `offset`, joined, at most `limit` of them.
    pub fn extents(&self, offset: u64, length_bytes: u64, limit: usize) -> Result<Vec<Extent>> {
        todo!()
    }
    pub fn resolve(&self, moment: &Moment) -> Result<Resolved> {
        todo!()
    }
    /// Opens a moment read-only; the moment stays openable while the view is held.
    pub fn view(&self, moment: &Moment) -> Result<Arc<View>> {
        todo!()
    }
    /// Totals per `step_ns`, at most `limit` buckets.
    pub fn history(
        &self,
        since: Option<&Moment>,
        until: Option<&Moment>,
        step_ns: u64,
        limit: usize,
    ) -> Result<HistoryPage> {
        todo!()
    }
    pub fn revert(&self, to: &Moment, dry_run: bool) -> Result<RevertReport> {
        todo!()
    }
    pub fn create_version(&self, label: &str) -> Result<Version> {
        todo!()
    }
    pub fn versions(&self) -> Result<Vec<Version>> {
        todo!()
    }
    pub fn version(&self, number: u64) -> Result<Version> {
        todo!()
    }
    pub fn delete_version(&self, number: u64) -> Result<()> {
        todo!()
    }
    pub fn create_mark(&self, name: &str, at: &Moment, pin: bool) -> Result<Mark> {
        todo!()
    }
    pub fn marks(&self) -> Result<Vec<Mark>> {
        todo!()
    }
    pub fn delete_mark(&self, name: &str) -> Result<()> {
        todo!()
    }
    pub fn diff(&self, from: &Moment, to: &Moment, offset: u64, limit: usize) -> Result<DiffPage> {
        todo!()
    }
    pub fn resize(&self, size_bytes: u64) -> Result<()> {
        todo!()
    }
    pub fn change(&self, change: &VolumeChange) -> Result<()> {
        todo!()
    }
    /// The time now, never before the latest write.
    pub fn now(&self) -> WallTime {
        todo!()
    }
}

/// A read-only opening of a moment. Its bytes never change.
pub struct View {}

#[allow(unused_variables, missing_docs, clippy::todo)]
impl View {
    pub fn resolved(&self) -> Resolved {
        todo!()
    }
    pub fn size_bytes(&self) -> u64 {
        todo!()
    }
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        todo!()
    }
    pub fn try_read(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        todo!()
    }
    pub fn extents(&self, offset: u64, length_bytes: u64, limit: usize) -> Result<Vec<Extent>> {
        todo!()
    }
}
