//! Trees of shares as archives: sent, and put into a share.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::files::{Link, Member, Reader, Time as FileTime, What, Writer};
use ::share::{
    Attributes, CauseKind, Credentials, DEPTH_MAX, ErrorKind, FileKind, Import, ImportError,
    Importing, Like, Past, SetAttributes, SetTime, Tree, ViewBlocks, Wait,
};
use api::{ArchiveQuery, ImportFilesQuery, ImportedFiles, ProblemKind, path_text};
use axum::Json;
use axum::body::Body as AxumBody;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use units::{FileId, FileName, Inode, Moment, WallTime};

use super::answer::{Answer, Refusal};
use super::ask::{Asked, Named};
use super::changing::{change, undo_line};
use super::context::{Context, moment};
use super::files::{bytes_of, new_path_of, open, path_of, piece_of, refusal};
use super::pieces::{Pieces, Sending};
use super::upload::{ARCHIVE_TYPE, Reading, Upload};
use crate::nfs::LIST_NAME;

/// Bytes that are sent at a time, at least, but for the last.
const PIECE_BYTES: usize = 128 << 10;
/// Entries of a directory that are looked at together.
const PAGE_ENTRIES: usize = 256;
/// Bytes of a path that are shown.
const SHOWN_BYTES_MAX: usize = 1024;
/// Members that are left out and told one by one, at most.
const TOLD_MAX: usize = 1000;

/// Sends a file, or a directory with all below it, as it is or was at a moment, as an archive of
/// the pax form. Holes are zeros in it, and sockets are not.
#[utoipa::path(get, path = "/shares/{share}/archive", tag = "shares",
    params(ArchiveQuery),
    responses(
        (status = 200, description = "The archive", content_type = "application/x-tar"),
        (status = 404, description = "There is no such share, or no such path at the moment"),
        (status = 410, description = "The moment lies outside the window"),
        (status = 422, description = "The path, or what is above it, cannot be"),
    ))]
pub(super) async fn send(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<ArchiveQuery>,
) -> Answer<Response> {
    let at = query.at.as_deref().map_or(Ok(Moment::Latest), moment)?;
    let begin = move |context: &Context| {
        let bytes = bytes_of(query.path.as_deref().unwrap_or("/"))?;
        let place = path_of(&bytes)?;
        let opened = open(context, &name)?;
        let failed = |error| refusal(error, &name, &bytes);
        let (_, past) = opened.open_to_read(&at).map_err(failed)?;
        let object = place.find(&past.tree(Wait::May)).map_err(failed)?;
        let own = place.names().last().copied().unwrap_or(b".");
        Ok(Archiving {
            past,
            writer: Writer::new(Vec::new()),
            next: Some(object),
            path: own.to_vec(),
            file: None,
            levels: Vec::new(),
            seen: BTreeMap::new(),
            is_finished: false,
        })
    };
    let archiving = context.engine(begin).await?;
    let body = AxumBody::new(Sending::Idle(archiving));
    Ok(([(CONTENT_TYPE, ARCHIVE_TYPE)], body).into_response())
}

/// A tree that is being sent.
struct Archiving {
    past: Arc<Past<ViewBlocks>>,
    writer: Writer<Vec<u8>>,
    /// The object at `path`, if it is still to be sent.
    next: Option<Attributes>,
    path: Vec<u8>,
    /// A file, up to where it was read, and its size.
    file: Option<(FileId, u64, u64)>,
    levels: Vec<Level>,
    /// The first name of each file that has several.
    seen: BTreeMap<Inode, Vec<u8>>,
    is_finished: bool,
}

/// A directory whose entries are being sent.
struct Level {
    id: FileId,
    path_bytes: usize,
    page: VecDeque<(Vec<u8>, Inode)>,
    cookie: u64,
    is_end: bool,
}

impl Pieces for Archiving {
    fn next(&mut self) -> ::share::Result<Option<Vec<u8>>> {
        while self.writer.get_mut().len() < PIECE_BYTES && !self.is_finished {
            self.step()?;
        }
        let piece = std::mem::take(self.writer.get_mut());
        Ok((!piece.is_empty()).then_some(piece))
    }

