//! Values on a command line, read for clap, which shows one line only.

use units::{Granularity, Size, Span};

/// Reads a size.
///
/// # Errors
/// What is wrong with it, and the hint.
pub fn size(text: &str) -> Result<Size, String> {
    text.parse().map_err(|e: units::SizeError| hinted(e.message, e.hint))
}

/// Reads a span.
///
/// # Errors
/// What is wrong with it, and the hint.
pub fn span(text: &str) -> Result<Span, String> {
    text.parse().map_err(|e: units::SpanError| hinted(e.message, e.hint))
}

/// Reads a granularity.
///
/// # Errors
/// What is wrong with it, and the hint.
pub fn granularity(text: &str) -> Result<Granularity, String> {
    text.parse().map_err(|e: units::GranularityError| hinted(e.message, e.hint))
}

fn hinted(message: String, hint: Option<String>) -> String {
    match hint {
        Some(hint) => format!("{message}\nhint: {hint}"),
        None => message,
    }
}
