//! Recorded moments by command: listed, read, exported; and the paths that differ between two.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Shares;
use super::look::{Content, Found, Times, Walked, compare};
use super::model::{Body, Id, Place, ROOT, Tree};
use super::subject::Moment;
use crate::command;
use crate::http::escape;
use crate::nfs::{Attr, Kind};

/// Files that are read by command, each by a process.
const READ_MAX: usize = 2;

/// A path as commands tell it.
pub(super) fn path_text(path: &[u8]) -> String {
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => text.push_str("\\\\"),
                char if char.is_control() => {
                    let mut bytes = [0; 4];
                    char.encode_utf8(&mut bytes).bytes().for_each(|byte| hex(&mut text, byte));
                }
                char => text.push(char),
            }
        }
        chunk.invalid().iter().for_each(|byte| hex(&mut text, *byte));
    }
    text
}

fn hex(text: &mut String, byte: u8) {
    text.push_str(&format!("\\x{byte:02x}"));
}

impl Shares {
    /// Compares a directory of a moment, and some files in it, with what commands tell of them.
    pub(super) fn compare_listed(&mut self, at: usize, name: &str, moment: &Moment) -> Result<()> {
        let export = format!("{}@{name}", self.subjects[at].name);
        let places = moment.tree.places(ROOT);
        let of_kind = |kind| {
            let is = move |place: &&Place| moment.tree.node(place.id).kind() == kind;
            places.iter().filter(is).collect::<Vec<&Place>>()
        };
        let directories = of_kind(Kind::Directory);
        let directory = directories[self.eyes.index(directories.len())];
        self.compare_list(&export, &moment.tree, directory)?;
        let files = of_kind(Kind::File);
        for _ in 0..READ_MAX {
            let file = files[self.eyes.index(files.len())];
            let mut cat = self.server.command(&["share", "cat", &export, "--"]);
            let output = command::output(cat.arg(OsString::from_vec(file.path.clone())))?;
            let what = format!("share cat {export} {}", path_text(&file.path));
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{what}: {said}");
            let content = Content::Bytes(Arc::new(output.stdout));
            super::look::check_content(&moment.tree.node(file.id).body, &content).context(what)?;
        }
        Ok(())
    }

    fn compare_list(&self, export: &str, tree: &Tree, directory: &Place) -> Result<()> {
        let mut ls = self.server.command(&["share", "ls", "--json", export, "--"]);
        let output = command::run(ls.arg(OsString::from_vec(directory.path.clone())))?;
        let list: Value = serde_json::from_str(&output)?;
        let told = list.as_array().context("a list")?.iter();
        let told: BTreeMap<&str, &Value> =
            told.map(|entry| (entry["name"].as_str().unwrap_or_default(), entry)).collect();
        let entries = tree.entries(directory.id);
        let what = format!("share ls {export} {}", path_text(&directory.path));
        ensure!(told.len() == entries.len(), "{what}: {} names, not {}", told.len(), entries.len());
        for (name, id) in entries {
            let text = path_text(name);
            let entry = told.get(&text[..]).with_context(|| format!("{what}: no {text}"))?;
            let node = tree.node(*id);
            let (kind, target) = match &node.body {
                Body::File(_) => ("file", None),
                Body::Directory(_) => ("directory", None),
                Body::Symlink(target) => ("symlink", Some(path_text(target))),
            };
            let size = match &node.body {
                Body::File(bytes) => bytes.len() as u64,
                _ => entry["size"].as_u64().unwrap_or_default(),
            };
            let right = entry["kind"] == kind
                && entry["mode"] == format!("{:04o}", node.mode)
                && entry["uid"] == node.uid
                && entry["gid"] == node.gid
                && entry["links"] == tree.links(*id)
                && entry["size"] == size
                && entry["target"].as_str() == target.as_deref();
            ensure!(right, "{what}: {entry}, not {node:?} of {} links", tree.links(*id));
        }
        Ok(())
    }

    /// Exports a moment, and compares what is there then.
    pub(super) fn export(&mut self, at: usize) -> Result<()> {
        let Some((name, moment)) = self.subjects[at].some_moment(&mut self.random) else {
            return Ok(());
        };
        let export = format!("{}@{name}", self.subjects[at].name);
        let folder = self.server.pool().with_extension("exported");
        let target = folder.to_str().context("a path of letters")?;
        self.note(format!("export {export}"));
        self.server.run(&["share", "export", &export, target])?;
        let mut tree = moment.tree;
        let is_root = command::is_root();
        let mut walked = Walked::new();
        walk_folder(&folder, Vec::new(), &mut walked)?;
        // Access times do not come along, and owners only with root.
        let ids = tree.below(ROOT);
        for id in ids {
            let is_root_itself = id == ROOT;
            let node = tree.change(id);
            node.atime = None;
            node.mtime = node.mtime.filter(|_| !is_root_itself);
        }
        for found in walked.values_mut() {
            let place = super::repairs::find(&tree, &found.path);
            let node = tree.node(place.with_context(|| format!("{export}: {found:?}"))?);
            if !is_root {
                (found.attr.uid, found.attr.gid) = (node.uid, node.gid);
            }
            match found.attr.kind {
                // Links of directories count otherwise elsewhere.
                Kind::Directory => found.attr.nlink = tree.links(place.unwrap_or(ROOT)),
                Kind::Symlink => found.attr.mode = node.mode,
                Kind::File => {}
            }
            if found.path.is_empty() {
                (found.attr.mode, found.attr.uid) = (node.mode, node.uid);
                found.attr.gid = node.gid;
            }
        }
        compare(&tree, ROOT, &walked, Times::Known).with_context(|| format!("export {export}"))?;
        self.counts.compared += 1;
        fs::remove_dir_all(&folder)?;
        Ok(())
    }

