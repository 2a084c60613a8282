//! The integrity layer: what it detects, what it heals and at which cost, and its pages.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::integrity::{COPY_OFFSETS, ChecksumSector, GROUPS_OFFSET, SectorState};
use hindsight_block::{
    BlockDevice, DeviceErrorKind, IntegrityDevice, IntegrityOptions, Ledger, MediaDevice, Mismatch,
    Outcome, Resync, Scrubbed,
};
use sim::{Failure, Op, SimMedia, Trick};

use crate::pair::Pair;

type Device = Arc<dyn BlockDevice>;
type Integrity = IntegrityDevice<Device>;

const BLOCK: u64 = 4096;
const GROUP: u64 = 961 * BLOCK;
/// Two groups and a bit.
const LEN: u64 = 2000 * BLOCK;

fn media(seed: u64) -> Arc<SimMedia> {
    Arc::new(SimMedia::filled(Integrity::bytes_below(LEN), seed, 0xa5))
}

fn over(media: &Arc<SimMedia>) -> Device {
    let media: Arc<SimMedia> = Arc::clone(media);
    Arc::new(MediaDevice::new(media))
}

fn open(below: Device, ledger: &Arc<Ledger>) -> Integrity {
    let options = IntegrityOptions::default();
    IntegrityDevice::open(below, options, Arc::clone(ledger)).expect("an integrity device")
}

fn made(below: Device, ledger: &Arc<Ledger>) -> Integrity {
    IntegrityDevice::format(&below, 99).expect("room for it");
    open(below, ledger)
}

fn single(seed: u64) -> (Arc<SimMedia>, Integrity) {
    let media = media(seed);
    let device = made(over(&media), &Arc::default());
    (media, device)
}

fn paired(mismatch: Mismatch) -> (Arc<Pair>, Integrity) {
    let pair = Pair::new(Integrity::bytes_below(LEN), 5);
    let below: Device = Arc::<Pair>::clone(&pair);
    IntegrityDevice::format(&below, 99).expect("room for it");
    let options = IntegrityOptions { mismatch, ..IntegrityOptions::default() };
    let ledger = Arc::clone(&pair.ledger);
    (pair, IntegrityDevice::open(below, options, ledger).expect("an integrity device"))
}

fn write(device: &Integrity, offset: u64, bytes: &[u8]) {
    device.write_at(offset, &[IoSlice::new(bytes)]).expect("a write");
}

fn read(device: &Integrity, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0x5a; length];
    device.read_at(offset, &mut buffer).expect("a read");
    buffer
}

fn assert_corrupt(device: &Integrity, block: u64) {
    let error = device.read_at(block * BLOCK, &mut [0; 4096]).expect_err("a damaged block");
    assert_eq!((error.kind, error.offset), (DeviceErrorKind::Corrupt, block * BLOCK), "{error}");
    let answered = device.try_read_at(block * BLOCK, &mut [0; 4096]);
    assert!(!answered.unwrap_or(false), "nothing that is wrong is answered at once");
}

/// Where block `block` of the first group is below.
fn place(block: u64) -> u64 {
    GROUPS_OFFSET + (1 + block) * BLOCK
}

/// What the first sector of a group's page says, as it is on the media.
fn sector(media: &SimMedia, group: u64) -> Option<ChecksumSector> {
    let mut bytes = [0; 512];
    let offset = GROUPS_OFFSET + group * GROUP;
    env::Media::read_at(media, offset, &mut bytes).expect("the page can be read");
    ChecksumSector::decode(&bytes, 99, (group * 8) as u32).expect("a sound sector")
}

fn is_open(sector: &ChecksumSector) -> bool {
    sector.state == SectorState::Open
}

/// Data I/Os, checksum I/Os, checksums computed: a row of DARC's Table 4.
fn row(ledger: &Ledger) -> [u64; 3] {
    let take = |n: &std::sync::atomic::AtomicU64| n.swap(0, Ordering::Relaxed);
    [take(&ledger.data_ios), take(&ledger.checksum_ios), take(&ledger.checksums)]
}

fn counted(ledger: &Ledger) -> [u64; 4] {
    let load = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
    [
        load(&ledger.transient),
        load(&ledger.recovered),
        load(&ledger.checksums_recovered),
        load(&ledger.unrecoverable),
    ]
}

#[test]
fn copies_that_differ_of_which_one_matches_cost_3_0_2() {
    let (pair, device) = paired(Mismatch::Refuse);
    write(&device, 0, &[7; 8192]);
    device.clean().unwrap();
    row(&pair.ledger);
    pair.rot(0, place(1) + 9);
    assert_eq!(read(&device, 0, 8192), [7; 8192]);
    assert_eq!(row(&pair.ledger), [3, 0, 2]);
    assert_eq!(counted(&pair.ledger), [0, 1, 0, 0]);
    assert_eq!(read(&device, 0, 8192), [7; 8192]);
    assert_eq!(row(&pair.ledger), [0, 0, 0], "it was healed where it lies");
}

