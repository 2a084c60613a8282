//! Trees of shares as archives over HTTP: sent, put in, refused, cut off.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use api::{
    ArchiveQuery, ClientError, CreateShare, FileQuery, ImportFilesQuery, ImportedFiles,
    ProblemKind, TreeQuery,
};
use files::{Attributes, Identity, Kind, Link, Member, Reader, Time, What, Writer};

use hindsight_server::{Config, Server};

use crate::fixture::{Fixture, kind, problem, settings};
use crate::share_files::home;

fn attributes(kind: Kind, size: u64) -> Attributes {
    Attributes {
        kind,
        mode: 0o640,
        owner: Some((1000, 1001)),
        size,
        links: 1,
        identity: Identity { inode: 1, generation: 0 },
        modified: Some(Time { seconds: 1_000_000_000, nanos: 7 }),
        changed: None,
        accessed: None,
        device: Some((1, 3)),
    }
}

/// An archive of files, by name.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for (name, content) in files {
        let told = attributes(Kind::File, content.len() as u64);
        writer.member(name.as_bytes(), &told, Link::None, &[]).expect("written");
        writer.content(content).expect("written");
    }
    writer.finish().expect("written");
    std::mem::take(writer.get_mut())
}

fn import(fixture: &Fixture, archive: Vec<u8>) -> Result<ImportedFiles, ClientError> {
    let to = ImportFilesQuery { path: None };
    fixture.client.import_files("home", &to, io::Cursor::new(archive))
}

