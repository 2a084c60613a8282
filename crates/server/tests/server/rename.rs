//! A volume gets another name beside clients that have it open.

use std::io::{Read, Write};

use api::{CreateClone, CreateGroup, ListQuery, ModelQuery, ProblemKind, Rename, Revert};

use crate::fixture::{Fixture, NBD_WRITE, attach, kind, nbd_request, new_volume, problem};

fn to(name: &str) -> Rename {
    Rename { name: name.to_owned(), dry_run: false }
}

#[test]
fn clients_keep_what_they_have_open_and_are_known_by_the_new_name() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    let good = fixture.write(0, 1);
    client
        .create_group(&CreateGroup { name: "g".to_owned(), volumes: vec!["v".to_owned()] })
        .expect("group");
    let clone = CreateClone { name: "c".to_owned(), ..CreateClone::default() };
    client.create_clone("v", &clone).expect("clone");
    let mut attached = attach(&fixture.nbd_socket(), "v");
    let mut view = attach(&fixture.nbd_socket(), &format!("v@seq:{good}"));
    let dry = client.rename_volume("v", &Rename { dry_run: true, ..to("w") }).expect("told");
    assert_eq!((dry.dry_run, dry.clients, &*dry.would[0].action), (true, 1, "rename"));
    assert_eq!((&*dry.would[0].target, &*dry.name, &*dry.old_name), ("v", "w", "v"));
    assert_eq!(kind(client.volume("w")), ProblemKind::NotFound, "a dry run changes nothing");
    let done = client.rename_volume("v", &to("w")).expect("renamed");
    assert_eq!((done.dry_run, done.clients, done.would.len()), (false, 1, 0));
    // Another takes the name that is free now.
    client.create_volume(&new_volume("v", 1 << 20)).expect("created");
    attached.write_all(&nbd_request(NBD_WRITE, 0, &[2; 4096], 4096)).expect("send");
    let mut reply = [0; 16];
    attached.read_exact(&mut reply).expect("a reply");
    assert_eq!(reply[4..8], [0; 4], "written");
    let byte = |name: &str| {
        let mut byte = [0xee];
        fixture.server().pool().volume(name).expect(name).read(0, &mut byte).expect("read");
        byte[0]
    };
    assert_eq!((byte("w"), byte("v")), (2, 0), "to the volume that it attached to");
    let clients = |name: &str| client.volume(name).expect(name).clients;
    assert_eq!((clients("w"), clients("v")), (1, 0));
    let ask = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(fixture.raw(ask).1.contains("hindsight_volume_clients{volume=\"w\"} 1"));
    let measured = client.model("w", &ModelQuery::default());
    assert!(measured.is_ok_and(|model| model.writes == 1), "what it wrote is measured");
    assert_eq!(kind(client.model("v", &ModelQuery::default())), ProblemKind::NotMeasured);
    assert_eq!(client.group("g").expect("group").volumes, ["w"]);
    assert_eq!(client.volume("c").expect("clone").cloned_from.expect("from").volume, "w");
    // Who has it open is in the way by its new name, and leaves when that is forced.
    let revert = Revert { to: format!("seq:{good}"), dry_run: false, force: false };
    assert_eq!(kind(client.revert("w", &revert)), ProblemKind::Busy);
    client.revert("v", &Revert { to: "latest".to_owned(), ..revert.clone() }).expect("nobody");
    client.revert("w", &Revert { force: true, ..revert }).expect("forced");
    attached.read_to_end(&mut Vec::new()).expect("the session was ended");
    assert_eq!(kind(client.delete_volume("w", false)), ProblemKind::Busy, "its past is open");
    client.delete_volume("w", true).expect("forced");
    view.read_to_end(&mut Vec::new()).expect("the session was ended");
    let audit = client.audit(&ListQuery::default()).expect("audit").entries;
    let record = audit.iter().find(|record| record.action == "volume-rename").expect("a record");
    assert!(record.volume == "w" && record.caller.is_some(), "{record:?}");
}

#[test]
fn a_name_that_cannot_be_is_refused() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    client.create_volume(&new_volume("w", 1 << 20)).expect("created");
    assert_eq!(problem(client.rename_volume("v", &to("w"))).detail, "there is a volume w already");
    assert_eq!(kind(client.rename_volume("v", &to("w"))), ProblemKind::Exists);
    assert_eq!(kind(client.rename_volume("v", &to("a b"))), ProblemKind::Invalid);
    assert_eq!(kind(client.rename_volume("x", &to("y"))), ProblemKind::NotFound);
    assert_eq!(fixture.send("POST", "/volumes/v/rename", "{}").0, 400);
}
