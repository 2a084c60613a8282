//! Operations on shares over HTTP: listed, of one file, undone.

use api::{
    ChangeShare, Operation, OperationsQuery, Page, ProblemKind, RepairShare, ShareRepair,
    VersionsOfQuery,
};
use share::{Place, Tree};

use crate::fixture::{Fixture, kind, problem};
use crate::share_files::{bytes, change, change_as, file, home, home_with, names, read_as};

/// 10.0.0.7, as records have it.
const CULPRIT: u128 = 0xffff_0a00_0007;
const OTHER: u128 = 0xffff_0a00_0008;

/// A share in which one client writes, another writes over it, and both rename.
fn story(fixture: &Fixture) {
    change_as(fixture, OTHER, |t, caller, top| {
        let docs = t.make_directory(caller, top, b"docs", &Default::default()).expect("made").id;
        file(t, caller, docs, b"letter", b"Dear all");
        file(t, caller, docs, b"list", b"one, two");
    });
    change_as(fixture, CULPRIT, |t, caller, top| {
        let docs = t.look_up(caller.user, top, b"docs").expect("there").id;
        let letter = t.look_up(caller.user, docs, b"letter").expect("there").id;
        t.write(caller, letter, 0, b"ENCRYPTED").expect("written");
        t.remove(caller, docs, b"list").expect("removed");
        file(t, caller, docs, b"READ ME", b"pay");
    });
    change_as(fixture, OTHER, |t, caller, top| {
        let docs = t.look_up(caller.user, top, b"docs").expect("there").id;
        let new = file(t, caller, docs, b"new", b"meanwhile");
        t.write(caller, new, 9, b", more").expect("written");
        let (from, to) = (Place { directory: docs, name: b"new" }, b"news");
        t.rename(caller, from, Place { directory: top, name: to }).expect("moved");
    });
}

fn ops(fixture: &Fixture, query: &OperationsQuery) -> Vec<Operation> {
    let Page { entries, next } = fixture.client.operations("home", query).expect("listed");
    assert_eq!(next, None);
    entries
}

/// What was done to which path, from the newest on.
fn told(operations: &[Operation]) -> Vec<String> {
    let one = |one: &Operation| {
        let to = one.to.as_ref().map_or(String::new(), |to| format!(" {to}"));
        format!("{} {}{to}", one.procedure, one.path.as_deref().unwrap_or("?"))
    };
    operations.iter().map(one).collect()
}

