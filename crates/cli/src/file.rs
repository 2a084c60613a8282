//! `hindsight file`: files of any moment of a volume, read here, over NBD. The server parses no
//! file system, nothing is mounted, and no root is needed.
//!
//! A file is named `VOLUME[@MOMENT]:[PART]/PATH`. Every answer says how its moment was read.

mod archive;
mod compare;
mod find;
mod history;
mod put;
mod show;
pub mod view;

use api::ExitCode;
use clap::Subcommand;

use crate::session::Session;
use view::{OneArgs, Reading};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List the parts of a disk, or a directory.
    List(show::ListArgs),
    /// Show what is known of a file.
    Stat(OneArgs),
    /// Write the bytes of a file to standard output.
    Cat(OneArgs),
    /// Put a file, or a directory with all below it, onto this machine.
    Restore(put::RestoreArgs),
    /// Write a file, or a directory with all below it, to standard output as a tar archive.
    Tar(OneArgs),
    /// Show the paths that differ between two moments; of two files, the byte ranges.
    Diff(compare::DiffArgs),
    /// Show the versions of a file: when what its path leads to changed.
    History(history::HistoryArgs),
    /// Show when something was at a path: last, and since when.
    Find(history::SearchArgs),
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
        Verb::Tar(args) => {
            return archive::run(session, &Reading::parse(&args.of, args.need.need)?);
        }
        Verb::Diff(args) => compare::run(session, &args)?,
        Verb::History(args) => history::run(session, &args)?,
        Verb::Find(args) => return find::run(session, &args),
    }
    Ok(ExitCode::Done)
}
