//! Packs: round trips, damage, limits. Their stored bytes are a compressor's, which may differ from
//! release to release, so no example of those that are written is held fixed.

use hindsight_format::FormatErrorKind;
use hindsight_format::checksum::{block_crc, salted_crc};
use hindsight_format::pack::{
    PACK_BYTES_MAX, PACK_HEADER_BYTES, PACK_VERSIONS_MAX, Pack, PackDecoder, PackEncoder,
    PackEncoding, PackHeader, PackPlace, PackVersion, StoredPack,
};
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use units::Seq;

const PLACE: PackPlace = PackPlace { segment: 7, offset: 512, nonce: 3, timeline: 2 };
/// Where fields of the header are (docs/format/pack.md).
const VERSIONS_AT: usize = 14;
const STORED_BYTES_AT: usize = 28;
const STORED_CRC_AT: usize = 48;
const DIRECTORY_BYTES_AT: usize = 52;
const ENCODINGS: [PackEncoding; 2] = [PackEncoding::Delta, PackEncoding::Xor];

fn version(block: u64, seq: u64, content: &[u8]) -> PackVersion {
    PackVersion { block, seq: Seq(seq), crc: block_crc(content) }
}

/// Bytes that nobody compresses, another for each seed.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..4096).map(|_| next()).collect()
}

/// Versions of one block with such contents, the newest first.
fn pack_of(contents: &[Vec<u8>]) -> Pack {
    let mut pack = Pack::default();
    for (index, content) in contents.iter().enumerate() {
        pack.push(version(9, 1000 - index as u64, content), content);
    }
    pack
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
    PackDecoder::default().decode(&header, bytes)
}

fn open(bytes: &[u8]) -> Result<StoredPack, hindsight_format::FormatError> {
    let header = PackHeader::decode(bytes)?;
    PackDecoder::default().open(&header, bytes.to_vec())
}

/// The same pack with the checksums that its bytes have now.
fn with_its_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    let field = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
    };
    let stored = field(&bytes, STORED_BYTES_AT);
    let crc = block_crc(&bytes[PACK_HEADER_BYTES..][..stored]);
    bytes[STORED_CRC_AT..][..4].copy_from_slice(&crc.to_le_bytes());
    let covered = [&bytes[..8], &bytes[12..PACK_HEADER_BYTES]].concat();
    let crc = salted_crc(u32::from_le_bytes(*b"pack"), &covered);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
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
        let (stored, mut decoder) = (open(&bytes).expect("opened"), PackDecoder::default());
        let mut out = [0; 4096];
        for (version, block) in pack.iter() {
            let is_there = stored.read((version.block, version.seq), &mut decoder, &mut out);
            assert!(is_there.expect("sound") && out == block);
        }
        assert!(!stored.read((9, Seq(1)), &mut decoder, &mut out).expect("not there"));
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
        forged[VERSIONS_AT] = versions;
        let error = decode(&with_its_checksums(forged)).expect_err("another count");
        assert_eq!(error.kind, FormatErrorKind::Invalid, "{error}");
    }
    let mut forged = bytes.clone();
    forged[STORED_BYTES_AT] -= 1;
    let error = decode(&with_its_checksums(forged)).expect_err("less than its chains");
    assert_eq!(error.kind, FormatErrorKind::Invalid, "{error}");
    for change in [-1_i8, 1] {
        let mut forged = bytes.clone();
        let length = &mut forged[DIRECTORY_BYTES_AT];
        *length = length.wrapping_add_signed(change);
        let error = decode(&with_its_checksums(forged)).expect_err("another directory");
        assert_eq!(error.kind, FormatErrorKind::Invalid, "{error}");
    }
}

#[test]
fn versions_that_are_not_alike_are_kept_whole_and_not_as_differences() {
    let text = |seed: u64| {
        let words = ["static ", "int ", "return ", "struct ", "->lock;\n", "if (flags) ", "{\n"];
        let noise = noise(seed);
        let text: String = noise.iter().map(|byte| words[*byte as usize % 7]).collect();
        text.into_bytes()[..4096].to_vec()
    };
    let texts: Vec<_> = (1..9).map(text).collect();
    let bytes_of = |contents: &[Vec<u8>]| encode(&pack_of(contents), PackEncoding::Xor).len();
    let alone: usize = texts.iter().map(|text| bytes_of(std::slice::from_ref(text))).sum();
    let together = bytes_of(&texts);
    assert!(together < alone, "{together} bytes together, {alone} alone");
    assert!(together < 8 * 4096 / 2, "{together} bytes");
}

#[test]
fn what_was_shifted_is_found_by_delta() {
    let mut contents = vec![noise(7)];
    for index in 0..5 {
        let mut shifted = contents[index].clone();
        (0..9).for_each(|byte| shifted.insert(100 * index, byte));
        shifted.truncate(4096);
        contents.push(shifted);
    }
    let bytes = encode(&pack_of(&contents), PackEncoding::Delta);
    assert!(bytes.len() < 4096 + 5 * 128, "{} bytes", bytes.len());
    assert_eq!(decode(&bytes).expect("decoded"), pack_of(&contents));
}

