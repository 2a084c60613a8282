//! Arbitrary values of every structure.

use hindsight_format::batch::{BatchHeader, BatchKind};
use hindsight_format::location::{SEGMENT_BYTES_MAX, SEGMENT_NUMBER_MAX};
use hindsight_format::map::{Entry, Key};
use hindsight_format::segment::SegmentHeader;
use hindsight_format::superblock::{CATALOGUE_ZONES_MAX, Superblock};
use hindsight_format::time::TimeEntry;
use hindsight_format::{Location, PageAddress};
use proptest::collection::{btree_set, vec};
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use units::{Lba, MapExtent, Seq, WallTime};

pub fn seq() -> impl Strategy<Value = Seq> + Clone {
    prop_oneof![1..100_u64, 1..=Seq::MAX.0, Just(Seq::MAX.0)].prop_map(Seq)
}

pub fn time() -> impl Strategy<Value = WallTime> + Clone {
    any::<u64>().prop_map(WallTime::from_nanos)
}

pub fn location() -> impl Strategy<Value = Location> {
    (1..=SEGMENT_NUMBER_MAX, 1..SEGMENT_BYTES_MAX / 64)
        .prop_map(|(segment, units)| Location::new(segment, units * 64))
}

pub fn superblock() -> impl Strategy<Value = Superblock> {
    let zones = btree_set(1..5000_u32, 0..=CATALOGUE_ZONES_MAX);
    let generation = 0..=1_u64 << 62;
    let numbers = (any::<u64>(), any::<u64>(), any::<u128>(), generation, any::<u64>());
    (18..=25_u32, zones, numbers, time(), any::<u64>()).prop_map(
        |(
            zone_bits,
            zones,
            (compatible, read_only, pool_id, generation, secret),
            created,
            fill,
        )| {
            let room = (zones.len() as u64) << zone_bits;
            Superblock {
                format_version: 1,
                features_compatible: compatible,
                features_read_only: read_only,
                features_incompatible: 0,
                pool_id,
                generation,
                zone_bytes: 1 << zone_bits,
                device_bytes: (5000 << zone_bits) + fill % 4096,
                created,
                secret,
                catalogue_bytes: if room == 0 { 0 } else { fill % (room + 1) },
                catalogue_zones: zones.into_iter().rev().collect(),
            }
        },
    )
}

pub fn segment() -> impl Strategy<Value = SegmentHeader> {
    let numbers = (any::<u128>(), 1..=SEGMENT_NUMBER_MAX, 1_u32.., any::<u64>(), any::<u64>());
    (numbers, time(), seq()).prop_map(
        |((pool_id, segment, zone, log, nonce), created, first_seq)| SegmentHeader {
            pool_id,
            segment,
            zone,
            log,
            nonce,
            created,
            first_seq,
        },
    )
}

/// An operation as it goes in and should come out.
#[derive(Clone, Debug)]
pub struct Operation {
    pub seq: Seq,
    pub block: u64,
    pub blocks: u32,
    /// None for zeros.
    pub crcs: Option<Vec<u32>>,
}

pub fn operations(relocated: bool) -> impl Strategy<Value = Vec<Operation>> {
    let crcs_max = if relocated { 1 } else { 40_usize };
    let crcs = prop_oneof![Just(None), vec(any::<u32>(), 1..=crcs_max).prop_map(Some)];
    let operation = (seq(), 0..(1_u64 << 40) - 100_000, 1..100_000_u32, crcs).prop_map(
        |(seq, block, blocks, crcs)| {
            let blocks = crcs.as_ref().map_or(blocks, |crcs| crcs.len() as u32);
            Operation { seq, block, blocks, crcs }
        },
    );
    vec(operation, 0..40)
}

pub fn batch_header(kind: BatchKind) -> impl Strategy<Value = BatchHeader> {
    let seqs = (1..=Seq::MAX.0 - 100, seq(), seq());
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>());
    (1..=SEGMENT_NUMBER_MAX, 8..100_000_u32, numbers, time(), seqs).prop_map(
        move |(segment, unit, (nonce, timeline, flush_count), time, (base, stable, durable))| {
            BatchHeader {
                segment,
                offset: unit * 64,
                kind,
                nonce,
                timeline,
                time,
                base_seq: Seq(base),
                stable_seq: stable,
                durable_seq: durable,
                flush_count,
            }
        },
    )
}

