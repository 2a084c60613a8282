//! Bytes to values.

use super::padding::padding;

/// Longest text that is decoded so that it can be refused by name, in bytes; a longer one is
/// malformed.
pub const TEXT_BYTES_MAX: usize = 8192;

/// Bytes that are not what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// They end too early.
    #[error("the bytes end too early")]
    CutShort,
    /// A length exceeds its limit.
    #[error("a length of {length} exceeds {length_max}")]
    TooLong {
        /// The length, in bytes or elements.
        length: u32,
        /// Its limit.
        length_max: usize,
    },
    /// A value that is not defined.
    #[error("{value} is no {what}")]
    Value {
        /// The type.
        what: &'static str,
        /// The value.
        value: u32,
    },
    /// Values that contradict each other.
    #[error("{0}")]
    Contradiction(&'static str),
}

/// A string that may be longer than its limit, so that it can be refused with the status for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a, const BYTES_MAX: usize>(&'a [u8]);

impl<'a, const BYTES_MAX: usize> Text<'a, BYTES_MAX> {
    /// A text of these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Text<'a, BYTES_MAX> {
        Text(bytes)
    }

    /// Its bytes; `None` when there are more than `BYTES_MAX`.
    #[must_use]
    pub const fn within_limit(self) -> Option<&'a [u8]> {
        if self.0.len() <= BYTES_MAX { Some(self.0) } else { None }
    }

    /// Its bytes, too many or not.
    #[must_use]
    pub const fn of_any_length(self) -> &'a [u8] {
        self.0
    }
}

/// The bytes not yet decoded.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// The bytes not yet read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], XdrError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(XdrError::CutShort)?;
        self.0 = rest;
        Ok(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(XdrError::CutShort)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// An unsigned integer (section 4.2).
    ///
    /// # Errors
    /// When there are too few bytes.
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        self.chunk().map(u32::from_be_bytes)
    }

    /// An unsigned hyper integer (section 4.5).
    ///
    /// # Errors
    /// When there are too few bytes.
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        self.chunk().map(u64::from_be_bytes)
    }

    /// A boolean (section 4.4).
    ///
    /// # Errors
    /// When it is neither 0 nor 1.
    pub fn bool(&mut self) -> Result<bool, XdrError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(XdrError::Value { what: "bool", value }),
        }
    }

    /// An enumeration (section 4.3); `from_number` knows its values, and `what` it is.
    ///
    /// # Errors
    /// When the value is not defined.
    pub fn one_of<T>(
        &mut self,
        what: &'static str,
        from_number: impl FnOnce(u32) -> Option<T>,
    ) -> Result<T, XdrError> {
        let value = self.u32()?;
        from_number(value).ok_or(XdrError::Value { what, value })
    }

    /// Fixed-length opaque data (section 4.9).
    ///
    /// # Errors
    /// When there are too few bytes, the padding's included.
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let data = self.chunk()?;
        self.take(padding(N).len())?;
        Ok(data)
    }

    /// Variable-length opaque data (section 4.10), or a string (section 4.11).
    ///
    /// # Errors
    /// When its length exceeds `length_max`, or the bytes that are there.
    pub fn opaque(&mut self, length_max: usize) -> Result<&'a [u8], XdrError> {
        let length = self.length(length_max)?;
        let data = self.take(length)?;
        self.take(padding(length).len())?;
        Ok(data)
    }

    /// A string that may be too long.
    ///
    /// # Errors
    /// When it exceeds [`TEXT_BYTES_MAX`], or the bytes that are there.
    pub fn text<const BYTES_MAX: usize>(&mut self) -> Result<Text<'a, BYTES_MAX>, XdrError> {
        const { assert!(BYTES_MAX < TEXT_BYTES_MAX) };
        self.opaque(TEXT_BYTES_MAX).map(Text)
    }

    /// The number of elements of a variable-length array (section 4.13), or of bytes of a string.
    ///
    /// # Errors
    /// When it exceeds `length_max`.
    pub fn length(&mut self, length_max: usize) -> Result<usize, XdrError> {
        let length = self.u32()?;
        match usize::try_from(length) {
            Ok(count) if count <= length_max => Ok(count),
            _ => Err(XdrError::TooLong { length, length_max }),
        }
    }

    /// Optional data (section 4.19).
    ///
    /// # Errors
    /// When the boolean is none, and those of `value`.
    pub fn optional<T>(
        &mut self,
        value: impl FnOnce(&mut Reader<'a>) -> Result<T, XdrError>,
    ) -> Result<Option<T>, XdrError> {
        if self.bool()? { value(self).map(Some) } else { Ok(None) }
    }
}
