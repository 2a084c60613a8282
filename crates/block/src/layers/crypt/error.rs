//! Why a device cannot be encrypted, or opened.

use crate::error::DeviceError;
/// Why a device cannot be encrypted, or opened.
#[derive(Debug, thiserror::Error)]
pub enum CryptError {
    /// The key is not the one that the device was made with.
    #[error("wrong key: {device} is encrypted with another one")]
    WrongKey {
        /// The device below.
        device: String,
    },
    /// There is no header, it is damaged in both copies, or it is of another version.
    #[error("{device} has no header of an encrypted device: {text}")]
    Header {
        /// The device below.
        device: String,
        /// What was found.
        text: String,
    },
    /// The device below has no room for a header and what it says that there is.
    #[error("{device} is too short: {bytes} bytes, and {expected} are needed")]
    TooShort {
        /// The device below.
        device: String,
        /// Its length.
        bytes: u64,
        /// What is needed.
        expected: u64,
    },
    /// A key that is no key.
    #[error("a key has 32 to 4096 bytes, and this one has {bytes}")]
    KeyLength {
        /// How many it has.
        bytes: usize,
    },
    /// A text that names no source of keys.
    #[error("{text:?} is no source of keys: expected {expected}")]
    KeySource {
        /// The text.
        text: String,
        /// What is a source.
        expected: &'static str,
    },
    /// The random numbers that were given are none.
    #[error("the source of random numbers repeats itself")]
    Random,
    /// The device below failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
