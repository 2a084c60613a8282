//! `file history`: the versions of a file, found by halving.
//!
//! 1. What a path comes to at a moment is, for each directory on the way and for the file: which
//!    object, its size and times, where its blocks are; with `--content` the bytes as well. A
//!    span whose ends come to the same is not looked into; every other is halved.
//! 2. The directories are part of it: so a file that was made and removed between two ends is
//!    found.
//! 3. Metadata goes to a disk before data may: a version's first moments may lack bytes, its last
//!    has them. Both are told, and the last is what to read.

use std::ffi::OsString;

use api::{ExitCode, Time};
use files::{Attributes, Kind, Piece, Tree};
use ring::digest::{Context, SHA256};
use serde::Serialize;

use super::view::{Reading, Volume, judge, time_text};
use crate::failure::Failure;
use crate::moment;
use crate::output::{Table, count};
use crate::session::{Session, say};

#[derive(Debug, clap::Args)]
pub struct SearchArgs {
    /// The volume and the path.
    #[arg(value_name = "VOLUME:[PART]/PATH")]
    pub of: OsString,
    /// From this moment on [default: the oldest].
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub since: Option<String>,
    /// Up to this moment [default: the present].
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub until: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    search: SearchArgs,
    /// Compare the bytes as well: what was written in place at one modification time is told.
    #[arg(long)]
    pub content: bool,
}

/// Moments that are looked at, at most.
const LOOKS_MAX: u64 = 20_000;

/// An object on the way, as it is compared.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    known: Attributes,
    pieces: Vec<Piece>,
}

/// What a path comes to at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct At {
    /// Directories on the way, as far as it goes.
    way: Vec<Step>,
    pub end: End,
}

/// What is at the path itself.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// Nothing.
    Absent,
    /// An object, and the sum of its bytes where that was asked for.
    There(Box<Attributes>, Vec<Piece>, Option<String>),
    /// The moment cannot be read, for this reason.
    Unreadable(String),
}

/// What is compared, and how far.
#[derive(Clone, Copy)]
pub enum Depth {
    /// Whether it is there, and as which object.
    Presence,
    /// All that is known of it.
    Known,
    /// Its bytes as well.
    Content,
}

/// A search over the moments of a volume.
pub struct Search<'a> {
    pub volume: &'a Volume,
    part: &'a str,
    path: &'a [u8],
    depth: Depth,
    looks: u64,
}

/// A span in which a path came to one end: its first and last seq.
pub struct Span {
    pub first: u64,
    pub last: u64,
    pub end: End,
}

impl<'a> Search<'a> {
    pub fn new(volume: &'a Volume, reading: &'a Reading, depth: Depth) -> anyhow::Result<Self> {
        let path = reading.path()?;
        Ok(Search { volume, part: &reading.part, path, depth, looks: 0 })
    }

    /// What the path comes to after a write.
    fn look(&mut self, seq: u64) -> anyhow::Result<At> {
        self.looks += 1;
        let unreadable =
            |error: &files::Error| At { way: Vec::new(), end: End::Unreadable(error.to_string()) };
        let tree = match self.volume.tree(seq, self.part) {
            Ok((_, _, tree)) => tree,
            Err(error) => {
                return match error.downcast_ref::<files::Error>() {
                    Some(found) if found.kind != files::ErrorKind::Source => Ok(unreadable(found)),
                    _ if error.downcast_ref::<Failure>().is_some_and(is_of_disk) => {
                        Ok(At { way: Vec::new(), end: End::Unreadable(error.to_string()) })
                    }
                    _ => Err(error),
                };
            }
        };
        match self.come_to(&*tree) {
            Ok(at) => Ok(at),
            Err(error) if error.kind == files::ErrorKind::Source => Err(error.into()),
            Err(error) => Ok(unreadable(&error)),
        }
    }

    fn come_to(&self, tree: &dyn Tree) -> files::Result<At> {
        let names = self.path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        let mut way = Vec::new();
        let mut node = tree.top();
        for name in names {
            let known = tree.attributes(node)?;
            if known.kind != Kind::Directory {
                return Ok(At { way, end: End::Absent });
            }
            let next = tree.entries(node)?.into_iter().find(|entry| entry.name == name);
            // When it was read is none of it.
            way.push(Step { known: Attributes { accessed: None, ..known }, pieces: Vec::new() });
            match next {
                Some(entry) => node = entry.node,
                None => return Ok(At { way, end: End::Absent }),
            }
        }
        let known = Attributes { accessed: None, ..tree.attributes(node)? };
        let is_file = known.kind == Kind::File;
        let end = match self.depth {
            Depth::Presence => {
                // Only which object it is.
                let known = Attributes {
                    size: 0,
                    modified: None,
                    changed: None,
                    links: 0,
                    mode: 0,
                    owner: None,
                    ..known
                };
                End::There(Box::new(known), Vec::new(), None)
            }
            _ => {
                let pieces = if is_file { tree.pieces(node)? } else { Vec::new() };
                let wants = is_file && matches!(self.depth, Depth::Content);
                let sum = if wants { Some(sum(tree, node)?) } else { None };
                End::There(Box::new(known), pieces, sum)
            }
        };
        Ok(At { way, end })
    }

