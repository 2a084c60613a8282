//! Which of the catalogue's two roots is the newer one: a flag says so, and no checksum covers it.
//! And what none of the library's checksums covers either: what is left of its pages.

use std::io::IoSlice;
use std::sync::Arc;

use env::Media;
use hindsight_volume::{Architecture, ErrorKind, Granularity, Pool, Volume, read_superblock};
use sim::{Op, SimMedia, Trick};
use units::Moment;

use crate::base::Rig;
use crate::hook::make;
use crate::scrub::{Pair, beginnings};

/// How the catalogue's first page begins.
const MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";
/// The byte of flags in it, of which the lowest bit is the one.
const FLAGS: u64 = 9;
/// Where the roots begin, and in each the number of its commit and its checksum.
const ROOTS: [u64; 2] = [64, 64 + 128];
const COMMIT: u64 = 104;
const CHECKSUM: u64 = 112;
const PAGE_BYTES: usize = 4096;
/// Where on a member the stack begins: behind its label.
const AREA_BYTES: u64 = 1 << 20;

fn first_page(media: &Arc<SimMedia>) -> u64 {
    let found = beginnings(media, MAGIC);
    assert_eq!(found.len(), 1, "there is one catalogue");
    found[0]
}

fn mark(volume: &Arc<Volume>, number: usize) {
    volume.create_mark(&format!("m{number}"), &Moment::Latest, false).expect("marked");
}

fn marks(pool: &Pool) -> usize {
    pool.volume("v").expect("there").marks().expect("told").len()
}

#[test]
fn a_flag_that_names_the_older_root_is_put_right() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    for number in 0..4 {
        mark(&volume, number);
        let stopped = rig.fork();
        let at = first_page(&stopped.media);
        stopped.media.rot(at + FLAGS, 0);
        let pool = stopped.try_open().expect("the newer one is there");
        assert_eq!(marks(&pool), number + 1, "none is forgotten");
    }
}

#[test]
fn a_root_that_is_older_than_the_last_commit_is_refused() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    for (damaged, told) in [(COMMIT, "older than the last commit"), (CHECKSUM, "is corrupted")] {
        mark(&volume, damaged as usize);
        let stopped = rig.fork();
        let at = first_page(&stopped.media);
        let mut flags = [0];
        stopped.media.read_at(at + FLAGS, &mut flags).expect("read");
        stopped.media.rot(at + FLAGS, 0);
        stopped.media.rot(at + ROOTS[usize::from(flags[0] & 1)] + damaged, 5);
        let error = stopped.try_open().map(drop).expect_err("the newer one is gone");
        assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(told), "{error}");
    }
}

/// The flag that no page has to be checked after a crash has no checksum either. Where it and the
/// newest root rot the library would take the root before.
#[test]
fn a_newest_root_that_rotted_is_never_replaced_by_the_one_before() {
    let damages = [20, CHECKSUM];
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open();
    let copied = make(&pool, Granularity::EveryWrite, 1 << 60);
    let rot = |media: &Arc<SimMedia>, damaged: u64| {
        let at = first_page(media);
        let mut flags = [0];
        media.read_at(at + FLAGS, &mut flags).expect("read");
        media.rot(at + FLAGS, 2);
        media.rot(at + ROOTS[usize::from(flags[0] & 1)] + damaged, 5);
    };
    for number in 0..4 {
        mark(&volume, number);
        mark(&copied, number);
        for damaged in damages {
            let stopped = rig.fork();
            rot(&stopped.media, damaged);
            let error = stopped.try_open().map(drop).expect_err("the newest root is gone");
            assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
            for side in [0, 1] {
                let stopped = pair.fork();
                rot(&stopped.media[side], damaged);
                assert_eq!(marks(&stopped.open()), number + 1, "side {side}");
            }
        }
    }
}

