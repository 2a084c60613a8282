//! History that is encoded: what is packed reads as before, takes less room, and can be lost by
//! nothing that raw history is not lost by.

use std::collections::BTreeMap;
use std::sync::Arc;

use hindsight_volume::{
    Architecture, Encoding, EncodingChange, ErrorKind, Granularity, IoKind, Volume, VolumeChange,
};
use sim::Random;
use units::{Moment, Seq};

use crate::base::{BLOCK, Rig, SIZE_BYTES, WINDOW_NS, content, past, requests};

const SECOND: u64 = 1_000_000_000;
const ENCODINGS: [Encoding; 2] = [Encoding::Delta, Encoding::Xor];

/// Blocks whose versions differ in a few bytes, as pages of a database do.
pub struct Pages {
    random: Random,
    pub present: Vec<u8>,
    /// The whole volume after some of the writes.
    moments: BTreeMap<Seq, Vec<u8>>,
}

impl Pages {
    pub fn new(volume: &Volume) -> Pages {
        Pages {
            random: Random::new(7),
            present: vec![0; volume.size_bytes() as usize],
            moments: BTreeMap::new(),
        }
    }

    /// Changes pages, among the first `blocks`.
    pub fn change(&mut self, volume: &Volume, blocks: u64, times: u64) {
        for turn in 0..times {
            let block = self.random.below(blocks);
            let start = (block * BLOCK) as usize;
            let page = &mut self.present[start..start + BLOCK as usize];
            if page.iter().all(|byte| *byte == 0) {
                self.random.fill(page);
            }
            for _ in 0..3 {
                let at = self.random.below(BLOCK - 8) as usize;
                self.random.fill(&mut page[at..at + 8]);
            }
            let bytes = &self.present[start..start + BLOCK as usize];
            let op = hindsight_volume::WriteOp::Data { offset: block * BLOCK, bytes };
            let seq = volume.write_batch(&[op]).expect("written");
            if turn % (times / 5).max(1) == 0 {
                self.moments.insert(seq, self.present.clone());
            }
        }
    }

    pub fn check(&self, volume: &Arc<Volume>) {
        assert_eq!(content(volume), self.present, "the present");
        for (&seq, expected) in &self.moments {
            assert!(past(volume, seq) == *expected, "another past at {seq}");
        }
    }
}

pub fn encode(rig: &Rig, volume: &Volume, encoding: Encoding) {
    let encoding = EncodingChange { encoding: Some(encoding), after_ns: Some(SECOND) };
    volume.change(&VolumeChange { encoding, ..VolumeChange::default() }).expect("changed");
    pack(rig);
}

/// Lets everything become old enough, and all that follows from it be done.
pub fn pack(rig: &Rig) {
    rig.clock.advance(61 * SECOND);
    rig.settle();
}

/// Bytes of what is packed: as it is, and as it was.
pub fn packed(volume: &Volume) -> (u64, u64) {
    let encoding = volume.info().expect("info").encoding;
    (encoding.packed_bytes, encoding.unpacked_bytes)
}

/// Flips a bit in every pack; says in how many.
pub fn rot_packs(rig: &Rig) -> usize {
    let device = env::Media::len_bytes(&*rig.media);
    let mut zone = vec![0; 256 << 10];
    let mut rotten = 0;
    for start in (0..device).step_by(zone.len()) {
        env::Media::read_at(&*rig.media, start, &mut zone).expect("read");
        for at in (0..zone.len()).step_by(64).filter(|at| zone[*at..].starts_with(b"HPACKVER")) {
            rig.media.rot(start + at as u64 + 70, 3);
            rotten += 1;
        }
    }
    rotten
}