    fn left(&self) -> Option<u64> {
        None
    }
}

/// Writing to memory fails only if that is gone.
const IN_MEMORY: &str = "a Vec takes everything";

impl Archiving {
    fn step(&mut self) -> ::share::Result<()> {
        if let Some((id, at, size)) = self.file.take() {
            let bytes = piece_of(&self.past, id, at, size)?;
            self.writer.content(&bytes).expect(IN_MEMORY);
            let at = at + bytes.len() as u64;
            self.file = (at < size).then_some((id, at, size));
            return Ok(());
        }
        if let Some(object) = self.next.take() {
            return self.begin(&object);
        }
        let Some(level) = self.levels.last_mut() else {
            self.writer.finish().expect(IN_MEMORY);
            self.is_finished = true;
            return Ok(());
        };
        self.path.truncate(level.path_bytes);
        let tree = self.past.tree(Wait::May);
        if level.page.is_empty() && !level.is_end {
            level.fill(&tree)?;
        }
        match level.page.pop_front() {
            Some((name, inode)) => {
                self.path.push(b'/');
                self.path.extend(name);
                self.next = Some(tree.attributes_of(inode)?);
            }
            None if level.is_end => drop(self.levels.pop()),
            None => {}
        }
        Ok(())
    }

    fn begin(&mut self, object: &Attributes) -> ::share::Result<()> {
        let tree = self.past.tree(Wait::May);
        let (mut target, mut first) = (Vec::new(), None);
        if object.kind == FileKind::Symlink {
            target = tree.read_link(object.id)?;
        }
        if object.kind != FileKind::Directory && object.links > 1 {
            first = self.seen.get(&object.id.inode).cloned();
            self.seen.entry(object.id.inode).or_insert_with(|| self.path.clone());
        }
        let link = match (&first, object.kind) {
            (Some(first), _) => Link::Hard(first),
            (None, FileKind::Symlink) => Link::Symbolic(&target),
            (None, _) => Link::None,
        };
        self.writer.member(&self.path, &told(object), link, &[]).expect(IN_MEMORY);
        match object.kind {
            FileKind::File if first.is_none() && object.size > 0 => {
                self.file = Some((object.id, 0, object.size));
            }
            FileKind::Directory if self.levels.len() >= DEPTH_MAX => {
                return Err(ErrorKind::NameTooLong.into());
            }
            FileKind::Directory => self.levels.push(Level {
                id: object.id,
                path_bytes: self.path.len(),
                page: VecDeque::new(),
                cookie: 0,
                is_end: false,
            }),
            _ => {}
        }
        Ok(())
    }
}

impl Level {
    fn fill(&mut self, tree: &impl Tree) -> ::share::Result<()> {
        let (page, cookie) = (&mut self.page, &mut self.cookie);
        self.is_end =
            tree.read_directory(&Credentials::root(), self.id, *cookie, &mut |listed| {
                let is_full = page.len() == PAGE_ENTRIES;
                if !is_full {
                    *cookie = listed.cookie;
                    if listed.name != b"." && listed.name != b".." {
                        page.push_back((listed.name.to_vec(), listed.inode));
                    }
                }
                !is_full
            })?;
        Ok(())
    }
}

/// Attributes as archives have them.
fn told(object: &Attributes) -> ::files::Attributes {
    let time = |time: WallTime| FileTime {
        seconds: (time.as_nanos() / 1_000_000_000) as i64,
        nanos: (time.as_nanos() % 1_000_000_000) as u32,
    };
    ::files::Attributes {
        kind: match object.kind {
            FileKind::File => ::files::Kind::File,
            FileKind::Directory => ::files::Kind::Directory,
            FileKind::Symlink => ::files::Kind::Symlink,
            FileKind::Fifo => ::files::Kind::Fifo,
            FileKind::Socket => ::files::Kind::Socket,
            FileKind::BlockDevice => ::files::Kind::BlockDevice,
            FileKind::CharacterDevice => ::files::Kind::CharacterDevice,
        },
        mode: object.mode,
        owner: Some((object.uid, object.gid)),
        size: object.size,
        links: object.links,
        identity: ::files::Identity { inode: object.id.inode.0, generation: 0 },
        modified: Some(time(object.modified)),
        changed: Some(time(object.changed)),
        accessed: Some(time(object.accessed)),
        device: Some(object.device),
    }
}

