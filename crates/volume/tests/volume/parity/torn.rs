//! Stripes of two parities that were written as a whole when the power failed, with a member
//! missing: of some only the second parity knows what the missing member was to have.

use std::collections::HashSet;
use std::io::IoSlice;
use std::sync::Arc;

use block::{Array, BlockDevice, Materials, MediaDevice};
use env::NoFiles;
use hindsight_volume::{Budget, Granularity, Pool, PoolOptions, Volume, WriteOp};

use super::{CELL, CHUNK, FOUR, JOURNAL, LABEL_BYTES, MEMBER_BYTES, Members, noise};
use crate::hook::make;

/// Blocks that are written in one go: more than a stripe.
const AT_ONCE: u64 = 64;
const ALL: u64 = 512;
/// Where the first stripe is on each member.
const START: u64 = LABEL_BYTES + 4 * JOURNAL;

fn open(members: &Members, without: &[usize]) -> Arc<Pool> {
    let mut candidates = members.candidates();
    without.iter().for_each(|&member| candidates[member].device = None);
    let array = Array::open(candidates, &Materials::none()).expect("enough are there");
    let options = PoolOptions { memory_bytes: 0 };
    let files = Arc::new(NoFiles);
    Pool::open_array(array, members.machine.clone(), options, files, &mut |_| ()).expect("opened")
}

fn write(volume: &Volume, from: u64, version: u64) {
    let bytes: Vec<u8> =
        (from..from + AT_ONCE).flat_map(|block| noise(version * ALL + block)).collect();
    volume.write_batch(&[WriteOp::Data { offset: from * CELL, bytes: &bytes }]).expect("written");
}

/// What can be read of each block.
fn contents(pool: &Pool) -> Vec<Option<Vec<u8>>> {
    let volume = pool.volume("v").expect("there");
    let read = |block: u64| {
        let mut bytes = vec![0; CELL as usize];
        volume.read(block * CELL, &mut bytes).ok().map(|()| bytes)
    };
    (0..ALL).map(read).collect()
}

/// A pool whose first parity is old in all stripes that were in flight when the power failed and of
/// which this member was to have the second data.
fn torn(missing: usize) -> Members {
    let members = Members::new(FOUR);
    let pool = members.try_open().expect("opened");
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    (0..ALL).step_by(AT_ONCE as usize).for_each(|from| write(&volume, from, 0));
    volume.flush().expect("flushed");
    drop(volume);
    pool.close().expect("closed");
    drop(pool);
    let pool = open(&members, &[missing]);
    let volume = pool.volume("v").expect("there");
    let before: Vec<(usize, Vec<u8>)> = (0..(MEMBER_BYTES - START) / CHUNK)
        .map(|stripe| {
            let side = 3 - (stripe % 4) as usize;
            let device = MediaDevice::new(Arc::<sim::SimMedia>::clone(&members.media[side]));
            let mut bytes = vec![0; CHUNK as usize];
            device.read_at(START + stripe * CHUNK, &mut bytes).expect("read");
            (side, bytes)
        })
        .collect();
    (0..ALL).step_by(AT_ONCE as usize).for_each(|from| write(&volume, from, 1));
    // A second flush puts in its place what the first one has in the journal.
    for _ in 0..2 {
        volume.flush().expect("flushed");
        write(&volume, 0, 1);
    }
    volume.flush().expect("flushed");
    drop((volume, pool));
    // Only of stripes that clients wrote: the catalogue was flushed.
    let new: HashSet<Vec<u8>> = (ALL..2 * ALL).map(|number| noise(number)[..64].to_vec()).collect();
    let mut restored = 0;
    for (stripe, (side, old)) in before.into_iter().enumerate() {
        let device = MediaDevice::new(Arc::<sim::SimMedia>::clone(&members.media[side]));
        let at = START + stripe as u64 * CHUNK;
        let mut now = vec![0; CHUNK as usize];
        device.read_at(at, &mut now).expect("read");
        let data = MediaDevice::new(Arc::<sim::SimMedia>::clone(&members.media[(side + 2) % 4]));
        let mut first = vec![0; CHUNK as usize];
        data.read_at(at, &mut first).expect("read");
        let places = (0..first.len() - 64).step_by(64);
        let is_new = places.filter(|&at| new.contains(&first[at..at + 64])).count() > 12;
        if (side + 3) % 4 == missing && now != old && is_new {
            device.write_at(at, &[IoSlice::new(&old)]).expect("written");
            device.flush().expect("flushed");
            restored += 1;
        }
    }
    members.media.iter().for_each(|media| media.kill());
    assert!(restored > 2, "{restored}");
    members
}

