//! Files of shares over HTTP: listed, read, put back, at any moment.

use std::io::{Read, Write};
use std::net::TcpStream;

use api::{
    CreateClone, CreateShare, FileDiffQuery, FileEntry, FileQuery, ProblemKind, RestoreFiles,
    RestoredFiles, TreeQuery,
};
use share::{
    Caller, Create, Credentials, Opening, SetAttributes, SetTime, Share, Special, Transaction,
    Tree, VolumeBlocks, Wait,
};
use units::{FileId, WallTime};

use crate::fixture::{Fixture, kind, problem};

const NOW: WallTime = WallTime::from_nanos(1_790_000_000_000_000_000);

/// A server of a share, `home`, that nobody uses.
pub fn home() -> Fixture {
    home_with(None)
}

/// The same, whose reads are logged, if it is told.
pub fn home_with(log_reads: Option<bool>) -> Fixture {
    let mut fixture = Fixture::new();
    let home = CreateShare { name: "home".to_owned(), log_reads, ..CreateShare::default() };
    fixture.client.create_share(&home).expect("made");
    fixture.restart();
    fixture
}

/// Changes the share in the server's place, which has not opened it; its seq then.
pub fn change<'d>(
    fixture: &Fixture,
    change: impl FnOnce(&mut Transaction<'_, 'd, VolumeBlocks>, &Caller<'_>, FileId),
) -> String {
    change_as(fixture, 1, change)
}

/// Opens the share, and does something with it as a client.
fn as_client<T>(
    fixture: &Fixture,
    client: u128,
    work: impl FnOnce(&Share<VolumeBlocks>, &Caller<'_>) -> T,
) -> T {
    let volume = fixture.server().pool().volume("home").expect("home");
    // Another time in each.
    let now = WallTime::from_nanos(NOW.as_nanos() + volume.last_seq().0);
    let opening = Opening { incarnation: 1, cache_blocks_max: 64 };
    let share = Share::open(VolumeBlocks::new(volume), opening).expect("opened");
    let root = Credentials::root();
    let (xid, arguments_crc, cause, followed_at) = (1, 0, None, None);
    let caller = Caller { user: &root, client, xid, arguments_crc, now, cause, followed_at };
    work(&share, &caller)
}

/// The same as a client.
pub fn change_as<'d>(
    fixture: &Fixture,
    client: u128,
    change: impl FnOnce(&mut Transaction<'_, 'd, VolumeBlocks>, &Caller<'_>, FileId),
) -> String {
    as_client(fixture, client, |share, caller| {
        let mut transaction = share.begin(Wait::May).expect("usable");
        let top = transaction.top().expect("a top");
        change(&mut transaction, caller, top);
        format!("seq:{}", transaction.commit().expect("written").0)
    })
}

/// A client reads a file, and that is logged.
pub fn read_as(fixture: &Fixture, client: u128, path: &[u8]) {
    as_client(fixture, client, |share, caller| {
        let id = {
            let tree = share.tree(Wait::May).expect("usable");
            tree.look_up(caller.user, tree.top().expect("a top"), path).expect("there").id
        };
        let read = share.read(caller.user, id, 0, &mut [0; 10], Wait::May).expect("read");
        share.log_read(caller, id, read.operation, Wait::May).expect("logged");
    })
}

fn mode(mode: u16) -> SetAttributes {
    let modified = Some(SetTime::To(NOW));
    SetAttributes { mode: Some(mode), modified, ..SetAttributes::default() }
}

/// A file with bytes.
pub fn file<'d>(
    transaction: &mut Transaction<'_, 'd, VolumeBlocks>,
    caller: &Caller<'_>,
    directory: FileId,
    name: &[u8],
    bytes: &'d [u8],
) -> FileId {
    let set = mode(0o640);
    let made = transaction.create(caller, directory, name, Create::Guarded(&set)).expect("made");
    transaction.write(caller, made.id, 0, bytes).expect("written");
    made.id
}

fn tree(fixture: &Fixture, path: &str, at: &str) -> Vec<FileEntry> {
    let query =
        TreeQuery { path: Some(path.to_owned()), at: Some(at.to_owned()), ..TreeQuery::default() };
    let page = fixture.client.tree("home", &query).expect("listed");
    assert_eq!(page.next, None);
    page.entries
}

