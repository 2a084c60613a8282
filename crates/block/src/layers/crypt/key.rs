//! Keys: where they come from, by name; what wraps the key of the data.

use std::fmt;
use std::str::FromStr;

use aes::Aes256;
use aes::cipher::consts::U16;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use zeroize::{Zeroize, Zeroizing};

use super::error::CryptError;

/// Bytes that a key has.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 32..=4096;
/// What the wrapping key is derived for.
const INFO: &[u8] = b"hindsight crypt wrapping key";
/// What a wrapped key begins with once it is unwrapped (RFC 3394, 2.2.3.1).
const MARK: u64 = 0xa6a6_a6a6_a6a6_a6a6;

/// Bytes of the key of the data.
pub(super) const DATA_KEY_BYTES: usize = 64;
/// A key of the data, wiped when it is dropped.
pub(super) type DataKey = Zeroizing<[u8; DATA_KEY_BYTES]>;
/// The same, wrapped.
pub(super) const WRAPPED_BYTES: usize = DATA_KEY_BYTES + 8;

/// What a key source gave; wiped when it is dropped.
pub struct CryptKey {
    bytes: Zeroizing<Vec<u8>>,
}

impl CryptKey {
    /// A key of 32 to 4,096 bytes that nobody can guess: all of a file, of a variable, of a
    /// credential. It is no passphrase: deriving from it is fast and adds no strength.
    ///
    /// # Errors
    /// If it has fewer bytes, or more.
    pub fn new(bytes: Vec<u8>) -> Result<CryptKey, CryptError> {
        let bytes = Zeroizing::new(bytes);
        if !KEY_BYTES.contains(&bytes.len()) {
            return Err(CryptError::KeyLength { bytes: bytes.len() });
        }
        Ok(CryptKey { bytes })
    }

    /// The key that wraps that of the data of a device with this salt.
    fn wrapping_key(&self, salt: &[u8; 32]) -> Aes256 {
        let extract = ring::hkdf::Salt::new(ring::hkdf::HKDF_SHA256, salt);
        let extracted = extract.extract(&self.bytes);
        let mut key = Zeroizing::new([0; 32]);
        // An output as long as the hash is always given.
        extracted
            .expand(&[INFO], ring::hkdf::HKDF_SHA256)
            .and_then(|derived| derived.fill(&mut key[..]))
            .expect("HKDF-SHA256 gives 32 bytes");
        Aes256::new(&(*key).into())
    }

    /// Wraps the key of the data.
    pub(super) fn wrap(&self, salt: &[u8; 32], key: &[u8; DATA_KEY_BYTES]) -> [u8; WRAPPED_BYTES] {
        let mut wrapped = [0; WRAPPED_BYTES];
        wrapped[8..].copy_from_slice(key);
        wrap(&self.wrapping_key(salt), &mut wrapped);
        wrapped
    }

    /// The key of the data, if this is the key that wrapped it.
    pub(super) fn unwrap(&self, salt: &[u8; 32], wrapped: &[u8; WRAPPED_BYTES]) -> Option<DataKey> {
        let mut bytes = Zeroizing::new(*wrapped);
        if !unwrap(&self.wrapping_key(salt), &mut bytes[..]) {
            return None;
        }
        let mut key = Zeroizing::new([0; DATA_KEY_BYTES]);
        key.copy_from_slice(&bytes[8..]);
        Some(key)
    }
}

impl fmt::Debug for CryptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CryptKey of {} bytes", self.bytes.len())
    }
}

/// AES key wrap (RFC 3394, 2.2.1), in place: the bytes are those to wrap, after 8 of any kind.
fn wrap(cipher: &Aes256, bytes: &mut [u8]) {
    let count = bytes.len() / 8 - 1;
    bytes[..8].copy_from_slice(&MARK.to_be_bytes());
    for step in 0..6 * count {
        let at = 8 * (1 + step % count);
        let mut cell = joined(bytes, at);
        cipher.encrypt_block(&mut cell);
        count_in(&mut cell, step);
        bytes[..8].copy_from_slice(&cell[..8]);
        bytes[at..at + 8].copy_from_slice(&cell[8..]);
        cell.zeroize();
    }
}

/// The inverse (2.2.2); whether the mark is what it was.
fn unwrap(cipher: &Aes256, bytes: &mut [u8]) -> bool {
    let count = bytes.len() / 8 - 1;
    for step in (0..6 * count).rev() {
        let at = 8 * (1 + step % count);
        let mut cell = joined(bytes, at);
        count_in(&mut cell, step);
        cipher.decrypt_block(&mut cell);
        bytes[..8].copy_from_slice(&cell[..8]);
        bytes[at..at + 8].copy_from_slice(&cell[8..]);
        cell.zeroize();
    }
    bytes[..8] == MARK.to_be_bytes()
}

/// The first 8 bytes and the 8 at `at`.
fn joined(bytes: &[u8], at: usize) -> Array<u8, U16> {
    let mut cell = Array::default();
    cell[..8].copy_from_slice(&bytes[..8]);
    cell[8..].copy_from_slice(&bytes[at..at + 8]);
    cell
}

