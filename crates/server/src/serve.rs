//! `hindsight serve`: starts a server, says where it listens, and stops it when told to.
//!
//! The first SIGTERM or SIGINT stops in order, a second one at once. SIGHUP loads the settings
//! again, when the server has started and until it stops; it never ends the process. A panic of any
//! thread ends the process, so that who watches it starts another.

use std::io::{self, Write};
use std::time::Duration;

use api::ExitCode;
use rustix::process::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::logs::panicked;
use crate::{Config, Server, Settings, StartError, start_log};

/// After a panic: so long `/readyz` says 503, and reads under way are answered.
const LAST_READS: Duration = Duration::from_secs(5);
/// Exit code of a stop at once.
const EXIT_INTERRUPTED: i32 = 130;

/// Serves until told to stop; `load` reads the settings, now and at every SIGHUP.
///
/// # Errors
/// When the server cannot start, or its pool cannot be closed.
pub fn serve(load: &dyn Fn() -> Result<Settings, StartError>) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::Thread)?;
    let (mut signals, mut hangup) =
        runtime.block_on(async { Signals::catch() }).map_err(StartError::Thread)?;
    allow_open_files();
    let settings = load()?;
    start_log(&settings.log)?;
    let mut server = Server::start(&Config::from_settings(settings)?)?;
    say_ready(&server);
    let is_sound = runtime.block_on(async {
        loop {
            tokio::select! {
                () = signals.next() => break true,
                () = panicked() => break false,
                _ = hangup.recv() => reload(&mut server, load),
            }
        }
    });
    if !is_sound {
        end_soon(&server);
    }
    notify(&[NotifyState::Stopping]);
    say("stopping");
    let stopping = std::thread::Builder::new()
        .name("stop".to_owned())
        .spawn(move || server.stop())
        .map_err(StartError::Thread)?;
    // A second signal while it stops ends the process from this thread.
    runtime.spawn(async move {
        signals.next().await;
        say("stopped at once");
        std::process::exit(EXIT_INTERRUPTED);
    });
    let stopped =
        runtime.block_on(async { tokio::task::spawn_blocking(move || stopping.join()).await });
    match stopped {
        Ok(Ok(result)) => result.inspect(|()| say("stopped")),
        _ => Err(StartError::Thread(io::Error::other("the server panicked while it stopped"))),
    }
}

/// Loads the settings again. One that is wrong changes nothing: the server goes on.
fn reload(server: &mut Server, load: &dyn Fn() -> Result<Settings, StartError>) {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
    let loaded = load().and_then(Config::from_settings);
    if loaded.is_err() {
        server.reload_failed();
    }
    match loaded.and_then(|config| server.reload(&config)) {
        Ok(waiting) => {
            tracing::info!("the configuration was loaded again");
            if !waiting.is_empty() {
                let settings = waiting.join(", ");
                tracing::warn!(settings, "these were changed, and hold from the next start on");
            }
        }
        Err(error) => {
            let hint = error.hint().unwrap_or_default();
            tracing::error!(%error, hint, "the configuration stays as it was");
        }
    }
    notify(&[NotifyState::Ready]);
}

/// Ends readiness at once, by what the pool does after a failed write, and the process soon: what a
/// thread that panicked was doing is sound on the device, and opening the pool again recovers it.
fn end_soon(server: &Server) -> ! {
    let end = || -> ! {
        std::thread::sleep(LAST_READS);
        std::process::exit(ExitCode::Failed as i32)
    };
    // Should this thread stand still at a lock; with no memory for one more it has to do.
    drop(std::thread::Builder::new().name("end".to_owned()).spawn(end));
    server.pool().refuse_writes();
    tracing::error!("a thread panicked: the pool refuses writes, and the server ends");
    notify(&[NotifyState::Stopping]);
    end()
}

/// Raises the limit of open files as far as it may be: every client needs one.
fn allow_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::info!(%error, "the limit of open files stays as it is");
    }
}

fn say_ready(server: &Server) {
    for listener in server.listeners() {
        say(listener);
    }
    say("ready");
    notify(&[NotifyState::Ready]);
}

/// Writes a line to standard error; a reader that went away does not stop the server.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Tells systemd, if it asked to be told.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Those that end the server, and the one that does not: it is caught from here on, though
    /// heeded only while the server runs.
    fn catch() -> io::Result<(Signals, Signal)> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok((Signals { terminate, interrupt }, signal(SignalKind::hangup())?))
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
