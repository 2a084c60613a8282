//! A write buffer as its media's owner has it. Once that lets go of it nobody else has it any more:
//! the media are closed, and can be opened again.

use std::io::{self, IoSlice};
use std::sync::Arc;

use env::Media;

use super::{Found, Inner};

/// Media with a write buffer over them.
pub struct WriteBuffer(pub(super) Arc<Inner>);

impl WriteBuffer {
    /// What the last use of the media left.
    pub fn found(&self) -> &Found {
        &self.0.found
    }
}

impl Drop for WriteBuffer {
    fn drop(&mut self) {
        self.0.shared.remove(&self.0);
        self.0.close();
    }
}

impl Media for WriteBuffer {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
    fn lengthen(&self, len_bytes: Option<u64>) -> io::Result<u64> {
        self.0.lengthen(len_bytes)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }
    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        self.0.try_read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.write_at(offset, slices)
    }
    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.write_durable(offset, slices)
    }
    fn why_no_buffer(&self) -> Option<String> {
        self.0.why_no_buffer()
    }
    fn identity(&self) -> u128 {
        self.0.identity()
    }
    fn stamp(&self) -> u128 {
        self.0.stamp()
    }
    fn is_hole(&self, offset: u64, length_bytes: u64) -> bool {
        self.0.is_hole(offset, length_bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        self.0.allocate(offset, length_bytes)
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        self.0.discard(offset, length_bytes)
    }
    fn name(&self) -> &str {
        self.0.name()
    }
}
