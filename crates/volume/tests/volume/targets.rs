//! Made iSCSI targets: numbers that never come to mean another disk, moments that stay, names that
//! are one thing's, and an access that is no way round that of a volume.

use std::sync::Arc;

use hindsight_volume::{
    Access, AccessChange, Credential, Deletion, Error, ErrorKind, GroupMoment, InitiatorPort,
    OpenedName, Pool, Registration, Reservation, ReservationKind, Reservations, Secret,
    TargetChange, TargetInfo, UnitSpec, UnitsSpec,
};
use units::{Moment, Seq, WallTime};

use crate::groups::{add, names};
use crate::hook::{Rig, put};

const HOUR_NS: u64 = 3_600_000_000_000;

fn unit(number: u16, volume: &str, moment: Option<Moment>) -> UnitSpec {
    UnitSpec { number, volume: volume.to_owned(), moment }
}

fn make(pool: &Pool, name: &str, units: &[UnitSpec]) -> Result<TargetInfo, Error> {
    pool.create_target(name, &UnitsSpec::Each(units.to_vec()), &AccessChange::default())
}

fn change(pool: &Pool, add: &[UnitSpec], remove: &[u16]) -> Result<TargetInfo, Error> {
    let (add, remove) = (add.to_vec(), remove.to_vec());
    pool.change_target("t", &TargetChange { add, remove, ..TargetChange::default() })
}

fn kind<T>(done: Result<T, Error>) -> ErrorKind {
    done.map(drop).expect_err("refused").kind
}

/// Numbers with names of volumes and moments.
fn told(pool: &Pool) -> Vec<(u16, Option<String>, Option<u64>)> {
    let units = pool.target("t").expect("there").units.into_iter();
    units.map(|unit| (unit.number, unit.volume, unit.seq.map(|seq| seq.0))).collect()
}

fn some(number: u16, volume: &str, seq: Option<u64>) -> (u16, Option<String>, Option<u64>) {
    (number, Some(volume.to_owned()), seq)
}

#[test]
fn a_number_is_one_disk_over_renames_the_trash_kills_and_deletions() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let (a, b) = (add(&pool, "a", 0), add(&pool, "b", 0));
    drop(add(&pool, "c", 0));
    let seq = put(&b, 0, 1);
    b.create_version("").expect("captured");
    put(&b, 0, 2);
    let made = make(&pool, "t", &[unit(0, "a", None), unit(300, "b", Some(Moment::Version(0)))]);
    assert_eq!(made.expect("made").access, Access::default());
    let invalid = |add: &[UnitSpec]| assert_eq!(kind(change(&pool, add, &[])), ErrorKind::Invalid);
    invalid(&[unit(300, "c", None)]);
    invalid(&[unit(1, "a", None)]);
    invalid(&[unit(1 << 14, "c", None)]);
    assert_eq!(kind(change(&pool, &[], &[7])), ErrorKind::NotFound);
    assert_eq!(kind(change(&pool, &[unit(1, "nobody", None)], &[])), ErrorKind::NotFound);
    assert_eq!(kind(make(&pool, "u", &[])), ErrorKind::Invalid);
    assert_eq!(kind(make(&pool, "t", &[unit(0, "a", None)])), ErrorKind::Exists);
    // What is refused has changed nothing.
    assert_eq!(told(&pool), [some(0, "a", None), some(300, "b", Some(seq.0))]);
    change(&pool, &[unit(1, "c", None)], &[0]).expect("changed");
    pool.rename_volume("c", "d", false).expect("renamed");
    let pool = {
        drop((a, b));
        rig.kill(pool)
    };
    assert_eq!(told(&pool), [some(1, "d", None), some(300, "b", Some(seq.0))]);
    // A number that was taken out is not given again, not even to the same disk.
    assert_eq!(pool.target("t").expect("there").retired, [0]);
    for volume in ["a", "d"] {
        assert_eq!(kind(change(&pool, &[unit(0, volume, None)], &[])), ErrorKind::Invalid);
    }
    let id = pool.remove_volume("d", Deletion::default()).expect("deleted").id;
    assert_eq!(told(&pool)[0], (1, None, None), "a number without a unit");
    pool.undelete_volume(id, None).expect("back");
    assert_eq!(told(&pool)[0], some(1, "d", None));
    pool.remove_volume("d", Deletion { grace_ns: Some(0), ..Deletion::default() })
        .expect("for good");
    assert_eq!(kind(change(&pool, &[unit(1, "a", None)], &[])), ErrorKind::Invalid);
    pool.verify_invariants().expect("sound");
    pool.delete_target("t").expect("deleted");
    let pool = rig.kill(pool);
    assert_eq!(kind(pool.target("t")), ErrorKind::NotFound);
}

