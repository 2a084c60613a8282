//! Hooks: commands around a capture, so that what is on a volume is quiet while it is captured,
//! checks of moments, and commands that tell of an alarm.
//!
//! Invariants
//! 1. Commands stand in the configuration file. Clients only name them.
//! 2. `after` always runs: when `before` failed or was killed, when the capture failed or panicked,
//!    and when it takes too long. A file system that was frozen must be thawed.
//! 3. A version is `quiesced` only if `before` succeeded and `after` had not begun at the instant
//!    of the capture.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use env::{Rank, RankedRwLock};
use parking_lot::{Condvar, Mutex};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use rustix::process::{Pid, Signal, kill_process_group};
use volume::{Consistency, PlannedHook, Quiet};

use crate::prometheus::tell;
use crate::told::Told;

/// How often a command is asked whether it has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Commands around a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Run before: the program and its arguments; nothing is a success.
    pub before: Vec<String>,
    /// Run after, whatever came before.
    pub after: Vec<String>,
    /// Run on a scratch clone, to tell whether a moment serves; nothing where there is no check.
    pub verify: Vec<String>,
    /// Run when a watch gives an alarm; nothing where nobody is told.
    pub alarm: Vec<String>,
    /// How long each may take, and how long `before` may be in force.
    pub timeout: Duration,
}

impl Hook {
    fn is_around_captures(&self) -> bool {
        !self.before.is_empty() || !self.after.is_empty()
    }
}

/// The hooks of a server.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    named: RankedRwLock<BTreeMap<String, Hook>>,
    /// Captures that were quiesced, and those that should have been.
    pub(crate) quiesced: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// The server stops.
    is_stopping: AtomicBool,
}

impl Hooks {
    /// Those of a configuration.
    pub(crate) fn new(named: BTreeMap<String, Hook>) -> Hooks {
        Hooks { named: RankedRwLock::new(Rank::Leaf, named), ..Hooks::default() }
    }

    /// Goes on with others: captures that are under way end with what they began with.
    pub(crate) fn replace(&self, named: BTreeMap<String, Hook>) {
        *self.named.write() = named;
    }

