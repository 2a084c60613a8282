//! Reading the past does not slow the present (promise 8): not by a clock, which a busy machine
//! would decide, but by what is waited for and what is looked up again.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use block::{BlockDevice, MediaDevice, MemoryDevice};
use env::{FileMedia, RealClock, RealEntropy};
use hindsight_volume::{
    Budget, Machine, Pool, PoolFormat, PoolOptions, Volume, VolumeSpec, WriteOp,
};
use units::{Moment, Seq};

const BLOCK: u64 = 4096;
/// Bytes that one page of the map tells about.
const PAGE_BYTES: u64 = 512 * BLOCK;
/// Long enough for anything that does not wait for the past.
const PATIENCE: Duration = Duration::from_secs(60);

fn machine() -> Machine {
    Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) }
}

fn pool(device: Arc<dyn BlockDevice>, memory_bytes: u64) -> Arc<Pool> {
    Pool::create(&device, &machine(), &PoolFormat { zone_bytes: 1 << 20 }).expect("made");
    Pool::open(device, machine(), PoolOptions { memory_bytes }).expect("opened")
}

fn volume(pool: &Pool) -> Arc<Volume> {
    let spec = VolumeSpec { window_ns: 1 << 60, ..VolumeSpec::new("v", 1 << 40) };
    pool.create_volume(&spec).expect("made")
}

fn put(volume: &Volume, offset: u64, byte: u8) -> Seq {
    let bytes = [byte; BLOCK as usize];
    volume.write_batch(&[WriteOp::Data { offset, bytes: &bytes }]).expect("written")
}

fn get(volume: &Volume, offset: u64) -> u8 {
    let mut bytes = [0; BLOCK as usize];
    volume.read(offset, &mut bytes).expect("read");
    bytes[0]
}

#[test]
fn however_much_of_the_past_is_read_the_present_keeps_its_map_in_memory() {
    let pool = pool(Arc::new(MemoryDevice::new(1 << 30)), 8 << 20);
    let volume = volume(&pool);
    let at = put(&volume, 0, 1);
    let pages = 400;
    let look_at_all = |read: &dyn Fn(u64)| {
        let before = pool.status().page_loads;
        (0..pages).for_each(|page| read(page * PAGE_BYTES));
        pool.status().page_loads - before
    };
    let present = |offset| {
        get(&volume, offset);
    };
    // Views come first and would have all the memory there is.
    let views: Vec<_> = (0..4).map(|_| volume.view(&Moment::Seq(at)).expect("opened")).collect();
    let storm = || {
        for view in &views {
            for page in 0..4 * pages {
                let mut bytes = [0; 512];
                view.read(page * PAGE_BYTES, &mut bytes).expect("read");
            }
        }
    };
    storm();
    assert_eq!(look_at_all(&present), pages, "each is looked up once");
    assert_eq!(look_at_all(&present), 0, "and then held");
    storm();
    assert_eq!(look_at_all(&present), 0, "whatever of the past was read meanwhile");
}

/// A device whose next read, once that is asked, waits until it is let go, and says when it has
/// begun to.
fn device_that_holds_a_read(
    below: Arc<dyn BlockDevice>,
) -> (Arc<dyn BlockDevice>, Arc<AtomicBool>, Receiver<()>, Sender<()>) {
    let (begun, has_begun) = mpsc::channel();
    let (let_go, may_go) = mpsc::channel();
    let next_waits = Arc::new(AtomicBool::new(false));
    let (begun, may_go) = (Mutex::new(begun), Mutex::new(may_go));
    let device = HoldsARead { below, next_waits: Arc::clone(&next_waits), begun, may_go };
    (Arc::new(device), next_waits, has_begun, let_go)
}

struct HoldsARead {
    below: Arc<dyn BlockDevice>,
    next_waits: Arc<AtomicBool>,
    begun: Mutex<Sender<()>>,
    may_go: Mutex<Receiver<()>>,
}