    /// Asks for the paths that differ between two moments.
    pub(super) fn compare_diff(&mut self, at: usize) -> Result<()> {
        let subject = &self.subjects[at];
        let Some((from, before)) = subject.some_moment(&mut self.random) else { return Ok(()) };
        let Some((to, after)) = subject.some_moment(&mut self.random) else { return Ok(()) };
        let limit = [3, 1000][self.random.index(2)];
        let name = subject.name.clone();
        let query = format!("?from={}&to={}&limit={limit}", escape(&from), escape(&to));
        let (mut told, mut next) = (Vec::new(), String::new());
        loop {
            let target = format!("/api/v1/shares/{name}/diff{query}{next}");
            let answer = self.server.http().call("GET", &target, None)?;
            ensure!(answer.status == 200, "GET {target}: {}", answer.status);
            told.extend(answer.json()?.as_array().context("a list")?.iter().cloned());
            let Some(following) = answer.next_page() else { break };
            next = format!("&next={following}");
        }
        self.counts.diffs += 1;
        self.note(format!("diff {name}@{from} {name}@{to}: {} paths", told.len()));
        check_diff(&before.tree, &after.tree, &told)
            .with_context(|| format!("diff {name}@{from} {name}@{to}: {told:?}"))
    }
}

/// Takes in a folder and all below it as if it had been walked through.
fn walk_folder(folder: &Path, path: Vec<u8>, walked: &mut Walked) -> Result<()> {
    let meta = fs::symlink_metadata(folder)?;
    let kind = match meta.file_type() {
        kind if kind.is_dir() => Kind::Directory,
        kind if kind.is_symlink() => Kind::Symlink,
        kind if kind.is_file() => Kind::File,
        other => bail!("{other:?} was exported"),
    };
    let content = match kind {
        Kind::Directory => Content::Directory,
        Kind::Symlink => Content::Target(fs::read_link(folder)?.into_os_string().into_vec()),
        Kind::File => Content::Bytes(Arc::new(fs::read(folder)?)),
    };
    let time = |seconds: i64, nanos: i64| -> Result<(u32, u32)> {
        Ok((u32::try_from(seconds)?, u32::try_from(nanos)?))
    };
    let attr = Attr {
        kind,
        mode: meta.mode() & 0o7777,
        nlink: u32::try_from(meta.nlink())?,
        uid: meta.uid(),
        gid: meta.gid(),
        size: meta.size(),
        fsid: meta.dev(),
        fileid: meta.ino(),
        atime: time(meta.atime(), meta.atime_nsec())?,
        mtime: time(meta.mtime(), meta.mtime_nsec())?,
        ctime: time(meta.ctime(), meta.ctime_nsec())?,
    };
    if kind == Kind::Directory {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let below = [&path[..], b"/", entry.file_name().as_bytes()].concat();
            walk_folder(&entry.path(), below, walked)?;
        }
    }
    walked.insert(path.clone(), Found { path, handle: Vec::new(), attr, content });
    Ok(())
}

/// Whether all that differs is told, and nothing of what nobody touched.
fn check_diff(before: &Tree, after: &Tree, told: &[Value]) -> Result<()> {
    let paths = |tree: &Tree| -> BTreeMap<String, Id> {
        let places = tree.places(ROOT).into_iter();
        places.map(|place| (path_text(&place.path), place.id)).collect()
    };
    let (old, new) = (paths(before), paths(after));
    let (mut named, mut moved) = (BTreeSet::new(), Vec::new());
    for row in told {
        let path = row["path"].as_str().context("a path")?;
        let path_before = row["path_before"].as_str();
        let is_right = match row["change"].as_str().unwrap_or_default() {
            "created" => new.contains_key(path),
            "removed" => old.contains_key(path),
            "changed" => path == "/" || old.contains_key(path) && new.contains_key(path),
            "renamed" => {
                let from = path_before.context("where it was")?;
                moved.extend([from, path]);
                old.contains_key(from) && new.contains_key(path)
            }
            _ => false,
        };
        ensure!(is_right, "{row} is of no such paths");
        named.extend([Some(path), path_before].into_iter().flatten());
    }
    let all: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for path in all {
        let (a, b) = (old.get(path), new.get(path));
        let is_below =
            |above: &&&str| path.strip_prefix(**above).is_some_and(|rest| rest.starts_with('/'));
        let is_told = named.contains(&path[..]) || moved.iter().any(|above| is_below(&above));
        let of = |tree: &Tree, id: &Id| {
            let node = tree.node(*id);
            let content = match &node.body {
                Body::Directory(_) => Body::Directory(BTreeMap::new()),
                other => other.clone(),
            };
            (node.mode, node.uid, node.gid, content)
        };
        let is_same = match (a, b) {
            (Some(a), Some(b)) => of(before, a) == of(after, b),
            _ => false,
        };
        ensure!(is_same || is_told, "{path} differs and is not told");
        let untouched = matches!((a, b), (Some(a), Some(b)) if a == b
            && Arc::ptr_eq(before.node(*a), after.node(*b))
            && before.links(*a) == after.links(*b));
        ensure!(!untouched || !named.contains(&path[..]), "{path} is told, and was not touched");
    }
    Ok(())
}
