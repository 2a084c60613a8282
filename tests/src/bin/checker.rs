//! The black-box checker as a program: runs of growing seed, until one of them finds something.
//!
//! ```text
//! checker [--seed N] [--rounds N] [--for 10m] [--steps N] [--only PART] [--hindsight PROGRAM]
//! ```
//!
//! With `--only` a run is one of the parts that otherwise go on beside its random steps.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hindsight_tests::checker::{self, Counts, Options};
use hindsight_tests::server;

struct Arguments {
    seed: u64,
    rounds: u64,
    time: Option<Duration>,
    options: Options,
    program: Option<PathBuf>,
}

fn main() -> ExitCode {
    match arguments().and_then(|arguments| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => server::program()?,
    };
    let began = Instant::now();
    let mut total = Counts::default();
    let mut rounds = 0;
    while match arguments.time {
        Some(time) => began.elapsed() < time,
        None => rounds < arguments.rounds,
    } {
        let seed = arguments.seed + rounds;
        let at = Instant::now();
        let counts = checker::run(&program, seed, arguments.options)
            .with_context(|| format!("run it again: checker --seed {seed} --rounds 1"))?;
        println!("seed {seed}: {counts} in {:.1} s", at.elapsed().as_secs_f64());
        total += counts;
        rounds += 1;
    }
    println!(
        "checker: {rounds} runs from seed {} found nothing: {total} in {:.0} s",
        arguments.seed,
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

fn arguments() -> Result<Arguments> {
    let mut arguments =
        Arguments { seed: 1, rounds: 10, time: None, options: Options::default(), program: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--seed" => arguments.seed = value.parse()?,
            "--rounds" => arguments.rounds = value.parse()?,
            "--for" => arguments.time = Some(span(&value)?),
            "--steps" => arguments.options.steps = value.parse()?,
            "--only" => arguments.options.only = Some(value.parse()?),
            "--hindsight" => arguments.program = Some(PathBuf::from(value)),
            _ => {
                bail!(
                    "no such option: {word}; there are --seed --rounds --for --steps --only \
                     --hindsight"
                )
            }
        }
    }
    Ok(arguments)
}

/// Seconds, or a number with s, m (as in `--for 10m`) or h.
fn span(text: &str) -> Result<Duration> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        unit => bail!("no such unit of time: {unit}"),
    };
    Ok(Duration::from_secs(digits.parse::<u64>()? * factor))
}
