//! `file tar`: what was at a path, as an archive.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

use api::ExitCode;
use files::{Attributes, Kind, Link, Node, Writer};

use super::show::copy;
use super::view::{Reading, View, judge};
use crate::failure::Failure;
use crate::session::{Session, say};

pub fn run(session: &Session, reading: &Reading) -> anyhow::Result<ExitCode> {
    if io::stdout().is_terminal() {
        let hint = "redirect it: > FILE.tar, or | tar -x";
        return Err(Failure::usage("an archive is nothing for a terminal").with_hint(hint).into());
    }
    let view = View::open(session, reading)?;
    let path = reading.path()?;
    let top = view.look_up(path)?;
    let name = path.rsplit(|&byte| byte == b'/').find(|part| !part.is_empty());
    let name = name.filter(|_| top != view.tree.top()).unwrap_or(b".");
    let writer = Writer::new(io::stdout().lock());
    let mut archive = Archive { view: &view, top, writer, seen: BTreeMap::new(), lacks: false };
    let added = files::walk(&*view.tree, top, &mut |path, node, attributes| {
        let joined = if path.is_empty() { name.to_vec() } else { [name, b"/", path].concat() };
        archive.add(&joined, node, attributes).map_err(Stopped::Here)
    });
    match added {
        Ok(()) => {
            archive.writer.finish()?;
            Ok(if archive.lacks { ExitCode::Partly } else { ExitCode::Done })
        }
        Err(Stopped::Here(error)) => Err(error),
        Err(Stopped::Reading(error)) => Err(judge(error.into())),
    }
}

/// Why a walk ended: by what it read, or by what was done with it.
pub enum Stopped {
    Reading(files::Error),
    Here(anyhow::Error),
}

impl From<files::Error> for Stopped {
    fn from(error: files::Error) -> Stopped {
        Stopped::Reading(error)
    }
}

struct Archive<'a, W> {
    view: &'a View,
    /// What was asked for.
    top: Node,
    writer: Writer<W>,
    /// The first name of each file that has several.
    seen: BTreeMap<Node, Vec<u8>>,
    /// Whether a file was left out.
    lacks: bool,
}

impl<W: Write> Archive<'_, W> {
    fn add(&mut self, name: &[u8], node: Node, attributes: &Attributes) -> anyhow::Result<()> {
        let tree = &*self.view.tree;
        // One file that no reader knows is no reason to be without all others.
        if attributes.kind == Kind::File
            && let Err(error) = tree.pieces(node)
        {
            if error.kind != files::ErrorKind::Unsupported || node == self.top {
                return Err(judge(error.into()));
            }
            self.lacks = true;
            say(&format!("left out: {}: {error}", api::path_text(name)));
            return Ok(());
        }
        let (mut target, mut first) = (Vec::new(), None);
        if attributes.kind == Kind::Symlink {
            target = tree.link(node).map_err(|error| judge(error.into()))?;
        }
        if attributes.kind != Kind::Directory && attributes.links > 1 {
            first = self.seen.get(&node).cloned();
            self.seen.entry(node).or_insert_with(|| name.to_vec());
        }
        let link = match (&first, attributes.kind) {
            (Some(first), _) => Link::Hard(first),
            (None, Kind::Symlink) => Link::Symbolic(&target),
            (None, _) => Link::None,
        };
        let extended = tree.extended(node).map_err(|error| judge(error.into()))?;
        self.writer.member(name, attributes, link, &extended)?;
        if attributes.kind == Kind::File && first.is_none() {
            copy(self.view, node, &mut Content(&mut self.writer))?;
        }
        Ok(())
    }
}

/// The content of the member that was begun last.
struct Content<'a, W>(&'a mut Writer<W>);

impl<W: Write> Write for Content<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.content(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