#[test]
fn operations_are_listed_from_the_newest_on_and_by_conditions() {
    let fixture = home();
    story(&fixture);
    let all = ops(&fixture, &OperationsQuery::default());
    assert_eq!(
        told(&all),
        [
            "RENAME /docs/new /news",
            "WRITE /news",
            "WRITE /news",
            "CREATE /docs/new",
            "WRITE /docs/READ ME",
            "CREATE /docs/READ ME",
            "REMOVE /docs/list",
            "WRITE /docs/letter",
            "WRITE /docs/list",
            "CREATE /docs/list",
            "WRITE /docs/letter",
            "CREATE /docs/letter",
            "MKDIR /docs",
        ]
    );
    let numbers: Vec<u64> = all.iter().map(|one| one.number).collect();
    assert_eq!(numbers, (1..=13).rev().collect::<Vec<u64>>());
    let encrypted = &all[7];
    assert_eq!(encrypted.client.as_deref(), Some("10.0.0.7"));
    assert_eq!(
        (encrypted.offset, encrypted.bytes, encrypted.size_before),
        (Some(0), Some(9), Some(8))
    );
    assert!(encrypted.time < all[0].time && encrypted.seq_before > all[12].seq_before);
    let count = |query: OperationsQuery| ops(&fixture, &query).len();
    let with = |conditions: &str| {
        count(OperationsQuery { conditions: Some(conditions.to_owned()), ..Default::default() })
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(count(OperationsQuery { client: text("10.0.0.7"), ..Default::default() }), 4);
    assert_eq!(count(OperationsQuery { client: text("10.0.0.0/8"), ..Default::default() }), 13);
    assert_eq!(count(OperationsQuery { uid: Some(7), ..Default::default() }), 0);
    assert_eq!(count(OperationsQuery { path: text("docs"), ..Default::default() }), 11);
    assert_eq!(count(OperationsQuery { op: text("write,REMOVE"), ..Default::default() }), 7);
    assert_eq!(count(OperationsQuery { until: text("-1000d"), ..Default::default() }), 0);
    assert_eq!(
        count(OperationsQuery { since: text("2100-01-01T00:00:00Z"), ..Default::default() }),
        0
    );
    let since = OperationsQuery { since: text(&all[4].time.to_string()), ..Default::default() };
    let expected = all.iter().filter(|one| one.time >= all[4].time).count();
    assert_eq!(count(since), expected);
    // Moments in the history lie between what was written together.
    for (from, count) in [(0, 13), (5, 8), (9, 4)] {
        let before = all[12 - from].seq_before;
        assert_eq!(with(&format!("time>=seq:{before}")), count);
        assert_eq!(with(&format!("time<=seq:{before}")), 13 - count);
    }
    assert_eq!(with("client=10.0.0.7 and op=WRITE"), 2);
    assert_eq!(with("client=10.0.0.7,10.0.0.8/31 and uid=7,0"), 13);
    assert_eq!(with("path~*/RE* AND uid=0"), 2);
    assert_eq!(with("path=\"/docs/READ ME\""), 2);
    assert_eq!(with("number=3"), 1);
    assert_eq!(with("number>=3 and number<=5"), 3);
    assert_eq!(with("repair=1"), 0);
}

#[test]
fn operations_are_selected_by_one_of_several_groups_of_conditions() {
    let fixture = home();
    story(&fixture);
    let text = |text: &str| Some(text.to_owned());
    let count = |query: OperationsQuery| ops(&fixture, &query).len();
    let with = |conditions: &str| {
        count(OperationsQuery { conditions: text(conditions), ..Default::default() })
    };
    assert_eq!(with("number=3 or number=4 or number=3"), 2);
    assert_eq!(with("op=MKDIR or client=10.0.0.7 and op=WRITE"), 3);
    assert_eq!(with("path=/docs and op=MKDIR or path~*/RE*"), 3);
    let of_seven = OperationsQuery {
        conditions: text("op=MKDIR or op=WRITE"),
        client: text("10.0.0.7"),
        ..Default::default()
    };
    assert_eq!(count(of_seven), 2, "a field of the query holds for all of it");
}

#[test]
fn operations_come_in_pages_and_wrong_conditions_are_refused() {
    let fixture = home();
    story(&fixture);
    let text = |text: &str| Some(text.to_owned());
    let mut query = OperationsQuery { limit: Some(2), path: text("/docs"), ..Default::default() };
    let mut paged = Vec::new();
    loop {
        let page = fixture.client.operations("home", &query).expect("listed");
        paged.extend(page.entries);
        query.next = page.next;
        if page.next.is_none() {
            break;
        }
    }
    let whole = OperationsQuery { path: text("/docs"), ..Default::default() };
    assert_eq!(paged, ops(&fixture, &whole));
    for wrong in [
        "",
        "uid",
        "uid=x",
        "uid=5000000000",
        "size=3",
        "op=LOOKUP",
        "client=here",
        "client=10.0.0.7,",
        "time>=-5x",
        "path=/a b",
    ] {
        let query = OperationsQuery { conditions: text(wrong), ..Default::default() };
        let error = fixture.client.operations("home", &query).map(drop);
        assert_eq!(kind(error), ProblemKind::Invalid, "{wrong}");
    }
    let missing = fixture.client.operations("nothing", &OperationsQuery::default()).map(drop);
    assert_eq!(kind(missing), ProblemKind::NotFound);
}

#[test]
fn a_path_has_the_operations_of_all_files_that_had_it() {
    let fixture = home();
    change(&fixture, |t, caller, top| {
        file(t, caller, top, b"f", b"first");
    });
    let first = change(&fixture, |t, caller, top| {
        file(t, caller, top, b"f.tmp", b"second");
        let (from, to) = (b"f.tmp", b"f");
        let from = Place { directory: top, name: from };
        t.rename(caller, from, Place { directory: top, name: to }).expect("moved");
    });
    change(&fixture, |t, caller, top| {
        let f = t.look_up(caller.user, top, b"f").expect("there").id;
        t.write(caller, f, 6, b", more").expect("written");
        file(t, caller, top, b"other", b"nothing of it");
    });
    change(&fixture, |t, caller, top| {
        t.remove(caller, top, b"f").expect("removed");
    });
    let of = |path: &str, at: Option<&str>| {
        let at = at.map(str::to_owned);
        let query = VersionsOfQuery { path: path.to_owned(), at, ..VersionsOfQuery::default() };
        fixture.client.versions_of("home", &query).map(|page| page.entries)
    };
    assert_eq!(kind(of("/f", None).map(drop)), ProblemKind::NotFound);
    // What came to the name with a RENAME was another file before.
    let told = told(&of("/f", Some(&first)).expect("there"));
    assert_eq!(told, ["RENAME /f.tmp /f", "WRITE /f", "CREATE /f"]);
    assert_eq!(of("/other", None).expect("there").len(), 2);
    for wrong in ["", "a//b", "../f"] {
        assert_eq!(kind(of(wrong, None).map(drop)), ProblemKind::Invalid, "{wrong}");
    }
}

fn repair(fixture: &Fixture, undo: &str, dry_run: bool) -> ShareRepair {
    let body = RepairShare { undo: undo.to_owned(), follow: None, dry_run };
    fixture.client.repair_share("home", &body).expect("repaired")
}

#[test]
fn a_repair_undoes_one_client_and_is_undone() {
    let fixture = home();
    story(&fixture);
    let dry = repair(&fixture, "client=10.0.0.7", true);
    let changes = |repair: &ShareRepair| -> Vec<String> {
        repair.changes.iter().map(|one| format!("{} {}", one.change, one.path)).collect()
    };
    let expected = ["removed /docs/READ ME", "written /docs/letter", "restored /docs/list"];
    assert_eq!(changes(&dry), expected);
    assert_eq!((dry.undone, dry.kept, dry.followed, dry.number), (4, 0, 0, None));
    assert_eq!(bytes(&fixture, "/docs/letter", None), b"ENCRYPTED");
    let done = repair(&fixture, "client=10.0.0.7", false);
    assert_eq!(changes(&done), expected);
    let number = done.number.expect("it has one");
    assert_eq!(bytes(&fixture, "/docs/letter", None), b"Dear all");
    assert_eq!(bytes(&fixture, "/docs/list", None), b"one, two");
    assert_eq!(bytes(&fixture, "/news", None), b"meanwhile, more");
    assert_eq!(names(&fixture, "/docs", "latest"), ["letter", "list"]);
    assert_eq!(names(&fixture, "/", "latest"), ["docs", "news"]);
    let before = format!("seq:{}", done.before);
    assert_eq!(names(&fixture, "/docs", &before), ["READ ME", "letter"]);
    // It is done: nothing is left to do.
    let again = repair(&fixture, "client=10.0.0.7", false);
    assert_eq!((again.number, again.changes_total), (None, 0));
    let own = OperationsQuery {
        conditions: Some(format!("repair={number}")),
        ..OperationsQuery::default()
    };
    let own = ops(&fixture, &own);
    assert!(own.len() > 3 && own.iter().all(|one| one.client.is_none()), "{own:?}");
    assert!(own.iter().all(|one| one.cause == Some(format!("repair={number}"))));
    let back = repair(&fixture, &format!("repair={number}"), false);
    let undoing = back.number.expect("it has one");
    assert_eq!(back.kept, 0);
    assert_eq!(bytes(&fixture, "/docs/letter", None), b"ENCRYPTED");
    assert_eq!(names(&fixture, "/docs", "latest"), ["READ ME", "letter"]);
    // What was undone and is to be made again names both: they would stand on what it undoes.
    let alone = repair(&fixture, "client=10.0.0.7", true);
    assert!(alone.kept > 0, "{alone:?}");
    let causes = alone.dependents.iter().filter_map(|one| one.operation.cause.clone());
    assert!(causes.collect::<Vec<_>>().contains(&format!("repair={number}")), "{alone:?}");
    let all = format!("client=10.0.0.7 or repair={number} or repair={undoing}");
    let again = repair(&fixture, &all, false);
    assert_eq!(again.kept, 0);
    assert_eq!(bytes(&fixture, "/docs/letter", None), b"Dear all");
    assert_eq!(bytes(&fixture, "/docs/list", None), b"one, two");
    assert_eq!(names(&fixture, "/docs", "latest"), ["letter", "list"]);
}

#[test]
fn a_repair_follows_reads_from_when_they_were_logged() {
    let fixture = home_with(Some(true));
    let share = fixture.client.share("home").expect("there");
    assert_eq!(share.reads_logged_since, Some(share.created), "from the beginning on");
    change_as(&fixture, OTHER, |t, caller, top| {
        for name in [&b"price"[..], b"bill", b"note"] {
            file(t, caller, top, name, b"10");
        }
    });
    let overwrite = |client, name: &'static [u8], bytes: &'static [u8]| {
        change_as(&fixture, client, |t, caller, top| {
            let id = t.look_up(caller.user, top, name).expect("there").id;
            t.write(caller, id, 0, bytes).expect("written");
        })
    };
    let ask = |conditions: &str, follow: &str| {
        let (undo, follow) = (conditions.to_owned(), Some(follow.to_owned()));
        fixture.client.repair_share("home", &RepairShare { undo, follow, dry_run: false })
    };
    read_as(&fixture, OTHER + 1, b"price");
    overwrite(CULPRIT, b"price", b"99");
    overwrite(OTHER + 1, b"note", b"it read 10");
    read_as(&fixture, OTHER, b"price");
    overwrite(OTHER, b"bill", b"99 by it");
    let told = told(&ops(
        &fixture,
        &OperationsQuery { op: Some("read".to_owned()), ..Default::default() },
    ));
    assert_eq!(told, ["READ /price", "READ /price"]);
    let done = ask("client=10.0.0.7", "reads").expect("repaired");
    assert_eq!((done.undone, done.followed, done.kept), (2, 1, 0), "{done:?}");
    assert_eq!(done.dependents[0].reason, "its sender had read a file that they wrote");
    for (name, expected) in [("/price", &b"10"[..]), ("/bill", b"10"), ("/note", b"it read 10")] {
        assert_eq!(bytes(&fixture, name, None), expected, "{name}");
    }
    // The records are of the file's path, too.
    let query = VersionsOfQuery { path: "/price".to_owned(), ..VersionsOfQuery::default() };
    let of = fixture.client.versions_of("home", &query).expect("listed").entries;
    assert_eq!(of.iter().filter(|one| one.procedure == "READ").count(), 2);
    assert!(of.iter().all(|one| one.procedure != "READ" || one.size.is_none()));
    // Those of this test are older than now.
    for (log_reads, is_logged) in [(false, false), (true, true)] {
        let set = ChangeShare { log_reads: Some(log_reads), ..ChangeShare::default() };
        let share = fixture.client.change_share("home", &set).expect("changed");
        assert_eq!(share.reads_logged_since.is_some(), is_logged);
        assert_eq!(kind(ask("uid=0", "reads").map(drop)), ProblemKind::Invalid);
    }
}

#[test]
fn repairs_that_are_not_possible_are_refused() {
    let fixture = home();
    story(&fixture);
    let ask = |undo: &str, follow: Option<&str>| {
        let follow = follow.map(str::to_owned);
        fixture
            .client
            .repair_share("home", &RepairShare { undo: undo.to_owned(), follow, dry_run: false })
    };
    for (undo, follow, expected) in [
        ("", None, ProblemKind::Invalid),
        ("everything", None, ProblemKind::Invalid),
        ("uid=0", Some("reads"), ProblemKind::Invalid),
        ("uid=0", Some("all"), ProblemKind::Invalid),
    ] {
        let refused = ask(undo, follow);
        let refused = problem(refused.map(drop));
        assert_eq!(refused.problem_kind(), Some(expected), "{undo}");
        assert!(refused.hint.is_some(), "{undo}");
    }
    let nothing = ask("uid=77", None).expect("nothing is to be done");
    assert_eq!((nothing.undone, nothing.number, nothing.changes_total), (0, None, 0));
    // Another's file in a directory that would not be there keeps that.
    let kept = ask("op=MKDIR", None).expect("nothing is to be done");
    assert_eq!((kept.undone, kept.kept, kept.changes_total), (0, 1, 0));
    assert!(!kept.dependents.is_empty());
    let all = ask("op=MKDIR", Some("names")).expect("done");
    assert!(all.undone > 5 && all.followed == all.undone - 1, "{all:?}");
    assert_eq!(names(&fixture, "/", "latest"), [""; 0]);
}
