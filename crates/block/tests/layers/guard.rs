//! Blocks that their owner guards: the integrity layer does nothing for them, and nothing that a
//! crash does makes the layer deny what was written there.

use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use format::integrity::{
    COPY_OFFSETS, ChecksumSector, GROUPS_OFFSET, IntegrityHeader, SectorState,
};
use hindsight_block::{
    BlockDevice, CryptDevice, CryptKey, DelayDevice, Delays, DeviceError, DeviceErrorKind,
    FaultDevice, Guard, IntegrityDevice, IntegrityOptions, Keeper, Ledger, MediaDevice,
    MirrorDevice, Outcome, Result, Side, Standing, StripeDevice, Tap, TapDevice,
};
use sim::{Failure, Keep, Op, Random, SimMedia};

use crate::pair::Pair;

type Device = Arc<dyn BlockDevice>;
type Integrity = IntegrityDevice<Device>;

const BLOCK: u64 = 4096;
/// Blocks of a sector of checksums.
const SECTOR: u64 = 120;
/// Two groups and a bit.
const BLOCKS: u64 = 2000;

fn over(media: &Arc<SimMedia>) -> Device {
    let media: Arc<SimMedia> = Arc::clone(media);
    Arc::new(MediaDevice::new(media))
}

fn open(media: &Arc<SimMedia>) -> Integrity {
    let options = IntegrityOptions::default();
    IntegrityDevice::open(over(media), options, Arc::default()).expect("an integrity device")
}

fn made(seed: u64) -> (Arc<SimMedia>, Integrity) {
    let media = Arc::new(SimMedia::new(Integrity::bytes_below(BLOCKS * BLOCK), seed));
    Integrity::format(&over(&media), 99).expect("room for it");
    let device = open(&media);
    (media, device)
}

fn guard(device: &dyn BlockDevice, first: u64, count: u64, by: Guard) {
    device.guard(first * BLOCK, count * BLOCK, by).expect("a guard");
}

fn write(device: &dyn BlockDevice, offset: u64, bytes: &[u8]) {
    device.write_at(offset, &[IoSlice::new(bytes)]).expect("a write");
}

fn block(device: &dyn BlockDevice, number: u64) -> Vec<u8> {
    let mut buffer = vec![0x5a; BLOCK as usize];
    device.read_at(number * BLOCK, &mut buffer).expect("a read");
    buffer
}

/// Where a block is below.
fn place(number: u64) -> u64 {
    GROUPS_OFFSET + (number / 960 * 961 + 1 + number % 960) * BLOCK
}

/// The states of the eight sectors of a group, as they are on the media.
fn states(media: &SimMedia, group: u64) -> Vec<Option<SectorState>> {
    let mut page = [0; 4096];
    env::Media::read_at(media, GROUPS_OFFSET + group * 961 * BLOCK, &mut page).expect("a page");
    let sectors = page.chunks(512).zip(group as u32 * 8..);
    sectors
        .map(|(bytes, number)| {
            let sector = ChecksumSector::decode(bytes, 99, number).expect("a sound sector");
            sector.map(|sector| sector.state)
        })
        .collect()
}

#[test]
fn a_write_that_its_owner_guards_is_one_write_of_these_bytes() {
    let (media, device) = made(1);
    guard(&device, 0, BLOCKS, Guard::Owner);
    device.flush().unwrap();
    for (offset, length) in [(0, 4096), (4096 + 13, 700), (958 * BLOCK, 4096), (10, 100_000)] {
        media.start_log();
        write(&device, offset, &vec![7; length]);
        device.flush().unwrap();
        device.write_durable(offset, &[IoSlice::new(&vec![7; length])]).unwrap();
        let found = media.take_log();
        let bytes: u64 = found.iter().filter(|r| r.op == Op::Write).map(|r| r.length_bytes).sum();
        assert_eq!(bytes, 2 * length as u64, "{found:?}");
        assert!(found.iter().all(|r| r.op != Op::Read), "{found:?}");
    }
    media.start_log();
    device.discard(BLOCK, 8 * BLOCK).unwrap();
    assert_eq!(media.take_log().len(), 1, "nothing is noted of a discard");
    // Over the end of a group, of which the page lies between.
    write(&device, 959 * BLOCK - 5, &[9; 8202]);
    let mut buffer = [0; 8202];
    device.read_at(959 * BLOCK - 5, &mut buffer).unwrap();
    assert_eq!(buffer, [9; 8202]);
}

