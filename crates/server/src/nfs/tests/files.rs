//! Files and directories in the present.

use volume::{Allowed, PastAccess, ShareChange, ShareSetting, Squash};
use wire::nfs3::{Nfsstat3, Procedure};
use wire::xdr::Reader;

use super::client::{Args, Client, post_op, wcc};
use super::rig::{POOL_BYTES, Rig, server_metadata};

const UNSTABLE: u32 = 0;
const FILE_SYNC: u32 = 2;

#[test]
fn what_is_written_is_read_and_listed_also_by_another_server() {
    for setting in [ShareSetting::default(), server_metadata()] {
        let rig = Rig::sized(POOL_BYTES, setting);
        let mut client = Client::connect(rig.address);
        let top = client.mount("/s").expect("a handle");
        let dir = client.mkdir(&top, "dir").expect("made");
        let file = client.create(&dir, "file").expect("made");
        let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
        let (count, stable, verifier) = client.write(&file, 10, UNSTABLE, &bytes).expect("written");
        assert_eq!((count, stable), (bytes.len(), UNSTABLE));
        assert_eq!(client.commit(&file), Ok(verifier));
        let more = client.write(&file, 500_000, FILE_SYNC, b"end").expect("written");
        assert_eq!(more, (3, FILE_SYNC, verifier));
        let names = ["a", "b", "dir", "file"].map(str::to_owned);
        client.create(&top, "a").expect("made");
        client.create(&top, "b").expect("made");
        let check = |client: &mut Client| {
            let (data, is_end) = client.read(&file, 0, 1 << 20).expect("read");
            assert!(is_end && data.len() == 500_003);
            assert!(
                data[..10] == [0; 10] && data[10..300_010] == bytes && data[500_000..] == *b"end"
            );
            assert_eq!(client.read(&file, 500_001, 1), Ok((b"n".to_vec(), false)));
            assert_eq!(client.read(&file, 500_003, 10), Ok((Vec::new(), true)));
            assert_eq!(client.find(&top, "dir/file").as_ref(), Ok(&file));
            assert_eq!(client.find(&dir, "../dir/.").as_ref(), Ok(&dir));
            for count in [200, 300, 4096] {
                let mut listed: Vec<String> =
                    client.list(&top, count).expect("listed").into_iter().map(|l| l.0).collect();
                listed.sort();
                assert_eq!(listed, [".", "..", &names[0], &names[1], &names[2]]);
            }
            assert_eq!(client.list(&top, 20), Err(Nfsstat3::TooSmall));
        };
        check(&mut client);
        drop(client);
        let rig = rig.restart();
        let mut client = Client::connect(rig.address);
        check(&mut client);
        assert_ne!(client.commit(&file), Ok(verifier), "clients write again");
        assert_eq!(client.mount("/s").as_ref(), Ok(&top));
    }
}

#[test]
fn a_call_that_is_to_be_durable_is_flushed_before_its_answer_and_no_other() {
    for (setting, is_stable) in [(ShareSetting::default(), true), (server_metadata(), false)] {
        let rig = Rig::sized(POOL_BYTES, setting);
        let mut client = Client::connect(rig.address);
        let top = client.mount("/s").expect("a handle");
        let flushes = || rig.share().info().expect("told").counters.flushes;
        let mut before = flushes();
        let mut is_flushed = || {
            let count = flushes();
            std::mem::replace(&mut before, count) < count
        };
        let file = client.create(&top, "f").expect("made");
        assert_eq!(is_flushed(), is_stable, "CREATE");
        client.write(&file, 0, UNSTABLE, b"bytes").expect("written");
        assert!(!is_flushed(), "UNSTABLE");
        client.commit(&file).expect("flushed");
        assert!(is_flushed(), "COMMIT");
        for stable in [1, FILE_SYNC] {
            client.write(&file, 0, stable, b"other").expect("written");
            assert!(is_flushed(), "DATA_SYNC, FILE_SYNC");
        }
        let rename = Args::default().at(&top, "f").at(&top, "g");
        client.nfs(Procedure::Rename, rename).expect("renamed");
        assert_eq!(is_flushed(), is_stable, "RENAME");
        client.remove(&top, "gone").expect_err("there is none");
        assert!(!is_flushed(), "nothing was changed");
        client.remove(&top, "g").expect("removed");
        assert_eq!(is_flushed(), is_stable, "REMOVE");
    }
}