#[test]
fn copies_that_agree_against_their_checksum_cost_2_1_2_where_they_are_trusted() {
    let (pair, device) = paired(Mismatch::TrustCopies);
    write(&device, 0, &[7; 8192]);
    device.clean().unwrap();
    row(&pair.ledger);
    (0..2).for_each(|side| pair.rot(side, place(1) + 9));
    let mut expected = [7; 8192];
    expected[4096 + 9] ^= 1 << 3;
    assert_eq!(read(&device, 0, 8192), expected);
    assert_eq!(row(&pair.ledger), [2, 1, 2]);
    assert_eq!(counted(&pair.ledger), [0, 0, 1, 0]);
    pair.media.iter().for_each(|media| media.crash_with(&mut |_, _| sim::Keep::Nothing));
    let device = open(Arc::<Pair>::clone(&pair), &pair.ledger);
    assert_eq!(read(&device, 0, 8192), expected, "the checksum is durable");
    assert_eq!(row(&pair.ledger), [0, 0, 0]);
}

#[test]
fn copies_that_agree_against_their_checksum_are_an_error_where_they_are_not_trusted() {
    let (pair, device) = paired(Mismatch::Refuse);
    write(&device, 0, &[7; 8192]);
    device.clean().unwrap();
    row(&pair.ledger);
    (0..2).for_each(|side| pair.rot(side, place(1) + 9));
    assert!(device.read_at(0, &mut [0; 8192]).is_err());
    assert_eq!(row(&pair.ledger), [2, 0, 2]);
    assert_eq!(counted(&pair.ledger), [0, 0, 0, 1]);
    assert_corrupt(&device, 1);
}

#[test]
fn copies_that_differ_of_which_none_matches_cost_2_0_2_and_are_an_error() {
    for mismatch in [Mismatch::Refuse, Mismatch::TrustCopies] {
        let (pair, device) = paired(mismatch);
        write(&device, 0, &[7; 8192]);
        device.clean().unwrap();
        row(&pair.ledger);
        (0..2).for_each(|side| pair.rot(side, place(1) + side as u64));
        assert!(device.read_at(0, &mut [0; 8192]).is_err());
        assert_eq!(row(&pair.ledger), [2, 0, 2]);
        assert_eq!(counted(&pair.ledger), [0, 0, 0, 1]);
        assert_corrupt(&device, 1);
        assert_eq!(read(&device, 0, 4096), [7; 4096], "its neighbour is as before");
    }
}

#[test]
fn a_read_that_was_wrong_once_costs_2_0_2() {
    let (pair, device) = paired(Mismatch::Refuse);
    write(&device, 0, &[7; 4096]);
    write(&device, 8192, &[8; 4096]);
    device.clean().unwrap();
    row(&pair.ledger);
    // Twice: the read, and the look again with the range held.
    for _ in 0..2 {
        pair.media[0].trick(Trick::MisdirectRead(place(2)));
    }
    assert_eq!(read(&device, 0, 4096), [7; 4096]);
    assert_eq!(row(&pair.ledger), [2, 0, 2]);
    assert_eq!(counted(&pair.ledger), [1, 0, 0, 0]);
}

#[test]
fn rot_lost_writes_and_misdirected_ones_are_errors_on_one_device() {
    let (media, device) = single(1);
    write(&device, 0, &[1; 5 * 4096]);
    media.rot(place(0) + 4095, 7);
    assert_corrupt(&device, 0);
    media.trick(Trick::LoseWrite);
    write(&device, BLOCK, &[2; 4096]);
    assert_corrupt(&device, 1);
    media.trick(Trick::MisdirectWrite(place(3)));
    write(&device, 2 * BLOCK, &[3; 4096]);
    assert_corrupt(&device, 2);
    assert_corrupt(&device, 3);
    assert_eq!(read(&device, 4 * BLOCK, 4096), [1; 4096]);
    // A part of what is wrong is not made right by a new checksum.
    let error = device.write_at(10, &[IoSlice::new(&[9])]).expect_err("the rest is not known");
    assert_eq!(error.kind, DeviceErrorKind::Corrupt);
    write(&device, 0, &[4; 4 * 4096]);
    assert_eq!(read(&device, 0, 4 * 4096), [4; 4 * 4096]);
}

