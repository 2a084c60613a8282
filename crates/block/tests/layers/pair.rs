//! Two copies that tests can set against each other, and a mirror over them that is as simple as
//! can be.

use std::io::IoSlice;
use std::sync::Arc;

use hindsight_block::heal::{Copies, settle};
use hindsight_block::{BlockDevice, Ledger, MediaDevice, Outcome, Result, Resync, Right};
use sim::SimMedia;

/// A device of two copies.
pub struct Pair {
    pub media: [Arc<SimMedia>; 2],
    sides: [MediaDevice; 2],
    pub ledger: Arc<Ledger>,
}

impl Pair {
    pub fn new(len_bytes: u64, seed: u64) -> Arc<Pair> {
        let media = [0, 1].map(|side| Arc::new(SimMedia::new(len_bytes, seed * 2 + side)));
        Pair::over(media)
    }

    /// The same copies as after a restart.
    pub fn over(media: [Arc<SimMedia>; 2]) -> Arc<Pair> {
        let sides = [0, 1].map(|side: usize| {
            let media: Arc<SimMedia> = Arc::clone(&media[side]);
            MediaDevice::new(media)
        });
        Arc::new(Pair { media, sides, ledger: Arc::default() })
    }

    /// Flips a bit of one copy.
    pub fn rot(&self, side: usize, offset: u64) {
        self.media[side].rot(offset, 3);
    }
}

impl BlockDevice for Pair {
    fn len_bytes(&self) -> u64 {
        self.sides[0].len_bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.sides[0].read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.sides.iter().try_for_each(|side| side.write_at(offset, slices))
    }
    fn flush(&self) -> Result<()> {
        self.sides.iter().try_for_each(BlockDevice::flush)
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.sides.iter().try_for_each(|side| side.allocate(offset, length_bytes))
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.sides.iter().try_for_each(|side| side.discard(offset, length_bytes))
    }
    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.sides.iter().try_for_each(|side| side.write_durable(offset, slices))
    }
    fn copies(&self, _offset: u64, _length_bytes: u64) -> usize {
        2
    }
    fn read_copy(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.sides[copy.min(1)].read_at(offset, buffer)
    }
    fn ways(&self) -> usize {
        2
    }
    fn read_way(&self, way: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.sides[way].read_at(offset, buffer)
    }
    fn heal(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
        let copies = Copies {
            count: 2,
            read: &|copy, buffer| self.sides[copy].read_at(offset, buffer),
            write_back: &|copy, bytes| {
                self.sides[copy].write_durable(offset, &[IoSlice::new(bytes)])
            },
        };
        settle(&copies, buffer, right, &self.ledger)
    }
    fn resync(&self, offset: u64, length_bytes: u64, _which: Resync) -> Result<()> {
        let mut bytes = vec![0; usize::try_from(length_bytes).expect("a range of a test")];
        self.sides[0].read_at(offset, &mut bytes)?;
        self.sides[1].write_durable(offset, &[IoSlice::new(&bytes)])
    }
    fn describe(&self) -> String {
        "pair".to_owned()
    }
}
