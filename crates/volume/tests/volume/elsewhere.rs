//! A block of which no copy is right: the same bytes may be in another version, or in a clone.

use std::sync::Arc;

use hindsight_volume::{
    Architecture, Budget, Encoding, ErrorKind, Granularity, IoKind, ScrubRecord, Volume, WriteOp,
};
use sim::{Failure, Op};
use units::{Moment, Seq};

use crate::base::{BLOCK, Rig, base_blocks, requests};
use crate::packs::{encode, packed, rot_packs};

/// Bytes that only versions of these numbers have.
fn bytes_of(number: u8) -> Vec<u8> {
    (0..BLOCK as usize).map(|at| (at as u8).wrapping_mul(number) ^ number).collect()
}

fn put(volume: &Volume, block: u64, number: u8) -> Seq {
    let bytes = bytes_of(number);
    let op = WriteOp::Data { offset: block * BLOCK, bytes: &bytes };
    volume.write_batch(&[op]).expect("written");
    volume.info().expect("told").latest.seq
}

fn get(volume: &Volume, block: u64) -> hindsight_volume::Result<Vec<u8>> {
    let mut bytes = vec![0; BLOCK as usize];
    volume.read(block * BLOCK, &mut bytes)?;
    Ok(bytes)
}

/// Where on the device blocks with these bytes are.
fn places(rig: &Rig, number: u8) -> Vec<u64> {
    let mut all = vec![0; 64 << 20];
    env::Media::read_at(&*rig.media, 0, &mut all).expect("read");
    let bytes = bytes_of(number);
    (0..all.len() as u64 - BLOCK)
        .step_by(64)
        .filter(|&at| all[at as usize..].starts_with(&bytes))
        .collect()
}

fn new() -> (Rig, Arc<Volume>) {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    (rig, volume)
}

#[test]
fn a_block_that_rotted_is_had_from_another_version_and_written_again() {
    for is_in_runs in [false, true] {
        let (mut rig, volume) = new();
        let first = put(&volume, 7, 3);
        put(&volume, 7, 5);
        let again = put(&volume, 7, 3);
        put(&volume, 7, 9);
        volume.flush().expect("flushed");
        // In memory or in runs, the map knows of them.
        let volume = if is_in_runs { rig.restart() } else { volume };
        let where_they_are = places(&rig, 3);
        assert_eq!(where_they_are.len(), 2, "each version once");
        for place in where_they_are {
            rig.media.rot(place + 100, 1);
            assert_eq!(places(&rig, 3).len(), 1);
            for seq in [first, again] {
                let view = volume.view(&Moment::Seq(seq)).expect("a view");
                let mut bytes = vec![0; BLOCK as usize];
                view.read(7 * BLOCK, &mut bytes).expect("from the other one");
                assert_eq!(bytes, bytes_of(3));
            }
            assert_eq!(places(&rig, 3).len(), 2, "it was written again");
        }
        let healed = rig.pool().status().healed;
        assert_eq!((healed.recovered, healed.elsewhere, healed.unrecoverable), (2, 2, 0));
    }
}

#[test]
fn without_another_version_it_is_an_error_and_so_if_that_is_wrong_too() {
    let (rig, volume) = new();
    put(&volume, 7, 3);
    put(&volume, 7, 5);
    put(&volume, 8, 5);
    volume.flush().expect("flushed");
    rig.rot(&bytes_of(5));
    for block in [7, 8] {
        assert_eq!(get(&volume, block).expect_err("lost").kind, ErrorKind::Corrupt);
    }
    put(&volume, 7, 3);
    rig.rot(&bytes_of(3));
    assert_eq!(get(&volume, 7).expect_err("both are wrong").kind, ErrorKind::Corrupt);
    let healed = rig.pool().status().healed;
    assert_eq!((healed.recovered, healed.elsewhere), (0, 0));
}

#[test]
fn a_clone_that_wrote_the_same_is_another_source() {
    let (rig, volume) = new();
    put(&volume, 7, 3);
    let twin = rig.pool().clone_volume("v", &Moment::Latest, "twin").expect("cloned");
    put(&volume, 7, 5);
    put(&twin, 7, 5);
    volume.flush().expect("flushed");
    twin.flush().expect("flushed");
    let both = places(&rig, 5);
    assert_eq!(both.len(), 2);
    for place in both {
        rig.media.rot(place, 0);
        assert_eq!(get(&volume, 7).expect("had"), bytes_of(5));
        assert_eq!(get(&twin, 7).expect("had"), bytes_of(5));
    }
}

