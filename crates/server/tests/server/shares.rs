//! Shares over HTTP: made, shown, changed, deleted, and who is allowed; and that no share is a disk
//! or a promise.

use api::{
    Allow, ChangeShare, ChangeTarget, ChangeVolume, CreateClone, CreateMark, CreateShare,
    CreateVersion, DeleteQuery, ListQuery, ProblemKind, Revert, SizeInput, SpanInput, Undelete,
};
use units::{Size, Span};

use crate::fixture::{Fixture, kind, new_volume, problem};

fn named(name: &str) -> CreateShare {
    CreateShare { name: name.to_owned(), ..CreateShare::default() }
}

fn network(text: &str) -> Allow {
    Allow { network: text.to_owned(), ..Allow::default() }
}

/// A server of a share, `home`.
fn home() -> Fixture {
    let fixture = Fixture::with(|settings, _| {
        settings.nfs.listen = vec!["127.0.0.1:0".to_owned()];
        settings.iscsi.listen = vec!["127.0.0.1:0".to_owned()];
    });
    fixture.client.create_share(&named("home")).expect("made");
    fixture
}

fn metric(fixture: &Fixture, name: &str) -> Option<String> {
    let ask = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let text = fixture.raw(ask).1;
    let mut lines = text.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
}

#[test]
fn a_share_has_the_defaults_of_the_contract_and_says_how_to_mount_it() {
    let fixture = home();
    let share = fixture.client.share("home").expect("shown");
    assert_eq!((&*share.architecture, &*share.metadata), ("logging", "stable"));
    assert_eq!(share.granularity, api::Granularity::EveryWrite);
    assert_eq!((share.window, share.history_limit), (SpanInput(Span(86_400_000_000_000)), None));
    // The tree: root, log, and the directory at the top.
    assert_eq!((share.allowed.len(), share.live_bytes, share.versions), (0, 3 * 4096, 0));
    let line = fixture.server().listeners().iter().find_map(|line| line.strip_prefix("nfs "));
    let port = line.expect("a listener").strip_prefix("127.0.0.1:").expect("loopback");
    let options = format!("vers=3,proto=tcp,port={port},mountport={port},nolock,noacl");
    assert_eq!(share.mount, [format!("mount -t nfs -o {options} 127.0.0.1:/home /mnt")]);

    let (status, text) = fixture.send("POST", "/shares", "{\"name\": \"home\"}");
    assert_eq!(status, 409, "{text}");
    let all = CreateShare {
        architecture: Some("checkpointing".to_owned()),
        granularity: Some(api::Granularity::OnDemand),
        window: Some(SpanInput(Span(7))),
        history_limit: Some(SizeInput(Size(1 << 30))),
        encoding: Some("delta".to_owned()),
        encode_after: Some(SpanInput(Span(9))),
        dedup: Some(true),
        metadata: Some("server".to_owned()),
        ..named("other")
    };
    let other = fixture.client.create_share(&all).expect("made");
    assert_eq!((&*other.architecture, &*other.metadata), ("checkpointing", "server"));
    assert_eq!(other.granularity, api::Granularity::OnDemand);
    assert_eq!((other.window, other.history_limit), (SpanInput(Span(7)), Some(1 << 30)));
    assert_eq!((&*other.encoding.kind, other.encoding.after), ("delta", Some(SpanInput(Span(9)))));
    assert!(other.dedup.on);
    let names: Vec<String> =
        fixture.client.shares().expect("listed").into_iter().map(|share| share.name).collect();
    assert_eq!(names, ["home", "other"]);
    for wrong in [
        CreateShare { architecture: Some("hybrid".to_owned()), ..named("w") },
        CreateShare { architecture: Some("raid".to_owned()), ..named("w") },
        CreateShare { metadata: Some("never".to_owned()), ..named("w") },
        named("../w"),
    ] {
        assert_eq!(kind(fixture.client.create_share(&wrong)), ProblemKind::Invalid, "{wrong:?}");
    }
    let (status, text) = fixture.send("POST", "/shares", "{\"name\": \"w\", \"size\": 4096}");
    assert_eq!(status, 400, "{text}");
}

