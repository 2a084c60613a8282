//! The padding of opaque data.

/// The zeros after so many bytes of opaque data, up to a multiple of four (section 3, item 2).
#[must_use]
pub const fn padding(data_bytes: usize) -> &'static [u8] {
    match data_bytes % 4 {
        0 => &[],
        1 => &[0; 3],
        2 => &[0; 2],
        _ => &[0; 1],
    }
}
