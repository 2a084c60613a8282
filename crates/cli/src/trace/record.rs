//! `hindsight trace record`: what the NBD clients of a volume ask for, while they ask.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use api::{ExitCode, RecordQuery};
use serde::Serialize;
use terminal::arguments::{size, span};
use terminal::traces::{reported, seconds};
use trace::read::{Input, ReadOptions, ReadReport, Reader};
use trace::{RequestKind, Source};
use units::{Size, Span};

use crate::failure::Failure;
use crate::image;
use crate::output::pairs;
use crate::session::{Session, say};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The volume.
    name: String,
    /// The trace to write; must not exist.
    file: PathBuf,
    /// How long, at most 7d.
    #[arg(long = "for", value_name = "SPAN", default_value = "60s", value_parser = span)]
    length: Span,
    /// End it before it is longer than this, at least 4KiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    limit: Option<Size>,
    /// Replace the file if it exists.
    #[arg(long)]
    overwrite: bool,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Recorded {
    requests: u64,
    writes: u64,
    /// Requests that there was no room for.
    lost: u64,
    duration_ns: u64,
    bytes: u64,
    read: ReadReport,
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let shown = args.file.display();
    image::may_replace(&args.file, args.overwrite)?;
    let part = image::unfinished(&args.file)?;
    let query = RecordQuery {
        length: Some(args.length.to_string()),
        limit: args.limit.map(|limit| limit.bytes().to_string()),
    };
    write(session, &args.name, &query, &part)
        .with_context(|| format!("cannot record {}", args.name))?;
    let recorded = look(&part)?;
    std::fs::rename(&part, &args.file).with_context(|| format!("cannot write {shown}"))?;
    session.answer(&recorded, |recorded| {
        pairs(&[
            ("requests", recorded.requests.to_string()),
            ("writes", recorded.writes.to_string()),
            ("lost", recorded.lost.to_string()),
            ("duration", seconds(recorded.duration_ns)),
            ("bytes", recorded.bytes.to_string()),
        ])
    })?;
    Ok(reported(&recorded.read))
}

/// Writes what comes, at once: what was received is in the file whatever happens to the command.
fn write(session: &Session, name: &str, query: &RecordQuery, part: &Path) -> anyhow::Result<()> {
    let client = session.client()?;
    let mut file: Option<File> = None;
    let received = client.record(name, query, &mut |bytes| {
        // Made when something comes: a refusal leaves nothing behind.
        let out = match &mut file {
            Some(out) => out,
            None => file.insert(File::create(part)?),
        };
        out.write_all(bytes)
    });
    match (received, file) {
        (Ok(()), Some(_)) => Ok(()),
        // Hours may be in it: the trace ends here, and whoever reads it is told so.
        (Err(error), Some(_)) => {
            say(&format!("the recording broke off: {error}"));
            Ok(())
        }
        (received, None) => {
            received?;
            Err(Failure::new("the server sent nothing").into())
        }
    }
}

/// Reads it as everybody will: what is said of it is what is in it.
fn look(part: &Path) -> anyhow::Result<Recorded> {
    let file = File::open(part).context("cannot read the recording")?;
    let bytes = file.metadata()?.len();
    let name = part.display().to_string();
    let input = Input { name, bytes: Box::new(std::io::BufReader::new(file)) };
    let mut reader = Reader::open(vec![input], ReadOptions::default())?;
    let (mut requests, mut writes, mut duration_ns) = (0, 0, 0);
    while let Some(request) = reader.next()? {
        requests += 1;
        writes += u64::from(request.kind == RequestKind::Write);
        duration_ns = request.time_ns;
    }
    let read = reader.report().clone();
    Ok(Recorded { requests, writes, lost: read.lost, duration_ns, bytes, read })
}
