//! What is encoded comes back when it is decoded.

use hindsight_format::batch::{
    Batch, BatchEncoder, BatchHeader, BatchKind, DescriptorKind, header_bytes, peek_header_bytes,
};
use hindsight_format::map::{LEAF_ENTRIES_MAX, LeafBuilder, LeafPage};
use hindsight_format::run::{IndexEntry, IndexPage, RunFooter};
use hindsight_format::segment::SegmentHeader;
use hindsight_format::superblock::Superblock;
use hindsight_format::time::TimePage;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use units::Seq;

use crate::{examples, values};

fn encode_batch(header: &BatchHeader, operations: &[values::Operation]) -> Vec<u8> {
    let mut bytes = vec![0xee; 3];
    let mut encoder = BatchEncoder::new(&mut bytes);
    for values::Operation { seq, block, blocks, crcs } in operations {
        match (header.kind, crcs) {
            (BatchKind::Writes, Some(crcs)) => encoder.push_data(*block, crcs),
            (BatchKind::Writes, None) => encoder.push_zero(*block, *blocks),
            (BatchKind::Relocated, Some(crcs)) => {
                encoder.push_relocated(*block, *seq, crcs[0]);
            }
            (BatchKind::Relocated, None) => {
                encoder.push_relocated_zero(*block, *blocks, *seq);
            }
            (BatchKind::Shared, _) => unreachable!("shared batches have a test of their own"),
        }
    }
    let sizes = encoder.finish(header);
    assert_eq!(bytes.len(), 3 + sizes.header_bytes as usize);
    let blocks = operations.iter().filter_map(|op| op.crcs.as_ref()).map(Vec::len).sum();
    assert_eq!(sizes.header_bytes, header_bytes(header.kind, operations.len(), blocks));
    assert_eq!(sizes.payload_bytes as usize, blocks * 4096);
    bytes.split_off(3)
}

fn assert_round_trip(header: &BatchHeader, operations: &[values::Operation]) {
    let mut bytes = encode_batch(header, operations);
    assert_eq!(peek_header_bytes(&bytes[..96]).expect("a header"), bytes.len() as u32);
    let header_bytes = bytes.len() as u32;
    bytes.extend_from_slice(b"what follows is not looked at");
    let batch = Batch::decode(&bytes).expect("a sound batch");
    assert_eq!(batch.header, *header);
    assert_eq!(batch.descriptors().len(), operations.len());
    let mut payload_offset = header_bytes;
    for (i, (found, expected)) in batch.descriptors().zip(operations).enumerate() {
        let seq = match header.kind {
            BatchKind::Writes => Seq(header.base_seq.0 + i as u64),
            BatchKind::Relocated | BatchKind::Shared => expected.seq,
        };
        assert_eq!(found.seq, seq);
        assert_eq!((found.block.0, found.blocks), (expected.block, expected.blocks));
        assert_eq!(found.kind == DescriptorKind::Data, expected.crcs.is_some());
        assert_eq!(found.crcs().collect::<Vec<_>>(), expected.crcs.clone().unwrap_or_default());
        assert_eq!(found.payload_offset, payload_offset);
        payload_offset += found.crcs().len() as u32 * 4096;
    }
    assert_eq!(batch.total_bytes(), payload_offset);
}