#[test]
fn only_what_is_whole_gets_another_guard_and_neighbours_keep_theirs() {
    let (media, device) = made(2);
    write(&device, 119 * BLOCK, &[1; 4096]);
    write(&device, 240 * BLOCK, &[2; 4096]);
    device.guard(119 * BLOCK + 1, 122 * BLOCK - 2, Guard::Owner).unwrap();
    let exempt = |group| {
        let is_exempt = |state: &Option<SectorState>| *state == Some(SectorState::Exempt);
        states(&media, group).iter().map(is_exempt).collect::<Vec<bool>>()
    };
    assert_eq!(exempt(0), [false, true, false, false, false, false, false, false]);
    assert_eq!((block(&device, 119), block(&device, 240)), (vec![1; 4096], vec![2; 4096]));
    // Parts of one request that two guard.
    write(&device, 119 * BLOCK, &vec![3; 122 * 4096]);
    for number in [119, 120, 239, 240] {
        media.rot(place(number), 0);
    }
    for (number, is_guarded) in [(119, true), (120, false), (239, false), (240, true)] {
        let mut buffer = [0; 4096];
        let read = device.read_at(number * BLOCK, &mut buffer);
        match is_guarded {
            true => assert_eq!(read.unwrap_err().kind, DeviceErrorKind::Corrupt, "block {number}"),
            false => assert_eq!((read.is_ok(), buffer[0]), (true, 2), "block {number}"),
        }
    }
    let scrubbed = device.scrub(0, BLOCKS * BLOCK).unwrap();
    assert_eq!(
        (scrubbed.blocks, scrubbed.damaged),
        (2, 2),
        "what has no checksum is not looked at"
    );
    // The last sector of the device has fewer blocks, and may come to have more.
    guard(&device, 15 * SECTOR, BLOCKS - 15 * SECTOR, Guard::Owner);
    assert_eq!(exempt(1)[7..], [true]);
    assert_eq!(exempt(2), [false; 8]);
    assert!(device.guard(BLOCKS * BLOCK, 1, Guard::Owner).is_err(), "beyond the end");
    assert!(device.guard(u64::MAX, 2, Guard::Owner).is_err(), "beyond the end");
    device.guard(7, 100, Guard::Owner).expect("nothing whole");
}

#[test]
fn what_layers_guard_again_is_zeros_and_has_checksums() {
    let (media, device) = made(3);
    guard(&device, 0, SECTOR, Guard::Owner);
    write(&device, 0, &[1; 4096]);
    guard(&device, 0, SECTOR, Guard::Layers);
    assert_eq!(block(&device, 0), [0; 4096]);
    media.crash_with(&mut |_, _| Keep::Nothing);
    let device = open(&media);
    assert_eq!(block(&device, 0), [0; 4096], "durably");
    write(&device, 0, &[2; 4096]);
    media.rot(place(0), 0);
    assert!(device.read_at(0, &mut [0; 4096]).is_err());
    // Checksums that there were are forgotten durably: none may meet what is written afterwards.
    write(&device, 0, &[3; 4096]);
    device.clean().unwrap();
    guard(&device, 0, SECTOR, Guard::Owner);
    write(&device, 0, &[4; 4096]);
    media.crash_with(&mut |_, change| match change.offset == place(0) {
        true => Keep::All,
        false => Keep::Nothing,
    });
    let device = open(&media);
    assert!(device.read_at(0, &mut [0; 4096]).is_ok());
}

#[test]
fn what_was_written_durably_outlives_a_power_cut_though_nothing_was_flushed() {
    let (media, device) = made(4);
    guard(&device, 0, BLOCKS, Guard::Owner);
    device.write_durable(5 * BLOCK + 100, &[IoSlice::new(&[6; 300])]).unwrap();
    guard(&device, 960, 2 * SECTOR, Guard::Layers);
    guard(&device, 960, 2 * SECTOR, Guard::Owner);
    device.write_durable(970 * BLOCK, &[IoSlice::new(&[7; 4096])]).unwrap();
    media.crash_with(&mut |_, _| Keep::Nothing);
    let device = open(&media);
    let mut buffer = [0; 300];
    device.read_at(5 * BLOCK + 100, &mut buffer).unwrap();
    assert_eq!(buffer, [6; 300]);
    assert_eq!(block(&device, 970), [7; 4096]);
}