#[test]
fn a_block_that_was_never_written_is_zeros_whatever_is_below() {
    let (media, device) = single(2);
    assert_eq!(read(&device, 0, 20_000), [0; 20_000]);
    write(&device, 5000, &[1; 10]);
    let found = read(&device, 0, 20_000);
    let is_written = |i: usize| (5000..5010).contains(&i);
    assert!(found.iter().enumerate().all(|(i, byte)| *byte == u8::from(is_written(i))));
    device.clean().unwrap();
    let device = open(over(&media), &Arc::default());
    assert_eq!(read(&device, 0, 20_000), found);
    device.discard(4096, 4096).unwrap();
    assert_eq!(read(&device, 0, 20_000), [0; 20_000]);
}

#[test]
fn the_part_of_a_block_that_a_discard_touches_stays() {
    let (_, device) = single(2);
    write(&device, 0, &[3; 4 * 4096]);
    device.discard(1, 2 * BLOCK).unwrap();
    let found = read(&device, 0, 4 * 4096);
    assert_eq!(found[..4096], [3; 4096]);
    assert_eq!(found[4096..8192], [0; 4096]);
    assert_eq!(found[8192..], [3; 8192]);
}

#[test]
fn a_group_is_open_durably_before_data_comes_and_clean_after_two_quiet_flushes() {
    let (media, device) = single(3);
    media.start_log();
    write(&device, 0, &[1; 4096]);
    let log: Vec<_> = media.take_log().iter().map(|r| (r.op, r.offset)).collect();
    let expected = [
        (Op::Read, GROUPS_OFFSET),
        (Op::Write, GROUPS_OFFSET),
        (Op::Sync, GROUPS_OFFSET),
        (Op::Write, place(0)),
        (Op::Write, GROUPS_OFFSET),
    ];
    assert_eq!(log, expected, "a block that is new is told of at once, not flushed");
    let first = sector(&media, 0).expect("a page");
    assert_eq!((first.state, first.written), (SectorState::Open, 1));
    media.start_log();
    write(&device, 4096, &[1; 4096]);
    assert_eq!(media.take_log().len(), 2, "it is open already");
    media.start_log();
    write(&device, 4096, &[2; 4096]);
    assert_eq!(media.take_log().len(), 1, "the checksum of one that is known waits for a flush");
    device.flush().unwrap();
    let second = sector(&media, 0).expect("a page");
    assert_eq!((second.state, second.written), (SectorState::Open, 3));
    device.flush().unwrap();
    assert!(is_open(&sector(&media, 0).expect("a page")), "quiet over one flush");
    device.flush().unwrap();
    let third = sector(&media, 0).expect("a page");
    assert_eq!((third.state, third.written), (SectorState::Clean, 3));
    media.start_log();
    device.flush().unwrap();
    assert_eq!(media.take_log().len(), 1, "nothing to write");
    write(&device, 0, &[2; 4096]);
    assert!(is_open(&sector(&media, 0).expect("a page")), "open again");
}

#[test]
fn what_was_in_flight_is_settled_when_the_device_is_opened_again() {
    let (media, device) = single(4);
    write(&device, 0, &[1; 8 * 4096]);
    device.flush().unwrap();
    write(&device, 0, &[2; 4096]);
    drop(device);
    media.crash_with(&mut |_, _| sim::Keep::Sectors(vec![true, false]));
    let ledger = Arc::new(Ledger::default());
    let device = open(over(&media), &ledger);
    let found = read(&device, 0, 8 * 4096);
    assert_eq!(
        (found[..512].to_vec(), found[512..].to_vec()),
        (vec![2; 512], vec![1; 8 * 4096 - 512])
    );
    assert_eq!(counted(&ledger), [0, 0, 1, 0]);
    device.clean().unwrap();
    media.rot(place(0), 0);
    assert_corrupt(&device, 0);
    let device = open(over(&media), &ledger);
    assert_corrupt(&device, 0);
    assert_eq!(read(&device, 4096, 4096), [1; 4096]);
}

#[test]
fn of_copies_that_were_in_flight_the_one_that_matches_is_taken_or_else_they_are_made_to_agree() {
    let (pair, device) = paired(Mismatch::Refuse);
    write(&device, 0, &[1; 8 * 4096]);
    device.flush().unwrap();
    write(&device, 0, &[2; 2 * 4096]);
    drop(device);
    let keep =
        |sectors: Vec<bool>| move |_: usize, _: &sim::Unsynced| sim::Keep::Sectors(sectors.clone());
    // Block 0: side 0 is new, side 1 old. Block 1: each has something of both.
    let side = |first: [bool; 8], second: [bool; 8]| [first, second].concat();
    let half = |from: bool| [from, from, from, from, !from, !from, !from, !from];
    pair.media[0].crash_with(&mut keep(side([true; 8], half(true))));
    pair.media[1].crash_with(&mut keep(side([false; 8], half(false))));
    let pair = Pair::over(pair.media.clone());
    let device = open(Arc::<Pair>::clone(&pair), &pair.ledger);
    assert_eq!(read(&device, 0, 4096), [1; 4096], "what was flushed, as a copy has it");
    let second = read(&device, 4096, 4096);
    assert_eq!((&second[..2048], &second[2048..]), (&[2; 2048][..], &[1; 2048][..]));
    assert_eq!(pair.resyncs.load(Ordering::Relaxed), 1);
    assert_eq!(counted(&pair.ledger), [0, 1, 1, 0]);
    for block in 0..2 {
        let mut copies = [[0; 4096]; 2];
        for (side, copy) in copies.iter_mut().enumerate() {
            device.read_copy(side, block * BLOCK, copy).unwrap();
        }
        assert_eq!(copies[0], copies[1]);
    }
}

