//! `hindsight share import` and `share export`: trees from this machine and onto it. Both go as
//! archives over the API, and need no mount.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, ErrorKind, IsTerminal, PipeReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Context;
use api::{
    ArchiveQuery, Client, ClientError, CreateShare, DeleteQuery, ExitCode, ImportFilesQuery,
    ImportedFiles, TreeQuery, path_text,
};
use files::{Kind, Member, Reader, What};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::Serialize;
use serde_json::json;

use crate::failure::Failure;
use crate::local::{Dress, Made, Placing, cannot_write};
use crate::moment;
use crate::output::{count, human, pairs};
use crate::pack::{Packed, pack};
use crate::session::{Session, say};
use crate::share_files::text_of;
use crate::share_operations::undo;

/// Bytes that are read at a time.
const PART_BYTES: usize = 256 << 10;

#[derive(Debug, clap::Args)]
pub struct ImportArgs {
    /// The share.
    name: String,
    /// A directory, an archive of tar, or - for an archive from standard input.
    from: PathBuf,
    /// The directory of the share that all of it is put into, from the top; is made [default: /].
    #[arg(long, value_name = "PATH")]
    to: Option<PathBuf>,
    /// Write into a share that has files: what is there by the same names is replaced, what is the
    /// same stays. The command that undoes it is printed.
    #[arg(long)]
    overwrite: bool,
}

#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// The share, and the moment; the share alone is its present.
    #[arg(value_name = "NAME[@MOMENT]")]
    of: String,
    /// A directory, which is made; an archive, if the name ends in .tar; or - for an archive to
    /// standard output.
    to: PathBuf,
    /// The path of what is written, from the top of the share [default: /].
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
    /// Write over what is there: files and links give way, directories are merged into.
    #[arg(long)]
    force: bool,
}

/// Whether a name is standard input or output.
fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

pub fn import(session: &Session, args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let source = Source::open(&args.from)?;
    let client = session.client()?;
    let is_new = api::found(client.share(&args.name))?.is_none();
    if is_new {
        let spec = CreateShare { name: args.name.clone(), ..CreateShare::default() };
        client.create_share(&spec)?;
    } else {
        may_import(&client, args)?;
    }
    let query = ImportFilesQuery { path: args.to.as_deref().map(text_of) };
    let (imported, packed) = match send(&client, &args.name, &query, source) {
        Ok(sent) => sent,
        Err(error) => {
            if is_new && clean_up(&client, &args.name) {
                let code = error.downcast_ref().map_or(ExitCode::Failed, ClientError::exit_code);
                let hint = format!("nothing is left of it: {} was not made", args.name);
                let message = format!("{error:#}");
                return Err(Failure { code, message, hint: Some(hint) }.into());
            }
            return Err(error);
        }
    };
    let left_out = imported.left_out + packed.left_out.len() as u64;
    session.answer(&imported, |imported| show(imported, left_out))?;
    let told = packed.left_out.iter().chain(&imported.told);
    told.for_each(|what| say(&format!("left out: {what}")));
    for (number, what) in [
        (imported.extended + packed.extended, "extended attributes, which shares do not have"),
        (imported.times, "a time before 1970 or after 2554, which became the nearest there is"),
    ] {
        if number > 0 {
            say(&format!("{} had {what}", count(number, "object")));
        }
    }
    if !is_new {
        let ImportedFiles { share, number, before, created, overwritten, .. } = &imported;
        say(&match created + overwritten {
            0 => "nothing was changed".to_owned(),
            _ => undo(&client, share, *before, &format!("import={number}")),
        });
    }
    Ok(if left_out == 0 { ExitCode::Done } else { ExitCode::Partly })
}

/// Refuses to write into a share that has files, unless that is wanted.
fn may_import(client: &Client, args: &ImportArgs) -> anyhow::Result<()> {
    if args.overwrite {
        return Ok(());
    }
    let path = args.to.as_deref().map(text_of);
    let top = TreeQuery { path, limit: Some(1), ..TreeQuery::default() };
    let there = api::found(client.tree(&args.name, &top))?;
    if there.is_none_or(|page| page.entries.is_empty()) {
        return Ok(());
    }
    let text = match &args.to {
        None => format!("{} is there, and has files", args.name),
        Some(to) => format!("{} of {} is there, and no empty directory", to.display(), args.name),
    };
    let hint = "give --overwrite, which can be undone; or import into another share, or with --to \
                into a directory of this one";
    Err(Failure::new(text).with_hint(hint).into())
}

