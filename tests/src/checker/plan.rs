//! What a storm writes: sizes, places and contents of its requests.

use crate::image::{Image, PAGE_BYTES};
use crate::nbd::Request;
use crate::random::Random;

/// One request that changes bytes, and what became of it.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub request: Request,
    pub offset: u64,
    pub length: u64,
    /// How many requests of the storm had been acknowledged when this one was sent.
    pub sent_after: Option<u64>,
    /// Its place among the acknowledged ones.
    pub done_as: Option<u64>,
}

impl Op {
    /// The bytes it leaves in a part of its range.
    pub fn bytes(&self, offset: u64, length: u64) -> Vec<u8> {
        let from = usize::try_from(offset - self.offset).expect("requests are small");
        let length = usize::try_from(length).expect("requests are small");
        match &self.request {
            Request::Write { bytes, .. } => bytes[from..from + length].to_vec(),
            _ => vec![0; length],
        }
    }

    /// Whether it is durable before its reply.
    pub fn is_forced(&self) -> bool {
        matches!(self.request, Request::Write { fua: true, .. } | Request::Trim { fua: true, .. })
    }

    pub fn apply(&self, image: &mut Image) {
        match &self.request {
            Request::Write { offset, bytes, .. } => image.write(*offset, bytes),
            _ => image.zero(self.offset, self.length),
        }
    }

    pub fn covers(&self, offset: u64, length: u64) -> bool {
        self.offset <= offset && offset + length <= self.offset + self.length
    }

    pub fn overlaps(&self, offset: u64, length: u64) -> bool {
        self.offset < offset + length && offset < self.offset + self.length
    }
}

/// Up to `count` requests in multiples of `unit` bytes; those that race may overlap, the others
/// share no byte.
pub(super) fn ops(
    random: &mut Random,
    image: &Image,
    count: u64,
    racing: bool,
    unit: u64,
) -> Vec<Op> {
    let mut ops: Vec<Op> = Vec::new();
    // A storm that races stays in one corner, so that it does.
    let (base, span) = if racing {
        let span = image.size().min(random.between(1, 64) * PAGE_BYTES);
        (random.below(image.size() - span + 1) / unit * unit, span)
    } else {
        (0, image.size())
    };
    for _ in 0..count {
        let (offset, length) = range_of(random, span, unit);
        let offset = base + offset;
        if !racing && ops.iter().any(|op| op.overlaps(offset, length)) {
            continue;
        }
        // SCSI has no forced UNMAP.
        ops.push(op(random, image, (offset, length), unit == 1));
    }
    ops
}

/// A range in multiples of `unit`, of which `size` is one as well.
pub(super) fn range_of(random: &mut Random, size: u64, unit: u64) -> (u64, u64) {
    let (offset, length) = range(random, size);
    let first = offset / unit * unit;
    (first, (offset + length).next_multiple_of(unit) - first)
}

/// A range within `size` bytes: aligned or not, mostly small.
pub(super) fn range(random: &mut Random, size: u64) -> (u64, u64) {
    let longest = match random.below(100) {
        0..40 => 4 * PAGE_BYTES,
        40..80 => 16 * PAGE_BYTES,
        80..97 => 64 * PAGE_BYTES,
        _ => 512 * PAGE_BYTES,
    };
    let longest = longest.min(size);
    let unit = [1, 512, PAGE_BYTES, PAGE_BYTES][random.index(4)];
    let length = (random.between(1, longest).div_ceil(unit) * unit).min(longest);
    let offset = match random.below(10) {
        0 => 0,
        1 => size - length,
        // Often the same few places, so that there is something to overwrite.
        2..6 => (random.below(16) * 5 * PAGE_BYTES + random.below(3)).min(size - length),
        _ => random.below(size - length + 1),
    };
    let aligned = offset / unit * unit;
    (aligned.min(size - length), length)
}

fn op(random: &mut Random, image: &Image, (offset, length): (u64, u64), forces: bool) -> Op {
    let short = u32::try_from(length).expect("ranges are short");
    let fua = random.chance(10);
    let request = match random.below(10) {
        0 => Request::Trim { offset, length: short, fua: fua && forces },
        1 => Request::Zero { offset, length: short, no_hole: random.chance(50), fast: false },
        _ => Request::Write { offset, bytes: bytes(random, image, offset, length), fua },
    };
    Op { request, offset, length, sent_after: None, done_as: None }
}

fn bytes(random: &mut Random, image: &Image, offset: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(length).expect("ranges are short")];
    match random.below(20) {
        // Zeros as data.
        0 => {}
        // What is there already.
        1 => return image.read(offset, length),
        // One word all over.
        2..5 => {
            let word = random.bits().to_le_bytes();
            bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&word[..chunk.len()]));
        }
        // What stands elsewhere, to catch a block served from a wrong place.
        5..7 => {
            let (from, _) = range(random, image.size() - length + 1);
            return image.read(from.min(image.size() - length), length);
        }
        _ => random.fill(&mut bytes),
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{Image, Random, ops, range_of};

    #[test]
    fn every_range_lies_within_the_volume() {
        let mut random = Random::new(3);
        for size in [512, 4096, 5120, 1 << 20, (1 << 20) + 512] {
            for _ in 0..10_000 {
                let unit = [1, 512][random.index(2)];
                let (offset, length) = range_of(&mut random, size, unit);
                assert!(length > 0 && offset + length <= size, "{offset}+{length} of {size}");
                assert!(offset % unit == 0 && length % unit == 0, "{offset}+{length} by {unit}");
            }
        }
    }

    #[test]
    fn a_storm_that_does_not_race_overlaps_nowhere() {
        let mut random = Random::new(4);
        let ops = ops(&mut random, &Image::zeros(1 << 20), 60, false, 1);
        for (i, a) in ops.iter().enumerate() {
            assert!(ops[i + 1..].iter().all(|b| !a.overlaps(b.offset, b.length)));
        }
    }
}
