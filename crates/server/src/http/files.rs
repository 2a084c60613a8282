//! Files of shares at any moment: listed, and read.
//!
//! 1. The caller is an administrator: in the tree it is root. Symbolic links are not followed.
//! 2. A file is read in pieces, of a moment, so that all of it is of one.

use std::fmt::Write;
use std::sync::Arc;

use ::share::{
    Attributes, Credentials, Error, ErrorKind, FileKind, FilePath, Past, Tree, ViewBlocks, Wait,
};
use api::{API_PREFIX, FileEntry, FileQuery, ProblemKind, Time, TreeQuery, path_bytes, path_text};
use axum::body::Body as AxumBody;
use axum::extract::State;
use axum::http::header::{ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use units::{FileId, Moment};

use super::answer::{Answer, Listed, Refusal};
use super::ask::{Asked, Named};
use super::context::{Context, PAGE_ENTRIES, moment, page_entries};
use super::pieces::{Pieces, Sending};
use super::shares::share;
use crate::nfs::{LIST_NAME, Opened};

/// Bytes of a file that are read at a time.
const PIECE_BYTES: u64 = 256 << 10;

/// Lists a directory of a share as it is, or was at a moment; or tells of what is no directory.
#[utoipa::path(get, path = "/shares/{share}/tree", tag = "shares",
    params(TreeQuery),
    responses(
        (status = 200, body = Vec<FileEntry>, headers(("Link" = String))),
        (status = 404, description = "There is no such share, or no such path at the moment"),
        (status = 410, description = "The moment lies outside the window"),
        (status = 422, description = "The path, or what is above it, cannot be"),
    ))]
pub(super) async fn tree(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<TreeQuery>,
) -> Answer<Listed<FileEntry>> {
    let at = query.at.as_deref().map_or(Ok(Moment::Latest), moment)?;
    let limit = page_entries(query.limit, PAGE_ENTRIES)?;
    let cookie = query.next.unwrap_or(0);
    let path = query.path.unwrap_or_else(|| "/".to_owned());
    let list = move |context: &Context| {
        let bytes = bytes_of(&path)?;
        let place = path_of(&bytes)?;
        let opened = open(context, &name)?;
        let failed = |error| refusal(error, &name, &bytes);
        let (at, past) = opened.open_to_read(&at).map_err(failed)?;
        let tree = past.tree(Wait::May);
        let object = place.find(&tree).map_err(failed)?;
        if object.kind != FileKind::Directory {
            let own = place.names().last().copied().unwrap_or(b"/");
            let entry = entry(&tree, own, &object).map_err(failed)?;
            return Ok(Listed { entries: vec![entry], next: None });
        }
        let (entries, next) = entries(&tree, object.id, cookie, limit).map_err(failed)?;
        let next = next.map(|next| {
            let (path, share) = (in_url(&path), in_url(&name));
            let page = format!("path={path}&at={at}&limit={limit}&next={next}");
            format!("{API_PREFIX}/shares/{share}/tree?{page}")
        });
        Ok(Listed { entries, next })
    };
    context.engine(list).await
}

/// Some entries of a directory, and the cookie of the last if there are more.
fn entries(
    tree: &impl Tree,
    id: FileId,
    cookie: u64,
    limit: usize,
) -> ::share::Result<(Vec<FileEntry>, Option<u64>)> {
    let (mut found, mut last, root) = (Vec::new(), cookie, Credentials::root());
    let is_end = tree.read_directory(&root, id, cookie, &mut |listed| {
        if listed.name == b"." || listed.name == b".." {
            return true;
        }
        if found.len() == limit {
            return false;
        }
        last = listed.cookie;
        found.push((listed.name.to_vec(), listed.inode));
        true
    })?;
    let told = found.into_iter().map(|(name, inode)| {
        let object = tree.attributes_of(inode)?;
        entry(tree, &name, &object)
    });
    Ok((told.collect::<::share::Result<_>>()?, (!is_end).then_some(last)))
}