#[test]
fn of_a_mirror_it_is_had_from_the_other_side_or_put_right() {
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    for number in 0..4 {
        mark(&volume, number);
        for sides in [&[0][..], &[1], &[0, 1]] {
            let stopped = pair.fork();
            let at = first_page(&stopped.media[0]);
            sides.iter().for_each(|side: &usize| stopped.media[*side].rot(at + FLAGS, 0));
            assert_eq!(marks(&stopped.open()), number + 1, "sides {sides:?}");
        }
    }
}

#[test]
fn a_side_that_lost_the_last_write_of_the_first_page_is_not_the_one_that_counts() {
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    let at = first_page(&pair.media[0]);
    for number in 0..4 {
        let mut before = vec![0; PAGE_BYTES];
        pair.media[0].read_at(at, &mut before).expect("read");
        mark(&volume, number);
        for side in [0, 1] {
            let stopped = pair.fork();
            stopped.media[side].write_at(at, &[IoSlice::new(&before)]).expect("written");
            assert_eq!(marks(&stopped.open()), number + 1, "side {side}");
        }
    }
}

/// Two members of a pool that has a volume with four marks, and is closed.
fn closed() -> Pair {
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    (0..4).for_each(|number| mark(&volume, number));
    pool.close().expect("closed");
    pair
}

/// The library has no checksum of what a page has not in use, so a way of reading the catalogue
/// holds together whatever is there.
#[test]
fn what_rots_where_a_page_has_nothing_is_no_reason_not_to_open() {
    let pair = closed();
    let at = first_page(&pair.media[0]);
    for page in 0..100 {
        let stopped = pair.fork();
        stopped.media[0].rot(at + (page + 1) * PAGE_BYTES as u64 - 1, 3);
        assert_eq!(marks(&stopped.open()), 4, "page {page}");
    }
}

/// A read that brought another place's bytes brings the right ones when it is tried again.
#[test]
fn a_read_that_went_elsewhere_while_it_was_opened_is_no_reason_not_to_open() {
    let pair = closed();
    let whole = pair.fork();
    whole.media[0].start_log();
    drop(whole.open());
    let log = whole.media[0].take_log();
    let reads = log.iter().filter(|record| record.op == Op::Read).count() as u64;
    for read in 0..reads {
        let stopped = pair.fork();
        stopped.media[0].trick_after(Trick::MisdirectRead(48 << 20), read);
        assert_eq!(marks(&stopped.open()), 4, "read {read} of {reads}");
    }
}

/// Superblocks and the catalogue's pages have their checksums in themselves: what rots there is had
/// from the other side, and where that rotted as well the pool is refused or as it was.
#[test]
fn rot_in_superblock_or_catalogue_of_a_mirror_never_makes_another_state() {
    let pair = closed();
    let superblock = read_superblock(&pair.array()).expect("sound");
    let zone_of = |at: u64| superblock.catalogue_zones[(at / superblock.zone_bytes) as usize];
    let catalogue = (0..superblock.catalogue_bytes).step_by(PAGE_BYTES).map(|at| {
        let zone_start = u64::from(zone_of(at)) * superblock.zone_bytes;
        AREA_BYTES + zone_start + at % superblock.zone_bytes
    });
    let superblocks = beginnings(&pair.media[0], b"HINDSITE");
    assert_eq!(superblocks.len(), 4);
    let told =
        |pool: &Pool| format!("{:?}", pool.volume("v").expect("there").marks().expect("told"));
    let right = told(&pair.fork().open());
    let (mut opened, mut refused) = (0, 0);
    for (number, page) in superblocks.into_iter().chain(catalogue).enumerate() {
        // Of what a page says first, and in what follows.
        for at in [page + 5, page + 40 + number as u64 * 13 % 3000] {
            let one = pair.fork();
            one.media[number % 2].rot(at, 5);
            assert_eq!(told(&one.open()), right, "rot at {at} of one side");
            let both = pair.fork();
            both.media.iter().for_each(|side| side.rot(at, 5));
            match both.try_open() {
                Ok(pool) => {
                    assert_eq!(told(&pool), right, "rot at {at} of both sides");
                    opened += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(opened > 8 && refused > 4, "{opened} opened, {refused} refused");
}
