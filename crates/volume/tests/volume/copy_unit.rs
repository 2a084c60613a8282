//! Copy units: what the first write to one costs after a capture, and the next; what is kept for
//! it; and that nobody sees another byte for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use format::segment::SEGMENT_HEADER_BYTES;
use hindsight_volume::{
    Architecture, CopyInfo, ErrorKind, Granularity, IoKind, Lack, Range, Volume, VolumeChange,
    WriteOp, Written,
};
use sim::Random;
use units::{MapExtent, Moment, Seq};

use crate::base::{BLOCK, content, past, put, requests};
use crate::settling::{DAY_NS, MIB, Rig, fill, spec};

const SIZE_BYTES: u64 = 16 * MIB;
const BLOCKS: u64 = SIZE_BYTES / BLOCK;
const WITH_BASE: [Architecture; 2] = [Architecture::Checkpointing, Architecture::Redirect];
const LARGEST: MapExtent = MapExtent::ALL[4];
/// Before a block that lies alone, at home or in the log, and before one more entry of a batch.
const HEADER_BYTES: u64 = 192;

fn make_sized(rig: &Rig, architecture: Architecture, unit: MapExtent, size: u64) -> Arc<Volume> {
    let spec = spec((architecture, Granularity::OnDemand), 30 * DAY_NS, size);
    let spec = hindsight_volume::VolumeSpec { copy_unit: unit, ..spec };
    rig.pool.create_volume(&spec).expect("made")
}

/// A volume that is full, and all of it at home.
fn settled(architecture: Architecture, unit: MapExtent) -> (Rig, Arc<Volume>) {
    let rig = Rig::new();
    let volume = make_sized(&rig, architecture, unit, SIZE_BYTES);
    fill(&volume, 1);
    rig.rest(20);
    (rig, volume)
}

fn bytes(volume: &Volume, kind: IoKind) -> u64 {
    let info = volume.info().expect("info");
    info.device_io.iter().find(|count| count.kind == kind).expect("every kind is told").bytes
}

/// Requests and bytes of the kinds that a write is about.
fn counts(volume: &Volume) -> [(u64, u64); 6] {
    let log = match volume.architecture() {
        Architecture::Checkpointing => IoKind::JournalWrite,
        _ => IoKind::HistoryWrite,
    };
    let kinds = [
        IoKind::CurrentRead,
        IoKind::HistoryRead,
        log,
        IoKind::BeforeImageRead,
        IoKind::BeforeImageWrite,
        IoKind::CurrentWrite,
    ];
    kinds.map(|kind| (requests(volume, kind), bytes(volume, kind)))
}

/// Writes a block in each 64 KiB, and lets it settle; says what that cost the device.
fn write_round(rig: &Rig, volume: &Volume, within: u64, byte: u8) -> [(u64, u64); 6] {
    let before = counts(volume);
    for block in (within..BLOCKS).step_by(16) {
        put(volume, block, byte, 1);
    }
    rig.rest(20);
    let after = counts(volume);
    std::array::from_fn(|i| (after[i].0 - before[i].0, after[i].1 - before[i].1))
}

/// How many units that are written have their homes in two slabs of the rig's zones.
fn units_in_two_slabs(blocks: u64) -> u64 {
    let slab_blocks = (MIB - SEGMENT_HEADER_BYTES as u64) / (BLOCK + HEADER_BYTES);
    let units = (0..BLOCKS).step_by(16).map(|chunk| (chunk + 5) / blocks * blocks);
    units.filter(|first| first / slab_blocks != (first + blocks - 1) / slab_blocks).count() as u64
}

fn copies(volume: &Volume) -> CopyInfo {
    volume.copies().expect("counted").expect("there is a capture")
}