fn entry(tree: &impl Tree, name: &[u8], object: &Attributes) -> ::share::Result<FileEntry> {
    let is_symlink = object.kind == FileKind::Symlink;
    let target = is_symlink.then(|| tree.read_link(object.id)).transpose()?;
    let is_device = matches!(object.kind, FileKind::BlockDevice | FileKind::CharacterDevice);
    let (major, minor) = object.device;
    Ok(FileEntry {
        name: path_text(name),
        kind: kind_name(object.kind).to_owned(),
        mode: format!("{:04o}", object.mode),
        uid: object.uid,
        gid: object.gid,
        size: object.size,
        used: object.used_bytes,
        links: object.links,
        modified: Time(object.modified),
        changed: Time(object.changed),
        accessed: Time(object.accessed),
        inode: object.id.inode.0,
        target: target.map(|target| path_text(&target)),
        device: is_device.then(|| format!("{major}:{minor}")),
    })
}

pub(super) fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::BlockDevice => "block-device",
        FileKind::CharacterDevice => "character-device",
    }
}

/// Sends the bytes of a file of a share as it is, or was at a moment; one range of them, if the
/// header `Range` asks for one that there is.
#[utoipa::path(get, path = "/shares/{share}/file", tag = "shares",
    params(FileQuery),
    responses(
        (status = 200, description = "The bytes", content_type = "application/octet-stream"),
        (status = 206, description = "The range of bytes that was asked for",
            content_type = "application/octet-stream"),
        (status = 404, description = "There is no such share, or no such path at the moment"),
        (status = 410, description = "The moment lies outside the window"),
        (status = 422, description = "It is no file"),
    ))]
pub(super) async fn file(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<FileQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    let at = query.at.as_deref().map_or(Ok(Moment::Latest), moment)?;
    let asked = headers.get(RANGE).and_then(|range| range.to_str().ok()).map(str::to_owned);
    let read = move |context: &Context| {
        let bytes = bytes_of(&query.path)?;
        let place = path_of(&bytes)?;
        let opened = open(context, &name)?;
        let failed = |error| refusal(error, &name, &bytes);
        let (_, past) = opened.open_to_read(&at).map_err(failed)?;
        let object = place.find(&past.tree(Wait::May)).map_err(failed)?;
        if object.kind != FileKind::File {
            let kind = kind_name(object.kind);
            let text = format!("{} is a {kind}, and no file", path_text(&bytes));
            return Err(Refusal::new(ProblemKind::Invalid, text));
        }
        let range = asked.and_then(|asked| range_of(&asked, object.size));
        Ok((past, object, range))
    };
    let (past, object, range) = context.engine(read).await?;
    let (start, end) = range.unwrap_or((0, object.size));
    let content = Content { past, id: object.id, at: start, end };
    let headers = [(CONTENT_TYPE, "application/octet-stream"), (ACCEPT_RANGES, "bytes")];
    let body = AxumBody::new(Sending::Idle(content));
    Ok(match range {
        None => (headers, body).into_response(),
        Some(_) => {
            let range = format!("bytes {start}-{}/{}", end - 1, object.size);
            (StatusCode::PARTIAL_CONTENT, headers, [(CONTENT_RANGE, range)], body).into_response()
        }
    })
}

/// The first byte that a header asks for and the one behind the last; none if it asks for several
/// ranges, or for one that there is not: then all is sent.
fn range_of(asked: &str, size: u64) -> Option<(u64, u64)> {
    let (first, last) = asked.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (start, end) = match (first, last) {
        ("", last) => (size.saturating_sub(number(last)?), size),
        (first, "") => (number(first)?, size),
        (first, last) => (number(first)?, number(last)?.checked_add(1)?.min(size)),
    };
    (start < end).then_some((start, end))
}

/// The bytes of a file that are still to be sent.
struct Content {
    past: Arc<Past<ViewBlocks>>,
    id: FileId,
    at: u64,
    end: u64,
}

impl Pieces for Content {
    fn next(&mut self) -> ::share::Result<Option<Vec<u8>>> {
        let bytes = piece_of(&self.past, self.id, self.at, self.end)?;
        self.at += bytes.len() as u64;
        Ok(Some(bytes))
    }

    fn left(&self) -> Option<u64> {
        Some(self.end - self.at)
    }
}