/// One side lost what was flushed, and what went on in the same block is torn there: the other
/// side has all of before, and says so.
#[test]
fn of_copies_in_flight_of_which_none_matches_the_one_that_a_page_of_before_knows_is_taken() {
    let (pair, device) = paired(Mismatch::Refuse);
    write(&device, 0, &[1; 4096]);
    pair.media[0].trick(Trick::LoseWrite);
    write(&device, 0, &[2; 2048]);
    device.flush().unwrap();
    // Blocks that were never written: the page goes to both sides, and is not flushed.
    write(&device, 2048, &[3; 8192]);
    drop(device);
    let torn = |sectors| sim::Keep::Sectors((0..sectors).map(|sector| sector >= 4).collect());
    pair.media[0].crash_with(&mut |_, change| match change.offset == place(0) {
        true => torn(change.sectors),
        false => sim::Keep::All,
    });
    pair.media[1].crash_with(&mut |_, _| sim::Keep::Nothing);
    let flushed = [[2; 2048], [1; 2048]].concat();
    for changes in 0..20 {
        // It may fail again while that is settled.
        let pair = Pair::over([0, 1].map(|side: usize| Arc::new(pair.media[side].fork())));
        pair.media[0].halt_after(changes);
        let is_read = IntegrityDevice::open(
            Arc::<Pair>::clone(&pair) as Device,
            IntegrityOptions::default(),
            Arc::clone(&pair.ledger),
        )
        .is_ok_and(|device| device.read_at(0, &mut [0; 4096]).is_ok());
        assert!(is_read || pair.media[0].is_halted(), "halted after {changes}");
        pair.media.iter().for_each(|media| media.crash_with(&mut |_, _| sim::Keep::Nothing));
        let device = open(Arc::<Pair>::clone(&pair), &pair.ledger);
        assert_eq!(read(&device, 0, 4096), flushed, "halted after {changes}");
        let mut copies = [[0; 4096]; 2];
        for (side, copy) in copies.iter_mut().enumerate() {
            device.read_copy(side, 0, copy).unwrap();
        }
        assert!(copies.iter().all(|copy| *copy == flushed[..]), "halted after {changes}");
        assert_eq!(sector(&pair.media[0], 0), sector(&pair.media[1], 0));
    }
}

#[test]
fn a_damaged_sector_takes_its_120_blocks_and_no_others() {
    let (media, device) = single(6);
    write(&device, 0, &[1; 300 * 4096]);
    device.clean().unwrap();
    media.rot(GROUPS_OFFSET + 512 + 100, 0);
    let ledger = Arc::new(Ledger::default());
    let device = open(over(&media), &ledger);
    assert_eq!(read(&device, 0, 120 * 4096), vec![1; 120 * 4096]);
    assert_eq!(read(&device, 240 * BLOCK, 60 * 4096), vec![1; 60 * 4096]);
    assert_corrupt(&device, 120);
    assert_corrupt(&device, 239);
    assert_eq!(counted(&ledger), [0, 0, 0, 1]);
    let error = device.write_at(130 * BLOCK, &[IoSlice::new(&[2; 4096])]).expect_err("its others");
    assert_eq!(error.kind, DeviceErrorKind::Corrupt);
    // Writes around it leave it as it was.
    write(&device, 0, &[2; 4096]);
    device.clean().unwrap();
    let device = open(over(&media), &ledger);
    assert_corrupt(&device, 120);
    // All of it at once is as good as new, and so is what was given back.
    write(&device, 119 * BLOCK, &vec![3; 122 * 4096]);
    assert_eq!(read(&device, 119 * BLOCK, 122 * 4096), vec![3; 122 * 4096]);
    device.clean().unwrap();
    media.rot(GROUPS_OFFSET + 512 + 100, 0);
    let device = open(over(&media), &ledger);
    assert_corrupt(&device, 120);
    device.discard(0, LEN).unwrap();
    assert_eq!(read(&device, 0, 300 * 4096), vec![0; 300 * 4096]);
    device.clean().unwrap();
    assert_eq!(read(&open(over(&media), &ledger), 0, 300 * 4096), vec![0; 300 * 4096]);
}

