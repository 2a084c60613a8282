//! The values whose bytes the pages in `docs/format/` show.

use hindsight_format::batch::{BatchEncoder, BatchHeader, BatchKind};
use hindsight_format::checksum::{ZERO_BLOCK_CRC, block_crc};
use hindsight_format::crypt::CryptHeader;
use hindsight_format::label::{Label, Member, MemberStanding, Regions};
use hindsight_format::map::{Entry, Key, LeafBuilder, LeafPage};
use hindsight_format::parity::{Entry as ParityEntry, Pending, Record};
use hindsight_format::run::{IndexEntry, IndexPage, RunFooter};
use hindsight_format::segment::SegmentHeader;
use hindsight_format::superblock::Superblock;
use hindsight_format::time::{TimeEntry, TimePage};
use hindsight_format::{Location, PageAddress};
use units::{Lba, MapExtent, Seq, WallTime};

pub const POOL_ID: u128 = 0x0f1e_2d3c_4b5a_6978_8796_a5b4_c3d2_e1f0;
/// 2026-11-21T10:00:00Z.
pub const TIME: WallTime = WallTime::from_nanos(1_795_255_200_000_000_000);

pub fn superblock() -> Superblock {
    Superblock {
        format_version: 1,
        features_compatible: 0,
        features_read_only: 0,
        features_incompatible: 0,
        pool_id: POOL_ID,
        generation: 3,
        zone_bytes: 32 << 20,
        device_bytes: 64 << 30,
        created: TIME,
        secret: 0x0123_4567_89ab_cdef,
        catalogue_bytes: 5 << 20,
        catalogue_zones: vec![1, 44],
    }
}

pub fn label() -> Label {
    let member = |id, standing, out_generation, path: &str| Member {
        id,
        data_bytes: 1 << 30,
        out_generation,
        standing,
        path: path.to_owned(),
    };
    Label {
        array_id: POOL_ID,
        member_id: 7,
        generation: 5,
        created: TIME,
        region_bytes: 1 << 25,
        stack: "mirror(0, 1)".to_owned(),
        members: vec![
            member(7, MemberStanding::In, 0, "/dev/disk/by-id/a"),
            member(9, MemberStanding::Out, 5, "b.img"),
            member(11, MemberStanding::Spare, 0, "c.img"),
        ],
    }
}

pub fn regions() -> Regions {
    let mut regions = Regions::new(POOL_ID, 64);
    regions.open[3] = 5;
    regions.used[3] = 7;
    regions
}

pub fn segment() -> SegmentHeader {
    SegmentHeader {
        pool_id: POOL_ID,
        segment: 7,
        zone: 3,
        log: 2,
        nonce: 0xfeed_beef_0bad_cafe,
        created: TIME,
        first_seq: Seq(121),
    }
}

pub fn batch_header(kind: BatchKind) -> BatchHeader {
    BatchHeader {
        segment: 7,
        offset: 512,
        kind,
        nonce: 0xfeed_beef_0bad_cafe,
        timeline: 2,
        time: TIME,
        base_seq: Seq(121),
        stable_seq: Seq(100),
        durable_seq: Seq(98),
        flush_count: 5,
    }
}

pub fn batch_of_writes() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = BatchEncoder::new(&mut bytes);
    encoder.push_data(9, &[block_crc(&[0xa5; 4096]), ZERO_BLOCK_CRC]);
    encoder.push_zero(4096, 8);
    encoder.finish(&batch_header(BatchKind::Writes));
    bytes
}

pub fn batch_of_relocated_blocks() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = BatchEncoder::new(&mut bytes);
    encoder.push_relocated(9, Seq(55), block_crc(&[0x5a; 4096]));
    encoder.finish(&batch_header(BatchKind::Relocated));
    bytes
}

pub fn batch_of_a_shared_block() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = BatchEncoder::new(&mut bytes);
    let crc = block_crc(&[0x5a; 4096]);
    encoder.push_shared(9, Seq(55), 3, crc);
    encoder.push_shared(70, Seq(61), 4, crc);
    let header = BatchHeader { timeline: 0, ..batch_header(BatchKind::Shared) };
    encoder.finish(&header);
    bytes
}

