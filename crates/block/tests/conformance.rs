//! One suite that every `BlockDevice` and every stack of them has to pass.
//!
//! A case is a name and a way to make a device of at least 1 MiB; the suite is the list in `rules`.

use std::io::IoSlice;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use env::{FileMedia, Media};
use hindsight_block::{
    Array, BlockDevice, Candidate, CryptDevice, CryptKey, DeviceErrorKind, Identities, Materials,
    MediaDevice, MemoryDevice, Operation, StripeDevice, TrialDevice,
};
use sim::{Random, SimMedia};

const LEN_BYTES: u64 = 9 << 20;
/// Of each side of a parity.
const JOURNAL_BYTES: u64 = 4 * hindsight_block::stack::JOURNAL_BYTES;

type Device = Arc<dyn BlockDevice>;

/// An n-th of the length.
fn memory(n: u64) -> Device {
    Arc::new(MemoryDevice::new(LEN_BYTES / n))
}

fn over(media: impl Media + 'static) -> Device {
    Arc::new(MediaDevice::new(Arc::new(media)))
}

/// A device that is encrypted.
fn encrypted(below: impl FnOnce(u64) -> Device) -> Device {
    let below = below(LEN_BYTES + format::crypt::DATA_OFFSET);
    let key = CryptKey::new(vec![7; 32]).expect("long enough");
    let mut random = Random::new(1);
    CryptDevice::format(&*below, &key, &mut |bytes| random.fill(bytes)).expect("room for it");
    Arc::new(CryptDevice::open(below, &key).expect("the right key"))
}

/// A stack over members of which each has so many bytes for it.
fn array(stack: &str, data_bytes: u64) -> Device {
    let stack: hindsight_block::stack::Stack = stack.parse().expect("a stack");
    let media: Vec<Device> = (0..stack.members().len() as u64)
        .map(|seed| over(SimMedia::new((1 << 20) + data_bytes, seed)))
        .collect();
    let candidates = || {
        let of = |(path, device): (&str, &Device)| Candidate {
            path: path.to_owned(),
            device: Some(Arc::clone(device)),
        };
        stack.members().into_iter().zip(&media).map(of).collect()
    };
    let mut id = 0;
    let random = &mut || {
        id += 1;
        id
    };
    let identities = Identities { random, now: units::WallTime::from_nanos(1) };
    Array::create(&stack, candidates(), identities, &Materials::none()).expect("labels");
    Arc::new(Array::open(candidates(), &Materials::none()).expect("an array"))
}

/// Runs `rule` on a fresh device of every kind.
fn on_every_device(rule: impl Fn(&Device)) {
    let directory = tempfile::tempdir().expect("a place for files");
    let mut files = 0;
    let mut file = || {
        files += 1;
        let path = directory.path().join(format!("{files}"));
        over(FileMedia::create(&path, LEN_BYTES).expect("a sparse file"))
    };
    let cold = SimMedia::new(LEN_BYTES, 3);
    cold.set_cold_every(2);
    let devices: Vec<Device> = vec![
        file(),
        over(SimMedia::new(LEN_BYTES, 1)),
        over(SimMedia::filled(LEN_BYTES, 2, 0xa5)),
        over(cold),
        Arc::new(MemoryDevice::new(LEN_BYTES)),
        encrypted(|len| over(SimMedia::new(len, 7))),
        encrypted(|len| Arc::new(MemoryDevice::new(len))),
        encrypted(|len| over(SimMedia::filled(len, 6, 0xa5))),
        Arc::new(TrialDevice::new(over(SimMedia::filled(LEN_BYTES, 8, 0xa5)))),
        Arc::new(StripeDevice::new(vec![memory(3), memory(3), memory(3)], 4096)),
        array("a", LEN_BYTES),
        array("mirror(a, b)", LEN_BYTES),
        array("mirror(a, b, c)", LEN_BYTES),
        array("stripe(a, b)", LEN_BYTES / 2),
        array("stripe(mirror(a, b), mirror(c, d))", LEN_BYTES / 2),
        array("mirror(stripe[chunk=4KiB](a, b, c), stripe(d, e, f))", LEN_BYTES / 3),
        array("parity(a, b, c)", JOURNAL_BYTES + LEN_BYTES / 2),
        array("parity[journal=64KiB](a, b, c)", (256 << 10) + LEN_BYTES / 2),
        array("parity[failures=2,chunk=4KiB](a, b, c, d, e)", JOURNAL_BYTES + LEN_BYTES / 3),
        array("stripe(parity(a, b, c), parity(d, e, f))", JOURNAL_BYTES + LEN_BYTES / 4),
        array("parity(a, b, stripe(c, d))", JOURNAL_BYTES + LEN_BYTES / 2),
    ];
    for device in devices {
        println!("on {}", device.describe());
        rule(&device);
    }
}