#[test]
fn the_first_write_to_a_unit_after_a_capture_moves_it_whole_and_the_next_does_not() {
    let writes = BLOCKS / 16;
    for architecture in WITH_BASE {
        for unit in [MapExtent::ALL[0], MapExtent::ALL[2], LARGEST] {
            for restarts in [false, true] {
                let what = format!("{architecture:?} {unit} {restarts}");
                let (mut rig, mut volume) = settled(architecture, unit);
                let captured = content(&volume);
                let version = volume.create_version("v").expect("captured");
                let (blocks, is_copying) = (unit.blocks() as u64, unit.blocks() > 1);
                // The others are read in one go, from home.
                let read = u64::from(is_copying);
                let first = write_round(&rig, &volume, 5, 2);
                let is_in_place = architecture == Architecture::Checkpointing;
                let copied = u64::from(is_in_place);
                println!("{what}: {first:?}");
                let [current_read, history_read, log, image_read, image_write, home] = first;
                let reads = read * (writes + units_in_two_slabs(blocks));
                assert_eq!((current_read.0, history_read.0), (reads, 0), "{what}");
                assert!(current_read.1 >= writes * read * (blocks - 1) * BLOCK, "{what}");
                assert!(current_read.1 <= writes * read * blocks * (BLOCK + HEADER_BYTES));
                assert_eq!(log.0, writes, "{what}");
                let logged = writes * (blocks * BLOCK + HEADER_BYTES);
                assert!(log.1 >= writes * blocks * BLOCK && log.1 <= logged, "{what}");
                let images = writes * blocks * copied;
                assert_eq!(image_read.1, images * BLOCK, "{what}");
                assert_eq!(image_write.1, images * (BLOCK + HEADER_BYTES), "{what}");
                // A unit is read and written at once, unless it ends with a slab or a segment, or
                // neighbours go together.
                for (requests, bytes) in [image_read, image_write, home] {
                    let apart = copied * (writes + 2 * (SIZE_BYTES / MIB + 2));
                    assert!(requests <= apart && requests >= apart / 20, "{what}: {requests}");
                    assert!(bytes <= images * (BLOCK + HEADER_BYTES), "{what}: {bytes}");
                }
                assert_eq!(home.1, images * (BLOCK + HEADER_BYTES), "{what}");
                let kept = copies(&volume);
                let expected = CopyInfo {
                    captured: version.stamp.seq,
                    kept_bytes: writes * blocks * BLOCK,
                    changed_bytes: writes * BLOCK,
                };
                assert_eq!(kept, expected, "{what}");
                if restarts {
                    drop(volume);
                    rig = rig.restart();
                    volume = rig.pool.volume(architecture.name()).expect("there");
                    rig.rest(20);
                    assert_eq!(copies(&volume), kept, "{what}");
                }
                // The same blocks, and others of the same units: a write each, copied no more.
                for within in [5, 6].into_iter().take(1 + usize::from(is_copying)) {
                    let next = write_round(&rig, &volume, within, 3);
                    println!("{what}, next: {next:?}");
                    assert_eq!((next[0].0, next[1].0), (0, 0), "{what}");
                    assert_eq!(next[2].0, writes, "{what}");
                    assert!(next[2].1 <= writes * (BLOCK + HEADER_BYTES), "{what}");
                    assert_eq!((next[3].0, next[4].0), (0, 0), "{what}");
                    let homes = (writes * copied, writes * copied * (BLOCK + HEADER_BYTES));
                    assert_eq!(next[5], homes, "{what}");
                }
                assert_eq!(copies(&volume).kept_bytes, kept.kept_bytes, "{what}");
                assert!(past(&volume, version.stamp.seq) == captured, "{what}");
                rig.pool.verify_invariants().expect("sound");
            }
        }
    }
}