pub fn page(page: u32) -> PageAddress {
    PageAddress::new(POOL_ID, 12, page)
}

pub fn entries() -> Vec<Entry> {
    let crc = |byte| block_crc(&[byte; 4096]);
    vec![
        Entry::data(Lba(9), Seq(121), Location::new(7, 640), crc(0xa5)),
        Entry::data(Lba(9), Seq(55), Location::new(6, 1024), crc(0x5a)),
        Entry {
            location: Location::hole_in(7),
            ..Entry::hole(Key { level: 1, index: 8 }, Seq(123))
        },
    ]
}

pub fn leaf() -> Box<[u8; 4096]> {
    LeafPage::encode(page(0), &entries())
}

pub fn index_entries() -> Vec<IndexEntry> {
    vec![IndexEntry { key: entries()[0].key, seq: entries()[0].seq }]
}

pub fn index() -> Box<[u8; 4096]> {
    IndexPage::encode(page(1), &index_entries())
}

pub fn footer() -> RunFooter {
    RunFooter {
        timeline: 2,
        leaf_pages: 1,
        index_pages: 1,
        entries: 3,
        key_first: entries()[0].key,
        key_last: entries()[2].key,
        seq_first: Seq(55),
        seq_last: Seq(123),
        index_crc: block_crc(&index()[..]),
        extent: MapExtent::BLOCK,
    }
}

/// Blocks 8 to 10 of one write, of which block 9 was written again, moved with its neighbours; and
/// the trim.
pub fn extent_entries() -> Vec<Entry> {
    let crc = |byte| block_crc(&[byte; 4096]);
    vec![
        Entry::data(Lba(8), Seq(55), Location::new(6, 1024), crc(0x5a)),
        Entry::data(Lba(9), Seq(121), Location::new(7, 640), crc(0xa5)),
        Entry::data(Lba(10), Seq(55), Location::new(6, 9216), crc(0x5a)),
        entries()[2],
    ]
}

pub fn extent_leaf() -> Box<[u8; 4096]> {
    let extent = MapExtent::try_from(32 << 10).expect("an extent");
    let mut builder = LeafBuilder::new(extent);
    assert!(extent_entries().into_iter().all(|entry| builder.push(entry)));
    builder.finish(page(0))
}

pub fn time_entries() -> Vec<TimeEntry> {
    let later = WallTime::from_nanos(TIME.as_nanos() + 60_000_000_000);
    vec![
        TimeEntry { time: TIME, seq: Seq(121), bytes_total: 987_136, flushes_total: 5 },
        TimeEntry { time: later, seq: Seq(400), bytes_total: 2_129_920, flushes_total: 9 },
    ]
}

pub fn time_page() -> Box<[u8; 4096]> {
    TimePage::encode(page(0), &time_entries())
}

pub fn parity_record() -> Record {
    let entry = |side: u16, cells| ParityEntry {
        offset: 262_144 + 8192 * u64::from(side),
        cells_crc: block_crc(&vec![0x5a; usize::from(cells) * 4096]),
        cells,
        side,
    };
    let entries = vec![entry(0, 1), entry(2, 2)];
    Record { id: POOL_ID, sequence: 7, epoch: 5, entries, differences: vec![entry(1, 1)] }
}

pub fn pending_entry() -> Pending {
    let bytes = b"waits".to_vec();
    Pending { id: POOL_ID, epoch: 5, index: 3, offset: 70_000, before: 0, bytes }
}

pub fn crypt_header() -> CryptHeader {
    let bytes = |first: u8| move |i: usize| first + u8::try_from(i).expect("less than 72");
    CryptHeader {
        sectors: 4096,
        salt: std::array::from_fn(bytes(0x20)),
        wrapped_key: std::array::from_fn(bytes(0x80)),
    }
}