pub fn key() -> impl Strategy<Value = Key> {
    (0..=4_u8, any::<u64>(), any::<bool>()).prop_map(|(level, index, near)| {
        let index = index >> (24 + 9 * u32::from(level));
        Key { level, index: if near { index % 3 } else { index } }
    })
}

pub fn entry() -> impl Strategy<Value = Entry> {
    (key(), seq(), location(), any::<u32>(), any::<bool>()).prop_map(
        |(key, seq, location, crc, hole)| {
            if hole || key.level > 0 {
                let location = if crc % 2 == 0 {
                    hindsight_format::HOLE
                } else {
                    Location::hole_in(location.segment())
                };
                return Entry { key, seq, location, crc: 0 };
            }
            Entry { key, seq, location, crc }
        },
    )
}

/// Entries in order, no two with the same key and seq.
pub fn entries(count_max: usize) -> impl Strategy<Value = Vec<Entry>> {
    vec(entry(), 1..=count_max).prop_map(|mut entries| {
        entries.sort_by_key(Entry::order);
        entries.dedup_by_key(|entry| entry.order());
        entries
    })
}

pub fn extent() -> impl Strategy<Value = MapExtent> {
    (0..MapExtent::ALL.len()).prop_map(|i| MapExtent::ALL[i])
}

/// Entries as writes leave them: neighbours at places that follow one another, now and then with a
/// gap, moved, at home, or a hole; many versions of few extents.
pub fn writes() -> impl Strategy<Value = Vec<Entry>> {
    let write = (0..60_u64, 1..40_u64, 0..40_u64, 0..4_u8, any::<u64>());
    vec(write, 1..120).prop_map(|writes| {
        let mut entries = Vec::new();
        for (seq, (first, blocks, seqs_back, kind, gaps)) in (1_u64..).zip(writes) {
            let seq = Seq(seq.saturating_sub(seqs_back % 3).max(1));
            let kept = (0..blocks).filter(|i| gaps >> (i % 64) & 3 != 0);
            for (dense, block) in kept.enumerate() {
                let lba = Lba(first + block);
                let offset = match kind {
                    0 => block * 4096,
                    1 => dense as u64 * 4096,
                    _ => block * 4288,
                };
                let location = Location::new(1 + seq.0 % 5, 512 + offset as u32);
                entries.push(match kind {
                    3 => Entry {
                        location: Location::hole_in(7),
                        ..Entry::hole(Key::block(lba), seq)
                    },
                    _ => Entry::data(lba, seq, location, (lba.0 * 77 + seq.0) as u32),
                });
            }
        }
        entries.push(Entry::hole(Key { level: 1, index: 1 }, Seq(4)));
        entries.sort_by_key(Entry::order);
        entries.dedup_by_key(|entry| entry.order());
        entries
    })
}

pub fn time_entries() -> impl Strategy<Value = Vec<TimeEntry>> {
    let step = || prop_oneof![Just(0), 0..1_u64 << 32];
    vec((step(), step(), step(), step()), 1..=127).prop_map(|steps| {
        let mut last = TimeEntry::default();
        let next = |(time, seq, bytes, flushes): (u64, u64, u64, u64)| {
            last = TimeEntry {
                time: WallTime::from_nanos(last.time.as_nanos() + time),
                seq: Seq(last.seq.0 + seq),
                bytes_total: last.bytes_total + bytes,
                flushes_total: last.flushes_total + flushes,
            };
            last
        };
        steps.into_iter().map(next).collect()
    })
}

pub fn address() -> impl Strategy<Value = PageAddress> {
    (any::<u128>(), any::<u64>(), any::<u32>())
        .prop_map(|(pool_id, run, page)| PageAddress::new(pool_id, run, page))
}