#[test]
fn what_was_written_over_is_packed_and_every_moment_reads_as_before() {
    for architecture in Architecture::ALL {
        for encoding in ENCODINGS {
            let mut rig = Rig::new();
            let volume = rig.make("v", architecture, Granularity::EveryWrite);
            let mut pages = Pages::new(&volume);
            pages.change(&volume, 20, 2000);
            volume.flush().expect("flushed");
            let raw = volume.info().expect("info").history_bytes;
            encode(&rig, &volume, encoding);
            pages.check(&volume);
            let (bytes, were) = packed(&volume);
            assert!(were > 1000 * BLOCK, "{architecture:?} {encoding:?}: {were} bytes are packed");
            assert!(bytes * 10 < were, "{architecture:?} {encoding:?}: {were} became {bytes}");
            let now = volume.info().expect("info").history_bytes;
            assert!(now * 2 < raw, "{architecture:?} {encoding:?}: history {raw} became {now}");
            rig.pool().verify_invariants().expect("all agree");
            drop(volume);

            let volume = rig.restart();
            pages.check(&volume);
            pages.change(&volume, 20, 300);
            drop(volume);
            assert_eq!(rig.rebuild(), 0, "nothing is damaged");
            let volume = rig.pool().volume("v").expect("there");
            pages.check(&volume);
            pack(&rig);
            pages.check(&volume);
            rig.pool().verify_invariants().expect("all agree");
        }
    }
}

#[test]
fn packs_grow_as_their_blocks_are_written_again() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    let mut pages = Pages::new(&volume);
    encode(&rig, &volume, Encoding::Xor);
    for _ in 0..12 {
        pages.change(&volume, 4, 12);
        volume.flush().expect("flushed");
        // What waits in memory is not packed: so much is written that it goes out.
        pages.change(&volume, 600, 600);
        pack(&rig);
    }
    pages.check(&volume);
    let (bytes, were) = packed(&volume);
    println!("{were} bytes in {bytes}");
    assert!(bytes * 5 < were, "{were} bytes became {bytes}: full versions are many");
}

#[test]
fn a_revert_and_a_clone_to_what_is_packed_read_and_write_as_ever() {
    for architecture in Architecture::ALL {
        let rig = Rig::new();
        let volume = rig.make("v", architecture, Granularity::EveryWrite);
        let mut pages = Pages::new(&volume);
        pages.change(&volume, 20, 1000);
        encode(&rig, &volume, Encoding::Delta);
        assert!(packed(&volume).1 > 500 * BLOCK);
        let (&seq, then) = pages.moments.iter().nth(2).expect("some");
        let then = then.clone();
        let clone = rig.pool().clone_volume("v", &Moment::Seq(seq), "c").expect("cloned");
        assert_eq!(content(&clone), then);
        volume.revert(&Moment::Seq(seq), false).expect("reverted");
        pages.present = then.clone();
        pages.check(&volume);
        pages.change(&volume, 20, 200);
        pack(&rig);
        pages.check(&volume);
        assert_eq!(content(&clone), then, "{architecture:?}: the clone is another");
        rig.pool().delete_volume("v").expect("deleted");
        drop(volume);
        pack(&rig);
        assert_eq!(content(&clone), then, "{architecture:?}: the clone is another");
        rig.pool().verify_invariants().expect("all agree");
    }
}

#[test]
fn what_leaves_the_window_leaves_the_packs_too() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    let mut pages = Pages::new(&volume);
    pages.change(&volume, 20, 2000);
    encode(&rig, &volume, Encoding::Xor);
    assert!(packed(&volume).1 > 1900 * BLOCK);
    rig.clock.advance(WINDOW_NS / 2);
    pages.moments.clear();
    pages.change(&volume, 20, 1000);
    rig.clock.advance(WINDOW_NS / 2 + SECOND);
    pages.change(&volume, 20, 1000);
    pack(&rig);
    pages.check(&volume);
    let (_, after) = packed(&volume);
    assert!(after < 2100 * BLOCK, "{after} bytes of 2000 versions and 2000 that have expired");
    rig.pool().verify_invariants().expect("all agree");
}

