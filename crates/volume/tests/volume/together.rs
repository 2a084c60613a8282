//! What happens to all volumes of a group at one instant: reverts and clones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use hindsight_volume::{ErrorKind, GroupMoment, Pool, RevertReport, Volume};
use units::{Moment, Seq, Span};

use crate::groups::{add, names};
use crate::hook::{Rig, SECOND_NS, get, put};

fn pool_of_three(rig: &Rig, cache_bytes: u64) -> (Arc<Pool>, Vec<Arc<Volume>>) {
    let pool = rig.open_with(16 << 20);
    let volumes = ["c", "a", "b"].map(|name| add(&pool, name, cache_bytes)).to_vec();
    pool.create_group("g", &names(&["a", "b", "c"])).expect("made");
    (pool, volumes)
}

fn fill(rig: &Rig, volumes: &[Arc<Volume>], byte: u8) {
    for (index, volume) in volumes.iter().enumerate() {
        put(volume, 0, byte + index as u8);
        rig.clock.advance(SECOND_NS);
    }
}

fn shows(pool: &Pool, names: [&str; 3]) -> [u8; 3] {
    names.map(|name| get(&pool.volume(name).expect("there"), 0))
}

fn undo(reports: &[(String, RevertReport)]) -> GroupMoment {
    let one =
        |(name, report): &(String, RevertReport)| (name.clone(), Moment::Seq(report.from.seq));
    GroupMoment::Each(reports.iter().map(one).collect())
}

const ALL: [&str; 3] = ["a", "b", "c"];

#[test]
fn a_group_is_reverted_as_one_and_that_is_undone() {
    for cache_bytes in [0, 1 << 20] {
        let rig = Rig::new(64 << 20, 256 << 10);
        let (pool, volumes) = pool_of_three(&rig, cache_bytes);
        fill(&rig, &volumes, 1);
        let capture = pool.create_group_version("g", "before").expect("captured").number;
        for volume in &volumes {
            volume.create_mark("m", &Moment::Latest, true).expect("named");
        }
        // Numbers of the volumes' versions are others than those of the captures.
        volumes[0].create_version("").expect("captured");
        fill(&rig, &volumes, 11);
        let to = GroupMoment::Of(Moment::Version(capture));
        let told = pool.revert_group("g", &to, true).expect("told");
        assert!(told.iter().all(|(_, report)| report.changed_bytes == 4096), "{told:?}");
        assert_eq!(shows(&pool, ALL), [12, 13, 11], "nothing was done");
        let reports = pool.revert_group("g", &to, false).expect("reverted");
        assert_eq!(shows(&pool, ALL), [2, 3, 1]);
        drop(volumes);
        let pool = rig.kill(pool);
        assert_eq!(shows(&pool, ALL), [2, 3, 1], "cache {cache_bytes}");
        let again = pool.revert_group("g", &undo(&reports), false).expect("undone");
        assert_eq!(shows(&pool, ALL), [12, 13, 11]);
        pool.revert_group("g", &undo(&again), false).expect("redone");
        assert_eq!(shows(&pool, ALL), [2, 3, 1]);
        pool.revert_group("g", &undo(&reports), false).expect("undone");
        let mark = GroupMoment::Of(Moment::Mark("m".to_owned()));
        pool.revert_group("g", &mark, false).expect("reverted");
        assert_eq!(shows(&pool, ALL), [2, 3, 1]);
        let ago = GroupMoment::Of(Moment::Ago(Span(0)));
        let now = pool.resolve_group("g", &ago).expect("resolved");
        assert_eq!(now.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["c", "a", "b"]);
        pool.verify_invariants().expect("sound");
    }
}