/// Removes a share that was created in vain, and says whether it did; what came into it stays.
fn clean_up(client: &Client, name: &str) -> bool {
    let now = DeleteQuery { force: true, now: true, ..DeleteQuery::default() };
    let top = TreeQuery { limit: Some(1), ..TreeQuery::default() };
    let is_empty = client.tree(name, &top).is_ok_and(|page| page.entries.is_empty());
    let is_gone = is_empty && client.remove_share(name, &now).is_ok();
    if !is_gone {
        say(&format!("{name} was created, and has what came: --overwrite goes on from there"));
    }
    is_gone
}

fn show(imported: &ImportedFiles, left_out: u64) -> String {
    pairs(&[
        ("imported into", format!("{} {}", imported.share, imported.path)),
        ("created", imported.created.to_string()),
        ("overwritten", imported.overwritten.to_string()),
        ("as they were", imported.kept.to_string()),
        ("left out", left_out.to_string()),
        ("written", human(imported.bytes)),
        ("number", imported.number.to_string()),
        ("before", format!("seq:{}", imported.before)),
    ])
}

/// Where an import comes from.
enum Source {
    Directory(PathBuf),
    Archive(Box<dyn Read + Send>),
}

impl Source {
    fn open(from: &Path) -> anyhow::Result<Source> {
        if is_standard(from) {
            if io::stdin().is_terminal() {
                let hint = "pipe one into it: tar -c . | hindsight share import NAME -";
                return Err(Failure::usage("no archive comes from a terminal")
                    .with_hint(hint)
                    .into());
            }
            return Ok(Source::Archive(Box::new(io::stdin())));
        }
        let cannot = || format!("cannot read {}", from.display());
        let file = File::open(from).with_context(cannot)?;
        if file.metadata().with_context(cannot)?.is_dir() {
            return Ok(Source::Directory(from.to_owned()));
        }
        Ok(Source::Archive(Box::new(file)))
    }
}

/// Sends it.
fn send(
    client: &Client,
    name: &str,
    query: &ImportFilesQuery,
    source: Source,
) -> anyhow::Result<(ImportedFiles, Packed)> {
    let directory = match source {
        Source::Archive(archive) => {
            let archive = progress("imported")?.wrap_read(archive);
            return Ok((client.import_files(name, query, archive)?, Packed::default()));
        }
        Source::Directory(directory) => directory,
    };
    let (reader, writer) = io::pipe()?;
    thread::scope(|scope| {
        // If it fails, the archive ends in the middle, which the server refuses.
        let packing =
            scope.spawn(|| pack(&directory, BufWriter::with_capacity(PART_BYTES, writer)));
        let reader = progress("imported").map(|bar| bar.wrap_read(reader));
        let imported = reader.and_then(|reader| Ok(client.import_files(name, query, reader)?));
        match (imported, packing.join().expect("packing does not panic")) {
            (_, Err(error)) if !is_broken_pipe(&error) => Err(error),
            (imported, packed) => Ok((imported?, packed?)),
        }
    })
}

/// Bytes of the archive so far, when standard error is a terminal.
fn progress(what: &str) -> anyhow::Result<ProgressBar> {
    let style = ProgressStyle::with_template("{spinner} {msg} {bytes} {bytes_per_sec}")?;
    let bar = ProgressBar::no_length().with_style(style).with_message(what.to_owned());
    Ok(bar.with_finish(ProgressFinish::AndClear))
}

/// Whether nobody read any more: the reader then knows why.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let found = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    found.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

