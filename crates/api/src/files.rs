//! Files of shares at any moment: listed, read, put back, compared.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{Time, Would};

/// The text of a name or path, which is bytes: those that are no UTF-8, and control characters, as
/// `\xHH`, and a backslash as `\\`.
#[must_use]
pub fn path_text(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    let escape = |text: &mut String, bytes: &[u8]| {
        for byte in bytes {
            write!(text, "\\x{byte:02x}").expect("a String takes everything");
        }
    };
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => text.push_str("\\\\"),
                char if char.is_control() => {
                    escape(&mut text, char.encode_utf8(&mut [0; 4]).as_bytes());
                }
                char => text.push(char),
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

/// The bytes of a text of [`path_text`].
///
/// # Errors
/// Says that a backslash begins something else.
pub fn path_bytes(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || {
        format!("in the path `{text:.200}` a backslash is neither `\\\\` nor the `\\xHH` of a byte")
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'\\', [b'\\', after @ ..]) => {
                bytes.push(b'\\');
                rest = after;
            }
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                let (high, low) = (digit(high).ok_or_else(wrong)?, digit(low).ok_or_else(wrong)?);
                bytes.push((high * 16 + low) as u8);
                rest = after;
            }
            (b'\\', _) => return Err(wrong()),
            (byte, _) => bytes.push(*byte),
        }
    }
    Ok(bytes)
}

/// A file, a directory or anything else with a name in a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileEntry {
    /// Its name; of the directory at the top `/`. A byte that is no UTF-8, or of a control
    /// character, is `\xHH`, and a backslash `\\`.
    pub name: String,
    /// `file`, `directory`, `symlink`, `fifo`, `socket`, `block-device` or `character-device`.
    pub kind: String,
    /// Permissions, and the bits above them, in octal digits: `0644`.
    pub mode: String,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Bytes of content.
    pub size: u64,
    /// Bytes that are stored for it.
    pub used: u64,
    /// Names that it has; of a directory 2 and its directories.
    pub links: u32,
    /// Last change of the content.
    pub modified: Time,
    /// Last change of anything.
    pub changed: Time,
    /// Last access that a client told of.
    pub accessed: Time,
    /// Its number. Over NFS a moment of the past has others.
    pub inode: u64,
    /// The content of a symbolic link; null of others.
    pub target: Option<String>,
    /// The numbers of a device, `MAJOR:MINOR`; null of others.
    pub device: Option<String>,
}

/// Which directory is listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TreeQuery {
    /// A path from the top; `/`, the top, by default. A byte that is no UTF-8 is `\xHH`, and a
    /// backslash `\\`.
    #[param(example = "/docs", pattern = "^[/][a-z0-9]{1,32}$")]
    pub path: Option<String>,
    /// The moment; the present by default.
    pub at: Option<String>,
    /// Entries in a page: 1 to 10000, 10000 by default.
    pub limit: Option<usize>,
    /// The `next` in the Link header of the page before.
    pub next: Option<u64>,
}

/// Which file is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FileQuery {
    /// A path from the top. A byte that is no UTF-8 is `\xHH`, and a backslash `\\`.
    #[param(example = "/letter", pattern = "^[/][a-z0-9]{1,32}$")]
    pub path: String,
    /// The moment; the present by default.
    pub at: Option<String>,
}

/// Which tree is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ArchiveQuery {
    /// A path from the top; `/`, the top, by default. A byte that is no UTF-8 is `\xHH`, and a
    /// backslash `\\`.
    #[param(example = "/docs", pattern = "^[/][a-z0-9]{1,32}$")]
    pub path: Option<String>,
    /// The moment; the present by default.
    pub at: Option<String>,
}

/// Where an archive is put.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ImportFilesQuery {
    /// The path, from the top, of the directory that all of it is put into, which is made if it is
    /// not there; `/`, the top, by default. A byte that is no UTF-8 is `\xHH`, and a backslash
    /// `\\`.
    #[param(example = "/docs", pattern = "^[/][a-z0-9]{1,32}$")]
    pub path: Option<String>,
}

/// The outcome of an import into a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportedFiles {
    /// The share.
    pub share: String,
    /// The path of the directory that all was put into.
    pub path: String,
    /// The number of the last operation before it, by which its own operations are known: their
    /// cause is this import.
    pub number: u64,
    /// The seq of the share before it.
    pub before: u64,
    /// Names that were not there.
    pub created: u64,
    /// Names that were another's, or whose object had other bytes or attributes.
    pub overwritten: u64,
    /// Names that were there as they are.
    pub kept: u64,
    /// Bytes of files that were written.
    pub bytes: u64,
    /// Members of the archive that are not in the share.
    pub left_out: u64,
    /// The first 1,000 of them, with why.
    pub told: Vec<String>,
    /// Members with extended attributes, or lists or labels of access, which shares have none of.
    pub extended: u64,
    /// Members with a time before 1970 or after 2554: in the share it is the first or the last that
    /// there can be.
    pub times: u64,
}

