//! `hindsight bisect`: the first moment at which a check fails.
//!
//! 1. Both ends are looked at first: nothing is searched for between ends that agree.
//! 2. What is told is a change from good to bad between two moments that were looked at. Only for a
//!    check that never turns back it is the first one.
//! 3. However it ends, it says how far it came, so that it can go on from there.

mod search;
mod trial;

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{Client, CreateClone, CreateMark, ExitCode, ProblemKind, Range, Resolved};
use serde::Serialize;
use tokio::signal::unix::SignalKind;

use crate::failure::Failure;
use crate::output::{Table, count, human};
use crate::session::{Session, say};
use crate::{diff, moment, signals};
use search::{Past, Step};
use trial::{Attach, Interrupted, Run, Trial, Verdict};

/// Ranges that are shown of what was written between; all of them are in JSON.
const RANGES_SHOWN: usize = 10;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the volume.
    volume: String,
    /// A moment at which the check succeeds.
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    good: String,
    /// A later one at which it fails.
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    bad: String,
    /// How fine to look: flush (states that clients had flushed), a span such as 1s, or write.
    #[arg(long, value_name = "STEP", default_value = "flush")]
    step: Step,
    /// How the command gets at the moment: HINDSIGHT_URI alone, with HINDSIGHT_DISK, or with
    /// HINDSIGHT_FILES.
    #[arg(long, value_enum, default_value = "disk")]
    attach: Attach,
    /// Keep clones of the last good and the first bad moment: VOLUME-good-SEQ, VOLUME-bad-SEQ.
    #[arg(long)]
    keep: bool,
    /// Mark both moments, pinned: bisect-good-SEQ, bisect-bad-SEQ.
    #[arg(long)]
    mark: bool,
    /// The check.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The answer.
#[derive(Serialize)]
struct Found {
    volume: String,
    last_good: Resolved,
    first_bad: Resolved,
    /// Whether there is no moment between that could be looked at and was not.
    settled: bool,
    /// What differs between the two.
    written: Vec<Range>,
    /// All looks, in the order of their moments.
    runs: Vec<Run>,
    /// Marks and clones that were made.
    made: Vec<String>,
}

/// A search under way.
struct Search<'a> {
    past: Past<'a>,
    trial: Trial<'a>,
    runs: Vec<Run>,
}

impl Search<'_> {
    fn look(&mut self, at: &Resolved) -> anyhow::Result<Verdict> {
        let run = self.trial.look(at)?;
        let number = self.runs.len() + 1;
        let code = run.exit_code.map_or(String::new(), |code| format!(" (exit code {code})"));
        let (seq, time, word) = (at.seq, at.time, run.verdict.word());
        say(&format!("{number}: seq:{seq} {time} {word}{code}, {} ms", run.took_ms));
        let verdict = run.verdict;
        self.runs.push(run);
        Ok(verdict)
    }

    /// Halves until nothing is left between; whether that is so, or it cannot be told.
    fn halve(&mut self, good: &mut Resolved, bad: &mut Resolved) -> anyhow::Result<bool> {
        let mut untold = BTreeSet::new();
        while let Some(middle) = self.past.between(good, bad, &untold)? {
            match self.look(&middle)? {
                Verdict::Good => *good = middle,
                Verdict::Bad => *bad = middle,
                Verdict::Unknown => _ = untold.insert(middle.seq),
            }
        }
        Ok(!untold.range(good.seq..bad.seq).any(|_| true))
    }

    /// Fails unless the ends are what was said of them.
    fn check_ends(&mut self, good: &Resolved, bad: &Resolved) -> anyhow::Result<()> {
        for (end, expected) in [(good, Verdict::Good), (bad, Verdict::Bad)] {
            let verdict = self.look(end)?;
            if verdict != expected {
                let (seq, said, is) = (end.seq, expected.word(), verdict.word());
                let text = format!("seq:{seq} was said to be {said}; the command says: {is}");
                let hint = match verdict {
                    Verdict::Unknown => "give a moment at which it can tell",
                    _ => "with both ends alike there is nothing to be found between them",
                };
                return Err(Failure::new(text).with_hint(hint).into());
            }
        }
        Ok(())
    }
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let client = session.client()?;
    let past = Past { client: &client, volume: &args.volume, step: args.step };
    let mut good = past.resolve(&moment::read(&args.good)?)?;
    let mut bad = past.resolve(&moment::read(&args.bad)?)?;
    if good.seq >= bad.seq {
        let text = format!("the good moment, seq:{}, is not before seq:{}", good.seq, bad.seq);
        return Err(Failure::usage(text).with_hint("good comes before bad").into());
    }
    let interrupted = Arc::new(Interrupted::default());
    // An interrupt ends the look under way.
    let (signals, held) =
        ([SignalKind::interrupt(), SignalKind::terminate()], Arc::clone(&interrupted));
    signals::catch(signals, move || held.interrupt())?;
    let trial = Trial {
        session,
        client: &client,
        volume: &args.volume,
        attach: args.attach,
        command: &args.command,
        interrupted: &interrupted,
    };
    let mut search = Search { past, trial, runs: Vec::new() };
    search.check_ends(&good, &bad)?;
    let settled = search.halve(&mut good, &mut bad).inspect_err(|_| {
        let way = format!("--good seq:{} --bad seq:{}", good.seq, bad.seq);
        say(&format!("to go on: hindsight bisect {} {way} ...", args.volume));
    })?;
    let mut runs = search.runs;
    runs.sort_by_key(|run| run.at.seq);
    let of = |at: &Resolved| (args.volume.clone(), format!("seq:{}", at.seq));
    let written = diff::between(&client, &of(&good), &of(&bad))?;
    let made = keep(&client, args, &good, &bad)?;
    let volume = args.volume.clone();
    let found = Found { volume, last_good: good, first_bad: bad, settled, written, runs, made };
    session.answer(&found, |found| show(found, args.step))?;
    Ok(if found.settled { ExitCode::Done } else { ExitCode::Partly })
}

