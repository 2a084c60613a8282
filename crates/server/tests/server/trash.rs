//! Deleted volumes are had back over HTTP, and groups are reverted and cloned as one.

use api::{
    CloneGroup, CreateGroup, CreateMark, CreateVersion, DeleteQuery, DryRunQuery, ListQuery,
    ProblemKind, Revert, Undelete,
};

use crate::fixture::{Fixture, attach, kind, new_volume, problem};

#[test]
fn a_deleted_volume_is_listed_and_had_back() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    let first = fixture.write(0, 1);
    client.create_version("v", &CreateVersion::default()).expect("version");
    let mark = CreateMark { name: "m".to_owned(), at: None, pin: true };
    client.create_mark("v", &mark).expect("mark");
    fixture.write(0, 2);
    let refused = problem(client.delete_volume("v", false));
    assert_eq!(refused.problem_kind(), Some(ProblemKind::Busy));
    assert!(refused.detail.contains("1 versions and 1 pinned marks"), "{refused:?}");
    let dry = DeleteQuery { dry_run: true, ..DeleteQuery::default() };
    assert_eq!(kind(client.remove_volume("v", &dry)), ProblemKind::Busy);
    let attached = attach(&fixture.nbd_socket(), "v");
    let dry = DeleteQuery { force: true, ..dry };
    let told = client.remove_volume("v", &dry).expect("told").expect("a dry run");
    assert!(told.dry_run && told.until > told.deleted, "{told:?}");
    assert_eq!((told.versions, told.pinned_marks, told.live_bytes), (1, 1, 4096));
    assert_eq!(client.volume("v").expect("there").clients, 1, "a dry run disconnects nobody");
    drop(attached);
    client.delete_volume("v", true).expect("deleted");
    assert_eq!(kind(client.volume("v")), ProblemKind::NotFound);
    assert!(client.volumes().expect("list").is_empty());
    let trash = client.trash().expect("list");
    assert_eq!((trash.len(), &*trash[0].name, trash[0].id), (1, "v", told.id));
    let pool = client.pool().expect("pool");
    assert_eq!((pool.trash_volumes, pool.trash_bytes, pool.live_bytes), (1, 8192, 0));
    let next = pool.next_sacrifice.expect("something");
    assert!(next.deleted && next.volume == "v", "{next:?}");
    let ask = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(fixture.raw(ask).1.contains("hindsight_pool_trash_bytes 8192"));

    client.create_volume(&new_volume("v", 1 << 20)).expect("the name is free");
    let taken = problem(client.undelete_volume(told.id, &Undelete::default()));
    assert!(taken.hint.expect("a hint").contains("--as"));
    let name = Some("w".to_owned());
    let back = client.undelete_volume(told.id, &Undelete { name }).expect("back");
    assert_eq!((&*back.name, back.versions), ("w", 1));
    assert_eq!(client.resolve("w", &format!("seq:{first}")).expect("resolved").seq, first);
    assert_eq!(kind(client.undelete_volume(told.id, &Undelete::default())), ProblemKind::NotFound);
    let audit = client.audit(&ListQuery::default()).expect("audit").entries;
    for action in ["volume-delete", "volume-undelete"] {
        let record = audit.iter().find(|record| record.action == action).expect(action);
        assert!(record.caller.is_some(), "{record:?}");
    }
}

#[test]
fn a_volume_is_deleted_for_good_at_once_or_from_the_trash() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    for (field, is_fine) in [("now=true", true), ("grace=0s", true), ("grace=1m", false)] {
        client.create_volume(&new_volume("x", 1 << 20)).expect("made");
        let (status, _) = fixture.send("DELETE", &format!("/volumes/x?{field}"), "");
        assert_eq!(status, if is_fine { 204 } else { 400 }, "{field}");
    }
    assert_eq!(fixture.send("DELETE", "/volumes/x?now=true&grace=1h", "").0, 422);
    assert!(client.trash().expect("list").is_empty());
    client.delete_volume("v", false).expect("deleted");
    let id = client.trash().expect("list")[0].id;
    let told = client.empty_trash(id, DryRunQuery { dry_run: true }).expect("told");
    assert!(told.expect("a dry run").dry_run);
    assert_eq!(client.trash().expect("list").len(), 1);
    client.empty_trash(id, DryRunQuery::default()).expect("deleted");
    assert!(client.trash().expect("list").is_empty());
    assert_eq!(kind(client.empty_trash(id, DryRunQuery::default())), ProblemKind::NotFound);
}

#[test]
fn a_group_is_reverted_and_cloned_as_one() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    client.create_volume(&new_volume("w", 1 << 20)).expect("made");
    let volumes = vec!["v".to_owned(), "w".to_owned()];
    client.create_group(&CreateGroup { name: "g".to_owned(), volumes }).expect("made");
    fixture.write(0, 1);
    let capture = client.create_group_version("g", &CreateVersion::default()).expect("captured");
    fixture.write(0, 2);
    let to = format!("v:{}", capture.number);
    let resolved = client.resolve_group("g", &to).expect("resolved");
    assert_eq!(resolved.iter().map(|one| &*one.volume).collect::<Vec<_>>(), ["v", "w"]);
    let attached = attach(&fixture.nbd_socket(), "w");
    let body = Revert { to, dry_run: false, force: false };
    assert_eq!(kind(client.revert_group("g", &body)), ProblemKind::Busy);
    assert_eq!(fixture.first_byte(0), 2, "one volume was busy");
    let dry = client.revert_group("g", &Revert { dry_run: true, ..body.clone() }).expect("told");
    assert!(dry.dry_run && dry.volumes[0].reverted.changed_bytes == 4096, "{dry:?}");
    let done = client.revert_group("g", &Revert { force: true, ..body.clone() }).expect("forced");
    drop(attached);
    assert_eq!(fixture.first_byte(0), 1);
    client.revert_group("g", &Revert { to: done.undo.clone(), ..body.clone() }).expect("undone");
    assert_eq!(fixture.first_byte(0), 2);
    for wrong in ["seq:1", "v=seq:1", "v=seq:1,w=seq:0,x=seq:1"] {
        let refused = client.revert_group("g", &Revert { to: wrong.to_owned(), ..body.clone() });
        assert_eq!(kind(refused), ProblemKind::Invalid, "{wrong}");
    }
    let refused = client.revert_group("g", &Revert { to: "v=nothing,w".to_owned(), ..body });
    assert_eq!(kind(refused), ProblemKind::Malformed);
    let clone = CloneGroup { name: "n".to_owned(), at: Some(format!("v:{}", capture.number)) };
    let made = client.clone_group("g", &clone).expect("cloned");
    assert_eq!(made.volumes, ["n-v", "n-w"]);
    assert_eq!(kind(client.clone_group("g", &clone)), ProblemKind::Exists);
    assert_eq!(client.volumes().expect("list").len(), 4);
}