/// A request to put files back as they were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreFiles {
    /// The moment.
    pub from: String,
    /// The path, from the top, of all that is put back. A byte that is no UTF-8 is `\xHH`, and a
    /// backslash `\\`.
    #[schema(example = "/docs", pattern = "^[/][a-z0-9]{1,32}$")]
    pub path: String,
    /// Another path at which it is put. There may be nothing, or, for a directory, a directory,
    /// which it is merged into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "/before", pattern = "^[/][a-z0-9]{1,32}$")]
    pub to: Option<String>,
    /// Whether what is there now, and was not there then, goes; false by default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delete: bool,
    /// Whether it is only told; false by default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// The outcome of a restore, or of one that is only told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RestoredFiles {
    /// The share.
    pub share: String,
    /// The seq of the moment.
    pub from: u64,
    /// The path of all that was put back.
    pub path: String,
    /// Where.
    pub to: String,
    /// Whether it was only told.
    pub dry_run: bool,
    /// The number of the last operation before it, by which its own operations are known: their
    /// cause is this restore.
    pub number: u64,
    /// The seq of the share before it: the moment from which a restore undoes it.
    pub before: u64,
    /// Names that were not there.
    pub created: u64,
    /// Names that were another's, or whose object had other bytes or attributes.
    pub overwritten: u64,
    /// Names that went, as they were not there then.
    pub removed: u64,
    /// Names that are as they were.
    pub kept: u64,
    /// Directories with entries where something else was: they stay without `delete`.
    pub in_the_way: u64,
    /// Bytes of files that were written.
    pub bytes: u64,
    /// The first 1,000 of these directories.
    pub stay: Vec<String>,
    /// The first 1,000 things that would be done: to `create`, `overwrite` or `remove` a path, or
    /// that it would `stay`. Empty otherwise.
    pub would: Vec<Would>,
    /// Whether there are more.
    pub more: bool,
}

/// Two moments whose files are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FileDiffQuery {
    /// One moment.
    pub from: String,
    /// The other; the present by default.
    pub to: Option<String>,
    /// The share that the other is of, if it is another one: a clone, the origin, or a clone of
    /// that.
    pub to_share: Option<String>,
    /// Objects that are compared for a page: 1 to 65536, 65536 by default. A page may have fewer
    /// paths, or none.
    pub limit: Option<usize>,
    /// The `next` in the Link header of the page before.
    pub next: Option<u64>,
}

/// A path that differs between two moments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileDifference {
    /// The path at the later of the two; of what was removed, that at the first.
    pub path: String,
    /// `created`, `removed`, `renamed` or `changed`. An object that got the path of another is
    /// `created`, and that other `removed`, or `renamed`.
    pub change: String,
    /// The path at the first of the two, of what was renamed; null of others.
    pub path_before: Option<String>,
    /// `file`, `directory`, `symlink`, `fifo`, `socket`, `block-device` or `character-device`.
    pub kind: String,
    /// Whether an object that is at both moments was written to between them.
    pub content: bool,
    /// Whether an object that is at both has another mode or owner, or, of the same bytes, another
    /// time.
    pub attributes: bool,
}

#[cfg(test)]
mod tests {
    use super::{path_bytes, path_text};

    #[test]
    fn the_text_of_a_path_is_its_bytes() {
        for (bytes, text) in [
            (&b"/a b/\xc3\xa4%"[..], "/a b/\u{e4}%"),
            (b"a\\b", "a\\\\b"),
            (b"\xff\xc3/\n", "\\xff\\xc3/\\x0a"),
            ("\u{85}".as_bytes(), "\\xc2\\x85"),
            (b"", ""),
        ] {
            assert_eq!(path_text(bytes), text);
            assert_eq!(path_bytes(text).as_deref(), Ok(bytes));
        }
        assert_eq!(path_bytes("\\xFf").as_deref(), Ok(&b"\xff"[..]));
        for wrong in ["\\", "\\x", "\\x1", "\\xg0", "a\\b", "\\x+1"] {
            assert!(path_bytes(wrong).is_err(), "{wrong}");
        }
        for byte in 0..=255 {
            assert_eq!(path_bytes(&path_text(&[byte, byte])).as_deref(), Ok(&[byte, byte][..]));
        }
    }
}