/// Whether what was there is, with no other bytes than that.
fn count_lost(before: &[Option<Vec<u8>>], pool: &Pool, what: &str) -> usize {
    let after = contents(pool);
    let differs = |(now, was): (&Option<Vec<u8>>, &Option<Vec<u8>>)| now.is_some() && now != was;
    assert!(!after.iter().zip(before).any(differs), "{what}: other bytes");
    after.iter().filter(|bytes| bytes.is_none()).count()
}

#[test]
fn what_is_written_beside_what_only_the_second_parity_knows_outlives_the_next_member() {
    for missing in 0..4 {
        for next in (0..4).filter(|&next| next != missing) {
            let members = torn(missing);
            let pool = open(&members, &[missing]);
            let volume = pool.volume("v").expect("there");
            write(&volume, 0, 2);
            volume.flush().expect("flushed");
            drop(volume);
            (0..3).for_each(|_| pool.tidy_members().expect("tidied"));
            let before = contents(&pool);
            assert!(before.iter().all(Option::is_some), "{missing}");
            pool.close().expect("closed");
            drop(pool);
            let what = format!("{missing}, then {next}");
            let pool = open(&members, &[missing, next]);
            count_lost(&before, &pool, &what);
            let after = contents(&pool);
            for block in 0..AT_ONCE {
                let bytes = after[block as usize].as_ref();
                assert!(bytes.is_some_and(|b| *b == noise(2 * ALL + block)), "{what}: {block}");
            }
        }
    }
}

#[test]
fn what_only_the_second_parity_knew_has_its_redundancy_once_the_member_is_back() {
    let mut new = 0;
    for missing in [0, 3] {
        for is_restarted in [false, true] {
            for next in (0..4).filter(|&next| next != missing) {
                let members = torn(missing);
                let pool = open(&members, &[missing]);
                let before = contents(&pool);
                assert!(before.iter().all(Option::is_some), "{missing}");
                let is_new = |(block, bytes): (u64, &Option<Vec<u8>>)| {
                    bytes.as_ref().is_some_and(|bytes| *bytes == noise(ALL + block))
                };
                new += (0..).zip(&before).filter(|one| is_new(*one)).count();
                // For so long that nobody would look again, if all were there.
                (0..20).for_each(|_| pool.tidy_members().expect("tidied"));
                if is_restarted {
                    pool.close().expect("closed");
                }
                drop(pool);
                let pool = open(&members, &[]);
                let is_in = |m: block::MemberStatus| m.standing == block::Standing::In;
                while !pool.members().into_iter().all(is_in) {
                    pool.step(Budget { bytes: 64 << 20 }).expect("stepped");
                }
                (0..3).for_each(|_| pool.tidy_members().expect("tidied"));
                pool.close().expect("closed");
                drop(pool);
                let what = format!("{missing}, then {next}, {is_restarted}");
                for others in [[next, missing], [next, (next + 1) % 4]] {
                    // What is written without them is of no one else.
                    let members = fork(&members);
                    let pool = open(&members, &others);
                    assert_eq!(count_lost(&before, &pool, &what), 0, "{what}");
                }
            }
        }
    }
    assert!(new > 1000, "{new}");
}

fn fork(members: &Members) -> Members {
    let media = members.media.iter().map(|media| Arc::new(media.fork())).collect();
    let (stack, machine) = (members.stack.clone(), members.machine.clone());
    Members { stack, media, machine }
}
