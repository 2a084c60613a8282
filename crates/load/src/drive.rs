//! Requests kept in flight: as many threads as there are to be requests, each of which makes one
//! after the other. What is next is one sequence for all of them, as with one worker of Iometer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use block::BlockDevice;
use lab::times::Times;
use parking_lot::Mutex;
use trace::{Request, RequestKind, Source};
use volume::{Volume, WriteOp};

use crate::{LoadError, Result};

/// The longest request; longer ones are refused.
const REQUEST_BYTES_MAX: usize = 1 << 20;
const BLOCK_BYTES: usize = 4096;
/// Devices of a workload, at most.
pub const DEVICES_MAX: usize = 2;

/// How often it is looked whether something failed.
const LOOK: Duration = Duration::from_millis(20);

/// Phases of a run.
const WARMING: u8 = 0;
const MEASURED: u8 = 1;
const OVER: u8 = 2;

/// What requests go to.
pub trait Target: Send + Sync {
    /// Fills `buffer`.
    ///
    /// # Errors
    /// Those of the volume or device.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
    /// Writes `bytes`.
    ///
    /// # Errors
    /// Those of the volume or device.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Makes durable what was written.
    ///
    /// # Errors
    /// Those of the volume or device.
    fn flush(&self) -> Result<()>;
}

impl Target for Volume {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        // The volume's own, which it has from a storey below it.
        Ok((**self).read(offset, buffer)?)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.write_batch(&[WriteOp::Data { offset, bytes }]).map(drop)?)
    }

    fn flush(&self) -> Result<()> {
        Ok((**self).flush()?)
    }
}

/// A part of a device.
pub struct Part {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// Where it begins.
    pub begin: u64,
}

impl Target for Part {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        Ok(self.device.read_at(self.begin + offset, buffer)?)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.device.write_at(self.begin + offset, &[std::io::IoSlice::new(bytes)])?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.device.flush()?)
    }
}

/// How it is driven.
#[derive(Clone, Copy, Debug)]
pub struct DriveSettings {
    /// Requests in flight.
    pub depth: usize,
    /// How long it runs before it is measured.
    pub warm_up: Duration,
    /// How long it is measured, and longer until a request has ended; `None` is until the source
    /// ends, without a warm-up.
    pub time: Option<Duration>,
}

/// Requests to one device of the workload.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceCounts {
    /// Reads that ended.
    pub reads: u64,
    /// Writes that ended.
    pub writes: u64,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Driven {
    /// How long it was measured.
    pub seconds: f64,
    /// By device of the workload.
    pub devices: [DeviceCounts; DEVICES_MAX],
    /// Bytes of all requests.
    pub bytes: u64,
    /// Blocks of 4 KiB that they touched.
    pub blocks: u64,
    /// How long they took.
    pub times: Times,
}

impl Driven {
    fn of(tallies: &[Tally], seconds: f64) -> Driven {
        let mut driven = Driven {
            seconds,
            devices: Default::default(),
            bytes: 0,
            blocks: 0,
            times: Times::new(),
        };
        for tally in tallies {
            for (sum, one) in driven.devices.iter_mut().zip(tally.devices) {
                sum.reads += one.reads;
                sum.writes += one.writes;
            }
            driven.bytes += tally.bytes;
            driven.blocks += tally.blocks;
            driven.times.merge(&tally.times);
        }
        driven
    }

    /// Requests that ended.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.times.count()
    }
}

/// What a thread counted.
struct Tally {
    devices: [DeviceCounts; DEVICES_MAX],
    bytes: u64,
    blocks: u64,
    times: Times,
}

struct Shared<'a> {
    source: Mutex<&'a mut (dyn Source + Send)>,
    phase: AtomicU8,
    /// Whether one ended while it was measured.
    has_any: AtomicBool,
    failed: Mutex<Option<LoadError>>,
}

impl Shared<'_> {
    fn next(&self) -> Result<Option<Request>> {
        Ok(self.source.lock().next()?)
    }

    fn fail(&self, error: LoadError) {
        self.failed.lock().get_or_insert(error);
        self.phase.store(OVER, Ordering::Release);
    }

    fn is_over(&self) -> bool {
        self.phase.load(Ordering::Acquire) == OVER
    }

    /// Sleeps, but not after something failed.
    fn wait(&self, time: Duration) {
        let began = Instant::now();
        while !self.is_over() {
            match time.checked_sub(began.elapsed()) {
                None | Some(Duration::ZERO) => return,
                Some(left) => std::thread::sleep(left.min(LOOK)),
            }
        }
    }
}