pub fn export(session: &Session, args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let of = moment::read_of_volume(&args.of)?;
    let client = session.client()?;
    let query =
        ArchiveQuery { path: args.path.as_deref().map(text_of), at: Some(of.moment.to_string()) };
    let to = &args.to;
    if is_standard(to) {
        if io::stdout().is_terminal() {
            let hint = "redirect it: > FILE.tar, or | tar -x";
            let failure = Failure::usage("an archive is nothing for a terminal");
            return Err(failure.with_hint(hint).into());
        }
        let mut stdout = io::stdout().lock();
        receive(&client, &of.volume, &query, &mut stdout)?;
        return Ok(ExitCode::Done);
    }
    if to.extension() == Some(OsStr::new("tar")) {
        export_archive(&client, &of.volume, &query, args)?;
        let exported = json!({ "share": of.volume, "to": to });
        session.answer(&exported, |_| format!("exported {} to {}", args.of, to.display()))?;
        return Ok(ExitCode::Done);
    }
    refuse_compressed(to)?;
    let placing = Placing::new(args.force);
    placing.check_top(to)?;
    let (reader, writer) = io::pipe()?;
    let made = thread::scope(|scope| {
        let unpacking = scope.spawn(|| unpack(reader, to, placing));
        let mut writer = writer;
        let received = receive(&client, &of.volume, &query, &mut writer);
        drop(writer);
        match (received, unpacking.join().expect("unpacking does not panic")) {
            // That it ended in the middle is not why.
            (Err(error), _) if !is_broken_pipe(&error) => Err(error),
            (_, unpacked) => unpacked,
        }
    })?;
    let exported = Exported { share: of.volume.clone(), to: to.clone(), made };
    session.answer(&exported, |exported| {
        let mut shown = vec![("exported", args.of.clone()), ("to", to.display().to_string())];
        shown.extend(exported.made.rows());
        pairs(&shown)
    })?;
    let made = exported.made;
    made.left_out.iter().for_each(|what| say(&format!("left out: {what}")));
    Ok(if made.left_out.is_empty() { ExitCode::Done } else { ExitCode::Partly })
}

/// A tree that was written to a directory.
#[derive(Serialize)]
struct Exported {
    share: String,
    to: PathBuf,
    #[serde(flatten)]
    made: Made,
}

fn receive(
    client: &Client,
    share: &str,
    query: &ArchiveQuery,
    to: &mut dyn Write,
) -> anyhow::Result<()> {
    let bar = progress("exported")?;
    let received = client.archive(share, query, &mut |bytes| {
        bar.inc(bytes.len() as u64);
        to.write_all(bytes)
    });
    bar.finish_and_clear();
    match received {
        // As the fault of a file or pipe of ours.
        Err(ClientError::Keep(error)) => Err(error.into()),
        received => Ok(received.map(|()| to.flush())??),
    }
}

/// A name says the form: of a compressed archive it would not be true.
fn refuse_compressed(to: &Path) -> anyhow::Result<()> {
    let name = to.as_os_str().as_bytes();
    let endings = [".tgz", ".tar.gz", ".tar.zst", ".tar.xz", ".tar.bz2", ".zip"];
    if !endings.iter().any(|ending| name.ends_with(ending.as_bytes())) {
        return Ok(());
    }
    let text = format!("{}: archives are not compressed here", to.display());
    let hint = "write it to standard output: hindsight share export NAME - | gzip > FILE";
    Err(Failure::usage(text).with_hint(hint).into())
}

