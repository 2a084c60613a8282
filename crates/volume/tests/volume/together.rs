//! What happens to all volumes of a group at one instant: reverts and clones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use hindsight_volume::{Deletion, Error, ErrorKind, GroupMoment, Pool, RevertReport, Volume};
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

fn revert(
    pool: &Pool,
    group: &str,
    to: &GroupMoment,
) -> Result<Vec<(String, RevertReport)>, Error> {
    pool.revert_group(group, to, Some(&pool.group_volumes(group)?))
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
        let told = pool.revert_group("g", &to, None).expect("told");
        assert!(told.iter().all(|(_, report)| report.changed_bytes == 4096), "{told:?}");
        assert_eq!(shows(&pool, ALL), [12, 13, 11], "nothing was done");
        let reports = revert(&pool, "g", &to).expect("reverted");
        assert_eq!(shows(&pool, ALL), [2, 3, 1]);
        drop(volumes);
        let pool = rig.kill(pool);
        assert_eq!(shows(&pool, ALL), [2, 3, 1], "cache {cache_bytes}");
        let again = revert(&pool, "g", &undo(&reports)).expect("undone");
        assert_eq!(shows(&pool, ALL), [12, 13, 11]);
        revert(&pool, "g", &undo(&again)).expect("redone");
        assert_eq!(shows(&pool, ALL), [2, 3, 1]);
        revert(&pool, "g", &undo(&reports)).expect("undone");
        let mark = GroupMoment::Of(Moment::Mark("m".to_owned()));
        revert(&pool, "g", &mark).expect("reverted");
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
            revert(&pool, "g", &to).map(drop),
            pool.revert_group("g", &to, None).map(drop),
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
    revert(&pool, "new", &to).expect("reverted");
    pool.verify_invariants().expect("sound");
}

/// A writer counts up in `a`, then in `b`, then in `c`: at one instant none runs ahead of the one
/// before it.
#[test]
fn clones_and_reverts_of_a_group_are_of_one_instant() {
    let rig = Rig::new(256 << 20, 256 << 10);
    let (pool, _) = pool_of_three(&rig, 0);
    let in_turn: Vec<Arc<Volume>> = ALL.map(|name| pool.volume(name).expect("there")).to_vec();
    fill(&rig, &in_turn, 0);
    let then = pool.create_group_version("g", "").expect("captured").number;
    let (ends, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (writer_ends, writer_turns) = (Arc::clone(&ends), Arc::clone(&turns));
    let writer_volumes = in_turn.clone();
    let writer = thread::spawn(move || {
        while !writer_ends.load(Ordering::SeqCst) {
            let turn = writer_turns.fetch_add(1, Ordering::SeqCst) as u8;
            writer_volumes.iter().for_each(|volume| _ = put(volume, 0, turn));
            thread::yield_now();
        }
    });
    let two_turns = || {
        let began = turns.load(Ordering::SeqCst);
        while turns.load(Ordering::SeqCst) < began + 2 {
            thread::yield_now();
        }
    };
    let check = |[a, b, c]: [u8; 3]| {
        let behind = [a.wrapping_sub(b), b.wrapping_sub(c), a.wrapping_sub(c)];
        assert!(behind.iter().all(|&by| by <= 1), "{:?} are of one instant", [a, b, c]);
    };
    two_turns();
    for round in 0..20 {
        let new = format!("n{round}");
        pool.clone_group("g", &GroupMoment::Of(Moment::Latest), &new).expect("cloned");
        let found = ALL.map(|name| get(&pool.volume(&format!("{new}-{name}")).expect("there"), 0));
        check(found);
    }
    for _ in 0..5 {
        // The content before a revert is there under the seqs that it began at.
        let to = GroupMoment::Of(Moment::Version(then));
        let reports = revert(&pool, "g", &to).expect("reverted");
        check([0, 1, 2].map(|i| get_at(&in_turn[i], report_of(&reports, ALL[i]).from.seq)));
        two_turns();
    }
    ends.store(true, Ordering::SeqCst);
    writer.join().expect("it only writes");
    pool.verify_invariants().expect("sound");
}

fn report_of<'r>(reports: &'r [(String, RevertReport)], name: &str) -> &'r RevertReport {
    &reports.iter().find(|(of, _)| of == name).expect("a report of each").1
}

fn get_at(volume: &Arc<Volume>, seq: Seq) -> u8 {
    let mut bytes = [0; 1];
    volume.view(&Moment::Seq(seq)).expect("opened").read(0, &mut bytes).expect("read");
    bytes[0]
}

#[test]
fn a_revert_of_a_group_is_of_the_volumes_that_were_closed_for_it() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let (pool, volumes) = pool_of_three(&rig, 0);
    fill(&rig, &volumes, 1);
    let captured = pool.create_group_version("g", "").expect("captured").number;
    let to = GroupMoment::Of(Moment::Version(captured));
    fill(&rig, &volumes, 11);
    let into_trash = Deletion { force: true, ..Deletion::default() };
    pool.remove_volume("b", into_trash).expect("into the trash");
    let closed = pool.group_volumes("g").expect("told");
    let back = pool.trash().expect("told")[0].id;
    pool.undelete_volume(back, None).expect("back meanwhile");
    let refused = pool.revert_group("g", &to, Some(&closed)).expect_err("b is not closed");
    assert_eq!((refused.kind, shows(&pool, ALL)), (ErrorKind::Busy, [12, 13, 11]));
    revert(&pool, "g", &to).expect("reverted");
    assert_eq!(shows(&pool, ALL), [2, 3, 1]);
}

#[test]
fn a_kill_in_a_revert_of_a_group_leaves_all_as_they_were_or_none() {
    let mut met = Vec::new();
    for changes in 0.. {
        let rig = Rig::new(64 << 20, 256 << 10);
        let (pool, volumes) = pool_of_three(&rig, 0);
        fill(&rig, &volumes, 1);
        let capture = pool.create_group_version("g", "").expect("captured").number;
        fill(&rig, &volumes, 11);
        for volume in volumes {
            volume.flush().expect("flushed");
        }
        rig.media.halt_after(changes);
        let done = revert(&pool, "g", &GroupMoment::Of(Moment::Version(capture))).is_ok();
        let pool = rig.kill(pool);
        let now = shows(&pool, ALL);
        assert!(now == [2, 3, 1] || now == [12, 13, 11] && !done, "{changes}: {now:?}");
        pool.verify_invariants().expect("sound");
        met.push(now);
        if done {
            break;
        }
    }
    met.dedup();
    assert_eq!(met.len(), 2, "the halts met both");
}