/// Keeps requests in flight. `begins` and `ends` are called when what is measured does.
///
/// # Errors
/// The first of a request's.
pub fn drive(
    targets: &[Arc<dyn Target>],
    source: &mut (dyn Source + Send),
    settings: DriveSettings,
    begins: &mut dyn FnMut(),
    ends: &mut dyn FnMut(),
) -> Result<Driven> {
    let begin = if settings.time.is_some() { WARMING } else { MEASURED };
    let shared = Shared {
        source: Mutex::new(source),
        phase: AtomicU8::new(begin),
        has_any: AtomicBool::new(false),
        failed: Mutex::new(None),
    };
    let (tallies, seconds) = std::thread::scope(|scope| {
        if begin == MEASURED {
            begins();
        }
        let mut began = Instant::now();
        let workers: Vec<_> =
            (0..settings.depth).map(|_| scope.spawn(|| work(&shared, targets))).collect();
        let mut stopped = None;
        if let Some(time) = settings.time {
            shared.wait(settings.warm_up);
            begins();
            began = Instant::now();
            _ = shared.phase.compare_exchange(
                WARMING,
                MEASURED,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            shared.wait(time);
            // However slow the machine is, something is measured.
            while !shared.has_any.load(Ordering::Acquire) && !shared.is_over() {
                shared.wait(LOOK);
            }
            shared.phase.store(OVER, Ordering::Release);
            stopped = Some(began.elapsed());
            ends();
        }
        let tallies: Vec<Option<Tally>> = workers.into_iter().map(|w| w.join().ok()).collect();
        let took = stopped.unwrap_or_else(|| {
            let took = began.elapsed();
            ends();
            took
        });
        (tallies, took.as_secs_f64())
    });
    if let Some(error) = shared.failed.into_inner() {
        return Err(error);
    }
    let whole: Option<Vec<Tally>> = tallies.into_iter().collect();
    let Some(tallies) = whole else {
        return Err(LoadError::Unexpected("a thread that sends requests panicked".to_owned()));
    };
    Ok(Driven::of(&tallies, seconds))
}

/// Bytes that do not compress and differ from block to block.
fn payload() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(REQUEST_BYTES_MAX);
    while bytes.len() < REQUEST_BYTES_MAX {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend((state ^ state >> 29).to_le_bytes());
    }
    bytes
}

/// One request after the other until it is over.
fn work(shared: &Shared<'_>, targets: &[Arc<dyn Target>]) -> Tally {
    let mut tally = Tally { devices: Default::default(), bytes: 0, blocks: 0, times: Times::new() };
    let (mut written, mut read) = (payload(), vec![0; REQUEST_BYTES_MAX]);
    let mut stamp = 0_u64;
    while !shared.is_over() {
        let request = match shared.next() {
            Ok(Some(request)) => request,
            Ok(None) => {
                // There is nothing to wait for.
                shared.has_any.store(true, Ordering::Release);
                break;
            }
            Err(error) => {
                shared.fail(error);
                break;
            }
        };
        stamp = stamp.wrapping_add(1);
        let length = request.length_bytes as usize;
        if request.kind == RequestKind::Write && length <= REQUEST_BYTES_MAX {
            // No two writes are alike, block by block.
            for block in written[..length].chunks_mut(BLOCK_BYTES) {
                let mark = (stamp ^ request.offset_bytes << 20).to_le_bytes();
                let end = block.len().min(mark.len());
                block[..end].copy_from_slice(&mark[..end]);
            }
        }
        let began = Instant::now();
        if let Err(error) = serve(targets, &request, &written, &mut read) {
            shared.fail(error);
            break;
        }
        if shared.phase.load(Ordering::Acquire) == MEASURED {
            tally.add(&request, began.elapsed());
            shared.has_any.store(true, Ordering::Release);
        }
    }
    tally
}

impl Tally {
    fn add(&mut self, request: &Request, took: Duration) {
        let blocks = request.end_bytes().div_ceil(BLOCK_BYTES as u64)
            - request.offset_bytes / BLOCK_BYTES as u64;
        self.times.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        self.bytes += request.length_bytes;
        self.blocks += blocks;
        let device = &mut self.devices[request.device as usize];
        match request.kind {
            RequestKind::Read => device.reads += 1,
            _ => device.writes += 1,
        }
    }
}

fn serve(
    targets: &[Arc<dyn Target>],
    request: &Request,
    written: &[u8],
    read: &mut [u8],
) -> Result<()> {
    let length = request.length_bytes as usize;
    let target = targets.get(request.device as usize).filter(|_| length <= REQUEST_BYTES_MAX);
    let Some(target) = target else {
        return Err(LoadError::Unexpected(format!("no such request can be made: {request:?}")));
    };
    match request.kind {
        RequestKind::Read => target.read(request.offset_bytes, &mut read[..length])?,
        RequestKind::Write => target.write(request.offset_bytes, &written[..length])?,
        other => {
            return Err(LoadError::Unexpected(format!("no {} is made here", other.name())));
        }
    }
    // A write that is to be durable is so when it is answered.
    if request.is_fua { target.flush() } else { Ok(()) }
}
