//! Members of which the kernel reads more than it is asked for, ahead of need.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

use env::Media;
use hindsight_block::{Array, BlockDevice, Candidate, Materials, MediaDevice};
use parking_lot::Mutex;
use sim::SimMedia;

use crate::rig::{Rig, lose};

const MIB: u64 = 1 << 20;
const AHEAD_BYTES: u64 = 512 << 10;

/// Pages that were made of a hole are data from then on, though they are zeros: as with ext4, of
/// space that is reserved.
struct Cached {
    media: Arc<SimMedia>,
    read: Mutex<Vec<Range<u64>>>,
}

impl Cached {
    fn read_bytes(&self) -> u64 {
        self.read.lock().iter().map(|range| range.end - range.start).sum()
    }
}

impl Media for Cached {
    fn len_bytes(&self) -> u64 {
        self.media.len_bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read.lock().push(offset..offset + buffer.len() as u64);
        self.media.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        self.media.write_at(offset, slices)
    }
    fn is_hole(&self, offset: u64, length_bytes: u64) -> bool {
        let end = offset + length_bytes;
        let is_cached = |read: &Range<u64>| read.start < end && offset < read.end + AHEAD_BYTES;
        !self.read.lock().iter().any(is_cached) && self.media.is_hole(offset, length_bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.media.sync()
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        self.media.allocate(offset, length_bytes)
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        self.media.discard(offset, length_bytes)
    }
    fn name(&self) -> &str {
        self.media.name()
    }
}

/// A filled array that was killed, opened again on members that say what was read of them.
fn opened(stack: &str) -> (Rig, Vec<Arc<Cached>>, Array) {
    let rig = Rig::filled(stack, 40 * MIB, 7, |_| 0);
    let array = rig.open();
    for at in 0..32 {
        let bytes = vec![7; if at < 2 { MIB as usize } else { 1 }];
        array.write_at(at * MIB, &[IoSlice::new(&bytes)]).expect("written");
    }
    array.flush().expect("flushed");
    drop(array);
    let members = rig
        .media
        .iter()
        .map(|media| Arc::new(Cached { media: Arc::clone(media), read: Mutex::default() }));
    let members: Vec<Arc<Cached>> = members.collect();
    let candidates = rig.stack.members().into_iter().zip(&members).map(|(path, member)| {
        let device = MediaDevice::new(Arc::<Cached>::clone(member));
        Candidate { path: path.to_owned(), device: Some(Arc::new(device)) }
    });
    let array = Array::open(candidates.collect(), &Materials::none()).expect("all are there");
    (rig, members, array)
}

#[test]
fn a_look_after_a_kill_reads_what_was_written_and_not_the_holes_behind_it() {
    let (_rig, members, array) = opened("parity[journal=64KiB](a, b, c)");
    let unsettled = array.unsettled();
    let bytes: u64 = unsettled.iter().map(|range| range.end - range.start).sum();
    assert_eq!(bytes, 32 * MIB, "all of it was marked");
    let read = || members.iter().map(|member| member.read_bytes()).sum::<u64>();
    let before = read();
    let found = array.disagreements(0, 32 * MIB).expect("it can be looked at");
    assert!(found.is_empty(), "{found:?}");
    let looked_at = read() - before;
    assert!((3 * MIB..9 * MIB).contains(&looked_at), "{looked_at} bytes of {bytes}");
}

#[test]
fn a_look_asks_nothing_of_a_member_that_is_out() {
    let (rig, members, array) = opened("parity[failures=2,journal=64KiB](a, b, c, d)");
    lose(&array, &rig.media[3], 3);
    let before = members[3].read_bytes();
    let found = array.disagreements(0, 32 * MIB).expect("it can be looked at");
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(members[3].read_bytes(), before, "it may take long to fail");
}