impl BlockDevice for HoldsARead {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> block::Result<()> {
        if self.next_waits.swap(false, Ordering::SeqCst) {
            self.begun.lock().expect("not poisoned").send(()).expect("the test waits for it");
            let may_go = self.may_go.lock().expect("not poisoned");
            may_go.recv_timeout(PATIENCE).expect("it is let go");
        }
        self.below.read_at(offset, buffer)
    }
    fn try_read_at(&self, _offset: u64, _buffer: &mut [u8]) -> block::Result<bool> {
        Ok(false)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> block::Result<()> {
        self.below.write_at(offset, slices)
    }
    fn flush(&self) -> block::Result<()> {
        self.below.flush()
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> block::Result<()> {
        self.below.allocate(offset, length_bytes)
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> block::Result<()> {
        self.below.discard(offset, length_bytes)
    }
    fn describe(&self) -> String {
        self.below.describe()
    }
}

#[test]
fn a_read_of_the_past_that_waits_for_the_device_holds_up_nothing_of_the_present() {
    let below = Arc::new(MemoryDevice::new(1 << 30));
    let (device, next_waits, has_begun, let_go) = device_that_holds_a_read(below);
    let pool = pool(device, 8 << 20);
    let volume = volume(&pool);
    let at = put(&volume, 0, 1);
    put(&volume, 0, 2);
    put(&volume, PAGE_BYTES, 3);
    let view = volume.view(&Moment::Seq(at)).expect("opened");
    next_waits.store(true, Ordering::SeqCst);
    let past = thread::spawn(move || {
        let mut bytes = [0; BLOCK as usize];
        view.read(0, &mut bytes).expect("read");
        bytes[0]
    });
    has_begun.recv_timeout(PATIENCE).expect("the read of the past waits");
    let (done, is_done) = mpsc::channel();
    let (also_pool, also_volume) = (Arc::clone(&pool), Arc::clone(&volume));
    let present = thread::spawn(move || {
        assert_eq!((get(&also_volume, 0), get(&also_volume, PAGE_BYTES)), (2, 3));
        let last = put(&also_volume, 0, 4);
        also_volume.flush().expect("flushed");
        also_volume.create_version("").expect("captured");
        also_volume.revert(&Moment::Seq(at), false).expect("reverted");
        also_volume.revert(&Moment::Seq(last), false).expect("undone");
        while also_pool.step(Budget { bytes: 1 << 20 }).expect("stepped") {}
        assert_eq!(get(&also_volume, 0), 4);
        done.send(()).expect("the test waits for it");
    });
    let waited = is_done.recv_timeout(PATIENCE);
    let_go.send(()).expect("the read waits for it");
    assert!(waited.is_ok(), "the present waited for a read of the past");
    present.join().expect("the present went on");
    assert_eq!(past.join().expect("the past was read"), 1);
}

#[test]
fn a_page_of_the_map_that_waits_for_the_device_holds_up_no_other_and_no_write() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool.img");
    drop(FileMedia::create(&path, 64 << 20).expect("made"));
    let media = || MediaDevice::new(Arc::new(FileMedia::open(&path).expect("opened")));
    let other = 64 * PAGE_BYTES;
    {
        let pool = pool(Arc::new(media()), 8 << 20);
        let volume = volume(&pool);
        put(&volume, 0, 1);
        // More than a leaf of the map holds, so that what is looked up here is read for itself.
        let bytes = vec![2; PAGE_BYTES as usize];
        volume.write_batch(&[WriteOp::Data { offset: other, bytes: &bytes }]).expect("written");
        pool.close().expect("closed");
    }
    let (device, next_waits, has_begun, let_go) = device_that_holds_a_read(Arc::new(media()));
    let pool = Pool::open(device, machine(), PoolOptions { memory_bytes: 8 << 20 });
    let pool = pool.expect("opened");
    let volume = pool.volume("v").expect("there");
    assert_eq!(get(&volume, 0), 1);
    next_waits.store(true, Ordering::SeqCst);
    let reader = {
        let volume = Arc::clone(&volume);
        thread::spawn(move || get(&volume, other))
    };
    has_begun.recv_timeout(PATIENCE).expect("the page waits");
    let (done, is_done) = mpsc::channel();
    let writer = {
        let volume = Arc::clone(&volume);
        thread::spawn(move || {
            assert_eq!(get(&volume, 0), 1, "of a page in memory, behind the same lock");
            put(&volume, 0, 3);
            put(&volume, other + BLOCK, 4);
            assert_eq!(get(&volume, 0), 3);
            done.send(()).expect("the test waits for it");
        })
    };
    let waited = is_done.recv_timeout(PATIENCE);
    let_go.send(()).expect("the read waits for it");
    assert!(waited.is_ok(), "they waited for a page that is loaded");
    writer.join().expect("the present went on");
    assert_eq!(reader.join().expect("read"), 2);
    let loads = pool.status().page_loads;
    assert_eq!((get(&volume, other), get(&volume, other + BLOCK)), (2, 4));
    assert_eq!(pool.status().page_loads, loads, "the page stayed in memory");
}