    /// Ends every `before` that runs, and lets none begin: the server stops. An `after` has its
    /// time.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Whether there is one of this name that does something around captures.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.named.read().get(name).is_some_and(Hook::is_around_captures)
    }

    /// The check of a hook, if it has one, and how long it may take.
    pub(crate) fn verify_of(&self, name: &str) -> Option<(Vec<String>, Duration)> {
        let named = self.named.read();
        let hook = named.get(name).filter(|hook| !hook.verify.is_empty())?;
        Some((hook.verify.clone(), hook.timeout))
    }

    /// Has every hook that tells of alarms tell of one: on threads of their own, which the watch
    /// does not wait for. One that takes too long is killed.
    pub(crate) fn tell_alarm(&self, volume: &str, facts: &[(&'static str, String)]) {
        for (name, hook) in self.named.read().iter().filter(|(_, hook)| !hook.alarm.is_empty()) {
            let asked = Asked { hook: name.clone(), subject: volume.to_owned() };
            let (hook, facts) = (hook.clone(), facts.to_vec());
            let tell = move || {
                if let Err(why) = run(&hook.alarm, "alarm", &asked, hook.timeout, &facts) {
                    let Asked { hook, subject } = asked;
                    tracing::error!(hook, subject, why, "the hook's alarm failed: was it told?");
                }
            };
            if let Err(error) = std::thread::Builder::new().name("alarm".to_owned()).spawn(tell) {
                tracing::error!(hook = name, volume, %error, "an alarm was not told");
            }
        }
    }

    /// The names there are.
    pub(crate) fn names(&self) -> Vec<String> {
        self.named.read().keys().cloned().collect()
    }

    /// Captures between the commands of a hook. `subject` is what is captured. The capture asks
    /// at its instant what it is.
    pub(crate) fn around<T>(
        &self,
        name: &str,
        subject: &str,
        capture: impl FnOnce(&dyn Fn() -> Quiet) -> T,
    ) -> Around<T> {
        let found = self.named.read().get(name).cloned();
        let Some(hook) = found.filter(Hook::is_around_captures) else {
            tracing::error!(hook = name, subject, "there is no such hook; captured without it");
            self.failed.fetch_add(1, Ordering::Relaxed);
            let failure = format!("the server's configuration has no hook {name}");
            let captured = capture(&|| Consistency::QuiesceFailed.into());
            return Around { captured, failures: vec![failure] };
        };
        let asked = Asked { hook: name.to_owned(), subject: subject.to_owned() };
        let mut told = None;
        let stops = || self.is_stopping.load(Ordering::Relaxed);
        let before = match stops() {
            true => Err("the server stops".to_owned()),
            false => {
                let command = (&hook.before[..], "before");
                run_listening(command, &asked, hook.timeout, &mut told, &stops)
            }
        };
        let open_files = told.as_ref().and_then(Told::open_files).map(Arc::new);
        if let Err(why) = &before {
            tracing::error!(hook = name, subject, why, "the hook's before failed");
        }
        let thaw = Thaw::begin(hook, asked);
        let seen = Mutex::new(Consistency::QuiesceFailed);
        let captured = capture(&|| {
            let quiesced = before.is_ok() && !thaw.has_begun();
            let is = if quiesced { Consistency::Quiesced } else { Consistency::QuiesceFailed };
            *seen.lock() = is;
            Quiet { consistency: is, open_files: open_files.clone() }
        });
        drop(thaw);
        // Until here, for those that `before` left behind.
        drop(told);
        if seen.into_inner() == Consistency::Quiesced {
            self.quiesced.fetch_add(1, Ordering::Relaxed);
            return Around { captured, failures: Vec::new() };
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
        let why = before.err().unwrap_or("what it did was undone before the instant".to_owned());
        Around { captured, failures: vec![format!("hook {name}: {why}")] }
    }

    /// Captures a group between the commands of all of these hooks, the first outermost. The
    /// capture asks at its instant what each volume is.
    pub(crate) fn around_all<T>(
        &self,
        hooks: &[PlannedHook],
        known: &dyn Fn(&str) -> Quiet,
        capture: impl FnOnce(&dyn Fn(&str) -> Quiet) -> T,
    ) -> Around<T> {
        let Some((first, rest)) = hooks.split_first() else {
            return Around { captured: capture(known), failures: Vec::new() };
        };
        let Around { captured, mut failures } = self.around(&first.hook, &first.subject, |quiet| {
            let known = |volume: &str| match first.covers(volume) {
                true => quiet(),
                false => known(volume),
            };
            self.around_all(rest, &known, capture)
        });
        failures.extend(captured.failures);
        Around { captured: captured.captured, failures }
    }
}

/// A capture between hooks, and why they failed, as far as they did.
pub(crate) struct Around<T> {
    pub(crate) captured: T,
    pub(crate) failures: Vec<String>,
}

impl<T> Around<T> {
    /// Why, in one line; `None` if none failed.
    pub(crate) fn failure(&self) -> Option<String> {
        (!self.failures.is_empty()).then(|| self.failures.join("; "))
    }
}

/// Tells Prometheus how hooks went.
#[derive(Debug)]
pub(crate) struct HookCollector(pub(crate) Arc<Hooks>);

impl Collector for HookCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let counts = [
            ("quiesced", "Captures that a hook made quiet", &self.0.quiesced),
            ("failed", "Captures that a hook did not make quiet", &self.0.failed),
        ];
        for (name, help, count) in counts {
            let counter = ConstCounter::new(count.load(Ordering::Relaxed));
            tell(&mut encoder, (&format!("hindsight_hook_{name}"), help), counter)?;
        }
        Ok(())
    }
}

/// The facts that a command finds in its environment.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) hook: String,
    pub(crate) subject: String,
}

