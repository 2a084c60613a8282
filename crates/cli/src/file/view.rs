//! A moment of a volume that is opened as a tree of files: its name, its parts, how it was read.

use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use api::{Client, ExitCode, Resolved, Time, path_bytes};
use clap::ValueEnum;
use files::{Error, ErrorKind, FileSystem, Node, Part, ReadAhead, Source, State, Tree};
use serde::Serialize;
use units::{Moment, VolumeMoment};
use wire::nbd::Command;

use crate::failure::Failure;
use crate::nbd::{Address, Export};
use crate::session::{Session, say};
use crate::{image, moment};

/// How good the reading has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Need {
    /// Nothing was under way.
    Clean,
    /// That, or the journal was replayed.
    Replayed,
}

#[derive(Debug, clap::Args)]
pub struct NeedArgs {
    /// Refuse a moment that was not read so.
    #[arg(long, value_name = "HOW")]
    pub need: Option<Need>,
}

#[derive(Debug, clap::Args)]
pub struct OneArgs {
    /// The volume, the moment and the path.
    #[arg(value_name = "VOLUME[@MOMENT]:[PART]/PATH")]
    pub of: OsString,
    #[command(flatten)]
    pub need: NeedArgs,
}

/// What is asked of the server at once, in bytes, at most.
const REQUEST_BYTES: usize = 1 << 20;

/// Reads of this length, in bytes, and more are asked for ahead where they go on.
const AHEAD_BYTES: usize = 64 << 10;

/// What is to be read.
pub struct Reading {
    pub of: VolumeMoment,
    /// The part as it was named; empty where it was not.
    pub part: String,
    pub path: Option<Vec<u8>>,
    pub need: Option<Need>,
}

/// The words of a name `VOLUME[@MOMENT]:[PART]/PATH`.
fn split(text: &str) -> anyhow::Result<(&str, &str, Option<&str>)> {
    let Some(slash) = text.find('/') else {
        return Ok((text.strip_suffix(':').unwrap_or(text), "", None));
    };
    let (head, path) = text.split_at(slash);
    let Some((of, part)) = head.rsplit_once(':') else {
        let wrong = Failure::usage(format!("{text}: a colon stands between volume and path"));
        return Err(wrong.with_hint(format!("{head}:{path}")).into());
    };
    Ok((of, part, Some(path)))
}

impl Reading {
    /// Reads a name.
    pub fn parse(name: &OsStr, need: Option<Need>) -> anyhow::Result<Reading> {
        // Bytes that are no UTF-8 may come as they are, or as `\xHH`.
        let text = match name.to_str() {
            Some(text) => text.to_owned(),
            None => api::path_text(name.as_bytes()),
        };
        let (of, part, path) = split(&text)?;
        let path = path.map(path_bytes).transpose().map_err(Failure::usage)?;
        let of = moment::read_of_volume(of)?;
        Ok(Reading { of, part: part.to_owned(), path, need })
    }

    /// The same of a volume whose moments are to be searched.
    pub fn without_moment(name: &OsStr) -> anyhow::Result<Reading> {
        let reading = Reading::parse(name, None)?;
        if reading.of.moment != Moment::Latest {
            let hint = "--since and --until say where to look";
            return Err(Failure::usage("this looks at many moments").with_hint(hint).into());
        }
        if reading.path.is_none() {
            let hint = format!("{}:/etc/fstab, say", reading.of.volume);
            return Err(Failure::usage("a path is lacking").with_hint(hint).into());
        }
        Ok(reading)
    }

    pub fn path(&self) -> anyhow::Result<&[u8]> {
        let lacking = || Failure::usage("a path is lacking: VOLUME[@MOMENT]:/PATH");
        Ok(self.path.as_deref().ok_or_else(lacking)?)
    }
}

/// Where what is written to a disk goes.
pub trait Writes {
    /// Writes bytes.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Has them durable.
    fn sync(&self) -> io::Result<()>;
}

/// An export as a source.
pub struct Disk {
    export: RefCell<Export>,
    size: u64,
    /// The end of what was read last.
    next: Cell<u64>,
}

impl Source for Disk {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, mut offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut export = self.export.borrow_mut();
        let told = |error: anyhow::Error| io::Error::other(format!("{error:#}"));
        for piece in bytes.chunks_mut(REQUEST_BYTES) {
            export.fetch(offset, piece).map_err(told)?;
            let (length, goes_on) = (piece.len(), self.next.get() == offset);
            offset += length as u64;
            self.next.set(offset);
            // Long reads one after the other: the server has the next one ready meanwhile.
            if goes_on && length >= AHEAD_BYTES && length as u64 <= self.size - offset {
                export.fetch_ahead(offset, length).map_err(told)?;
            }
        }
        Ok(())
    }
}

impl Writes for Disk {
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let written = self.export.borrow_mut().write(offset, bytes);
        written.map_err(|error| io::Error::other(format!("{error:#}")))
    }

    fn sync(&self) -> io::Result<()> {
        let synced = self.export.borrow_mut().ask(Command::Flush, 0, 0);
        synced.map_err(|error| io::Error::other(format!("{error:#}")))
    }
}