fn write(device: &Device, offset: u64, bytes: &[u8]) {
    device.write_at(offset, &[IoSlice::new(bytes)]).expect("a write within the device");
}

fn read(device: &Device, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0x5a; length];
    device.read_at(offset, &mut buffer).expect("a read within the device");
    buffer
}

#[test]
fn a_read_returns_the_last_write_at_any_alignment() {
    on_every_device(|device| {
        let mut random = Random::new(7);
        let mut expected = read(device, 0, LEN_BYTES as usize);
        for _ in 0..300 {
            let offset = random.below(LEN_BYTES);
            let length = random.between(1, 20_000).min(LEN_BYTES - offset);
            let mut bytes = vec![0; length as usize];
            random.fill(&mut bytes);
            write(device, offset, &bytes);
            let at = offset as usize;
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
            let from = random.below(LEN_BYTES) as usize;
            let count = (random.below(200_000) as usize).min(expected.len() - from);
            assert_eq!(read(device, from as u64, count), expected[from..from + count]);
        }
        device.flush().expect("a flush");
        assert_eq!(read(device, 0, LEN_BYTES as usize), expected);
    });
}

#[test]
fn slices_are_written_one_after_another() {
    on_every_device(|device| {
        let parts: Vec<Vec<u8>> = (0..3000_u32).map(|n| vec![n as u8; (n % 7) as usize]).collect();
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|p| IoSlice::new(p)).collect();
        device.write_at(4093, &slices).expect("a vectored write");
        let joined = parts.concat();
        assert_eq!(read(device, 4093, joined.len()), joined);
    });
}

#[test]
fn a_read_that_need_not_wait_returns_the_same() {
    on_every_device(|device| {
        write(device, 1000, &[7; 5000]);
        let mut buffer = [0; 6000];
        let answers = (0..4).filter(|_| {
            let done = device.try_read_at(500, &mut buffer).expect("within the device");
            if done {
                assert_eq!(buffer[500..5500], [7; 5000]);
            }
            done
        });
        // Memory always answers at once; a device may say "would wait" but not for ever.
        assert!(answers.count() > 0);
    });
}

#[test]
fn requests_of_no_bytes_succeed() {
    on_every_device(|device| {
        device.read_at(LEN_BYTES, &mut []).expect("nothing to read");
        device.write_at(LEN_BYTES, &[]).expect("nothing to write");
        device.write_at(0, &[IoSlice::new(&[])]).expect("nothing to write");
    });
}

#[test]
fn requests_beyond_the_end_are_refused_and_change_nothing() {
    on_every_device(|device| {
        let len = device.len_bytes();
        assert_eq!(len, LEN_BYTES);
        write(device, len - 4, &[1, 2, 3, 4]);
        for offset in [len - 3, len, len + 1, u64::MAX - 3, u64::MAX] {
            let refused = |result: hindsight_block::Result<()>, operation| {
                let error = result.expect_err("beyond the end");
                assert_eq!((error.kind, error.operation), (DeviceErrorKind::OutOfRange, operation));
                assert_eq!(error.offset, offset);
            };
            refused(device.read_at(offset, &mut [0; 4]), Operation::Read);
            refused(device.write_at(offset, &[IoSlice::new(&[9; 4])]), Operation::Write);
            refused(device.allocate(offset, 4), Operation::Allocate);
            refused(device.discard(offset, 4), Operation::Discard);
        }
        assert_eq!(read(device, len - 4, 4), [1, 2, 3, 4]);
    });
}

