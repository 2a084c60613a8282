//! Exports in memory that can be told to be cold, slow or broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use units::Seq;
use volume::{
    Access, Error, ErrorKind, Extent, InitiatorPort, Lack, Reservations, Result, RoomWait,
    TargetInfo, WriteOp, Written,
};

use crate::attach::{Part, VolumeId};
use crate::serving::{Changes, Export, Exports, Listed, OpenError, Stretch};

/// Bytes of every memory export to begin with.
pub(crate) const SIZE: u64 = 64 << 20;
/// The number of the disk in memory, and of the first volume of a pool.
pub(crate) const DISK: VolumeId = 1;
const BLOCK: usize = 4096;

/// The number of the volume `other`.
pub(crate) const OTHER: VolumeId = 2;

/// A disk in memory, `disk`, and the read-only `disk@past`; the units of targets may be `other` as
/// well.
#[derive(Default)]
pub(crate) struct MemoryExports {
    pub(crate) disk: Arc<Disk>,
    pub(crate) other: Arc<Disk>,
    pub(crate) made: Arc<Mutex<Vec<TargetInfo>>>,
}

/// The state of the disk.
pub(crate) struct Disk {
    pub(crate) bytes: Mutex<Vec<u8>>,
    pub(crate) flushes: AtomicU64,
    pub(crate) batches: AtomicU64,
    /// Every read is a job, which has to wait for the gate.
    pub(crate) is_cold: AtomicBool,
    /// It has not to wait for that.
    pub(crate) reads_pass_gate: AtomicBool,
    /// Writes and flushes fail with this.
    pub(crate) failure: Mutex<Option<ErrorKind>>,
    /// Closed: cold reads, flushes and resizes wait.
    gate_is_closed: Mutex<bool>,
    gate: Condvar,
    /// Those of them that wait at the gate.
    pub(crate) waiting: AtomicU64,
    /// Bytes that can be written before there is no room.
    room: Mutex<u64>,
    has_room: Condvar,
    /// Writes that wait for room on a thread.
    pub(crate) waiting_for_room: AtomicU64,
    /// Writes are ahead of the map, and wait for it.
    pub(crate) is_ahead: AtomicBool,
    /// The access to it over iSCSI.
    pub(crate) access: Mutex<Access>,
    /// How often it was reverted.
    pub(crate) reverts: AtomicU64,
    /// The persistent reservations that are kept.
    pub(crate) kept: Mutex<Reservations>,
}

impl Default for Disk {
    fn default() -> Disk {
        Disk {
            bytes: Mutex::new(vec![0; SIZE as usize]),
            flushes: AtomicU64::default(),
            batches: AtomicU64::default(),
            is_cold: AtomicBool::default(),
            reads_pass_gate: AtomicBool::default(),
            failure: Mutex::default(),
            gate_is_closed: Mutex::default(),
            gate: Condvar::new(),
            waiting: AtomicU64::default(),
            room: Mutex::new(u64::MAX),
            has_room: Condvar::new(),
            waiting_for_room: AtomicU64::default(),
            is_ahead: AtomicBool::default(),
            access: Mutex::default(),
            reverts: AtomicU64::default(),
            kept: Mutex::default(),
        }
    }
}

impl Disk {
    pub(crate) fn close_gate(&self) {
        *self.gate_is_closed.lock() = true;
    }

    pub(crate) fn open_gate(&self) {
        *self.gate_is_closed.lock() = false;
        self.gate.notify_all();
    }

    /// So many bytes can be written from now on.
    pub(crate) fn set_room(&self, bytes: u64) {
        *self.room.lock() = bytes;
        self.has_room.notify_all();
    }

    fn wait_for_room(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        self.waiting_for_room.fetch_add(1, Ordering::SeqCst);
        let mut room = self.room.lock();
        while *room == 0 && goes_on() {
            self.has_room.wait_for(&mut room, Duration::from_millis(1));
        }
        self.waiting_for_room.fetch_sub(1, Ordering::SeqCst);
        match *room {
            0 => Err(Error::new(ErrorKind::Full, "given up")),
            _ => self.check(),
        }
    }