fn names(fixture: &Fixture, path: &str) -> Vec<String> {
    let query = TreeQuery { path: Some(path.to_owned()), ..TreeQuery::default() };
    let page = fixture.client.tree("home", &query).expect("listed");
    let mut names: Vec<String> = page.entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

fn export(fixture: &Fixture, path: &str, at: Option<&str>) -> Vec<(Member, Vec<u8>)> {
    let query = ArchiveQuery { path: Some(path.to_owned()), at: at.map(str::to_owned) };
    let mut bytes = Vec::new();
    let mut keep = |part: &[u8]| bytes.write_all(part);
    fixture.client.archive("home", &query, &mut keep).expect("sent");
    let mut reader = Reader::new(&bytes[..]);
    let mut found = Vec::new();
    while let Some(member) = reader.next_member().expect("an archive") {
        let mut content = Vec::new();
        reader.read_to_end(&mut content).expect("read");
        found.push((member, content));
    }
    found.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    found
}

#[test]
fn what_is_put_in_is_sent_again() {
    let fixture = home();
    let mut writer = Writer::new(Vec::new());
    let large = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect::<Vec<_>>();
    let mut member = |name: &[u8], kind, link, content: &[u8]| {
        let told = attributes(kind, content.len() as u64);
        writer.member(name, &told, link, &[]).expect("written");
        writer.content(content).expect("written");
    };
    member(b"./d", Kind::Directory, Link::None, b"");
    member(b"./d/large", Kind::File, Link::None, &large);
    member(b"./d/again", Kind::File, Link::Hard(b"./d/large"), b"");
    member(b"./link", Kind::Symlink, Link::Symbolic(b"d/large"), b"");
    member(b"./null", Kind::CharacterDevice, Link::None, b"");
    member(b"/abs/olute", Kind::File, Link::None, b"below");
    // What leads out, and what cannot be, is left out.
    member(b"d/../../out", Kind::File, Link::None, b"out");
    member(b"nowhere", Kind::File, Link::Hard(b"not/there"), b"");
    member(&[b'n'; 256], Kind::File, Link::None, b"long");
    writer.finish().expect("written");
    let bytes = std::mem::take(writer.get_mut());

    let done = import(&fixture, bytes).expect("put in");
    assert_eq!((done.created, done.overwritten, done.kept, done.left_out), (7, 0, 0, 3));
    assert_eq!(done.bytes, 3_000_005);
    assert_eq!(names(&fixture, "/"), ["abs", "d", "link", "null"]);
    let told: Vec<&str> = done.told.iter().filter_map(|t| t.split(": ").nth(1)).collect();
    let out = "`..` leads out of the archive";
    assert_eq!(
        told,
        [out, "a name has more than 255 bytes", "the file that it is a name of is not there"]
    );
    let query = FileQuery { path: "/d/again".to_owned(), at: None };
    let mut read = Vec::new();
    fixture.client.file("home", &query, &mut |part| read.write_all(part)).expect("sent");
    assert!(read == large);

    let sent = export(&fixture, "/", None);
    let told: Vec<_> = sent
        .iter()
        .map(|(member, _)| (String::from_utf8_lossy(&member.name).into_owned(), &member.what))
        .collect();
    let expected = [
        ("./", What::Directory),
        ("./abs/", What::Directory),
        ("./abs/olute", What::File),
        ("./d/", What::Directory),
        ("./d/again", What::Link(b"./d/large".to_vec())),
        ("./d/large", What::File),
        ("./link", What::Symlink(b"d/large".to_vec())),
        ("./null", What::CharacterDevice(1, 3)),
    ];
    for ((name, what), (expected, kind)) in told.iter().zip(&expected) {
        assert_eq!(name, expected);
        // Either name of a file may come first.
        if !name.starts_with("./d/") || name == "./d/" {
            assert_eq!(*what, kind, "{name}");
        }
    }
    assert_eq!(told.len(), expected.len());
    let (member, content) = sent
        .iter()
        .find(|(member, _)| member.name.starts_with(b"./d/") && member.what == What::File)
        .expect("one of two names");
    assert!(*content == large);
    assert_eq!((member.mode, member.uid, member.gid), (0o640, 1000, 1001));
    assert_eq!(member.modified, Time { seconds: 1_000_000_000, nanos: 7 });
}

#[test]
fn an_import_keeps_what_is_the_same_and_is_undone() {
    let fixture = home();
    let first = archive(&[("abs/olute", b"below"), ("d/large", &[7; 2_000_000])]);
    import(&fixture, first.clone()).expect("put in");
    let sent = export(&fixture, "/", None);
    // All that is there as it is stays; into another directory all is made anew.
    let again = import(&fixture, archive(&[("abs/olute", b"below")])).expect("put in");
    assert_eq!((again.created, again.overwritten, again.kept), (0, 0, 1));
    let to = ImportFilesQuery { path: Some("/x/y".to_owned()) };
    let below = fixture.client.import_files("home", &to, io::Cursor::new(first)).expect("put in");
    assert_eq!((below.created, below.left_out), (6, 0));
    assert_eq!(names(&fixture, "/x/y"), ["abs", "d"]);
    let before = format!("seq:{}", below.before);
    assert_eq!(export(&fixture, "/", Some(&before)), sent);
    let file = export(&fixture, "/x/y/abs/olute", None);
    assert_eq!((&file[0].0.name[..], &file[0].1[..]), (&b"olute"[..], &b"below"[..]));

    let body = format!(r#"{{"undo": "import={}"}}"#, below.number);
    let (status, answer) = fixture.send("POST", "/shares/home/repairs", &body);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(names(&fixture, "/"), ["abs", "d"]);
}

#[test]
fn members_that_are_there_twice_or_cannot_be_are_told() {
    let fixture = home();
    import(&fixture, archive(&[("old", b"of before")])).expect("put in");
    let mut writer = Writer::new(Vec::new());
    let mut member = |name: &[u8], told: &Attributes, link| {
        writer.member(name, told, link, &[]).expect("written");
        writer.content(&vec![0; told.size as usize]).expect("written");
    };
    let of = |kind, mode, size| Attributes { mode, ..attributes(kind, size) };
    // As `tar -r` does.
    member(b"d", &of(Kind::Directory, 0o755, 0), Link::None);
    member(b"d/f", &of(Kind::File, 0o644, 5), Link::None);
    member(b"d", &of(Kind::Directory, 0o700, 0), Link::None);
    // A further name of what is left out is not one of what was there before.
    let long = [b'x'; 5000];
    member(b"old", &of(Kind::Symlink, 0o777, 0), Link::Symbolic(&long));
    member(b"further", &of(Kind::File, 0o644, 0), Link::Hard(b"old"));
    let deep = b"a/".repeat(5000);
    member(&deep, &of(Kind::Directory, 0o755, 0), Link::None);
    let early =
        Attributes { modified: Some(Time { seconds: -5, nanos: 0 }), ..of(Kind::File, 0, 0) };
    member(b"early", &early, Link::None);
    writer.finish().expect("written");
    let done = import(&fixture, std::mem::take(writer.get_mut())).expect("put in");
    assert_eq!((done.left_out, done.times), (3, 1), "{done:?}");
    assert!(done.told.iter().all(|told| told.len() < 2000));
    assert_eq!(names(&fixture, "/"), ["d", "early", "old"]);
    let sent = export(&fixture, "/d", None);
    assert_eq!((sent[0].0.mode, sent[0].0.what.clone()), (0o700, What::Directory));
}

/// A body that is read part by part, as a test sends it.
struct Parts(Receiver<Vec<u8>>);

fn parts() -> (Sender<Vec<u8>>, Parts) {
    let (sender, receiver) = channel();
    (sender, Parts(receiver))
}

impl Read for Parts {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Ok(part) = self.0.recv() else { return Ok(0) };
        bytes[..part.len()].copy_from_slice(&part);
        Ok(part.len())
    }
}

#[test]
fn an_archive_that_is_none_or_ends_early_is_refused() {
    let fixture = home();
    let whole = archive(&[("first", b"1"), ("second", &[2; 5000])]);
    let cut = problem(import(&fixture, whole[..4096].to_vec()));
    assert!(cut.status == 400 && cut.detail.contains("at second"), "{cut:?}");
    assert!(cut.hint.expect("a hint").contains("import it again"));
    assert_eq!(names(&fixture, "/"), ["first"]);
    let again = import(&fixture, whole.clone()).expect("put in");
    assert_eq!((again.created, again.kept), (1, 1));
    let zipped = problem(import(&fixture, b"\x1f\x8b\x08".repeat(300)));
    assert!(zipped.status == 422 && zipped.detail.contains("gzip"), "{zipped:?}");
    let mut damaged = whole.clone();
    damaged[1024 + 124] = b'9';
    assert_eq!(kind(import(&fixture, damaged)), ProblemKind::Invalid);
    // The answer comes although the rest of the body is not sent.
    let (sender, body) = parts();
    sender.send(vec![1; 512]).expect("read");
    let began = Instant::now();
    let to = ImportFilesQuery::default();
    let refused = problem(fixture.client.import_files("home", &to, body));
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop(sender);
    let nobody = fixture.client.import_files("none", &to, io::Cursor::new(whole.clone()));
    assert_eq!(kind(nobody), ProblemKind::NotFound);
    let wrong = ImportFilesQuery { path: Some("/a/../b".to_owned()) };
    let wrong = fixture.client.import_files("home", &wrong, io::Cursor::new(whole));
    assert_eq!(kind(wrong), ProblemKind::Invalid);
    let (status, _) = fixture.send("POST", "/shares/home/archive", "{}");
    assert_eq!(status, 415, "a form of another site cannot send an archive");
    let nothing = ArchiveQuery { path: Some("/none".to_owned()), at: None };
    let nothing = fixture.client.archive("home", &nothing, &mut |_| Ok(()));
    assert_eq!(kind(nothing), ProblemKind::NotFound);
    assert_eq!(names(&fixture, "/"), ["first", "second"]);
}

#[test]
fn one_command_changes_a_share_at_a_time_and_others_go_on() {
    let fixture = home();
    let other = CreateShare { name: "other".to_owned(), ..CreateShare::default() };
    fixture.client.create_share(&other).expect("made");
    let bytes = archive(&[("first", b"1"), ("slow", &[3; 100_000])]);
    let (sender, body) = parts();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let client = api::Client::new(fixture.client.address().clone()).expect("a client");
            client.import_files("home", &ImportFilesQuery::default(), body)
        });
        sender.send(bytes[..20_000].to_vec()).expect("read");
        let until = Instant::now() + Duration::from_secs(30);
        while names(&fixture, "/").is_empty() {
            assert!(Instant::now() < until, "the first is under way");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(kind(import(&fixture, archive(&[("quick", b"q")]))), ProblemKind::Busy);
        let to = ImportFilesQuery::default();
        let quick = io::Cursor::new(archive(&[("quick", b"q")]));
        fixture.client.import_files("other", &to, quick).expect("another share");
        for part in bytes[20_000..].chunks(30_000) {
            sender.send(part.to_vec()).expect("read");
        }
        drop(sender);
        let done = slow.join().expect("no panic").expect("put in");
        assert_eq!(done.bytes, 100_001);
    });
    import(&fixture, archive(&[("quick", b"q")])).expect("the first is done");
}

