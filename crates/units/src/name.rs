//! The rule for names of volumes and marks.
//!
//! 1 to 128 characters of `A-Za-z0-9._-`, the first a letter or digit: safe in a path, a URL, an
//! NBD export name and an iSCSI target name, and free of `@` and `:`, which have a meaning in
//! moments.

use crate::Malformed;

/// Characters of a name at most.
pub const NAME_CHARS_MAX: usize = 128;

/// The rule for names of volumes.
#[derive(Clone, Copy, Debug)]
pub enum VolumeName {}

/// The rule for names of marks.
#[derive(Clone, Copy, Debug)]
pub enum MarkName {}

impl VolumeName {
    /// Checks that `text` may name a volume.
    ///
    /// # Errors
    /// Says which part of the rule is broken.
    pub fn check(text: &str) -> Result<(), Malformed> {
        check("volume", text)
    }
}

impl MarkName {
    /// Checks that `text` may name a mark.
    ///
    /// # Errors
    /// Says which part of the rule is broken.
    pub fn check(text: &str) -> Result<(), Malformed> {
        check("mark", text)
    }
}

fn check(what: &str, text: &str) -> Result<(), Malformed> {
    let wrong = if text.is_empty() {
        Some(format!("the name of a {what} is missing"))
    } else if text.len() > NAME_CHARS_MAX {
        let shown: String = text.chars().take(32).collect();
        Some(format!("the name `{shown}...` is longer than {NAME_CHARS_MAX} characters"))
    } else if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        Some(format!("the name `{}` does not begin with a letter or digit", text.escape_debug()))
    } else {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        text.chars().find(|&c| !allowed(c)).map(|c| {
            format!("`{}` may not stand in the name `{}`", c.escape_debug(), text.escape_debug())
        })
    };
    match wrong {
        None => Ok(()),
        Some(message) => {
            let hint = "names have 1 to 128 of A-Z a-z 0-9 . _ -, a letter or digit first";
            Err(Malformed::new(message, hint))
        }
    }
}
