//! The findings of looks, and the alarms that they give.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use block::{BlockDevice, MemoryDevice};
use env::{RealClock, RealEntropy};
use units::{Moment, Sensitivity};
use volume::{
    AlarmKind, ErrorKind, Machine, Pool, PoolFormat, PoolOptions, Volume, VolumeSpec, WriteOp,
};

use super::{
    Due, Floors, Found, LEAST_BYTES, LOOKS_MAX, PLAIN_BITS, QUIET_LOOKS, RANDOM_BITS, Watching,
    bits_a_byte, found_between, note,
};
use crate::hooks::{Hook, Hooks};
use crate::nbd::tests::rig::eventually;
use crate::worker::Stop;

const FLOORS: Floors = Floors { scrambled: 8 << 20, wiped: 16 << 20 };

fn found(written_over: u64, scrambled: u64, wiped: u64) -> Found {
    Found { written_over, scrambled, wiped }
}

/// The looks of an episode, each with the moment before it; what is due, and whose moment it
/// holds.
fn story(looks: &[Found]) -> Vec<(usize, Due, usize)> {
    let mut episode = None;
    let mut told = Vec::new();
    for (number, look) in looks.iter().enumerate() {
        if let Some(due) = note(&mut episode, || number, *look, FLOORS) {
            let before = episode.as_mut().and_then(|open| open.before.take());
            told.push((number, due, before.expect("held")));
        }
    }
    told
}

#[test]
fn an_episode_gives_one_alarm_which_holds_the_moment_before_its_first_look() {
    let (quiet, half) = (found(40 << 20, 0, 0), found(8 << 20, 4 << 20, 0));
    let scrambled = |bytes| Due { kind: AlarmKind::Scrambled, bytes };
    assert_eq!(story(&[quiet, half, half, half, half]), [(2, scrambled(8 << 20), 1)]);
    assert_eq!(story(&[quiet, half, quiet, half, half]), [(3, scrambled(8 << 20), 1)]);
    // A quiet minute ends it, before the alarm and after it.
    let rest = [quiet; QUIET_LOOKS as usize];
    assert_eq!(story(&[&[half][..], &rest, &[half]].concat()), []);
    let twice = story(&[&[half, half][..], &rest, &[half, half]].concat());
    assert_eq!(twice, [(1, scrambled(8 << 20), 0), (9, scrambled(8 << 20), 8)]);
}

#[test]
fn what_is_little_or_a_small_part_of_much_is_no_cause() {
    let little = found(LEAST_BYTES, LEAST_BYTES - 1, 0);
    let diluted = found(80 << 20, 16 << 20, 0);
    assert_eq!(story(&[little; 100]), []);
    assert_eq!(story(&[diluted; 100]), []);
    // Slow enough to begin anew each ten minutes; and a little faster.
    let least = FLOORS.wiped / u64::from(LOOKS_MAX);
    assert_eq!(story(&[found(least, 0, least); 200]), []);
    assert_eq!(story(&[found(2 * least, 0, 2 * least); 59]).len(), 1);
    let wiped = story(&[found(20 << 20, 0, 20 << 20)]);
    assert_eq!(wiped, [(0, Due { kind: AlarmKind::Wiped, bytes: 20 << 20 }, 0)]);
}

#[test]
fn floors_go_by_sensitivity_and_by_what_a_volume_holds() {
    for (sensitivity, live, scrambled, wiped) in [
        (Sensitivity::Normal, 0, 1 << 20, 1 << 20),
        (Sensitivity::Normal, 80 << 20, 10 << 20, 20 << 20),
        (Sensitivity::Normal, 1 << 30, 64 << 20, 1 << 28),
        (Sensitivity::Normal, 1 << 40, 64 << 20, 64 << 30),
        (Sensitivity::Low, 1 << 40, 1 << 30, 64 << 30),
        (Sensitivity::High, 1 << 40, 8 << 20, 64 << 30),
    ] {
        let floors = Floors::of(sensitivity, live);
        assert_eq!((floors.scrambled, floors.wiped), (scrambled, wiped), "{sensitivity} {live}");
    }
}