#[test]
fn a_name_is_a_volumes_or_a_targets() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    drop(add(&pool, "a", 0));
    make(&pool, "t", &[unit(0, "a", None)]).expect("made");
    assert_eq!(kind(make(&pool, "a", &[unit(0, "a", None)])), ErrorKind::Exists);
    assert_eq!(kind(pool.rename_volume("a", "t", false)), ErrorKind::Exists);
    assert_eq!(kind(pool.clone_volume("a", &Moment::Latest, "t")), ErrorKind::Exists);
    let id = pool.remove_volume("a", Deletion::default()).expect("deleted").id;
    assert_eq!(kind(pool.undelete_volume(id, Some("t"))), ErrorKind::Exists);
    make(&pool, "a", &[unit(0, "a", None)]).expect_err("there is none to be a unit");
}

#[test]
fn a_group_is_a_target_of_one_instant() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    // By name, not in the order in which they were made.
    let (b, a) = (add(&pool, "b", 0), add(&pool, "a", 0));
    pool.create_group("g", &names(&["a", "b"])).expect("grouped");
    let at = [put(&a, 0, 1), put(&b, 0, 1)].map(|seq| Some(seq.0));
    pool.create_group_version("g", "").expect("captured");
    put(&a, 0, 2);
    let group = |moment: Option<Moment>| {
        let spec = UnitsSpec::Group("g".to_owned(), moment.map(GroupMoment::Of));
        pool.create_target("t", &spec, &AccessChange::default())
    };
    group(Some(Moment::Version(0))).expect("made");
    assert_eq!(told(&pool), [some(0, "a", at[0]), some(1, "b", at[1])]);
    pool.delete_target("t").expect("deleted");
    group(None).expect("made");
    assert_eq!(told(&pool), [some(0, "a", None), some(1, "b", None)]);
    pool.delete_target("t").expect("deleted");
    assert_eq!(kind(group(Some(Moment::Version(9)))), ErrorKind::NotFound);
    // A part of the group is none.
    drop((a, b));
    let forced = Deletion { force: true, ..Deletion::default() };
    let id = pool.remove_volume("b", forced).expect("deleted").id;
    assert_eq!(kind(group(Some(Moment::Version(0)))), ErrorKind::Invalid);
    pool.undelete_volume(id, None).expect("back");
    group(Some(Moment::Version(0))).expect("made");
}

#[test]
fn a_target_is_no_way_round_the_access_of_a_volume() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool: Arc<Pool> = rig.open();
    let credential = |secret: &str| {
        let secret = Secret::new(secret.to_owned()).expect("fits");
        Some(Some(Credential { user: "me".to_owned(), secret }))
    };
    drop((add(&pool, "open", 0), add(&pool, "shut", 0)));
    let chap = AccessChange { chap: credential("twelve-chars-1"), ..AccessChange::default() };
    let access = pool.set_access("shut", &chap).expect("set");
    make(&pool, "t", &[unit(0, "open", None)]).expect("made");
    assert_eq!(kind(change(&pool, &[unit(1, "shut", None)], &[])), ErrorKind::Invalid);
    assert_eq!(kind(pool.set_access("open", &chap)), ErrorKind::Invalid, "t would be opener");
    pool.delete_target("t").expect("deleted");
    let made = make(&pool, "t", &[unit(0, "open", None), unit(1, "shut", None)]).expect("made");
    assert_eq!(made.access, access, "that of its first volume that has one");
    let none = AccessChange { chap: Some(None), ..AccessChange::default() };
    let change = TargetChange { access: none, ..TargetChange::default() };
    assert_eq!(kind(pool.change_target("t", &change)), ErrorKind::Invalid);
    // Of volumes that differ none has its way by chance.
    drop((add(&pool, "other", 0), add(&pool, "listed", 0)));
    let allowed = |names: &[&str]| {
        let allow = Some(names.iter().map(|&name| name.to_owned()).collect());
        AccessChange { allow, ..AccessChange::default() }
    };
    let theirs = AccessChange { chap: credential("twelve-chars-2"), ..AccessChange::default() };
    pool.set_access("other", &theirs).expect("set");
    let both = [unit(0, "shut", None), unit(1, "other", None)];
    assert_eq!(kind(make(&pool, "u", &both)), ErrorKind::Invalid);
    let own = pool.create_target("u", &UnitsSpec::Each(both.to_vec()), &chap).expect("made");
    assert_eq!(own.access, access);
    // A list is one of those of the volume at most.
    pool.set_access("listed", &allowed(&["iqn.a", "iqn.b"])).expect("set");
    let listed = |names: &[&str]| {
        let units = UnitsSpec::Each(vec![unit(0, "listed", None)]);
        pool.create_target("l", &units, &allowed(names))
    };
    for more in [&[][..], &["iqn.c"], &["iqn.a", "iqn.c"]] {
        assert_eq!(kind(listed(more)), ErrorKind::Invalid, "{more:?}");
    }
    listed(&["iqn.a"]).expect("made");
    assert_eq!(kind(pool.set_access("listed", &allowed(&["iqn.b"]))), ErrorKind::Invalid);
    pool.set_access("listed", &allowed(&["iqn.a"])).expect("set");
    // One secret proves one side, here and at every volume.
    let other = credential("another-secret-1");
    let access = AccessChange { mutual: other.clone(), ..AccessChange::default() };
    pool.change_target("t", &TargetChange { access, ..TargetChange::default() }).expect("set");
    let reflected = AccessChange { chap: other, ..AccessChange::default() };
    assert_eq!(kind(pool.set_access("open", &reflected)), ErrorKind::Invalid);
    let audit = pool.audit(0, 1000).expect("read");
    let told: Vec<&str> = audit.iter().map(|record| &*record.detail).collect();
    assert!(told.iter().any(|detail| detail.contains("units 0=open 1=shut; CHAP me")), "{told:?}");
}

