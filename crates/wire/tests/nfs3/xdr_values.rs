//! Values of XDR: limits, padding, and what is refused.

use hindsight_wire as wire;
use wire::xdr::{Encode, Reader, TEXT_BYTES_MAX, Text, Writer, XdrError, padding};

use crate::hex;

fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).put(value);
    bytes
}

#[test]
fn values_have_their_known_bytes() {
    assert_eq!(encoded(&0x0102_0304_u32), hex("01020304"));
    assert_eq!(encoded(&0x0102_0304_0506_0708_u64), hex("0102030405060708"));
    assert_eq!((encoded(&true), encoded(&false)), (hex("00000001"), hex("00000000")));
    assert_eq!(encoded(&Some(7_u32)), hex("00000001 00000007"));
    assert_eq!(encoded(&None::<u32>), hex("00000000"));
    assert_eq!(encoded(&[1_u8, 2, 3, 4, 5]), hex("0102030405 000000"));
    let opaque: [&[u8]; 5] = [b"", b"a", b"ab", b"abc", b"abcd"];
    let known = ["00000000", "00000001 61000000", "00000002 61620000", "00000003 61626300"];
    for (data, known) in opaque.iter().zip(known) {
        assert_eq!(encoded(data), hex(known));
    }
    assert_eq!(encoded(&opaque[4]), hex("00000004 61626364"));
    let mut list = Vec::new();
    Writer::new(&mut list).list([5_u32, 6]);
    assert_eq!(list, hex("00000001 00000005 00000001 00000006 00000000"));
}

#[test]
fn padding_goes_to_a_multiple_of_four() {
    for length in 0..9 {
        assert!((length + padding(length).len()).is_multiple_of(4) && padding(length).len() < 4);
    }
}

#[test]
fn a_boolean_is_zero_or_one() {
    assert_eq!(Reader::new(&hex("00000000")).bool(), Ok(false));
    assert_eq!(Reader::new(&hex("00000001")).bool(), Ok(true));
    let refused = Reader::new(&hex("00000002")).bool();
    assert_eq!(refused, Err(XdrError::Value { what: "bool", value: 2 }));
}

#[test]
fn a_length_holds_exactly_and_padding_has_to_be_there() {
    let bytes = hex("00000005 6162636465 ffffff");
    assert_eq!(Reader::new(&bytes).opaque(5), Ok(&b"abcde"[..]));
    let refused = Reader::new(&bytes).opaque(4);
    assert_eq!(refused, Err(XdrError::TooLong { length: 5, length_max: 4 }));
    assert_eq!(Reader::new(&bytes[..11]).opaque(5), Err(XdrError::CutShort));
    assert_eq!(Reader::new(&bytes[4..]).fixed(), Ok(*b"abcde"));
    assert_eq!(Reader::new(&bytes[4..11]).fixed::<5>(), Err(XdrError::CutShort));
    let huge = hex("ffffffff 00000000");
    assert_eq!(Reader::new(&huge).opaque(usize::MAX), Err(XdrError::CutShort));
}

#[test]
fn a_text_knows_whether_it_is_too_long() {
    let whole = |length: usize| encoded(&vec![b'x'; length].as_slice());
    let text = whole(255);
    let fits: Text<'_, 255> = Reader::new(&text).text().unwrap();
    assert_eq!(fits.within_limit(), Some(&[b'x'; 255][..]));
    for length in [256, TEXT_BYTES_MAX] {
        let text = whole(length);
        let long: Text<'_, 255> = Reader::new(&text).text().unwrap();
        assert_eq!((long.within_limit(), long.of_any_length().len()), (None, length));
    }
    let text = whole(TEXT_BYTES_MAX + 1);
    let refused = Reader::new(&text).text::<255>();
    assert!(matches!(refused, Err(XdrError::TooLong { .. })));
}