#[test]
fn a_client_that_stops_or_goes_away_in_the_middle_holds_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = Config::from_settings(settings(&dir.path().join("pool"))).expect("right");
    config.http_patience = Duration::from_secs(1);
    let fixture = Fixture::of(Server::start(&config).expect("started"), dir);
    let home = CreateShare { name: "home".to_owned(), ..CreateShare::default() };
    fixture.client.create_share(&home).expect("made");
    let bytes = archive(&[("first", b"1"), ("second", &[2; 50_000])]);
    let (address, token) = fixture.http_address();
    let begin = || {
        let mut stream = TcpStream::connect(address).expect("connected");
        let head = format!(
            "POST /api/v1/shares/home/archive HTTP/1.1\r\nHost: {address}\r\n\
             Authorization: Bearer {token}\r\nContent-Type: application/x-tar\r\n\
             Content-Length: {}\r\n\r\n",
            bytes.len()
        );
        stream.write_all(head.as_bytes()).expect("sent");
        stream.write_all(&bytes[..10_000]).expect("sent");
        stream
    };
    let mut stopped = begin();
    let mut answer = String::new();
    stopped.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("nothing came for 1s"), "{answer}");
    drop(begin());
    let until = Instant::now() + Duration::from_secs(20);
    while let Err(error) = import(&fixture, bytes.clone()) {
        assert!(Instant::now() < until, "{error}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(names(&fixture, "/"), ["first", "second"]);
    // One that reads nothing of what it is sent keeps no thread, and no other from being served.
    let idle: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = TcpStream::connect(address).expect("connected");
            let head = format!(
                "GET /api/v1/shares/home/archive HTTP/1.1\r\nHost: {address}\r\n\
                 Authorization: Bearer {token}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).expect("sent");
            stream
        })
        .collect();
    assert_eq!(export(&fixture, "/second", None)[0].1.len(), 50_000);
    drop(idle);
    let broken = fixture.client.archive("home", &ArchiveQuery::default(), &mut |_| {
        Err(io::Error::from(ErrorKind::BrokenPipe))
    });
    assert!(matches!(broken, Err(ClientError::Keep(_))), "{broken:?}");
}
