//! `hindsight file`: files of any moment of a volume, read here, over NBD. The server parses no file
//! system, nothing is mounted, and no root is needed.
//!
//! A file is named `VOLUME[@MOMENT]:[PART]/PATH`. Every answer says how its moment was read.

mod archive;
mod compare;
mod find;
mod history;
mod put;
mod show;
mod view;

use std::ffi::OsString;
use std::path::PathBuf;

use api::ExitCode;
use clap::{Subcommand, ValueEnum};

use crate::session::Session;
use view::Reading;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List the parts of a disk, or a directory.
    List(ListArgs),
    /// Show what is known of a file.
    Stat(OneArgs),
    /// Write the bytes of a file to standard output.
    Cat(OneArgs),
    /// Put a file, or a directory with all below it, onto this machine.
    Restore(RestoreArgs),
    /// Write a file, or a directory with all below it, to standard output as a tar archive.
    Tar(OneArgs),
    /// Show the paths that differ between two moments; of two files, the byte ranges.
    Diff(DiffArgs),
    /// Show the versions of a file: when what its path leads to changed.
    History(HistoryArgs),
    /// Show when something was at a path: last, and since when.
    Find(FindArgs),
}

/// How good the reading has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Need {
    /// Nothing was under way.
    Clean,
    /// That, or the journal was replayed.
    Replayed,
}

#[derive(Debug, clap::Args)]
pub struct NeedArgs {
    /// Refuse a moment that was not read so.
    #[arg(long, value_name = "HOW")]
    need: Option<Need>,
}

#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// The volume, the moment and the directory. PART is left out where there is one file system;
    /// else it is p2, label=ROOT or uuid=... Without a path: the parts of the disk.
    #[arg(value_name = "VOLUME[@MOMENT][:[PART]/PATH]")]
    of: OsString,
    /// Modes, owners, sizes and times as well.
    #[arg(short, long)]
    long: bool,
    /// All that is below it.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Names as they are, each with a zero behind it, for scripts.
    #[arg(long, conflicts_with = "long")]
    null: bool,
    #[command(flatten)]
    need: NeedArgs,
}

#[derive(Debug, clap::Args)]
pub struct OneArgs {
    /// The volume, the moment and the path.
    #[arg(value_name = "VOLUME[@MOMENT]:[PART]/PATH")]
    of: OsString,
    #[command(flatten)]
    need: NeedArgs,
}

#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// The volume, the moment and the path.
    #[arg(value_name = "VOLUME[@MOMENT]:[PART]/PATH")]
    of: OsString,
    /// The path it gets here; there may be nothing yet.
    to: PathBuf,
    /// Write over what is there: files and links give way, directories are merged into.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    need: NeedArgs,
}

#[derive(Debug, clap::Args)]
pub struct DiffArgs {
    /// One moment.
    #[arg(value_name = "VOLUME[@MOMENT]")]
    from: String,
    /// The other.
    #[arg(value_name = "VOLUME[@MOMENT]")]
    to: String,
    /// What is compared [default: /].
    #[arg(value_name = "[:][PART]/PATH")]
    path: Option<OsString>,
    #[command(flatten)]
    need: NeedArgs,
}

#[derive(Debug, clap::Args)]
pub struct HistoryArgs {
    /// The volume and the path.
    #[arg(value_name = "VOLUME:[PART]/PATH")]
    of: OsString,
    /// From this moment on [default: the oldest].
    #[arg(long, value_name = "MOMENT")]
    since: Option<String>,
    /// Up to this moment [default: the present].
    #[arg(long, value_name = "MOMENT")]
    until: Option<String>,
    /// Compare the bytes as well: what was written in place at one modification time is told.
    #[arg(long)]
    content: bool,
}

#[derive(Debug, clap::Args)]
pub struct FindArgs {
    /// The volume and the path.
    #[arg(value_name = "VOLUME:[PART]/PATH")]
    of: OsString,
    /// From this moment on [default: the oldest].
    #[arg(long, value_name = "MOMENT")]
    since: Option<String>,
    /// Up to this moment [default: the present].
    #[arg(long, value_name = "MOMENT")]
    until: Option<String>,
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List(args) => {
            let reading = Reading::parse(&args.of, args.need.need)?;
            match &reading.path {
                None => show::parts(session, &reading)?,
                Some(_) => show::list(session, &reading, &args)?,
            }
        }
        Verb::Stat(args) => show::stat(session, &Reading::parse(&args.of, args.need.need)?)?,
        Verb::Cat(args) => show::cat(session, &Reading::parse(&args.of, args.need.need)?)?,
        Verb::Restore(args) => {
            let reading = Reading::parse(&args.of, args.need.need)?;
            return put::run(session, &reading, &args.to, args.force);
        }
        Verb::Tar(args) => archive::run(session, &Reading::parse(&args.of, args.need.need)?)?,
        Verb::Diff(args) => compare::run(session, &args)?,
        Verb::History(args) => history::run(session, &args)?,
        Verb::Find(args) => return find::run(session, &args),
    }
    Ok(ExitCode::Done)
}
