//! The log on standard error: text for people or JSON for collectors.
//!
//! A client's mistake is no more than DEBUG; WARN and ERROR are for the operator. A line that
//! cannot be written is lost: nobody who logs is to end by a full disk, or a reader that left.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::{LogSettings, StartError};

/// Told of every panic of any thread.
static PANICKED: Notify = Notify::const_new();
/// Whether there was one.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);
/// Sets the filter of the log that was started.
static SET_FILTER: OnceLock<SetFilter> = OnceLock::new();

type SetFilter = Box<dyn Fn(EnvFilter) + Send + Sync>;

/// Watches the panics of all threads of this process: they are told as ever, and end a server (see
/// [`panicked`]). Kept out of sight are those that the engine catches and reports as errors: damage
/// that the catalogue's library finds by one.
pub fn watch_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !volume::panic_becomes_error() {
            HAS_PANICKED.store(true, Ordering::Release);
            tell(panic);
            // Nothing more: this thread may hold any lock.
            PANICKED.notify_one();
        }
    }));
}

/// Waits until a thread of this process has panicked, whichever it was, and whoever caught it: an
/// assertion found a mistake of ours, and what that thread was doing is half done in memory.
pub(crate) async fn panicked() {
    PANICKED.notified().await;
}

/// Whether a thread of this process has panicked: it is not well from that instant on, before
/// anybody who waits for it has heard.
pub(crate) fn has_panicked() -> bool {
    HAS_PANICKED.load(Ordering::Acquire)
}

/// Starts logging for the whole process; later calls are refused by the subscriber and ignored.
///
/// # Errors
/// When format or level are none.
pub fn start_log(settings: &LogSettings) -> Result<(), StartError> {
    let filter = filter(settings)?;
    // The subscriber would say on standard error that it cannot write there, and panic by that.
    let subscriber =
        tracing_subscriber::fmt().with_writer(|| Lossy(io::stderr())).log_internal_errors(false);
    let (started, set): (_, SetFilter) = match settings.format.as_deref().unwrap_or("text") {
        "text" => {
            let subscriber = subscriber.with_ansi(false);
            let subscriber = subscriber.with_env_filter(filter).with_filter_reloading();
            let handle = subscriber.reload_handle();
            (subscriber.try_init(), Box::new(move |filter| drop(handle.reload(filter))))
        }
        "json" => {
            let subscriber = subscriber.json().with_env_filter(filter).with_filter_reloading();
            let handle = subscriber.reload_handle();
            (subscriber.try_init(), Box::new(move |filter| drop(handle.reload(filter))))
        }
        other => {
            return Err(StartError::setting(
                format!("`{other}` is not a log format"),
                "give text or json",
            ));
        }
    };
    // The only failure is that the process logs already, as in tests.
    if started.is_ok() {
        let _ = SET_FILTER.set(set);
    }
    Ok(())
}

/// Goes on with another level.
pub(crate) fn set_level(settings: &LogSettings) -> Result<(), StartError> {
    let filter = filter(settings)?;
    if let Some(set) = SET_FILTER.get() {
        set(filter);
    }
    Ok(())
}

fn filter(settings: &LogSettings) -> Result<EnvFilter, StartError> {
    let level = settings.level.as_deref().unwrap_or("info");
    let refused = |why: String| {
        StartError::setting(
            format!("`{level}` is not a log level{why}"),
            "give error, warn, info, debug or trace, or a filter such as hindsight_server=debug",
        )
    };
    // A word that is no level would be taken for the name of a part, and silence all others.
    let is_word = level.bytes().all(|b| b.is_ascii_alphanumeric());
    if is_word && level.parse::<LevelFilter>().is_err() {
        return Err(refused(String::new()));
    }
    EnvFilter::try_new(level).map_err(|e| refused(format!(": {e}")))
}

/// A writer that never fails: what it cannot write is lost.
struct Lossy<W>(W);

impl<W: Write> Write for Lossy<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // All at once: the rest of a line that was cut short helps nobody.
        let _ = self.0.write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}
