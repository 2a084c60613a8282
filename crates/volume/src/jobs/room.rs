//! The state by which it is told whether room can be made.

/// Tells whether room can be made that could not be made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Free zones.
    pub free_zones: u32,
    /// Segments that were made for writers since the pool was opened.
    pub made: u64,
    /// Map entries of all segments.
    pub entries: u64,
    /// The last audit record: whatever was deleted or expired is in one.
    pub audit: u64,
    /// Moments that views hold.
    pub views: usize,
}