#[test]
fn space_efficiency_is_what_can_be_computed_by_hand_and_falls_with_the_unit() {
    for architecture in WITH_BASE {
        let mut before = 1.1;
        for unit in MapExtent::ALL {
            let (rig, volume) = settled(architecture, unit);
            assert_eq!(volume.copies().expect("counted"), None, "nothing was captured");
            volume.create_version("v").expect("captured");
            let mut random = Random::new(11);
            let (mut blocks, mut units) = (BTreeSet::new(), BTreeSet::new());
            for byte in 0..150_u8 {
                let block = random.below(BLOCKS);
                put(&volume, block, 2 + byte % 7, 1);
                blocks.insert(block);
                units.insert(block / unit.blocks() as u64);
            }
            let by_hand = (blocks.len() as u64 * BLOCK, units.len() as u64 * unit.bytes());
            let told = |volume: &Volume| {
                let told = copies(volume);
                (told.changed_bytes, told.kept_bytes)
            };
            assert_eq!(told(&volume), by_hand, "{architecture:?} {unit}, pending");
            rig.rest(20);
            assert_eq!(told(&volume), by_hand, "{architecture:?} {unit}, settled");
            let efficiency = by_hand.0 as f64 / by_hand.1 as f64;
            assert!(efficiency < before, "{architecture:?} {unit}: {efficiency} after {before}");
            before = efficiency;
            // Written in order, a unit holds nothing that was not changed.
            volume.create_version("w").expect("captured");
            (0..64).for_each(|block| _ = put(&volume, block, 20, 1));
            assert_eq!(told(&volume), (64 * BLOCK, 64 * BLOCK), "{architecture:?} {unit}");
        }
    }
}

#[test]
fn what_was_only_taken_along_is_not_told_as_changed() {
    let (_rig, volume) = settled(Architecture::Redirect, LARGEST);
    volume.create_version("a").expect("captured");
    put(&volume, 21, 2, 1);
    let b = volume.create_version("b").expect("captured");
    let a = Moment::Version(0);
    let expected = [Range { offset: 21 * BLOCK, length_bytes: BLOCK }];
    let page = volume.diff(&a, &Moment::Version(b.number), 0, u64::MAX, 10).expect("told");
    assert_eq!(page.ranges, expected);
    let reverted = volume.revert(&a, true).expect("rehearsed");
    assert_eq!((reverted.changed_bytes, reverted.changed_exact), (BLOCK, true));
    while volume.version(b.number).is_ok_and(|version| !version.bytes_exact) {
        _rig.rest(1);
    }
    assert_eq!(volume.version(b.number).expect("there").bytes_changed, BLOCK);
}

#[test]
fn holes_stay_holes_and_trims_and_full_units_take_nothing_along() {
    let rig = Rig::new();
    let volume = make_sized(&rig, Architecture::Redirect, LARGEST, MIB);
    put(&volume, 0, 1, 3);
    put(&volume, 9, 1, 1);
    put(&volume, 16, 1, 48);
    volume.create_version("v").expect("captured");
    let kept = || copies(&volume).kept_bytes / BLOCK;
    let live = || volume.info().expect("info").live_bytes / BLOCK;
    let zero = WriteOp::Zero { offset: 17 * BLOCK, length_bytes: BLOCK };
    volume.write_batch(&[zero]).expect("trimmed");
    assert_eq!((kept(), live()), (1, 51));
    put(&volume, 32, 2, 16);
    assert_eq!(kept(), 17);
    // Into a hole: the four blocks of its unit that are data go along, and nothing else.
    let read = requests(&volume, IoKind::HistoryRead);
    put(&volume, 5, 2, 1);
    assert_eq!((kept(), live()), (21, 52));
    assert!(requests(&volume, IoKind::HistoryRead) <= read + 2);
    let seq = put(&volume, 6, 2, 1);
    assert_eq!((kept(), live()), (21, 53));
    // The first write of data takes along the blocks that the trim left.
    assert_eq!(put(&volume, 18, 2, 1), Seq(seq.0 + 2), "around the hole");
    assert_eq!((kept(), live()), (36, 53));
    // Over the edges of units, beginning and ending within blocks.
    let bytes = vec![3; 34 * BLOCK as usize + 100];
    let offset = 50 * BLOCK - 7;
    volume.write_batch(&[WriteOp::Data { offset, bytes: &bytes }]).expect("written");
    assert_eq!(kept(), 52);
    let mut found = vec![0; bytes.len() + 14];
    volume.read(offset - 7, &mut found).expect("read");
    let (before, after) = (&found[..7], &found[found.len() - 7..]);
    assert!(before == [1; 7] && found[7..found.len() - 7] == bytes && after == [0; 7]);
}

