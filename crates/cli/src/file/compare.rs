//! `file diff`: the paths that differ between two moments, and of two files the bytes.
//!
//! A file has the same bytes if its size, its times and the places of its blocks are the same and
//! nothing was written to these places between the moments; otherwise both are read.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use api::{FileDifference, Range, path_bytes, path_text};
use files::{Attributes, Identity, Kind, Node};

use super::view::{NeedArgs, Reading, View, judge};
use crate::failure::Failure;
use crate::output::count;
use crate::session::{Session, say};
use crate::{diff, moment, share_files};

/// Bytes that are compared at once.
const AT_ONCE_BYTES: usize = 1 << 20;
/// Ranges that are nearer to each other are told as one.
const GAP_BYTES: u64 = 64;

#[derive(Debug, clap::Args)]
pub struct DiffArgs {
    /// One moment.
    #[arg(value_name = "VOLUME[@MOMENT]")]
    pub from: String,
    /// The other.
    #[arg(value_name = "VOLUME[@MOMENT]")]
    pub to: String,
    /// What is compared [default: /].
    #[arg(value_name = "[:][PART]/PATH")]
    pub path: Option<OsString>,
    #[command(flatten)]
    pub need: NeedArgs,
}

/// What is at a path.
type Found = BTreeMap<Vec<u8>, (Node, Attributes)>;

pub fn run(session: &Session, args: &DiffArgs) -> anyhow::Result<()> {
    let (part, path) = split(args.path.as_deref())?;
    let open = |of: &str| -> anyhow::Result<View> {
        let (part, path) = (part.clone(), Some(path.clone()));
        let of = moment::read_of_volume(of)?;
        View::open(session, &Reading { of, part, path, need: args.need.need })
    };
    let (from, to) = (open(&args.from)?, open(&args.to)?);
    let is_there = |view: &View| match view.look_up(&path) {
        Ok(node) => Ok(Some(node)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    };
    let (before, after) = (is_there(&from)?, is_there(&to)?);
    if before.is_none() && after.is_none() {
        // Neither has it, which is no difference but a path that is wrong.
        from.look_up(&path)?;
    }
    let read =
        |view: &View, node: Option<Node>| node.map_or(Ok(Found::new()), |node| all(view, node));
    let (before, after) = (read(&from, before)?, read(&to, after)?);
    let sides = Sides { from: &from, to: &to, written: written(&from, &to)? };
    let top = |found: &Found| {
        found.get(&b""[..]).filter(|(_, known)| known.kind == Kind::File).map(|(node, _)| *node)
    };
    if let (Some(a), Some(b)) = (top(&before), top(&after)) {
        let ranges = sides.ranges(a, b).map_err(|error| judge(error.into()))?;
        session.answer(&ranges, |ranges| diff::show(ranges))?;
        say(&format!("{} differ", count(ranges.len() as u64, "range")));
        return Ok(());
    }
    let prefix = if path.ends_with(b"/") { path.clone() } else { [&path[..], b"/"].concat() };
    let found = sides.paths(&prefix, &before, &after).map_err(|error| judge(error.into()))?;
    session.answer(&found, |found| share_files::show_differences(found))?;
    say(&format!("{} changed", count(found.len() as u64, "path")));
    Ok(())
}

fn is_absent(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failure>().is_some_and(|f| f.code == api::ExitCode::NotFound)
}

/// The part and the path of `[:][PART]/PATH`.
fn split(given: Option<&OsStr>) -> anyhow::Result<(String, Vec<u8>)> {
    let Some(given) = given else { return Ok((String::new(), b"/".to_vec())) };
    let text = given.to_str().map_or_else(|| path_text(given.as_bytes()), str::to_owned);
    let text = text.strip_prefix(':').unwrap_or(&text);
    let Some(slash) = text.find('/') else {
        return Err(Failure::usage(format!("{text}: a path begins with /")).into());
    };
    let path = path_bytes(&text[slash..]).map_err(Failure::usage)?;
    Ok((text[..slash].to_owned(), path))
}

fn all(view: &View, top: Node) -> anyhow::Result<Found> {
    let mut found = Found::new();
    let walked = files::walk(&*view.tree, top, &mut |path, node, known| -> files::Result<()> {
        found.insert(path.to_vec(), (node, known.clone()));
        Ok(())
    });
    walked.map_err(|error| judge(error.into()))?;
    Ok(found)
}

/// What was written between the two moments, in bytes of the disk; none where that is not known.
fn written(from: &View, to: &View) -> anyhow::Result<Option<Vec<Range>>> {
    if from.how.volume != to.how.volume || from.part != to.part {
        return Ok(None);
    }
    let moment = |view: &View| (view.how.volume.clone(), format!("seq:{}", view.how.at.seq));
    Ok(Some(diff::between(&from.volume.client, &moment(from), &moment(to))?))
}

struct Sides<'a> {
    from: &'a View,
    to: &'a View,
    written: Option<Vec<Range>>,
}

