//! The write buffers of this process: their memory, and the threads that write what waits.
//!
//! A process has one memory for all members that it opens, so it stands in a static. Programs that
//! only open a pool give it no threads: they put what a killed server left in its place, and no
//! more.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use block::{BufferStatus, Found, WriteBuffers};
use env::{FileMedia, Media, RealEntropy, Tmpfs};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::StartError;
use crate::prometheus::tell;

/// Where the memory is.
const DIR: &str = "/dev/shm";
/// A tmpfs that is smaller belongs to a container that was given none, and goes with it.
const TMPFS_BYTES_MIN: u64 = 256 << 20;
/// The default is this part of the memory that the process may have, within bounds.
const PART_OF_MEMORY: u64 = 16;
const BYTES_MIN: u64 = 64 << 20;
const BYTES_MAX: u64 = 1 << 30;
/// Threads that write what waits.
const THREADS: usize = 2;
/// So often it is looked for what has waited long.
const TICK: Duration = Duration::from_millis(100);
/// So often while nothing waits.
const IDLE: Duration = Duration::from_secs(1);

static BUFFERS: LazyLock<WriteBuffers> = LazyLock::new(|| {
    WriteBuffers::new(Box::new(Tmpfs::new(Path::new(DIR))), Box::new(RealEntropy::default()))
});

/// Opens a file or disk; what a server that was killed left to be written is there then.
///
/// # Errors
/// As [`FileMedia::open`]; when what was left cannot be read or not be written.
pub(crate) fn media_at(path: &Path) -> io::Result<Arc<dyn Media>> {
    let media = BUFFERS.over(Arc::new(FileMedia::open(path)?))?;
    let member = path.display();
    match media.found() {
        Found::Nothing => {}
        Found::Written(bytes) => {
            let text = "the server was killed; what waited in memory is in its place";
            tracing::info!(%member, bytes, "{text}");
        }
        Found::Restarted => {
            let text = "the machine stopped, or the pool was moved, under a server that was not \
                        stopped: what was not flushed then is gone";
            tracing::warn!(%member, "{text}");
        }
        Found::Lost(why) => {
            let text = "the server was killed, and what was not flushed then is lost";
            tracing::error!(%member, why, "{text}");
        }
    }
    Ok(media)
}

/// A scrub begins: it reads files and disks, not what memory says that they have.
pub(crate) fn forget_clean() {
    BUFFERS.forget_clean();
}

/// How the write buffers stand.
pub(crate) fn status() -> Vec<BufferStatus> {
    BUFFERS.status()
}

/// Tells Prometheus how the write buffers of all members together stand.
#[derive(Debug)]
pub(crate) struct WriteBufferCollector;

impl Collector for WriteBufferCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = BUFFERS.status();
        let sum = |value: fn(&BufferStatus) -> u64| all.iter().map(value).sum::<u64>();
        for (name, help, value) in [
            (
                "members",
                "Members whose writes wait in a write buffer",
                sum(|one| u64::from(one.is_used)),
            ),
            ("bytes", "Memory of the write buffers", sum(|one| one.slots_bytes)),
            (
                "waiting_bytes",
                "Memory of write buffers in which something waits to be written",
                sum(|one| one.waiting_bytes),
            ),
        ] {
            let name = format!("hindsight_write_buffer_{name}");
            tell(&mut encoder, (&name, help), ConstGauge::new(value))?;
        }
        for (name, help, value) in [
            ("taken", "Bytes that were put into write buffers", sum(|one| one.buffered_bytes)),
            ("written", "Bytes that were written from write buffers", sum(|one| one.written_bytes)),
            (
                "passed",
                "Bytes that found a write buffer full and went to the page cache",
                sum(|one| one.passed_by_bytes),
            ),
        ] {
            let name = format!("hindsight_write_buffer_{name}_bytes");
            tell(&mut encoder, (&name, help), ConstCounter::new(value))?;
        }
        Ok(())
    }
}

/// The bytes of memory where none are set, and 0 with why if there can be none.
fn default_bytes() -> Result<u64, String> {
    let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    write_memory_default(memory_bytes(&cgroup))
}

/// The bytes of write buffers by themselves, of a process that may have so much memory.
///
/// # Errors
/// Why there can be none.
pub fn write_memory_default(memory_bytes: u64) -> Result<u64, String> {
    let found = rustix::fs::statvfs(DIR).map_err(|e| format!("{DIR}: {e}"))?;
    let tmpfs_bytes = found.f_blocks.saturating_mul(found.f_frsize);
    if tmpfs_bytes < TMPFS_BYTES_MIN {
        return Err(format!("{DIR} has only {tmpfs_bytes} bytes"));
    }
    Ok((memory_bytes / PART_OF_MEMORY).clamp(BYTES_MIN, BYTES_MAX).min(tmpfs_bytes / 2))
}

/// The memory of the machine, or less if a process may have less whose /proc/PID/cgroup that is.
#[must_use]
pub fn memory_bytes(cgroup: &str) -> u64 {
    let info = rustix::system::sysinfo();
    let machine = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    // A limit of any cgroup above holds as well.
    let own = cgroup.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let own = Path::new("/sys/fs/cgroup").join(own.trim_start_matches('/'));
    let limit = |dir: &Path| -> Option<u64> {
        std::fs::read_to_string(dir.join("memory.max")).ok()?.trim().parse().ok()
    };
    own.ancestors().filter_map(limit).fold(machine, u64::min)
}

/// The threads that write what waits; ended when this is dropped.
pub(crate) struct Writing {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Writing {
    /// Gives the buffers memory, and starts the threads.
    pub(crate) fn start(bytes: Option<u64>) -> Result<Writing, StartError> {
        let bytes = bytes.map_or_else(default_bytes, Ok).unwrap_or_else(|why| {
            tracing::info!(why, "writes go to the page cache: there is no write buffer");
            0
        });
        BUFFERS.set_memory_bytes(bytes);
        let stop = Arc::new(AtomicBool::new(false));
        let mut writing = Writing { stop, threads: Vec::new() };
        if bytes == 0 {
            return Ok(writing);
        }
        Tmpfs::new(Path::new(DIR)).trim();
        for number in 0..THREADS {
            let stop = Arc::clone(&writing.stop);
            let thread = std::thread::Builder::new()
                .name(format!("write-{number}"))
                .spawn(move || run(number == 0, &stop));
            match thread {
                Ok(thread) => writing.threads.push(thread),
                Err(e) => return Err(StartError::Thread(e)),
            }
        }
        Ok(writing)
    }
}

impl Drop for Writing {
    /// Ends the threads. The rest is written when its media are closed.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            BUFFERS.wake();
            if thread.join().is_err() {
                tracing::error!("a thread that writes what waits panicked");
            }
        }
    }
}

fn run(ticks: bool, stop: &AtomicBool) {
    let mut ticked: Option<Instant> = None;
    let mut waits = true;
    while !stop.load(Ordering::Acquire) {
        let mut has_done = BUFFERS.write_some();
        if ticks {
            if ticked.is_none_or(|ticked| ticked.elapsed() >= TICK) {
                ticked = Some(Instant::now());
                waits = BUFFERS.tick();
            }
            has_done |= BUFFERS.grow();
        }
        if !has_done {
            BUFFERS.wait(if ticks && waits { TICK } else { IDLE });
            waits = true;
        }
    }
}
