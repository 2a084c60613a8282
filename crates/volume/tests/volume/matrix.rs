//! One story for every way to keep a volume: each architecture, granularity, cache on and off, size
//! of requests, map extent and copy unit, against a model that is a copy of everything.

use std::sync::Arc;

use hindsight_volume::{Architecture, Budget, CacheChange, Granularity, Volume, WriteOp};
use sim::Random;
use units::{MapExtent, Moment, WallTime};

use crate::cached::{Rig, Wish};

const SECOND: u64 = 1_000_000_000;
const INTERVAL_NS: u64 = 10 * SECOND;
const GRANULARITIES: [Granularity; 3] =
    [Granularity::EveryWrite, Granularity::Interval(INTERVAL_NS), Granularity::OnDemand];
/// What clients ask for at a time, and begin at a multiple of (Xiao 5.2).
const REQUEST_BYTES: [u64; 5] = [512, 4096, 8192, 16_384, 65_536];
/// A part of the volume, so that it is overwritten often.
const RANGE_BYTES: u64 = 256 << 10;
const TURNS: usize = 120;
const CACHE: CacheChange = CacheChange { bytes: Some(512 << 10), dirty_percent: Some(25) };

/// A volume and what it must be.
struct Story {
    rig: Rig,
    /// Taken away before the pool is opened again: two at once would write over each other.
    volume: Option<Arc<Volume>>,
    random: Random,
    granularity: Granularity,
    request_bytes: u64,
    present: Vec<u8>,
    /// Moments with the content that they must have for ever.
    moments: Vec<(Moment, Vec<u8>)>,
    last_write: Option<WallTime>,
    what: String,
}

impl Story {
    fn new(wish: Wish, request_bytes: u64, extent: MapExtent) -> Story {
        let mut rig = Rig::new();
        rig.extent = extent;
        if wish.0.has_base() && wish.1 == Granularity::OnDemand {
            rig.copy_unit = extent;
        }
        let volume = rig.make("v", wish);
        assert_eq!(volume.info().expect("info").extent, extent);
        let (architecture, granularity, cache) = wish;
        let cache = cache.bytes;
        let what = format!("{architecture:?} {granularity:?} {cache:?} {request_bytes} {extent}");
        Story {
            rig,
            volume: Some(volume),
            random: Random::new(request_bytes),
            granularity: wish.1,
            request_bytes,
            present: vec![0; RANGE_BYTES as usize],
            moments: Vec::new(),
            last_write: None,
            what,
        }
    }

    fn volume(&self) -> &Arc<Volume> {
        self.volume.as_ref().expect("open")
    }

    fn turn(&mut self) {
        self.rig.clock.advance(SECOND);
        let now = self.volume().now();
        match self.random.below(100) {
            0..74 => self.write(now),
            74..78 => self.volume().flush().expect("flush"),
            78..88 => {
                let version = self.volume().create_version("").expect("version");
                self.remember(Moment::Version(version.number));
            }
            88..94 => _ = self.rig.pool().step(Budget { bytes: 1 << 20 }).expect("step"),
            94..97 => self.revert(),
            97..99 => {
                self.volume().flush().expect("flush");
                self.volume = None;
                self.volume = Some(self.rig.kill());
            }
            _ => self.restart(),
        }
    }

    fn write(&mut self, now: WallTime) {
        let window = |time: WallTime| time.as_nanos() / INTERVAL_NS;
        if let (Granularity::Interval(_), Some(last)) = (self.granularity, self.last_write)
            && window(last) < window(now)
        {
            self.remember(Moment::At(last));
        }
        let units = RANGE_BYTES / self.request_bytes;
        let first = self.random.below(units) * self.request_bytes;
        let most = (RANGE_BYTES - first).min(3 * self.request_bytes);
        // Whole ones mostly, and now and then one whose edges lie inside of blocks.
        let cut =
            if self.random.chance(200) { self.random.below(self.request_bytes / 2) } else { 0 };
        let offset = first + cut;
        let length = (self.random.between(1, most / self.request_bytes) * self.request_bytes - cut)
            .min(RANGE_BYTES - offset);
        let range = offset as usize..(offset + length) as usize;
        let seq = if self.random.chance(100) {
            self.present[range].fill(0);
            self.volume().write_batch(&[WriteOp::Zero { offset, length_bytes: length }])
        } else {
            self.random.fill(&mut self.present[range.clone()]);
            self.volume().write_batch(&[WriteOp::Data { offset, bytes: &self.present[range] }])
        };
        let seq = seq.expect("written");
        self.last_write = Some(self.volume().now());
        if self.granularity == Granularity::EveryWrite && self.random.chance(150) {
            self.remember(Moment::Seq(seq));
        }
    }

    fn remember(&mut self, moment: Moment) {
        self.moments.push((moment, self.present.clone()));
    }

    fn revert(&mut self) {
        if self.moments.is_empty() {
            return;
        }
        let chosen = self.random.below(self.moments.len() as u64) as usize;
        let (moment, content) = self.moments[chosen].clone();
        self.volume().revert(&moment, false).expect("reverted");
        self.present = content;
        // The revert is a moment of its own, and ends the window as the next write would.
        self.last_write = None;
    }

    fn restart(&mut self) {
        self.rig.pool().close().expect("closed");
        self.volume = None;
        self.rig.open(16 << 20);
        self.volume = Some(self.rig.pool().volume("v").expect("there"));
    }

    fn check(&self) {
        let mut found = vec![0x5a; RANGE_BYTES as usize];
        self.volume().read(0, &mut found).expect("read");
        assert!(found == self.present, "{}: the present", self.what);
        for (moment, content) in &self.moments {
            let view =
                self.volume().view(moment).unwrap_or_else(|e| panic!("{} {moment} {e}", self.what));
            view.read(0, &mut found).expect("read");
            assert!(found == *content, "{}: {moment}", self.what);
        }
    }
}

#[test]
fn one_story_is_the_same_whatever_the_volume_is() {
    // Each way meets each extent, with requests of another size the next way.
    let mut way = 0;
    for architecture in Architecture::ALL {
        for granularity in GRANULARITIES {
            for cache in [CacheChange { bytes: Some(0), dirty_percent: None }, CACHE] {
                if architecture.needs_cache() && cache != CACHE {
                    continue;
                }
                way += 1;
                for (i, request_bytes) in REQUEST_BYTES.into_iter().enumerate() {
                    let extent = MapExtent::ALL[(way + i) % MapExtent::ALL.len()];
                    let wish = (architecture, granularity, cache);
                    let mut story = Story::new(wish, request_bytes, extent);
                    (0..TURNS).for_each(|_| story.turn());
                    assert!(story.moments.len() > 4, "{}", story.what);
                    story.check();
                    while story.rig.pool().step(Budget { bytes: 1 << 20 }).expect("step") {}
                    story.check();
                    story.restart();
                    story.check();
                    story.rig.pool().verify_invariants().expect("its parts agree");
                }
            }
        }
    }
}
