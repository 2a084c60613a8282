//! What is driven: a stack of layers over files, or a pool on one, with volumes and what runs
//! beside them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::stack::Stack;
use block::{Array, BlockDevice, Candidate, Identities, Materials, MediaDevice};
use env::{Clock, Entropy, FileMedia, NoFiles, RealEntropy};
use lab::experiment::darc::Layout;
use units::{Span, Timing};
use volume::{
    Granularity, KeepRules, Machine, Pool, PoolFormat, PoolOptions, ScheduleSpec, Volume,
    VolumeSpec,
};

use crate::background::{Background, Work};
use crate::checked::CheckedDevice;
use crate::clock::AheadClock;
use crate::counted::{CountedDevice, Counters};
use crate::drive::{Part, Target};
use crate::{LoadError, Result, machine};

/// A pool has so many zones or fewer, as the server makes them.
const ZONES_WANTED: u64 = 256;
const ZONE_BYTES_MIN: u64 = 1 << 20;
/// How far back the past of a volume can be opened: longer than any measurement.
const WINDOW_NS: u64 = 86_400_000_000_000;

/// What is made.
#[derive(Clone, Debug)]
pub struct RigSettings {
    /// An empty or missing directory for the members.
    pub dir: PathBuf,
    /// The stack; its leaves are names of files in the directory.
    pub stack: String,
    /// Bytes of each member.
    pub member_bytes: u64,
    /// Whether a [`CheckedDevice`] lies over the stack; none does under a pool.
    pub is_checked: bool,
    /// What lies on the stack: names and bytes of volumes, or of parts of the stack itself.
    pub volumes: Vec<(&'static str, u64)>,
    /// Whether there is a pool.
    pub has_pool: bool,
    /// How often the first volume's schedule captures a version; the one before is then pruned.
    pub versions_every: Option<Span>,
    /// Memory of the pool.
    pub memory_bytes: u64,
}

/// The text of a stack over members `m0`, `m1` and so on; 64 KiB chunks are the default, and
/// DARC's.
#[must_use]
pub fn stack_of(layout: Layout, members: usize) -> String {
    let name = |n: usize| format!("m{n}");
    let below: Vec<String> = match layout {
        Layout::Raid0 => (0..members).map(name).collect(),
        Layout::Raid10 => (0..members / 2)
            .map(|n| format!("mirror({}, {})", name(2 * n), name(2 * n + 1)))
            .collect(),
    };
    if below.len() == 1 { below.concat() } else { format!("stripe({})", below.join(", ")) }
}

/// What was counted since the rig was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Reads of members.
    pub reads: u64,
    /// Writes to members.
    pub writes: u64,
    /// Flushes of members.
    pub flushes: u64,
    /// Versions captured by the schedule.
    pub captures: u64,
    /// Versions that it pruned.
    pub pruned: u64,
    /// Processor time of this process, and of the server if there is one, seconds.
    pub cpu_seconds: Option<f64>,
}

impl Sample {
    /// What came since an earlier one.
    #[must_use]
    pub fn since(self, earlier: Sample) -> Sample {
        Sample {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            flushes: self.flushes - earlier.flushes,
            captures: self.captures - earlier.captures,
            pruned: self.pruned - earlier.pruned,
            cpu_seconds: self.cpu_seconds.zip(earlier.cpu_seconds).map(|(to, from)| to - from),
        }
    }
}

/// A server that runs on a pool, and where its volumes are.
pub struct Served {
    /// By device of the workload.
    pub targets: Vec<Arc<dyn Target>>,
    /// The server's process.
    pub process: u32,
    /// Ends it.
    pub stop: Box<dyn FnOnce() -> Result<()>>,
}

/// Starts servers: who calls this crate knows them, it does not.
pub trait Serve {
    /// Why there is none with or without buffer pools; `None` if there is.
    fn is_missing(&self, has_buffer_pool: bool) -> Option<&'static str>;
    /// Makes a pool as `settings` say, its volumes with granularity on-demand, and serves it.
    ///
    /// # Errors
    /// What keeps it from that.
    fn serve(&self, settings: &RigSettings, has_buffer_pool: bool) -> Result<Served>;
}

/// Files that are there as long as this.
struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        // Whoever looks for what is left finds a directory with a telling name.
        _ = fs::remove_dir_all(&self.0);
    }
}

/// A stack or pool that can be driven. Its files go with it.
pub struct Rig {
    targets: Vec<Arc<dyn Target>>,
    volumes: Vec<Arc<Volume>>,
    array: Option<Arc<Array>>,
    pool: Option<Arc<Pool>>,
    counters: Option<Arc<Counters>>,
    background: Option<Background>,
    served: Option<Served>,
    _files: Files,
}