    fn pass_gate(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut is_closed = self.gate_is_closed.lock();
        while *is_closed {
            // A test that failed shall not leave threads behind for ever.
            if self.gate.wait_for(&mut is_closed, Duration::from_secs(30)).timed_out() {
                break;
            }
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn check(&self) -> Result<()> {
        match self.failure.lock().clone() {
            Some(kind) => Err(Error::new(kind, "told to fail")),
            None => Ok(()),
        }
    }
}

impl Exports for MemoryExports {
    fn open(&self, name: &str) -> std::result::Result<Arc<dyn Export>, OpenError> {
        let disk = Arc::clone(&self.disk);
        match name {
            "" | "disk" => Ok(Arc::new(Memory { disk, is_past: false, volume: DISK })),
            "disk@past" => Ok(Arc::new(Memory { disk, is_past: true, volume: DISK })),
            other => Err(OpenError::new(format!("no volume `{other}`; try disk"))),
        }
    }

    fn presents(&self) -> Vec<Arc<dyn Export>> {
        vec![Arc::new(Memory { disk: Arc::clone(&self.disk), is_past: false, volume: DISK })]
    }

    fn open_unit(
        &self,
        volume: VolumeId,
        moment: Option<Seq>,
    ) -> std::result::Result<Arc<dyn Export>, OpenError> {
        let disk = match volume {
            DISK => Arc::clone(&self.disk),
            OTHER => Arc::clone(&self.other),
            _ => return Err(OpenError::new("it was deleted")),
        };
        Ok(Arc::new(Memory { disk, is_past: moment.is_some(), volume }))
    }

    fn targets(&self) -> Vec<TargetInfo> {
        self.made.lock().clone()
    }

    fn target(&self, name: &str) -> Option<TargetInfo> {
        self.targets().into_iter().find(|target| target.name == name)
    }

    fn targets_after(&self, name: &str, limit: usize) -> Vec<(String, Access)> {
        let presents = self.presents();
        let presents = presents.iter().map(|export| (export.name().to_owned(), export.access()));
        let made = self.targets().into_iter().map(|made| (made.name, made.access));
        let mut all: Vec<_> = made.chain(presents).filter(|(other, _)| &**other > name).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all.truncate(limit);
        all
    }

    fn list(&self, limit: usize) -> Vec<Listed> {
        ["disk", "disk@past"]
            .iter()
            .take(limit)
            .map(|&name| Listed { name: name.to_owned(), description: format!("it is {name}") })
            .collect()
    }
}

struct Memory {
    disk: Arc<Disk>,
    is_past: bool,
    volume: VolumeId,
}

fn range(offset: u64, length: usize) -> std::ops::Range<usize> {
    offset as usize..offset as usize + length
}

impl Export for Memory {
    fn name(&self) -> &str {
        match (self.volume, self.is_past) {
            (OTHER, _) => "other",
            (_, true) => "disk@past",
            (_, false) => "disk",
        }
    }

    fn description(&self) -> String {
        format!("it is {}", self.name())
    }

    fn part_of(&self) -> (VolumeId, Part) {
        (self.volume, if self.is_past { Part::Past } else { Part::Present })
    }

    fn is_served(&self) -> bool {
        true
    }

    fn access(&self) -> Access {
        self.disk.access.lock().clone()
    }

    fn moment(&self) -> Option<Seq> {
        self.is_past.then_some(Seq(5))
    }

    fn reservations(&self) -> Option<Reservations> {
        (!self.is_past).then(|| self.disk.kept.lock().clone())
    }

    fn keep_reservations(&self, kept: &Reservations, _: &InitiatorPort) -> Result<()> {
        self.disk.pass_gate();
        self.disk.check()?;
        *self.disk.kept.lock() = kept.clone();
        Ok(())
    }

    fn last_rewrite(&self) -> Option<Seq> {
        (!self.is_past).then(|| Seq(self.disk.reverts.load(Ordering::SeqCst)))
    }

    fn size_bytes(&self) -> u64 {
        self.disk.bytes.lock().len() as u64
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if !self.disk.reads_pass_gate.load(Ordering::SeqCst) {
            self.disk.pass_gate();
        }
        let bytes = self.disk.bytes.lock();
        buffer.copy_from_slice(&bytes[range(offset, buffer.len())]);
        Ok(())
    }

    fn try_read(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        if self.disk.is_cold.load(Ordering::SeqCst) {
            buffer.fill(0xee);
            return Ok(false);
        }
        let bytes = self.disk.bytes.lock();
        buffer.copy_from_slice(&bytes[range(offset, buffer.len())]);
        Ok(true)
    }

    fn write_some(&self, ops: &[WriteOp<'_>], done: u64, _: bool) -> Result<Written> {
        assert!(!self.is_past, "the session lets no write through to the past");
        self.disk.check()?;
        self.disk.batches.fetch_add(1, Ordering::SeqCst);
        let mut room = self.disk.room.lock();
        let mut all = self.disk.bytes.lock();
        let (mut skip, mut bytes) = (done, done);
        for op in ops {
            let (offset, length) = match *op {
                WriteOp::Data { offset, bytes } => (offset, bytes.len() as u64),
                WriteOp::Zero { offset, length_bytes } => (offset, length_bytes),
            };
            let skipped = skip.min(length);
            let part = (length - skipped).min(*room);
            let there = &mut all[range(offset + skipped, part as usize)];
            match *op {
                WriteOp::Data { bytes, .. } => {
                    there.copy_from_slice(&bytes[range(skipped, part as usize)]);
                }
                WriteOp::Zero { .. } => there.fill(0),
            }
            skip -= skipped;
            bytes += part;
            *room -= part;
            if skipped + part < length {
                return Ok(Written::Part { bytes, lacks: Lack::Room });
            }
        }
        // Once, as the engine does.
        if done < bytes && self.disk.is_ahead.load(Ordering::SeqCst) {
            return Ok(Written::Part { bytes, lacks: Lack::Map });
        }
        Ok(Written::All)
    }

    fn wait_for(&self, lack: Lack, _: &mut RoomWait, goes_on: &dyn Fn() -> bool) -> Result<()> {
        match lack {
            Lack::Room => self.disk.wait_for_room(goes_on),
            Lack::Map => {
                self.disk.pass_gate();
                Ok(())
            }
            Lack::Turn => panic!("that is never lacking"),
        }
    }

    fn flush(&self, _: &dyn Fn() -> bool) -> Result<()> {
        self.disk.pass_gate();
        self.disk.check()?;
        self.disk.flushes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn extents(&self, offset: u64, length_bytes: u64, limit: usize) -> Result<Vec<Extent>> {
        let bytes = self.disk.bytes.lock();
        let mut extents: Vec<Extent> = Vec::new();
        let (mut at, end) = (offset, offset + length_bytes);
        while at < end {
            let next = (at / BLOCK as u64 + 1) * BLOCK as u64;
            let next = next.min(end);
            let hole = bytes[range(at, (next - at) as usize)].iter().all(|&b| b == 0);
            let is_full = extents.len() == limit;
            match extents.last_mut() {
                Some(last) if last.hole == hole => last.length_bytes += next - at,
                _ if is_full => break,
                _ => extents.push(Extent { offset: at, length_bytes: next - at, hole }),
            }
            at = next;
        }
        Ok(extents)
    }

    fn resize(&self, size_bytes: u64, _: bool) -> Result<()> {
        self.disk.pass_gate();
        if size_bytes > 1 << 30 {
            return Err(Error::new(ErrorKind::Full, "more than there is"));
        }
        self.disk.bytes.lock().resize(size_bytes as usize, 0);
        Ok(())
    }

    fn changes_since(&self, moment: &str) -> std::result::Result<Arc<dyn Changes>, OpenError> {
        match moment {
            "v:0" => Ok(Arc::new(FirstBlock)),
            other => Err(OpenError::new(format!("{other} is outside the window; from v:0"))),
        }
    }
}

/// The first block differs, and nothing else.
struct FirstBlock;

impl Changes for FirstBlock {
    fn extents(&self, offset: u64, length_bytes: u64, _: usize) -> Result<Vec<Stretch>> {
        let changed = (BLOCK as u64).saturating_sub(offset).min(length_bytes);
        let all = [
            Stretch { length_bytes: changed, differs: true },
            Stretch { length_bytes: length_bytes - changed, differs: false },
        ];
        Ok(all.into_iter().filter(|s| s.length_bytes > 0).collect())
    }
}
