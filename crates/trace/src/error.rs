//! Errors, and how bytes are told in them.

pub use model::{Error, ErrorKind, Result};

/// Bytes of an input as people can read them: what is not printable is escaped.
pub(crate) fn shown(bytes: &[u8], bytes_max: usize) -> String {
    let cut = bytes.len() > bytes_max;
    let text = bytes[..bytes.len().min(bytes_max)].escape_ascii().to_string();
    if cut { format!("{text}...") } else { text }
}
