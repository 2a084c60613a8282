//! Proofs: a hook's `verify` run on a scratch clone of a moment, and what it says kept with the
//! volume.
//!
//! 1. The volume itself is never touched; the clone goes whatever comes of it.
//! 2. A check that does not end, cannot be run or is killed proves nothing: *unknown* is not *bad*.
//! 3. One runs at a time; those that were asked for wait. A server that stops ends them, and they
//!    say nothing.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use units::{Moment, Span};
use volume::{CloneSpec, Pool, Proof, Resolved, Verdict, Volume};

use crate::attach::{Attachments, Part};
use crate::hooks::{Asked, Hooks, command, kill};
use crate::{StartError, scratch};

/// Proofs that wait, at most.
const WAITING_MAX: usize = 64;
/// And of one volume: those of others have their turn.
const WAITING_OF_VOLUME_MAX: usize = 8;
/// A clone stays so much longer than its check may take, in nanoseconds.
const SPARE_NS: u64 = 60_000_000_000;
/// How often a command is asked whether it has ended.
const LOOK: Duration = Duration::from_millis(10);
/// A check says so when it cannot tell; what is more is no answer of a check either.
const CANNOT_TELL: i32 = 125;

/// A proof that was asked for.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) volume: Arc<Volume>,
    pub(crate) at: Resolved,
    pub(crate) hook: String,
    pub(crate) asked: units::WallTime,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Wanted>,
    running: Option<Wanted>,
    is_stopping: bool,
}

/// The proofs of a server: those that wait, and the one that runs.
pub(crate) struct Proving {
    state: Mutex<State>,
    changed: Condvar,
    hooks: Arc<Hooks>,
    /// Where clients find NBD, and the API.
    pub(crate) sockets: (Option<PathBuf>, Option<PathBuf>),
}

