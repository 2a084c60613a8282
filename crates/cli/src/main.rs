//! The `hindsight` command: noun, then verb. One file per noun.
//!
//! Data goes to standard output, talk to standard error. A failure is one `error:` line, a `hint:`
//! line where there is one, and the exit code of the contract.

use std::process::ExitCode;

use clap::{FromArgMatches, Parser, Subcommand};

mod bisect;
mod changes;
mod clone;
mod complete;
mod completions;
mod diff;
mod doctor;
mod file;
mod global;
mod group;
mod help;
mod history;
mod image;
mod lab;
mod local;
mod made_target;
mod man;
mod mark;
mod model;
mod moment;
mod mount;
mod pack;
mod page;
mod pool;
mod prove;
mod rename;
mod resolve;
mod retention;
mod revert;
mod schedule;
mod serve;
mod share;
mod share_archive;
mod share_files;
mod share_operations;
mod signals;
mod space;
mod stream;
mod target;
mod target_access;
mod timeline;
mod tls;
mod together;
mod token;
mod trace;
mod trash;
mod version;
mod volume;
mod volume_text;
mod watch;

use terminal::{failure, nbd, output, session};

/// A storage server whose volumes can be rewound to any moment.
///
/// A moment is `latest`, a time such as `2026-11-21T10:00:00Z` or `"yesterday 14:03"`, a span ago
/// such as `-5min`, `seq:12345`, `v:3` or `mark:before-upgrade`.
#[derive(Debug, Parser)]
#[command(name = "hindsight", version, disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: global::Args,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a pool; one is made in an empty or missing directory.
    Serve(Box<serve::Args>),
    /// Volumes: create, list, show, space, set, resize, rename, delete, import, export.
    #[command(subcommand)]
    Volume(volume::Verb),
    /// Versions: moments that are captured, numbered and kept.
    #[command(subcommand)]
    Version(version::Verb),
    /// Groups: versions of several volumes at one instant.
    #[command(subcommand)]
    Group(group::Verb),
    /// Retention: why versions stay or go, and pruning now.
    #[command(subcommand)]
    Retention(retention::Verb),
    /// Marks: names for moments.
    #[command(subcommand)]
    Mark(mark::Verb),
    /// Shares: file trees over NFS, and who is allowed.
    #[command(subcommand)]
    Share(share::Verb),
    /// iSCSI targets: which there are, and how to log in to them.
    #[command(subcommand)]
    Target(target::Verb),
    /// Tokens: callers over TCP with a name, a role, and the volumes that they see.
    #[command(subcommand)]
    Token(token::Verb),
    /// TLS: make an authority, and certificates of the server and its clients; no server is asked.
    #[command(subcommand)]
    Tls(tls::Verb),
    /// Print an address of the web page that lets a browser in once, to less than DIR/token may.
    Page(page::Args),
    /// Show what was written when, with versions, marks and reverts.
    History(history::Args),
    /// Draw what was written when as one line, with versions, marks and reverts.
    Timeline(timeline::Args),
    /// Show what a moment comes to.
    Resolve(resolve::Args),
    /// Make a past moment the present. Nothing is lost: it can be undone.
    Revert(revert::Args),
    /// Make a writable volume that starts at a moment of another.
    Clone(clone::Args),
    /// Show the byte ranges that differ between two moments of a volume, or of it and a clone; of a
    /// share the paths.
    Diff(diff::Args),
    /// Files of past moments of a volume: list, stat, cat, restore, tar, diff, history, find.
    #[command(subcommand)]
    File(file::Verb),
    /// Show a past moment of a volume as a directory: its files, or the disk itself.
    ///
    /// Nothing can be written to it. It needs FUSE, and as another user than root `fusermount3`.
    Mount(mount::Args),
    /// Take away what `mount` has put somewhere.
    Unmount(mount::UnmountArgs),
    /// Find the first moment at which a check fails, by halving.
    ///
    /// COMMAND is run for moments between one that is good and one that is bad, each as a scratch
    /// clone. Its exit code says what the moment is: 0 good, 125 it cannot tell, 126 and more stop
    /// the search, all others bad. It finds in its environment HINDSIGHT_URI, an address of NBD;
    /// HINDSIGHT_DISK, the disk as a file, or HINDSIGHT_FILES, a directory with its files;
    /// HINDSIGHT_MOMENT and HINDSIGHT_SEQ. It may write to the clone. Time is now.
    Bisect(bisect::Args),
    /// Have a check of the server's configuration look at a moment: whether it mounts, boots,
    /// answers.
    ///
    /// The check is `verify` of a hook, run by the server on a scratch clone; its verdict is kept
    /// with the moment. Exit status: 0 good, 1 bad, 3 it could not tell or did not come to an end.
    Prove(prove::Args),
    /// Watches: alarms when much of a volume is written over with what looks random, or zeros.
    #[command(subcommand)]
    Watch(watch::Verb),
    /// The pool: status, audit log, offline inspection and rebuilding.
    #[command(subcommand)]
    Pool(pool::Verb),
    /// Look at server, pool, volumes, settings and machine, and say what is wrong and what to do.
    ///
    /// It changes nothing. Exit status, as of monitoring plugins: 0 good, 1 a warning, 2 critical,
    /// 3 the server could not be asked.
    Doctor(doctor::Args),
    /// Traces of requests: record, convert, cut, scale, summarise, generate.
    #[command(subcommand)]
    Trace(trace::Verb),
    /// The cost of each architecture for a workload, and advice.
    #[command(subcommand)]
    Model(model::Verb),
    /// Experiments: what is predicted, what is counted, what the papers say (hindsight-lab).
    #[command(disable_help_flag = true)]
    Lab(lab::Args),
    /// Print completions for a shell.
    Completions(completions::Args),
    /// Say what the word under the cursor may become.
    #[command(hide = true)]
    Complete(complete::Args),
    /// Write the manual pages into a directory.
    Man(man::Args),
    /// Show the help of a command.
    Help(help::Args),
}