/// A volume whose moments can be opened.
pub struct Volume {
    pub name: String,
    pub client: Client,
    volume: api::Volume,
}

impl Volume {
    pub fn find(session: &Session, name: &str) -> anyhow::Result<Volume> {
        let client = session.client()?;
        let volume = client.volume(name)?;
        if volume.share {
            let hint = format!("hindsight share ls {name}@MOMENT PATH; share cat, share restore");
            let wrong = Failure::usage(format!("{name} is a share, which has files itself"));
            return Err(wrong.with_hint(hint).into());
        }
        Ok(Volume { name: name.to_owned(), client, volume })
    }

    pub fn resolve(&self, moment: &str) -> anyhow::Result<Resolved> {
        Ok(self.client.resolve(&self.name, moment)?)
    }

    /// Opens a moment by its seq; which one that was, too. With another granularity than every
    /// write the last one is kept until the next alone: then it is the last one that is kept.
    pub fn opened<T>(
        &self,
        mut at: Resolved,
        open: impl Fn(&Resolved) -> anyhow::Result<T>,
    ) -> anyhow::Result<(Resolved, T)> {
        loop {
            let opened = open(&at)?;
            let kept = self.resolve(&format!("seq:{}", at.seq))?;
            if kept.seq == at.seq {
                return Ok((at, opened));
            }
            at = kept;
        }
    }

    /// The oldest seq that can be opened.
    pub fn oldest(&self) -> u64 {
        self.volume.oldest.seq
    }

    /// The disk as it was after a write.
    pub fn disk(&self, seq: u64) -> anyhow::Result<Rc<dyn Source>> {
        Ok(Rc::new(ReadAhead::new(self.export(&format!("@seq:{seq}"))?)))
    }

    /// The present, to be written to.
    pub fn present(&self) -> anyhow::Result<Disk> {
        self.export("")
    }

    fn export(&self, suffix: &str) -> anyhow::Result<Disk> {
        let uri = image::uri(&self.volume, suffix)?;
        let address: Address = uri.parse().map_err(Failure::new)?;
        let export = address.open()?;
        let size = export.size_bytes;
        Ok(Disk { export: RefCell::new(export), size, next: Cell::new(u64::MAX) })
    }

    /// The tree of a part as it was after a write; an error of the disk keeps its kind.
    pub fn tree(&self, seq: u64, part: &str) -> anyhow::Result<(Part, FileSystem, Box<dyn Tree>)> {
        let disk = self.disk(seq)?;
        let part = choose(&disk, part)?;
        let (system, tree) = files::open(&disk, &part)?;
        Ok((part, system, tree))
    }
}

/// The moment of an answer, and how it was read; in every answer.
#[derive(Clone, Debug, Serialize)]
pub struct How {
    pub volume: String,
    pub at: Resolved,
    pub part: String,
    pub kind: String,
    /// `clean`, `replayed` or `unreplayed`.
    pub state: String,
    /// Transactions of the journal that were replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions: Option<u64>,
}

impl How {
    fn text(&self) -> String {
        let How { volume, at, part, kind, state, .. } = self;
        let exact = if at.exact { "" } else { ", the last one kept before it" };
        let held =
            self.transactions.map(|n| format!(" ({})", crate::output::count(n, "transaction")));
        let held = held.unwrap_or_default();
        let part = if part.is_empty() { String::new() } else { format!(" {part}:") };
        format!("{volume}@seq:{} ({}{exact}):{part} {kind}, {state}{held}", at.seq, at.time)
    }
}

/// A tree that is open.
pub struct View {
    pub how: How,
    pub volume: Volume,
    pub part: Part,
    pub tree: Box<dyn Tree>,
}

impl View {
    /// Opens what is to be read, and says on standard error how it was.
    pub fn open(session: &Session, reading: &Reading) -> anyhow::Result<View> {
        let volume = Volume::find(session, &reading.of.volume)?;
        let at = volume.resolve(&reading.of.moment.to_string())?;
        let open = |at: &Resolved| volume.tree(at.seq, &reading.part).map_err(judge);
        let (at, (part, system, tree)) = volume.opened(at, open)?;
        let transactions = match tree.state() {
            State::Replayed(count) => Some(count),
            State::Clean | State::Unreplayed => None,
        };
        let how = How {
            volume: volume.name.clone(),
            at,
            part: part.name.clone(),
            kind: system.kind.to_owned(),
            state: tree.state().word().to_owned(),
            transactions,
        };
        say(&how.text());
        check_need(reading.need, tree.state())?;
        Ok(View { how, volume, part, tree })
    }

    /// What a path leads to.
    pub fn look_up(&self, path: &[u8]) -> anyhow::Result<Node> {
        let way = files::look_up_path(&*self.tree, path).map_err(|error| judge(error.into()))?;
        Ok(way.last().copied().unwrap_or(self.tree.top()))
    }
}

