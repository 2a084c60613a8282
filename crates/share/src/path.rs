//! Paths in a share: names from the top, with `/` between them. Symbolic links are not followed.

use units::{FileName, FileNameError};

use crate::attributes::Attributes;
use crate::error::Result;
use crate::permission::Credentials;
use crate::tree::Tree;

/// Why bytes are no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// There are none; the top is `/`.
    #[error("a path is empty: the top is `/`")]
    Empty,
    /// A name in it is none.
    #[error("in a path {0}")]
    Name(#[from] FileNameError),
}

/// Directories in one another, at most.
pub const DEPTH_MAX: usize = 4096;

/// The path of names from the top.
pub(crate) fn joined(names: &[&[u8]]) -> Vec<u8> {
    let mut path = Vec::new();
    for name in names {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() { b"/".to_vec() } else { path }
}

/// A path: its names from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePath<'a>(Vec<&'a [u8]>);

impl<'a> FilePath<'a> {
    /// Reads a path. It may begin and end with a `/`.
    ///
    /// # Errors
    /// A name that is none: empty, `.`, `..`, too long, or with a NUL.
    pub fn new(bytes: &'a [u8]) -> std::result::Result<FilePath<'a>, PathError> {
        if bytes.is_empty() {
            return Err(PathError::Empty);
        }
        let inner = bytes.strip_prefix(b"/").unwrap_or(bytes);
        let inner = inner.strip_suffix(b"/").unwrap_or(inner);
        if inner.is_empty() && bytes.len() <= 1 {
            return Ok(FilePath(Vec::new()));
        }
        let names = inner.split(|byte| *byte == b'/');
        let names = names.map(|name| Ok(FileName::new(name)?.as_bytes()));
        Ok(FilePath(names.collect::<std::result::Result<_, FileNameError>>()?))
    }

    /// The names.
    pub fn names(&self) -> &[&'a [u8]] {
        &self.0
    }

    /// The directory that it is in; none of the top.
    pub fn parent(&self) -> Option<FilePath<'a>> {
        let (_, above) = self.0.split_last()?;
        Some(FilePath(above.to_vec()))
    }

    /// The object that a tree has there.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`; those of reading.
    pub fn find(&self, tree: &impl Tree) -> Result<Attributes> {
        let root = Credentials::root();
        let mut at = tree.attributes(tree.top()?)?;
        for name in &self.0 {
            at = tree.look_up(&root, at.id, name)?;
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use units::FileNameError;

    use super::{FilePath, PathError};

    #[test]
    fn paths_are_names_from_the_top() {
        let names = |path: &'static [u8]| FilePath::new(path).expect("a path").names().to_vec();
        assert_eq!(names(b"/"), [b""; 0]);
        for path in [&b"/a/b"[..], b"a/b", b"a/b/", b"/a/b/"] {
            assert_eq!(names(path), [b"a", b"b"]);
        }
        assert_eq!(names(b"...\xff"), [b"...\xff"]);
        for (path, error) in [
            (&b""[..], PathError::Empty),
            (b"//", PathError::Name(FileNameError::Empty)),
            (b"/a//b", PathError::Name(FileNameError::Empty)),
            (b"a//", PathError::Name(FileNameError::Empty)),
            (b"//a", PathError::Name(FileNameError::Empty)),
            (b"./a", PathError::Name(FileNameError::Dots)),
            (b"a/..", PathError::Name(FileNameError::Dots)),
            (b"a\0", PathError::Name(FileNameError::Separator)),
        ] {
            assert_eq!(FilePath::new(path), Err(error));
        }
    }
}