fn main() -> ExitCode {
    server::watch_panics();
    let read = help::command().try_get_matches();
    let cli = read.and_then(|read| {
        let mut cli = Cli::from_arg_matches(&read)?;
        cli.global.settle(&read);
        Ok(cli)
    });
    let cli = match cli {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(failure::unread(&error) as u8),
    };
    let json = cli.global.json;
    match run(cli) {
        Ok(code) => ExitCode::from(code as u8),
        Err(error) => ExitCode::from(failure::report_by(serve::judge, &error, json) as u8),
    }
}

fn run(cli: Cli) -> anyhow::Result<api::ExitCode> {
    let session = cli.global.session();
    match cli.command {
        Command::Serve(args) => serve::run(*args),
        Command::Volume(verb) => volume::run(&session, verb),
        Command::Version(verb) => version::run(&session, verb),
        Command::Group(verb) => group::run(&session, verb),
        Command::Retention(verb) => retention::run(&session, verb),
        Command::Mark(verb) => mark::run(&session, verb),
        Command::Share(verb) => share::run(&session, verb),
        Command::Target(verb) => target::run(&session, verb),
        Command::Token(verb) => token::run(&session, verb),
        Command::Tls(verb) => tls::run(&session, verb),
        Command::Page(args) => page::run(&session, args),
        Command::History(args) => history::run(&session, &args),
        Command::Timeline(args) => timeline::run(&session, &args),
        Command::Resolve(args) => resolve::run(&session, &args),
        Command::Revert(args) => revert::run(&session, &args),
        Command::Clone(args) => clone::run(&session, args),
        Command::Diff(args) => diff::run(&session, &args),
        Command::File(verb) => file::run(&session, verb),
        Command::Mount(args) => mount::run(&session, &args),
        Command::Unmount(args) => mount::unmount(&args),
        Command::Bisect(args) => bisect::run(&session, &args),
        Command::Prove(args) => prove::run(&session, &args),
        Command::Watch(verb) => watch::run(&session, &verb),
        Command::Pool(verb) => pool::run(&session, verb),
        Command::Doctor(args) => doctor::run(&session, &args),
        Command::Trace(verb) => trace::run(&session, verb),
        Command::Model(verb) => model::run(&session, verb),
        Command::Lab(args) => lab::run(&session, &args),
        Command::Completions(args) => completions::run(&args),
        Command::Complete(args) => complete::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Help(args) => help::run(&args),
    }
}