/// Puts all of an archive into a share: below a path, which is made if it is not there. Objects
/// that are there by the same names are replaced, and all that is the same stays as it is.
#[utoipa::path(post, path = "/shares/{share}/archive", tag = "shares",
    request_body(content = Vec<u8>, content_type = "application/x-tar"),
    params(ImportFilesQuery),
    responses(
        (status = 200, body = ImportedFiles),
        (status = 404, description = "There is no such share"),
        (status = 408, description = "Nothing of the body came for 30 s"),
        (status = 409, description = "Another command changes the share, or it follows a server"),
        (status = 415, description = "The body is not application/x-tar"),
        (status = 422, description = "The body is no archive, or a damaged one"),
    ))]
pub(super) async fn receive(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<ImportFilesQuery>,
    upload: Upload,
) -> Answer<Json<ImportedFiles>> {
    let work = async move |body: Reading| {
        context.engine(move |context| import(context, &name, &query, body)).await
    };
    upload.read_by(work).await.map(Json)
}

fn import(
    context: &Context,
    name: &str,
    query: &ImportFilesQuery,
    body: Reading,
) -> Answer<ImportedFiles> {
    let path = query.path.clone().unwrap_or_else(|| "/".to_owned());
    let bytes = bytes_of(&path)?;
    let below = new_path_of(&bytes)?;
    let opened = open(context, name)?;
    let volume = opened.volume();
    let is_broken = body.is_broken();
    let goes_on = || context.is_ready() && volume.is_served() && !is_broken.load(Ordering::Relaxed);
    let mut left = LeftOut::default();
    let kind = (CauseKind::Import, false);
    let (number, before, imported) = change(context, &opened, kind, |changer, before| {
        let imported = Importing::begin(changer, &goes_on).map_err(ImportError::from);
        let imported = imported.and_then(|mut importing| {
            let reader = Reader::new(BufReader::with_capacity(PIECE_BYTES, body));
            put_all(reader, below.names(), &mut importing, &mut left)?;
            Ok(importing.finish()?)
        });
        (changer.cause.number, before, imported)
    })?;
    let imported = imported.map_err(|error| {
        let undo = undo_line(volume, &format!("import={number}"), before);
        failed(error, name, &left.at, &undo)
    })?;
    left.told.extend(imported.told.iter().map(|(path, kind)| {
        let path = shown(path);
        match kind {
            ErrorKind::NotEmpty => format!("{path}: a directory with entries is there"),
            ErrorKind::NotDirectory => format!("{path}: above it is no directory"),
            ErrorKind::NotFound | ErrorKind::Stale => {
                format!("{path}: the file that it is a name of is not there")
            }
            kind => format!("{path}: {kind}"),
        }
    }));
    left.told.truncate(TOLD_MAX);
    Ok(ImportedFiles {
        share: name.to_owned(),
        path,
        number,
        before: before.0,
        created: imported.created,
        overwritten: imported.overwritten,
        kept: imported.kept,
        bytes: imported.bytes,
        left_out: left.count + imported.left_out,
        told: left.told,
        extended: left.extended,
        times: left.times,
    })
}

/// The text of a path in words for people: an archive has names of any length.
fn shown(path: &[u8]) -> String {
    match path.get(..SHOWN_BYTES_MAX) {
        Some(start) => format!("{}...", path_text(start)),
        None => path_text(path),
    }
}

/// Members of an archive that were not put into the share.
#[derive(Default)]
struct LeftOut {
    /// The member that was read last.
    at: Vec<u8>,
    count: u64,
    told: Vec<String>,
    /// Members with extended attributes, which shares have none of.
    extended: u64,
    /// Members with a time that shares cannot have.
    times: u64,
}

impl LeftOut {
    fn tell(&mut self, name: &[u8], why: &str) {
        self.count += 1;
        if self.told.len() < TOLD_MAX {
            self.told.push(format!("{}: {why}", shown(name)));
        }
    }
}

