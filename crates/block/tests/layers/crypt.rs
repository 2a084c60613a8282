//! The crypt layer: what reaches the device below, which keys open it, parts of cells, healing.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::crypt::{COPY_OFFSETS, DATA_OFFSET};
use hindsight_block::{
    BlockDevice, CryptDevice, CryptError, CryptKey, DeviceErrorKind, MediaDevice, MemoryDevice,
    Outcome, Resync,
};
use parking_lot::Mutex;
use sim::{Keep, Random, SimMedia};

use crate::pair::Pair;

type Device = Arc<dyn BlockDevice>;
type Crypt = CryptDevice;

const LEN: u64 = 64 << 10;
const LEN_BELOW: u64 = DATA_OFFSET + LEN;

fn key(byte: u8) -> CryptKey {
    CryptKey::new(vec![byte; 32]).expect("long enough")
}

fn made(below: Device) -> Crypt {
    let mut random = Random::new(1);
    CryptDevice::format(&*below, &key(7), &mut |bytes| random.fill(bytes)).expect("room for it");
    CryptDevice::open(below, &key(7)).expect("the right key")
}

fn over(media: &Arc<SimMedia>) -> Device {
    let media: Arc<SimMedia> = Arc::clone(media);
    Arc::new(MediaDevice::new(media))
}

fn single(seed: u64) -> (Arc<SimMedia>, Crypt) {
    let media = Arc::new(SimMedia::new(LEN_BELOW, seed));
    let device = made(over(&media));
    (media, device)
}

fn write(device: &Crypt, offset: u64, bytes: &[u8]) {
    device.write_at(offset, &[IoSlice::new(bytes)]).expect("a write");
}

fn read(device: &Crypt, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0x5a; length];
    device.read_at(offset, &mut buffer).expect("a read");
    buffer
}