#[test]
fn a_guard_that_comes_while_a_flush_is_under_way_is_not_taken_for_flushed() {
    // The flush of the device below lets a guard in that it says nothing of.
    struct Between(Device, std::sync::Mutex<Option<Box<dyn FnOnce() + Send>>>);
    impl BlockDevice for Between {
        fn len_bytes(&self) -> u64 {
            self.0.len_bytes()
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> hindsight_block::Result<()> {
            self.0.read_at(offset, buffer)
        }
        fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> hindsight_block::Result<()> {
            self.0.write_at(offset, slices)
        }
        fn flush(&self) -> hindsight_block::Result<()> {
            let flushed = self.0.flush();
            if let Some(act) = self.1.lock().unwrap().take() {
                act();
            }
            flushed
        }
        fn allocate(&self, offset: u64, length_bytes: u64) -> hindsight_block::Result<()> {
            self.0.allocate(offset, length_bytes)
        }
        fn discard(&self, offset: u64, length_bytes: u64) -> hindsight_block::Result<()> {
            self.0.discard(offset, length_bytes)
        }
        fn write_durable(&self, at: u64, slices: &[IoSlice<'_>]) -> hindsight_block::Result<()> {
            self.0.write_durable(at, slices)
        }
        fn describe(&self) -> String {
            self.0.describe()
        }
    }
    let (media, device) = made(5);
    drop(device);
    let between = Arc::new(Between(over(&media), std::sync::Mutex::default()));
    let below: Device = Arc::<Between>::clone(&between);
    let options = IntegrityOptions::default();
    let device = Arc::new(IntegrityDevice::open(below, options, Arc::default()).expect("opens"));
    guard(&*device, 0, SECTOR, Guard::Owner);
    let again = Arc::clone(&device);
    *between.1.lock().unwrap() =
        Some(Box::new(move || guard(&*again, SECTOR, SECTOR, Guard::Owner)));
    device.flush().unwrap();
    device.write_durable(SECTOR * BLOCK, &[IoSlice::new(&[8; 4096])]).unwrap();
    media.crash_with(&mut |_, _| Keep::Nothing);
    assert_eq!(block(&open(&media), SECTOR), [8; 4096]);
}

#[test]
fn a_kill_leaves_all_that_was_written() {
    let (media, device) = made(6);
    guard(&device, 0, BLOCKS, Guard::Owner);
    write(&device, 7 * BLOCK, &[9; 4096]);
    drop(device);
    media.kill();
    assert_eq!(block(&open(&media), 7), [9; 4096]);
}

#[test]
fn a_guard_that_could_not_be_noted_is_none() {
    for by in [Guard::Owner, Guard::Layers] {
        let (media, device) = made(7);
        if by == Guard::Layers {
            guard(&device, 0, SECTOR, Guard::Owner);
        }
        media.fail(Failure::once(Op::Write));
        device.guard(0, SECTOR * BLOCK, by).expect_err("the page cannot be written");
        write(&device, 0, &[1; 4096]);
        media.rot(place(0), 0);
        assert!(device.read_at(0, &mut [0; 4096]).is_err(), "guarded by the layer, {by:?}");
    }
}

#[test]
fn a_damaged_sector_is_sound_when_all_of_it_gets_a_guard() {
    for by in [Guard::Owner, Guard::Layers] {
        let (media, device) = made(8);
        write(&device, 0, &[1; 4096]);
        device.clean().unwrap();
        drop(device);
        media.rot(GROUPS_OFFSET + 40, 0);
        let device = open(&media);
        assert!(device.read_at(0, &mut [0; 4096]).is_err());
        guard(&device, 0, SECTOR, by);
        write(&device, 0, &[2; 512]);
        assert_eq!(block(&device, 0)[..512], [2; 512]);
    }
}

#[test]
fn its_owner_heals_by_his_own_checksum_alone() {
    let pair = Pair::new(Integrity::bytes_below(BLOCKS * BLOCK), 9);
    let below: Device = Arc::<Pair>::clone(&pair);
    Integrity::format(&below, 99).expect("room for it");
    let ledger: Arc<Ledger> = Arc::clone(&pair.ledger);
    let device = Integrity::open(below, IntegrityOptions::default(), ledger).expect("opens");
    guard(&device, 0, SECTOR, Guard::Owner);
    write(&device, 0, &[1; 3 * 4096]);
    pair.rot(0, place(1));
    let is_right = |bytes: &[u8]| bytes == [1; 4096];
    let mut buffer = [0; 4096];
    assert_eq!(device.heal(BLOCK, &mut buffer, &is_right).unwrap(), Outcome::Recovered);
    assert!(is_right(&buffer) && is_right(&block(&device, 1)));
    // Who is never content spoils no copy.
    pair.rot(1, place(2));
    let outcome = device.heal(0, &mut [0; 3 * 4096], &|_| false).unwrap();
    assert_eq!(outcome, Outcome::Unrecoverable);
    let mut copies = [[0; 4096]; 2];
    for (copy, bytes) in copies.iter_mut().enumerate() {
        device.read_copy(copy, 2 * BLOCK, bytes).unwrap();
    }
    assert!(is_right(&copies[0]) && !is_right(&copies[1]));
}

/// Members that never fail.
struct AllIn;

impl Keeper for AllIn {
    fn standing(&self, _: &[usize]) -> Standing {
        Standing::In
    }
    fn put_out(&self, _: &[usize], failure: &DeviceError) -> hindsight_block::Result<()> {
        panic!("no fault is armed: {failure}")
    }
    fn note_failed_read(&self, _: &[usize], failure: &DeviceError) {
        panic!("no fault is armed: {failure}")
    }
    fn absences(&self, _: &[usize]) -> u64 {
        0
    }
    fn is_unsettled(&self) -> bool {
        false
    }
}

#[test]
fn layers_above_pass_a_guard_on_to_the_same_blocks() {
    let media: Vec<Arc<SimMedia>> = (0..2)
        .map(|seed| Arc::new(SimMedia::new(Integrity::bytes_below(BLOCKS * BLOCK), seed)))
        .collect();
    let integrity = |media: &Arc<SimMedia>| -> Device {
        Integrity::format(&over(media), 99).expect("room for it");
        Arc::new(open(media))
    };
    let crypt = |below: Device| -> Device {
        let key = CryptKey::new(vec![7; 32]).expect("long enough");
        let mut random = Random::new(1);
        CryptDevice::format(&below, &key, &mut |bytes| random.fill(bytes)).expect("room");
        Arc::new(CryptDevice::open(below, &key).expect("the right key"))
    };
    let one = |media: &[Arc<SimMedia>]| integrity(&media[0]);
    type Make<'m> = Box<dyn Fn(&[Arc<SimMedia>]) -> Device + 'm>;
    let stacks: Vec<(&str, Make<'_>)> = vec![
        ("crypt", Box::new(|m| crypt(one(m)))),
        (
            "delay",
            Box::new(|m| Arc::new(DelayDevice::new(one(m), Delays::all(0), Arc::new(|_| {})))),
        ),
        (
            "fault",
            Box::new(|m| Arc::new(FaultDevice::new(one(m), Arc::default(), Arc::new(|_| {})))),
        ),
        (
            "tap",
            Box::new(|m| {
                let clock = Arc::new(sim::SimClock::new(units::WallTime::EPOCH));
                Arc::new(TapDevice::new(one(m), Arc::new(Tap::new(9)), clock))
            }),
        ),
        (
            "stripe",
            Box::new(|m| Arc::new(StripeDevice::new(m.iter().map(integrity).collect(), 64 << 10))),
        ),
        (
            "mirror",
            Box::new(|m| {
                let side = |media| Side { device: integrity(media), members: Vec::new() };
                let sides = m.iter().map(side).collect();
                Arc::new(MirrorDevice::new(sides, Arc::new(AllIn), Arc::default()))
            }),
        ),
    ];
    for (name, make) in stacks {
        let device = make(&media);
        device.guard(0, device.len_bytes(), Guard::Owner).expect("a guard");
        device.flush().expect("a flush");
        media.iter().for_each(|media| media.start_log());
        let at = (2 << 20) + 100;
        write(&*device, at, &[5; 300_000]);
        device.flush().expect("a flush");
        let written: u64 = (media.iter().flat_map(|media| media.take_log()))
            .filter(|record| record.op == Op::Write)
            .map(|record| record.length_bytes)
            .sum();
        let copies = if name == "mirror" { 2 } else { 1 };
        let edges = if name == "crypt" { 2 * 4096 } else { 0 };
        assert!(written <= copies * 300_000 + edges, "{name}: {written} bytes");
        let mut buffer = vec![0; 300_000];
        device.read_at(at, &mut buffer).expect("a read");
        assert!(buffer.iter().all(|byte| *byte == 5), "{name}");
    }
}

#[test]
fn a_device_that_was_made_without_it_keeps_its_checksums() {
    let (media, device) = made(10);
    drop(device);
    for (copy, offset) in COPY_OFFSETS.into_iter().enumerate() {
        let header = IntegrityHeader { id: 99, blocks: BLOCKS, has_exempt: false };
        write(&*over(&media), offset, &header.encode(copy));
    }
    let device = open(&media);
    guard(&device, 0, BLOCKS, Guard::Owner);
    write(&device, 0, &[1; 4096]);
    media.rot(place(0), 0);
    assert!(device.read_at(0, &mut [0; 4096]).is_err(), "an older program would not know");
}

/// A mirror of two integrity devices, and their media.
fn mirror_of_checked(seed: u64) -> ([Arc<SimMedia>; 2], Arc<Ledger>, MirrorDevice) {
    let media = [seed, seed + 1].map(|seed| {
        let media = Arc::new(SimMedia::new(Integrity::bytes_below(BLOCKS * BLOCK), seed));
        Integrity::format(&over(&media), 99).expect("room for it");
        media
    });
    let side = |media| Side { device: Arc::new(open(media)), members: Vec::new() };
    let ledger: Arc<Ledger> = Arc::default();
    let sides = media.iter().map(side).collect();
    let mirror = MirrorDevice::new(sides, Arc::new(AllIn), Arc::clone(&ledger));
    (media, ledger, mirror)
}

#[test]
fn a_block_that_one_side_knows_to_be_wrong_is_read_from_the_other_and_written_again() {
    let (media, ledger, mirror) = mirror_of_checked(20);
    write(&mirror, 0, &[1; 8 * 4096]);
    for (side, number) in [(0, 1), (1, 3)] {
        media[side].rot(place(number), 0);
        assert_eq!(block(&mirror, number), [1; 4096], "without a heal that its reader asks for");
        assert_eq!(block(&mirror, number), [1; 4096]);
    }
    // Whichever side was read: of each block that was wrong there, once.
    let recovered = ledger.recovered.load(std::sync::atomic::Ordering::Relaxed);
    assert!(recovered <= 2, "{recovered}");
    media[0].rot(place(5), 0);
    media[1].rot(place(5), 1);
    assert!(mirror.read_at(5 * BLOCK, &mut [0; 4096]).is_err(), "no side has it");
}

#[test]
fn a_part_of_a_block_that_is_wrong_on_one_side_is_healed_and_puts_nobody_out() {
    let (media, _, mirror) = mirror_of_checked(30);
    write(&mirror, 0, &[1; 8 * 4096]);
    let is_right = |bytes: &[u8]| bytes == [1; 600];
    for (side, media) in media.iter().enumerate() {
        media.rot(place(2) + 100, 0);
        let mut buffer = [0; 600];
        let outcome = mirror.heal(2 * BLOCK + 50, &mut buffer, &is_right).unwrap();
        assert_eq!(outcome, Outcome::Recovered, "side {side}");
        for copy in 0..2 {
            let mut whole = [0; 4096];
            mirror.read_copy(copy, 2 * BLOCK, &mut whole).expect("its checksum is right again");
            assert_eq!(whole, [1; 4096], "copy {copy}");
        }
    }
}

#[test]
fn who_verifies_is_given_what_the_layer_cannot_vouch_for() {
    let (media, device) = made(12);
    write(&device, 0, &[1; 4 * 4096]);
    device.clean().unwrap();
    drop(device);
    media.rot(GROUPS_OFFSET + 40, 0);
    let device = open(&media);
    assert!(device.read_at(0, &mut [0; 4096]).is_err(), "its checksum is lost");
    write(&device, 120 * BLOCK, &[2; 4096]);
    let mut buffer = [0x5a; 3 * 4096];
    for may_wait in [true, false] {
        assert!(device.read_unverified(BLOCK, &mut buffer, may_wait).unwrap());
        assert_eq!(buffer, [1; 3 * 4096], "its reader knows whether it is right");
        buffer.fill(0x5a);
        // Of blocks that were never written there is nothing to verify.
        assert!(device.read_unverified(120 * BLOCK + 4000, &mut buffer, may_wait).unwrap());
        assert_eq!((buffer[..96].to_vec(), buffer[96..].to_vec()), (vec![2; 96], vec![0; 12_192]));
    }
}

#[test]
fn a_part_that_its_owner_heals_leaves_a_block_that_its_checksum_matches() {
    let pair = Pair::new(Integrity::bytes_below(BLOCKS * BLOCK), 40);
    let below: Device = Arc::<Pair>::clone(&pair);
    Integrity::format(&below, 99).expect("room for it");
    let ledger: Arc<Ledger> = Arc::clone(&pair.ledger);
    let device = Integrity::open(below, IntegrityOptions::default(), ledger).expect("opens");
    write(&device, 0, &[1; 3 * 4096]);
    device.clean().unwrap();
    // What a power cut left on one copy, of parts of the first and the last of three blocks and all
    // of the second, and its owner calls right.
    let torn = vec![7; 2 * 4096];
    for (at, count) in [(500, 3596), (4096, 4096), (8192, 2596)] {
        let below = place(at / BLOCK) + at % BLOCK;
        env::Media::write_at(&*pair.media[1], below, &[IoSlice::new(&torn[..count])]).unwrap();
    }
    let mut buffer = vec![0; 3596 + 4096 + 2596];
    let is_right = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 7);
    assert_eq!(device.heal(500, &mut buffer, &is_right).unwrap(), Outcome::Recovered);
    let mut expected = vec![1; 3 * 4096];
    expected[500..500 + buffer.len()].fill(7);
    let mut found = vec![0; 3 * 4096];
    device.read_at(0, &mut found).expect("the layer knows all of it");
    assert!(found == expected);
    for copy in 0..2 {
        device.read_copy(copy, 0, &mut found).unwrap();
        assert!(found == expected, "copy {copy}");
    }
    write(&device, 100, &[9; 100]);
}

#[test]
fn a_block_that_is_read_elsewhere_takes_no_wrong_neighbour_along() {
    let (media, _, mirror) = mirror_of_checked(50);
    guard(&mirror, SECTOR, SECTOR, Guard::Owner);
    write(&mirror, (SECTOR - 1) * BLOCK, &[1; 3 * 4096]);
    // Each side has one wrong block: that of the first is told by its checksum, that of the second
    // its owner knows alone.
    media[0].rot(place(SECTOR - 1), 0);
    media[1].rot(place(SECTOR), 0);
    mirror.read_at((SECTOR - 1) * BLOCK, &mut [0; 3 * 4096]).expect("the second side has it");
    let is_right = |bytes: &[u8]| bytes == [1; 4096];
    for number in [SECTOR - 1, SECTOR, SECTOR + 1] {
        let mut buffer = [0; 4096];
        mirror.heal(number * BLOCK, &mut buffer, &is_right).unwrap();
        assert!(is_right(&buffer), "block {number}");
    }
}

#[test]
fn lost_checksums_of_120_blocks_put_no_side_out_when_one_is_read() {
    let (media, _, mirror) = mirror_of_checked(60);
    write(&mirror, 0, &[1; 8 * 4096]);
    mirror.flush().unwrap();
    drop(mirror);
    media[0].rot(GROUPS_OFFSET + 40, 0);
    let side = |media| Side { device: Arc::new(open(media)), members: Vec::new() };
    let sides = media.iter().map(side).collect();
    let mirror = MirrorDevice::new(sides, Arc::new(AllIn), Arc::default());
    assert_eq!(block(&mirror, 2), [1; 4096]);
    let mut buffer = [0; 600];
    mirror.heal(2 * BLOCK + 7, &mut buffer, &|bytes| bytes == [1; 600]).unwrap();
    assert_eq!(buffer, [1; 600]);
}

/// Blocks that layers guard again are what they were, whenever the power fails, and have checksums
/// once that was said.
#[test]
fn what_is_guarded_again_is_what_it_was() {
    for changes in 0.. {
        let (media, device) = made(20);
        guard(&device, 0, BLOCKS, Guard::Owner);
        for number in 0..BLOCKS / 100 {
            write(&device, number * 100 * BLOCK, &[number as u8 + 1; 4096]);
        }
        device.flush().unwrap();
        write(&device, 700 * BLOCK, &[99; 4096]);
        let begun = media.changes();
        media.halt_after(changes);
        let is_done = device.guard(0, 1900 * BLOCK, Guard::Again).is_ok();
        let is_over = !media.is_halted();
        drop(device);
        media.crash(&mut Random::new(changes));
        let device = open(&media);
        for number in 0..BLOCKS / 100 {
            // What was not flushed is there by sectors.
            let (old, new) = (number as u8 + 1, if number == 7 { 99 } else { number as u8 + 1 });
            for found in block(&device, number * 100).chunks(512) {
                assert!(found == [old; 512] || found == [new; 512], "{changes} changes, {number}");
            }
        }
        if is_done {
            assert!(media.changes() > begun, "it was noted");
            let exempt = |group| {
                let is_exempt = |state: &Option<SectorState>| *state == Some(SectorState::Exempt);
                states(&media, group).iter().filter(|state| is_exempt(state)).count()
            };
            // The last sector but two has more blocks than the range.
            assert_eq!((exempt(0), exempt(1)), (0, 1));
        }
        if is_over {
            assert!(is_done && changes > 10, "{changes}");
            return;
        }
    }
}

/// A device that does something when it is next written to a place.
struct Waylaid {
    below: Device,
    at: AtomicU64,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl BlockDevice for Waylaid {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.below.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        if offset == self.at.load(Ordering::SeqCst) {
            let act = self.act.lock().expect("no panic").take();
            act.into_iter().for_each(|act| act());
        }
        self.below.write_at(offset, slices)
    }
    fn flush(&self) -> Result<()> {
        self.below.flush()
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.below.allocate(offset, length_bytes)
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.below.discard(offset, length_bytes)
    }
    fn describe(&self) -> String {
        "waylaid".to_owned()
    }
}

/// Who writes what nobody keeps checksums of is through with it before somebody does.
#[test]
fn a_guard_that_comes_while_its_owner_writes_has_the_checksum_of_what_was_written() {
    let media = Arc::new(SimMedia::new(Integrity::bytes_below(BLOCKS * BLOCK), 21));
    Integrity::format(&over(&media), 99).expect("room for it");
    let (at, act) = (AtomicU64::new(place(5)), Mutex::default());
    let waylaid = Arc::new(Waylaid { below: over(&media), at, act });
    let below = Arc::<Waylaid>::clone(&waylaid) as Device;
    let device = IntegrityDevice::open(below, IntegrityOptions::default(), Arc::default());
    let device = Arc::new(device.expect("an integrity device"));
    guard(&*device, 0, SECTOR, Guard::Owner);
    let (done, is_done) = mpsc::channel();
    let other = Arc::clone(&device);
    let act = move || {
        let guarding = std::thread::spawn(move || {
            guard(&*other, 0, SECTOR, Guard::Again);
            done.send(()).expect("somebody waits");
        });
        // It has to wait for this write; it is given the time to do it wrong.
        std::thread::sleep(Duration::from_millis(100));
        drop(guarding);
    };
    *waylaid.act.lock().expect("no panic") = Some(Box::new(act));
    write(&*device, 5 * BLOCK, &[7; 4096]);
    is_done.recv().expect("it is done");
    assert_eq!(block(&*device, 5), [7; 4096]);
    media.rot(place(5), 0);
    assert!(device.read_at(5 * BLOCK, &mut [0; 4096]).is_err(), "it has a checksum");
}

#[test]
fn a_guard_that_failed_once_is_durable_when_it_is_made_again() {
    let (media, device) = made(70);
    write(&device, 0, &[1; 4096]);
    device.clean().unwrap();
    // Checksums are on the device that memory has forgotten by then.
    media.fail(Failure::once(Op::Write));
    device.guard(0, SECTOR * BLOCK, Guard::Owner).expect_err("the page cannot be written");
    guard(&device, 0, SECTOR, Guard::Owner);
    write(&device, 0, &[2; 4096]);
    media.crash_with(&mut |_, change| match change.offset == place(0) {
        true => Keep::All,
        false => Keep::Nothing,
    });
    assert_eq!(block(&open(&media), 0), [2; 4096]);
}