#[test]
fn a_pinned_mark_and_the_capture_of_a_group_are_captures_and_a_deleted_version_is_none() {
    let (rig, volume) = settled(Architecture::Checkpointing, LARGEST);
    let seqs = |block: u64| put(&volume, block, 7, 1);
    let reads = || requests(&volume, IoKind::CurrentRead);
    seqs(0);
    assert_eq!(reads(), 0, "nothing was captured");
    volume.create_mark("loose", &Moment::Latest, false).expect("marked");
    seqs(0);
    assert_eq!(reads(), 0, "a mark that is not pinned keeps nothing");
    volume.create_mark("pinned", &Moment::Latest, true).expect("marked");
    seqs(0);
    assert_eq!(reads(), 1);
    seqs(1);
    assert_eq!(reads(), 1);
    rig.pool.create_group("g", &[volume.name().to_owned()]).expect("made");
    rig.pool.create_group_version("g", "").expect("captured");
    seqs(16);
    assert_eq!(reads(), 2);
    volume.delete_mark("pinned").expect("deleted");
    let version = volume.create_version("").expect("captured");
    volume.delete_version(version.number).expect("deleted");
    seqs(17);
    assert_eq!(reads(), 2, "the group's is the newest again");
}

#[test]
fn who_must_not_wait_comes_back_for_a_first_write_and_only_for_that() {
    let (_rig, volume) = settled(Architecture::Redirect, LARGEST);
    volume.create_version("v").expect("captured");
    let bytes = vec![9; 16 * BLOCK as usize];
    let op = |block: u64, blocks: u64| WriteOp::Data {
        offset: block * BLOCK,
        bytes: &bytes[..(blocks * BLOCK) as usize],
    };
    // A unit that is filled needs nothing; the group stops before the op that does.
    let ops = [op(16, 16), op(40, 2), op(64, 16)];
    let reads = || [IoKind::CurrentRead, IoKind::HistoryRead].map(|kind| requests(&volume, kind));
    let before = reads();
    let stopped = volume.write_some(&ops, 0, false).expect("in part");
    assert_eq!(stopped, Written::Part { bytes: 16 * BLOCK, lacks: Lack::Turn });
    assert_eq!(reads(), before);
    let written = volume.write_some(&ops, 16 * BLOCK, true).expect("written");
    assert_eq!(written, Written::All);
    assert_eq!(reads()[0], before[0] + 1);
    let next = volume.write_some(&[op(32, 1), op(47, 1)], 0, false).expect("written");
    assert_eq!(next, Written::All);
    let mut found = vec![0; 80 * BLOCK as usize];
    volume.read(0, &mut found).expect("read");
    let nines =
        |blocks: std::ops::Range<usize>| blocks.map(|b| found[b * 4096]).collect::<Vec<_>>();
    assert!(nines(0..16) == [1; 16] && nines(16..33) == [9; 17] && nines(64..80) == [9; 16]);
    assert_eq!(nines(38..44), [1, 1, 9, 9, 1, 1]);
}

#[test]
fn writers_of_one_unit_keep_their_blocks_while_captures_are_made() {
    for architecture in WITH_BASE {
        let (rig, volume) = settled(architecture, LARGEST);
        std::thread::scope(|scope| {
            for writer in 0..4_u64 {
                let volume = &volume;
                scope.spawn(move || {
                    let mut last = [1_u8; 4];
                    for turn in 0..120_u64 {
                        let (at, byte) = ((turn % 4) as usize, (turn + writer) as u8);
                        put(volume, writer * 4 + turn % 4, byte, 1);
                        last[at] = byte;
                        let mut found = vec![0; 4 * BLOCK as usize];
                        volume.read(writer * 4 * BLOCK, &mut found).expect("read");
                        let found: Vec<u8> = found.chunks(4096).map(|block| block[4095]).collect();
                        assert_eq!(found, last, "{turn}");
                    }
                });
            }
            for _ in 0..30 {
                volume.create_version("").expect("captured");
                rig.rest(1);
            }
        });
        rig.pool.verify_invariants().expect("sound");
    }
}

