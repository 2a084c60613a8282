//! XDR and the records of ONC RPC: bytes written by hand from the RFCs, limits, and bytes that are
//! random.

mod records;
mod xdr_values;

/// Bytes of hexadecimal digits; anything between them is left out.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("digits");
        u8::from_str_radix(pair, 16).expect("digits")
    };
    digits.chunks(2).map(byte).collect()
}
