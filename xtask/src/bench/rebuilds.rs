//! How fast a member that took another's place gets what that had when nobody else wants the
//! devices, against reading the file from its beginning to its end; and what clients have of it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Options;
use super::alone::{copy_files, forget_pages, read_file, seconds_between};
use super::fio::Outcome;
use super::patterns::{Pattern, RANDOM_READ, RANDOM_WRITE};
use super::report::Report;
use super::servers::Hindsight;
use super::throughput::{in_turns, measure};

/// The stacks, and how many of the members hold data.
const STACKS: [(&str, &str, u64); 2] =
    [("mirror", "mirror(a.img, b.img)", 1), ("parity", "parity(a.img, b.img, c.img)", 2)];
/// How often it is looked whether a rebuild has ended.
const LOOK: Duration = Duration::from_millis(20);
/// The least that a rebuild may be limited to: a step of 1 MiB, and a rest of 16 s.
const LEAST_RATE: &str = "64KiB";
/// Longest time that one may take.
const SECONDS_MAX: u64 = 3600;

/// A rebuild of a pool that nobody uses, and rebuilds beside clients.
pub fn alone_and_beside(options: &Options) -> Result<Report> {
    let mut report = empty_report();
    for (name, stack, data_members) in STACKS {
        let hindsight = Hindsight::start_on(options, &format!("rebuilt-{name}"), stack)?;
        hindsight.make_volume("bench", options.size_bytes, "every-write")?;
        hindsight.settle()?;
        let mut replacements = Replacements { hindsight: &hindsight, made: 0, old: None };
        in_turns(options.rounds, &["file", "copy", "rebuild"], |round, what| {
            forget_pages()?;
            let bytes = hindsight.used_bytes()? / data_members;
            let others = ["a.img", "b.img"].map(|name| hindsight.file(name));
            let rate = match *what {
                "file" => read_file(&others[0], bytes)?,
                "copy" => {
                    let copy = hindsight.file("copy.img");
                    let rate = copy_files(&others[..data_members as usize], &copy, bytes)?;
                    std::fs::remove_file(copy).context("the copy")?;
                    rate
                }
                _ => replacements.rebuild()?,
            };
            report.add(&format!("{name}: alone"), what, round, rate, None);
            Ok(())
        })?;
        beside_clients(options, name, &mut replacements, &mut report)?;
    }
    Ok(report)
}

fn empty_report() -> Report {
    let goal = "alone at least 0.70 of the device; beside clients they keep at least 0.95";
    let mut report = Report::new("Rebuilds", goal, "MB/s; beside clients requests/s");
    let ratios = [
        ("rebuild", "file", "what the new member got / reading one"),
        ("rebuild", "copy", "what the new member got / the same by hand"),
        ("beside", "quiet", "clients beside a rebuild / on a whole pool"),
        ("beside", "degraded", "what the rebuild costs: clients beside it / while it waits"),
        (
            "degraded",
            "quiet",
            "what a third copy of what is written costs: clients with it / without",
        ),
    ];
    for (subject, against, text) in ratios {
        report = report.with_ratio(subject, &[against], &format!("{text}, round by round"));
    }
    report.note(
        "A pool on a mirror of two, and one on a parity of three; filled once. Alone: the last \
         member is replaced by a file that is not there yet; nothing of the others is in the page \
         cache before. Its time is from `replace-begun` to `member-replaced` in the audit log, its \
         bytes are those that were written to it. Beside: whenever one is replaced the next is \
         begun. Degraded: the member is being replaced, and the copying may do next to nothing \
         (`pool set --rebuild-rate`): what is written goes to both. All members are \
         files on one disk, which is read and written at the same time: `copy` reads all the \
         others from beginning to end, writes as much as one of them to a new file, and makes it \
         durable, which is what such a disk can do of a rebuild at all.",
    );
    report
}

fn beside_clients(
    options: &Options,
    name: &str,
    replacements: &mut Replacements<'_>,
    report: &mut Report,
) -> Result<()> {
    let uri = replacements.hindsight.server.uri("bench");
    let mut rebuilds = 0;
    for pattern in [&RANDOM_READ, &RANDOM_WRITE] {
        let case = format!("{name}: {}", pattern.name);
        // Alone, the page cache was emptied: the first would have to fill it.
        measure(options, &uri, pattern)?;
        in_turns(options.rounds, &["quiet", "degraded", "beside"], |round, what| {
            let found = match *what {
                "quiet" => measure(options, &uri, pattern)?,
                "degraded" => replacements.measure_degraded(options, pattern)?,
                _ => {
                    let before = replacements.made;
                    let found = replacements.measure_beside(options, pattern)?;
                    rebuilds += replacements.made - before;
                    found
                }
            };
            report.add(&case, what, round, found.iops, Some(found.p99_us));
            Ok(())
        })?;
    }
    let turns = 2 * options.rounds;
    report.note(format!("{name}: {rebuilds} rebuilds in the {turns} turns beside clients."));
    Ok(())
}

