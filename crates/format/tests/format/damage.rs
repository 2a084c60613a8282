//! Damaged, foreign and hostile bytes: an error, never a panic, never another value.

use hindsight_format::batch::{Batch, peek_header_bytes};
use hindsight_format::checksum::salted_crc;
use hindsight_format::label::{Label, Regions};
use hindsight_format::map::LeafPage;
use hindsight_format::run::{IndexPage, RunFooter};
use hindsight_format::segment::SegmentHeader;
use hindsight_format::superblock::Superblock;
use hindsight_format::time::TimePage;
use hindsight_format::{FormatError, FormatErrorKind, PageAddress, Result};
use proptest::prelude::{ProptestConfig, any, proptest};

use crate::{examples, values};

type Decode = fn(&[u8], PageAddress) -> Result<()>;

fn page(bytes: &[u8]) -> Box<[u8; 4096]> {
    let mut page = Box::new([0; 4096]);
    let length = bytes.len().min(4096);
    page[..length].copy_from_slice(&bytes[..length]);
    page
}

/// Every decoder, and a sound structure for it.
fn decoders() -> Vec<(&'static str, Decode, Vec<u8>, u32)> {
    vec![
        (
            "superblock",
            |bytes, _| Superblock::decode(bytes, 2).map(drop),
            examples::superblock().encode(2).to_vec(),
            0,
        ),
        ("label", |bytes, _| Label::decode(bytes, 2).map(drop), examples::label().encode(2), 0),
        (
            "regions",
            |bytes, _| Regions::decode(bytes, 1).map(drop),
            examples::regions().encode().1,
            0,
        ),
        (
            "segment",
            |bytes, _| SegmentHeader::decode(bytes).map(drop),
            examples::segment().encode().to_vec(),
            0,
        ),
        ("batch", decode_batch, examples::batch_of_writes(), 0),
        ("relocated batch", decode_batch, examples::batch_of_relocated_blocks(), 0),
        ("shared batch", decode_batch, examples::batch_of_a_shared_block(), 0),
        (
            "leaf",
            |bytes, address| LeafPage::decode(page(bytes), address).map(drop),
            examples::leaf().to_vec(),
            0,
        ),
        (
            "extent leaf",
            |bytes, address| LeafPage::decode(page(bytes), address).map(drop),
            examples::extent_leaf().to_vec(),
            0,
        ),
        (
            "index",
            |bytes, address| IndexPage::decode(&page(bytes), address, &mut Vec::new()),
            examples::index().to_vec(),
            1,
        ),
        (
            "footer",
            |bytes, address| RunFooter::decode(&page(bytes), address).map(drop),
            examples::footer().encode(examples::page(2)).to_vec(),
            2,
        ),
        (
            "time",
            |bytes, address| TimePage::decode(page(bytes), address).map(drop),
            examples::time_page().to_vec(),
            0,
        ),
    ]
}

/// Decodes a batch and walks all of it.
fn decode_batch(bytes: &[u8], _: PageAddress) -> Result<()> {
    peek_header_bytes(bytes)?;
    let batch = Batch::decode(bytes)?;
    for descriptor in batch.descriptors() {
        assert_eq!(descriptor.crcs().len() as u32 % descriptor.blocks, 0);
    }
    Ok(())
}

/// Where the checksum is in each structure: after a magic of 8 bytes or of 4.
fn crc_offset(name: &str) -> usize {
    let wide = ["superblock", "label", "regions", "segment"];
    if wide.contains(&name) || name.ends_with("batch") { 8 } else { 4 }
}

fn salt(name: &str) -> u32 {
    let salt = match name {
        "superblock" => b"supr",
        "label" => b"labl",
        "regions" => b"rgns",
        "segment" => b"segm",
        "batch" | "relocated batch" | "shared batch" => b"btch",
        "leaf" => b"leaf",
        "extent leaf" => b"lfex",
        "index" => b"indx",
        "footer" => b"runf",
        _ => b"time",
    };
    u32::from_le_bytes(*salt)
}

