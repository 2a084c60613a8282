//! Values on a command line, read for clap, which shows one line only.

use std::str::FromStr;

use units::{Granularity, Malformed, Size, Span};

/// Reads a size.
///
/// # Errors
/// What is wrong with it, and the hint.
pub fn size(text: &str) -> Result<Size, String> {
    read(text)
}

/// Reads a span.
///
/// # Errors
/// What is wrong with it, and the hint.
pub fn span(text: &str) -> Result<Span, String> {
    read(text)
}

/// Reads a granularity.
///
/// # Errors
/// What is wrong with it, and the hint.
pub fn granularity(text: &str) -> Result<Granularity, String> {
    read(text)
}

fn read<T: FromStr<Err = Malformed>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|e: Malformed| match e.hint {
        Some(hint) => format!("{}\nhint: {hint}", e.message),
        None => e.message,
    })
}
