//! `hindsight version`.

use std::str::FromStr;
use std::thread;
use std::time::Duration;

use api::{CreateVersion, ExitCode, Job, ListQuery, RangeQuery, Version, Would};
use clap::{Args, Subcommand};
use serde_json::json;
use units::Span;

use crate::failure;
use crate::output::{self, Table, human};
use crate::schedule;
use crate::session::{Session, say};

/// How often a job that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Versions asked for at a time.
const PAGE_ENTRIES: usize = 1000;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Capture the present as a version.
    Create {
        /// Name of the volume.
        name: String,
        /// Free text.
        #[arg(long)]
        label: Option<String>,
        /// A hook of the server's configuration that makes what uses the volume quiet; none for no
        /// hook [default: that of the volume].
        #[arg(long, value_name = "NAME")]
        hook: Option<String>,
    },
    /// List the versions of a volume.
    #[command(visible_alias = "ls")]
    List {
        /// Name of the volume.
        name: String,
        /// Begin with this number.
        #[arg(long, value_name = "N")]
        from: Option<u64>,
        /// List at most so many [default: all].
        #[arg(long, value_name = "COUNT")]
        limit: Option<usize>,
    },
    /// Show a version.
    Show {
        /// Name of the volume.
        name: String,
        /// Number of the version.
        number: u64,
    },
    /// Delete versions; their moments stay openable as long as the window holds them.
    #[command(visible_alias = "rm")]
    Delete {
        /// Name of the volume.
        name: String,
        /// Numbers of the versions, or ranges of them with both ends: 7, 3..100.
        #[arg(required = true, value_name = "N")]
        numbers: Vec<Numbers>,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
    /// Compact versions: each block is packed beside its version before, whatever the encoding.
    Compact(Versions),
    /// Uncompact versions: what is encoded of them is stored raw, and stays so.
    Uncompact(Versions),
    /// Versions by the clock: set, show, list, remove schedules.
    #[command(subcommand)]
    Schedule(schedule::Verb),
}

#[derive(Debug, Args)]
pub struct Versions {
    /// Name of the volume.
    name: String,
    /// Numbers of the versions.
    #[arg(required = true, value_name = "N")]
    numbers: Vec<u64>,
    /// Wait until it is done.
    #[arg(long)]
    wait: bool,
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Create { name, label, hook } => {
            let version =
                session.client()?.create_version(&name, &CreateVersion { label, hook })?;
            warn_of_hook(version.hook_failure.as_deref());
            session.answer(&version, |v| list(std::slice::from_ref(v)))?;
        }
        Verb::List { name, from, limit } => {
            session.answer(&all(session, &name, from, limit)?, |v| list(v))?;
        }
        Verb::Show { name, number } => {
            show(session, &name, number)?;
        }
        Verb::Delete { name, numbers, dry_run } => {
            return delete(session, &name, &numbers, dry_run);
        }
        Verb::Compact(versions) => {
            return compact(session, &versions, api::Client::compact_version);
        }
        Verb::Uncompact(versions) => {
            return compact(session, &versions, api::Client::uncompact_version);
        }
        Verb::Schedule(verb) => return schedule::run(session, verb),
    }
    Ok(ExitCode::Done)
}

fn all(
    session: &Session,
    name: &str,
    from: Option<u64>,
    limit: Option<usize>,
) -> anyhow::Result<Vec<Version>> {
    let client = session.client()?;
    let mut left = limit.unwrap_or(usize::MAX);
    let mut query = ListQuery { limit: None, next: from };
    let mut versions = Vec::new();
    while left > 0 {
        query.limit = Some(left.min(PAGE_ENTRIES));
        let page = client.versions(name, &query)?;
        left -= page.entries.len().min(left);
        versions.extend(page.entries);
        match page.next {
            Some(next) => query.next = Some(next),
            None => break,
        }
    }
    Ok(versions)
}

