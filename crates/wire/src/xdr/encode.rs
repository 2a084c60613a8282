//! Values to bytes.

use super::decode::Text;
use super::padding::padding;

/// Puts values behind the bytes that are there.
#[derive(Debug)]
pub struct Writer<'o>(&'o mut Vec<u8>);

impl<'o> Writer<'o> {
    /// Writes behind what `out` holds.
    #[must_use]
    pub const fn new(out: &'o mut Vec<u8>) -> Writer<'o> {
        Writer(out)
    }

    /// Writes one value.
    pub fn put(&mut self, value: &impl Encode) -> &mut Self {
        value.encode(self);
        self
    }

    /// Writes a linked list (section 4.19): each element behind a true, and a false.
    pub fn list<T: Encode>(&mut self, elements: impl IntoIterator<Item = T>) {
        elements.into_iter().for_each(|element| Some(element).encode(self));
        false.encode(self);
    }

    /// Writes bytes that are encoded already.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// A value that has one encoding.
pub trait Encode {
    /// Writes it.
    fn encode(&self, out: &mut Writer<'_>);
}

impl<T: Encode> Encode for &T {
    fn encode(&self, out: &mut Writer<'_>) {
        (**self).encode(out);
    }
}

impl Encode for () {
    fn encode(&self, _: &mut Writer<'_>) {}
}

impl Encode for u32 {
    fn encode(&self, out: &mut Writer<'_>) {
        out.raw(&self.to_be_bytes());
    }
}

impl Encode for u64 {
    fn encode(&self, out: &mut Writer<'_>) {
        out.raw(&self.to_be_bytes());
    }
}

impl Encode for bool {
    fn encode(&self, out: &mut Writer<'_>) {
        u32::from(*self).encode(out);
    }
}

/// Fixed-length opaque data.
impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, out: &mut Writer<'_>) {
        out.raw(self);
        out.raw(padding(N));
    }
}

/// Variable-length opaque data, or a string.
///
/// # Panics
/// When there are 4 GiB of it or more.
impl Encode for &[u8] {
    fn encode(&self, out: &mut Writer<'_>) {
        u32::try_from(self.len()).expect("data of a message is short").encode(out);
        out.raw(self);
        out.raw(padding(self.len()));
    }
}

impl<const BYTES_MAX: usize> Encode for Text<'_, BYTES_MAX> {
    fn encode(&self, out: &mut Writer<'_>) {
        self.of_any_length().encode(out);
    }
}

/// Optional data.
impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut Writer<'_>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }
}

/// The encoding of structures: their fields, in the order in which they are named.
macro_rules! fields_in_order {
    ($($name:ident $(<$life:lifetime>)? { $($field:ident),+ $(,)? })+) => { $(
        impl $(<$life>)? $crate::xdr::encode::Encode for $name $(<$life>)? {
            fn encode(&self, out: &mut $crate::xdr::encode::Writer<'_>) {
                $(self.$field.encode(out);)+
            }
        }
    )+ };
}

pub(crate) use fields_in_order;
