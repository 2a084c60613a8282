//! A device on which a test can act in the middle of a request, and what the tests over it share.

use std::io::IoSlice;
use std::sync::Arc;

use block::stack::Stack;
use block::{Array, BlockDevice, Candidate, Identities, Materials, MediaDevice, Operation};
use env::NoFiles;
use hindsight_volume::{
    Granularity, Machine, Pool, PoolFormat, PoolOptions, Volume, VolumeSpec, WriteOp,
};
use parking_lot::Mutex;
use sim::{Keep, SimClock, SimEntropy, SimMedia};
use units::WallTime;

/// One second in nanoseconds.
pub const SECOND_NS: u64 = 1_000_000_000;

type Act = Arc<dyn Fn(Operation, u64) + Send + Sync>;

/// Calls what it was told to before each request, with the operation and its offset.
pub struct HookDevice {
    below: MediaDevice,
    act: Mutex<Option<Act>>,
}

impl HookDevice {
    /// From now on `act` is called before each request.
    pub fn hook(&self, act: impl Fn(Operation, u64) + Send + Sync + 'static) {
        *self.act.lock() = Some(Arc::new(act));
    }

    /// Nothing is called any more.
    pub fn unhook(&self) {
        *self.act.lock() = None;
    }

    fn meet(&self, operation: Operation, offset: u64) {
        let act = self.act.lock().clone();
        if let Some(act) = act {
            act(operation, offset);
        }
    }
}

/// Empty media behind hooks, and a pool with zones of a MiB on a stack whose members they are.
pub fn members(stack: &str, media_bytes: u64) -> (Vec<Arc<HookDevice>>, Arc<Pool>) {
    let stack: Stack = stack.parse().expect("a stack");
    let paths: Vec<String> = stack.members().into_iter().map(str::to_owned).collect();
    let hooked = |seed| {
        let below = MediaDevice::new(Arc::new(SimMedia::new(media_bytes, seed)));
        Arc::new(HookDevice { below, act: Mutex::new(None) })
    };
    let devices: Vec<Arc<HookDevice>> = (0..paths.len() as u64).map(hooked).collect();
    let candidates = || {
        let of = |(path, device): (&String, &Arc<HookDevice>)| Candidate {
            path: path.clone(),
            device: Some(Arc::clone(device) as _),
        };
        paths.iter().zip(&devices).map(of).collect()
    };
    let mut id = 0;
    let random = &mut || {
        id += 1;
        id
    };
    let identities = Identities { random, now: WallTime::from_nanos(1) };
    Array::create(&stack, candidates(), identities, &Materials::none()).expect("labels");
    let open = || Array::open(candidates(), &Materials::none()).expect("all are there");
    let clock = Arc::new(SimClock::new(WallTime::from_nanos(1_795_255_200 * SECOND_NS)));
    let machine = Machine { clock, entropy: Arc::new(SimEntropy::new(1)) };
    let device: Arc<dyn BlockDevice> = Arc::new(open());
    Pool::create(&device, &machine, &PoolFormat { zone_bytes: 1 << 20 }).expect("made");
    drop(device);
    let options = PoolOptions { memory_bytes: 16 << 20 };
    let pool =
        Pool::open_array(open(), machine, options, Arc::new(NoFiles), &mut |_| ()).expect("opened");
    (devices, pool)
}

impl BlockDevice for HookDevice {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> block::Result<()> {
        self.meet(Operation::Read, offset);
        self.below.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> block::Result<()> {
        self.meet(Operation::Write, offset);
        self.below.write_at(offset, slices)
    }
    fn flush(&self) -> block::Result<()> {
        self.meet(Operation::Flush, 0);
        self.below.flush()
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> block::Result<()> {
        self.meet(Operation::Allocate, offset);
        self.below.allocate(offset, length_bytes)
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> block::Result<()> {
        self.below.discard(offset, length_bytes)
    }
    fn describe(&self) -> String {
        self.below.describe()
    }
}

/// A pool on simulated media behind a hook.
pub struct Rig {
    pub media: Arc<SimMedia>,
    pub clock: Arc<SimClock>,
    pub device: Arc<HookDevice>,
    machine: Machine,
}

impl Rig {
    /// An empty pool with zones of so many bytes.
    pub fn new(media_bytes: u64, zone_bytes: u64) -> Rig {
        let media = Arc::new(SimMedia::new(media_bytes, 1));
        let clock = Arc::new(SimClock::new(WallTime::from_nanos(1_795_255_200 * SECOND_NS)));
        let machine =
            Machine { clock: Arc::clone(&clock) as _, entropy: Arc::new(SimEntropy::new(1)) };
        let below = MediaDevice::new(Arc::clone(&media) as _);
        let device = Arc::new(HookDevice { below, act: Mutex::new(None) });
        let rig = Rig { media, clock, device, machine };
        let device: Arc<dyn BlockDevice> = Arc::clone(&rig.device) as _;
        Pool::create(&device, &rig.machine, &PoolFormat { zone_bytes }).expect("made");
        rig
    }

    /// Opens the pool with as little memory as there can be.
    pub fn open(&self) -> Arc<Pool> {
        self.open_with(0)
    }

    /// Opens the pool with so much memory.
    pub fn open_with(&self, memory_bytes: u64) -> Arc<Pool> {
        self.try_open(memory_bytes).expect("opened")
    }

    /// Opens the pool, if it can be.
    pub fn try_open(&self, memory_bytes: u64) -> hindsight_volume::Result<Arc<Pool>> {
        let options = PoolOptions { memory_bytes };
        Pool::open(Arc::clone(&self.device) as _, self.machine.clone(), options)
    }

    /// What the clock says, in nanoseconds since 1970.
    pub fn clock_now(&self) -> u64 {
        env::Clock::wall(&*self.clock).as_nanos()
    }

    /// Ends the process that had the pool open, and opens the pool again.
    pub fn kill(&self, pool: Arc<Pool>) -> Arc<Pool> {
        self.device.unhook();
        self.media.halt_now();
        drop(pool);
        self.media.kill();
        self.open()
    }

    /// Cuts the power, which takes all that was not synced, and opens the pool again.
    pub fn cut_power(&self, pool: Arc<Pool>) -> Arc<Pool> {
        self.device.unhook();
        self.media.halt_now();
        drop(pool);
        self.media.crash_with(&mut |_, _| Keep::Nothing);
        self.open()
    }
}

/// Makes a volume `v` of 8 MiB.
pub fn make(pool: &Pool, granularity: Granularity, window_ns: u64) -> Arc<Volume> {
    let spec = VolumeSpec { granularity, window_ns, ..VolumeSpec::new("v", 8 << 20) };
    pool.create_volume(&spec).expect("made")
}

/// Writes whole blocks that all hold one byte.
pub fn put(volume: &Volume, block: u64, byte: u8) -> units::Seq {
    let op = WriteOp::Data { offset: block * 4096, bytes: &[byte; 4096] };
    volume.write_batch(&[op]).expect("written")
}

/// The byte that a block is full of.
pub fn get(volume: &Volume, block: u64) -> u8 {
    let mut bytes = [0xee; 4096];
    volume.read(block * 4096, &mut bytes).expect("read");
    assert!(bytes.iter().all(|b| *b == bytes[0]), "block {block} is of one byte");
    bytes[0]
}
