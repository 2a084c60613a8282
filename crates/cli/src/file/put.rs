//! `file restore`: what was at a path, onto this machine. Holes stay holes.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use api::{ExitCode, path_text};
use files::{Attributes, Kind, Node};
use serde::Serialize;

use super::archive::Stopped;
use super::view::{How, NeedArgs, Reading, View, judge};
use crate::local::{Dress, Made, Placing, cannot_write};
use crate::output::pairs;
use crate::session::{Session, say};

#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// The volume, the moment and the path.
    #[arg(value_name = "VOLUME[@MOMENT]:[PART]/PATH")]
    pub of: OsString,
    /// The path it gets here; there may be nothing yet.
    pub to: PathBuf,
    /// Write over what is there: files and links give way, directories are merged into.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub need: NeedArgs,
}

#[derive(Serialize)]
struct Restored {
    #[serde(flatten)]
    how: How,
    path: String,
    to: PathBuf,
    #[serde(flatten)]
    made: Made,
}

/// The longest name that file systems of this machine take.
const NAME_BYTES_MAX: usize = 255;

struct Work<'a> {
    view: &'a View,
    /// What was asked for.
    top: Node,
    placing: Placing,
    /// The first path of each file that has several.
    seen: BTreeMap<Node, PathBuf>,
}

pub fn run(
    session: &Session,
    reading: &Reading,
    to: &Path,
    is_forced: bool,
) -> anyhow::Result<ExitCode> {
    let view = View::open(session, reading)?;
    let path = reading.path()?;
    let top = view.look_up(path)?;
    let placing = Placing::new(is_forced);
    placing.check_top(to)?;
    let mut work = Work { view: &view, top, placing, seen: BTreeMap::new() };
    let walked = files::walk(&*view.tree, top, &mut |path, node, attributes| {
        let to = if path.is_empty() {
            to.to_owned()
        } else {
            to.join(Path::new(OsStr::from_bytes(path)))
        };
        work.put(&to, node, attributes).map_err(Stopped::Here)
    });
    let made = match walked {
        Ok(()) => work.placing.finish()?,
        Err(Stopped::Here(error)) => return Err(error),
        Err(Stopped::Reading(error)) => return Err(judge(error.into())),
    };
    let how = view.how.clone();
    let restored = Restored { how, path: path_text(path), to: to.to_owned(), made };
    session.answer(&restored, show)?;
    restored.made.left_out.iter().for_each(|what| say(&format!("left out: {what}")));
    Ok(if restored.made.left_out.is_empty() { ExitCode::Done } else { ExitCode::Partly })
}

fn show(restored: &Restored) -> String {
    let mut shown =
        vec![("restored", restored.path.clone()), ("to", restored.to.display().to_string())];
    shown.extend(restored.made.rows());
    pairs(&shown)
}

impl Work<'_> {
    fn put(&mut self, to: &Path, node: Node, attributes: &Attributes) -> anyhow::Result<()> {
        let is_long = |part: Component<'_>| part.as_os_str().len() > NAME_BYTES_MAX;
        if to.components().any(is_long) {
            let error = format!("a name of more than {NAME_BYTES_MAX} bytes");
            self.placing.left_out(to, attributes.kind.word(), &error);
            return Ok(());
        }
        // One file that no reader knows is no reason to be without all others.
        if attributes.kind == Kind::File
            && let Err(error) = self.view.tree.pieces(node)
        {
            if error.kind != files::ErrorKind::Unsupported || node == self.top {
                return Err(judge(error.into()));
            }
            self.placing.left_out(to, "file", &error);
            return Ok(());
        }
        let extended = self.view.tree.extended(node).map_err(|error| judge(error.into()))?;
        let dress = Dress::of(attributes, extended);
        if attributes.kind == Kind::Directory {
            return self.placing.directory(to, dress);
        }
        if attributes.links > 1 {
            if let Some(first) = self.seen.get(&node) {
                return self.placing.hard_link(first, to);
            }
            self.seen.insert(node, to.to_owned());
        }
        match attributes.kind {
            Kind::File => {
                let view = self.view;
                self.placing.file(to, attributes.size, &dress, |file| fill(view, node, to, file))
            }
            Kind::Symlink => {
                let target = self.view.tree.link(node).map_err(|error| judge(error.into()))?;
                self.placing.symlink(to, &target, &dress)
            }
            _ => {
                if !self.placing.special(to, attributes.device, &dress)? {
                    self.seen.remove(&node);
                }
                Ok(())
            }
        }
    }
}

/// Writes what of a file is no hole; how many bytes.
fn fill(view: &View, node: Node, to: &Path, file: &std::fs::File) -> anyhow::Result<u64> {
    let (mut lost, mut written) = (None, 0);
    let read = files::read_all(&*view.tree, node, &mut |offset, bytes| {
        written += bytes.len() as u64;
        match file.write_all_at(bytes, offset) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                lost = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    if let Some(error) = lost {
        return Err(error).with_context(|| cannot_write(to));
    }
    read.map_err(|error| judge(error.into()))?;
    Ok(written)
}