#[test]
fn blocks_hold_so_many_bits_a_byte() {
    assert!(bits_a_byte(&[7; 4096]) < f64::EPSILON);
    let text = "SELECT name, price FROM goods WHERE stock > 0; ".repeat(100);
    assert!(bits_a_byte(&text.as_bytes()[..4096]) < PLAIN_BITS);
    let even: Vec<u8> = (0..4096_u32).map(|at| (at % 256) as u8).collect();
    assert!((bits_a_byte(&even) - 8.0).abs() < 1e-9);
    let mut random = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 24) as u8
    })
    .take(4096)
    .collect();
    assert!(bits_a_byte(&noise) >= RANDOM_BITS);
}

/// A pool with a volume `v` of 64 MiB, the first half of which holds text.
fn stage() -> (Arc<Pool>, Arc<Volume>) {
    stage_of(64)
}

/// The same with a volume of so many MiB.
fn stage_of(mib: u64) -> (Arc<Pool>, Arc<Volume>) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new((448 + mib) << 20));
    let machine =
        Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) };
    Pool::create(&device, &machine, &PoolFormat { zone_bytes: 1 << 20 }).expect("made");
    let options = PoolOptions { memory_bytes: 0 };
    let pool = Pool::open(device, machine, options).expect("opened");
    let spec = VolumeSpec { window_ns: 1 << 60, ..VolumeSpec::new("v", mib << 20) };
    let volume = pool.create_volume(&spec).expect("made");
    put(&volume, 0, 32, text);
    (pool, volume)
}

const MIB: usize = 1 << 20;

fn text(at: usize) -> u8 {
    b"so much of what is written is words, and some of it again "[at * 7 / 5 % 58]
}

fn noise(at: usize) -> u8 {
    let mut mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 31;
    (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as u8
}

/// Writes some MiB from one on.
fn put(volume: &Volume, first: usize, count: usize, byte: fn(usize) -> u8) {
    for mib in first..first + count {
        let bytes: Vec<u8> = (mib * MIB..(mib + 1) * MIB).map(byte).collect();
        let op = WriteOp::Data { offset: (mib * MIB) as u64, bytes: &bytes };
        volume.write_batch(&[op]).expect("written");
    }
}

fn marks(volume: &Volume) -> Vec<String> {
    volume.marks().expect("listed").into_iter().map(|mark| mark.name).collect()
}

/// Hooks of which one writes down what it is told of an alarm, and an empty line.
fn telling(heard: &Path) -> Hooks {
    let words = "$HINDSIGHT_HOOK $HINDSIGHT_PHASE $HINDSIGHT_SUBJECT $HINDSIGHT_ALARM \
                 $HINDSIGHT_BYTES $HINDSIGHT_MARK";
    let script = format!("echo {words} >> {}; echo >> {0}", heard.display());
    let hook = |alarm: &[&str]| Hook {
        before: Vec::new(),
        after: Vec::new(),
        verify: Vec::new(),
        alarm: alarm.iter().map(|&word| word.to_owned()).collect(),
        timeout: Duration::from_secs(60),
    };
    let hooks = [("tell", hook(&["/bin/sh", "-c", &script])), ("silent", hook(&[]))];
    Hooks::new(hooks.map(|(name, hook)| (name.to_owned(), hook)).into())
}

#[test]
fn encrypting_a_volume_gives_an_alarm_whose_mark_holds_what_was() {
    let (pool, volume) = stage();
    let watching = Watching::default();
    // Nothing is looked at that nobody wants watched.
    put(&volume, 0, 32, noise);
    (0..3).for_each(|_| watching.look(&pool, &Stop::default()));
    assert_eq!((watching.told(volume.id()), marks(&volume)), (None, vec![]));
    put(&volume, 0, 32, text);

    volume.set_watch(Some(Sensitivity::Normal)).expect("set");
    watching.look(&pool, &Stop::default());
    // A place that held nothing held no data, and text for text is no cause.
    put(&volume, 32, 8, noise);
    put(&volume, 8, 8, |at| text(at + 3));
    watching.look(&pool, &Stop::default());
    let (_, found) = watching.told(volume.id()).expect("looked");
    assert_eq!((found.scrambled, found.wiped), (0, 0));
    assert!((7 << 20..=9 << 20).contains(&found.written_over), "{found:?}");

    let good = volume.resolve(&Moment::Latest).expect("told").seq;
    put(&volume, 0, 4, noise);
    watching.look(&pool, &Stop::default());
    assert_eq!(marks(&volume), [""; 0], "4 of 40 MiB are not enough");
    put(&volume, 4, 4, noise);
    watching.look(&pool, &Stop::default());
    let alarms = volume.watch().expect("watched").alarms;
    let [alarm] = &alarms[..] else { panic!("{alarms:?}") };
    assert_eq!((alarm.kind, alarm.at.seq, alarm.is_held), (AlarmKind::Scrambled, good, true));
    assert!((7 << 20..=9 << 20).contains(&alarm.bytes), "{alarm:?}");
    assert_eq!(marks(&volume), [alarm.mark.as_str()]);
    let view = volume.view(&Moment::Mark(alarm.mark.clone())).expect("opened");
    let mut bytes = vec![0; MIB];
    view.read(0, &mut bytes).expect("read");
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == text(at)), "not what was");
    drop(view);

    // Going on gives no other, nor does another episode within the hour.
    put(&volume, 16, 16, noise);
    watching.look(&pool, &Stop::default());
    assert_eq!(marks(&volume).len(), 1);
    (0..=QUIET_LOOKS).for_each(|_| watching.look(&pool, &Stop::default()));
    put(&volume, 0, 16, text);
    watching.look(&pool, &Stop::default());
    put(&volume, 0, 16, noise);
    watching.look(&pool, &Stop::default());
    assert_eq!(marks(&volume).len(), 1);

    // A deleted mark lets go; the alarm stays told as long as the volume is watched, and the next
    // one may come at once.
    volume.delete_mark(&alarm.mark).expect("deleted");
    assert!(!volume.watch().expect("watched").alarms[0].is_held);
    (0..=QUIET_LOOKS).for_each(|_| watching.look(&pool, &Stop::default()));
    put(&volume, 0, 16, text);
    watching.look(&pool, &Stop::default());
    put(&volume, 0, 16, noise);
    watching.look(&pool, &Stop::default());
    let alarms = volume.watch().expect("watched").alarms;
    assert_eq!(alarms.iter().map(|alarm| alarm.is_held).collect::<Vec<_>>(), [false, true]);
    volume.delete_mark(&alarms[1].mark).expect("deleted");
    volume.set_watch(None).expect("set");
    watching.look(&pool, &Stop::default());
    assert_eq!((volume.watch(), watching.told(volume.id())), (None, None));
    // Nothing of it keeps a volume from being deleted, nor a pool from being closed.
    volume.set_watch(Some(Sensitivity::Low)).expect("set");
    watching.look(&pool, &Stop::default());
    pool.delete_volume("v").expect("deleted");
    watching.look(&pool, &Stop::default());
    assert_eq!(watching.told(volume.id()), None);
}