#[test]
fn a_damaged_page_is_healed_from_the_other_copy() {
    let (pair, device) = paired(Mismatch::Refuse);
    write(&device, 0, &[1; 300 * 4096]);
    device.clean().unwrap();
    pair.rot(0, GROUPS_OFFSET + 512 + 100);
    pair.rot(1, GROUPS_OFFSET + 1024 + 100);
    for _ in 0..2 {
        let device = open(Arc::<Pair>::clone(&pair), &pair.ledger);
        assert_eq!(read(&device, 0, 300 * 4096), vec![1; 300 * 4096]);
    }
    assert_eq!(counted(&pair.ledger), [0, 2, 0, 0]);
}

#[test]
fn of_two_copies_of_a_page_of_which_one_lost_a_write_the_newer_counts() {
    for side in 0..2 {
        let (pair, device) = paired(Mismatch::Refuse);
        write(&device, 0, &[1; 8192]);
        device.clean().unwrap();
        let mut page = [0; 4096];
        env::Media::read_at(&*pair.media[side], GROUPS_OFFSET, &mut page).unwrap();
        write(&device, 0, &[2; 4096]);
        device.clean().unwrap();
        env::Media::write_at(&*pair.media[side], GROUPS_OFFSET, &[IoSlice::new(&page)]).unwrap();
        let device = open(Arc::<Pair>::clone(&pair), &pair.ledger);
        assert_eq!(read(&device, 0, 8192), [[2; 4096], [1; 4096]].concat());
        let pages = [0, 1].map(|side| sector(&pair.media[side], 0));
        assert_eq!(pages[0], pages[1], "the older was written over");
        assert_eq!(counted(&pair.ledger), [0, 8, 0, 0]);
    }
}

#[test]
fn a_first_page_that_one_copy_lost_is_not_taken_for_blocks_that_were_never_written() {
    let (pair, device) = paired(Mismatch::Refuse);
    pair.media[0].trick(Trick::LoseWrite);
    write(&device, 0, &[1; 4096]);
    drop(device);
    // The page of one side is zeros, that of the other was flushed with nothing in it.
    let device = open(Arc::<Pair>::clone(&pair), &pair.ledger);
    write(&device, 0, &[1; 4096]);
    device.clean().unwrap();
    let zeros = [0; 4096];
    env::Media::write_at(&*pair.media[0], GROUPS_OFFSET, &[IoSlice::new(&zeros)]).unwrap();
    let device = open(Arc::<Pair>::clone(&pair), &pair.ledger);
    assert_eq!(read(&device, 0, 4096), [1; 4096]);
}

#[test]
fn only_an_integrity_device_is_opened_and_it_survives_one_copy_of_its_header() {
    let media = media(7);
    let refused = |media: &Arc<SimMedia>| {
        let opened =
            IntegrityDevice::open(over(media), IntegrityOptions::default(), Arc::default());
        let Err(error) = opened else { panic!("it is none") };
        assert_eq!(error.kind, DeviceErrorKind::Corrupt);
        std::error::Error::source(&error).expect("a cause").to_string()
    };
    assert!(refused(&media).contains("magic"));
    let device = made(over(&media), &Arc::default());
    assert_eq!((device.len_bytes(), device.id()), (LEN, 99));
    write(&device, 0, &[1; 4096]);
    device.clean().unwrap();
    // One is damaged, then the other: each is written anew from what is left.
    for copy in [0, 1, 0] {
        media.rot(COPY_OFFSETS[copy] + 20, 1);
        assert_eq!(read(&open(over(&media), &Arc::default()), 0, 4096), [1; 4096]);
    }
    COPY_OFFSETS.into_iter().for_each(|offset| media.rot(offset + 20, 1));
    assert!(refused(&media).contains("checksum"));
    let short = Arc::new(SimMedia::new(GROUPS_OFFSET + 4096, 1));
    let error = IntegrityDevice::format(&over(&short), 1).expect_err("no room");
    assert_eq!(error.kind, DeviceErrorKind::OutOfRange);
    let short = Arc::new(SimMedia::new(GROUPS_OFFSET + 8192, 1));
    assert_eq!(made(over(&short), &Arc::default()).len_bytes(), 4096);
    let cut = Arc::new(SimMedia::new(GROUPS_OFFSET + 4096, 1));
    let mut header = [0; 512];
    env::Media::read_at(&*short, 0, &mut header).unwrap();
    env::Media::write_at(&*cut, 0, &[IoSlice::new(&header)]).unwrap();
    assert!(refused(&cut).contains("shorter"));
}