#[test]
fn a_history_limit_takes_the_oldest_of_what_is_packed_and_no_more() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    let mut pages = Pages::new(&volume);
    pages.change(&volume, 20, 4000);
    encode(&rig, &volume, Encoding::Xor);
    let history = volume.info().expect("info").history_bytes;
    let limit = history - history / 4;
    let change = VolumeChange {
        history_limit_bytes: Some(Some(limit)),
        grace_ns: Some(0),
        ..VolumeChange::default()
    };
    volume.change(&change).expect("changed");
    for _ in 0..20 {
        rig.clock.advance(2 * SECOND);
        rig.settle();
    }
    let info = volume.info().expect("info");
    assert!(info.history_bytes <= limit + (64 << 10), "{} of {limit}", info.history_bytes);
    let kept = 4000 - info.oldest.seq.0;
    assert!((1500..3500).contains(&kept), "{kept} of 4000 writes can be opened");
    rig.pool().verify_invariants().expect("all agree");
}

#[test]
fn what_does_not_compress_stays_as_it_is() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    let mut random = Random::new(3);
    let mut bytes = vec![0; BLOCK as usize];
    for turn in 0..1000 {
        random.fill(&mut bytes);
        let offset = turn % (SIZE_BYTES / BLOCK / 8) * BLOCK;
        let op = hindsight_volume::WriteOp::Data { offset, bytes: &bytes };
        volume.write_batch(&[op]).expect("written");
    }
    encode(&rig, &volume, Encoding::Delta);
    assert_eq!(packed(&volume), (0, 0));
    rig.pool().verify_invariants().expect("all agree");
}

#[test]
fn a_rotten_pack_fails_its_own_versions_and_no_others() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    let mut pages = Pages::new(&volume);
    pages.change(&volume, 20, 1500);
    encode(&rig, &volume, Encoding::Delta);
    let rotten = rot_packs(&rig);
    assert!(rotten > 0, "no pack was found on the media");
    assert_eq!(content(&volume), pages.present);
    let (mut failed, mut read) = (0, 0);
    for (&seq, expected) in &pages.moments {
        let view = volume.view(&Moment::Seq(seq)).expect("a view");
        for (block, expected) in expected.chunks(BLOCK as usize).enumerate() {
            let mut bytes = vec![0; BLOCK as usize];
            match view.read(block as u64 * BLOCK, &mut bytes) {
                Ok(()) => {
                    assert_eq!(bytes, expected, "other bytes");
                    read += 1;
                }
                Err(e) => {
                    assert_eq!(e.kind, ErrorKind::Corrupt, "{e}");
                    failed += 1;
                }
            }
        }
    }
    assert!(failed > 0 && read > failed, "{failed} blocks failed, {read} were read");
    pack(&rig);
    rig.pool().verify_invariants().expect("all agree");
}

/// Whoever reads a past moment in order is answered at once, each pack is decoded once for all of
/// its blocks, and what is not in memory, or is much, is left to those who may wait.
#[test]
fn a_moment_in_packs_is_read_in_order_without_waiting_and_each_pack_is_decoded_once() {
    const BLOCKS: u64 = 256;
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    let mut pages = Pages::new(&volume);
    pages.change(&volume, BLOCKS, 1000);
    let middle = volume.info().expect("info").latest.seq;
    let expected = pages.present.clone();
    pages.change(&volume, BLOCKS, 1000);
    encode(&rig, &volume, Encoding::Xor);
    let view = volume.view(&Moment::Seq(middle)).expect("a view");
    // The map's pages are loaded by whoever may wait.
    view.extents(0, view.size_bytes(), 1 << 20).expect("extents");
    let decoded = || requests(&volume, IoKind::HistoryRead);
    let before = decoded();
    for turn in 0..2 {
        for (offset, expected) in (0u64..).step_by(64 << 10).zip(expected.chunks(64 << 10)) {
            let mut bytes = vec![0xee; expected.len()];
            assert!(view.try_read(offset, &mut bytes).expect("read"), "{offset} is in memory");
            assert!(bytes == expected, "turn {turn}, {offset}");
        }
        let times = decoded() - before;
        assert!((BLOCKS / 32..BLOCKS * 2 / 3).contains(&times), "turn {turn}: {times} times");
    }
    let mut many = vec![0; 128 << 10];
    assert!(!view.try_read(0, &mut many).expect("read"), "many are not for those in a hurry");
    view.read(0, &mut many).expect("read");
    assert!(many == expected[..many.len()]);
}
