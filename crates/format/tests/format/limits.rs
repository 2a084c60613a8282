//! Every limit of the formats, at the limit and beyond.

use hindsight_format::batch::{Batch, BatchEncoder, BatchKind, header_bytes, peek_header_bytes};
use hindsight_format::location::SEGMENT_BYTES_MAX;
use hindsight_format::map::{Entry, Key, LEAF_ENTRIES_MAX, LeafPage};
use hindsight_format::segment::SegmentHeader;
use hindsight_format::superblock::{
    CATALOGUE_ZONES_MAX, COPY_OFFSETS, Superblock, copies_of_generation,
};
use units::{Lba, Seq};

use crate::examples;

#[test]
fn a_superblock_holds_as_many_catalogue_zones_as_it_says() {
    let mut superblock = examples::superblock();
    superblock.catalogue_zones = (1..=CATALOGUE_ZONES_MAX as u32).collect();
    superblock.catalogue_bytes = superblock.zone_bytes * CATALOGUE_ZONES_MAX as u64;
    assert_eq!(Superblock::decode(&superblock.encode(0)[..], 0), Ok(superblock));
}

#[test]
#[should_panic(expected = "at most 992 catalogue zones")]
fn a_superblock_with_one_zone_more_is_our_mistake() {
    let mut superblock = examples::superblock();
    superblock.catalogue_zones = (1..=CATALOGUE_ZONES_MAX as u32 + 1).collect();
    let _ = superblock.encode(0);
}

#[test]
#[should_panic(expected = "each catalogue zone once")]
fn a_superblock_that_names_a_zone_twice_is_our_mistake() {
    let mut superblock = examples::superblock();
    superblock.catalogue_zones = vec![3, 4, 3];
    let _ = superblock.encode(0);
}

#[test]
fn two_generations_in_a_row_never_share_a_copy() {
    for generation in 0..9 {
        let (now, next) = (copies_of_generation(generation), copies_of_generation(generation + 1));
        assert!(now.iter().all(|copy| !next.contains(copy) && *copy < COPY_OFFSETS.len()));
    }
}

#[test]
fn a_segment_of_the_largest_number_comes_back() {
    let mut segment = examples::segment();
    segment.segment = (1 << 29) - 1;
    assert_eq!(SegmentHeader::decode(&segment.encode()), Ok(segment));
}

#[test]
#[should_panic(expected = "segment 1 to 2^29 - 1")]
fn a_segment_number_beyond_the_largest_is_our_mistake() {
    let mut segment = examples::segment();
    segment.segment = 1 << 29;
    let _ = segment.encode();
}

#[test]
fn a_batch_fills_its_segment_to_the_last_byte() {
    let blocks = 8100;
    let header_bytes = header_bytes(BatchKind::Writes, 1, blocks);
    let mut header = examples::batch_header(BatchKind::Writes);
    header.offset = SEGMENT_BYTES_MAX - header_bytes - blocks as u32 * 4096;
    header.base_seq = Seq::MAX;
    let mut bytes = Vec::new();
    let mut encoder = BatchEncoder::new(&mut bytes);
    encoder.push_data((1 << 40) - blocks as u64, &vec![7; blocks]);
    let sizes = encoder.finish(&header);
    assert_eq!(header.offset + sizes.total(), SEGMENT_BYTES_MAX);
    let batch = Batch::decode(&bytes).expect("sound");
    assert_eq!(batch.descriptors().last().expect("one").seq, Seq::MAX);
    assert_eq!(peek_header_bytes(&bytes).expect("sound"), sizes.header_bytes);
}

#[test]
#[should_panic(expected = "a batch within 32 MiB of its segment")]
fn a_batch_that_reaches_beyond_its_segment_is_our_mistake() {
    let mut header = examples::batch_header(BatchKind::Writes);
    header.offset = SEGMENT_BYTES_MAX - 4096;
    let mut bytes = Vec::new();
    let mut encoder = BatchEncoder::new(&mut bytes);
    encoder.push_data(0, &[0]);
    encoder.finish(&header);
}

#[test]
#[should_panic(expected = "one kind of descriptors in a batch")]
fn a_batch_of_both_kinds_is_our_mistake() {
    let mut bytes = Vec::new();
    let mut encoder = BatchEncoder::new(&mut bytes);
    encoder.push_data(0, &[0]);
    encoder.push_relocated(1, Seq(1), 0);
}

#[test]
#[should_panic(expected = "2 blocks at 1099511627775")]
fn a_write_beyond_the_last_block_is_our_mistake() {
    BatchEncoder::new(&mut Vec::new()).push_zero((1 << 40) - 1, 2);
}

#[test]
fn a_warm_encoder_does_not_allocate() {
    let mut bytes = Vec::with_capacity(4096);
    let before = bytes.as_ptr();
    for _ in 0..100 {
        bytes.clear();
        let mut encoder = BatchEncoder::new(&mut bytes);
        encoder.push_data(5, &[1; 700]);
        encoder.finish(&examples::batch_header(BatchKind::Writes));
    }
    assert_eq!((bytes.as_ptr(), bytes.capacity()), (before, 4096));
}

#[test]
fn a_leaf_holds_its_most_entries_with_the_largest_values() {
    let entry = |i: u64| Entry::hole(Key::block(Lba((1 << 40) - 200 + i)), Seq::MAX);
    let mut entries: Vec<Entry> = (0..LEAF_ENTRIES_MAX as u64 - 1).map(entry).collect();
    entries.push(Entry::hole(Key { level: 4, index: 15 }, Seq::MAX));
    let address = examples::page(u32::MAX);
    let page = LeafPage::decode(LeafPage::encode(address, &entries), address).expect("sound");
    assert_eq!(page.get(LEAF_ENTRIES_MAX - 1), entries[LEAF_ENTRIES_MAX - 1]);
}

#[test]
#[should_panic(expected = "entries in order")]
fn entries_with_rising_seqs_of_one_key_are_our_mistake() {
    let key = Key::block(Lba(1));
    let entries = [Entry::hole(key, Seq(1)), Entry::hole(key, Seq(2))];
    let _ = LeafPage::encode(examples::page(0), &entries);
}

#[test]
fn a_nonce_tells_the_segment_it_is_of_to_those_who_know_the_secret() {
    use hindsight_format::segment::{is_nonce_of, nonce};
    let secret = 0x0123_4567_89ab_cdef;
    let found = nonce(secret, 7, 0xdead_beef);
    assert_eq!(found, 0xdead_beef_7a51_f08c, "as the page says");
    assert!(is_nonce_of(secret, 7, found));
    let others = [(secret, 8, found), (secret + 1, 7, found), (secret, 7, found ^ 1)];
    assert!(others.iter().all(|&(secret, segment, nonce)| !is_nonce_of(secret, segment, nonce)));
}