#[test]
fn networks_are_allowed_and_denied_also_after_a_restart() {
    let mut fixture = home();
    let client = &fixture.client;
    client.allow_share("home", &network("10.1.2.3/16")).expect("allowed");
    let rest = Allow {
        read_only: true,
        squash: Some("all".to_owned()),
        anonymous_uid: Some(7),
        anonymous_gid: Some(8),
        any_port: true,
        past: Some("none".to_owned()),
        ..network("fd00::/8")
    };
    let share = client.allow_share("home", &rest).expect("allowed");
    let told: Vec<_> = share
        .allowed
        .iter()
        .map(|a| (&*a.network, a.read_only, &*a.squash, a.anonymous_uid, a.any_port, &*a.past))
        .collect();
    assert_eq!(
        told,
        [
            ("10.1.0.0/16", false, "root", 65534, false, "all"),
            ("fd00::/8", true, "all", 7, true, "none"),
        ]
    );
    assert_eq!(share.allowed[1].anonymous_gid, 8);
    for wrong in ["10.1.0.0/33", "store", ""] {
        let refused = problem(client.allow_share("home", &network(wrong)));
        assert_eq!(refused.problem_kind(), Some(ProblemKind::Malformed), "{wrong}");
        assert!(refused.hint.is_some());
        assert_eq!(kind(client.deny_share("home", wrong)), ProblemKind::Malformed, "{wrong}");
    }
    let wrong = Allow { squash: Some("nobody".to_owned()), ..network("10.0.0.7") };
    assert_eq!(kind(client.allow_share("home", &wrong)), ProblemKind::Invalid);
    let missing = problem(client.deny_share("home", "10.1.0.0/17"));
    assert_eq!(missing.problem_kind(), Some(ProblemKind::NotFound));
    assert!(missing.detail.contains("10.1.0.0/17") && missing.hint.is_some(), "{missing:?}");

    fixture.restart();
    let client = &fixture.client;
    let after = client.share("home").expect("shown");
    assert_eq!((after.allowed, after.mount.len()), (share.allowed, 0), "NFS is off now");
    client.deny_share("home", "10.1.0.0/16").expect("denied");
    client.deny_share("home", "fd00::/8").expect("denied");
    assert!(client.share("home").expect("shown").allowed.is_empty());
    let audit = client.audit(&ListQuery::default()).expect("audit").entries;
    let told: Vec<_> = audit.iter().filter(|record| record.action == "share-set").collect();
    assert_eq!(told.len(), 4);
    assert!(told.iter().all(|record| record.volume == "home" && record.caller.is_some()));
}

#[test]
fn settings_are_changed_all_or_refused() {
    let fixture = home();
    let client = &fixture.client;
    let change = ChangeShare {
        metadata: Some("server".to_owned()),
        window: Some(SpanInput(Span(3_600_000_000_000))),
        history_limit: Some(Some(SizeInput(Size(1 << 20)))),
        architecture: Some("redirect".to_owned()),
        ..ChangeShare::default()
    };
    let share = client.change_share("home", &change).expect("changed");
    assert_eq!((&*share.metadata, &*share.architecture), ("server", "redirect"));
    assert_eq!((share.window.0.0, share.history_limit), (3_600_000_000_000, Some(1 << 20)));
    let more = ChangeShare { window: Some(SpanInput(Span(1))), ..ChangeShare::default() };
    for wrong in [
        ChangeShare { metadata: Some("never".to_owned()), ..more.clone() },
        ChangeShare { architecture: Some("hybrid".to_owned()), ..more.clone() },
        ChangeShare { encode_after: Some(SpanInput(Span(1))), ..more.clone() },
    ] {
        assert_eq!(kind(client.change_share("home", &wrong)), ProblemKind::Invalid, "{wrong:?}");
    }
    let hook = ChangeShare { hook: Some(Some("freeze".to_owned())), ..more };
    assert_eq!(kind(client.change_share("home", &hook)), ProblemKind::NotFound);
    let none = ChangeShare::default();
    assert_eq!(kind(client.change_share("home", &none)), ProblemKind::Malformed);
    let after = client.share("home").expect("shown");
    assert_eq!((after.window, after.metadata), (share.window, share.metadata));
}