#[test]
fn a_chain_is_decoded_without_the_others() {
    for encoding in ENCODINGS {
        let mut alike = noise(1);
        alike[7] ^= 1;
        let pack = pack_of(&[noise(1), alike, noise(2)]);
        let mut bytes = encode(&pack, encoding);
        let header = PackHeader::decode(&bytes).expect("a header");
        // The magic of the last frame, some 4,100 bytes before the end: as rot would not do it,
        // for the pack's checksum holds again.
        let end = PACK_HEADER_BYTES + header.stored_bytes;
        let magic = 0xfd2f_b528_u32.to_le_bytes();
        let at = (0..end - 4).rev().find(|&at| bytes[at..at + 4] == magic).expect("a frame");
        bytes[at] ^= 1;
        let bytes = with_its_checksums(bytes);
        let stored = open(&bytes).expect("its directory is sound");
        let mut decoder = PackDecoder::default();
        let mut out = [0; 4096];
        for (version, block) in pack.iter().take(2) {
            let is_there = stored.read((version.block, version.seq), &mut decoder, &mut out);
            assert!(is_there.expect("sound") && out == block, "{encoding:?}");
        }
        let read = stored.read((9, Seq(998)), &mut decoder, &mut out);
        assert_eq!(read.expect_err("a frame without magic").kind, FormatErrorKind::Invalid);
        assert!(stored.unpack(&mut decoder).is_err());
        assert!(!stored.read((9, Seq(997)), &mut decoder, &mut out).expect("not there"));
    }
}

#[test]
fn a_pack_of_what_does_not_compress_has_room() {
    for encoding in ENCODINGS {
        let mut pack = Pack::default();
        for index in 0..PACK_VERSIONS_MAX as u64 {
            let content = noise(index + 1);
            let block = (index << 34) | (index * index);
            pack.push(version(block, 1 << (16 + index), &content), &content);
        }
        let bytes = encode(&pack, encoding);
        assert!(bytes.len() > PACK_VERSIONS_MAX * 4096 && bytes.len() <= PACK_BYTES_MAX);
        assert_eq!(decode(&bytes).expect("decoded"), pack);
    }
}

/// Written by the program of 2026-11-30: (5, 90), (5, 80) and (7, 85), in one frame.
const OLD_DELTA: &str = "485041434b5645520171b96e0100030003000000000000000002000059010000\
     040000000000000005000000000000008345d67b000000000000000000000000\
     28b52ffd603c2f7d0a00e40d0500050007005a0050005500efe3c646d3dfe300\
     dc6e7e8705045a040706010003020d0c0f0e09080b0a15141716111013121d1c\
     1f1e19181b1a25242726212023222d2c2f2e29282b2a35343736313033323d3c\
     3f3e39383b3a050450040706010003020d0c0f0e09080b0a1514171611101312\
     1d1c1f1e19181b1a25242726212023222d2c2f2e29282b2a3534373631303332\
     3d3c3f3e39383b3a070655060504030201000f0e0d0c0b0a0908171615141312\
     11101f1e1d1c1b1a191827262524232221202f2e2d2c2b2a2928373635343332\
     31303f3e3d3c3b3a393880c99810f8ec670012b010fc3f83e01b82fd03244992\
     24254992242949922449499224494a9224497292244938061249922413499224\
     89499224494c92244962922449329324c9c8319048922499489224494c922449\
     629224491293244992992449468ec15224208104124820013200000000000000\
     0000000000000000000000000000000000000000000000000000000000000000";
const OLD_XOR: &str = "485041434b564552c51bd93c0200030003000000000000000002000004010000\
     04000000000000000500000000000000f54970e4000000000000000000000000\
     28b52ffd603c2fd50700f4090500050007005a0050005500efe3c646d3dfe300\
     dc6e7e8705045a040706010003020d0c0f0e09080b0a15141716111013121d1c\
     1f1e19181b1a25242726212023222d2c2f2e29282b2a35343736313033323d3c\
     3f3e39383b3a000a00070655060504030201000f0e0d0c0b0a09081716151413\
     1211101f1e1d1c1b1a191827262524232221202f2e2d2c2b2a29283736353433\
     3231303f3e3d3c3b3a3938808a9810f0d6cf0012d010fc3f83e01b82ed97cd24\
     4992912449449224214992982449229224114992c4244922f59111db976f0544\
     9224124912492449649224924892482249249324914c92489226bbc4690476ae\
     59d8e90e00000000000000000000000000000000000000000000000000000000\
     0000000000000000000000000000000000000000000000000000000000000000";

#[test]
fn packs_of_one_frame_are_still_read() {
    for (text, encoding) in
        [(OLD_DELTA, PackEncoding::DeltaInOne), (OLD_XOR, PackEncoding::XorInOne)]
    {
        let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
        let bytes: Vec<u8> = (0..text.len()).step_by(2).map(byte).collect();
        assert_eq!(PackHeader::decode(&bytes).expect("a header").encoding, encoding);
        let mut expected = Pack::default();
        for (block, seq) in [(5, 90), (5, 80), (7, 85)] {
            let mut content: Vec<u8> = (0..4096).map(|i| (i / 64) as u8 ^ block as u8).collect();
            content[100] = seq as u8;
            expected.push(version(block, seq, &content), &content);
        }
        assert_eq!(decode(&bytes).expect("decoded"), expected);
        let stored = open(&bytes).expect("opened");
        for (version, block) in expected.iter() {
            let (named, mut out) = ((version.block, version.seq), [0; 4096]);
            let is_there = stored.read(named, &mut PackDecoder::default(), &mut out);
            assert!(is_there.expect("sound") && out == block);
        }
        let used = PACK_HEADER_BYTES + PackHeader::decode(&bytes).expect("a header").stored_bytes;
        for bit in 0..used * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged).is_err(), "bit {bit} flipped and not seen");
        }
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