impl Rig {
    /// Makes it.
    ///
    /// # Errors
    /// When the directory is there, has no room, or the engine refuses.
    pub fn new(settings: &RigSettings) -> Result<Rig> {
        let RigSettings { dir, stack, member_bytes, .. } = settings;
        fs::create_dir(dir).map_err(|e| LoadError::at(dir, e))?;
        let files = Files(dir.clone());
        let stack: Stack =
            stack.parse().map_err(|e| LoadError::Unexpected(format!("the stack {stack}: {e}")))?;
        let clock = Arc::new(AheadClock::default());
        let paths: Vec<PathBuf> = stack.members().into_iter().map(|name| dir.join(name)).collect();
        for path in &paths {
            FileMedia::create(path, *member_bytes).map_err(|e| LoadError::at(path, e))?;
        }
        let counters = Arc::<Counters>::default();
        create_array(&stack, &paths, &*clock)?;
        let array = Array::open(candidates(&paths, Some(&counters))?, &Materials::none())?;
        let mut rig = Rig {
            targets: Vec::new(),
            volumes: Vec::new(),
            array: None,
            pool: None,
            counters: Some(counters),
            background: None,
            served: None,
            _files: files,
        };
        if settings.has_pool {
            rig.make_pool(array, clock, settings)?;
        } else {
            rig.cut(Arc::new(array), settings)?;
        }
        Ok(rig)
    }

    /// A pool behind a server.
    ///
    /// # Errors
    /// When the directory is there, or the server does not start.
    pub fn served(
        settings: &RigSettings,
        server: &dyn Serve,
        has_buffer_pool: bool,
    ) -> Result<Rig> {
        fs::create_dir(&settings.dir).map_err(|e| LoadError::at(&settings.dir, e))?;
        let files = Files(settings.dir.clone());
        let served = server.serve(settings, has_buffer_pool)?;
        Ok(Rig {
            targets: served.targets.clone(),
            volumes: Vec::new(),
            array: None,
            pool: None,
            counters: None,
            background: None,
            served: Some(served),
            _files: files,
        })
    }

    /// Parts of the stack itself.
    fn cut(&mut self, array: Arc<Array>, settings: &RigSettings) -> Result<()> {
        let mut device = Arc::<Array>::clone(&array) as Arc<dyn BlockDevice>;
        if settings.is_checked {
            device = Arc::new(CheckedDevice::new(device));
        }
        let mut begin = 0;
        for (_, bytes) in &settings.volumes {
            self.targets.push(Arc::new(Part { device: Arc::clone(&device), begin }));
            begin += bytes;
        }
        if begin > device.len_bytes() {
            return Err(LoadError::Unexpected(format!(
                "the members are too small for {begin} bytes"
            )));
        }
        self.start(Work::Array(Arc::clone(&array)))?;
        self.array = Some(array);
        Ok(())
    }

    fn make_pool(
        &mut self,
        array: Array,
        clock: Arc<AheadClock>,
        settings: &RigSettings,
    ) -> Result<()> {
        let time = Arc::<AheadClock>::clone(&clock) as Arc<dyn Clock>;
        let machine = Machine { clock: time, entropy: Arc::new(RealEntropy::default()) };
        let zone_bytes = (array.len_bytes() / ZONES_WANTED).max(ZONE_BYTES_MIN).next_power_of_two();
        let format = PoolFormat { zone_bytes: zone_bytes.min(PoolFormat::default().zone_bytes) };
        let array = Arc::new(array);
        Pool::create(&(Arc::<Array>::clone(&array) as Arc<dyn BlockDevice>), &machine, &format)?;
        let Ok(array) = Arc::try_unwrap(array) else {
            return Err(LoadError::Unexpected("a new pool is still being written".to_owned()));
        };
        let options = PoolOptions { memory_bytes: settings.memory_bytes };
        let pool = Pool::open_array(array, machine, options, Arc::new(NoFiles), &mut |_| ())?;
        for (name, bytes) in &settings.volumes {
            let volume = pool.create_volume(&volume_spec(name, *bytes))?;
            self.targets.push(Arc::<Volume>::clone(&volume) as Arc<dyn Target>);
            self.volumes.push(volume);
        }
        if let (Some(every), Some(volume)) = (settings.versions_every, self.volumes.first()) {
            volume.set_schedule(&ScheduleSpec {
                timing: Timing::Every(every),
                keep: KeepRules { last: 1, ..KeepRules::default() },
                label: String::new(),
                hook: None,
                prove: None,
            })?;
        }
        // The clock is looked at once before it is set ahead: from there on it has gone evenly.
        pool.run_due();
        clock.be_steady();
        self.start(Work::Pool(Arc::clone(&pool)))?;
        self.pool = Some(pool);
        Ok(())
    }

