//! `volume export --since` and `volume import --diff`: a stream of what differs between two moments
//! of a volume, which makes a copy of the one a copy of the other (docs/format/diff-stream.md).
//!
//! 1. A stream is applied to the content that it was made for and to no other: its base has a name,
//!    by which a mark of the copy says that this was its content; nothing may differ from that.
//! 2. It is applied whole or not at all: what fails is taken back, and of what is killed the
//!    command that takes it back was printed before the first write.

use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use api::{
    ChangeVolume, Client, CreateMark, DeleteQuery, DiffQuery, ListQuery, ProblemKind, Resolved,
    Revert, SizeInput, Volume,
};
use serde_json::json;
use units::Size;
use wire::nbd::Command;

use crate::diff;
use crate::failure::Failure;
use crate::image::{self, ExportArgs, ImportArgs};
use crate::moment;
use crate::nbd::{Export, HOLE_BYTES};
use crate::output::human;
use crate::session::{Session, say};
use crate::stream;

mod format;

use format::{Head, Record};

/// Bytes that are read and written at a time.
const CHUNK_BYTES: usize = 4 << 20;
/// `--since` of a stream that needs no base.
const NOTHING: &str = "nothing";
/// Marks of copies begin so.
const PREFIX: &str = "applied-";

/// The name of a moment, wherever it is copied to: no two writes have one time.
fn identity(at: &Resolved) -> String {
    format!("{PREFIX}{}-{}", at.seq, at.time).replace(':', "")
}

/// Writes what differs between a moment and `args.source` to a file or a stream.
pub fn export(session: &Session, args: &ExportArgs, since: &str) -> anyhow::Result<()> {
    if args.format.is_some() {
        let text = "--since writes a stream of changes, which has a form of its own";
        return Err(Failure::usage(text).with_hint("leave --format out").into());
    }
    let source = moment::read_of_volume(&args.source)?;
    let since = match since {
        NOTHING => None,
        since => Some(moment::read(since)?),
    };
    let client = session.client()?;
    let name = &source.volume;
    let resolve = |moment: &units::Moment| client.resolve(name, &moment.to_string());
    let to = resolve(&source.moment)?;
    let base = since.as_ref().map(resolve).transpose()?;
    let at = format!("seq:{}", to.seq);
    let uri = image::uri(&client.volume(name)?, &format!("%40{at}"))?;
    let mut from = stream::open(&uri)?;
    let size = from.size_bytes;
    let ranges = match &base {
        None => image::data_ranges(&uri)?,
        Some(base) => {
            let base = (name.clone(), format!("seq:{}", base.seq));
            diff::between(&client, &base, &(name.clone(), at.clone()))?
        }
    };
    let head = Head { from: base.as_ref().map(identity), to: identity(&to), size };
    let sent = image::to_file_or_stream(args, |out| {
        let mut out = BufWriter::new(out);
        head.write(&mut out)?;
        let mut sent = 0;
        for range in &ranges {
            let end = (range.offset + range.length).min(size);
            sent += send(&mut from, range.offset..end, base.is_some(), &mut out)?;
        }
        format::end(&mut out)?;
        Ok(sent)
    })?;
    let file = args.file.display();
    say(&format!("exported the changes up to {name}@{at} to {file}: {}", human(sent)));
    if args.file == Path::new("-") {
        return Ok(());
    }
    let answer = json!({
        "volume": name, "seq": to.seq, "time": to.time, "file": args.file, "size": size,
        "since": base.map(|base| base.seq), "from": head.from, "to": head.to, "data_bytes": sent,
    });
    session.answer(&answer, |_| String::new())
}

/// Sends a range, zeros without their bytes, or not at all where the base has zeros.
fn send(
    from: &mut Export,
    range: std::ops::Range<u64>,
    has_base: bool,
    out: &mut impl Write,
) -> anyhow::Result<u64> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut at, mut sent) = (range.start, 0);
    while at < range.end {
        let length = (range.end - at).min(CHUNK_BYTES as u64) as usize;
        from.fetch(at, &mut chunk[..length])?;
        let runs: Vec<&[u8]> = chunk[..length].chunks(HOLE_BYTES).collect();
        for run in runs.chunk_by(|a, b| is_zero(a) == is_zero(b)) {
            let bytes: u64 = run.iter().map(|part| part.len() as u64).sum();
            if !is_zero(run[0]) {
                format::data(out, at, bytes)?;
                run.iter().try_for_each(|part| out.write_all(part))?;
                sent += bytes;
            } else if has_base {
                format::zeros(out, at, bytes)?;
            }
            at += bytes;
        }
    }
    Ok(sent)
}

fn is_zero(part: &[u8]) -> bool {
    part.iter().all(|&byte| byte == 0)
}

/// Applies a stream of changes.
pub fn import(session: &Session, args: &ImportArgs) -> anyhow::Result<()> {
    let mut input = BufReader::with_capacity(1 << 20, stream::input(&args.file)?);
    let head = Head::read(&mut input)?;
    let client = session.client()?;
    match &head.from {
        None => begin(&client, args, &head, &mut input)?,
        Some(base) => go_on(&client, args, base, &head, &mut input)?,
    }
    let volume = client.volume(&args.name)?;
    say(&format!("applied {} to {}", args.file.display(), args.name));
    session.answer(&volume, crate::volume_text::show)
}