fn scrub(rig: &Rig) -> ScrubRecord {
    rig.pool().scrubs().start().expect("started");
    while rig.pool().step_job("scrub", Budget { bytes: 1 << 20 }).expect("stepped") {}
    rig.pool().scrubs().info().expect("done").record
}

#[test]
fn a_scrub_repairs_what_other_versions_have_and_tells_what_none_has() {
    for is_in_runs in [false, true] {
        let (mut rig, volume) = new();
        for number in [3, 5, 3] {
            put(&volume, 7, number);
        }
        put(&volume, 8, 5);
        volume.flush().expect("flushed");
        let volume = if is_in_runs { rig.restart() } else { volume };
        let (threes, fives) = (places(&rig, 3), places(&rig, 5));
        assert_eq!((threes.len(), fives.len()), (2, 2));
        rig.media.rot(threes[1] + 4, 1);
        // Block 8 has no other version; the same bytes in block 7 are not looked for.
        rig.media.rot(fives[1] + 4, 1);
        let info = scrub(&rig);
        assert_eq!((info.wrong, info.healed, info.repaired, info.lost), (2, 0, 1, 1), "{info:?}");
        assert!(info.losses[0].starts_with("block 8 of v, seq "), "{info:?}");
        assert_eq!((places(&rig, 3), get(&volume, 7).expect("right")), (threes, bytes_of(3)));
        let info = scrub(&rig);
        assert_eq!((info.wrong, info.repaired, info.lost), (1, 0, 1), "{info:?}");
    }
}

#[test]
fn a_scrub_repairs_what_is_at_home() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Redirect, Granularity::EveryWrite);
    for block in 0..64 {
        put(&volume, block, 3 + block as u8);
    }
    rig.age(&volume);
    let home = places(&rig, 10);
    assert_eq!(home.len(), 1);
    assert!(base_blocks(&volume) > 60, "settled blocks came home");
    put(&volume, 7, 99);
    put(&volume, 7, 10);
    volume.flush().expect("flushed");
    rig.media.rot(home[0] + 77, 2);
    let info = scrub(&rig);
    assert_eq!((info.wrong, info.repaired, info.lost), (1, 1, 0), "{info:?}");
    assert_eq!(rig.pool().status().healed.first_at, home[0], "for the audit log");
    assert!(places(&rig, 10).contains(&home[0]), "it was written again where it lies");
    assert_eq!(scrub(&rig).wrong, 0);
    rig.pool().verify_invariants().expect("sound");
}

/// Forty versions of block 7, in packs all of which rotted; the present has the bytes of the tenth.
/// Says where in history they are.
fn with_rotten_packs() -> (Rig, Arc<Volume>, Vec<Seq>) {
    let (mut rig, volume) = new();
    let put = |number| {
        let op = WriteOp::Data { offset: 7 * BLOCK, bytes: &page(number) };
        volume.write_batch(&[op]).expect("written")
    };
    let seqs = (0..40).map(put).collect();
    put(10);
    volume.flush().expect("flushed");
    encode(&rig, &volume, Encoding::Delta);
    assert_eq!(packed(&volume).1, 40 * BLOCK, "all but the present are packed");
    drop(volume);
    let volume = rig.restart();
    assert!(rot_packs(&rig) > 0);
    (rig, volume, seqs)
}

/// What versions in packs have: the same but for a few bytes.
fn page(number: u8) -> Vec<u8> {
    let mut bytes = bytes_of(3);
    bytes[64..72].fill(number);
    bytes
}

#[test]
fn a_version_in_a_pack_that_rotted_is_had_from_another_version() {
    let (rig, volume, seqs) = with_rotten_packs();
    let at = |number: usize| volume.view(&Moment::Seq(seqs[number])).expect("a view");
    let mut bytes = vec![0; BLOCK as usize];
    let is_ready = at(10).try_read(7 * BLOCK, &mut bytes).expect("no error yet");
    assert!(!is_ready, "the other version has to be waited for");
    at(10).read(7 * BLOCK, &mut bytes).expect("from the present");
    assert_eq!(bytes, page(10));
    let healed = rig.pool().status().healed;
    assert_eq!((healed.recovered, healed.elsewhere, healed.unrecoverable), (1, 1, 0));
    let error = at(11).read(7 * BLOCK, &mut bytes).expect_err("in no other version");
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(error.hint.is_some_and(|hint| hint.starts_with("revert to")), "what can be done");
}

