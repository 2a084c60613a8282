//! Packs: round trips, damage, limits. Their stored bytes are a compressor's, which may differ from
//! release to release, so no example of them is held fixed.

use hindsight_format::FormatErrorKind;
use hindsight_format::checksum::{block_crc, salted_crc};
use hindsight_format::pack::{
    PACK_HEADER_BYTES, PACK_VERSIONS_MAX, Pack, PackDecoder, PackEncoder, PackEncoding, PackHeader,
    PackPlace, PackVersion,
};
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use units::Seq;

const PLACE: PackPlace = PackPlace { segment: 7, offset: 512, nonce: 3, timeline: 2 };
const ENCODINGS: [PackEncoding; 2] = [PackEncoding::Delta, PackEncoding::Xor];

fn version(block: u64, seq: u64, content: &[u8]) -> PackVersion {
    PackVersion { block, seq: Seq(seq), crc: block_crc(content) }
}

/// Versions of some blocks, each a few bytes different from the one before.
fn pack(versions: usize, per_block: usize, salt: u8) -> Pack {
    let mut pack = Pack::default();
    let mut content: Vec<u8> = (0..4096_u32).map(|i| (i * 7 / 3) as u8 ^ salt).collect();
    for index in 0..versions {
        content[index * 97 % 4096] ^= 0x55;
        let block = 9 + (index / per_block) as u64;
        let seq = 1000 - index as u64;
        pack.push(version(block, seq, &content), &content);
    }
    pack
}

fn decode(bytes: &[u8]) -> Result<Pack, hindsight_format::FormatError> {
    let header = PackHeader::decode(bytes)?;
    PackDecoder::default().decode(&header, &bytes[PACK_HEADER_BYTES..])
}

fn encode(pack: &Pack, encoding: PackEncoding) -> Vec<u8> {
    PackEncoder::default().encode(pack, PLACE, encoding).expect("encoded")
}

#[test]
fn a_full_pack_comes_back_in_a_fraction_of_its_bytes() {
    for encoding in ENCODINGS {
        let pack = pack(PACK_VERSIONS_MAX, 16, 0);
        let bytes = encode(&pack, encoding);
        assert!(bytes.len() < 4096, "{encoding:?}: {} bytes", bytes.len());
        let header = PackHeader::decode(&bytes).expect("a header");
        assert_eq!((header.place, header.encoding), (PLACE, encoding));
        assert_eq!(header.total_bytes(), bytes.len());
        let again = decode(&bytes).expect("decoded");
        assert_eq!(again, pack);
        for (version, block) in pack.iter() {
            assert_eq!(again.find(version.block, version.seq), Some(block));
        }
        assert_eq!(again.find(9, Seq(1)), None);
    }
}

#[test]
fn every_flipped_bit_is_an_error() {
    for encoding in ENCODINGS {
        let bytes = encode(&pack(5, 2, 1), encoding);
        let used = PACK_HEADER_BYTES + PackHeader::decode(&bytes).expect("a header").stored_bytes;
        for bit in 0..used * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged).is_err(), "bit {bit} flipped and not seen");
        }
        for length in 0..used {
            assert!(decode(&bytes[..length]).is_err(), "{length} bytes pass for a pack");
        }
    }
}

#[test]
fn a_sound_frame_of_other_sizes_is_refused() {
    let bytes = encode(&pack(5, 2, 1), PackEncoding::Xor);
    for versions in [0, 1, 4, 6, 32, 33] {
        let mut forged = bytes.clone();
        forged[14] = versions;
        let covered = [&forged[..8], &forged[12..PACK_HEADER_BYTES]].concat();
        let crc = salted_crc(u32::from_le_bytes(*b"pack"), &covered);
        forged[8..12].copy_from_slice(&crc.to_le_bytes());
        let error = decode(&forged).expect_err("another count");
        assert_eq!(error.kind, FormatErrorKind::Invalid, "{error}");
    }
}

#[test]
#[should_panic(expected = "versions in the order of map entries")]
fn versions_out_of_order_are_our_mistake() {
    let mut pack = pack(2, 2, 0);
    let content = [1; 4096];
    pack.push(version(9, 2000, &content), &content);
}

#[test]
#[should_panic(expected = "the version's block")]
fn a_block_of_another_checksum_is_our_mistake() {
    let mut pack = Pack::default();
    pack.push(version(9, 1, &[1; 4096]), &[2; 4096]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_pack_comes_back(
        versions in 1..=PACK_VERSIONS_MAX, per_block in 1..40_usize, salt in any::<u8>(),
        xor in any::<bool>(),
    ) {
        let pack = pack(versions, per_block, salt);
        let encoding = ENCODINGS[usize::from(xor)];
        let bytes = encode(&pack, encoding);
        prop_assert!(bytes.len().is_multiple_of(64));
        prop_assert_eq!(decode(&bytes).expect("decoded"), pack);
    }

    #[test]
    fn random_bytes_are_errors(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
        prop_assert!(decode(&bytes).is_err());
    }
}