pub fn names(fixture: &Fixture, path: &str, at: &str) -> Vec<String> {
    let mut names: Vec<String> = tree(fixture, path, at).into_iter().map(|e| e.name).collect();
    names.sort();
    names
}

pub fn bytes(fixture: &Fixture, path: &str, at: Option<&str>) -> Vec<u8> {
    let query = FileQuery { path: path.to_owned(), at: at.map(str::to_owned) };
    let mut all = Vec::new();
    fixture
        .client
        .file("home", &query, &mut |bytes| {
            all.extend_from_slice(bytes);
            Ok(())
        })
        .expect("read");
    all
}

#[test]
fn a_directory_is_listed_as_it_was_at_a_moment() {
    let fixture = home();
    let empty = format!("seq:{}", fixture.client.share("home").expect("shown").latest.seq);
    let then = change(&fixture, |t, caller, top| {
        let docs = t.make_directory(caller, top, b"docs", &mode(0o2750)).expect("made").id;
        let own = SetAttributes { uid: Some(7), gid: Some(8), ..mode(0o640) };
        t.create(caller, docs, b"letter", Create::Guarded(&own)).expect("made");
        t.make_symlink(caller, docs, b"link\\", &mode(0o777), b"../\xff").expect("made");
        let device = Special::BlockDevice(8, 1);
        t.make_node(caller, docs, b"\xffdisk", &mode(0o600), device).expect("made");
        t.make_node(caller, docs, b"pipe", &mode(0o600), Special::Fifo).expect("made");
    });
    change(&fixture, |t, caller, top| {
        let docs = t.look_up(&Credentials::root(), top, b"docs").expect("there").id;
        t.remove(caller, docs, b"pipe").expect("removed");
    });
    assert_eq!(names(&fixture, "/", &empty), [""; 0]);
    assert_eq!(names(&fixture, "/", "latest"), ["docs"]);
    assert_eq!(names(&fixture, "docs/", "latest"), ["\\xffdisk", "letter", "link\\\\"]);
    let all = tree(&fixture, "/docs", &then);
    let of = |name: &str| all.iter().find(|entry| entry.name == name).expect("listed");
    let letter = of("letter");
    assert_eq!((&*letter.kind, &*letter.mode, letter.uid, letter.gid), ("file", "0640", 7, 8));
    assert_eq!((letter.size, letter.links, letter.modified.0), (0, 1, NOW));
    let link = of("link\\\\");
    assert_eq!((&*link.kind, link.target.as_deref()), ("symlink", Some("../\\xff")));
    let disk = of("\\xffdisk");
    assert_eq!((&*disk.kind, disk.device.as_deref()), ("block-device", Some("8:1")));
    assert_eq!((all.len(), &*of("pipe").kind), (4, "fifo"));
    // What is no directory is told of itself; links are not followed.
    let one = tree(&fixture, "/docs/\\xFFdisk", &then);
    assert_eq!(one, std::slice::from_ref(disk));
    assert_eq!(tree(&fixture, "/docs/link\\\\", "latest")[0].target, link.target);
    let top = tree(&fixture, "/", &then);
    assert_eq!((top.len(), &*top[0].mode, top[0].links), (1, "2750", 2));
}

#[test]
fn a_long_listing_comes_in_pages() {
    let fixture = home();
    let made: Vec<String> = (0..25).map(|index| format!("file {index:02} &?#\u{e4}")).collect();
    let then = change(&fixture, |t, caller, top| {
        let docs = t.make_directory(caller, top, b"a b", &mode(0o755)).expect("made").id;
        for name in &made {
            t.create(caller, docs, name.as_bytes(), Create::Guarded(&mode(0o600))).expect("made");
        }
    });
    for at in ["latest", &then] {
        let mut query = TreeQuery {
            path: Some("/a b".to_owned()),
            at: Some(at.to_owned()),
            limit: Some(10),
            next: None,
        };
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let page = fixture.client.tree("home", &query).expect("listed");
            pages += 1;
            found.extend(page.entries.into_iter().map(|entry| entry.name));
            let Some(next) = page.next else { break };
            query.next = Some(next);
        }
        found.sort();
        assert_eq!((pages, &found), (3, &made), "{at}");
    }
    // The link is one that can be followed.
    let (head, _) = head_and_body(&fixture, "/shares/home/tree?path=/a%20b&limit=20", "");
    let link = head.lines().find_map(|line| line.strip_prefix("link: </api/v1")).expect("a link");
    let target = link.split_once('>').expect("it ends").0;
    let (head, body) = head_and_body(&fixture, target, "");
    assert!(head.starts_with("HTTP/1.1 200") && !head.contains("link: "), "{head}");
    assert_eq!(String::from_utf8(body).expect("JSON").matches("\"name\"").count(), 5);
}