fn below(media: &SimMedia) -> Vec<u8> {
    let mut bytes = vec![0; LEN_BELOW as usize];
    env::Media::read_at(media, 0, &mut bytes).expect("the media");
    bytes
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

fn refusal(below: Device, key: &CryptKey) -> CryptError {
    match CryptDevice::open(below, key) {
        Ok(_) => panic!("it is to be refused"),
        Err(error) => error,
    }
}

#[test]
fn nothing_of_what_is_written_nor_of_the_key_is_below() {
    let (media, device) = single(1);
    let text = b"a text that nobody is to see, in every sector";
    for at in (0..LEN - 100).step_by(300) {
        write(&device, at, text);
    }
    device.write_durable(LEN - 50, &[IoSlice::new(text)]).unwrap();
    assert_eq!(read(&device, 600, text.len()), text);
    let bytes = below(&media);
    assert!(text.windows(8).all(|part| !contains(&bytes, part)));
    assert!(!contains(&bytes, &[7; 8]), "the key");
    // Equal sectors, and equal cells of a sector, are different below.
    write(&device, 0, &[9; 4096]);
    let data = &below(&media)[DATA_OFFSET as usize..][..4096];
    let cells: std::collections::BTreeSet<&[u8]> = data.chunks(16).collect();
    assert_eq!(cells.len(), 256);
}

#[test]
fn the_right_key_opens_it_and_a_wrong_one_is_refused_by_name() {
    let (media, device) = single(2);
    write(&device, 100, &[3; 1000]);
    drop(device);
    let wrong = refusal(over(&media), &key(8));
    assert!(matches!(wrong, CryptError::WrongKey { .. }), "{wrong}");
    assert!(wrong.to_string().starts_with("wrong key"), "{wrong}");
    let device = CryptDevice::open(over(&media), &key(7)).expect("the right key");
    assert_eq!(read(&device, 100, 1000), [3; 1000]);
    assert_eq!(device.len_bytes(), LEN);
    assert!(device.describe().starts_with("crypt(sim"));
}

#[test]
fn two_devices_of_one_key_have_nothing_in_common() {
    let (first, one) = single(3);
    let second = Arc::new(SimMedia::new(LEN_BELOW, 4));
    let mut random = Random::new(2);
    CryptDevice::format(&*over(&second), &key(7), &mut |bytes| random.fill(bytes)).unwrap();
    let two = CryptDevice::open(over(&second), &key(7)).unwrap();
    write(&one, 0, &[1; 512]);
    write(&two, 0, &[1; 512]);
    let cell = |media: &SimMedia| below(media)[DATA_OFFSET as usize..][..16].to_vec();
    assert_ne!(cell(&first), cell(&second));
}

#[test]
fn a_damaged_header_is_not_taken_for_a_wrong_key_and_one_copy_is_enough() {
    let (media, device) = single(5);
    write(&device, 0, &[1; 100]);
    for copy in [0, 1, 0] {
        media.rot(COPY_OFFSETS[copy] + 80, 1);
        let device = CryptDevice::open(over(&media), &key(7)).expect("the other copy");
        assert_eq!(read(&device, 0, 100), [1; 100]);
    }
    COPY_OFFSETS.into_iter().for_each(|offset| media.rot(offset + 80, 1));
    let error = refusal(over(&media), &key(7));
    assert!(matches!(error, CryptError::Header { .. }), "{error}");
    assert!(error.to_string().contains("checksum"), "{error}");
    let empty = refusal(Arc::new(MemoryDevice::new(1 << 20)), &key(7));
    assert!(matches!(empty, CryptError::Header { .. }), "{empty}");
}

#[test]
fn devices_that_are_too_short_and_random_numbers_that_are_none_are_refused() {
    let mut random = Random::new(3);
    let mut fill = |bytes: &mut [u8]| random.fill(bytes);
    let short: Device = Arc::new(MemoryDevice::new(DATA_OFFSET + 511));
    let error = CryptDevice::format(&*short, &key(7), &mut fill).expect_err("no sector");
    assert!(matches!(error, CryptError::TooShort { .. }), "{error}");
    let (media, _) = single(6);
    let cut: Device = Arc::new(MemoryDevice::new(DATA_OFFSET + 512));
    cut.write_at(0, &[IoSlice::new(&below(&media)[..512])]).unwrap();
    let error = refusal(cut, &key(7));
    assert!(matches!(error, CryptError::TooShort { .. }), "{error}");
    let below: Device = Arc::new(MemoryDevice::new(1 << 20));
    let error = CryptDevice::format(&*below, &key(7), &mut |bytes| bytes.fill(4));
    assert!(matches!(error, Err(CryptError::Random)));
    assert!(matches!(refusal(below, &key(7)), CryptError::Header { .. }), "nothing was made");
}

/// What a crash leaves of writes to parts of cells: everything else is as it was.
#[test]
fn what_a_write_leaves_alone_stays_whatever_a_crash_does() {
    for seed in 0..200 {
        let (media, device) = single(seed);
        let mut random = Random::new(seed);
        write(&device, 0, &[1; 4096]);
        device.flush().unwrap();
        let mut is_written = [false; 4096];
        for _ in 0..random.between(1, 6) {
            let offset = random.below(4096);
            let length = random.between(1, 700).min(4096 - offset);
            write(&device, offset, &vec![2; length as usize]);
            is_written[offset as usize..(offset + length) as usize].fill(true);
        }
        media.crash(&mut random);
        let device = CryptDevice::open(over(&media), &key(7)).unwrap();
        for (sector, bytes) in read(&device, 0, 4096).chunks(512).enumerate() {
            for (i, byte) in bytes.iter().enumerate() {
                let expected: &[u8] = if is_written[sector * 512 + i] { &[1, 2] } else { &[1] };
                assert!(expected.contains(byte), "seed {seed}, byte {i} of sector {sector}");
            }
        }
    }
}

/// Writes in two halves, and calls back between them.
struct Halved {
    below: MemoryDevice,
    between: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl BlockDevice for Halved {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> hindsight_block::Result<()> {
        self.below.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> hindsight_block::Result<()> {
        let Some(between) = self.between.lock().take() else {
            return self.below.write_at(offset, slices);
        };
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        let (first, second) = bytes.split_at(bytes.len() / 2);
        self.below.write_at(offset, &[IoSlice::new(first)])?;
        between();
        self.below.write_at(offset + first.len() as u64, &[IoSlice::new(second)])
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
        "halved".to_owned()
    }
}

#[test]
fn a_cell_that_is_half_written_is_not_read() {
    let below = Arc::new(Halved { below: MemoryDevice::new(LEN_BELOW), between: Mutex::new(None) });
    let device: Device = Arc::<Halved>::clone(&below);
    let device = Arc::new(made(device));
    write(&device, 0, &[1; 64]);
    let reader = Arc::clone(&device);
    let waiting = Arc::new(Mutex::new(None));
    let handle = Arc::clone(&waiting);
    *below.between.lock() = Some(Box::new(move || {
        let mut buffer = [0; 4];
        assert!(!reader.try_read_at(10, &mut buffer).expect("no error"), "it would wait");
        assert!(reader.try_read_at(16, &mut buffer).expect("no error"), "another cell");
        let thread = std::thread::spawn(move || read(&reader, 10, 6));
        // Nothing tells when it waits; where it does not, it has time to be wrong.
        (0..1000).for_each(|_| std::thread::yield_now());
        assert!(!thread.is_finished());
        *handle.lock() = Some(thread);
    }));
    write(&device, 2, &[2; 3]);
    let thread = waiting.lock().take().expect("it was called");
    assert_eq!(thread.join().expect("a read"), [1; 6]);
    assert_eq!(read(&device, 0, 6), [1, 1, 2, 2, 2, 1]);
}

#[test]
fn threads_that_write_parts_of_the_same_cells_lose_nothing() {
    let device = made(Arc::new(MemoryDevice::new(LEN_BELOW)));
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let device = &device;
            scope.spawn(move || {
                for round in 1..60_u8 {
                    for cell in 0..20 {
                        write(device, cell * 16 + thread * 4, &[round; 4]);
                        assert_eq!(read(device, cell * 16 + thread * 4, 4), [round; 4]);
                    }
                }
            });
        }
    });
    assert_eq!(read(&device, 0, 320), [59; 320]);
}

