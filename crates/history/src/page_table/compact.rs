//! A page of the present of a volume with larger extents: one header for the blocks of an extent
//! that came from one write and whose places follow one another, and a checksum a block.
//!
//! Invariants
//! 1. Headers are in the order of extents. No block is in two of them, and none is empty.
//! 2. It answers what a table of 512 slots would answer.

use format::location::Location;
use format::map::{Places, Stride};
use units::{MapExtent, Seq};

use crate::slot::{BLOCKS_PER_PAGE, LoadedPage, Slot};

/// Headers that there is room for beyond those needed, as many as extents that a few writes mix.
const SPARE_HEADERS: usize = 4;

/// Blocks of one extent from one write, in 16 bytes: seq 48 bits, location 48, mask 16, extent 8,
/// stride 8.
#[derive(Clone, Copy, Debug)]
struct Header {
    high: u64,
    low: u64,
}

const _: () = assert!(size_of::<Header>() == 16 && BLOCKS_PER_PAGE / 2 <= 1 << 8);

impl Header {
    fn pack(extent: usize, seq: Seq, places: Places) -> Header {
        let location = places.first.0;
        assert!(seq.0 < 1 << 48 && location < 1 << 48, "seq and location fit 48 bits");
        Header {
            high: seq.0 << 16 | location >> 32,
            low: location << 32
                | u64::from(places.mask) << 16
                | (extent as u64) << 8
                | places.stride as u64,
        }
    }

    #[inline]
    fn extent(self) -> usize {
        (self.low >> 8 & 0xff) as usize
    }

    #[inline]
    fn seq(self) -> Seq {
        Seq(self.high >> 16)
    }

    #[inline]
    fn mask(self) -> u16 {
        (self.low >> 16 & 0xffff) as u16
    }

    fn places(self) -> Places {
        Places {
            first: Location((self.high & 0xffff) << 32 | self.low >> 32),
            stride: Stride::from_number((self.low & 0xff) as u8).expect("packed from a stride"),
            mask: self.mask(),
        }
    }
}

/// Where 512 blocks are.
#[derive(Debug, Default)]
pub(super) struct CompactPage {
    headers: Vec<Header>,
    /// Of every block; none where all that is known are holes.
    crcs: Option<Box<[u32; BLOCKS_PER_PAGE]>>,
}

impl CompactPage {
    /// The page with these slots.
    pub(super) fn new(slots: &LoadedPage, extent: MapExtent) -> CompactPage {
        let mut page = CompactPage::default();
        for (index, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.seq != Seq::ZERO) {
            let (extent, block) = (index / extent.blocks(), index % extent.blocks());
            let begin = page.headers.iter().rposition(|header| header.extent() != extent);
            page.put(begin.map_or(0, |i| i + 1), extent, block, slot);
            page.set_crc(index, slot);
        }
        page.headers.shrink_to(page.headers.len() + SPARE_HEADERS);
        page
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        let crcs = self.crcs.as_ref().map_or(0, |crcs| size_of_val(&**crcs));
        size_of::<CompactPage>() + self.headers.capacity() * size_of::<Header>() + crcs
    }

    /// Copies the slots of `first` and on.
    pub(super) fn copy_out(&self, extent: MapExtent, first: usize, out: &mut [Slot]) {
        out.fill(Slot::default());
        let (blocks, end) = (extent.blocks(), first + out.len());
        for header in &self.headers[self.begin(first / blocks)..] {
            let base = header.extent() * blocks;
            if base >= end {
                return;
            }
            let (seq, places) = (header.seq(), header.places());
            let wanted = wanted(base, first, end);
            let mut mask = places.mask & wanted;
            while mask != 0 {
                let block = mask.trailing_zeros() as usize;
                mask &= mask - 1;
                let location = places.location(block);
                let crc = match &self.crcs {
                    Some(crcs) if !location.is_hole() => crcs[base + block],
                    _ => 0,
                };
                out[base + block - first] = Slot { seq, location, crc, known: true };
            }
        }
    }

    /// Puts a slot in its place if it is newer than what is there.
    pub(super) fn raise(&mut self, extent: MapExtent, index: usize, slot: &Slot) {
        let (extent, block) = (index / extent.blocks(), index % extent.blocks());
        let mut begin = self.begin(extent);
        let same = self.headers[begin..].iter().take_while(|header| header.extent() == extent);
        let holder = same.clone().position(|header| header.mask() >> block & 1 == 1);
        if let Some(holder) = holder {
            let holder = begin + holder;
            let header = self.headers[holder];
            if header.seq() >= slot.seq {
                return;
            }
            let [rest, behind] = header.places().without(block);
            match rest {
                Some(places) => {
                    self.headers[holder] = Header::pack(extent, header.seq(), places);
                }
                None => drop(self.headers.remove(holder)),
            }
            if let Some(places) = behind {
                self.insert(holder, Header::pack(extent, header.seq(), places));
            }
        }
        begin = begin.min(self.headers.len());
        self.put(begin, extent, block, slot);
        self.set_crc(index, slot);
    }

    /// Adds a block that no header has to the headers of its extent, which begin at `begin`.
    fn put(&mut self, begin: usize, extent: usize, block: usize, slot: &Slot) {
        let mut at = begin;
        while let Some(header) = self.headers.get_mut(at).filter(|h| h.extent() == extent) {
            if header.seq() == slot.seq
                && let Some(places) = header.places().with(block, slot.location)
            {
                *header = Header::pack(extent, slot.seq, places);
                return;
            }
            at += 1;
        }
        self.insert(at, Header::pack(extent, slot.seq, Places::one(block, slot.location)));
    }

    fn insert(&mut self, at: usize, header: Header) {
        if self.headers.len() == self.headers.capacity() {
            self.headers.reserve_exact(SPARE_HEADERS + self.headers.len() / 16);
        }
        self.headers.insert(at, header);
    }

    fn set_crc(&mut self, index: usize, slot: &Slot) {
        if !slot.is_hole() {
            self.crcs.get_or_insert_with(|| Box::new([0; BLOCKS_PER_PAGE]))[index] = slot.crc;
        }
    }

    /// The first header of an extent, or of what is behind it.
    fn begin(&self, extent: usize) -> usize {
        self.headers.partition_point(|header| header.extent() < extent)
    }
}

/// The blocks of the extent that begins at `base` which lie in `first..end`.
fn wanted(base: usize, first: usize, end: usize) -> u16 {
    let low = first.saturating_sub(base);
    let count = (end - base).min(MapExtent::BLOCKS_MAX);
    let below = |block: usize| (1_u32 << block) - 1;
    (below(count) & !below(low.min(MapExtent::BLOCKS_MAX))) as u16
}
