//! `hindsight mount` and `hindsight unmount`: a moment of a volume as a directory of this machine,
//! by FUSE. What is shown is read here, over NBD, by the readers of `hindsight file`.
//!
//! 1. The process that serves a mount holds the view, so that its moment stays; with the process
//!    it ends. A signal, `unmount` and the end of the process let go of it.
//! 2. Nothing is reported as mounted before the kernel has agreed.
//! 3. A server that is gone makes errors of reads, never other bytes; it is not asked again.

mod kernel;
mod serve;

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread;

use anyhow::Context;
use api::ExitCode;
use files::{Source, Whole};
use serde::Serialize;
use tokio::signal::unix::SignalKind;
use units::{Moment, VolumeMoment};

use crate::failure::Failure;
use crate::file::view::{How, Need, NeedArgs, Reading, View, Volume, Writes};
use crate::output::pairs;
use crate::session::{Session, say};
use crate::{moment, signals};
use kernel::Wish;
use serve::Served;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The volume and the moment; a volume alone is its present, fixed when the command begins.
    #[arg(value_name = "VOLUME[@MOMENT]")]
    of: String,
    /// An existing directory.
    dir: PathBuf,
    /// Show the disk itself as the one file `disk`, whatever lies on it.
    #[arg(long)]
    disk: bool,
    /// Show the files on it [default].
    #[arg(long, conflicts_with = "disk")]
    files: bool,
    /// Which part of the disk: p2, label=ROOT or uuid=... [default: the only one that can be read].
    #[arg(long, value_name = "PART", conflicts_with = "disk")]
    part: Option<String>,
    /// Stay in the foreground, until the signal of Ctrl-C or an unmount.
    #[arg(long)]
    foreground: bool,
    /// Show all as owned by the one who mounts.
    #[arg(long)]
    as_me: bool,
    /// Let other users look, as far as the modes of the files allow; for users other than root this
    /// takes user_allow_other in /etc/fuse.conf.
    #[arg(long)]
    allow_other: bool,
    #[command(flatten)]
    need: NeedArgs,
    /// Let the disk, which is the present of a volume then, be written to.
    #[arg(long, hide = true, requires = "disk")]
    writable: bool,
    /// Ends, and removes the directory, when standard input does.
    #[arg(long, hide = true, requires = "foreground")]
    attached: bool,
}

#[derive(Debug, clap::Args)]
pub struct UnmountArgs {
    /// The directory.
    dir: PathBuf,
}

/// Set for the process behind a mount, which tells its parent how it went.
const DETACHED: &str = "HINDSIGHT_MOUNT_DETACHED";

fn is_detached() -> bool {
    std::env::var_os(DETACHED).is_some()
}

/// The answer.
#[derive(Serialize)]
struct Mounted {
    #[serde(flatten)]
    how: How,
    dir: PathBuf,
    /// What it shows: `files` or `disk`.
    shows: &'static str,
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    if args.foreground || is_detached() {
        return serve_here(session, args);
    }
    let own = std::env::current_exe().context("this program is not to be found")?;
    let mut child = Command::new(own)
        .args(std::env::args_os().skip(1))
        .env(DETACHED, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the process of the mount")?;
    let mut told = Vec::new();
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_end(&mut told)?;
    }
    if told.is_empty() {
        // It said why on standard error.
        let code = child.wait()?.code().unwrap_or(1);
        std::process::exit(code);
    }
    io::Write::write_all(&mut io::stdout(), &told)?;
    Ok(ExitCode::Done)
}

pub fn unmount(args: &UnmountArgs) -> anyhow::Result<ExitCode> {
    let at = absolute(&args.dir)?;
    if kernel::number_of(&at)?.is_none() {
        let text = format!("{} is no mount of hindsight", at.display());
        return Err(Failure { code: ExitCode::NotFound, ..Failure::new(text) }.into());
    }
    kernel::unmount(&at, false)?;
    Ok(ExitCode::Done)
}

fn absolute(dir: &Path) -> anyhow::Result<PathBuf> {
    kernel::absolute(dir).with_context(|| format!("{}", dir.display()))
}

fn serve_here(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let at = absolute(&args.dir)?;
    if kernel::number_of(&at)?.is_some() {
        let text = format!("something is mounted at {} already", at.display());
        let failure = Failure { code: ExitCode::Busy, ..Failure::new(text) };
        return Err(failure.with_hint(format!("hindsight unmount {}", at.display())).into());
    }
    if !at.is_dir() {
        return Err(Failure::usage(format!("{} is no directory", at.display())).into());
    }
    let (served, how) = open(session, args)?;
    let source = format!("{}@seq:{}", how.volume, how.at.seq);
    let wish = Wish { source: &source, is_writable: args.writable, allow_other: args.allow_other };
    let mut device = kernel::mount(&at, &wish)?;
    let guard = Unmounts(&at);
    end_by_signals(at.clone(), args.attached)?;
    if args.attached {
        end_by_standard_input(at.clone());
    }
    let shows = if args.disk { "disk" } else { "files" };
    let mounted = Mounted { how, dir: at.clone(), shows };
    serve::serve(&mut device, &served, &mut || ready(session, args, &mounted))?;
    // It was unmounted: nothing is left to be.
    std::mem::forget(guard);
    if args.attached {
        remove(&at);
    }
    Ok(ExitCode::Done)
}

