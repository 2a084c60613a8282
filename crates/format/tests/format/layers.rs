//! What layers keep: round trips, damage, liars, texts.

use hindsight_format::checksum::salted_crc;
use hindsight_format::crypt::{CryptHeader, SECTORS_MAX};
use hindsight_format::integrity::{
    BLOCKS_MAX, ChecksumSector, IntegrityHeader, SECTOR_BLOCKS, SectorState,
};
use hindsight_format::parity::{Pending, Record, peek_header_bytes, peek_pending_bytes};
use hindsight_format::{FormatErrorKind, Result};
use proptest::prelude::{ProptestConfig, any, proptest};

use crate::examples;

type Decode = fn(&[u8]) -> Result<()>;

/// A structure of 512 bytes: its name, its decoder, sound bytes, its salt, where its checksum is.
struct Case {
    name: &'static str,
    decode: Decode,
    sound: [u8; 512],
    salt: u32,
    crc: usize,
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "integrity header",
            decode: |bytes| IntegrityHeader::decode(bytes, 1).map(drop),
            sound: examples::integrity_header().encode(1),
            salt: u32::from_le_bytes(*b"intg"),
            crc: 8,
        },
        Case {
            name: "checksum sector",
            decode: decode_sector,
            sound: examples::checksum_sector().encode(),
            salt: u32::from_le_bytes(*b"cksm") ^ examples::checksum_sector().tag,
            crc: 4,
        },
        Case {
            name: "crypt header",
            decode: |bytes| CryptHeader::decode(bytes, 1).map(drop),
            sound: examples::crypt_header().encode(1),
            salt: u32::from_le_bytes(*b"cryp"),
            crc: 8,
        },
    ]
}

fn decode_sector(bytes: &[u8]) -> Result<()> {
    ChecksumSector::decode(bytes, examples::checksum_sector().tag, 8).map(drop)
}

/// Makes the checksum right again, as a liar would.
fn forge(case: &Case, bytes: &mut [u8; 512]) {
    let covered = [&bytes[..case.crc], &bytes[case.crc + 4..]].concat();
    let crc = salted_crc(case.salt, &covered);
    bytes[case.crc..case.crc + 4].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn every_flipped_bit_and_every_shortened_structure_is_an_error() {
    for case in cases() {
        let mut bytes = case.sound;
        assert_eq!((case.decode)(&bytes), Ok(()), "{} is sound", case.name);
        for bit in 0..512 * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!((case.decode)(&bytes).is_err(), "bit {bit} of {}", case.name);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for length in 0..512 {
            assert!((case.decode)(&bytes[..length]).is_err(), "{length} bytes of {}", case.name);
        }
    }
}

#[test]
fn no_structure_passes_for_another() {
    for case in cases() {
        for other in cases().iter().filter(|other| other.name != case.name) {
            let found = (other.decode)(&case.sound).map_err(|error| error.kind);
            assert_eq!(found, Err(FormatErrorKind::NotThis), "{} as {}", case.name, other.name);
        }
    }
}

#[test]
fn a_sector_of_elsewhere_is_refused_and_zeros_are_one_that_was_never_written() {
    let sector = examples::checksum_sector();
    let bytes = sector.encode();
    let error = ChecksumSector::decode(&bytes, sector.tag, 9).unwrap_err();
    assert_eq!(error.kind, FormatErrorKind::Invalid);
    let error = ChecksumSector::decode(&bytes, sector.tag ^ 1, 8).unwrap_err();
    assert_eq!(error.kind, FormatErrorKind::Checksum);
    assert_eq!(ChecksumSector::decode(&[0; 512], 1, 1), Ok(None));
    let error = IntegrityHeader::decode(&examples::integrity_header().encode(1), 0).unwrap_err();
    assert_eq!((error.kind, error.address), (FormatErrorKind::Invalid, 0));
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
fn generations_are_compared_around_their_end() {
    let of = |generation| ChecksumSector { generation, ..examples::checksum_sector() };
    for (old, new) in [(0, 1), (u32::MAX, 0), (u32::MAX - 5, 7), (5, (1 << 31) + 4)] {
        assert!(of(new).is_newer(&of(old)) && !of(old).is_newer(&of(new)), "{old} and {new}");
    }
    assert!(!of(4).is_newer(&of(4)));
}

#[test]
fn values_out_of_range_are_refused_though_their_checksum_is_right() {
    let liar = |name: &str, at: usize, value: u8| {
        let cases = cases();
        let case = cases.iter().find(|case| case.name == name).expect("there is such a case");
        let mut bytes = case.sound;
        bytes[at] = value;
        forge(case, &mut bytes);
        (case.decode)(&bytes).unwrap_err().kind
    };
    assert_eq!(liar("integrity header", 12, 2), FormatErrorKind::Version);
    assert_eq!(liar("integrity header", 39, 0x80), FormatErrorKind::Invalid, "blocks");
    assert_eq!(liar("integrity header", 48, 2), FormatErrorKind::Invalid, "features");
    assert_eq!(liar("integrity header", 500, 1), FormatErrorKind::Invalid, "padding");
    assert_eq!(liar("crypt header", 12, 2), FormatErrorKind::Version);
    assert_eq!(liar("crypt header", 16, 2), FormatErrorKind::Version, "cipher");
    assert_eq!(liar("crypt header", 20, 0), FormatErrorKind::Version, "derivation");
    assert_eq!(liar("crypt header", 31, 1), FormatErrorKind::Invalid, "sectors");
    assert_eq!(liar("crypt header", 200, 1), FormatErrorKind::Invalid, "padding");
    assert_eq!(liar("checksum sector", 31, 3), FormatErrorKind::Invalid, "state");
    assert_eq!(liar("checksum sector", 31, 2), FormatErrorKind::Invalid, "both");
    assert_eq!(liar("checksum sector", 40, 1), FormatErrorKind::Invalid, "a stray checksum");
}

#[test]
fn integrity_is_explained() {
    let text = examples::integrity_header().explain();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "  id        0f1e2d3c4b5a69788796a5b4c3d2e1f0");
    assert_eq!(lines[2..], ["  blocks    2000", "  exempt    true"]);
    let text = examples::checksum_sector().explain();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, "checksum sector 8, generation 3, open"));
    assert_eq!(lines[2], "  block 119  crc 0x98f94189");
}

