//! `file list`, `file stat` and `file cat`.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;

use api::path_text;
use files::{Attributes, FileSystem, Kind, Node};
use serde::Serialize;

use super::view::{How, NeedArgs, Reading, View, Volume, judge, time_text};
use crate::output::{Table, human, pairs};
use crate::session::Session;
use crate::share_files;

#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// The volume, the moment and the directory. PART is left out where there is one file system;
    /// else it is p2, label=ROOT or uuid=... Without a path: the parts of the disk.
    #[arg(value_name = "VOLUME[@MOMENT][:[PART]/PATH]")]
    pub of: OsString,
    /// Modes, owners, sizes and times as well.
    #[arg(short, long)]
    pub long: bool,
    /// All that is below it.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Names as they are, each with a zero behind it, for scripts.
    #[arg(long, conflicts_with = "long")]
    pub null: bool,
    #[command(flatten)]
    pub need: NeedArgs,
}

/// A part of a disk as it is answered.
#[derive(Serialize)]
struct PartShown {
    name: String,
    kind: String,
    /// None of what is not in one piece.
    offset: Option<u64>,
    length: u64,
    label: String,
    uuid: String,
    /// How it can be read, or why not.
    state: String,
}

pub fn parts(session: &Session, reading: &Reading) -> anyhow::Result<()> {
    let volume = Volume::find(session, &reading.of.volume)?;
    let at = volume.resolve(&reading.of.moment.to_string())?;
    let disk = volume.disk(at.seq)?;
    let (_, parts) = files::parts(&disk).map_err(|error| judge(error.into()))?;
    let mut shown = Vec::new();
    for part in parts {
        let system = FileSystem::of(&part.of(&disk));
        let system = system.map_err(|error| judge(error.into()))?;
        let state = match files::open(&disk, &part) {
            Ok((_, tree)) => tree.state().word().to_owned(),
            Err(error) => error.to_string(),
        };
        let label = system.as_ref().map(|system| path_text(&system.label)).unwrap_or_default();
        shown.push(PartShown {
            name: if part.name.is_empty() { "-".to_owned() } else { part.name.clone() },
            kind: system.as_ref().map_or("unknown", |system| system.kind).to_owned(),
            offset: if let [range] = &part.ranges[..] { Some(range.start) } else { None },
            length: part.length(),
            label: if label.is_empty() { path_text(part.label.as_bytes()) } else { label },
            uuid: system.map(|system| system.uuid).unwrap_or_default(),
            state,
        });
    }
    session.answer(&shown, |shown| {
        Table::of(shown)
            .left("PART", |part| part.name.clone())
            .left("KIND", |part| part.kind.clone())
            .right("OFFSET", |part| part.offset.map_or("-".to_owned(), |at| at.to_string()))
            .right("LENGTH", |part| human(part.length))
            .left("LABEL", |part| part.label.clone())
            .left("STATE", |part| part.state.clone())
            .text()
    })
}

/// An object as it is answered; what is not known is null.
#[derive(Serialize)]
pub struct Object {
    pub name: String,
    pub kind: String,
    pub mode: String,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: u64,
    pub links: u32,
    pub inode: u64,
    pub modified: Option<String>,
    pub changed: Option<String>,
    pub accessed: Option<String>,
    pub target: Option<String>,
    pub device: Option<String>,
    #[serde(skip)]
    raw: Vec<u8>,
}

/// An answer with how its moment was read.
#[derive(Serialize)]
struct Answer<T> {
    #[serde(flatten)]
    how: How,
    #[serde(flatten)]
    body: T,
}

#[derive(Serialize)]
struct Entries {
    entries: Vec<Object>,
}

fn object(view: &View, name: &[u8], node: Node) -> files::Result<(Object, Attributes)> {
    let attributes = view.tree.attributes(node)?;
    let is_link = attributes.kind == Kind::Symlink;
    let target = if is_link { Some(path_text(&view.tree.link(node)?)) } else { None };
    let text = |time: Option<files::Time>| time.map(time_text);
    let object = Object {
        name: path_text(name),
        kind: attributes.kind.word().to_owned(),
        mode: format!("{:04o}", attributes.mode),
        uid: attributes.owner.map(|owner| owner.0),
        gid: attributes.owner.map(|owner| owner.1),
        size: attributes.size,
        links: attributes.links,
        inode: attributes.identity.inode,
        modified: text(attributes.modified),
        changed: text(attributes.changed),
        accessed: text(attributes.accessed),
        target,
        device: attributes.device.map(|(major, minor)| format!("{major}, {minor}")),
        raw: name.to_vec(),
    };
    Ok((object, attributes))
}

pub fn list(session: &Session, reading: &Reading, args: &ListArgs) -> anyhow::Result<()> {
    let view = View::open(session, reading)?;
    let path = reading.path()?;
    let node = view.look_up(path)?;
    let entries = entries(&view, path, node, args.recursive).map_err(|e| judge(e.into()))?;
    if args.null {
        let mut stdout = io::stdout().lock();
        for entry in &entries {
            stdout.write_all(&entry.raw)?;
            stdout.write_all(&[0])?;
        }
        return Ok(stdout.flush()?);
    }
    let answer = Answer { how: view.how, body: Entries { entries } };
    session.answer(&answer, |answer| {
        if args.long {
            return long(&answer.body.entries);
        }
        let line = |entry: &Object| format!("{}\n", entry.name);
        answer.body.entries.iter().map(line).collect()
    })
}

