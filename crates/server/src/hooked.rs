//! Scheduled captures with hooks: each on a thread of its own, because commands take their time.
//! Between them scratch clones are removed whose time is over, and checks are asked for that
//! schedules want of their versions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use units::{Seq, WallTime};
use volume::{Consistency, PlannedHook, Pool};

use crate::hooks::Hooks;
use crate::proving::{Proving, Wanted};
use crate::watching::Watching;
use crate::worker::{Stop, Worker};
use crate::{Attachments, StartError, scratch};

/// How often schedules are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How often versions are looked for that are to be checked.
const ASK: Duration = Duration::from_secs(1);
/// How often scratch clones whose time is over are removed; and after one could not be.
const SWEEP: Duration = Duration::from_secs(1);
const SWEEP_AFTER_FAILURE: Duration = Duration::from_secs(60);

/// The running threads; stopped by [`Hooked::stop`].
pub(crate) struct Hooked {
    captures: Worker,
    watching: Worker,
    hooks: Arc<Hooks>,
    /// The thread of checks.
    proving: (Arc<Proving>, JoinHandle<()>),
}

impl Hooked {
    /// Starts the threads.
    pub(crate) fn start(
        pool: &Arc<Pool>,
        hooks: &Arc<Hooks>,
        attachments: &Arc<Attachments>,
        (proving, watching): (&Arc<Proving>, &Arc<Watching>),
    ) -> Result<Hooked, StartError> {
        let watching = watching.start(pool)?;
        let captures = Worker::start("hooked", {
            let (pool, hooks) = (Arc::clone(pool), Arc::clone(hooks));
            let (attachments, proving) = (Arc::clone(attachments), Arc::clone(proving));
            move |stop| run(&pool, &hooks, (&attachments, &proving), stop)
        })?;
        let proving = (Arc::clone(proving), proving.start(pool, attachments)?);
        Ok(Hooked { captures, watching, hooks: Arc::clone(hooks), proving })
    }

    /// Ends the proof that runs, while its clone is still served: what it says later is not heard.
    /// Ends what hooks do before captures, so that the captures are made, and what was frozen is
    /// thawed.
    pub(crate) fn end_commands(&self) {
        self.proving.0.end();
        self.hooks.stop();
    }

    /// Lets captures under way finish, commands included, and ends the threads.
    pub(crate) fn stop(self) {
        self.captures.tell();
        self.watching.tell();
        self.proving.0.stop(self.proving.1);
    }
}

/// The subject of a capture, and the hooks around it.
#[derive(Clone, Debug)]
enum Due {
    Volume(String, String),
    Group(String, Vec<PlannedHook>),
}

impl Due {
    /// Whether it is a group, and its name.
    fn subject(&self) -> (bool, String) {
        match self {
            Due::Volume(name, _) => (false, name.clone()),
            Due::Group(name, _) => (true, name.clone()),
        }
    }

    /// Makes the capture, unless what was to be captured is gone.
    fn capture(&self, pool: &Pool, hooks: &Hooks) {
        match self {
            Due::Volume(name, hook) => {
                let Ok(volume) = pool.volume(name) else { return };
                hooks.around(hook, name, |consistency| volume.capture_hooked(consistency));
            }
            Due::Group(name, planned) => {
                let plain = |_: &str| Consistency::CrashConsistent.into();
                hooks.around_all(planned, &plain, |consistency| {
                    pool.capture_group_hooked(name, consistency);
                });
            }
        }
    }
}

fn due(pool: &Pool) -> Vec<Due> {
    let volumes = pool.volumes();
    let volumes = volumes
        .iter()
        .filter_map(|volume| Some(Due::Volume(volume.name().to_owned(), volume.due_hook()?)));
    let groups = pool.due_group_hooks().into_iter();
    volumes.chain(groups.map(|(group, hooks)| Due::Group(group, hooks))).collect()
}

fn run(
    pool: &Arc<Pool>,
    hooks: &Arc<Hooks>,
    (attachments, proving): (&Arc<Attachments>, &Proving),
    stop: &Stop,
) {
    let mut under_way: BTreeMap<(bool, String), JoinHandle<()>> = BTreeMap::new();
    let mut asked = Asked::new();
    let (mut sweep_at, mut ask_at) = (Instant::now(), Instant::now());
    loop {
        under_way.retain(|_, capture| !capture.is_finished());
        for due in due(pool) {
            let subject = due.subject();
            if under_way.contains_key(&subject) {
                continue;
            }
            match capture(pool, hooks, due) {
                Ok(thread) => drop(under_way.insert(subject, thread)),
                Err(error) => tracing::error!(%error, "a capture could not be begun"),
            }
        }
        if ask_at <= Instant::now() {
            ask_for_proofs(pool, proving, &mut asked);
            ask_at = Instant::now() + ASK;
        }
        if sweep_at <= Instant::now() {
            let is_well = scratch::sweep(pool, attachments);
            sweep_at = Instant::now() + if is_well { SWEEP } else { SWEEP_AFTER_FAILURE };
        }
        if stop.rest(LOOK) {
            break;
        }
    }
    for ((_, subject), capture) in under_way {
        if capture.join().is_err() {
            tracing::error!(subject, "a capture with a hook panicked");
        }
    }
}

/// The checks of schedules that were asked for and are still due: volume, seq and hook.
type Asked = BTreeSet<(u64, Seq, String)>;

/// Asks for the checks that schedules want, each once: one whose verdict cannot be kept is not run
/// again and again.
fn ask_for_proofs(pool: &Pool, proving: &Proving, asked: &mut Asked) {
    let mut still = Asked::new();
    for (volume, at, hook) in pool.due_proofs() {
        let one = (volume.id(), at.seq, hook.clone());
        // A schedule of the volume and one of its group may have captured the same moment.
        if still.contains(&one) {
            continue;
        }
        let now = WallTime::from_nanos(scratch::now_ns());
        if asked.contains(&one) || proving.ask(Wanted { volume, at, hook, asked: now }) {
            still.insert(one);
        }
    }
    *asked = still;
}

fn capture(pool: &Arc<Pool>, hooks: &Arc<Hooks>, due: Due) -> std::io::Result<JoinHandle<()>> {
    let (pool, hooks) = (Arc::clone(pool), Arc::clone(hooks));
    let thread = std::thread::Builder::new().name("capture".to_owned());
    thread.spawn(move || due.capture(&pool, &hooks))
}