#[test]
fn a_discard_leaves_the_cells_that_it_covers_in_part() {
    let (_, device) = single(9);
    write(&device, 0, &[5; 1000]);
    device.discard(7, 20).unwrap();
    assert_eq!(read(&device, 0, 16), [5; 16]);
    assert_eq!(read(&device, 16, 100), [5; 100]);
    device.discard(7, 500).unwrap();
    assert_eq!(read(&device, 0, 16), [5; 16]);
    assert_eq!(read(&device, 496, 504), [5; 504]);
}

fn paired() -> (Arc<Pair>, Crypt) {
    let pair = Pair::new(LEN_BELOW, 3);
    let device = made(Arc::<Pair>::clone(&pair));
    (pair, device)
}

#[test]
fn healing_is_over_plain_bytes() {
    let (pair, device) = paired();
    write(&device, 0, &[1; 4096]);
    assert_eq!(device.copies(0, 4096), 2);
    let right = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 1);
    for (offset, length) in [(0, 4096), (512, 512), (528, 48), (100, 1000), (10, 30), (60, 3)] {
        for side in 0..2 {
            let mut buffer = vec![0; length];
            let healed = device.heal(offset, &mut buffer, &right).unwrap();
            assert_eq!((healed, right(&buffer)), (Outcome::Transient, true));
            pair.rot(side, DATA_OFFSET + (offset + length as u64 / 2) / 16 * 16);
            let healed = device.heal(offset, &mut buffer, &right).unwrap();
            // Three bytes have no cell of their own: they are found, and nothing is written back.
            let expected = if length < 16 { Outcome::Transient } else { Outcome::Recovered };
            assert_eq!((healed, right(&buffer)), (expected, true), "{offset} + {length}");
            device.resync(0, 4096, Resync::All).unwrap();
            write(&device, 0, &[1; 4096]);
        }
    }
    for (offset, length) in [(0, 4096), (5, 100)] {
        let mut buffer = vec![0; length];
        let healed = device.heal(offset, &mut buffer, &|_| false).unwrap();
        assert_eq!(healed, Outcome::Agreed);
        pair.rot(0, DATA_OFFSET + 20);
        let healed = device.heal(offset, &mut buffer, &|_| false).unwrap();
        assert_eq!(healed, Outcome::Unrecoverable);
        write(&device, 0, &[1; 4096]);
    }
    let error = device.heal(LEN - 1, &mut [0; 2], &right).unwrap_err();
    assert_eq!(error.kind, DeviceErrorKind::OutOfRange);
}

#[test]
fn the_rest_of_a_cell_is_never_written_to_another_copy() {
    let (pair, device) = paired();
    write(&device, 0, &[1; 64]);
    // Side 0 is right from 8 on and wrong before; of side 1 it is the other way round.
    let good = below(&pair.media[0])[DATA_OFFSET as usize..][..64].to_vec();
    pair.rot(0, DATA_OFFSET);
    pair.rot(1, DATA_OFFSET + 32);
    let sides =
        || [0, 1].map(|side| below(&pair.media[side])[DATA_OFFSET as usize..][..64].to_vec());
    let before = sides();
    let mut buffer = [0; 24];
    let right = |bytes: &[u8]| bytes == [1; 24];
    assert_eq!(device.heal(24, &mut buffer, &right).unwrap(), Outcome::Recovered);
    let after = sides();
    assert_eq!(after[0], before[0], "what is wrong there nobody has looked at");
    assert_eq!(
        after[1], good,
        "cell 2 was healed; cell 1, of which a half was asked for, was right"
    );
    let ios = pair.ledger.data_ios.load(Ordering::Relaxed);
    assert_eq!(ios, 3, "both copies were read once, and one was written");
}