#[test]
fn a_shared_batch_has_one_block_under_all_its_names() {
    let mut bytes = examples::batch_of_a_shared_block();
    let header_bytes = bytes.len() as u32;
    let batch = Batch::decode(&bytes).expect("a sound batch");
    assert_eq!((batch.header_bytes, batch.payload_bytes), (header_bytes, 4096));
    let names: Vec<_> = batch.descriptors().map(|d| (d.timeline, d.block.0, d.seq)).collect();
    assert_eq!(names, [(3, 9, Seq(55)), (4, 70, Seq(61))]);
    assert!(batch.descriptors().all(|d| d.payload_offset == header_bytes && d.blocks == 1));
    // Names that disagree on what the block is.
    let (mut other, mut sizes) = (Vec::new(), Vec::new());
    for crcs in [[7, 7], [7, 8]] {
        other.clear();
        let mut encoder = BatchEncoder::new(&mut other);
        encoder.push_shared(1, Seq(1), 1, crcs[0]);
        encoder.push_shared(2, Seq(1), 1, crcs[1]);
        sizes.push(encoder.finish(&examples::batch_header(BatchKind::Shared)));
        assert_eq!(Batch::decode(&other).is_ok(), crcs[0] == crcs[1]);
    }
    assert_eq!(sizes[0], sizes[1]);
    bytes.truncate(64);
    Batch::decode(&bytes).expect_err("half a header");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_superblock_comes_back_from_each_copy(value in values::superblock(), copy in 0..4_usize) {
        prop_assert_eq!(Superblock::decode(&value.encode(copy)[..], copy), Ok(value));
    }

    #[test]
    fn a_segment_header_comes_back(value in values::segment()) {
        prop_assert_eq!(SegmentHeader::decode(&value.encode()), Ok(value));
    }

    #[test]
    fn a_batch_of_writes_comes_back(
        header in values::batch_header(BatchKind::Writes), operations in values::operations(false),
    ) {
        assert_round_trip(&header, &operations);
    }

    #[test]
    fn a_batch_of_relocated_writes_comes_back(
        header in values::batch_header(BatchKind::Relocated),
        operations in values::operations(true),
    ) {
        assert_round_trip(&header, &operations);
    }

    #[test]
    fn a_leaf_comes_back_and_is_searched_as_a_list_is(
        entries in values::entries(184), address in values::address(),
        key in values::key(), seq in values::seq(), pick in any::<proptest::sample::Index>(),
    ) {
        let page = LeafPage::decode(LeafPage::encode(address, &entries), address).expect("sound");
        let found: Vec<_> = (0..page.len()).map(|i| page.get(i)).collect();
        prop_assert_eq!(&found, &entries);
        let picked = entries[pick.index(entries.len())];
        for (key, seq) in [(key, seq), (picked.key, picked.seq), (picked.key, seq)] {
            let place = (key, std::cmp::Reverse(seq));
            let expected = entries.iter().position(|entry| entry.order() >= place);
            prop_assert_eq!(page.seek(key, seq), expected.unwrap_or(entries.len()));
        }
    }

    #[test]
    fn what_a_builder_takes_comes_back_and_is_searched_as_a_list_is(
        entries in prop_oneof![values::writes(), values::entries(400)],
        extent in values::extent(), address in values::address(), key in values::key(),
        seq in values::seq(), pick in any::<proptest::sample::Index>(),
    ) {
        let mut builder = LeafBuilder::new(extent);
        let taken = entries.iter().take_while(|entry| builder.push(**entry)).count();
        prop_assert!(taken == entries.len() || taken >= LEAF_ENTRIES_MAX, "{} taken", taken);
        prop_assert_eq!(builder.first(), entries.first());
        let page = LeafPage::decode(builder.finish(address), address).expect("sound");
        let found: Vec<_> = (0..page.len()).map(|i| page.get(i)).collect();
        prop_assert_eq!(&found, &entries[..taken]);
        let picked = entries[pick.index(taken)];
        for (key, seq) in [(key, seq), (picked.key, picked.seq), (picked.key, seq)] {
            let place = (key, std::cmp::Reverse(seq));
            let expected = found.iter().position(|entry| entry.order() >= place);
            prop_assert_eq!(page.seek(key, seq), expected.unwrap_or(taken));
        }
        if let Some(next) = entries.get(taken) {
            prop_assert!(builder.push(*next), "the next page begins empty");
            let page = LeafPage::decode(builder.finish(address), address).expect("sound");
            prop_assert_eq!((page.len(), page.get(0)), (1, *next));
        }
    }

    #[test]
    fn an_index_page_comes_back_after_those_before_it(
        entries in values::entries(338), address in values::address(),
    ) {
        let all: Vec<_> =
            entries.iter().map(|entry| IndexEntry { key: entry.key, seq: entry.seq }).collect();
        let (before, these) = all.split_at(all.len() / 2);
        let mut index = before.to_vec();
        IndexPage::decode(&IndexPage::encode(address, these), address, &mut index).expect("sound");
        prop_assert_eq!(index, all);
    }

    #[test]
    fn a_footer_comes_back(
        timeline in any::<u64>(), leaf_pages in 1..u32::MAX / 2, rest in 0..184_u64,
        extent in values::extent(),
        a in values::key(), b in values::key(), c in values::seq(), d in values::seq(),
        index_crc in any::<u32>(), address in values::address(),
    ) {
        let index_pages = leaf_pages.div_ceil(338);
        let address = address.with_page(leaf_pages + index_pages);
        let footer = RunFooter {
            timeline,
            leaf_pages,
            index_pages,
            entries: u64::from(leaf_pages) * (184 - rest),
            key_first: a.min(b),
            key_last: a.max(b),
            seq_first: c.min(d),
            seq_last: c.max(d),
            index_crc,
            extent,
        };
        prop_assert_eq!(RunFooter::decode(&footer.encode(address), address), Ok(footer));
    }

    #[test]
    fn a_time_page_comes_back(
        entries in values::time_entries(), address in values::address(),
    ) {
        let page = TimePage::decode(TimePage::encode(address, &entries), address).expect("sound");
        let found: Vec<_> = (0..page.len()).map(|i| page.get(i)).collect();
        prop_assert_eq!(&found, &entries);
    }
}