    fn start(&mut self, work: Work) -> Result<()> {
        let started = Background::start(work);
        let failed = |e| LoadError::Unexpected(format!("no thread for background work: {e}"));
        self.background = Some(started.map_err(failed)?);
        Ok(())
    }

    /// Where requests go, by device of the workload.
    #[must_use]
    pub fn targets(&self) -> &[Arc<dyn Target>] {
        &self.targets
    }

    /// What was counted so far.
    #[must_use]
    pub fn sample(&self) -> Sample {
        let count = |of: fn(&Counters) -> &AtomicU64| {
            self.counters.as_ref().map_or(0, |counters| of(counters).load(Ordering::Relaxed))
        };
        let info = self.volumes.first().and_then(|v| v.schedule_info().ok().flatten());
        let (captures, pruned) = info.map_or((0, 0), |info| (info.captures, info.pruned));
        Sample {
            reads: count(|c| &c.reads),
            writes: count(|c| &c.writes),
            flushes: count(|c| &c.flushes),
            captures,
            pruned,
            cpu_seconds: self.cpu_seconds(),
        }
    }

    fn cpu_seconds(&self) -> Option<f64> {
        let own = machine::cpu_seconds(None)?;
        match &self.served {
            Some(served) => Some(own + machine::cpu_seconds(Some(served.process))?),
            None => Some(own),
        }
    }

    /// What the schedule says that went wrong, if anything did.
    #[must_use]
    pub fn schedule_error(&self) -> Option<String> {
        self.volumes.first()?.schedule_info().ok().flatten()?.error
    }

    /// Stops what runs, closes it, and deletes the files.
    ///
    /// # Errors
    /// What background work or the closing failed with.
    pub fn close(mut self) -> Result<()> {
        let stopped = self.background.take().map_or(Ok(()), Background::stop);
        stopped.map_err(LoadError::Unexpected)?;
        if let Some(served) = self.served.take() {
            (served.stop)()?;
        }
        if let Some(pool) = &self.pool {
            pool.close()?;
        }
        if let Some(array) = &self.array {
            array.close()?;
        }
        Ok(())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // A measurement that failed says why; what its background says comes after.
        if let Some(background) = self.background.take() {
            _ = background.stop();
        }
        if let Some(served) = self.served.take() {
            _ = (served.stop)();
        }
    }
}

pub(crate) fn volume_spec(name: &str, size_bytes: u64) -> VolumeSpec {
    VolumeSpec {
        granularity: Granularity::OnDemand,
        window_ns: WINDOW_NS,
        ..VolumeSpec::new(name, size_bytes)
    }
}

/// Labels files as members of a stack.
pub(crate) fn create_array(stack: &Stack, paths: &[PathBuf], clock: &dyn Clock) -> Result<()> {
    let entropy = RealEntropy::default();
    let random = &mut || u128::from(entropy.next_u64()) << 64 | u128::from(entropy.next_u64());
    let identities = Identities { random, now: clock.wall() };
    Ok(Array::create(stack, candidates(paths, None)?, identities, &Materials::none())?)
}

/// The files as they may be put together, counted if that is asked.
pub(crate) fn candidates(
    paths: &[PathBuf],
    counters: Option<&Arc<Counters>>,
) -> Result<Vec<Candidate>> {
    let one = |path: &PathBuf| {
        let media = FileMedia::open(path).map_err(|e| LoadError::at(path, e))?;
        let below = MediaDevice::new(Arc::new(media));
        let device: Arc<dyn BlockDevice> = match counters.cloned() {
            Some(counters) => Arc::new(CountedDevice { below, counters }),
            None => Arc::new(below),
        };
        Ok(Candidate { path: shown(path), device: Some(device) })
    };
    paths.iter().map(one).collect()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::{Layout, stack_of};

    #[test]
    fn stacks_are_the_papers() {
        assert_eq!(stack_of(Layout::Raid0, 2), "stripe(m0, m1)");
        assert_eq!(stack_of(Layout::Raid10, 4), "stripe(mirror(m0, m1), mirror(m2, m3))");
        assert_eq!(stack_of(Layout::Raid10, 2), "mirror(m0, m1)");
    }
}
