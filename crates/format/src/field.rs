//! Fields of durable structures: a name, an offset, a size; and reading and writing them.
//!
//! 1. The fields of a structure tile it: no gap, no overlap (checked when compiling).
//! 2. A field named `zero` is padding.

use units::{Generation, Inode, Seq, WallTime};

use crate::error::{Place, Result};

/// One field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name in the structure's table in `docs/format/`; `zero` is padding.
    pub name: &'static str,
    /// Bytes from the structure's start.
    pub offset: usize,
    /// Its size in bytes; integers have at most 8, others are read as bytes.
    pub bytes: usize,
}

impl Field {
    /// A field.
    pub const fn new(name: &'static str, offset: usize, bytes: usize) -> Field {
        Field { name, offset, bytes }
    }

    /// Bytes from the structure's start to the byte after this field.
    pub const fn end(self) -> usize {
        self.offset + self.bytes
    }
}

/// Whether the fields, in order, cover exactly `bytes` bytes.
pub const fn tile(fields: &[Field], bytes: usize) -> bool {
    let mut offset = 0;
    let mut i = 0;
    while i < fields.len() {
        if fields[i].offset != offset {
            return false;
        }
        offset += fields[i].bytes;
        i += 1;
    }
    offset == bytes
}

/// Makes a constant of each field of a structure, and one of all, which it checks to tile so many
/// bytes. A line is a name, the name in the table, the offset and the size.
macro_rules! fields {
    (
        $(#[$doc:meta])*
        $all:ident[$bytes:expr]:
        $($field:ident = $name:literal, $offset:literal, $size:literal;)+
    ) => {
        $(pub(crate) const $field: Field = Field::new($name, $offset, $size);)+
        $(#[$doc])*
        pub const $all: &[Field] = &[$($field),+];
        const _: () = assert!(tile($all, $bytes));
    };
}
pub(crate) use fields;

/// Finds the one of an enum with a number, which it is written as.
macro_rules! numbered {
    ($kind:ident: $($variant:ident)+) => {
        impl $kind {
            /// The one with that number.
            pub fn from_number(number: u64) -> Option<$kind> {
                [$($kind::$variant),+].into_iter().find(|one| *one as u64 == number)
            }
        }
    };
}
pub(crate) use numbered;

/// Reads an integer of up to 8 bytes.
#[inline(always)]
pub fn get(bytes: &[u8], field: Field) -> u64 {
    let mut wide = [0; 8];
    wide[..field.bytes].copy_from_slice(&bytes[field.offset..field.end()]);
    u64::from_le_bytes(wide)
}

/// Reads an integer of up to 4 bytes.
#[inline(always)]
pub fn get_u32(bytes: &[u8], field: Field) -> u32 {
    let mut wide = [0; 4];
    wide[..field.bytes].copy_from_slice(&bytes[field.offset..field.end()]);
    u32::from_le_bytes(wide)
}

/// Reads an integer of 16 bytes.
pub(crate) fn get_u128(bytes: &[u8], field: Field) -> u128 {
    let mut wide = [0; 16];
    wide.copy_from_slice(&bytes[field.offset..field.end()]);
    u128::from_le_bytes(wide)
}

/// Writes an integer of up to 8 bytes. Asserts that it fits.
#[inline(always)]
pub fn put(bytes: &mut [u8], field: Field, value: u64) {
    assert!(field.bytes == 8 || value >> (8 * field.bytes) == 0, "{} does not fit", field.name);
    bytes[field.offset..field.end()].copy_from_slice(&value.to_le_bytes()[..field.bytes]);
}

/// Writes an integer of 16 bytes.
pub(crate) fn put_u128(bytes: &mut [u8], field: Field, value: u128) {
    bytes[field.offset..field.end()].copy_from_slice(&value.to_le_bytes());
}

/// A value that is in a field.
pub(crate) trait Value {
    /// Writes it there.
    fn put(&self, bytes: &mut [u8], field: Field);
    /// Reads it.
    fn get(bytes: &[u8], field: Field) -> Self;
}

/// Values that are an integer of up to 8 bytes there: how each is made of it, and becomes it.
macro_rules! values {
    ($($kind:ty: |$number:ident| $value:expr, |$own:ident| $integer:expr;)+) => {
        $(impl Value for $kind {
            #[inline]
            fn put(&self, bytes: &mut [u8], field: Field) {
                let $own = *self;
                put(bytes, field, $integer);
            }
            #[inline]
            fn get(bytes: &[u8], field: Field) -> $kind {
                let $number = get(bytes, field);
                $value
            }
        })+
    };
}
values! {
    u16: |number| number as u16, |own| own.into();
    u32: |number| number as u32, |own| own.into();
    u64: |number| number, |own| own;
    WallTime: |number| WallTime::from_nanos(number), |own| own.as_nanos();
    Seq: |number| Seq(number), |own| own.0;
    Generation: |number| Generation(number), |own| own.0;
    Inode: |number| Inode(number), |own| own.0;
}

impl Value for u128 {
    fn put(&self, bytes: &mut [u8], field: Field) {
        put_u128(bytes, field, *self);
    }
    fn get(bytes: &[u8], field: Field) -> u128 {
        get_u128(bytes, field)
    }
}

impl<const N: usize> Value for [u8; N] {
    fn put(&self, bytes: &mut [u8], field: Field) {
        bytes[field.offset..field.end()].copy_from_slice(self);
    }
    fn get(bytes: &[u8], field: Field) -> [u8; N] {
        bytes[field.offset..field.end()].try_into().expect("the field is as long")
    }
}

/// Makes the methods that write and read what a structure has of values, each by its name in the
/// structure and its field. What else it has is given to `get_fields`.
macro_rules! codec {
    ($kind:ident: $($name:ident = $field:ident),+; $($rest:ident: $type:ty),*) => {
        impl $kind {
            #[inline]
            pub(super) fn put_fields(&self, b: &mut [u8]) {
                $($crate::field::Value::put(&self.$name, b, layout::$field);)+
            }

            #[inline]
            pub(super) fn get_fields(b: &[u8] $(, $rest: $type)*) -> $kind {
                $kind { $($name: $crate::field::Value::get(b, layout::$field),)+ $($rest),* }
            }
        }
    };
}
pub(crate) use codec;

/// Fails unless a field of padding is zero.
///
/// # Errors
/// `Invalid`.
pub fn verify_zero(place: Place, bytes: &[u8], field: Field) -> Result<()> {
    verify_zero_bytes(place, &bytes[field.offset..field.end()], field.offset)
}

/// Fails unless all of `bytes`, which stand at `offset` in their structure, are zero.
pub(crate) fn verify_zero_bytes(place: Place, bytes: &[u8], offset: usize) -> Result<()> {
    let Some(i) = bytes.iter().position(|byte| *byte != 0) else { return Ok(()) };
    let found = format!("{:#04x} at byte {}", bytes[i], offset + i);
    Err(place.invalid("padding of zeros", found))
}

#[cfg(test)]
mod tests {
    use super::{Field, get, put, tile};

    #[test]
    fn integers_of_odd_sizes_round_trip_and_leave_their_neighbours() {
        let field = Field::new("six", 1, 6);
        let mut bytes = [0xff; 8];
        put(&mut bytes, field, 0x0605_0403_0201);
        assert_eq!(bytes, [0xff, 1, 2, 3, 4, 5, 6, 0xff]);
        assert_eq!(get(&bytes, field), 0x0605_0403_0201);
    }

    #[test]
    #[should_panic(expected = "six does not fit")]
    fn a_value_that_does_not_fit_is_refused() {
        put(&mut [0; 8], Field::new("six", 0, 6), 1 << 48);
    }

    #[test]
    fn gaps_and_overlaps_do_not_tile() {
        let tiles = |a, b| tile(&[Field::new("a", 0, a), Field::new("b", 4, b)], 8);
        assert!(tiles(4, 4) && !tiles(3, 4) && !tiles(5, 4) && !tiles(4, 3));
    }
}