    /// All spans from one seq to another, in order.
    pub fn run(&mut self, first: u64, last: u64) -> anyhow::Result<Vec<Span>> {
        let (start, end) = (self.look(first)?, self.look(last)?);
        let mut spans = vec![Span { first, last: first, end: start.end.clone() }];
        let mut waiting = vec![(first, start, last, end)];
        while let Some((low, before, high, after)) = waiting.pop() {
            if before == after || high - low <= 1 {
                let span = spans.last_mut().filter(|span| span.end == after.end);
                match span {
                    Some(span) => span.last = high,
                    None => {
                        spans.push(Span { first: high, last: high, end: after.end });
                        // What was before lasted up to the write that changed it.
                        let count = spans.len();
                        if let Some(span) = count.checked_sub(2).and_then(|at| spans.get_mut(at)) {
                            span.last = high - 1;
                        }
                    }
                }
                continue;
            }
            if self.looks >= LOOKS_MAX {
                let text = format!("more than {LOOKS_MAX} moments would have to be looked at");
                return Err(Failure::new(text)
                    .with_hint("narrow it by --since and --until")
                    .into());
            }
            let middle = low + (high - low) / 2;
            let at = self.look(middle)?;
            waiting.push((middle, at.clone(), high, after));
            waiting.push((low, before, middle, at));
        }
        Ok(spans)
    }

    pub fn looks(&self) -> u64 {
        self.looks
    }
}

/// Whether a failure is what a disk holds at a moment, as before it had a file system.
fn is_of_disk(failure: &Failure) -> bool {
    matches!(failure.code, ExitCode::Unreadable | ExitCode::NotFound | ExitCode::Usage)
}

fn sum(tree: &dyn Tree, node: files::Node) -> files::Result<String> {
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        let length = tree.read(node, offset, &mut buffer)?;
        if length == 0 {
            break;
        }
        context.update(&buffer[..length]);
        offset += length as u64;
    }
    Ok(context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The seqs between which is searched.
pub fn window(
    volume: &Volume,
    SearchArgs { since, until, .. }: &SearchArgs,
) -> anyhow::Result<(u64, u64)> {
    let seq = |text: &str| -> anyhow::Result<u64> {
        Ok(volume.resolve(&moment::read(text)?.to_string())?.seq)
    };
    let first = since.as_deref().map_or_else(|| Ok(volume.oldest()), seq)?;
    let last = until.as_deref().map_or_else(|| Ok(volume.resolve("latest")?.seq), seq)?;
    if first > last {
        return Err(Failure::usage("--since is later than --until").into());
    }
    Ok((first, last))
}

#[derive(Serialize)]
struct Version {
    seq: u64,
    time: Time,
    last: u64,
    change: String,
    kind: Option<String>,
    size: Option<u64>,
    inode: Option<u64>,
    modified: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

pub fn run(session: &Session, args: &HistoryArgs) -> anyhow::Result<()> {
    let reading = Reading::without_moment(&args.search.of)?;
    let volume = Volume::find(session, &reading.of.volume)?;
    let (first, last) = window(&volume, &args.search)?;
    let depth = if args.content { Depth::Content } else { Depth::Known };
    let mut search = Search::new(&volume, &reading, depth)?;
    let spans = search.run(first, last).map_err(judge)?;
    let looks = search.looks();
    let mut versions = Vec::new();
    for span in &spans {
        versions.push(version(&volume, span)?);
    }
    if !spans.iter().any(|span| matches!(span.end, End::There(..))) {
        let text = format!("{} was not there", api::path_text(reading.path()?));
        return Err(Failure { code: ExitCode::NotFound, ..Failure::new(text) }.into());
    }
    session.answer(&versions, |versions| show(versions))?;
    say(&format!("{} looked at", count(looks, "moment")));
    Ok(())
}

fn version(volume: &Volume, span: &Span) -> anyhow::Result<Version> {
    let time = volume.resolve(&format!("seq:{}", span.first))?.time;
    let change = match &span.end {
        End::Absent => "absent".to_owned(),
        End::There(..) => "there".to_owned(),
        End::Unreadable(why) => format!("unreadable: {why}"),
    };
    let (known, sha256) = match &span.end {
        End::There(known, _, sum) => (Some(known), sum.clone()),
        _ => (None, None),
    };
    Ok(Version {
        seq: span.first,
        time,
        last: span.last,
        change,
        kind: known.map(|known| known.kind.word().to_owned()),
        size: known.map(|known| known.size),
        inode: known.map(|known| known.identity.inode),
        modified: known.and_then(|known| known.modified).map(time_text),
        sha256,
    })
}

fn show(versions: &[Version]) -> String {
    let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    Table::of(versions)
        .right("SEQ", |one| one.seq.to_string())
        .right("LAST", |one| one.last.to_string())
        .left("TIME", |one| one.time.to_string())
        .right("SIZE", |one| number(one.size))
        .right("INODE", |one| number(one.inode))
        .left("MODIFIED", |one| one.modified.clone().unwrap_or_else(|| "-".to_owned()))
        .left("WHAT", |one| one.kind.clone().unwrap_or_else(|| one.change.clone()))
        .text()
}