fn put_all<P: ::share::Present>(
    mut reader: Reader<impl Read>,
    below: &[&[u8]],
    importing: &mut Importing<'_, P>,
    left: &mut LeftOut,
) -> Result<(), ImportError> {
    while let Some(member) = reader.next_member()? {
        left.at.clone_from(&member.name);
        left.extended += u64::from(!member.extended.is_empty() || member.has_more);
        let set = attributes(&member, &mut left.times);
        let mut names = below.to_vec();
        if let Err(why) = add_names(&mut names, &member.name) {
            left.tell(&member.name, &why);
            continue;
        }
        let mut to = below.to_vec();
        let what = match &member.what {
            What::File => Import::File(member.size),
            What::Directory => Import::Directory,
            What::Link(target) => match add_names(&mut to, target) {
                Ok(()) => Import::Link(&to),
                Err(why) => {
                    left.tell(&member.name, &why);
                    importing.leave_out(&names)?;
                    continue;
                }
            },
            What::Symlink(target) => like(FileKind::Symlink, target, (0, 0)),
            What::Fifo => like(FileKind::Fifo, b"", (0, 0)),
            What::CharacterDevice(major, minor) => {
                like(FileKind::CharacterDevice, b"", (*major, *minor))
            }
            What::BlockDevice(major, minor) => like(FileKind::BlockDevice, b"", (*major, *minor)),
            What::Unknown(what) => {
                left.tell(&member.name, what);
                importing.leave_out(&names)?;
                continue;
            }
        };
        importing.put(&names, what, &set, &mut reader)?;
    }
    Ok(())
}

fn like(kind: FileKind, target: &[u8], device: (u32, u32)) -> Import<'_> {
    Import::Other(Like { kind, target, device })
}

/// Adds the names of a path in an archive, which may begin with `/` or `./`.
fn add_names<'n>(to: &mut Vec<&'n [u8]>, path: &'n [u8]) -> Result<(), String> {
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => return Err("`..` leads out of the archive".to_owned()),
            LIST_NAME => return Err("it is the name of the past in each directory".to_owned()),
            name => to.push(FileName::new(name).map_err(|error| error.to_string())?.as_bytes()),
        }
    }
    Ok(())
}

/// The attributes of a member; times that a share cannot have are its first or last.
fn attributes(member: &Member, others: &mut u64) -> SetAttributes {
    let mut is_other = false;
    let mut time = |time: FileTime| {
        let nanos = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
        let possible = nanos.clamp(0, i128::from(u64::MAX));
        is_other |= possible != nanos;
        SetTime::To(WallTime::from_nanos(possible as u64))
    };
    let (modified, accessed) = (time(member.modified), member.accessed.map(&mut time));
    *others += u64::from(is_other);
    SetAttributes {
        mode: Some(member.mode),
        uid: Some(member.uid),
        gid: Some(member.gid),
        size: None,
        accessed,
        modified: Some(modified),
    }
}

fn failed(error: ImportError, name: &str, at: &[u8], undo: &str) -> Refusal {
    // With nothing done there is nothing to go on from.
    let (after, again) = match at {
        [] => ("the archive".to_owned(), "give an archive of tar, not compressed".to_owned()),
        at => {
            let again = format!(
                "what came before is in the share: import it again, and only what is missing is \
                 written; or undo it: {undo}"
            );
            (format!("the archive, at {}", shown(at)), again)
        }
    };
    let refusal = match error {
        ImportError::Stopped => Refusal::new(ProblemKind::Stopping, "the import was stopped"),
        ImportError::LeftOut => Refusal::new(ProblemKind::Invalid, format!("{after}: {error}")),
        ImportError::Content(error) => {
            let kind = match error.kind() {
                io::ErrorKind::TimedOut => ProblemKind::TooSlow,
                io::ErrorKind::InvalidData => ProblemKind::Invalid,
                _ => ProblemKind::Malformed,
            };
            Refusal::new(kind, format!("{after}: {error}"))
        }
        ImportError::Share(error) => refusal(error, name, at),
    };
    if refusal.0.hint.is_some() { refusal } else { refusal.with_hint(again) }
}