#[test]
fn changes_of_one_wake_up_are_done_in_order_and_many_are_answered_each() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    let create = |name: &str| {
        let guarded = Args::default().at(&top, name).u32(1);
        (Procedure::Create, guarded.u32(0).u32(0).u32(0).u32(0).u32(0).u32(0))
    };
    let remove = |name: &str| (Procedure::Remove, Args::default().at(&top, name));
    let mut ask = |calls: Vec<(Procedure, Args)>| -> Vec<u32> {
        let (first, count) = (client.xid + 1, calls.len());
        let mut all = Vec::new();
        for (procedure, arguments) in calls {
            client.xid += 1;
            all.extend(client.record(wire::nfs3::PROGRAM, procedure.number(), &arguments.0));
        }
        client.send(&all);
        let mut answers: Vec<(u32, u32)> = (0..count)
            .map(|_| {
                let (xid, body) = client.receive().expect("a reply");
                (xid, u32::from_be_bytes(body[16..20].try_into().expect("four")))
            })
            .collect();
        answers.sort_unstable();
        assert!(answers.iter().map(|(xid, _)| *xid).eq(first..first + count as u32));
        answers.into_iter().map(|(_, status)| status).collect()
    };
    // Few enough to come together: a name is made, made once more, which fails, and removed.
    let (exist, none) = (Nfsstat3::Exist.number(), Nfsstat3::NoEnt.number());
    for _ in 0..50 {
        let calls = vec![create("f"), create("f"), remove("f"), remove("f")];
        assert_eq!(ask(calls), [0, exist, 0, none]);
    }
    // These are more than one turn takes, and in no order to each other.
    let calls: Vec<_> = (0..400).map(|number| create(&format!("f{number}"))).collect();
    assert_eq!(ask(calls), [0; 400]);
    let mut client = Client::connect(rig.address);
    assert_eq!(client.list(&top, 4096).expect("listed").len(), 2 + 400);
}

#[test]
fn a_call_that_is_sent_again_is_not_done_again_whatever_its_connection() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    client.create(&top, "f").expect("made");
    client.xid = 5000;
    let arguments = Args::default().at(&top, "f").0;
    let record = client.record(wire::nfs3::PROGRAM, Procedure::Remove.number(), &arguments);
    client.send(&record);
    let first = client.receive().expect("a reply");
    assert_eq!(first.1[16..20], [0; 4]);
    client.send(&record);
    assert_eq!(client.receive().expect("a reply"), first);
    let mut other = Client::connect(rig.address);
    other.send(&record);
    assert_eq!(other.receive().expect("a reply"), first);
    // The same number of another user's, or with other arguments, is another call.
    (other.xid, other.uid) = (5000, 0);
    let arguments = Args::default().at(&top, "g").0;
    let record = other.record(wire::nfs3::PROGRAM, Procedure::Remove.number(), &arguments);
    other.send(&record);
    let answer = other.receive().expect("a reply").1;
    assert_eq!(answer[16..20], Nfsstat3::NoEnt.number().to_be_bytes());
    // Both at once, on two connections: one is done, and both get its answer.
    for round in 0..50 {
        let name = format!("x{round}");
        client.create(&top, &name).expect("made");
        client.xid = 10_000 + round;
        let arguments = Args::default().at(&top, &name).0;
        let record = client.record(wire::nfs3::PROGRAM, Procedure::Remove.number(), &arguments);
        client.send(&record);
        other.send(&record);
        for connection in [&mut client, &mut other] {
            let answer = connection.receive().expect("a reply").1;
            assert_eq!(answer[16..20], [0; 4], "round {round}");
        }
    }
}