/// The head and the body of an answer.
fn head_and_body(fixture: &Fixture, target: &str, header: &str) -> (String, Vec<u8>) {
    let request = format!(
        "GET /api/v1{target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n"
    );
    let mut stream = TcpStream::connect(fixture.http_address().0).expect("connect");
    stream.write_all(fixture.with_token(&request).as_bytes()).expect("send");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answer");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(answer[..end].to_vec()).expect("ASCII").to_lowercase();
    (head.replacen("http/1.1", "HTTP/1.1", 1), answer[end + 4..].to_vec())
}

#[test]
fn a_file_is_sent_whole_or_in_part_as_it_was_at_a_moment() {
    let fixture = home();
    let old: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    let then = change(&fixture, |t, caller, top| {
        let id = file(t, caller, top, b"big", &old[..1_000_000]);
        t.write(caller, id, 1_000_000, &old[1_000_000..2_000_000]).expect("written");
        t.write(caller, id, 2_000_000, &old[2_000_000..]).expect("written");
        t.make_directory(caller, top, b"d", &mode(0o700)).expect("made");
        t.create(caller, top, b"empty", Create::Guarded(&mode(0))).expect("made");
    });
    change(&fixture, |t, caller, top| {
        let id = t.look_up(&Credentials::root(), top, b"big").expect("there").id;
        let size = Some(5000);
        let set = SetAttributes { size, ..SetAttributes::default() };
        t.set_attributes(caller, id, &set, None).expect("cut");
        t.write(caller, id, 0, b"new").expect("written");
    });
    assert!(bytes(&fixture, "/big", Some(&then)) == old);
    let new = bytes(&fixture, "/big", None);
    assert!(new[..3] == *b"new" && new[3..] == old[3..5000]);
    assert_eq!(bytes(&fixture, "/empty", None), b"");
    let target = format!("/shares/home/file?path=/big&at={then}");
    let (head, body) = head_and_body(&fixture, &target, "Range: bytes=999990-1500000\r\n");
    assert!(head.starts_with("HTTP/1.1 206"), "{head}");
    assert!(head.contains("content-range: bytes 999990-1500000/3000000"), "{head}");
    assert!(head.contains("content-length: 500011"), "{head}");
    assert!(body == old[999_990..=1_500_000]);
    let (head, body) = head_and_body(&fixture, &target, "Range: bytes=4000000-\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && body.len() == old.len(), "{head}");
    assert!(head.contains("content-length: 3000000"), "{head}");
    assert!(head.contains("content-type: application/octet-stream"), "{head}");

    // A client that goes away in the middle ends it, and nothing else.
    let request = format!("GET /api/v1{target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut stream = TcpStream::connect(fixture.http_address().0).expect("connect");
    stream.write_all(fixture.with_token(&request).as_bytes()).expect("send");
    stream.read_exact(&mut [0; 1000]).expect("a part");
    drop(stream);
    assert!(bytes(&fixture, "/big", Some(&then)) == old);

    let ask = |path: &str, at: &str| {
        let query = FileQuery { path: path.to_owned(), at: Some(at.to_owned()) };
        problem(fixture.client.file("home", &query, &mut |_| panic!("nothing is sent")))
    };
    for (path, at, expected) in [
        ("/none", "latest", ProblemKind::NotFound),
        ("/big", "seq:1", ProblemKind::NotFound),
        ("/d", "latest", ProblemKind::Invalid),
        ("/", "latest", ProblemKind::Invalid),
        ("/big/x", "latest", ProblemKind::Invalid),
        ("", "latest", ProblemKind::Invalid),
        ("/d/../big", "latest", ProblemKind::Invalid),
        ("./big", "latest", ProblemKind::Invalid),
        ("/d//big", "latest", ProblemKind::Invalid),
        ("/a\\x00b", "latest", ProblemKind::Invalid),
        ("/a\\b", "latest", ProblemKind::Invalid),
        ("/big", "v:9", ProblemKind::NotFound),
        ("/big", "seq:999999", ProblemKind::OutsideWindow),
        ("/big", "never ever", ProblemKind::Malformed),
    ] {
        assert_eq!(ask(path, at).problem_kind(), Some(expected), "{path} {at}");
    }
    let disk = TreeQuery::default();
    assert_eq!(kind(fixture.client.tree("nobody", &disk)), ProblemKind::NotFound);
}

fn restore(fixture: &Fixture, body: &RestoreFiles) -> RestoredFiles {
    fixture.client.restore_files("home", body).expect("put back")
}

/// A share whose `/docs` was changed since: the moment before that, and the request to put it back.
fn changed_docs() -> (Fixture, String, RestoreFiles) {
    let fixture = home();
    let letter = vec![7; 9000];
    let then = change(&fixture, |t, caller, top| {
        let docs = t.make_directory(caller, top, b"docs", &mode(0o755)).expect("made").id;
        file(t, caller, docs, b"letter", &letter);
        file(t, caller, docs, b"gone", b"it was here");
        t.create(caller, docs, b"same", Create::Guarded(&mode(0o600))).expect("made");
    });
    change(&fixture, |t, caller, top| {
        let docs = t.look_up(&Credentials::root(), top, b"docs").expect("there").id;
        let letter = t.look_up(&Credentials::root(), docs, b"letter").expect("there").id;
        t.write(caller, letter, 8500, b"other").expect("written");
        t.remove(caller, docs, b"gone").expect("removed");
        file(t, caller, docs, b"new", b"since");
    });
    let body = RestoreFiles {
        from: then.clone(),
        path: "/docs".to_owned(),
        delete: true,
        ..RestoreFiles::default()
    };
    (fixture, then, body)
}

#[test]
fn files_that_were_changed_and_removed_are_put_back() {
    let (fixture, then, body) = changed_docs();
    let before = fixture.client.share("home").expect("shown").latest.seq;
    let told = restore(&fixture, &RestoreFiles { dry_run: true, ..body.clone() });
    let actions = |restored: &RestoredFiles| {
        let of = |would: &api::Would| (would.target.clone(), would.action.clone());
        let mut all: Vec<_> = restored.would.iter().map(of).collect();
        all.sort();
        all
    };
    let own = |path: &str, action: &str| (path.to_owned(), action.to_owned());
    assert_eq!(
        actions(&told),
        [
            own("home /docs", "overwrite"),
            own("home /docs/gone", "create"),
            own("home /docs/letter", "overwrite"),
            own("home /docs/new", "remove"),
        ]
    );
    assert!(told.dry_run && !told.more && told.before == before, "{told:?}");
    assert_eq!(fixture.client.share("home").expect("shown").latest.seq, before);
    assert_eq!(names(&fixture, "/docs", "latest"), ["letter", "new", "same"]);

    let done = restore(&fixture, &body);
    assert_eq!((&done.would[..], &done.stay[..]), (&[][..], &[][..]));
    assert_eq!((done.created, done.overwritten, done.removed, done.kept), (1, 2, 1, 1));
    assert_eq!((done.bytes, done.number, done.before), (9000 - 8192 + 11, told.number, before));
    assert_eq!(names(&fixture, "/docs", "latest"), ["gone", "letter", "same"]);
    assert_eq!(bytes(&fixture, "/docs/letter", None), [7; 9000]);
    assert_eq!(bytes(&fixture, "/docs/gone", None), b"it was here");
    let at_then = tree(&fixture, "/docs", &then);
    let same = |a: &FileEntry, b: &FileEntry| {
        (&a.name, &a.mode, a.modified, a.size) == (&b.name, &b.mode, b.modified, b.size)
    };
    for entry in tree(&fixture, "/docs", "latest") {
        assert!(at_then.iter().any(|other| same(other, &entry)), "{entry:?}");
    }
    // It is undone by another from the moment before it.
    restore(&fixture, &RestoreFiles { from: format!("seq:{before}"), ..body });
    assert_eq!(names(&fixture, "/docs", "latest"), ["letter", "new", "same"]);
    assert_eq!(bytes(&fixture, "/docs/letter", None)[8500..8505], *b"other");
}

#[test]
fn files_are_put_at_another_path_where_nothing_else_is() {
    let (fixture, _, body) = changed_docs();
    let to = |to: &str| RestoreFiles { to: Some(to.to_owned()), ..body.clone() };
    let copy = restore(&fixture, &to("/copy"));
    assert_eq!((copy.created, &*copy.to), (4, "/copy"));
    assert_eq!(names(&fixture, "/copy", "latest"), ["gone", "letter", "same"]);
    assert_eq!(restore(&fixture, &to("/copy")).kept, 4, "it is merged");
    for (asked, expected) in [
        (to("/docs/letter"), ProblemKind::Exists),
        (to("/no/where"), ProblemKind::NotFound),
        (to("/docs/letter/x"), ProblemKind::Invalid),
        (to("a/../b"), ProblemKind::Invalid),
        (RestoreFiles { path: "/none".to_owned(), ..to("/x") }, ProblemKind::NotFound),
        (RestoreFiles { from: "v:3".to_owned(), ..to("/x") }, ProblemKind::NotFound),
        (RestoreFiles { from: "seq:99999".to_owned(), ..to("/x") }, ProblemKind::OutsideWindow),
        (RestoreFiles { from: "never ever".to_owned(), ..to("/x") }, ProblemKind::Malformed),
    ] {
        let refused = problem(fixture.client.restore_files("home", &asked));
        assert_eq!(refused.problem_kind(), Some(expected), "{asked:?} {refused:?}");
    }
    let path = "{\"from\": \"-1h\", \"path\": \"/\", \"too\": \"/x\"}";
    assert_eq!(fixture.send("POST", "/shares/home/restores", path).0, 400);
}

#[test]
fn paths_that_differ_between_two_moments_are_listed() {
    let (fixture, then, body) = changed_docs();
    let latest = format!("seq:{}", fixture.client.share("home").expect("shown").latest.seq);
    let diff = |from: &str, to: Option<&str>, limit| {
        let to = to.map(str::to_owned);
        let from = from.to_owned();
        let mut query = FileDiffQuery { from, to, limit, ..FileDiffQuery::default() };
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let page = fixture.client.diff_files("home", &query).expect("compared");
            pages += 1;
            found.extend(page.entries);
            let Some(next) = page.next else { break };
            query.next = Some(next);
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        (found, pages)
    };
    let (found, pages) = diff(&then, None, None);
    let told: Vec<_> =
        found.iter().map(|one| (&*one.path, &*one.change, one.content, one.attributes)).collect();
    assert_eq!(
        told,
        [
            ("/docs/gone", "removed", false, false),
            ("/docs/letter", "changed", true, false),
            ("/docs/new", "created", false, false),
        ]
    );
    assert_eq!(pages, 1);
    let (parts, pages) = diff(&then, Some(&latest), Some(1));
    assert!(parts == found && pages >= 4, "{pages}: {parts:?}");
    let (back, _) = diff(&latest, Some(&then), None);
    let changes: Vec<&str> = back.iter().map(|one| &*one.change).collect();
    assert_eq!(changes, ["created", "changed", "removed"]);
    restore(&fixture, &body);
    let (left, _) = diff(&then, None, None);
    // It is another object than then.
    let mut changes: Vec<_> = left.iter().map(|one| (&*one.path, &*one.change)).collect();
    changes.sort_unstable();
    assert_eq!(changes, [("/docs/gone", "created"), ("/docs/gone", "removed")]);

    let clone =
        CreateClone { name: "twin".to_owned(), at: Some(latest.clone()), ..CreateClone::default() };
    fixture.client.create_clone("home", &clone).expect("cloned");
    let mut query = FileDiffQuery {
        from: then.clone(),
        to_share: Some("twin".to_owned()),
        ..FileDiffQuery::default()
    };
    let mut twin = fixture.client.diff_files("home", &query).expect("compared").entries;
    twin.sort_by(|a, b| a.path.cmp(&b.path));
    assert_eq!(twin, found);
    query.to_share = Some("nobody".to_owned());
    assert_eq!(kind(fixture.client.diff_files("home", &query)), ProblemKind::NotFound);
    let other = CreateShare { name: "other".to_owned(), ..CreateShare::default() };
    fixture.client.create_share(&other).expect("made");
    query.to_share = Some("other".to_owned());
    assert_eq!(kind(fixture.client.diff_files("home", &query)), ProblemKind::Invalid);
}