#[test]
fn a_write_that_failed_leaves_what_was_or_what_should_be_and_no_error() {
    for seed in 0..20 {
        let (media, device) = single(seed);
        write(&device, 0, &[1; 8 * 4096]);
        device.flush().unwrap();
        media.fail(Failure::once(Op::Write));
        device.write_at(100, &[IoSlice::new(&[2; 3 * 4096])]).expect_err("the device failed");
        let found = read(&device, 0, 8 * 4096);
        assert!(found.iter().all(|byte| [1, 2].contains(byte)));
        assert!(found[..100].iter().chain(&found[100 + 3 * 4096..]).all(|byte| *byte == 1));
        assert_eq!(read(&device, 0, 8 * 4096), found);
    }
}

#[test]
fn where_a_group_cannot_be_marked_nothing_is_written() {
    let (media, device) = single(8);
    media.fail(Failure::once(Op::Sync));
    device.write_at(0, &[IoSlice::new(&[2; 4096])]).expect_err("the mark is not durable");
    assert_eq!(read(&device, 0, 4096), [0; 4096]);
    write(&device, 0, &[3; 4096]);
    assert_eq!(read(&device, 0, 4096), [3; 4096]);
}

#[test]
fn after_a_flush_that_failed_no_group_is_called_clean() {
    let (media, device) = single(9);
    write(&device, 0, &[1; 4096]);
    media.fail(Failure::once(Op::Sync));
    device.flush().expect_err("the device failed");
    for _ in 0..4 {
        device.flush().unwrap();
    }
    device.clean().unwrap();
    assert!(is_open(&sector(&media, 0).expect("a page")));
}

#[test]
fn who_has_a_checksum_of_their_own_is_right_where_ours_is_damaged() {
    let (pair, device) = paired(Mismatch::Refuse);
    write(&device, 0, &[1; 8192]);
    write(&device, 8192, &[2; 4096]);
    device.clean().unwrap();
    // Both copies of block 1 are wrong, of which the caller knows that one is right: its own.
    let right = [1; 6000];
    pair.rot(0, place(1) + 50);
    let mut buffer = [0; 6000];
    let is_right = |bytes: &[u8]| bytes == right;
    assert_eq!(device.heal(0, &mut buffer, &is_right).unwrap(), Outcome::Recovered);
    assert_eq!(buffer, right);
    assert_eq!(device.heal(0, &mut buffer, &is_right).unwrap(), Outcome::Transient);
    (0..2).for_each(|side| pair.rot(side, GROUPS_OFFSET + 100));
    let device = open(Arc::<Pair>::clone(&pair), &pair.ledger);
    assert_corrupt(&device, 0);
    pair.rot(1, place(0));
    let outcome = device.heal(0, &mut buffer, &is_right).unwrap();
    assert_eq!((outcome, &buffer[..]), (Outcome::Recovered, &right[..]));
    let nothing = |_: &[u8]| false;
    assert_eq!(device.heal(0, &mut buffer, &nothing).unwrap(), Outcome::Unrecoverable);
    assert_eq!(device.copies(0, LEN), 2);
    device.read_copy(1, 4096, &mut buffer).unwrap();
    assert_eq!((buffer[0], buffer[4096]), (1, 2));
    let copy = buffer.to_vec();
    device.read_way(1, 4096, &mut buffer).unwrap();
    assert!(device.ways() == 2 && buffer[..] == copy[..]);
    device.resync(0, LEN, Resync::All).unwrap();
}

#[test]
fn a_copy_that_is_wrong_is_healed_though_the_other_one_is_read() {
    let (pair, device) = paired(Mismatch::Refuse);
    write(&device, 0, &[1; 4 * 4096]);
    device.clean().unwrap();
    let is_right = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 1);
    let mut buffer = [0; 4 * 4096];
    pair.rot(1, place(2));
    assert_eq!(device.heal(0, &mut buffer, &is_right).unwrap(), Outcome::Recovered);
    device.read_copy(1, 0, &mut buffer).unwrap();
    assert!(is_right(&buffer));
    // Each copy has a block that is wrong: no copy of the whole is right, and each block has one.
    pair.rot(0, place(1));
    pair.rot(1, place(2));
    assert_eq!(device.heal(10, &mut buffer[..16_000], &is_right).unwrap(), Outcome::Recovered);
    for copy in 0..2 {
        device.read_copy(copy, 0, &mut buffer).unwrap();
        assert!(is_right(&buffer), "copy {copy}");
    }
}