impl Sides<'_> {
    fn paths(
        &self,
        prefix: &[u8],
        before: &Found,
        after: &Found,
    ) -> files::Result<Vec<FileDifference>> {
        let shown = |path: &[u8]| path_text(&[prefix, path].concat());
        let difference = |path: &[u8], change: &str, kind: Kind| FileDifference {
            path: shown(path),
            change: change.to_owned(),
            path_before: None,
            kind: kind.word().to_owned(),
            content: false,
            attributes: false,
        };
        let gone = || before.iter().filter(|(path, _)| !after.contains_key(*path));
        let gone: BTreeMap<Identity, &Vec<u8>> =
            gone().map(|(path, (_, known))| (known.identity, path)).collect();
        let mut moved = BTreeMap::new();
        let mut found = Vec::new();
        for (path, (node, known)) in after {
            let was = before.get(path).filter(|(_, was)| was.identity == known.identity);
            let from = gone.get(&known.identity).filter(|_| !before.contains_key(path));
            let (change, was, from) = match (was, from) {
                (Some(was), _) => ("changed", was, None),
                (None, Some(from)) => {
                    moved.insert((*from).clone(), ());
                    let Some(was) = before.get(*from) else { continue };
                    ("renamed", was, Some(shown(from)))
                }
                (None, None) => {
                    let change = if before.contains_key(path) { "replaced" } else { "created" };
                    found.push(difference(path, change, known.kind));
                    continue;
                }
            };
            let (content, attributes) = self.differ(was, &(*node, known.clone()))?;
            if content || attributes || change == "renamed" {
                let difference = difference(path, change, known.kind);
                found.push(FileDifference { path_before: from, content, attributes, ..difference });
            }
        }
        let removed = before
            .iter()
            .filter(|(path, _)| !after.contains_key(*path) && !moved.contains_key(*path));
        found.extend(removed.map(|(path, (_, known))| difference(path, "removed", known.kind)));
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// Whether the bytes of an object differ, and what else is known of it. Directories change
    /// their time with every name in them, which is told by those names.
    fn differ(
        &self,
        a: &(Node, Attributes),
        b: &(Node, Attributes),
    ) -> files::Result<(bool, bool)> {
        let ((before, was), (after, is)) = (a, b);
        let is_content = match is.kind {
            Kind::File => !self.is_same_file(a, b)?,
            Kind::Symlink => self.from.tree.link(*before)? != self.to.tree.link(*after)?,
            _ => false,
        };
        let is_touched = is.kind != Kind::Directory && was.modified != is.modified;
        let is_other = (was.kind, was.mode, was.owner, was.device)
            != (is.kind, is.mode, is.owner, is.device)
            || self.from.tree.extended(*before)? != self.to.tree.extended(*after)?;
        Ok((is_content, is_other || is_touched && !is_content))
    }

    fn is_same_file(&self, a: &(Node, Attributes), b: &(Node, Attributes)) -> files::Result<bool> {
        if a.1.size != b.1.size {
            return Ok(false);
        }
        let is_same_known = (a.1.modified, a.1.changed) == (b.1.modified, b.1.changed);
        if let (true, Some(written)) = (is_same_known, &self.written)
            && let Ok(pieces) = self.to.tree.pieces(b.0)
        {
            let is_hit = |place: std::ops::Range<u64>| {
                let first =
                    written.partition_point(|range| range.offset + range.length <= place.start);
                written.get(first).is_some_and(|range| range.offset < place.end)
            };
            let is_written = |piece: &files::Piece| {
                let there = piece.place.map(|place| place..place + piece.length);
                there.is_some_and(|there| self.to.part.places(there).any(is_hit))
            };
            let is_in_place = self.from.part.ranges == self.to.part.ranges
                && self.from.tree.pieces(a.0).is_ok_and(|before| before == pieces);
            if is_in_place && !pieces.iter().any(is_written) {
                return Ok(true);
            }
        }
        match self.ranges(a.0, b.0) {
            // What no reader knows is the same if all that is told of it is.
            Err(error) if error.kind == files::ErrorKind::Unsupported => Ok(is_same_known),
            ranges => Ok(ranges?.is_empty()),
        }
    }

    /// The ranges of bytes that differ; what one file has beyond the other's end does.
    fn ranges(&self, a: Node, b: Node) -> files::Result<Vec<Range>> {
        let (mut before, mut after) = (vec![0; AT_ONCE_BYTES], vec![0; AT_ONCE_BYTES]);
        let mut found: Vec<Range> = Vec::new();
        let mut add = |offset: u64, length: u64| match found.last_mut() {
            Some(last) if offset - (last.offset + last.length) < GAP_BYTES => {
                last.length = offset + length - last.offset;
            }
            _ => found.push(Range { offset, length }),
        };
        let mut offset = 0;
        loop {
            let read = self.from.tree.read(a, offset, &mut before)?;
            let other = self.to.tree.read(b, offset, &mut after)?;
            let both = read.min(other);
            if before[..both] != after[..both] {
                for index in (0..both).filter(|&index| before[index] != after[index]) {
                    add(offset + index as u64, 1);
                }
            }
            if read != other || both == 0 {
                let size = |view: &View, node| view.tree.attributes(node).map(|known| known.size);
                let end = size(self.from, a)?.max(size(self.to, b)?);
                let at = offset + both as u64;
                if end > at {
                    add(at, end - at);
                }
                return Ok(found);
            }
            offset += both as u64;
        }
    }
}