/// Members that take the last one's place, one after the other.
struct Replacements<'a> {
    hindsight: &'a Hindsight,
    made: u64,
    /// The file of the member that is being replaced.
    old: Option<PathBuf>,
}

impl Replacements<'_> {
    /// Puts a file that is not there yet in the place of the last member.
    fn begin(&mut self) -> Result<()> {
        let old = self.last()?;
        let old = old["path"].as_str().context("the path of a member")?;
        let new = self.hindsight.file(&format!("new-{}.img", self.made));
        let new = new.to_str().context("the directory's name is no text")?;
        self.hindsight.tell(&["pool", "replace", old, new])?;
        self.made += 1;
        self.old = Some(PathBuf::from(old));
        Ok(())
    }

    /// The member that is replaced.
    fn last(&self) -> Result<Value> {
        let status = self.hindsight.http().call("GET", "/api/v1/pool", None)?.json()?;
        let members = status["members"].as_array().context("the members")?;
        members.last().cloned().context("a last member")
    }

    fn is_in(&self) -> Result<bool> {
        Ok(self.last()?["state"] == "in")
    }

    fn wait(&mut self) -> Result<()> {
        let began = Instant::now();
        while !self.is_in()? {
            ensure!(began.elapsed().as_secs() < SECONDS_MAX, "the rebuild does not end");
            std::thread::sleep(LOOK);
        }
        self.forget_old()
    }

    /// Its place was taken; what it held is in the way.
    fn forget_old(&mut self) -> Result<()> {
        let Some(old) = self.old.take() else { return Ok(()) };
        std::fs::remove_file(old).context("the file of a member that was replaced")
    }

    /// One rebuild that nobody disturbs; MB a second.
    fn rebuild(&mut self) -> Result<f64> {
        let known = self.audit("0")?;
        let known = known.last().map_or(0, |record| record["number"].as_u64().unwrap_or(0));
        let before = self.written_bytes()?;
        self.begin()?;
        self.wait()?;
        // It is in a moment before that is written down.
        let is_in = |record: &Value| record["action"] == "member-replaced";
        let mut records = self.audit(&known.to_string())?;
        let asked = Instant::now();
        while !records.iter().any(is_in) {
            ensure!(asked.elapsed().as_secs() < SECONDS_MAX, "nobody notes that it is in");
            std::thread::sleep(LOOK);
            records = self.audit(&known.to_string())?;
        }
        let time = |action: &str| {
            let record = records.iter().find(|record| record["action"] == action);
            record.map(|record| record["time"].clone()).with_context(|| format!("no {action}"))
        };
        let seconds = seconds_between(&time("replace-begun")?, &time("member-replaced")?)?;
        let written = self.written_bytes()? - before;
        Ok(written as f64 / 1e6 / seconds)
    }

    /// What was written to those that were the last member; it is counted on.
    fn written_bytes(&self) -> Result<u64> {
        self.last()?["written_bytes"].as_u64().context("what was written")
    }

    fn audit(&self, after: &str) -> Result<Vec<Value>> {
        let records = self.hindsight.ask(&["pool", "audit", "--after", after])?;
        records.as_array().cloned().context("the audit log")
    }

    /// What a client gets while a member is missing and nobody makes it up to date.
    fn measure_degraded(&mut self, options: &Options, pattern: &Pattern) -> Result<Outcome> {
        let limit = |rate| self.hindsight.tell(&["pool", "set", "--rebuild-rate", rate]);
        limit(LEAST_RATE)?;
        self.begin()?;
        let found = measure(options, &self.hindsight.server.uri("bench"), pattern)?;
        ensure!(!self.is_in()?, "the rebuild did not wait");
        limit("none")?;
        self.wait()?;
        Ok(found)
    }

    /// What a client gets while there is always a rebuild.
    fn measure_beside(&mut self, options: &Options, pattern: &Pattern) -> Result<Outcome> {
        let uri = self.hindsight.server.uri("bench");
        self.begin()?;
        let is_over = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let found = measure(options, &uri, pattern);
                is_over.store(true, Ordering::Release);
                found
            });
            while !is_over.load(Ordering::Acquire) {
                if self.is_in()? {
                    self.forget_old()?;
                    self.begin()?;
                }
                std::thread::sleep(LOOK);
            }
            client.join().expect("it does not panic")
        })?;
        self.wait()?;
        Ok(found)
    }
}
