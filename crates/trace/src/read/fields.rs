//! Numbers and fields in lines of bytes.

/// What is wrong with a line.
pub(super) type Fault = &'static str;

pub(super) const NANOS_OF_SECOND: u64 = 1_000_000_000;

/// A whole number of decimal digits and nothing else.
pub(super) fn whole(text: &[u8], fault: Fault) -> Result<u64, Fault> {
    if text.is_empty() {
        return Err(fault);
    }
    let mut value = 0_u64;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(fault);
        }
        value = value.checked_mul(10).and_then(|v| v.checked_add(digit.into())).ok_or(fault)?;
    }
    Ok(value)
}

/// Seconds with a fraction, as nanoseconds; digits beyond the ninth are cut off.
pub(super) fn seconds(text: &[u8], fault: Fault) -> Result<u64, Fault> {
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let whole_seconds = whole(parts.next().unwrap_or_default(), fault)?;
    let mut nanos = 0;
    if let Some(fraction) = parts.next() {
        if !fraction.iter().all(u8::is_ascii_digit) {
            return Err(fault);
        }
        for i in 0..9 {
            nanos = nanos * 10 + u64::from(fraction.get(i).map_or(0, |digit| digit - b'0'));
        }
    }
    let whole_nanos = whole_seconds.checked_mul(NANOS_OF_SECOND).ok_or(fault)?;
    whole_nanos.checked_add(nanos).ok_or(fault)
}

/// A number of units, as nanoseconds or bytes.
pub(super) fn scaled(text: &[u8], unit: u64, fault: Fault) -> Result<u64, Fault> {
    whole(text, fault)?.checked_mul(unit).ok_or(fault)
}

/// Splits a line at commas into at most `N` fields, without the blanks around them; how many there
/// are comes with them. More than `N` fields are `N + 1`.
pub(super) fn columns<const N: usize>(line: &[u8]) -> ([&[u8]; N], usize) {
    let mut fields = [&line[..0]; N];
    let mut count = 0;
    let mut start = 0;
    for end in memchr::memchr_iter(b',', line).chain([line.len()]) {
        if count == N {
            return (fields, N + 1);
        }
        fields[count] = line[start..end].trim_ascii();
        count += 1;
        start = end + 1;
    }
    (fields, count)
}

#[cfg(test)]
mod tests {
    use super::{columns, scaled, seconds, whole};

    #[test]
    fn numbers_are_digits_and_fit() {
        assert_eq!(whole(b"18446744073709551615", ""), Ok(u64::MAX));
        for bad in [&b""[..], b"18446744073709551616", b"-1", b"+1", b" 1", b"1.0", b"0x1"] {
            assert_eq!(whole(bad, "bad"), Err("bad"), "{bad:?}");
        }
        assert_eq!(scaled(b"36028797018963968", 512, "bad"), Err("bad"));
    }

    #[test]
    fn seconds_may_have_a_fraction() {
        assert_eq!(seconds(b"1455592218.026402", ""), Ok(1_455_592_218_026_402_000));
        assert_eq!(seconds(b"0", ""), Ok(0));
        assert_eq!(seconds(b"0.0000000019", ""), Ok(1));
        for bad in [&b"1."[..], b"."] {
            assert_eq!(seconds(bad, "bad").is_err(), bad == b".", "{bad:?}");
        }
        for bad in [&b"1.2.3"[..], b"1e3", b"nan", b"99999999999999"] {
            assert_eq!(seconds(bad, "bad"), Err("bad"), "{bad:?}");
        }
    }

    #[test]
    fn columns_are_trimmed_and_counted() {
        assert_eq!(columns::<3>(b"a, b ,"), ([&b"a"[..], b"b", b""], 3));
        assert_eq!(columns::<2>(b"a,b,c").1, 3);
        assert_eq!(columns::<2>(b"").1, 1);
    }
}