#[test]
fn a_write_that_comes_again_late_on_another_connection_takes_nothing_newer_away() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    let file = client.create(&top, "f").expect("made");
    let arguments = Args::default().opaque(&file).u64(0).u32(3).u32(0).opaque(b"old").0;
    client.xid = 7000;
    let record = client.record(wire::nfs3::PROGRAM, Procedure::Write.number(), &arguments);
    client.send(&record);
    let first = client.receive().expect("a reply");
    client.write(&file, 0, 0, b"new").expect("written");
    let mut broken = Client::connect(rig.address);
    broken.send(&record);
    assert_eq!(broken.receive().expect("a reply"), first);
    assert_eq!(client.read(&file, 0, 10).expect("read").0, b"new");
}

#[test]
fn a_call_that_is_sent_again_after_a_kill_gets_an_answer_as_the_first_time() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    for name in ["gone", "old", "linked"] {
        client.create(&top, name).expect("made");
    }
    let linked = client.find(&top, "linked").expect("found");
    client.mkdir(&top, "empty").expect("made");
    let no_attributes = |args: Args| args.u32(0).u32(0).u32(0).u32(0).u32(0).u32(0);
    let at = |name| Args::default().at(&top, name);
    let calls = [
        (Procedure::Remove, at("gone")),
        (Procedure::Rmdir, at("empty")),
        (Procedure::Rename, at("old").at(&top, "new")),
        (Procedure::Link, Args::default().opaque(&linked).at(&top, "second")),
        (Procedure::Mkdir, no_attributes(at("dir"))),
        (Procedure::Symlink, no_attributes(at("link")).opaque(b"target")),
        (Procedure::Create, no_attributes(at("file").u32(1))),
    ];
    client.xid = 70_000;
    let records: Vec<Vec<u8>> = calls
        .iter()
        .map(|(procedure, arguments)| {
            client.xid += 1;
            client.record(wire::nfs3::PROGRAM, procedure.number(), &arguments.0)
        })
        .collect();
    let ask = |client: &mut Client| -> Vec<Vec<u8>> {
        let all = records.iter().map(|record| {
            client.send(record);
            let answer = client.receive().expect("a reply").1;
            assert_eq!(answer[16..20], [0; 4], "{record:?}");
            answer
        });
        all.collect()
    };
    let first = ask(&mut client);
    let listed = client.list(&top, 4096).expect("listed");
    drop(client);
    let rig = rig.restart();
    let mut client = Client::connect(rig.address);
    let again = ask(&mut client);
    assert_eq!(client.list(&top, 4096).expect("listed"), listed, "nothing was done again");
    // Of what was made the handle is the same.
    let handle_of = |answer: &Vec<u8>| answer[20..68].to_vec();
    for (first, again) in first[4..].iter().zip(&again[4..]) {
        assert_eq!(handle_of(first), handle_of(again));
    }
    // The same number with other arguments is another call.
    client.xid = 70_001;
    let record = client.record(wire::nfs3::PROGRAM, Procedure::Remove.number(), &at("x").0);
    client.send(&record);
    let answer = client.receive().expect("a reply").1;
    assert_eq!(answer[16..20], Nfsstat3::NoEnt.number().to_be_bytes());
}

#[test]
fn failures_carry_the_attributes_that_clients_keep_their_caches_by() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    client.create(&top, "f").expect("made");
    let arguments = Args::default().at(&top, "gone").0;
    let body = client.call(wire::nfs3::PROGRAM, Procedure::Remove.number(), &arguments);
    let mut from = Reader::new(&body);
    assert_eq!(from.u32(), Ok(Nfsstat3::NoEnt.number()));
    let (before, after) = wcc(&mut from);
    assert!(before.is_some() && after.is_some());
    let body = client.call(wire::nfs3::PROGRAM, Procedure::Lookup.number(), &arguments);
    let mut from = Reader::new(&body);
    assert_eq!(from.u32(), Ok(Nfsstat3::NoEnt.number()));
    assert!(post_op(&mut from).is_some());
    // From the directory to itself: two times the same attributes.
    let rename = Args::default().at(&top, "f").at(&top, "g").0;
    let body = client.call(wire::nfs3::PROGRAM, Procedure::Rename.number(), &rename);
    let mut from = Reader::new(&body);
    assert_eq!(from.u32(), Ok(0));
    let (first, second) = (wcc(&mut from), wcc(&mut from));
    assert_eq!(first, second);
    assert!(first.0.is_some() && first.1.is_some() && from.rest().is_empty());
}