/// The entries of a directory by name, or the one object; with all below, by path.
fn entries(view: &View, path: &[u8], node: Node, is_recursive: bool) -> files::Result<Vec<Object>> {
    if view.tree.attributes(node)?.kind != Kind::Directory {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        return Ok(vec![object(view, name, node)?.0]);
    }
    let mut found = Vec::new();
    if is_recursive {
        files::walk(&*view.tree, node, &mut |path, node, _| -> files::Result<()> {
            if !path.is_empty() {
                found.push(object(view, path, node)?.0);
            }
            Ok(())
        })?;
        return Ok(found);
    }
    for entry in view.tree.entries(node)? {
        found.push(object(view, &entry.name, entry.node)?.0);
    }
    found.sort_by(|a, b| a.raw.cmp(&b.raw));
    Ok(found)
}

fn long(entries: &[Object]) -> String {
    let number = |number: Option<u32>| number.map_or("?".to_owned(), |number| number.to_string());
    Table::of(entries)
        .left("MODE", |one| share_files::mode_text(&one.kind, &one.mode))
        .right("LINKS", |one| one.links.to_string())
        .right("UID", |one| number(one.uid))
        .right("GID", |one| number(one.gid))
        .right("SIZE", |one| one.device.clone().unwrap_or_else(|| one.size.to_string()))
        .left("MODIFIED", |one| one.modified.clone().unwrap_or_else(|| "?".to_owned()))
        .left("NAME", |one| share_files::with_target(&one.name, one.target.as_deref()))
        .text()
}

#[derive(Serialize)]
struct Stat {
    #[serde(flatten)]
    object: Object,
    /// Bytes that are not holes, and in how many pieces; none of what cannot be read.
    data: Option<(u64, usize)>,
    extended: Vec<(String, String)>,
}

pub fn stat(session: &Session, reading: &Reading) -> anyhow::Result<()> {
    let view = View::open(session, reading)?;
    let path = reading.path()?;
    let node = view.look_up(path)?;
    let found = stat_of(&view, path, node).map_err(|error| judge(error.into()))?;
    session.answer(&Answer { how: view.how, body: found }, |answer| text_of(&answer.body))
}

fn stat_of(view: &View, path: &[u8], node: Node) -> files::Result<Stat> {
    let (object, attributes) = object(view, path, node)?;
    let data = match attributes.kind {
        Kind::File => match view.tree.pieces(node) {
            Err(error) if error.kind == files::ErrorKind::Unsupported => None,
            pieces => {
                let pieces = pieces?;
                Some((pieces.iter().map(|piece| piece.length).sum(), pieces.len()))
            }
        },
        _ => None,
    };
    let extended = view.tree.extended(node)?.into_iter();
    let extended = extended.map(|(name, value)| (path_text(&name), path_text(&value))).collect();
    Ok(Stat { object, data, extended })
}

fn text_of(stat: &Stat) -> String {
    let object = &stat.object;
    let unknown = || "unknown".to_owned();
    let owner = object.uid.zip(object.gid).map(|(uid, gid)| format!("{uid}:{gid}"));
    let mut shown = vec![
        ("path", object.name.clone()),
        ("kind", object.kind.clone()),
        ("size", object.size.to_string()),
        ("mode", object.mode.clone()),
        ("owner", owner.unwrap_or_else(unknown)),
        ("links", object.links.to_string()),
        ("inode", object.inode.to_string()),
        ("modified", object.modified.clone().unwrap_or_else(unknown)),
        ("changed", object.changed.clone().unwrap_or_else(unknown)),
    ];
    shown.extend(object.target.clone().map(|target| ("target", target)));
    shown.extend(object.device.clone().map(|device| ("device", device)));
    let data = |(bytes, pieces)| {
        format!("{} in {}", human(bytes), crate::output::count(pieces as u64, "piece"))
    };
    shown.extend(stat.data.map(|told| ("on the disk", data(told))));
    shown.extend(stat.extended.iter().map(|(name, value)| ("extended", format!("{name}={value}"))));
    pairs(&shown)
}

pub fn cat(session: &Session, reading: &Reading) -> anyhow::Result<()> {
    let view = View::open(session, reading)?;
    let node = view.look_up(reading.path()?)?;
    let mut stdout = io::stdout().lock();
    copy(&view, node, &mut stdout)?;
    Ok(stdout.flush()?)
}

/// Writes a file, its holes as zeros.
pub fn copy(view: &View, node: Node, to: &mut impl Write) -> anyhow::Result<()> {
    let mut at = 0;
    let mut failed = None;
    let read = files::read_all(&*view.tree, node, &mut |offset, bytes| {
        let written = zeros(to, offset - at).and_then(|_| to.write_all(bytes));
        at = offset + bytes.len() as u64;
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    // A reader that closed the pipe has what it wanted.
    if let Some(error) = failed {
        return Err(error.into());
    }
    let size = read.map_err(|error| judge(error.into()))?.unwrap_or(at);
    zeros(to, size.saturating_sub(at))?;
    Ok(())
}

fn zeros(to: &mut impl Write, count: u64) -> io::Result<u64> {
    io::copy(&mut io::repeat(0).take(count), to)
}
