//! `hindsight bisect`: the first moment at which a check fails.
//!
//! 1. Both ends are looked at first. Between ends that agree a change is searched for only by the
//!    moments of a scan.
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
    /// Look at so many moments at once; each takes a clone, and runs the command.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// Where both ends are alike, look at so many moments between them for a change.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    scan: Option<u16>,
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
    /// Looks at a time.
    jobs: usize,
    runs: Vec<Run>,
}

impl Search<'_> {
    /// Looks at moments, some at a time; what each says, as far as it was had before one failed.
    fn look(&mut self, all: &[Resolved]) -> (Vec<(Resolved, Verdict)>, anyhow::Result<()>) {
        let mut told = Vec::new();
        for some in all.chunks(self.jobs) {
            let looks = std::thread::scope(|scope| {
                let trial = &self.trial;
                let looks: Vec<_> =
                    some.iter().map(|at| scope.spawn(move || trial.look(at))).collect();
                looks.into_iter().map(|look| look.join().expect("a look panicked")).collect()
            });
            let looks: Vec<anyhow::Result<Run>> = looks;
            let mut failed = None;
            for look in looks {
                match look {
                    Ok(run) => told.push((run.at, self.note(run))),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            if let Some(error) = failed {
                return (told, Err(error));
            }
        }
        (told, Ok(()))
    }

    fn note(&mut self, run: Run) -> Verdict {
        let number = self.runs.len() + 1;
        let code = run.exit_code.map_or(String::new(), |code| format!(" (exit code {code})"));
        let (seq, time, word) = (run.at.seq, run.at.time, run.verdict.word());
        say(&format!("{number}: seq:{seq} {time} {word}{code}, {} ms", run.took_ms));
        let verdict = run.verdict;
        self.runs.push(run);
        verdict
    }

    /// Halves, or cuts by as many looks as are had at a time, until nothing is left between;
    /// whether that is so, or it cannot be told.
    fn halve(&mut self, good: &mut Resolved, bad: &mut Resolved) -> anyhow::Result<bool> {
        let mut untold = BTreeSet::new();
        loop {
            let next = self.past.spread(good, bad, self.jobs, &untold)?;
            if next.is_empty() {
                return Ok(!untold.range(good.seq..bad.seq).any(|_| true));
            }
            let (told, looked) = self.look(&next);
            let is_unknown = |(_, verdict): &&(Resolved, Verdict)| *verdict == Verdict::Unknown;
            untold.extend(told.iter().filter(is_unknown).map(|(at, _)| at.seq));
            let ends = [(*good, Verdict::Good), (*bad, Verdict::Bad)];
            if let Some((before, after)) = change([&ends[..], &told].concat()) {
                (*good, *bad) = (before, after);
            }
            looked?;
        }
    }

    /// A good moment and a bad one behind it: the ends if they are what was said of them, or what
    /// so many looks between them find.
    fn begin(
        &mut self,
        good: Resolved,
        bad: Resolved,
        scan: Option<u16>,
    ) -> anyhow::Result<(Resolved, Resolved)> {
        let (mut told, looked) = self.look(&[good, bad]);
        looked?;
        if let [(_, Verdict::Good), (_, Verdict::Bad)] = told[..] {
            return Ok((good, bad));
        }
        let wrong = |(end, verdict): (Resolved, Verdict), expected: Verdict| {
            (verdict != expected).then(|| {
                let (seq, said, is) = (end.seq, expected.word(), verdict.word());
                format!("seq:{seq} was said to be {said}; the command says: {is}")
            })
        };
        let text = wrong(told[0], Verdict::Good).or_else(|| wrong(told[1], Verdict::Bad));
        let text = text.unwrap_or_default();
        if told.iter().any(|(_, verdict)| *verdict == Verdict::Unknown) {
            let hint = "give a moment at which it can tell";
            return Err(Failure::new(text).with_hint(hint).into());
        }
        let Some(count) = scan else {
            let hint = "--scan 16 looks at 16 moments between the two for a change to bad";
            return Err(Failure::new(text).with_hint(hint).into());
        };
        say(&text);
        let between = self.past.spread(&good, &bad, usize::from(count), &BTreeSet::new())?;
        let (more, looked) = self.look(&between);
        told.extend(more);
        let found = change(told);
        looked.inspect_err(|_| {
            if let Some((good, bad)) = &found {
                self.past.tell_way(good, bad);
            }
        })?;
        found.ok_or_else(|| {
            let looks = count_of(between.len());
            let text = format!("{text}; nor did it go from good to bad at {looks} between");
            Failure::new(text).with_hint("a larger --scan looks at more of them").into()
        })
    }
}

fn count_of(moments: usize) -> String {
    count(moments as u64, "moment")
}

/// The first change from good to bad, and the last good moment before it.
fn change(mut told: Vec<(Resolved, Verdict)>) -> Option<(Resolved, Resolved)> {
    told.sort_by_key(|(at, _)| at.seq);
    let mut good = None;
    for (at, verdict) in told {
        match (verdict, good) {
            (Verdict::Good, _) => good = Some(at),
            (Verdict::Bad, Some(good)) => return Some((good, at)),
            _ => {}
        }
    }
    None
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let client = session.client()?;
    let past = Past { client: &client, volume: &args.volume, step: args.step };
    let good = past.resolve(&moment::read(&args.good)?)?;
    let bad = past.resolve(&moment::read(&args.bad)?)?;
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
    let mut search = Search { past, trial, jobs: usize::from(args.jobs), runs: Vec::new() };
    let (mut good, mut bad) = search.begin(good, bad, args.scan)?;
    let settled = search.halve(&mut good, &mut bad);
    let settled = settled.inspect_err(|_| search.past.tell_way(&good, &bad))?;
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

#[cfg(test)]
mod tests {
    use api::{Resolved, Time};
    use units::WallTime;

    use super::change;
    use super::trial::Verdict::{self, Bad, Good, Unknown};

    #[test]
    fn the_first_change_is_the_one_that_is_told() {
        let at = |seq| Resolved { seq, time: Time(WallTime::from_nanos(seq)), exact: true };
        let seqs = |verdicts: &[(u64, Verdict)]| {
            let told = verdicts.iter().map(|(seq, verdict)| (at(*seq), *verdict)).collect();
            change(told).map(|(good, bad)| (good.seq, bad.seq))
        };
        assert_eq!(seqs(&[(1, Good), (9, Bad), (5, Good), (7, Unknown)]), Some((5, 9)));
        // It turned back: what is before the first bad one counts.
        assert_eq!(seqs(&[(1, Good), (3, Bad), (5, Good), (9, Bad)]), Some((1, 3)));
        assert_eq!(seqs(&[(1, Bad), (3, Good), (9, Bad)]), Some((3, 9)));
        assert_eq!(seqs(&[(1, Good), (3, Bad), (9, Good)]), Some((1, 3)));
        assert_eq!(seqs(&[(1, Bad), (3, Unknown), (9, Good)]), None);
        assert_eq!(seqs(&[]), None);
    }
}
