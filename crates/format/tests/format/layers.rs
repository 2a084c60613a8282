//! What layers keep: round trips, damage, liars, texts.

use hindsight_format::checksum::salted_crc;
use hindsight_format::crypt::{CryptHeader, SECTORS_MAX};
use hindsight_format::parity::{Pending, Record, peek_header_bytes, peek_pending_bytes};
use hindsight_format::write_buffer::Mark;
use hindsight_format::{FormatErrorKind, Result};
use proptest::prelude::{ProptestConfig, any, proptest};

use crate::examples;

const CRC: usize = 8;

fn crypt() -> [u8; 512] {
    examples::crypt_header().encode(1)
}

fn decode_crypt(bytes: &[u8]) -> Result<CryptHeader> {
    CryptHeader::decode(bytes, 1)
}

/// Makes the checksum of a header right again, as a liar would.
fn forge(bytes: &mut [u8; 512]) {
    let covered = [&bytes[..CRC], &bytes[CRC + 4..]].concat();
    let crc = salted_crc(u32::from_le_bytes(*b"cryp"), &covered);
    bytes[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn a_mark_of_a_write_buffer_is_itself_or_an_error() {
    let mark = Mark { tag: 0x0123_4567 << 64 | 0x89ab_cdef, boot: 7 << 100 | 3 };
    let bytes = mark.encode();
    assert_eq!(Mark::decode(&bytes), Ok(mark));
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Mark::decode(&damaged).is_err(), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(Mark::decode(&bytes[..length]).is_err(), "{length} bytes");
    }
    assert!(Mark::decode(&[0; 512]).is_err(), "zeros are no mark");
}

#[test]
fn every_flipped_bit_and_every_shortened_header_is_an_error() {
    let mut bytes = crypt();
    assert_eq!(decode_crypt(&bytes), Ok(examples::crypt_header()));
    for bit in 0..512 * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_crypt(&bytes).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    for length in 0..512 {
        assert!(decode_crypt(&bytes[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn every_flipped_bit_of_a_parity_record_is_an_error_and_so_are_its_cells() {
    let record = examples::parity_record();
    let mut bytes = record.encode(65_536);
    let decode = |bytes: &[u8]| Record::decode(bytes, 65_536, record.id);
    assert_eq!(decode(&bytes), Ok(record.clone()));
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&bytes).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    for length in 0..bytes.len() {
        assert!(decode(&bytes[..length]).is_err(), "{length} bytes");
    }
    let mut cells = vec![0x5a; 4096];
    assert!(record.entries[0].holds(&cells) && !record.entries[1].holds(&cells));
    cells[17] ^= 1;
    assert!(!record.entries[0].holds(&cells));
}

#[test]
fn a_parity_record_of_elsewhere_is_refused_and_a_liar_asks_for_no_memory() {
    let record = examples::parity_record();
    let bytes = record.encode(65_536);
    let kind = |at, id| Record::decode(&bytes, at, id).unwrap_err().kind;
    assert_eq!(kind(0, record.id), FormatErrorKind::Invalid);
    assert_eq!(kind(65_536, record.id ^ 1), FormatErrorKind::Invalid);
    let forged = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        let covered = [&bytes[..8], &bytes[12..]].concat();
        let crc = salted_crc(u32::from_le_bytes(*b"prty"), &covered);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        Record::decode(&bytes, 65_536, record.id).unwrap_err().kind
    };
    assert_eq!(forged(12, 2), FormatErrorKind::Version);
    assert_eq!(forged(52, 4), FormatErrorKind::Invalid, "more differences than entries");
    assert_eq!(forged(4000, 1), FormatErrorKind::Invalid, "behind the list");
    assert_eq!(forged(64, 1), FormatErrorKind::Invalid, "not at a cell");
    assert_eq!(forged(76, 0), FormatErrorKind::Invalid, "no cells");
    assert_eq!(forged(51, 0xff), FormatErrorKind::NotThis, "more entries than there are bytes");
    let mut many = bytes.clone();
    many[48..52].fill(0xff);
    assert_eq!(peek_header_bytes(&many, 65_536).map(|b| b >> 36), Ok(1));
}

#[test]
fn every_flipped_bit_of_a_pending_entry_is_an_error_and_so_is_one_of_elsewhere() {
    let entry = examples::pending_entry();
    let note = Pending { before: 9, bytes: Vec::new(), ..entry.clone() };
    for entry in [&entry, &note] {
        let mut bytes = entry.encode();
        let decode = |bytes: &[u8]| Pending::decode(bytes, 0, entry.id);
        assert_eq!(decode(&bytes), Ok(entry.clone()));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        let kind = Pending::decode(&bytes, 0, entry.id ^ 1).unwrap_err().kind;
        assert_eq!(kind, FormatErrorKind::Invalid);
    }
    let neither = Pending { bytes: Vec::new(), ..entry.clone() }.encode();
    let both = Pending { before: 1, ..entry.clone() }.encode();
    for bytes in [neither, both] {
        let kind = Pending::decode(&bytes, 0, entry.id).unwrap_err().kind;
        assert_eq!(kind, FormatErrorKind::Invalid);
    }
    for (length, bytes) in [(0, 4096), (4032, 4096), (4033, 8192), (65_000, 65_536)] {
        let entry =
            Pending { bytes: vec![7; length], before: u32::from(length == 0), ..note.clone() };
        let encoded = entry.encode();
        assert_eq!(encoded.len(), bytes);
        assert_eq!(peek_pending_bytes(&encoded, 0), Ok(bytes));
        assert_eq!(Pending::decode(&encoded, 0, entry.id), Ok(entry));
    }
}

#[test]
fn values_out_of_range_are_refused_though_their_checksum_is_right() {
    let liar = |at: usize, value: u8| {
        let mut bytes = crypt();
        bytes[at] = value;
        forge(&mut bytes);
        decode_crypt(&bytes).unwrap_err().kind
    };
    assert_eq!(liar(12, 2), FormatErrorKind::Version);
    assert_eq!(liar(16, 2), FormatErrorKind::Version, "cipher");
    assert_eq!(liar(20, 0), FormatErrorKind::Version, "derivation");
    assert_eq!(liar(31, 1), FormatErrorKind::Invalid, "sectors");
    assert_eq!(liar(200, 1), FormatErrorKind::Invalid, "padding");
}

#[test]
fn a_crypt_header_of_the_other_copy_is_refused() {
    let error = CryptHeader::decode(&examples::crypt_header().encode(1), 0).unwrap_err();
    assert_eq!((error.kind, error.address), (FormatErrorKind::Invalid, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn crypt_headers_round_trip(
        sectors in 1..=SECTORS_MAX, salt in any::<[u8; 32]>(), first in any::<u8>(),
    ) {
        let value = CryptHeader { sectors, salt, wrapped_key: [first; 72] };
        assert_eq!(CryptHeader::decode(&value.encode(0), 0), Ok(value));
    }

    #[test]
    fn random_and_forged_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..700),
        changes in proptest::collection::vec((0..512_usize, any::<u8>()), 1..9),
    ) {
        assert!(decode_crypt(&bytes).is_err());
        let mut forged = crypt();
        for (at, byte) in &changes {
            forged[*at] = *byte;
        }
        forge(&mut forged);
        if let Err(error) = decode_crypt(&forged) {
            assert!(!error.to_string().is_empty());
        }
    }
}
