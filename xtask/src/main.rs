//! The project's own commands: `cargo x COMMAND`. One file per command; this one only finds it.

use std::process::ExitCode;

use anyhow::{Result, bail};

mod bench;
mod check;
mod clients;
mod cycles;
mod format_pages;
mod fuzz;
mod graph;
mod program;
mod simulate;
mod tidy;
mod tree;

const HELP: &str = "\
cargo x COMMAND

  check [--linted]  format, clippy, house rules, crate graph, dependencies (what CI asks); --linted
                    leaves clippy out, where clippy-driver compiled everything
  tidy              the house rules alone
  graph             the crates and their edges, against the ladder
  test              cargo test --workspace
  sim [SEED] [--for 10m]
                    the simulator, optimised; without a seed, new ones until the time is over
  crash [FIRST] [--for 10m]
                    all crash points of short histories, from number FIRST on (all: hours)
  fuzz TARGET [-- ARGUMENTS]
                    cargo-fuzz on nightly; without a target, lists them
  clients nbd       the tests with real NBD clients
  bench [NAME ...] [--rounds N] [--seconds N] [--size 1G] [--dir DIR]
                    what bench/README.md lists; results go to bench/runs/
  format [--bless]  the format pages against the code
  inspect IMAGE     prints what a pool image holds (hindsight pool inspect)
  demo              the PostgreSQL story
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let Some((command, rest)) = arguments.split_first() else {
        print!("{HELP}");
        return Ok(());
    };
    match command.as_str() {
        "check" => match rest {
            [] => check::run(false),
            [flag] if flag == "--linted" => check::run(true),
            _ => bail!("usage: cargo x check [--linted]"),
        },
        "tidy" => tidy::run(),
        "graph" => graph::run(),
        "test" => program::cargo(&["test", "--workspace"]),
        "sim" => simulate::sim(rest),
        "crash" => simulate::crash(rest),
        "fuzz" => fuzz::run(rest),
        "clients" => clients::run(rest),
        "bench" => bench::run(rest),
        "format" => format_pages::run(rest),
        "inspect" => clients::inspect(rest),
        "demo" => clients::demo(),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => bail!("no such command: {other}; `cargo x` lists them"),
    }
}
