//! Names of volumes and marks.

use crate::{Error, ErrorKind, Result};

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
    Err(Error::new(ErrorKind::Invalid, format!("{name:?} is not a {what} name")).with_hint(
        "1 to 128 letters, digits, dots, dashes and underscores, beginning with a letter or digit",
    ))
}
