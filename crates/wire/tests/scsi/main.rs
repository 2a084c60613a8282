//! SCSI commands and their data: known bytes, round trips, limits, and bytes that are damaged or
//! random.

mod commands;
mod data;
mod log;
mod mode;
mod pages;

/// Bytes of hexadecimal digits; anything between them is left out.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("digits");
        u8::from_str_radix(pair, 16).expect("digits")
    };
    digits.chunks(2).map(byte).collect()
}

/// A CDB of hexadecimal digits, padded as iSCSI pads it.
fn cdb(text: &str) -> [u8; 16] {
    let mut bytes = hex(text);
    bytes.resize(16, 0);
    bytes.try_into().expect("16 bytes")
}