/// Makes the marks and clones that were asked for; those that are there already stay.
fn keep(
    client: &Client,
    args: &Args,
    good: &Resolved,
    bad: &Resolved,
) -> anyhow::Result<Vec<String>> {
    let mut made = Vec::new();
    for (word, at) in [("good", good), ("bad", bad)] {
        let moment = Some(format!("seq:{}", at.seq));
        if args.mark {
            let name = format!("bisect-{word}-{}", at.seq);
            let body = CreateMark { name: name.clone(), at: moment.clone(), pin: true };
            unless_there(client.create_mark(&args.volume, &body))?;
            made.push(format!("mark {name}"));
        }
        if args.keep {
            let name = format!("{}-{word}-{}", args.volume, at.seq);
            let body = CreateClone { name: name.clone(), at: moment, ..CreateClone::default() };
            unless_there(client.create_clone(&args.volume, &body))?;
            made.push(format!("volume {name}"));
        }
    }
    Ok(made)
}

fn unless_there<T>(made: Result<T, api::ClientError>) -> anyhow::Result<()> {
    match made {
        Err(error) if error.is(ProblemKind::Exists) => Ok(()),
        made => Ok(made.map(drop)?),
    }
}

fn show(found: &Found, step: Step) -> String {
    let code = |code: Option<i32>| code.map_or("-".to_owned(), |code| code.to_string());
    let mut text = Table::of(&found.runs)
        .right("SEQ", |run| run.at.seq.to_string())
        .left("TIME", |run| run.at.time.to_string())
        .right("EXIT", |run| code(run.exit_code))
        .left("VERDICT", |run| run.verdict.word().to_owned())
        .text();
    let stamp = |at: &Resolved| format!("{}@seq:{} ({})", found.volume, at.seq, at.time);
    text += &format!("\nlast good   {}\n", stamp(&found.last_good));
    text += &format!("first bad   {}\n", stamp(&found.first_bad));
    let bytes = found.written.iter().map(|range| range.length).sum();
    let ranges = count(found.written.len() as u64, "range");
    text += &format!("written between: {} in {ranges}\n", human(bytes));
    for range in found.written.iter().take(RANGES_SHOWN) {
        text += &format!("  {} bytes at {}\n", range.length, range.offset);
    }
    if found.written.len() > RANGES_SHOWN {
        text += "  ...\n";
    }
    found.made.iter().for_each(|made| text += &format!("made        {made}\n"));
    if !found.settled {
        text += "Between the two the check could not tell.\n";
    } else if step != Step::Write && found.first_bad.seq - found.last_good.seq > 1 {
        let (good, bad) = (found.last_good.seq, found.first_bad.seq);
        text += &format!("Down to the write: --good seq:{good} --bad seq:{bad} --step write\n");
    }
    text += "A check that goes from bad to good and back has more changes than this one.\n";
    text
}