#[test]
fn an_alarm_is_told_once_to_the_hooks_that_want_it() {
    let (pool, volume) = stage();
    let dir = tempfile::tempdir().expect("a directory");
    let heard = dir.path().join("heard");
    let watching = Watching::new(&Arc::new(telling(&heard)));
    put(&volume, 0, 32, text);
    volume.set_watch(Some(Sensitivity::Normal)).expect("set");
    watching.look(&pool, &Stop::default());
    for mib in [0, 8, 16] {
        put(&volume, mib, 8, noise);
        watching.look(&pool, &Stop::default());
    }
    let alarm = &volume.watch().expect("watched").alarms[0];
    let all = || std::fs::read_to_string(&heard).unwrap_or_default();
    eventually("the hook was told", || all().ends_with("\n\n"));
    assert_eq!(all(), format!("tell alarm v scrambled {} {}\n\n", alarm.bytes, alarm.mark));
}

#[test]
fn wiping_a_quarter_gives_an_alarm_and_reverts_give_none() {
    let (pool, volume) = stage();
    volume.set_watch(Some(Sensitivity::Normal)).expect("set");
    let watching = Watching::default();
    watching.look(&pool, &Stop::default());
    let before = volume.resolve(&Moment::Latest).expect("told");
    put(&volume, 0, 4, |_| 0);
    let trim = WriteOp::Zero { offset: 4 << 20, length_bytes: 2 << 20 };
    volume.write_batch(&[trim]).expect("trimmed");
    watching.look(&pool, &Stop::default());
    let (_, found) = watching.told(volume.id()).expect("looked");
    assert!((5 << 20..=7 << 20).contains(&found.wiped), "{found:?}");
    volume.revert(&Moment::Seq(before.seq), false).expect("reverted");
    watching.look(&pool, &Stop::default());
    assert_eq!(marks(&volume), [""; 0]);
    // The volume as it was, and then a quarter at once.
    let trim = WriteOp::Zero { offset: 8 << 20, length_bytes: 12 << 20 };
    volume.write_batch(&[trim]).expect("trimmed");
    watching.look(&pool, &Stop::default());
    let alarms = volume.watch().expect("watched").alarms;
    assert_eq!(alarms.iter().map(|alarm| alarm.kind).collect::<Vec<_>>(), [AlarmKind::Wiped]);
}