#[test]
fn the_file_system_tells_its_abilities_of_every_object() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    let file = client.create(&top, "f").expect("made");
    let then = client.mount("/s@latest").expect("a handle");
    let (moments, _) = client.lookup(&top, ".hindsight").expect("found");
    for handle in [&top, &file, &then, &moments] {
        let mut told = |procedure, bytes| {
            let body = client.nfs(procedure, Args::default().opaque(handle)).expect("told");
            let mut from = Reader::new(&body);
            assert!(post_op(&mut from).is_some());
            assert_eq!(from.rest().len(), bytes, "{procedure:?}");
            (from.u64().expect("told"), from.u64().expect("told"))
        };
        let (all, free) = told(Procedure::Fsstat, 6 * 8 + 4);
        assert!(all <= POOL_BYTES && free < all && free > POOL_BYTES / 2, "{all} {free}");
        let (read, _) = told(Procedure::Fsinfo, 7 * 4 + 8 + 8 + 4);
        assert_eq!(read, 1 << 52 | 1 << 20, "a MiB at most, and as it is best");
        assert_eq!(told(Procedure::Pathconf, 6 * 4).0, 65_000 << 32 | 255);
    }
}

#[test]
fn a_network_has_the_rights_of_its_entry() {
    let entry = |read_only, squash, any_port, past| Allowed {
        network: "127.0.0.0/8".parse().expect("a network"),
        read_only,
        squash,
        anonymous_uid: 4000,
        anonymous_gid: 4001,
        any_port,
        past,
    };
    let share = |allowed| ShareSetting { allowed: vec![allowed], ..server_metadata() };
    let rig = Rig::sized(POOL_BYTES, share(entry(true, Squash::None, true, PastAccess::All)));
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    assert_eq!(client.create(&top, "f"), Err(Nfsstat3::Rofs));
    let access = |client: &mut Client, wanted: u32| {
        let arguments = Args::default().opaque(&top).u32(wanted);
        let body = client.nfs(Procedure::Access, arguments).expect("told");
        let mut from = Reader::new(&body);
        post_op(&mut from);
        from.u32().expect("rights")
    };
    assert_eq!(access(&mut client, 0x3f), 0x3, "to read and to look up");

    let rig = Rig::sized(POOL_BYTES, share(entry(false, Squash::All, true, PastAccess::None)));
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    assert_eq!(client.create(&top, "f"), Err(Nfsstat3::Acces), "the top is root's");
    assert_eq!(client.mount("/s@latest"), Err(13));
    assert_eq!(client.lookup(&top, ".hindsight"), Err(Nfsstat3::NoEnt));

    let rig = Rig::sized(POOL_BYTES, share(entry(false, Squash::None, false, PastAccess::All)));
    let mut client = Client::connect(rig.address);
    assert_eq!(client.mount("/s"), Err(13), "from a port that everybody has");
    assert_eq!(client.mount("/none"), Err(2));
}

fn log_reads() -> ShareChange {
    ShareChange { log_reads: Some(true), ..ShareChange::default() }
}

