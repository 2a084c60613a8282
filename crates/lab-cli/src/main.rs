//! The `hindsight-lab` command, which `hindsight lab` starts: experiments, with what is predicted,
//! counted and said by the papers side by side. One file per verb. No server is needed.

use std::path::PathBuf;
use std::process::ExitCode as Status;

use anyhow::Context;
use api::ExitCode;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use lab::experiment::EXPERIMENTS;
use serde::Serialize;
use terminal::failure;
use terminal::output::{Align, table};
use terminal::session::{Session, say};
use terminal::{complete, help};

mod darc;
mod initiator;
mod live;
mod replay;
mod run;
mod served;
mod ucdp;
mod xiao;

/// Experiments: what is predicted, what is counted, what the papers say.
#[derive(Debug, Parser)]
#[command(name = "hindsight-lab", bin_name = "hindsight lab", version, max_term_width = 100)]
struct Cli {
    /// Answer in JSON.
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the experiments.
    List,
    /// Run experiments; writes CSV, SVG and PNG of each, and a report on one page.
    Run(run::Args),
    /// Measure DARC's figures and tables on real files, in real time, beside what the paper says.
    Darc(Box<darc::Args>),
    /// Send a trace through the engine, in virtual time and memory, beside both prices; or to a
    /// live volume.
    Replay(Box<replay::Args>),
    /// Measure UCDP's figures on NFS servers, in real time, beside what the paper says.
    Ucdp(Box<ucdp::Args>),
    /// Measure Xiao's snapshots through the iSCSI target, in real time, beside what the paper says.
    Xiao(Box<xiao::Args>),
    /// Say what the word under the cursor may become.
    #[command(hide = true)]
    Complete {
        /// The words behind `hindsight lab`, up to the cursor.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Write the manual pages into a directory; `hindsight man` asks for it.
    #[command(hide = true)]
    Man {
        /// The directory.
        dir: PathBuf,
    },
}

/// An example of each verb.
const EXAMPLES: &[(&str, &str)] = &[
    ("darc", "fig5"),
    ("list", ""),
    ("replay", "pg.trace"),
    ("run", "laden-fig9"),
    ("ucdp", "--updates 12 --rate 0"),
    ("xiao", "--rounds 1 -o snapshots"),
];

const ENVIRONMENT: &str = "\
Environment:
  NO_COLOR  no colours, if it is set

Exit status:
  0 done; 1 failed; 2 the command line was wrong; 3 partly done, or a claim differs;
  130 interrupted";

fn command() -> clap::Command {
    help::with_endings(Cli::command(), "hindsight lab", EXAMPLES, ENVIRONMENT)
}

fn main() -> Status {
    hide_caught_panics();
    let read = command().try_get_matches();
    let cli = match read.and_then(|read| Cli::from_arg_matches(&read)) {
        Ok(cli) => cli,
        Err(error) => return Status::from(failure::unread(&error) as u8),
    };
    let session = Session::without_server(cli.json);
    match act(&session, cli.verb) {
        Ok(code) => Status::from(code as u8),
        Err(error) => Status::from(failure::report(&error, cli.json) as u8),
    }
}

/// Panics that the engine reports as errors, of damage that `darc` did, are told as those.
fn hide_caught_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !volume::panic_becomes_error() {
            tell(panic);
        }
    }));
}

fn act(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List => list(session),
        Verb::Run(args) => run::run(session, args),
        Verb::Darc(args) => darc::run(session, &args),
        Verb::Ucdp(args) => ucdp::run(session, &args),
        Verb::Replay(args) => replay::run(session, &args),
        Verb::Xiao(args) => xiao::run(session, &args),
        Verb::Complete { words } => {
            complete::print(move || candidates(&words));
            Ok(ExitCode::Done)
        }
        Verb::Man { dir } => {
            let wrote = || format!("cannot write manual pages to {}", dir.display());
            std::fs::create_dir_all(&dir).with_context(wrote)?;
            clap_mangen::generate_to(command(), &dir).with_context(wrote)?;
            say(&wrote().replacen("cannot write", "wrote", 1));
            Ok(ExitCode::Done)
        }
    }
}

/// Only what the definition has: names of volumes are nothing to the laboratory.
fn candidates(words: &[String]) -> Vec<String> {
    complete::candidates(command(), words, |_, arg, _| {
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
    })
}

#[derive(Debug, Serialize)]
struct Listed {
    name: &'static str,
    title: &'static str,
}

fn list(session: &Session) -> anyhow::Result<ExitCode> {
    let all = EXPERIMENTS.iter().map(|one| Listed { name: one.name, title: one.title });
    session.answer(&all.collect::<Vec<_>>(), |all| {
        let rows: Vec<Vec<String>> =
            all.iter().map(|one| vec![one.name.into(), one.title.into()]).collect();
        table(&[("NAME", Align::Left), ("WHAT IT SHOWS", Align::Left)], &rows)
    })?;
    Ok(ExitCode::Done)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};
    use terminal::help::{leaves, words};

    use super::{Cli, EXAMPLES, candidates};

    #[test]
    fn every_verb_has_an_example_that_can_be_read() {
        let shown: Vec<&str> = EXAMPLES.iter().map(|(path, _)| *path).collect();
        assert_eq!(leaves(&Cli::command()), shown);
        for words in EXAMPLES.iter().map(|example| words("hindsight-lab", example)) {
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{words:?}: {error}");
            }
        }
    }

    #[test]
    fn verbs_options_and_their_words_are_completed() {
        let of = |line: &str| candidates(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(of("r"), ["replay", "run"]);
        assert_eq!(of("run --no"), ["--no-engine"]);
        assert_eq!(of("replay --format fio"), ["fio-v2", "fio-v3"]);
    }
}
