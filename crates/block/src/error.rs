//! The one error of this crate.

use std::io;

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
    /// Reserving space.
    Allocate,
    /// Giving space back.
    Discard,
}

/// What the caller may do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceErrorKind {
    /// The device failed the request.
    Io,
    /// There is no space left.
    Full,
    /// The request lies beyond the device's end: our mistake or a damaged pointer.
    OutOfRange,
    /// The device answered, and what a layer keeps on it for itself is damaged in every copy.
    Corrupt,
}

/// A failed device request, with where and what.
#[derive(Debug, thiserror::Error)]
#[error("{operation:?} of {length_bytes} bytes at {offset} on {device} failed")]
pub struct DeviceError {
    /// What the caller may do.
    pub kind: DeviceErrorKind,
    /// What was being done.
    pub operation: Operation,
    /// Byte offset on the device.
    pub offset: u64,
    /// Length in bytes.
    pub length_bytes: u64,
    /// The device's name.
    pub device: String,
    /// The cause, untouched.
    #[source]
    pub source: io::Error,
}

impl DeviceError {
    /// The error of a request that a layer refuses or cannot do.
    #[must_use]
    pub fn new(
        kind: DeviceErrorKind,
        operation: Operation,
        (offset, length_bytes): (u64, u64),
        device: String,
        text: &str,
    ) -> DeviceError {
        let cause = match kind {
            DeviceErrorKind::OutOfRange => io::ErrorKind::InvalidInput,
            _ => io::ErrorKind::Other,
        };
        let source = io::Error::new(cause, text.to_owned());
        DeviceError { kind, operation, offset, length_bytes, device, source }
    }

    /// The same error once more; of its cause the text.
    #[must_use]
    pub fn again(&self) -> DeviceError {
        DeviceError {
            kind: self.kind,
            operation: self.operation,
            offset: self.offset,
            length_bytes: self.length_bytes,
            device: self.device.clone(),
            source: io::Error::new(self.source.kind(), self.source.to_string()),
        }
    }
}