/// Asks for every one it can, and waits for them if told to; exits 3 when only some could be.
fn compact(
    session: &Session,
    versions: &Versions,
    ask: impl Fn(&api::Client, &str, u64) -> Result<Job, api::ClientError>,
) -> anyhow::Result<ExitCode> {
    let client = session.client()?;
    let mut jobs = Vec::new();
    let mut code = ExitCode::Done;
    for &number in &versions.numbers {
        match ask(&client, &versions.name, number) {
            Ok(job) => jobs.push(job),
            Err(error) => code = failure::report(&error.into(), session.json),
        }
    }
    for job in &mut jobs {
        while versions.wait && job.state != "done" {
            thread::sleep(LOOK);
            *job = client.job(&job.id)?;
        }
    }
    session.answer(&jobs, |jobs| jobs.iter().map(told).collect())?;
    Ok(if code != ExitCode::Done && !jobs.is_empty() { ExitCode::Partly } else { code })
}

/// Whether a compaction found nothing that it could pack.
fn has_nothing(job: &Job) -> bool {
    job.kind == "compact" && job.state == "done" && job.packed == 0
}

fn told(job: &Job) -> String {
    let Job { version, volume, kind, state, packed, raw, .. } = job;
    let how = match state.as_str() {
        "done" if has_nothing(job) => format!(
            "nothing packed, {raw} blocks raw: without another version to pack them beside, or too \
             different from it"
        ),
        "done" => format!("{packed} blocks packed, {raw} raw"),
        "running" => format!("{} % done", job.percent),
        _ => "waits for its turn".to_owned(),
    };
    format!("version {version} of {volume}: {kind}, {how}\n")
}

/// Deletes every one it can; exits 3 when only some could be.
fn delete(
    session: &Session,
    name: &str,
    numbers: &[Numbers],
    dry_run: bool,
) -> anyhow::Result<ExitCode> {
    if !dry_run {
        session.confirm(&format!("versions of {name} go"))?;
    }
    let client = session.client()?;
    let mut deleted = Vec::new();
    let mut ranges = Vec::new();
    let mut count = 0;
    let mut code = ExitCode::Done;
    let mut would: Vec<Would> = Vec::new();
    for &Numbers { from, to } in numbers {
        let query = RangeQuery { from, to, dry_run };
        match client.delete_versions(name, &query) {
            Ok(done) => {
                let many = output::count(done.count, "version");
                match from == to {
                    true => deleted.push(from),
                    false => ranges.push(json!({"from": from, "to": to, "count": done.count})),
                }
                match (dry_run, from == to) {
                    (true, _) => would.extend(done.would),
                    (false, true) => say(&format!("version {from} of {name}: deleted")),
                    (false, false) => {
                        say(&format!("versions {from} to {to} of {name}: {many} deleted"))
                    }
                }
                count += done.count;
            }
            Err(error) => code = failure::report(&error.into(), session.json),
        }
    }
    let answer = json!({
        "volume": name, "versions": deleted, "ranges": ranges, "count": count, "dry_run": dry_run,
        "deleted": !dry_run,
    });
    match dry_run {
        true => session.would(&would, &answer, |_| String::new())?,
        false => session.answer(&answer, |_| String::new())?,
    }
    Ok(if code != ExitCode::Done && count > 0 { ExitCode::Partly } else { code })
}

/// A number, or a range of them with both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The first.
    pub from: u64,
    /// The last.
    pub to: u64,
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Numbers, String> {
        if matches!(text, "latest" | "present") {
            return Err("the present is no version, and cannot be deleted".to_owned());
        }
        let number = |text: &str| {
            text.parse::<u64>().map_err(|_| format!("`{text}` is not a version's number"))
        };
        let (from, to) = match text.split_once("..") {
            Some((from, to)) => (number(from)?, number(to)?),
            None => (number(text)?, number(text)?),
        };
        if from > to {
            return Err(format!("`{text}` runs backwards"));
        }
        Ok(Numbers { from, to })
    }
}