/// The next bytes of a file.
pub(super) fn piece_of(
    past: &Past<ViewBlocks>,
    id: FileId,
    at: u64,
    end: u64,
) -> ::share::Result<Vec<u8>> {
    // Its first byte decides where the next begins: pieces end at multiples of their length.
    let length = (PIECE_BYTES - at % PIECE_BYTES).min(end - at);
    let mut bytes = vec![0; length as usize];
    let read = past.tree(Wait::May).read(&Credentials::root(), id, at, &mut bytes)?;
    bytes.truncate(read.count);
    Ok(bytes)
}

/// The share of a name, opened.
pub(super) fn open(context: &Context, name: &str) -> Answer<Arc<Opened>> {
    let (volume, _) = share(context, name)?;
    context.shares.open_volume(&volume).map_err(|error| refusal(error, name, b"/"))
}

/// The bytes that the text of a path stands for.
pub(super) fn bytes_of(text: &str) -> Answer<Vec<u8>> {
    path_bytes(text).map_err(|wrong| {
        let hint = "a byte that is no UTF-8 is `\\xHH`, and a backslash `\\\\`";
        Refusal::new(ProblemKind::Invalid, wrong).with_hint(hint)
    })
}

pub(super) fn path_of(bytes: &[u8]) -> Answer<FilePath<'_>> {
    FilePath::new(bytes).map_err(|wrong| {
        let text = format!("`{:.200}` is no path: {wrong}", path_text(bytes));
        let hint = "give names from the top, such as /docs/letter.txt";
        Refusal::new(ProblemKind::Invalid, text).with_hint(hint)
    })
}

/// The same of a path that may be made: the past has a name of its own.
pub(super) fn new_path_of(bytes: &[u8]) -> Answer<FilePath<'_>> {
    let path = path_of(bytes)?;
    if path.names().contains(&LIST_NAME) {
        let text = format!("`{:.200}` is the past, which nobody changes", path_text(bytes));
        return Err(Refusal::new(ProblemKind::Invalid, text).with_hint("give another name"));
    }
    Ok(path)
}

/// Why something could not be done with a path of a share.
pub(super) fn refusal(error: Error, share: &str, path: &[u8]) -> Refusal {
    let Error { kind, source } = error;
    let source = match source.map(|source| source.downcast::<volume::Error>()) {
        Some(Ok(own)) => return Refusal::from(*own),
        Some(Err(source)) => Some(source),
        None => None,
    };
    let error = Error { kind, source };
    let path = path_text(path);
    let of = match kind {
        ErrorKind::NotFound => {
            let text = format!("there is no {path} in {share} at that moment");
            return Refusal::new(ProblemKind::NotFound, text);
        }
        ErrorKind::Exists => ProblemKind::Exists,
        ErrorKind::Unusable | ErrorKind::NotSync | ErrorKind::Stale => ProblemKind::Busy,
        ErrorKind::Full | ErrorKind::NoSpace => ProblemKind::Full,
        ErrorKind::ReadOnly => ProblemKind::RefusingWrites,
        ErrorKind::Corrupt => ProblemKind::Corrupt,
        ErrorKind::Storage => ProblemKind::Internal,
        _ => ProblemKind::Invalid,
    };
    let words = crate::nfs::answer_words(&error);
    if of.status() == 500 {
        tracing::error!(error = words, share, path, "a request failed");
    }
    Refusal::new(of, format!("{path}: {words}"))
}

/// Percent-encoded for a URL.
pub(super) fn in_url(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            _ => write!(encoded, "%{byte:02X}").expect("a String takes everything"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::range_of;

    #[test]
    fn a_range_is_sent_if_there_is_one_and_it_is_there() {
        for (asked, range) in [
            ("bytes=0-0", Some((0, 1))),
            ("bytes=2-5", Some((2, 6))),
            ("bytes=2-", Some((2, 10))),
            ("bytes=8-99", Some((8, 10))),
            ("bytes=-3", Some((7, 10))),
            ("bytes=-99", Some((0, 10))),
            ("bytes=10-", None),
            ("bytes=5-2", None),
            ("bytes=-0", None),
            ("bytes=-", None),
            ("bytes=+1-2", None),
            ("bytes=0-1,3-4", None),
            ("lines=0-1", None),
            ("bytes=0-18446744073709551615", None),
        ] {
            assert_eq!(range_of(asked, 10), range, "{asked}");
        }
        assert_eq!(range_of("bytes=0-0", 0), None);
    }
}