#[test]
fn a_discard_leaves_its_neighbours_and_can_be_written_again() {
    on_every_device(|device| {
        write(device, 0, &vec![3; LEN_BYTES as usize]);
        for (offset, length) in [(4096, 8192), (100_001, 70_003), (1 << 20, 1 << 20)] {
            device.discard(offset, length).expect("a discard within the device");
            assert_eq!(read(device, offset - 1, 1), [3]);
            assert_eq!(read(device, offset + length, 1), [3]);
            device.allocate(offset, length).expect("space is there");
            write(device, offset, &vec![4; length as usize]);
            assert_eq!(read(device, offset, length as usize), vec![4; length as usize]);
        }
    });
}

#[test]
fn an_allocation_changes_no_byte() {
    on_every_device(|device| {
        write(device, 10_000, &[8; 10_000]);
        let before = read(device, 0, 1 << 20);
        device.allocate(0, 1 << 20).expect("space is there");
        assert_eq!(read(device, 0, 1 << 20), before);
    });
}

#[test]
fn one_thread_writes_while_others_read() {
    on_every_device(|device| {
        write(device, 0, &[1; 8192]);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        assert_eq!(read(device, 0, 4096), vec![1; 4096]);
                    }
                });
            }
            scope.spawn(|| {
                for n in 0..200_u64 {
                    write(device, 8192 + n * 512, &[2; 512]);
                    device.flush().expect("a flush");
                }
            });
        });
        assert_eq!(read(device, 8192, 200 * 512), vec![2; 200 * 512]);
    });
}

#[test]
fn a_flush_outlives_a_power_cut() {
    let media = Arc::new(SimMedia::new(LEN_BYTES, 9));
    let device: Device = Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(&media)));
    write(&device, 5000, &[6; 9000]);
    device.flush().expect("a flush");
    write(&device, 5000, &[7; 9000]);
    media.crash_with(&mut |_, _| sim::Keep::Nothing);
    assert_eq!(read(&device, 5000, 9000), vec![6; 9000]);
}

#[test]
fn a_file_that_cannot_be_so_long_is_not_left_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("member");
    FileMedia::create(&path, i64::MAX as u64 - 1).expect_err("longer than a file can be");
    assert!(!path.exists(), "it would be in the way");
    drop(FileMedia::create(&path, 1 << 20).expect("made"));
    FileMedia::create(&path, 1 << 20).expect_err("it is there");
    assert!(path.exists(), "it is somebody's");
}

#[test]
fn a_file_that_somebody_cut_fails_where_it_ends_now() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let device = MediaDevice::new(Arc::new(FileMedia::create(&path, 1 << 20).expect("made")));
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file");
    device.write_at(0, &[IoSlice::new(&[5; 4096])]).expect("written");
    file.set_len(256 << 10).expect("cut");
    let kind = |offset| device.read_at(offset, &mut [0; 4096]).map_err(|error| error.kind);
    assert_eq!([kind(0), kind(512 << 10)], [Ok(()), Err(DeviceErrorKind::Io)]);
    assert_eq!(kind(1 << 20), Err(DeviceErrorKind::OutOfRange), "whoever asks there is wrong");
    // A write behind the end would make it long again, with zeros where something was.
    let at = [0, 512 << 10];
    for written in at.map(|at| device.write_at(at, &[IoSlice::new(&[7; 4096])])) {
        assert_eq!(written.map_err(|error| error.kind), Err(DeviceErrorKind::Io));
    }
    for written in at.map(|at| device.write_durable(at, &[IoSlice::new(&[7; 4096])])) {
        assert_eq!(written.map_err(|error| error.kind), Err(DeviceErrorKind::Io));
    }
    assert_eq!(
        device.allocate(512 << 10, 4096).map_err(|error| error.kind),
        Err(DeviceErrorKind::Io)
    );
    for wanted in [None, Some(1 << 20), Some(2 << 20)] {
        device.lengthen(wanted).expect_err("what was cut off would be zeros");
    }
    assert_eq!(std::fs::metadata(&path).expect("there").len(), 256 << 10, "nobody made it longer");
}