fn check_need(need: Option<Need>, state: State) -> anyhow::Result<()> {
    let is_met = match need {
        None => true,
        Some(Need::Clean) => state == State::Clean,
        Some(Need::Replayed) => state != State::Unreplayed,
    };
    if is_met {
        return Ok(());
    }
    let message = format!("the moment was read {}, which is less than was asked for", state.word());
    Err(Failure { code: ExitCode::Unreadable, ..Failure::new(message) }.into())
}

/// A failure of a reader, with the exit code of the contract.
pub fn judge(error: anyhow::Error) -> anyhow::Error {
    let Some(found) = error.downcast_ref::<Error>() else { return error };
    let (code, hint) = match found.kind {
        ErrorKind::NotFound => (ExitCode::NotFound, None),
        ErrorKind::WrongKind => (ExitCode::Failed, None),
        ErrorKind::Source => return error,
        ErrorKind::Damaged => (
            ExitCode::Unreadable,
            Some("another moment near by may do, or a clone that the kernel mounts"),
        ),
        ErrorKind::Unsupported | ErrorKind::Limit => {
            (ExitCode::Unreadable, Some("hindsight clone VOLUME@MOMENT NEW, and mount that"))
        }
    };
    let failure = Failure { code, ..Failure::new(found.to_string()) };
    match hint {
        Some(hint) => failure.with_hint(hint).into(),
        None => failure.into(),
    }
}

/// The part that is meant.
fn choose(disk: &Rc<dyn Source>, name: &str) -> anyhow::Result<Part> {
    let (_, parts) = files::parts(disk)?;
    let mut with: Vec<(Part, Option<FileSystem>)> = Vec::new();
    for part in parts {
        let system = FileSystem::of(&part.of(disk))?;
        with.push((part, system));
    }
    let is_meant = |(part, system): &&(Part, Option<FileSystem>)| {
        let system = system.as_ref();
        if name.is_empty() {
            return system.is_some_and(|system| system.is_readable);
        }
        match name.split_once('=') {
            Some(("label", label)) => {
                system.is_some_and(|system| api::path_text(&system.label) == label)
                    || api::path_text(part.label.as_bytes()) == label
            }
            Some(("uuid", uuid)) => {
                system.is_some_and(|system| system.uuid.eq_ignore_ascii_case(uuid))
            }
            _ => part.name == name,
        }
    };
    let meant: Vec<&Part> = with.iter().filter(is_meant).map(|(part, _)| part).collect();
    match (&meant[..], &with[..]) {
        ([one], _) => Ok((*one).clone()),
        // It is opened, and the reason told for which it cannot be read.
        ([], [(one, Some(_))]) if name.is_empty() => Ok(one.clone()),
        (found, _) => Err(unclear(name, found.len(), &with).into()),
    }
}

fn unclear(name: &str, found: usize, with: &[(Part, Option<FileSystem>)]) -> Failure {
    let kind = |system: &Option<FileSystem>| system.as_ref().map_or("unknown", |found| found.kind);
    let list = with.iter().map(|(part, system)| {
        let name = if part.name.is_empty() { "the whole disk" } else { &part.name };
        format!("{name} ({})", kind(system))
    });
    let list = list.collect::<Vec<_>>().join(", ");
    let (code, message) = match (name.is_empty(), found) {
        (true, 0) => (ExitCode::Unreadable, format!("no file system that can be read: {list}")),
        (false, 0) => (ExitCode::NotFound, format!("there is no part {name}: {list}")),
        _ => (ExitCode::Usage, format!("there are several: {list}")),
    };
    let failure = Failure { code, ..Failure::new(message) };
    if found > 1 { failure.with_hint("name one, as in VOLUME@MOMENT:p2/PATH") } else { failure }
}

/// A time of a file as it is printed.
pub fn time_text(time: files::Time) -> String {
    let nanos = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    match u64::try_from(nanos) {
        Ok(nanos) => Time(units::WallTime::from_nanos(nanos)).to_string(),
        Err(_) => format!("@{}", time.seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::{split, time_text};

    #[test]
    fn names_are_split_at_the_path() {
        for (text, parts) in [
            ("v", ("v", "", None)),
            ("v@seq:12", ("v@seq:12", "", None)),
            ("v@seq:12:", ("v@seq:12", "", None)),
            ("v:/", ("v", "", Some("/"))),
            ("v@seq:12:/a:b/c", ("v@seq:12", "", Some("/a:b/c"))),
            ("v@2026-11-21T10:00:00Z:p2/x", ("v@2026-11-21T10:00:00Z", "p2", Some("/x"))),
            ("v:label=ROOT/x", ("v", "label=ROOT", Some("/x"))),
        ] {
            assert_eq!(split(text).ok(), Some(parts), "{text}");
        }
        assert!(split("v/x").is_err());
    }

    #[test]
    fn times_before_1970_are_printed_as_seconds() {
        assert_eq!(time_text(files::Time { seconds: -5, nanos: 1 }), "@-5");
        assert!(time_text(files::Time { seconds: 0, nanos: 5 }).starts_with("1970-01-01T00:00:00"));
    }
}