#[test]
fn reservations_are_kept_as_long_as_their_volume() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let a = add(&pool, "a", 0);
    put(&a, 0, 1);
    let port = InitiatorPort { initiator: "iqn.a".to_owned(), isid: [1; 6] };
    let registration = Registration { port: port.clone(), key: u64::MAX, all_ports: false };
    let kind = ReservationKind::ExclusiveAccess;
    let mut kept = Reservations { registrations: vec![registration], held: None };
    let told = |pool: &Pool| {
        let all = pool.audit(0, usize::MAX).expect("read");
        all.iter().filter(|line| line.action == "reservations").count()
    };
    a.keep_reservations(&kept, &port).expect("kept");
    kept.registrations[0].key = 7;
    a.keep_reservations(&kept, &port).expect("kept");
    assert_eq!(told(&pool), 1, "another key alone is no news");
    kept.held = Some(Reservation { port: port.clone(), kind });
    a.keep_reservations(&kept, &port).expect("kept");
    assert_eq!(told(&pool), 2);
    drop(a);
    let pool = rig.cut_power(pool);
    let volume = pool.volume("a").expect("there");
    assert_eq!(volume.reservations(), kept);
    // A clone is another disk; the trash is no deletion.
    let clone = pool.clone_volume("a", &Moment::Latest, "c").expect("cloned");
    assert!(clone.reservations().is_empty());
    pool.delete_volume("c").expect("deleted");
    drop((volume, clone));
    let forced = Deletion { force: true, ..Deletion::default() };
    let id = pool.remove_volume("a", forced).expect("deleted").id;
    assert_eq!(pool.undelete_volume(id, None).expect("back").reservations(), kept);
    let record = pool.volume("a").expect("there");
    record.keep_reservations(&Reservations::default(), &port).expect("kept no more");
    drop(record);
    let pool = rig.cut_power(pool);
    assert!(pool.volume("a").expect("there").reservations().is_empty());
}

#[test]
fn a_name_that_was_opened_is_kept_and_for_a_day_where_its_moment_is_gone() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let a = add(&pool, "a", 0);
    let seq = put(&a, 0, 1);
    a.create_version("").expect("captured");
    put(&a, 0, 2);
    let name = |name: &str, volume_id: u64, seq: Seq| OpenedName {
        name: format!("iqn.x:{name}"),
        volume_id,
        seq,
    };
    let (past, nothing) = (name("a:at:-5min", a.id(), seq), name("b:at:-5min", 999, Seq(1)));
    for one in [&past, &nothing, &name("old", a.id(), seq)] {
        pool.keep_opened_name(one, &[]).expect("kept");
    }
    pool.keep_opened_name(&past, &["iqn.x:old".to_owned()]).expect("kept");
    drop(a);
    let starts = |pool: Arc<Pool>, hours: u64| {
        rig.clock.advance(hours * HOUR_NS);
        let pool = rig.cut_power(pool);
        let (names, noted) = pool.opened_names().expect("read");
        noted.expect("noted");
        (pool, names)
    };
    // However often the server starts.
    let (mut pool, mut names) = starts(pool, 0);
    for hours in [1, 22] {
        assert_eq!(names, [past.clone(), nothing.clone()]);
        (pool, names) = starts(pool, hours);
    }
    assert_eq!(names, [past.clone(), nothing]);
    (pool, names) = starts(pool, 2);
    assert_eq!(names, std::slice::from_ref(&past));
    // It was let go for good: the clock goes back.
    rig.clock.set_wall(WallTime::from_nanos(rig.clock_now() - 3 * HOUR_NS));
    assert_eq!(starts(pool, 0).1, [past]);
}