#[test]
fn what_one_volume_cannot_open_leaves_all_as_they_are() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let (pool, volumes) = pool_of_three(&rig, 0);
    fill(&rig, &volumes, 1);
    let capture = pool.create_group_version("g", "").expect("captured");
    let own = capture.versions.iter().find(|(name, _)| name == "b").expect("a member").1;
    fill(&rig, &volumes, 11);
    pool.volume("b").expect("there").delete_version(own).expect("deleted");
    let seqs = volumes.iter().map(|volume| volume.info().expect("told").latest.seq);
    let before: Vec<Seq> = seqs.collect();
    let each = |names: &[&str]| {
        GroupMoment::Each(names.iter().map(|name| ((*name).to_owned(), Moment::Latest)).collect())
    };
    let refused = [
        (GroupMoment::Of(Moment::Version(capture.number)), ErrorKind::NotFound),
        (GroupMoment::Of(Moment::Version(7)), ErrorKind::NotFound),
        (GroupMoment::Of(Moment::Mark("m".to_owned())), ErrorKind::NotFound),
        (GroupMoment::Of(Moment::Seq(Seq(1))), ErrorKind::Invalid),
        (each(&["a", "b"]), ErrorKind::Invalid),
        (each(&["a", "b", "d"]), ErrorKind::Invalid),
        (each(&["a", "b", "c", "d"]), ErrorKind::Invalid),
    ];
    for (to, kind) in refused {
        let outcomes = [
            pool.revert_group("g", &to, false).map(drop),
            pool.revert_group("g", &to, true).map(drop),
            pool.clone_group("g", &to, "n").map(drop),
            pool.resolve_group("g", &to).map(drop),
        ];
        for outcome in outcomes {
            assert_eq!(outcome.expect_err("it cannot be").kind, kind, "{to:?}");
        }
    }
    let seqs = volumes.iter().map(|volume| volume.info().expect("told").latest.seq);
    assert_eq!(seqs.collect::<Vec<_>>(), before);
    assert_eq!((shows(&pool, ALL), pool.volumes().len()), ([12, 13, 11], 3));
    add(&pool, "n-c", 0);
    let taken = pool.clone_group("g", &GroupMoment::Of(Moment::Latest), "n");
    assert_eq!(taken.expect_err("a name is taken").kind, ErrorKind::Exists);
    assert_eq!(pool.volumes().len(), 4);
    pool.verify_invariants().expect("sound");
}

#[test]
fn a_group_is_cloned_as_one() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let (pool, volumes) = pool_of_three(&rig, 0);
    fill(&rig, &volumes, 1);
    let capture = pool.create_group_version("g", "").expect("captured").number;
    fill(&rig, &volumes, 11);
    let then = pool.clone_group("g", &GroupMoment::Of(Moment::Version(capture)), "old");
    assert_eq!(then.expect("cloned").volumes, ["old-a", "old-b", "old-c"]);
    let now = pool.clone_group("g", &GroupMoment::Of(Moment::Latest), "new").expect("cloned");
    assert_eq!((&*now.name, now.captures), ("new", 0));
    fill(&rig, &volumes, 21);
    drop(volumes);
    let pool = rig.kill(pool);
    assert_eq!(shows(&pool, ["old-a", "old-b", "old-c"]), [2, 3, 1]);
    assert_eq!(shows(&pool, ["new-a", "new-b", "new-c"]), [12, 13, 11]);
    assert_eq!(pool.groups().len(), 3);
    let capture = pool.create_group_version("new", "").expect("captured").number;
    let to = GroupMoment::Of(Moment::Version(capture));
    pool.revert_group("new", &to, false).expect("reverted");
    pool.verify_invariants().expect("sound");
}

/// A writer counts up in `a`, then in `b`, then in `c`: at one instant none runs ahead of the one
/// before it.
#[test]
fn clones_and_reverts_of_a_group_are_of_one_instant() {
    let rig = Rig::new(256 << 20, 256 << 10);
    let (pool, _) = pool_of_three(&rig, 0);
    let in_turn: Vec<Arc<Volume>> = ALL.map(|name| pool.volume(name).expect("there")).to_vec();
    let ends = Arc::new(AtomicBool::new(false));
    let (writer_ends, writer_volumes) = (Arc::clone(&ends), in_turn.clone());
    let writer = thread::spawn(move || {
        for turn in 0..=u8::MAX {
            writer_volumes.iter().for_each(|volume| _ = put(volume, 0, turn));
            if writer_ends.load(Ordering::SeqCst) {
                return turn;
            }
            thread::yield_now();
        }
        u8::MAX
    });
    for round in 0..20 {
        let new = format!("n{round}");
        pool.clone_group("g", &GroupMoment::Of(Moment::Latest), &new).expect("cloned");
        let found = ALL.map(|name| get(&pool.volume(&format!("{new}-{name}")).expect("there"), 0));
        let [a, b, c] = found;
        assert!(a >= b && b >= c && a - c <= 1, "{found:?} are of one instant");
    }
    ends.store(true, Ordering::SeqCst);
    writer.join().expect("it only writes");
    pool.verify_invariants().expect("sound");
}