/// Runs `after` when it is dropped, or when its time has come before that.
struct Thaw {
    hook: Hook,
    asked: Asked,
    state: Arc<(Mutex<ThawState>, Condvar)>,
    watchdog: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct ThawState {
    is_over: bool,
    has_begun: bool,
}

impl Thaw {
    fn begin(hook: Hook, asked: Asked) -> Thaw {
        let state = Arc::new((Mutex::new(ThawState::default()), Condvar::new()));
        let watchdog = std::thread::Builder::new().name("thaw".to_owned()).spawn({
            let (hook, asked, state) = (hook.clone(), asked.clone(), Arc::clone(&state));
            move || {
                let mut held = state.0.lock();
                let deadline = Instant::now() + hook.timeout;
                while !held.is_over && !state.1.wait_until(&mut held, deadline).timed_out() {}
                if !held.is_over {
                    let Asked { hook, subject } = &asked;
                    tracing::error!(hook, subject, "the capture takes too long; thawed before it");
                }
                held.has_begun = true;
                drop(held);
                after(&hook, &asked);
            }
        });
        if let Err(error) = &watchdog {
            tracing::error!(%error, "no watchdog: a capture that hangs will not be thawed");
        }
        Thaw { hook, asked, state, watchdog: watchdog.ok() }
    }