/// Writes an archive beside its place, and puts it there when it is whole.
fn export_archive(
    client: &Client,
    share: &str,
    query: &ArchiveQuery,
    args: &ExportArgs,
) -> anyhow::Result<()> {
    let to = &args.to;
    Placing::new(args.force).check_top(to)?;
    let mut part = to.clone().into_os_string();
    part.push(format!(".part-{}", std::process::id()));
    let part = PathBuf::from(part);
    let file = OpenOptions::new().write(true).create_new(true).open(&part);
    let mut file = BufWriter::with_capacity(PART_BYTES, file.with_context(|| cannot_write(to))?);
    let written = receive(client, share, query, &mut file).and_then(|()| {
        file.get_ref().sync_all().with_context(|| cannot_write(to))?;
        let flags = if args.force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        renameat_with(CWD, &part, CWD, to, flags).with_context(|| cannot_write(to))
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written
}

/// Makes what an archive of the server holds: the first member at `to`, all others below it.
fn unpack(from: PipeReader, to: &Path, mut placing: Placing) -> anyhow::Result<Made> {
    let mut reader = Reader::new(BufReader::with_capacity(PART_BYTES, from));
    let mut top = None;
    let (mut entered, mut named) = (HashSet::new(), HashMap::new());
    while let Some(mut member) = reader.next_member()? {
        while member.name.ends_with(b"/") {
            member.name.pop();
        }
        let top = top.get_or_insert_with(|| member.name.clone());
        let path = place(to, top, &member.name)?;
        let is_below = path.parent().is_some_and(|parent| entered.contains(parent));
        // All is in directories that were made here: no link is gone through.
        if path != to && !is_below {
            let text =
                format!("the archive has {} and no directory for it", path_text(&member.name));
            return Err(Failure::new(text).into());
        }
        let dress = dress(&member);
        match &member.what {
            What::Directory => {
                placing.directory(&path, dress)?;
                entered.insert(path);
                continue;
            }
            What::Link(first) => {
                let first = place(to, top, first)?;
                match named.get(&first) {
                    Some(true) => placing.hard_link(&first, &path)?,
                    // It could not be made.
                    Some(false) => placing.left_out(&path, "a further name", &"see the first"),
                    None => {
                        let text = format!("the archive has no {}", first.display());
                        return Err(Failure::new(text).into());
                    }
                }
            }
            What::File => {
                placing.file(&path, member.size, &dress, |file| fill(&mut reader, file, &path))?;
            }
            What::Symlink(target) => placing.symlink(&path, target, &dress)?,
            What::Fifo | What::CharacterDevice(..) | What::BlockDevice(..) => {
                let device = match member.what {
                    What::CharacterDevice(major, minor) | What::BlockDevice(major, minor) => {
                        Some((major, minor))
                    }
                    _ => None,
                };
                let is_made = placing.special(&path, device, &dress)?;
                named.insert(path, is_made);
                continue;
            }
            What::Unknown(what) => {
                placing.left_out(&path, "not read", what);
                named.insert(path, false);
                continue;
            }
        }
        named.insert(path, true);
    }
    placing.finish()
}

/// Where a member goes.
fn place(to: &Path, top: &[u8], name: &[u8]) -> anyhow::Result<PathBuf> {
    let wrong =
        || Failure::new(format!("the archive has {}, which leads elsewhere", path_text(name)));
    let below = name.strip_prefix(top).ok_or_else(wrong)?;
    let below = match below {
        [] => return Ok(to.to_owned()),
        [b'/', below @ ..] => below,
        _ => return Err(wrong().into()),
    };
    let is_wrong = |part: &[u8]| part.is_empty() || part == b"." || part == b"..";
    if below.split(|byte| *byte == b'/').any(is_wrong) {
        return Err(wrong().into());
    }
    Ok(to.join(OsStr::from_bytes(below)))
}

fn dress(member: &Member) -> Dress {
    Dress {
        kind: match member.what {
            What::File | What::Link(_) | What::Unknown(_) => Kind::File,
            What::Directory => Kind::Directory,
            What::Symlink(_) => Kind::Symlink,
            What::Fifo => Kind::Fifo,
            What::CharacterDevice(..) => Kind::CharacterDevice,
            What::BlockDevice(..) => Kind::BlockDevice,
        },
        mode: member.mode,
        owner: Some((member.uid, member.gid)),
        modified: Some(member.modified),
        accessed: member.accessed,
        extended: member.extended.clone(),
    }
}

/// Writes the content of a member, zeros as holes; how many bytes that were none.
fn fill(from: &mut impl Read, file: &File, path: &Path) -> anyhow::Result<u64> {
    let (mut part, mut at, mut written) = (vec![0; PART_BYTES], 0, 0);
    loop {
        let length = from.read(&mut part).context("cannot read the archive")?;
        if length == 0 {
            return Ok(written);
        }
        if part[..length].iter().any(|byte| *byte != 0) {
            file.write_all_at(&part[..length], at).with_context(|| cannot_write(path))?;
            written += length as u64;
        }
        at += length as u64;
    }
}