impl Proving {
    pub(crate) fn new(
        hooks: &Arc<Hooks>,
        sockets: (Option<PathBuf>, Option<PathBuf>),
    ) -> Arc<Proving> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Proving { state, changed, hooks: Arc::clone(hooks), sockets })
    }

    /// Has a proof wait for its turn; false where too many do.
    pub(crate) fn ask(&self, wanted: Wanted) -> bool {
        let mut state = self.state.lock();
        let of_volume = state.waiting.iter().filter(|it| it.volume.id() == wanted.volume.id());
        let is_full = of_volume.count() >= WAITING_OF_VOLUME_MAX;
        if is_full || state.waiting.len() >= WAITING_MAX || state.is_stopping {
            return false;
        }
        state.waiting.push_back(wanted);
        self.changed.notify_all();
        true
    }

    /// Those of a volume that wait or run.
    pub(crate) fn under_way(&self, volume: u64) -> Vec<Wanted> {
        let state = self.state.lock();
        let all = state.running.iter().chain(&state.waiting);
        all.filter(|wanted| wanted.volume.id() == volume).cloned().collect()
    }

    /// Begins the thread that runs them.
    pub(crate) fn start(
        self: &Arc<Self>,
        pool: &Arc<Pool>,
        attachments: &Arc<Attachments>,
    ) -> Result<JoinHandle<()>, StartError> {
        let (own, pool) = (Arc::clone(self), Arc::clone(pool));
        let attachments = Arc::clone(attachments);
        let thread = std::thread::Builder::new().name("proving".to_owned());
        let run = move || {
            while let Some(wanted) = own.next() {
                own.prove(&pool, &attachments, &wanted);
                own.state.lock().running = None;
            }
        };
        thread.spawn(run).map_err(StartError::Thread)
    }

    /// Ends the one that runs, which says nothing; none begins any more.
    pub(crate) fn end(&self) {
        self.state.lock().is_stopping = true;
        self.changed.notify_all();
    }

    /// The same, and waits for it.
    pub(crate) fn stop(&self, thread: JoinHandle<()>) {
        self.end();
        if thread.join().is_err() {
            tracing::error!("the thread of proofs panicked");
        }
    }

    /// Waits for the next one; none when the server stops.
    fn next(&self) -> Option<Wanted> {
        let mut state = self.state.lock();
        while !state.is_stopping {
            if let Some(wanted) = state.waiting.pop_front() {
                state.running = Some(wanted.clone());
                return Some(wanted);
            }
            self.changed.wait(&mut state);
        }
        None
    }

    fn prove(&self, pool: &Pool, attachments: &Arc<Attachments>, wanted: &Wanted) {
        let began = Instant::now();
        let (volume, hook) = (wanted.volume.name(), &wanted.hook);
        let Some((verdict, said)) = self.judged(pool, attachments, wanted) else { return };
        let took_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let word = verdict.name();
        let seq = wanted.at.seq.0;
        match verdict {
            Verdict::Good => tracing::info!(volume, seq, hook, "a moment was found good"),
            _ => tracing::warn!(volume, seq, hook, said, "a moment was found {word}"),
        }
        let proof = Proof {
            seq,
            time_ns: wanted.at.time.as_nanos(),
            hook: hook.clone(),
            verdict,
            proved_ns: wanted.asked.as_nanos(),
            took_ns,
            said,
        };
        if let Err(error) = wanted.volume.add_proof(proof) {
            tracing::error!(volume, %error, "what a check said could not be kept");
        }
    }

    /// The verdict of the check, and how it ended; none where the server stops.
    fn judged(
        &self,
        pool: &Pool,
        attachments: &Arc<Attachments>,
        wanted: &Wanted,
    ) -> Option<(Verdict, String)> {
        let unknown = |why: String| Some((Verdict::Unknown, why));
        let Some((argv, timeout)) = self.hooks.verify_of(&wanted.hook) else {
            return unknown(format!("the configuration has no hook {}", wanted.hook));
        };
        let length_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let name = scratch::name_for(wanted.volume.name(), "");
        let at = Moment::Seq(wanted.at.seq);
        let scratch_ns = Some(length_ns.saturating_add(SPARE_NS));
        let how = CloneSpec { scratch_ns, ..CloneSpec::default() };
        let clone = match pool.clone_as(wanted.volume.name(), &at, &name, how) {
            Ok(clone) => clone,
            Err(error) => return unknown(format!("it could not be cloned: {error}")),
        };
        // With another granularity than every write, the last one is kept until the next alone.
        let origin = clone.info().ok().and_then(|info| info.cloned_from);
        if origin.is_none_or(|(_, seq)| seq != wanted.at.seq) {
            self.give_back(pool, &clone);
            return unknown("the moment was not kept until it was its turn: name a version".into());
        }
        // As long as it is looked at it stays.
        let held = attachments.attach(clone.id(), Part::Past, "a proof");
        let judged = self.run(&argv, timeout, wanted, &name);
        drop(held);
        // Somebody may have given it a name, and so kept it.
        if clone.is_scratch() {
            let _ = attachments.close(clone.id(), Part::Past, true, timeout.min(PATIENCE));
        }
        let is_there = clone.is_served();
        self.give_back(pool, &clone);
        match judged {
            Some(_) if !is_there => {
                unknown("its clone went meanwhile: it was deleted, or the pool was full".to_owned())
            }
            judged => judged,
        }
    }

    fn give_back(&self, pool: &Pool, clone: &Arc<Volume>) {
        if let Err(error) = pool.remove_scratch(clone) {
            // It goes by itself, later, or stays as somebody wants.
            tracing::debug!(name = clone.name(), %error, "the clone of a proof was not removed");
        }
    }

    fn run(
        &self,
        argv: &[String],
        timeout: Duration,
        wanted: &Wanted,
        clone: &str,
    ) -> Option<(Verdict, String)> {
        let subject = wanted.volume.name().to_owned();
        let asked = Asked { hook: wanted.hook.clone(), subject };
        let (program, mut command) = command(argv, "verify", &asked)?;
        command
            .env("HINDSIGHT_CLONE", clone)
            .env("HINDSIGHT_SEQ", wanted.at.seq.0.to_string())
            .env("HINDSIGHT_MOMENT", wanted.at.time.to_string())
            .stdout(Stdio::null());
        let (nbd, api) = &self.sockets;
        if let Some(nbd) = nbd {
            let uri = format!("nbd+unix:///{clone}?socket={}", nbd.display());
            command.env("HINDSIGHT_URI", uri);
        }
        if let Some(api) = api {
            command.env("HINDSIGHT_SERVER", format!("unix:{}", api.display()));
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Some((Verdict::Unknown, format!("{program}: {error}"))),
        };
        let began = Instant::now();
        loop {
            let ended = child.try_wait();
            // A server that stops takes the clone away from a check: that is no verdict.
            let is_stopping = self.state.lock().is_stopping;
            match ended {
                Ok(Some(_)) if is_stopping => return None,
                Ok(Some(status)) => return Some(judge(status)),
                Ok(None) => {}
                Err(error) => return Some((Verdict::Unknown, format!("{program}: {error}"))),
            }
            let mut state = self.state.lock();
            if state.is_stopping {
                drop(state);
                kill(&mut child);
                return None;
            }
            self.changed.wait_for(&mut state, LOOK);
            drop(state);
            if began.elapsed() >= timeout {
                kill(&mut child);
                let limit = Span(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
                return Some((Verdict::Unknown, format!("killed after {limit}")));
            }
        }
    }
}

/// How long clients of a clone may take to leave it.
const PATIENCE: Duration = Duration::from_secs(20);

fn judge(status: std::process::ExitStatus) -> (Verdict, String) {
    let verdict = match status.code() {
        Some(0) => Verdict::Good,
        Some(1..CANNOT_TELL) => Verdict::Bad,
        _ => Verdict::Unknown,
    };
    (verdict, status.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::{Verdict, judge};

    #[test]
    fn only_a_check_that_says_so_is_bad() {
        // The upper byte is the exit code, the lower one a signal.
        for (raw, verdict) in [
            (0, Verdict::Good),
            (1 << 8, Verdict::Bad),
            (124 << 8, Verdict::Bad),
            (125 << 8, Verdict::Unknown),
            (137 << 8, Verdict::Unknown),
            (9, Verdict::Unknown),
        ] {
            assert_eq!(judge(ExitStatus::from_raw(raw)).0, verdict, "{raw}");
        }
    }
}
