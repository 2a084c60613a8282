//! Clotho's figure on a small volume: what is compacted, what it saves, and what reading it takes.

use hindsight_load::compaction::compact;
use lab::experiment::CompactionAsked;

const PAGES: u64 = 1024;
const VERSION_BYTES: u64 = PAGES * 4096;

#[test]
fn a_compacted_version_takes_little_space_and_no_more_reads_than_the_paper_says() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut space = Vec::new();
    for share_percent in [0, 50, 100] {
        let asked = CompactionAsked { share_percent, pages: PAGES, reads: 500, seed: 1 };
        let found = compact(dir.path(), asked).expect("it runs");
        // Runs of 64 pages: 16 of them, of which this many are alike.
        let alike = (0..16).filter(|run| run * 37 % 100 < share_percent).count() as u64 * 64;
        assert_eq!((found.packed, found.raw), (alike, PAGES - alike), "{found:?}");
        let saved = found.raw_bytes - found.bytes;
        space.push(1.0 - saved as f64 / VERSION_BYTES as f64);
        assert!(saved <= alike * 4096, "{found:?}");
        assert!(saved * 10 >= alike * 4096 * 9, "{found:?}");
        let (raw, compacted) = (found.raw_reads, found.reads);
        // And a few of the map.
        assert!((1.0..1.05).contains(&raw.device_reads), "one read a page: {found:?}");
        assert!(compacted.device_reads <= 2.0 * raw.device_reads, "{found:?}");
        assert!(raw.seconds > 0.0 && compacted.seconds > 0.0, "{found:?}");
    }
    assert!(space[0] == 1.0 && space[2] < 0.1, "{space:?}");
    assert!(space.windows(2).all(|pair| pair[0] > pair[1]), "{space:?}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0, "nothing stays");
}