#[test]
fn a_crypt_header_is_explained_without_its_key() {
    let text = examples::crypt_header().explain();
    assert!(text.contains("  sectors     4096\n  salt        202122"), "{text}");
    assert!(!text.contains("8081"), "{text}");
    let error = CryptHeader::decode(&examples::crypt_header().encode(1), 0).unwrap_err();
    assert_eq!((error.kind, error.address), (FormatErrorKind::Invalid, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn checksum_sectors_round_trip(
        tag in any::<u32>(), generation in any::<u32>(), sector in any::<u32>(),
        state in 0..3_usize, written in any::<u128>(), first in any::<u32>(),
    ) {
        let state = [SectorState::Clean, SectorState::Open, SectorState::Exempt][state];
        let written = if state == SectorState::Exempt { 0 } else { written >> 8 };
        let mut checksums = [0; SECTOR_BLOCKS];
        for (i, checksum) in checksums.iter_mut().enumerate() {
            *checksum = if written >> i & 1 == 1 { first.wrapping_add(i as u32) } else { 0 };
        }
        let value = ChecksumSector { tag, generation, sector, state, written, checksums };
        assert_eq!(ChecksumSector::decode(&value.encode(), tag, sector), Ok(Some(value)));
    }

    #[test]
    fn integrity_headers_round_trip(
        id in any::<u128>(), blocks in 1..=BLOCKS_MAX, has_exempt in any::<bool>(),
    ) {
        let value = IntegrityHeader { id, blocks, has_exempt };
        assert_eq!(IntegrityHeader::decode(&value.encode(0), 0), Ok(value));
    }

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
        for case in cases() {
            assert!((case.decode)(&bytes).is_err() || bytes.iter().all(|byte| *byte == 0));
            let mut forged = case.sound;
            for (at, byte) in &changes {
                forged[*at] = *byte;
            }
            forge(&case, &mut forged);
            if let Err(error) = (case.decode)(&forged) {
                assert!(!error.to_string().is_empty(), "{}", case.name);
            }
        }
    }
}