#[test]
fn a_scrub_tells_versions_in_packs_that_others_have_from_those_that_are_lost() {
    let (rig, _, _) = with_rotten_packs();
    for _ in 0..2 {
        let info = scrub(&rig);
        let found = (info.wrong, info.healed, info.repaired, info.elsewhere, info.lost);
        assert_eq!(found, (40, 0, 0, 1, 39), "{info:?}");
    }
}

/// Everything that is read in a block at a place fails.
fn fail_at(rig: &Rig, place: u64) {
    let range = Some(place..place + BLOCK);
    rig.media.fail(Failure { range, ..Failure::for_ever(Op::Read) });
}

/// A sector that cannot be read is no other case than one that is wrong: only the block in it is
/// had from elsewhere, and those that are read with it are answered as ever.
#[test]
fn a_block_that_cannot_be_read_is_had_from_another_version() {
    let (mut rig, volume) = new();
    let ops: Vec<Vec<u8>> = (3..9).map(bytes_of).collect();
    let put_all = || {
        let bytes = ops.concat();
        volume.write_batch(&[WriteOp::Data { offset: 5 * BLOCK, bytes: &bytes }]).expect("written")
    };
    let first = put_all();
    put(&volume, 7, 77);
    put_all();
    volume.flush().expect("flushed");
    drop(volume);
    let volume = rig.restart();
    let fives = places(&rig, 5);
    assert_eq!(fives.len(), 2);
    fail_at(&rig, fives[0]);
    let view = volume.view(&Moment::Seq(first)).expect("a view");
    let mut bytes = vec![0; 6 * BLOCK as usize];
    view.read(5 * BLOCK, &mut bytes).expect("from the other one");
    assert!(bytes == ops.concat());
    let healed = rig.pool().status().healed;
    assert_eq!((healed.recovered, healed.elsewhere, healed.unrecoverable), (1, 1, 0));
    // What nobody has is the device's error still.
    fail_at(&rig, fives[1]);
    let error = view.read(5 * BLOCK, &mut bytes).expect_err("both fail");
    assert_eq!(error.kind, ErrorKind::Io, "{error}");
}

/// Bytes of 3 in block 7 at a moment that is kept, and now; with much beside them that is written
/// over. Says when and where the first of them is.
fn sparse(rig: &Rig, volume: &Volume) -> (Seq, u64) {
    let fill = |byte: u8| {
        for block in 100..400 {
            put(volume, block, byte);
        }
    };
    let first = put(volume, 7, 3);
    volume.create_mark("first", &Moment::Seq(first), true).expect("a mark");
    let place = places(rig, 3)[0];
    fill(21);
    put(volume, 7, 5);
    fill(22);
    put(volume, 7, 3);
    fill(23);
    volume.flush().expect("flushed");
    (first, place)
}

#[test]
fn cleaning_moves_what_another_version_has() {
    for is_wrong in [true, false] {
        let (rig, volume) = new();
        let (first, place) = sparse(&rig, &volume);
        assert_eq!(places(&rig, 3).len(), 2);
        match is_wrong {
            true => rig.media.rot(place + 100, 1),
            false => fail_at(&rig, place),
        }
        rig.age(&volume);
        assert!(requests(&volume, IoKind::CopyWrite) > 0, "something was moved");
        rig.media.calm();
        let healed = rig.pool().status().healed;
        assert_eq!((healed.recovered, healed.elsewhere, healed.unrecoverable), (1, 1, 0));
        let found = places(&rig, 3);
        assert!(found.iter().filter(|at| **at != place).count() >= 2, "it was moved: {found:?}");
        let view = volume.view(&Moment::Seq(first)).expect("a view");
        let mut bytes = vec![0; BLOCK as usize];
        view.read(7 * BLOCK, &mut bytes).expect("read");
        assert_eq!(bytes, bytes_of(3));
        rig.pool().verify_invariants().expect("sound");
    }
}

#[test]
fn packing_takes_what_another_version_has() {
    let (rig, volume) = new();
    for number in [3, 5, 3, 9] {
        put(&volume, 7, number);
    }
    volume.flush().expect("flushed");
    rig.media.rot(places(&rig, 3)[0] + 100, 1);
    encode(&rig, &volume, Encoding::Delta);
    assert_eq!(packed(&volume).1, 3 * BLOCK, "all but the present are packed");
    let healed = rig.pool().status().healed;
    assert_eq!((healed.recovered, healed.elsewhere, healed.unrecoverable), (1, 1, 0));
}