#[test]
fn a_volume_is_no_share_and_a_share_is_no_disk() {
    let fixture = home();
    let client = &fixture.client;
    client.create_volume(&new_volume("disk", 1 << 20)).expect("made");
    for name in ["disk", "nobody"] {
        let asked = [
            problem(client.share(name)),
            problem(client.change_share(
                name,
                &ChangeShare { metadata: Some("server".to_owned()), ..ChangeShare::default() },
            )),
            problem(client.allow_share(name, &network("10.0.0.7"))),
            problem(client.deny_share(name, "10.0.0.7")),
            problem(client.remove_share(name, &DeleteQuery::default())),
        ];
        for refused in asked {
            assert_eq!(refused.problem_kind(), Some(ProblemKind::NotFound), "{refused:?}");
            let hint = refused.hint.expect("a hint");
            assert_eq!(hint.contains("it is a volume"), name == "disk", "{hint}");
        }
    }
    let names: Vec<String> =
        client.volumes().expect("listed").into_iter().map(|volume| volume.name).collect();
    assert_eq!(names, ["disk"]);
    let targets: Vec<String> =
        client.targets().expect("listed").into_iter().map(|target| target.volume).collect();
    assert_eq!(targets, ["disk"]);
    let volume = client.volume("home").expect("its volume is shown");
    assert!(volume.share && !client.volume("disk").expect("shown").share);
    let addresses = [volume.nbd_uri, volume.nbd_tcp_uri, volume.iscsi_name, volume.iscsi_uri];
    assert_eq!(addresses, [None, None, None, None]);
    let allow = ChangeTarget { allow: Some(Vec::new()), ..ChangeTarget::default() };
    let refused = problem(client.change_target("home", &allow));
    assert_eq!(refused.problem_kind(), Some(ProblemKind::Invalid));
    assert!(refused.detail.contains("home is a share"), "{refused:?}");
    let size = ChangeVolume { size: Some(SizeInput(Size(1 << 20))), ..ChangeVolume::default() };
    let refused = problem(client.change_volume("home", &size, true));
    assert_eq!(refused.problem_kind(), Some(ProblemKind::Invalid));
    assert!(refused.detail.contains("home is a share"), "{refused:?}");
}

#[test]
fn a_share_is_no_promise() {
    let fixture = home();
    let client = &fixture.client;
    let volume = client.create_volume(&new_volume("disk", 1 << 20)).expect("made");
    assert_eq!(volume.warning, None, "a share is no reason for one");
    assert_eq!(client.pool().expect("pool").promised_bytes, 1 << 20);
    let one = |name: &str| metric(&fixture, name);
    assert_eq!(one("hindsight_pool_promised_bytes "), Some((1 << 20).to_string()));
    let size = |volume: &str| one(&format!("hindsight_volume_size_bytes{{volume=\"{volume}\"}}"));
    assert_eq!((size("disk"), size("home")), (Some((1 << 20).to_string()), Some("0".to_owned())));
    // An empty tree: root, log, and the directory at the top.
    let tree = 3 * 4096;
    let live = one("hindsight_volume_live_bytes{volume=\"home\"}");
    assert_eq!(live, Some(tree.to_string()));
    let space = client.volume_space("home").expect("space");
    assert_eq!((space.live_bytes, space.live_exact, space.history_bytes), (tree, true, 0));
}

#[test]
fn what_is_asked_of_a_volume_is_asked_of_a_share() {
    let fixture = home();
    let client = &fixture.client;
    client.allow_share("home", &network("10.0.0.7")).expect("allowed");
    let share = fixture.server().pool().volume("home").expect("there");
    let write = |byte: u8| {
        let bytes = [byte; 4096];
        let op = volume::WriteOp::Data { offset: 1 << 51, bytes: &bytes };
        share.write_whole(&[op]).expect("written").0
    };
    let first = write(1);
    client.create_version("home", &CreateVersion::default()).expect("version");
    let mark = CreateMark { name: "m".to_owned(), at: None, pin: true };
    client.create_mark("home", &mark).expect("mark");
    write(2);
    assert_eq!(client.resolve("home", "v:0").expect("resolved").seq, first);
    let diff = api::DiffQuery { from: "v:0".to_owned(), ..api::DiffQuery::default() };
    let ranges = client.diff("home", &diff).expect("compared").entries;
    assert_eq!(ranges, [api::Range { offset: 1 << 51, length: 4096 }]);
    let clone = CreateClone { name: "copy".to_owned(), ..CreateClone::default() };
    assert!(client.create_clone("home", &clone).expect("cloned").share);
    assert_eq!(client.share("copy").expect("shown").allowed.len(), 1);
    let full = CreateClone { name: "full".to_owned(), full: true, ..CreateClone::default() };
    assert_eq!(kind(client.create_clone("home", &full)), ProblemKind::Invalid);
    let revert = Revert { to: "mark:m".to_owned(), dry_run: false, force: false };
    client.revert("home", &revert).expect("reverted");
    assert_eq!(client.share("home").expect("shown").versions, 1);

    assert_eq!(kind(client.remove_share("home", &DeleteQuery::default())), ProblemKind::Busy);
    let force = DeleteQuery { force: true, ..DeleteQuery::default() };
    let dry = DeleteQuery { dry_run: true, ..force.clone() };
    let told = client.remove_share("home", &dry).expect("told").expect("a dry run");
    assert_eq!((told.versions, told.pinned_marks), (1, 1));
    client.share("home").expect("still there");
    client.remove_share("home", &force).expect("deleted");
    assert_eq!(kind(client.share("home")), ProblemKind::NotFound);
    client.undelete_volume(told.id, &Undelete::default()).expect("back");
    assert_eq!(client.share("home").expect("back").allowed.len(), 1);
}