#[test]
fn a_write_under_way_while_somebody_cuts_the_file_leaves_no_zeros_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let media = FileMedia::create(&path, 1 << 20).expect("made");
    media.write_at(0, &[IoSlice::new(&[5; 1 << 20])]).expect("written");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file");
    file.set_len(256 << 10).expect("cut");
    // It had looked at the length before.
    file.write_all_at(&[7; 4096], 768 << 10).expect("written");
    let mut read = [0; 4096];
    let outcomes = [0, 256 << 10, 512 << 10, 768 << 10, 1020 << 10]
        .map(|at| media.read_at(at, &mut read).is_ok());
    let told = media.tells_holes();
    assert_eq!(outcomes, [told, false, false, told, false]);
    assert!(!media.is_hole(512 << 10, 4096), "something was there");
    media.write_at(512 << 10, &[IoSlice::new(&[7; 4096])]).expect_err("it was cut");
    // Once that is known no read takes the short way, which looks at nothing, nor a length for all.
    assert!(!media.try_read_at(512 << 10, &mut read).expect("it would wait"));
    file.set_len(1 << 20).expect("long again");
    media.read_at(512 << 10, &mut read).expect_err("it was cut");
    media.write_at(512 << 10, &[IoSlice::new(&[7; 4096])]).expect_err("it was cut");
}

#[test]
fn a_file_says_where_it_has_holes_and_nowhere_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let (kib, len) = (1 << 10, 1 << 20);
    let media = FileMedia::create(&path, len).expect("a sparse file");
    media.allocate(512 * kib, 256 * kib).expect("there is room");
    media.write_at(64 * kib, &[IoSlice::new(&[7; 64 << 10])]).expect("a write");
    if !media.tells_holes() {
        assert!(!media.is_hole(0, 64 * kib), "it is not known here");
        return;
    }
    for synced in [false, true] {
        assert!(media.is_hole(0, 64 * kib) && media.is_hole(128 * kib, len - 128 * kib));
        assert!(media.is_hole(512 * kib, 256 * kib), "what was reserved says nothing");
        for (offset, length) in [(0, 64 * kib + 1), (64 * kib, 1), (128 * kib - 1, 1), (0, len)] {
            assert!(!media.is_hole(offset, length), "{offset} {length} {synced}");
        }
        assert!(!media.is_hole(len - 4096, 8192) && !media.is_hole(u64::MAX, 2), "beyond the end");
        media.sync().expect("durable");
    }
    // Somebody cut it: what reads as zeros may have been something.
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file");
    file.set_len(256 * kib).expect("cut");
    assert!(!media.is_hole(128 * kib, 128 * kib) && !media.is_hole(128 * kib, 128 * kib + 1));
}

#[test]
fn a_write_past_the_page_cache_is_what_it_says_wherever_it_begins_and_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let media = FileMedia::create(&folder.path().join("file"), 4 << 20).expect("made");
    let mut model = vec![0_u8; 4 << 20];
    let mut random = sim::Random::new(11);
    for step in 1..200_u64 {
        let offset = random.below(3 << 20) as usize;
        let length = random.below(400_000) as usize;
        let bytes: Vec<u8> = (0..length).map(|i| (step as usize + i) as u8).collect();
        match random.below(3) {
            0 => media.write_at(offset as u64, &[std::io::IoSlice::new(&bytes)]),
            _ => media.write_direct(offset as u64, &bytes),
        }
        .expect("written");
        model[offset..offset + length].copy_from_slice(&bytes);
        let mut found = vec![0; length + 9000];
        let from = offset.saturating_sub(4500);
        media.read_at(from as u64, &mut found).expect("read");
        assert!(found == model[from..from + length + 9000], "step {step}");
    }
    media.write_direct((4 << 20) - 100, &[1; 200]).expect_err("beyond the end");
}