#[test]
fn reads_are_logged_if_the_share_says_so_before_they_are_answered() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    let file = client.create(&top, "f").expect("made");
    client.write(&file, 0, FILE_SYNC, b"text").expect("written");
    let opened = rig.opened();
    let records = || -> Vec<u8> {
        let log = opened.share().operation_log();
        let all = log.blocks().flat_map(|block| log.operations(block).expect("it is read"));
        all.map(|logged| logged.record.procedure.number()).collect()
    };
    let read = |client: &mut Client| client.read(&file, 0, 10).expect("read").0;
    assert_eq!(read(&mut client), b"text");
    assert_eq!(records(), [8, 7], "nobody asked for it");
    rig.pool.change_share("s", &log_reads()).expect("changed");
    for _ in 0..3 {
        assert_eq!(read(&mut client), b"text");
    }
    assert_eq!(records(), [8, 7, 6]);
    client.write(&file, 0, FILE_SYNC, b"more").expect("written");
    let (mut other, old) = (Client::connect(rig.address), "f/.hindsight");
    assert_eq!(read(&mut other), b"more");
    assert_eq!(records(), [8, 7, 6, 7, 6]);
    assert_eq!(client.find(&top, old).err(), Some(Nfsstat3::NotDir));
    let past = rig.share().last_seq();
    let path = format!(".hindsight/seq:{past}/f", past = past.0);
    let file = client.find(&top, &path).expect("a moment");
    assert_eq!(client.read(&file, 0, 10).expect("read").0, b"more");
    assert_eq!(records(), [8, 7, 6, 7, 6], "the past is not logged");
}

#[test]
fn reads_of_a_full_pool_are_answered_though_they_cannot_be_logged() {
    let rig = Rig::sized(64 << 20, server_metadata());
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    let first = client.create(&top, "first").expect("made");
    client.write(&first, 0, FILE_SYNC, b"text").expect("written");
    let mut files = Vec::new();
    for length in [512 << 10, 0] {
        let data = vec![7; length];
        let mut full = (0..5000).map(|number| {
            let file = client.create(&top, &format!("{length}-{number}"))?;
            files.push(file.clone());
            if data.is_empty() {
                Ok(())
            } else {
                client.write(&file, 0, FILE_SYNC, &data).map(drop)
            }
        });
        assert!(full.any(|made: Result<(), Nfsstat3>| made.is_err()), "there is always room");
    }
    rig.pool.change_share("s", &log_reads()).expect("changed");
    let since = || rig.share().share().expect("a share").reads_since_ns.expect("they are logged");
    let before = since();
    // Of a few there may be room for records.
    let mut reads = files.iter().map(|file| client.read(file, 0, 10).expect("it is read"));
    assert!(reads.any(|_| since() > before + 5_000_000_000), "not logged, and nobody knows");
    let until = since();
    assert_eq!(client.read(&first, 0, 10), Ok((b"text".to_vec(), true)));
    assert_eq!(since(), until, "said once");
}

#[test]
fn a_full_pool_says_so_keeps_what_it_has_and_goes_on_once_there_is_room() {
    let rig = Rig::sized(64 << 20, server_metadata());
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    // In zones of a MiB a whole write is not longer.
    let data = vec![7; 512 << 10];
    let mut files = Vec::new();
    // All of it stays; history of it there is next to none.
    let status = loop {
        let made = client.create(&top, &format!("f{}", files.len()));
        let written = made.and_then(|file| {
            let done = client.write(&file, 0, FILE_SYNC, &data)?;
            Ok((file, done))
        });
        match written {
            Ok((file, (count, ..))) => {
                assert_eq!(count, data.len());
                files.push(file);
            }
            Err(status) => break status,
        }
        assert!(files.len() < 128, "the pool has 64 MiB");
    };
    assert!(matches!(status, Nfsstat3::NoSpc | Nfsstat3::Jukebox), "{status:?}");
    assert!(files.len() > 40, "only {}", files.len());
    for file in &files {
        assert_eq!(client.read(file, 0, 1 << 20), Ok((data.clone(), true)));
    }
    rig.share()
        .change(&volume::VolumeChange { window_ns: Some(1), ..volume::VolumeChange::default() })
        .expect("changed");
    for number in 0..files.len() {
        client.remove(&top, &format!("f{number}")).expect("removed");
    }
    while rig.pool.step(volume::Budget { bytes: 1 << 20 }).expect("worked") {}
    let file = client.create(&top, "again").expect("made");
    client.write(&file, 0, FILE_SYNC, &data).expect("there is room");
}