    fn has_begun(&self) -> bool {
        self.state.0.lock().has_begun
    }
}

impl Drop for Thaw {
    fn drop(&mut self) {
        self.state.0.lock().is_over = true;
        self.state.1.notify_all();
        match self.watchdog.take() {
            Some(watchdog) => {
                if watchdog.join().is_err() {
                    tracing::error!("the watchdog of a hook panicked");
                }
            }
            None => after(&self.hook, &self.asked),
        }
    }
}

fn after(hook: &Hook, asked: &Asked) {
    if let Err(why) = run(&hook.after, "after", asked, hook.timeout, &[]) {
        let Asked { hook, subject } = asked;
        tracing::error!(hook, subject, why, "the hook's after failed: is it still frozen?");
    }
}

/// Runs a command to its end; kills it with all that it started when that takes too long.
fn run(
    argv: &[String],
    phase: &str,
    asked: &Asked,
    timeout: Duration,
    facts: &[(&'static str, String)],
) -> Result<(), String> {
    let Some((program, mut command)) = command(argv, phase, asked) else { return Ok(()) };
    command.envs(facts.iter().map(|(name, value)| (*name, value)));
    let child = command.stdout(Stdio::null()).spawn().map_err(|e| format!("{program}: {e}"))?;
    ended(program, child, timeout, &mut || {}, &|| false)
}

/// The same, and listens to what it tells; also when the server stops it is killed.
fn run_listening(
    (argv, phase): (&[String], &str),
    asked: &Asked,
    timeout: Duration,
    told: &mut Option<Told>,
    stops: &dyn Fn() -> bool,
) -> Result<(), String> {
    let Some((program, mut command)) = command(argv, phase, asked) else { return Ok(()) };
    let failed = |e: std::io::Error| format!("{program}: {e}");
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    if let Some(output) = child.stdout.take() {
        match Told::new(output) {
            Ok(new) => *told = Some(new),
            Err(error) => tracing::error!(%error, "what a hook tells cannot be listened to"),
        }
    }
    ended(program, child, timeout, &mut || told.iter_mut().for_each(Told::listen), stops)
}

/// A command of a hook, with its program's name; none where nothing is to be run.
pub(crate) fn command<'a>(
    argv: &'a [String],
    phase: &str,
    asked: &Asked,
) -> Option<(&'a str, Command)> {
    let (program, arguments) = argv.split_first()?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("HINDSIGHT_HOOK", &asked.hook)
        .env("HINDSIGHT_PHASE", phase)
        .env("HINDSIGHT_SUBJECT", &asked.subject)
        .stdin(Stdio::null())
        .process_group(0);
    Some((program, command))
}

fn ended(
    program: &str,
    mut child: Child,
    timeout: Duration,
    look: &mut dyn FnMut(),
    stops: &dyn Fn() -> bool,
) -> Result<(), String> {
    match wait(&mut child, timeout, look, stops) {
        Ok(Some(status)) if status.success() => Ok(()),
        Ok(Some(status)) => Err(format!("{program}: {status}")),
        Ok(None) if stops() => {
            kill(&mut child);
            Err(format!("{program}: killed, as the server stops"))
        }
        Ok(None) => {
            kill(&mut child);
            Err(format!("{program}: killed after {timeout:?}"))
        }
        Err(error) => {
            kill(&mut child);
            Err(format!("{program}: {error}"))
        }
    }
}

fn wait(
    child: &mut Child,
    timeout: Duration,
    look: &mut dyn FnMut(),
    stops: &dyn Fn() -> bool,
) -> std::io::Result<Option<std::process::ExitStatus>> {
    let began = Instant::now();
    loop {
        let status = child.try_wait()?;
        // After it has ended, too: what it told last is still there.
        look();
        if status.is_some() {
            return Ok(status);
        }
        if began.elapsed() >= timeout || stops() {
            return Ok(None);
        }
        std::thread::park_timeout(LOOK);
    }
}

/// Kills the process group: it is not reaped yet, so its number is still its own.
pub(crate) fn kill(child: &mut Child) {
    if let Err(error) = kill_process_group(Pid::from_child(child), Signal::KILL) {
        tracing::error!(%error, "a hook could not be killed");
        return;
    }
    if let Err(error) = child.wait() {
        tracing::error!(%error, "a hook that was killed could not be waited for");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{BTreeMap, Consistency, Duration, Hook, Hooks, Instant, PlannedHook, Quiet};

    fn shell(script: &str) -> Vec<String> {
        ["/bin/sh", "-c", script].iter().map(|part| (*part).to_owned()).collect()
    }

    fn hooks(before: &str, after: &str, timeout: Duration) -> Hooks {
        let (before, after) = (shell(before), shell(after));
        let hook = Hook { before, after, verify: Vec::new(), alarm: Vec::new(), timeout };
        Hooks::new(BTreeMap::from([("h".to_owned(), hook)]))
    }

    const LONG: Duration = Duration::from_secs(60);
    /// A command that hangs is ended after this. Both commands of a hook have it: a shell is begun
    /// and has written its line in it on any machine.
    const SHORT: Duration = Duration::from_secs(4);

    fn lines(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Runs a hook whose commands write down that they ran; what the capture was, and what they
    /// wrote.
    fn told(before: &str, timeout: Duration, slow: bool) -> (Consistency, Vec<String>) {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("log");
        let path = log.display();
        let before = format!("echo before $HINDSIGHT_SUBJECT >> {path}; {before}");
        let after = format!("echo after >> {path}");
        let hooks = hooks(&before, &after, timeout);
        let began = Instant::now();
        let around = hooks.around("h", "v", |consistency| {
            while slow && lines(&log).len() < 2 {
                assert!(began.elapsed() < LONG, "not thawed: {:?}", lines(&log));
                std::thread::sleep(Duration::from_millis(1));
            }
            consistency().consistency
        });
        let is_quiet = around.captured == Consistency::Quiesced;
        assert_eq!(around.failure().is_none(), is_quiet, "{:?}", around.failures);
        (around.captured, lines(&log))
    }

    const BOTH: [&str; 2] = ["before v", "after"];

    #[test]
    fn commands_run_before_and_after() {
        assert_eq!(
            told("true", LONG, false),
            (Consistency::Quiesced, BOTH.map(str::to_owned).into())
        );
    }

    #[test]
    fn what_was_frozen_is_thawed_although_freezing_failed() {
        let (consistency, ran) = told("exit 3", LONG, false);
        assert_eq!(
            (consistency, &ran[..]),
            (Consistency::QuiesceFailed, &BOTH.map(str::to_owned)[..])
        );
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_its_children_and_thawed() {
        let began = Instant::now();
        let (consistency, ran) = told("sleep 600 & sleep 600; echo never", SHORT, false);
        assert!(began.elapsed() < LONG, "it was waited for");
        assert_eq!(
            (consistency, &ran[..]),
            (Consistency::QuiesceFailed, &BOTH.map(str::to_owned)[..])
        );
    }

    #[test]
    fn a_server_that_stops_waits_for_no_before_and_thaws() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("log");
        let line = |what: &str| format!("echo {what} >> {}", log.display());
        let before = format!("{}; sleep 600; echo never", line("before"));
        let hooks = hooks(&before, &line("after"), 10 * LONG);
        let began = Instant::now();
        std::thread::scope(|scope| {
            let captured = scope.spawn(|| hooks.around("h", "v", |is| is().consistency));
            while lines(&log).is_empty() {
                assert!(began.elapsed() < LONG, "it was not begun");
                std::thread::sleep(Duration::from_millis(1));
            }
            hooks.stop();
            let around = captured.join().expect("no panic");
            assert_eq!(around.captured, Consistency::QuiesceFailed);
            assert!(around.failure().is_some_and(|why| why.contains("the server stops")));
        });
        assert!(began.elapsed() < LONG, "it was waited for");
        assert_eq!(lines(&log), ["before", "after"]);
    }

    #[test]
    fn a_capture_that_hangs_is_thawed_before_it_ends_and_is_not_quiesced() {
        let (consistency, ran) = told("true", SHORT, true);
        assert_eq!(
            (consistency, &ran[..]),
            (Consistency::QuiesceFailed, &BOTH.map(str::to_owned)[..])
        );
    }

    #[test]
    fn a_capture_that_panics_is_thawed() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("log");
        let hooks = hooks("true", &format!("echo after >> {}", log.display()), LONG);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            hooks.around("h", "v", |_| panic!("on purpose"));
        }));
        assert!(outcome.is_err());
        assert_eq!(lines(&log), ["after"]);
    }