#[test]
fn a_scrub_checks_every_copy_and_heals_what_can_be_healed() {
    let (pair, device) = paired(Mismatch::Refuse);
    write(&device, 0, &[1; 10 * 4096]);
    write(&device, 955 * BLOCK, &[1; 10 * 4096]);
    let scrub = || device.scrub(0, LEN).unwrap();
    assert_eq!(scrub(), Scrubbed { blocks: 20, healed: 0, damaged: 0 });
    pair.rot(0, place(1));
    pair.rot(1, place(2));
    pair.rot(1, GROUPS_OFFSET + GROUP + BLOCK);
    (0..2).for_each(|side| pair.rot(side, place(3)));
    assert_eq!(scrub(), Scrubbed { blocks: 20, healed: 3, damaged: 1 });
    assert_eq!(scrub(), Scrubbed { blocks: 20, healed: 0, damaged: 1 });
    assert_eq!(device.scrub(BLOCK, 2 * BLOCK).unwrap().blocks, 2);
    assert_corrupt(&device, 3);
    for block in [1, 2, 960] {
        for copy in 0..2 {
            let mut bytes = [0; 4096];
            device.read_copy(copy, block * BLOCK, &mut bytes).unwrap();
            assert_eq!(bytes, [1; 4096], "copy {copy} of block {block}");
        }
    }
    let (media, device) = single(15);
    write(&device, 0, &[1; 10 * 4096]);
    media.rot(place(4), 1);
    assert_eq!(device.scrub(0, LEN).unwrap(), Scrubbed { blocks: 10, healed: 0, damaged: 1 });
    assert!(device.scrub(LEN, 1).is_err());
}

#[test]
fn who_verifies_gets_what_is_there_and_zeros_where_nothing_was_written() {
    let (pair, device) = paired(Mismatch::Refuse);
    write(&device, 0, &[7; 3 * 4096]);
    device.clean().unwrap();
    pair.rot(0, place(1) + 9);
    for may_wait in [true, false] {
        let mut found = vec![0x5a; 5 * 4096 - 100];
        assert!(device.read_unverified(100, &mut found[..2 * 4096], may_wait).unwrap());
        assert_ne!(found[4096 + 9 - 100], 7, "the layer does not look");
        assert!(device.read_unverified(100, &mut found, may_wait).unwrap());
        assert_ne!(found[4096 + 9 - 100], 7, "nor where it knows that something was never written");
        assert!(found[3 * 4096 - 100..] == [0; 2 * 4096]);
    }
    let mut buffer = [0; 4096];
    let right = |bytes: &[u8]| bytes == [7; 4096];
    assert_eq!(device.heal(BLOCK, &mut buffer, &right).unwrap(), Outcome::Recovered);
    assert_eq!(buffer, [7; 4096]);
}

#[test]
fn a_callers_right_bytes_make_a_wrong_checksum_right() {
    let (pair, device) = paired(Mismatch::Refuse);
    write(&device, 0, &[1; 8192]);
    device.clean().unwrap();
    // Rot took the same bit of both copies, and it is the checksum's owner who is wrong for once.
    (0..2).for_each(|side| pair.rot(side, place(0)));
    let mut expected = [1; 8192];
    expected[0] ^= 1 << 3;
    assert_corrupt(&device, 0);
    let mut buffer = [0; 8192];
    let outcome = device.heal(0, &mut buffer, &|bytes| bytes == expected).unwrap();
    assert_eq!(outcome, Outcome::Transient);
    let device = open(Arc::<Pair>::clone(&pair), &pair.ledger);
    assert_eq!(read(&device, 0, 8192), expected);
}

#[test]
fn no_more_groups_are_open_or_in_memory_than_they_may() {
    let len = 20 * 960 * BLOCK;
    let media = Arc::new(SimMedia::new(Integrity::bytes_below(len), 1));
    IntegrityDevice::format(&over(&media), 99).unwrap();
    let options = IntegrityOptions { groups_max: 6, open_max: 4, ..IntegrityOptions::default() };
    let device = IntegrityDevice::open(over(&media), options, Arc::default()).unwrap();
    for round in 1..4_u8 {
        for group in 0..20 {
            write(&device, group * 960 * BLOCK + 100, &[round; 5000]);
            let is_marked = |group: &u64| sector(&media, *group).is_some_and(|s| is_open(&s));
            assert!((0..20).filter(is_marked).count() <= 4);
        }
    }
    drop(device);
    media.kill();
    let device = IntegrityDevice::open(over(&media), options, Arc::default()).unwrap();
    for group in 0..20 {
        assert_eq!(read(&device, group * 960 * BLOCK + 100, 5000), [3; 5000]);
    }
}

