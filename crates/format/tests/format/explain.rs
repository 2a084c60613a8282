//! The texts that `inspect` prints.

use hindsight_format::batch::Batch;
use hindsight_format::map::LeafPage;
use hindsight_format::run::IndexPage;
use hindsight_format::time::TimePage;

use crate::examples;

#[test]
fn a_superblock_is_explained_without_its_secret() {
    let text = examples::superblock().explain();
    assert!(text.contains("  catalogue_zones       [1, 44]\n"), "{text}");
    assert!(text.contains("  pool_id               0f1e2d3c4b5a69788796a5b4c3d2e1f0\n"), "{text}");
    assert!(!text.contains("123456789abcdef"), "{text}");
}

#[test]
fn a_segment_header_is_explained() {
    let text = "\
segment 7
  pool_id               0f1e2d3c4b5a69788796a5b4c3d2e1f0
  zone                  3
  log                   2
  nonce                 0xfeedbeef0badcafe
  created               1795255200000000000 ns
  first_seq             121
  voids                 101 to 120
";
    assert_eq!(examples::segment().explain(), text);
}

#[test]
fn a_batch_is_explained_with_its_operations() {
    let text = "\
batch at 512 of segment 7
  kind                  writes
  header_bytes          192
  payload_bytes         8192
  nonce                 0xfeedbeef0badcafe
  timeline              2
  time                  1795255200000000000 ns
  base_seq              121
  stable_seq            100
  durable_seq           98
  flush_count           5
  seq 121               data, blocks 9 + 2
  seq 122               zero, blocks 4096 + 8
";
    assert_eq!(Batch::decode(&examples::batch_of_writes()).expect("sound").explain(), text);
}

#[test]
fn a_leaf_is_explained_entry_by_entry() {
    let page = LeafPage::decode(examples::leaf(), examples::page(0)).expect("sound");
    let text = page.explain();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "leaf page of 3 entries");
    assert!(lines[1].starts_with("  block 9, seq 121: segment 7 + 640, crc 0x"), "{text}");
    assert_eq!(lines[3], "  blocks 4096 + 512, seq 123: hole of segment 7, crc 0x00000000");
}

#[test]
fn an_extent_leaf_is_explained_record_by_record() {
    let page = LeafPage::decode(examples::extent_leaf(), examples::page(0)).expect("sound");
    let text = page.explain();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "extent leaf page of 4 entries in 3 records");
    let first = "  block 8, seq 121: segment 7 + 640, mask 0x0002, stride extent, 0x";
    assert!(lines[1].starts_with(first), "{text}");
    let second = "  block 8, seq 55: segment 6 + 1024, mask 0x0005, stride extent, 0x";
    assert!(lines[2].starts_with(second), "{text}");
    assert_eq!(lines[3], "  blocks 4096 + 512, seq 123: hole of segment 7");
}

#[test]
fn an_index_a_footer_and_a_time_page_are_explained() {
    let text = IndexPage::explain(&examples::index_entries(), 0);
    assert_eq!(text, "index of 1 leaves\n  leaf 0: from block 9, seq 121\n");
    let text = examples::footer().explain();
    assert!(text.contains("  key_last              blocks 4096 + 512\n"), "{text}");
    let page = TimePage::decode(examples::time_page(), examples::page(0)).expect("sound");
    let text = page.explain();
    let line = "  1795255200000000000 ns: seq 121, 987136 bytes, 5 flushes";
    assert_eq!(text.lines().nth(1), Some(line));
}

#[test]
fn a_label_is_explained_with_its_members() {
    let text = examples::label().explain();
    assert!(text.contains("stack                 mirror(0, 1)"), "{text}");
    assert!(text.contains("out, 1073741824 bytes, put out by generation 5, b.img"), "{text}");
}