#[test]
fn what_is_found_is_what_was_written_over_whatever_the_blocks() {
    let (_pool, volume) = stage();
    let earlier = volume.view(&Moment::Latest).expect("opened");
    // Every fourth block of the first 16 MiB.
    for block in (0..4096_u64).step_by(4) {
        let bytes: Vec<u8> = (0..4096).map(|at| noise(at + block as usize * 4096)).collect();
        let op = WriteOp::Data { offset: block * 4096, bytes: &bytes };
        volume.write_batch(&[op]).expect("written");
    }
    let later = volume.view(&Moment::Latest).expect("opened");
    let over = earlier.written_over(&later, usize::MAX, 7).expect("told").expect("of one story");
    let all: Vec<u64> = (0..4096_u64).step_by(4).map(|block| block * 4096).collect();
    assert_eq!((over.blocks, over.pages_each), (all, 1));
    let mut seen = std::collections::BTreeSet::new();
    for start in 0..4 {
        let sample = earlier.written_over(&later, 2, start).expect("told").expect("of one story");
        let estimate = sample.blocks.len() as u64 * 4096 * sample.pages_each;
        assert_eq!(estimate, 4 << 20, "pages are alike");
        seen.extend(sample.blocks);
    }
    assert_eq!(seen.len(), 1024, "each page has its turn");
    let found = found_between(&earlier, &later, 0).expect("told").expect("of one story");
    assert_eq!((found.written_over, found.scrambled, found.wiped), (4 << 20, 4 << 20, 0));
    let same = later.written_over(&later, 64, 0).expect("told").expect("of one story");
    assert!(same.blocks.is_empty());
}

#[test]
fn one_page_that_is_like_no_other_does_not_count_for_all() {
    let (_pool, volume) = stage_of(1024);
    let first_of_pages = |byte: u8| {
        for mib in (2..1024).step_by(2) {
            let op = WriteOp::Data { offset: (mib * MIB) as u64, bytes: &[byte; 4096] };
            volume.write_batch(&[op]).expect("written");
        }
    };
    first_of_pages(b'y');
    let earlier = volume.view(&Moment::Latest).expect("opened");
    put(&volume, 0, 1, noise);
    first_of_pages(b'x');
    let later = volume.view(&Moment::Latest).expect("opened");
    for start in 0..8 {
        let found = found_between(&earlier, &later, start).expect("told").expect("of one story");
        assert!(found.scrambled <= 2 << 20, "{start}: {found:?}");
    }
}

#[test]
fn a_volume_that_is_not_watched_gives_no_alarm() {
    let (_pool, volume) = stage();
    let before = volume.view(&Moment::Latest).expect("opened");
    let refused = volume.give_alarm(before.resolved(), AlarmKind::Wiped, 1).expect_err("unwatched");
    assert_eq!(refused.kind, ErrorKind::NotFound);
    assert_eq!(marks(&volume), [""; 0]);
}

#[test]
fn a_part_that_is_wiped_is_one_of_what_the_volume_held_before() {
    let (pool, volume) = stage();
    volume.set_watch(Some(Sensitivity::Normal)).expect("set");
    let watching = Watching::default();
    watching.look(&pool, &Stop::default());
    // 7 of 32 MiB are less than a quarter of them, and more than one of what is left.
    let trim = |offset: u64, length_bytes: u64| {
        volume.write_batch(&[WriteOp::Zero { offset, length_bytes }]).expect("trimmed");
        watching.look(&pool, &Stop::default());
    };
    trim(0, 7 << 20);
    assert_eq!(marks(&volume), [""; 0]);
    trim(7 << 20, 1 << 20);
    assert_eq!(marks(&volume).len(), 1);
}