#[test]
fn a_write_goes_alone_where_the_rest_of_its_unit_cannot_be_read_or_room_is_scarce() {
    let mut rig = crate::base::Rig::new();
    let volume = rig.make("v", Architecture::Redirect, Granularity::OnDemand);
    let change = VolumeChange { copy_unit: Some(LARGEST), ..VolumeChange::default() };
    volume.change(&change).expect("changed");
    for block in 0..48 {
        put(&volume, block, block as u8 + 1, 1);
    }
    let version = volume.create_version("v").expect("captured");
    drop(volume);
    let volume = rig.restart();
    rig.rot(&vec![4; BLOCK as usize]);
    put(&volume, 9, 99, 1);
    assert_eq!(copies(&volume).kept_bytes, BLOCK);
    // But a write within the block that has rotted needs it.
    let part = WriteOp::Data { offset: 3 * BLOCK + 5, bytes: &[1] };
    assert_eq!(volume.write_batch(&[part]).expect_err("rotten").kind, ErrorKind::Corrupt);
    put(&volume, 3, 98, 1);
    put(&volume, 8, 97, 1);
    assert_eq!(copies(&volume).kept_bytes, 16 * BLOCK, "what can be read goes along");
    let seen = volume.view(&Moment::Seq(version.stamp.seq)).expect("a view");
    let mut found = vec![0; BLOCK as usize];
    assert_eq!(seen.read(3 * BLOCK, &mut found).expect_err("rotten").kind, ErrorKind::Corrupt);
    // The pool fills up.
    let other = rig.make("other", Architecture::Logging, Granularity::EveryWrite);
    let has_room = || {
        let (_, _, available) = rig.pool().room();
        available > rig.pool().status().size_bytes / 8
    };
    let mut turn = 0;
    while has_room() {
        put(&other, turn % 512, turn as u8, 32);
        turn += 32;
    }
    put(&volume, 20, 96, 1);
    assert_eq!(copies(&volume).kept_bytes, 17 * BLOCK);
    rig.pool().verify_invariants().expect("sound");
}

#[test]
fn a_unit_is_for_a_base_on_demand_and_goes_with_the_volume() {
    let rig = Rig::new();
    let refused = |spec: &hindsight_volume::VolumeSpec| {
        let error = rig.pool.create_volume(spec).map(drop).expect_err("refused");
        assert!(error.kind == ErrorKind::Invalid && error.hint.is_some(), "{error}");
    };
    for architecture in Architecture::ALL {
        for granularity in
            [Granularity::EveryWrite, Granularity::Interval(1 << 30), Granularity::OnDemand]
        {
            let spec = hindsight_volume::VolumeSpec {
                copy_unit: LARGEST,
                ..spec((architecture, granularity), DAY_NS, MIB)
            };
            if !architecture.has_base() || granularity != Granularity::OnDemand {
                refused(&spec);
            }
        }
    }
    let volume = make_sized(&rig, Architecture::Redirect, LARGEST, MIB);
    let change = |change: VolumeChange| volume.change(&change);
    let unit = |volume: &Volume| volume.info().expect("info").copy_unit;
    let to = |architecture| VolumeChange { architecture: Some(architecture), ..Default::default() };
    let error = change(to(Architecture::Logging)).expect_err("it has a unit");
    assert_eq!(error.kind, ErrorKind::Invalid);
    let interval = Some(Granularity::Interval(1 << 30));
    let error = change(VolumeChange { granularity: interval, ..Default::default() });
    assert_eq!(error.expect_err("it has a unit").kind, ErrorKind::Invalid);
    let info = volume.info().expect("info");
    assert_eq!((info.architecture, info.copy_unit), (Architecture::Redirect, LARGEST));
    change(to(Architecture::Checkpointing)).expect("both have a base");
    assert_eq!(unit(&volume), LARGEST);
    let clone = rig.pool.clone_volume(volume.name(), &Moment::Latest, "c").expect("cloned");
    assert_eq!(unit(&clone), LARGEST);
    let block = Some(MapExtent::BLOCK);
    change(VolumeChange { copy_unit: block, ..to(Architecture::Logging) }).expect("changed");
    assert_eq!((unit(&volume), unit(&clone)), (MapExtent::BLOCK, LARGEST));
    drop((volume, clone));
    let rig = rig.restart();
    assert_eq!(unit(&rig.pool.volume("c").expect("there")), LARGEST);
}