/// Unmounts when serving ends otherwise.
struct Unmounts<'a>(&'a Path);

impl Drop for Unmounts<'_> {
    fn drop(&mut self) {
        let _ = kernel::unmount(self.0, true);
    }
}

fn open(session: &Session, args: &Args) -> anyhow::Result<(Served, How)> {
    let of = moment::read_of_volume(&args.of)?;
    let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let kept = RefCell::default();
    let served = |tree, writes, size_bytes| Served {
        tree,
        writes,
        size_bytes,
        me: user,
        as_me: args.as_me,
        kept,
    };
    if args.disk {
        return open_disk(session, args, of, served);
    }
    let part = args.part.clone().unwrap_or_default();
    let need = args.need.need;
    let reading = Reading { of, part, path: None, need };
    let view = View::open(session, &reading).map_err(|error| mention_disk(error, &args.of))?;
    let size = view.part.length();
    Ok((served(view.tree, None, size), view.how))
}

/// What cannot be read as files can be had as a disk.
fn mention_disk(error: anyhow::Error, of: &str) -> anyhow::Error {
    match error.downcast::<Failure>() {
        Ok(failure) if failure.code == ExitCode::Unreadable => {
            let hint = format!("hindsight mount --disk {of} DIR, for tools of your own");
            failure.with_hint(hint).into()
        }
        Ok(failure) => failure.into(),
        Err(error) => error,
    }
}

fn open_disk(
    session: &Session,
    args: &Args,
    of: VolumeMoment,
    served: impl FnOnce(Box<dyn files::Tree>, Option<Rc<dyn Writes>>, u64) -> Served,
) -> anyhow::Result<(Served, How)> {
    if args.need.need == Some(Need::Clean) || args.need.need == Some(Need::Replayed) {
        return Err(Failure::usage("--need is about files: nothing is read of a disk").into());
    }
    if args.writable && of.moment != Moment::Latest {
        return Err(Failure::usage("nothing can be written to the past").into());
    }
    let volume = Volume::find(session, &of.volume)?;
    let at = volume.resolve(&of.moment.to_string())?;
    let writes = args.writable.then(|| volume.present().map(Rc::new)).transpose()?;
    let (at, disk): (_, Rc<dyn Source>) = match &writes {
        Some(disk) => (at, disk.clone()),
        None => volume.opened(at, |at| volume.disk(at.seq))?,
    };
    let writes = writes.map(|disk| -> Rc<dyn Writes> { disk });
    let nanos = at.time.0.as_nanos();
    let time = files::Time {
        seconds: (nanos / 1_000_000_000) as i64,
        nanos: (nanos % 1_000_000_000) as u32,
    };
    let size = disk.size();
    let how = How {
        volume: volume.name,
        at,
        part: String::new(),
        kind: "disk".to_owned(),
        state: "unread".to_owned(),
        transactions: None,
    };
    let tree = Box::new(Whole::new(disk, time, args.writable));
    Ok((served(tree, writes, size), how))
}

/// The kernel has agreed: it is told, and a process in the background lets go of its terminal.
fn ready(session: &Session, args: &Args, mounted: &Mounted) -> anyhow::Result<()> {
    kernel::read_ahead(&mounted.dir);
    session.answer(mounted, |mounted| {
        let How { volume, at, .. } = &mounted.how;
        pairs(&[
            ("mounted", format!("{volume}@seq:{}", at.seq)),
            ("time", at.time.to_string()),
            ("shows", mounted.shows.to_owned()),
            ("at", mounted.dir.display().to_string()),
        ])
    })?;
    if !args.foreground {
        std::env::set_current_dir("/")?;
        // Nobody sends the signals of a terminal any more.
        let _ = rustix::process::setsid();
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdout(&nothing)?;
        rustix::stdio::dup2_stderr(&nothing)?;
    }
    Ok(())
}

/// Removes the directory that was made for a mount. Two threads may come to it.
fn remove(at: &Path) {
    match std::fs::remove_dir(at) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            say(&format!("{} could not be removed: {error}", at.display()));
        }
        _ => {}
    }
}

/// Lets go of the mount, and of the directory if that was made for it, and ends the process.
fn end(at: &Path, with_directory: bool) -> ! {
    // What is used still fails from now on: the device is closed with the process.
    let _ = kernel::unmount(at, true);
    if with_directory {
        remove(at);
    }
    std::process::exit(0)
}

fn end_by_signals(at: PathBuf, with_directory: bool) -> anyhow::Result<()> {
    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    signals::catch(kinds, move || end(&at, with_directory))
}

fn end_by_standard_input(at: PathBuf) {
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        end(&at, true)
    });
}