/// Makes the volume of a stream that needs no base.
fn begin(
    client: &Client,
    args: &ImportArgs,
    head: &Head,
    input: &mut impl Read,
) -> anyhow::Result<()> {
    let name = &args.name;
    let volume = image::begin(client, name, head.size)?;
    if let Err(error) = apply(&volume, head, input) {
        let now = DeleteQuery { force: true, now: true, ..DeleteQuery::default() };
        if client.remove_volume(name, &now).is_err() {
            say(&format!("{name} was created and holds part of the stream"));
        }
        return Err(error);
    }
    client.delete_mark(name, api::UNFINISHED_IMPORT)?;
    mark(client, name, head)
}

/// Makes the next state of a volume that has the base of a stream.
fn go_on(
    client: &Client,
    args: &ImportArgs,
    base: &str,
    head: &Head,
    input: &mut impl Read,
) -> anyhow::Result<()> {
    let name = &args.name;
    let volume = client.volume(name)?;
    image::may_be_written(&volume, args.force)?;
    check_base(client, name, base)?;
    check_target(client, name, head)?;
    let kept = image::keep_present(client, name)?;
    let applied = match volume.size == head.size {
        true => apply(&volume, head, input),
        false => {
            let size = Some(SizeInput(Size(head.size)));
            let change = ChangeVolume { size, ..ChangeVolume::default() };
            let resized = client.change_volume(name, &change, args.force);
            resized.map_err(anyhow::Error::from).and_then(|_| apply(&volume, head, input))
        }
    };
    if let Err(error) = applied.and_then(|()| mark(client, name, head)) {
        let back = Revert { to: format!("v:{kept}"), dry_run: false, force: args.force };
        match client.revert(name, &back) {
            Ok(_) => say(&format!("{name} is as it was before")),
            Err(_) => say(&format!("{name} holds part of the stream")),
        }
        return Err(error);
    }
    // Of those before only the base is of use, for when this is undone.
    let all = client.marks(name, &ListQuery::default())?.entries;
    let is_old = |mark: &str| mark.starts_with(PREFIX) && mark != base && mark != head.to;
    for old in all.iter().filter(|mark| is_old(&mark.name) && !mark.pinned) {
        client.delete_mark(name, &old.name)?;
    }
    Ok(())
}

/// Fails unless the volume has the content of a stream's base.
fn check_base(client: &Client, name: &str, base: &str) -> anyhow::Result<()> {
    let query = DiffQuery { from: format!("mark:{base}"), limit: Some(1), ..DiffQuery::default() };
    match api::found(client.diff(name, &query))? {
        Some(page) if page.entries.is_empty() => Ok(()),
        Some(_) => Err(Failure::new(format!("{name} was written since it was the stream's base"))
            .with_hint(format!(
                "hindsight diff {name}@{base} {name} says where; hindsight revert {name} --to \
                 {base} takes it back"
            ))
            .into()),
        None => {
            let text =
                format!("{name} is not known to be the stream's base: it has no mark {base}");
            Err(Failure::new(text)
                .with_hint(format!(
                    "apply streams in the order in which they were made; if its content is that \
                     base, say so: hindsight mark create {name} {base}"
                ))
                .into())
        }
    }
}

/// Fails if the name of what a stream makes is that of a mark which is not from a stream.
fn check_target(client: &Client, name: &str, head: &Head) -> anyhow::Result<()> {
    let all = client.marks(name, &ListQuery::default())?.entries;
    let to = &head.to;
    let is_taken = |mark: &api::Mark| mark.name == *to && (mark.pinned || !to.starts_with(PREFIX));
    if head.from.as_ref() == Some(to) || !all.iter().any(is_taken) {
        return Ok(());
    }
    Err(Failure::new(format!("{name} has a mark {to}, which is not from a stream of changes"))
        .with_hint(format!("if it is of no use, delete it: hindsight mark delete {name} {to}"))
        .into())
}

/// Says of a volume what it is a copy of.
fn mark(client: &Client, name: &str, head: &Head) -> anyhow::Result<()> {
    if head.from.as_ref() != Some(&head.to) {
        let mark = CreateMark { name: head.to.clone(), at: None, pin: false };
        match client.create_mark(name, &mark) {
            // It was, before: this goes there and back.
            Err(error) if error.is(ProblemKind::Exists) => {
                client.delete_mark(name, &head.to)?;
                client.create_mark(name, &mark)?;
            }
            made => drop(made?),
        }
    }
    Ok(())
}

/// Writes what a stream has to a volume, and flushes.
fn apply(volume: &Volume, head: &Head, input: &mut impl Read) -> anyhow::Result<()> {
    let mut export = stream::open(&image::uri(volume, "")?)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match format::next(input, head.size)? {
            Record::End => return export.ask(Command::Flush, 0, 0),
            Record::Zeros(range) => {
                for at in range.clone().step_by(CHUNK_BYTES) {
                    let length = (range.end - at).min(CHUNK_BYTES as u64);
                    export.ask(Command::WriteZeroes, at, length)?;
                }
            }
            Record::Data(range) => {
                for at in range.clone().step_by(CHUNK_BYTES) {
                    let length = (range.end - at).min(CHUNK_BYTES as u64) as usize;
                    input.read_exact(&mut chunk[..length]).map_err(format::cut_off)?;
                    export.write(at, &chunk[..length])?;
                }
            }
        }
    }
}