#[test]
fn copies_are_read_one_by_one() {
    let (pair, device) = paired();
    write(&device, 0, &[1; 4096]);
    pair.rot(1, DATA_OFFSET + 1000);
    let copy = |copy| {
        let mut buffer = [0; 600];
        device.read_copy(copy, 777, &mut buffer).unwrap();
        buffer
    };
    let way = |way| {
        let mut buffer = [0; 600];
        device.read_way(way, 777, &mut buffer).unwrap();
        buffer
    };
    assert_eq!(copy(0), [1; 600]);
    assert_ne!(copy(1), [1; 600]);
    assert_eq!((device.ways(), way(0)), (2, [1; 600]));
    assert_eq!(way(1), copy(1));
    device.resync(512, 1024, Resync::All).unwrap();
    assert_eq!(copy(1), [1; 600]);
}

/// Whatever is lost of the headers while they are made: no device, or one that works.
#[test]
fn a_crash_while_it_is_made_leaves_none_or_all() {
    for changes in 0..9 {
        let media = Arc::new(SimMedia::new(LEN_BELOW, changes));
        media.halt_after(changes);
        let mut random = Random::new(changes);
        let mut fill = |bytes: &mut [u8]| random.fill(bytes);
        let made = CryptDevice::format(&*over(&media), &key(7), &mut fill);
        media.crash_with(&mut |_, change| match changes % 3 {
            0 => Keep::All,
            1 => Keep::Nothing,
            _ => Keep::Sectors(vec![true; change.sectors as usize]),
        });
        match CryptDevice::open(over(&media), &key(7)) {
            Ok(device) => assert_eq!(device.len_bytes(), LEN),
            Err(error) => {
                assert!(matches!(error, CryptError::Header { .. }), "{error}");
                assert!(made.is_err());
            }
        }
    }
}

/// Held against HMAC and AES of other programs (Python's `hmac`, `openssl enc -aes-256-ecb`), so
/// that a device of today is opened tomorrow: a key of sevens, a salt of 0 to 31, a key of the data
/// of 100 to 163.
#[test]
fn keys_are_derived_wrapped_and_used_as_the_format_says() {
    let media = Arc::new(SimMedia::new(LEN_BELOW, 1));
    let mut next = [100, 0].into_iter();
    let mut fill = |bytes: &mut [u8]| {
        let first: u8 = next.next().expect("two are asked for");
        bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = first + i as u8);
    };
    CryptDevice::format(&*over(&media), &key(7), &mut fill).unwrap();
    let device = CryptDevice::open(over(&media), &key(7)).unwrap();
    write(&device, 5 * 512, &[9; 32]);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let wrapped = "999b67c672873116b5876e271c17b4880fc9f38fdc03e2616141fad27522ea62\
                   05ae350239c86227ff8818446c72b0bfa4df3e92d83a567c5067a7ec4d76f6f8\
                   da7fd6889f8913c7";
    assert_eq!(hex(&below(&media)[72..144]), wrapped);
    let encrypted = "e93f1407fac2cb6824f781e3159686d875e99f52a1c2704cf0d9df98066024b0";
    assert_eq!(hex(&below(&media)[DATA_OFFSET as usize + 5 * 512..][..32]), encrypted);
}

#[test]
fn every_part_of_a_few_cells_is_written_and_read_alone() {
    let (_, device) = single(12);
    for start in 0..49 {
        for end in start..=49 {
            write(&device, 496, &[1; 64]);
            write(&device, 496 + start, &vec![2; (end - start) as usize]);
            let expected: Vec<u8> =
                (0..64).map(|i| if (start..end).contains(&i) { 2 } else { 1 }).collect();
            assert_eq!(read(&device, 496, 64), expected, "{start} to {end}");
            let part = read(&device, 496 + start, (end - start) as usize);
            assert_eq!(part, vec![2; (end - start) as usize]);
        }
    }
}
