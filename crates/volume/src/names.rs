//! Names of volumes and marks, and labels of versions.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use crate::{Error, Result};

/// Longest name in characters.
pub const NAME_CHARS_MAX: usize = 128;

/// Fails unless `name` has 1 to 128 characters of `A-Za-z0-9._-` and begins with a letter or digit.
///
/// # Errors
/// `Invalid`.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    let fits = (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && name.as_bytes()[0].is_ascii_alphanumeric();
    if fits {
        return Ok(());
    }
    Err(Error::invalid(format!("{name:?} is not a {what} name")).with_hint(
        "1 to 128 letters, digits, dots, dashes and underscores, beginning with a letter or digit",
    ))
}

/// The name of a volume, which can change: those it had stay in memory for their readers.
#[derive(Debug)]
pub struct VolumeName {
    text: String,
    next: OnceLock<Box<VolumeName>>,
}

impl VolumeName {
    /// A name.
    #[must_use]
    pub fn new(text: String) -> VolumeName {
        VolumeName { text, next: OnceLock::new() }
    }

    fn last(&self) -> &VolumeName {
        let mut last = self;
        while let Some(next) = last.next.get() {
            last = next;
        }
        last
    }

    /// Another name from now on. One thread at a time may change it: that with the books.
    pub fn change(&self, text: &str) {
        if **self != *text {
            let set = self.last().next.set(Box::new(VolumeName::new(text.to_owned())));
            assert!(set.is_ok(), "two threads change the name of a volume");
        }
    }
}

impl Deref for VolumeName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.last().text
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// Characters of a version's label.
const LABEL_CHARS_MAX: usize = 1024;

/// Fails unless `label` is one short line.
///
/// # Errors
/// `Invalid`.
pub fn check_label(label: &str) -> Result<()> {
    if label.chars().count() > LABEL_CHARS_MAX {
        return Err(Error::invalid(format!("a label has at most {LABEL_CHARS_MAX} characters")));
    }
    if label.chars().any(char::is_control) {
        return Err(Error::invalid("a label is one line of text"));
    }
    Ok(())
}
