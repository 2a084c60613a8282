//! What differs between volumes with a past in common: a clone and its origin, two clones.

use std::sync::Arc;

use hindsight_volume::{Architecture, CloneSpec, ErrorKind, Granularity, Volume};
use sim::Random;
use units::Moment;

use crate::base::{BLOCK, Rig, SIZE_BYTES, content, past, put};

const BLOCKS: u64 = SIZE_BYTES / BLOCK;

/// Blocks that a diff names.
fn told(a: (&Arc<Volume>, &Moment), b: (&Arc<Volume>, &Moment)) -> Vec<u64> {
    let mut blocks = Vec::new();
    let mut next = Some(0);
    while let Some(offset) = next {
        let page = a.0.diff_with(a.1, b, offset, 7).expect("related");
        for range in &page.ranges {
            let end = (range.offset + range.length_bytes).div_ceil(BLOCK);
            blocks.extend(range.offset / BLOCK..end);
        }
        next = page.next_offset;
    }
    blocks
}

/// Blocks that are not the same; beyond an end there are zeros.
fn differing(a: &[u8], b: &[u8]) -> Vec<u64> {
    let part = |of: &[u8], block: u64| {
        let start = ((block * BLOCK) as usize).min(of.len());
        let mut part = of[start..(start + BLOCK as usize).min(of.len())].to_vec();
        part.resize(BLOCK as usize, 0);
        part
    };
    let blocks = 0..a.len().max(b.len()).div_ceil(BLOCK as usize) as u64;
    blocks.filter(|&block| part(a, block) != part(b, block)).collect()
}

fn scribble(volume: &Volume, random: &mut Random) {
    for _ in 0..40 {
        // Few different bytes: the same content is written by both, too.
        put(volume, random.below(BLOCKS), random.below(3) as u8, 1);
    }
}

#[test]
fn a_clone_and_its_origin_and_two_clones_differ_where_a_diff_says_so() {
    for architecture in Architecture::ALL {
        let rig = Rig::new();
        let random = &mut Random::new(7);
        let origin = rig.make("v", architecture, Granularity::EveryWrite);
        scribble(&origin, random);
        let early = origin.resolve(&Moment::Latest).expect("resolved").seq;
        scribble(&origin, random);
        let clone = |name: &str, of: &str| {
            rig.pool().clone_volume(of, &Moment::Latest, name).expect("cloned")
        };
        let mut all = vec![Arc::clone(&origin), clone("a", "v")];
        // There is memory for two caches.
        if !architecture.needs_cache() {
            all.extend([clone("b", "v"), clone("of-a", "a")]);
        }
        for turn in 0..6 {
            match turn {
                2 => drop(origin.revert(&Moment::Seq(early), false).expect("reverted")),
                3 => all[1].resize(SIZE_BYTES - 9 * BLOCK - 512).expect("shrunk"),
                4 => all[0].resize(SIZE_BYTES + 5 * BLOCK).expect("grown"),
                _ => {}
            }
            for x in &all {
                for y in &all {
                    let same = (&Moment::Latest, &Moment::Latest);
                    let what = format!("{architecture:?} {turn}: {} and {}", x.name(), y.name());
                    let expected = differing(&content(x), &content(y));
                    assert_eq!(told((x, same.0), (y, same.1)), expected, "{what}");
                }
                let before = differing(&past(&origin, early), &content(x));
                let moment = Moment::Seq(early);
                assert_eq!(told((&origin, &moment), (x, &Moment::Latest)), before, "{}", x.name());
            }
            for volume in [&all[turn % all.len()], &all[0], &all[all.len() - 1]] {
                let end = volume.size_bytes() / BLOCK;
                put(volume, random.below(end), random.below(3) as u8, 1);
            }
            rig.settle();
        }
    }
}

#[test]
fn volumes_without_a_past_in_common_are_told_so() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    put(&volume, 0, 1, 1);
    let spec = CloneSpec { in_full: true, ..CloneSpec::default() };
    let full = rig.pool().clone_as("v", &Moment::Latest, "full", spec).expect("cloned");
    let other = rig.make("w", Architecture::Logging, Granularity::EveryWrite);
    for stranger in [&other, &full] {
        let latest = Moment::Latest;
        let refused = volume.diff_with(&latest, (stranger, &latest), 0, 9).expect_err("strangers");
        assert_eq!(refused.kind, ErrorKind::Invalid);
        assert!(refused.message.contains("no past in common"), "{refused}");
        assert!(refused.hint.is_some_and(|hint| hint.contains("byte by byte")));
        rig.settle();
    }
}