    #[test]
    fn what_is_not_there_is_no_success() {
        let hooks = hooks("true", "true", LONG);
        let around = hooks.around("other", "v", |is| is().consistency);
        assert_eq!(around.captured, Consistency::QuiesceFailed);
        assert!(around.failure().is_some_and(|why| why.contains("has no hook other")));
        let before = vec!["/nowhere/x".to_owned()];
        let hook = Hook {
            before,
            after: Vec::new(),
            verify: Vec::new(),
            alarm: Vec::new(),
            timeout: LONG,
        };
        let hooks = Hooks::new(BTreeMap::from([("h".to_owned(), hook)]));
        assert_eq!(
            hooks.around("h", "v", |is| is().consistency).captured,
            Consistency::QuiesceFailed
        );
    }

    #[test]
    fn hooks_of_several_volumes_go_one_within_the_other() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("log");
        let line = format!("echo $HINDSIGHT_PHASE $HINDSIGHT_SUBJECT >> {}", log.display());
        let hooks = hooks(&format!("{line}; test $HINDSIGHT_SUBJECT = v"), &line, LONG);
        let planned = |subject: &str| PlannedHook {
            hook: "h".to_owned(),
            subject: subject.to_owned(),
            is_member: true,
        };
        let asked = |quiet: &dyn Fn(&str) -> Quiet| ["v", "w", "x"].map(|v| quiet(v).consistency);
        let known = |_: &str| Consistency::CrashConsistent.into();
        let around = hooks.around_all(&[planned("v"), planned("w")], &known, asked);
        let each =
            [Consistency::Quiesced, Consistency::QuiesceFailed, Consistency::CrashConsistent];
        assert_eq!(around.captured, each);
        assert_eq!(around.failures.len(), 1, "{:?}", around.failures);
        assert_eq!(lines(&log), ["before v", "before w", "after w", "after v"]);
    }

    #[test]
    fn files_that_before_tells_of_are_known_at_the_instant() {
        // The process that is left behind keeps the output, and can write to it until `after` has
        // run.
        let before = "echo open-file /srv/a; (sleep 20; echo never) & echo open-files 7";
        let hooks = hooks(before, "true", LONG);
        let began = Instant::now();
        let files = hooks.around("h", "v", |quiet| quiet().open_files).captured.expect("told");
        assert_eq!((files.count, &files.paths[..]), (7, &["/srv/a".to_owned()][..]));
        assert!(began.elapsed() < Duration::from_secs(15), "it was waited for");
        let none = super::Hooks::new(BTreeMap::new());
        assert!(none.around("h", "v", |quiet| quiet().open_files).captured.is_none());
    }
}