/// Adds the number of a step, from 1, to the first 8 bytes.
fn count_in(cell: &mut Array<u8, U16>, step: usize) {
    let number = (step as u64 + 1).to_be_bytes();
    cell[..8].iter_mut().zip(number).for_each(|(byte, n)| *byte ^= n);
}

/// Where the bytes of a key are: `file:/path`, `env:NAME` or `credential:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// All of a file, by its absolute path.
    File(String),
    /// An environment variable of the server.
    Env(String),
    /// A credential that systemd gives to the service: a file in `$CREDENTIALS_DIRECTORY`.
    Credential(String),
}

impl FromStr for KeySource {
    type Err = CryptError;

    fn from_str(text: &str) -> Result<KeySource, CryptError> {
        let refuse = |expected| {
            let text = text.to_owned();
            Err(CryptError::KeySource { text, expected })
        };
        let Some((kind, name)) = text.split_once(':') else {
            return refuse("file:/path, env:NAME or credential:NAME");
        };
        if name.is_empty() || name.contains(|c: char| c.is_control()) {
            return refuse("a name without control characters");
        }
        let name = name.to_owned();
        match kind {
            "file" if !name.starts_with('/') => refuse("an absolute path"),
            "file" => Ok(KeySource::File(name)),
            "env" if name.contains('=') => refuse("the name of a variable"),
            "env" => Ok(KeySource::Env(name)),
            "credential" if name.contains('/') || [".", ".."].contains(&&*name) => {
                refuse("the name of a credential, which is no path")
            }
            "credential" => Ok(KeySource::Credential(name)),
            _ => refuse("file:/path, env:NAME or credential:NAME"),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::File(path) => write!(f, "file:{path}"),
            KeySource::Env(name) => write!(f, "env:{name}"),
            KeySource::Credential(name) => write!(f, "credential:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use aes::Aes256;
    use aes::cipher::KeyInit;

    use super::{CryptKey, KeySource, unwrap, wrap};

    /// RFC 3394, 4.6.
    #[test]
    fn the_published_vector_of_key_wrap_is_met() {
        let kek: [u8; 32] = std::array::from_fn(|i| i as u8);
        let plain: [u8; 32] =
            std::array::from_fn(|i| if i < 16 { i as u8 * 0x11 } else { i as u8 - 16 });
        let expected = [
            0x28, 0xc9, 0xf4, 0x04, 0xc4, 0xb8, 0x10, 0xf4, 0xcb, 0xcc, 0xb3, 0x5c, 0xfb, 0x87,
            0xf8, 0x26, 0x3f, 0x57, 0x86, 0xe2, 0xd8, 0x0e, 0xd3, 0x26, 0xcb, 0xc7, 0xf0, 0xe7,
            0x1a, 0x99, 0xf4, 0x3b, 0xfb, 0x98, 0x8b, 0x9b, 0x7a, 0x02, 0xdd, 0x21,
        ];
        let cipher = Aes256::new(&kek.into());
        let mut bytes = [0; 40];
        bytes[8..].copy_from_slice(&plain);
        wrap(&cipher, &mut bytes);
        assert_eq!(bytes, expected);
        assert!(unwrap(&cipher, &mut bytes));
        assert_eq!(bytes[8..], plain);
        for bit in 0..320 {
            let mut damaged = expected;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!unwrap(&cipher, &mut damaged), "bit {bit}");
        }
    }

    #[test]
    fn a_key_opens_what_it_wrapped_with_the_same_salt_and_no_other_does() {
        let key = |byte: u8, length| CryptKey::new(vec![byte; length]).expect("long enough");
        let data = std::array::from_fn(|i| i as u8);
        let wrapped = key(1, 40).wrap(&[9; 32], &data);
        assert_eq!(*key(1, 40).unwrap(&[9; 32], &wrapped).expect("the same key"), data);
        assert!(key(1, 40).unwrap(&[8; 32], &wrapped).is_none());
        assert!(key(2, 40).unwrap(&[9; 32], &wrapped).is_none());
        assert!(key(1, 41).unwrap(&[9; 32], &wrapped).is_none());
        assert!(!format!("{:?}", key(65, 40)).contains('A'));
    }

    #[test]
    fn keys_that_are_too_short_or_too_long_are_refused() {
        for (length, ok) in [(0, false), (31, false), (32, true), (4096, true), (4097, false)] {
            assert_eq!(CryptKey::new(vec![7; length]).is_ok(), ok, "{length} bytes");
        }
    }

    #[test]
    fn key_sources_are_what_they_print() {
        for text in ["file:/etc/hindsight/a:key", "env:POOL_KEY", "credential:pool.key"] {
            let source: KeySource = text.parse().expect("a source");
            assert_eq!(source.to_string(), text);
        }
        let wrong = ["", "file", "file:", "file:key", "env:", "env:A=B", "env:A\nB", "stdin:-"];
        for text in wrong.into_iter().chain(["credential:a/b", "credential:..", "FILE:/a"]) {
            let error = text.parse::<KeySource>().expect_err(text);
            assert!(error.to_string().contains("expected"), "{error}");
        }
    }
}