/// A version, and the files that were open on it.
fn show(session: &Session, name: &str, number: u64) -> anyhow::Result<()> {
    let client = session.client()?;
    let version = client.version(name, number)?;
    let files = match version.open_files {
        Some(_) => client.open_files(name, number)?.paths,
        None => Vec::new(),
    };
    let mut answer = serde_json::to_value(&version)?;
    answer["open_file_paths"] = json!(files);
    session.answer(&answer, |_| {
        let mut text = list(std::slice::from_ref(&version));
        if let Some(count) = version.open_files {
            text.push_str(&format!("\n{} open at the capture\n", output::count(count, "file")));
        }
        files.iter().for_each(|path| text.push_str(&format!("  {path}\n")));
        let more = version.open_files.unwrap_or(0).saturating_sub(files.len() as u64);
        if more > 0 {
            text.push_str(&format!("  and {more} more\n"));
        }
        text
    })
}

/// A capture is made although its hook failed: that is said aloud.
pub fn warn_of_hook(failure: Option<&str>) {
    if let Some(why) = failure {
        say(&format!("captured, but not quiesced: {why}"));
    }
}

fn list(versions: &[Version]) -> String {
    Table::of(versions)
        .right("NUMBER", |v| v.number.to_string())
        .left("TIME", |v| v.time.to_string())
        .right("SPAN", |v| v.span.map_or_else(|| "-".to_owned(), |span| rough(span.0)))
        .right("SEQ", |v| v.seq.to_string())
        .right("CHANGED", |v| {
            format!("{}{}", if v.bytes_exact { "" } else { "<= " }, human(v.bytes_changed))
        })
        .left("ENCODING", |v| encoding(v))
        .left("MADE BY", |v| v.made_by.clone())
        .left("CONSISTENCY", |v| v.consistency.clone())
        .left("NEEDED BY", |v| needed_by(v))
        .left("LABEL", |v| v.label.clone())
        .text()
}

/// How what belongs to it is kept: by the volume's rule, or as was asked for by hand.
fn encoding(version: &Version) -> String {
    match &version.job {
        None => version.encoding.clone(),
        Some(job) if has_nothing(job) => format!("{}, nothing to compact", version.encoding),
        Some(job) if job.state == "done" => format!("{}ed", job.kind),
        Some(job) => format!("{}ing", job.kind),
    }
}

/// Clones and views, such as `test, 2 views`.
fn needed_by(version: &Version) -> String {
    let mut names = version.clones.clone();
    if version.views > 0 {
        names.push(output::count(version.views, "view"));
    }
    if names.is_empty() { "-".to_owned() } else { names.join(", ") }
}

/// A span in its two largest units, such as `1d 2h` or `3.2s`.
pub fn rough(span: Span) -> String {
    let seconds = span.0 / 1_000_000_000;
    let units = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let Some(first) = units.iter().position(|(unit, _)| seconds >= *unit) else {
        return format!("{}ms", span.0 / 1_000_000);
    };
    let (unit, name) = units[first];
    let (whole, rest) = (seconds / unit, seconds % unit);
    match units.get(first + 1).map(|(unit, name)| (rest / unit, name)) {
        Some((more, next)) if more > 0 => format!("{whole}{name} {more}{next}"),
        _ => format!("{whole}{name}"),
    }
}

#[cfg(test)]
mod tests {
    use units::Span;

    use super::{Numbers, rough};

    #[test]
    fn numbers_are_one_or_a_range_and_never_the_present() {
        assert_eq!("7".parse(), Ok(Numbers { from: 7, to: 7 }));
        assert_eq!("3..100".parse(), Ok(Numbers { from: 3, to: 100 }));
        for wrong in ["", "-1", "3..", "..3", "5..3", "x", "latest"] {
            assert!(wrong.parse::<Numbers>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn spans_are_told_in_two_units() {
        let told = |seconds: u64| rough(Span(seconds * 1_000_000_000));
        assert_eq!(
            [told(1), told(60), told(3700), told(93_600), told(86_400)],
            ["1s", "1min", "1h 1min", "1d 2h", "1d"]
        );
        assert_eq!(rough(Span(5_000_000)), "5ms");
    }
}
