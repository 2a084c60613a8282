//! `hindsight share ls`, `share cat`, `share restore`, and `diff` of a share: its files at any
//! moment.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use api::{
    Client, ClientError, ExitCode, FileDiffQuery, FileDifference, FileEntry, FileQuery, Page,
    RestoreFiles, RestoredFiles, TreeQuery, path_text,
};
use units::{Moment, Seq, VolumeMoment};

use crate::failure::Failure;
use crate::moment;
use crate::output::{Table, count, human, pairs};
use crate::session::{Session, say, tell};

#[derive(Debug, clap::Args)]
pub struct LsArgs {
    /// The share, and the moment; the share alone is its present.
    #[arg(value_name = "NAME[@MOMENT]")]
    of: String,
    /// The path, from the top of the share [default: /].
    path: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct CatArgs {
    /// The share, and the moment; the share alone is its present.
    #[arg(value_name = "NAME[@MOMENT]")]
    of: String,
    /// The path of the file, from the top of the share.
    path: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// The share, and the moment.
    #[arg(value_name = "NAME@MOMENT")]
    of: String,
    /// The path, from the top of the share; / is all of it.
    path: PathBuf,
    /// Put it at another path. There may be nothing yet; or, for a directory, a directory, which it
    /// is merged into.
    #[arg(long, value_name = "PATH")]
    to: Option<PathBuf>,
    /// What is there now, and was not there then, goes.
    #[arg(long)]
    delete: bool,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
}

/// A path as the server reads it.
pub fn text_of(path: &Path) -> String {
    path_text(path.as_os_str().as_bytes())
}

/// The moment as it is asked for: the present, or one that is fixed for all pages.
fn fixed(client: &Client, of: &VolumeMoment) -> anyhow::Result<String> {
    if of.moment == Moment::Latest {
        return Ok(of.moment.to_string());
    }
    let resolved = client.resolve(&of.volume, &of.moment.to_string())?;
    Ok(Moment::Seq(Seq(resolved.seq)).to_string())
}

pub fn ls(session: &Session, args: &LsArgs) -> anyhow::Result<()> {
    let of = moment::read_of_volume(&args.of)?;
    let client = session.client()?;
    let at = fixed(&client, &of)?;
    let path = args.path.as_deref().map(text_of);
    let mut query = TreeQuery { path, at: Some(at), ..TreeQuery::default() };
    let mut entries = Page::all(|next| {
        query.next = next;
        client.tree(&of.volume, &query)
    })?;
    entries.sort_by(|a: &FileEntry, b| a.name.cmp(&b.name));
    session.answer(&entries, |entries| list(entries))
}

fn list(entries: &[FileEntry]) -> String {
    Table::of(entries)
        .left("MODE", |one| mode_text(&one.kind, &one.mode))
        .right("LINKS", |one| one.links.to_string())
        .right("UID", |one| one.uid.to_string())
        .right("GID", |one| one.gid.to_string())
        .right("SIZE", |one| one.device.clone().unwrap_or_else(|| one.size.to_string()))
        .left("MODIFIED", |one| one.modified.to_string())
        .left("NAME", |one| with_target(&one.name, one.target.as_deref()))
        .text()
}

/// A name, and what a symbolic link leads to.
pub fn with_target(name: &str, target: Option<&str>) -> String {
    target.map_or_else(|| name.to_owned(), |target| format!("{name} -> {target}"))
}

/// The kind and the permissions as `ls -l` has them: `drwxr-xr-x`.
pub fn mode_text(kind: &str, mode: &str) -> String {
    let kind = match kind {
        "file" => '-',
        "directory" => 'd',
        "symlink" => 'l',
        "fifo" => 'p',
        "socket" => 's',
        "block-device" => 'b',
        "character-device" => 'c',
        _ => '?',
    };
    let bits = u32::from_str_radix(mode, 8).unwrap_or_default();
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let has = |bit: u32| bits >> shift & bit != 0;
        text.push(if has(4) { 'r' } else { '-' });
        text.push(if has(2) { 'w' } else { '-' });
        text.push(match (has(1), bits & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

pub fn cat(session: &Session, args: &CatArgs) -> anyhow::Result<()> {
    let of = moment::read_of_volume(&args.of)?;
    let query = FileQuery { path: text_of(&args.path), at: Some(of.moment.to_string()) };
    let mut stdout = io::stdout().lock();
    let sent = session.client()?.file(&of.volume, &query, &mut |bytes| stdout.write_all(bytes));
    match sent {
        // A reader that closed the pipe has what it wanted.
        Err(ClientError::Keep(error)) => Err(error.into()),
        sent => Ok(sent.map(|()| stdout.flush())??),
    }
}

pub fn restore(session: &Session, args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    let of = moment::read_of_volume(&args.of)?;
    if of.moment == Moment::Latest {
        let hint = format!("give {}@MOMENT, such as {0}@-1h", of.volume);
        return Err(Failure::usage("the present is as it is: name a moment")
            .with_hint(hint)
            .into());
    }
    let body = RestoreFiles {
        from: of.moment.to_string(),
        path: text_of(&args.path),
        to: args.to.as_deref().map(text_of),
        delete: args.delete,
        dry_run: args.dry_run,
    };
    let restored = session.client()?.restore_files(&of.volume, &body)?;
    session.answer(&restored, show)?;
    if args.dry_run {
        tell(&restored.would);
        return Ok(ExitCode::Done);
    }
    let stay = restored.stay.iter();
    stay.for_each(|path| say(&format!("{path} stays: a directory with entries, and none then")));
    say(&undo(&restored));
    if restored.in_the_way == 0 {
        return Ok(ExitCode::Done);
    }
    let stay = count(restored.in_the_way, "path");
    say(&format!("{stay} not as then: --delete takes away what is in the way"));
    Ok(ExitCode::Partly)
}

/// How to undo it.
fn undo(restored: &RestoredFiles) -> String {
    let RestoredFiles { share, before, created, overwritten, removed, kept, .. } = restored;
    let to = quoted(&restored.to);
    match (created + overwritten + removed, overwritten + removed + kept) {
        (0, _) => "nothing was changed".to_owned(),
        (_, 0) => format!("to undo: remove {to}, which was not there"),
        _ => format!("to undo: hindsight share restore {share}@seq:{before} {to} --delete"),
    }
}

/// The text of a path as a shell reads it, which takes its escapes for what they are.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if path.chars().all(is_plain) {
        return path.to_owned();
    }
    format!("$'{}'", path.replace('\'', "\\'"))
}

fn show(restored: &RestoredFiles) -> String {
    let mut shown = vec![
        ("restored", format!("{}@seq:{} {}", restored.share, restored.from, restored.path)),
        ("at", restored.to.clone()),
        ("created", restored.created.to_string()),
        ("overwritten", restored.overwritten.to_string()),
        ("removed", restored.removed.to_string()),
        ("as they were", restored.kept.to_string()),
        ("written", human(restored.bytes)),
        ("number", restored.number.to_string()),
        ("before", format!("seq:{}", restored.before)),
    ];
    if restored.in_the_way > 0 {
        shown.push(("in the way", restored.in_the_way.to_string()));
    }
    if restored.more {
        shown.push(("more", "not all paths are told".to_owned()));
    }
    pairs(&shown)
}

/// The paths that differ between two moments of shares that are fixed, in order. What gave way to
/// another at its path is one: it was replaced.
pub fn between(
    client: &Client,
    (share, from): &(String, String),
    (other, to): &(String, String),
) -> anyhow::Result<Vec<FileDifference>> {
    let mut query = FileDiffQuery {
        from: from.clone(),
        to: Some(to.clone()),
        to_share: (other != share).then(|| other.clone()),
        ..FileDiffQuery::default()
    };
    let mut found = Page::all(|next| {
        query.next = next;
        client.diff_files(share, &query)
    })?;
    found.sort_by(|a, b| (&a.path, &a.change).cmp(&(&b.path, &b.change)));
    found.dedup_by(|next, last| {
        let is_replaced =
            next.path == last.path && next.change == "removed" && last.change == "created";
        if is_replaced {
            last.change = "replaced".to_owned();
        }
        is_replaced
    });
    Ok(found)
}

pub fn show_differences(found: &[FileDifference]) -> String {
    let path = |one: &FileDifference| {
        let parts = match (one.content, one.attributes) {
            (true, true) => " (content, attributes)",
            (true, false) => " (content)",
            (false, true) => " (attributes)",
            (false, false) => "",
        };
        match &one.path_before {
            Some(before) => format!("{before} -> {}{parts}", one.path),
            None => format!("{}{parts}", one.path),
        }
    };
    Table::of(found)
        .left("CHANGE", |one| one.change.clone())
        .left("KIND", |one| one.kind.clone())
        .left("PATH", |one| path(one))
        .text()
}

#[cfg(test)]
mod tests {
    #[test]
    fn paths_are_quoted_for_shells() {
        for (path, quoted) in
            [("/a/b-1", "/a/b-1"), ("/a b", "$'/a b'"), ("/\\xff'\\\\", "$'/\\xff\\'\\\\'")]
        {
            assert_eq!(super::quoted(path), quoted);
        }
    }

    #[test]
    fn modes_are_those_of_ls() {
        for (kind, mode, text) in [
            ("file", "0644", "-rw-r--r--"),
            ("directory", "1777", "drwxrwxrwt"),
            ("symlink", "0777", "lrwxrwxrwx"),
            ("file", "6755", "-rwsr-sr-x"),
            ("file", "7000", "---S--S--T"),
            ("socket", "0000", "s---------"),
        ] {
            assert_eq!(super::mode_text(kind, mode), text);
        }
    }
}