#[test]
fn writes_to_groups_that_are_open_need_no_sync_though_as_many_are_open_as_may_be() {
    let media = media(14);
    IntegrityDevice::format(&over(&media), 99).unwrap();
    let options = IntegrityOptions { groups_max: 4, open_max: 2, ..IntegrityOptions::default() };
    let device = IntegrityDevice::open(over(&media), options, Arc::default()).unwrap();
    write(&device, 0, &[1; 4096]);
    write(&device, 960 * BLOCK, &[1; 4096]);
    media.start_log();
    for round in 0..10 {
        write(&device, round * BLOCK, &[2; 4096]);
        write(&device, (960 + round) * BLOCK, &[2; 4096]);
    }
    assert!(media.take_log().iter().all(|record| record.op == Op::Write));
}

#[test]
fn threads_that_write_parts_of_the_same_blocks_lose_nothing() {
    let media = media(11);
    IntegrityDevice::format(&over(&media), 99).unwrap();
    let options = IntegrityOptions { groups_max: 2, open_max: 1, ..IntegrityOptions::default() };
    let device = IntegrityDevice::open(over(&media), options, Arc::default()).unwrap();
    let base = 955 * BLOCK;
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let device = &device;
            scope.spawn(move || {
                // Each has every fourth kilobyte of ten blocks, five of each of two groups.
                for round in 1..40_u8 {
                    for part in 0..10 {
                        write(device, base + part * BLOCK + thread * 1024, &[round; 1024]);
                    }
                    let found = read(device, base, 10 * 4096);
                    for (at, chunk) in found.chunks(1024).enumerate() {
                        assert!(
                            chunk.iter().all(|byte| *byte == chunk[0]) || at as u64 % 4 != thread
                        );
                        assert!(at as u64 % 4 != thread || chunk[0] == round);
                    }
                    if round % 8 == 0 {
                        device.flush().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(read(&device, base, 10 * 4096), vec![39; 10 * 4096]);
}

#[test]
fn a_mark_that_was_torn_is_made_again_before_the_next_write() {
    let (media, device) = single(12);
    write(&device, 0, &[1; 200 * 4096]);
    device.clean().unwrap();
    let page = |media: &SimMedia| {
        let mut bytes = [0; 4096];
        env::Media::read_at(media, GROUPS_OFFSET, &mut bytes).unwrap();
        bytes
    };
    let clean = page(&media);
    device.write_durable(0, &[IoSlice::new(&[1; 4096])]).unwrap();
    let mut torn = clean;
    torn[..512].copy_from_slice(&page(&media)[..512]);
    env::Media::write_at(&*media, GROUPS_OFFSET, &[IoSlice::new(&torn)]).unwrap();
    env::Media::sync(&*media).unwrap();
    let device = open(over(&media), &Arc::default());
    write(&device, 130 * BLOCK, &[2; 4096]);
    drop(device);
    media.crash_with(&mut |_, _| sim::Keep::All);
    let device = open(over(&media), &Arc::default());
    assert_eq!(read(&device, 130 * BLOCK, 4096), [2; 4096], "it was in flight, and is no error");
    assert_eq!(read(&device, 0, 130 * 4096), [1; 130 * 4096]);
}

/// Calls back in the middle of a write of data.
struct Interrupted {
    below: Device,
    callback: parking_lot::Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl BlockDevice for Interrupted {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> hindsight_block::Result<()> {
        self.below.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> hindsight_block::Result<()> {
        let callback = if offset == place(0) { self.callback.lock().take() } else { None };
        callback.into_iter().for_each(|callback| callback());
        self.below.write_at(offset, slices)
    }
    fn flush(&self) -> hindsight_block::Result<()> {
        self.below.flush()
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> hindsight_block::Result<()> {
        self.below.allocate(offset, length_bytes)
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> hindsight_block::Result<()> {
        self.below.discard(offset, length_bytes)
    }
    fn describe(&self) -> String {
        "interrupted".to_owned()
    }
}

#[test]
fn a_group_stays_open_while_a_write_is_under_way() {
    let media = media(13);
    IntegrityDevice::format(&over(&media), 99).unwrap();
    let callback = parking_lot::Mutex::new(None);
    let below = Arc::new(Interrupted { below: over(&media), callback });
    let device: Device = Arc::<Interrupted>::clone(&below);
    let device = Arc::new(open(device, &Arc::default()));
    write(&device, 4096, &[1; 4096]);
    for by_flushes in [false, true] {
        let (inner, seen) = (Arc::clone(&device), Arc::clone(&media));
        *below.callback.lock() = Some(Box::new(move || {
            if by_flushes {
                (0..4).for_each(|_| inner.flush().unwrap());
            }
            inner.clean().unwrap();
            assert!(is_open(&sector(&seen, 0).expect("a page")), "by flushes: {by_flushes}");
        }));
        write(&device, 0, &[2; 4096]);
        assert!(below.callback.lock().is_none(), "it was called");
        device.clean().unwrap();
        assert!(!is_open(&sector(&media, 0).expect("a page")));
    }
}