/// Makes the checksum right again, as a liar would.
fn forge(name: &str, bytes: &mut [u8]) {
    let offset = crc_offset(name);
    let covered = [&bytes[..offset], &bytes[offset + 4..]].concat();
    let crc = salted_crc(salt(name), &covered);
    bytes[offset..offset + 4].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn every_flipped_bit_is_an_error() {
    for (name, decode, mut bytes, page) in decoders() {
        let address = examples::page(page);
        assert_eq!(decode(&bytes, address), Ok(()), "{name} is sound");
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes, address).is_err(), "bit {bit} of {name}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn every_shortened_structure_is_an_error() {
    for (name, decode, bytes, page) in decoders() {
        let address = examples::page(page);
        for length in 0..bytes.len() {
            // Pages are of fixed size: what is missing reads as zeros, as after a torn write.
            let is_same = bytes[length..].iter().all(|byte| *byte == 0);
            if length % 7 == 0 && !(is_same && crc_offset(name) == 4) {
                assert!(decode(&bytes[..length], address).is_err(), "{length} bytes of {name}");
            }
        }
    }
}

#[test]
fn no_structure_passes_for_another_or_for_one_of_another_address() {
    for (name, _, bytes, _) in decoders() {
        for (other, decode, _, page) in decoders() {
            let are_both = |kind: &str| name.ends_with(kind) && other.ends_with(kind);
            let is_same = name == other || are_both("batch") || are_both("leaf");
            let found = decode(&bytes, examples::page(page)).map_err(|error| error.kind);
            let expected = if is_same { Ok(()) } else { Err(FormatErrorKind::NotThis) };
            assert_eq!(found, expected, "{name} read as {other}");
        }
    }
    for (name, decode, bytes, page) in decoders() {
        let address = examples::page(page);
        let elsewhere = [
            PageAddress { pool_tag: 0, ..address },
            PageAddress { run: 13, ..address },
            PageAddress { page: page + 1, ..address },
        ];
        for other in elsewhere {
            let is_page = crc_offset(name) == 4;
            assert_eq!(decode(&bytes, other).is_err(), is_page, "{name} at another address");
        }
    }
    let copy = examples::superblock().encode(2);
    let error = Superblock::decode(&copy[..], 3).expect_err("copy 2 in the place of copy 3");
    assert_eq!((error.kind, error.address), (FormatErrorKind::Invalid, 196_608));
}

#[test]
fn another_version_and_unknown_features_are_refused_and_named() {
    let mut superblock = examples::superblock();
    superblock.format_version = 2;
    let error = Superblock::decode(&superblock.encode(0)[..], 0).expect_err("version 2");
    let text = "superblock at 0: expected format version 1, found format version 2";
    assert_eq!((error.kind, error.to_string().as_str()), (FormatErrorKind::Version, text));

    let mut superblock = examples::superblock();
    superblock.features_incompatible = 1 << 63;
    let error = Superblock::decode(&superblock.encode(0)[..], 0).expect_err("a feature");
    assert_eq!(error.kind, FormatErrorKind::Version);

    let mut superblock = examples::superblock();
    assert!(!superblock.is_read_only_here());
    superblock.features_read_only = 1;
    superblock.features_compatible = 1;
    let decoded = Superblock::decode(&superblock.encode(0)[..], 0).expect("it can be read");
    assert!(decoded.is_read_only_here());

    for (name, version) in [("segment", 12), ("footer", 28)] {
        let decoders = decoders();
        let (_, decode, bytes, page) =
            decoders.iter().find(|decoder| decoder.0 == name).expect("it is there");
        let mut bytes = bytes.clone();
        bytes[version] = 2;
        forge(name, &mut bytes);
        let error: FormatError = decode(&bytes, examples::page(*page)).expect_err("version 2");
        assert_eq!(error.kind, FormatErrorKind::Version, "{name}");
    }
}

/// The checksum keeps chance out, not malice or our own old mistakes: whatever a liar writes, there
/// is no panic and no allocation beyond the bytes.
fn assert_survives(name: &str, decode: Decode, bytes: &[u8], page: u32) {
    if let Err(error) = decode(bytes, examples::page(page)) {
        assert!(!error.to_string().is_empty(), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_bytes_are_errors(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
        for (name, decode, _, page) in decoders() {
            assert!(decode(&bytes, examples::page(page)).is_err(), "{name}");
        }
    }

    #[test]
    fn overwritten_bytes_with_a_right_checksum_never_panic(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..9),
        near in any::<bool>(), fill in any::<Option<u8>>(),
    ) {
        for (name, decode, sound, page) in decoders() {
            let mut bytes = sound;
            if let Some(fill) = fill {
                let start = bytes.len() / 2;
                bytes[start..].fill(fill);
            }
            for (index, byte) in &changes {
                let index = index.index(if near { 100 } else { bytes.len() });
                bytes[index] = *byte;
            }
            forge(name, &mut bytes);
            assert_survives(name, decode, &bytes, page);
        }
    }

    #[test]
    fn a_batch_that_is_forged_has_only_operations_of_a_volume(
        operations in values::operations(false), at in 20..96_usize, byte in any::<u8>(),
    ) {
        let header = examples::batch_header(hindsight_format::batch::BatchKind::Writes);
        let mut bytes = Vec::new();
        let mut encoder = hindsight_format::batch::BatchEncoder::new(&mut bytes);
        for operation in &operations {
            match &operation.crcs {
                Some(crcs) => encoder.push_data(operation.block, crcs),
                None => encoder.push_zero(operation.block, operation.blocks),
            }
        }
        encoder.finish(&header);
        bytes[at] = byte;
        forge("batch", &mut bytes);
        if let Ok(batch) = Batch::decode(&bytes) {
            for descriptor in batch.descriptors() {
                assert!(descriptor.block.0 + u64::from(descriptor.blocks) <= 1 << 40);
                assert!(descriptor.seq <= units::Seq::MAX);
            }
        }
    }
}

#[test]
fn hostile_counts_are_refused_without_allocating_for_them() {
    for (name, decode, sound, page) in decoders() {
        for offset in (12..sound.len().min(140)).step_by(4) {
            for value in [u32::MAX, 1 << 31, 0x00ff_ffff, 0] {
                let mut bytes = sound.clone();
                bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
                forge(name, &mut bytes);
                assert_survives(name, decode, &bytes, page);
            }
        }
    }
}
