//! Nonsense from clients: refused as the RFCs say, or the end of that connection alone.

use wire::nfs3::{Nfsstat3, PROGRAM, Procedure};

use super::client::{Args, Client};
use super::rig::Rig;

#[test]
fn calls_that_cannot_be_are_refused_and_the_connection_goes_on() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    let call = |program: u32, version: u32, procedure: u32, flavor: u32| {
        let head = Args::default().u32(7).u32(0).u32(2).u32(program).u32(version);
        let body = head.u32(procedure).u32(flavor).u32(0).u32(0).u32(0).0;
        [&wire::rpc::record::last_mark(body.len())[..], &body].concat()
    };
    let accepted = |stat: u32| Args::default().u32(0).u32(0).u32(0).u32(stat).0;
    let mismatch = Args(accepted(2)).u32(3).u32(3).0;
    let cases = [
        (call(PROGRAM, 3, 0, 0), accepted(0)),
        (call(PROGRAM, 4, 0, 0), mismatch.clone()),
        (call(wire::mount::PROGRAM, 1, 0, 0), mismatch),
        (call(100_000, 2, 0, 0), accepted(1)),
        (call(PROGRAM, 3, 22, 0), accepted(3)),
        (call(PROGRAM, 3, 1, 0), accepted(4)),
        (call(PROGRAM, 3, 1, 6), Args::default().u32(1).u32(1).u32(5).0),
        (call(PROGRAM, 3, 0, 7), Args::default().u32(1).u32(1).u32(2).0),
    ];
    for (record, expected) in cases {
        client.send(&record);
        assert_eq!(client.receive(), Some((7, expected)), "{record:?}");
    }
    assert!(client.getattr(&top).is_ok());
}

#[test]
fn handles_of_no_share_and_forged_ones_are_refused_by_every_procedure() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    for at in 0..top.len() {
        let mut forged = top.clone();
        forged[at] ^= 1;
        assert_eq!(client.getattr(&forged), Err(Nfsstat3::Stale), "byte {at}");
        assert_eq!(client.create(&forged, "x"), Err(Nfsstat3::Stale), "byte {at}");
    }
    for handle in [Vec::new(), vec![0; 64], top[..39].to_vec()] {
        assert_eq!(client.getattr(&handle), Err(Nfsstat3::BadHandle));
        assert_eq!(client.remove(&handle, "x"), Err(Nfsstat3::BadHandle));
    }
    let forged: Vec<u8> = top.iter().map(|byte| byte ^ 0x80).collect();
    let rename = Args::default().at(&top, "a").at(&forged, "b");
    assert!(client.nfs(Procedure::Rename, rename).is_err());
}

#[test]
fn names_that_no_entry_has_are_refused() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    let long = "x".repeat(256);
    assert_eq!(client.create(&top, &long), Err(Nfsstat3::NameTooLong));
    assert_eq!(client.lookup(&top, &long).map(drop), Err(Nfsstat3::NameTooLong));
    for name in ["", "a/b", "a\0b"] {
        assert_eq!(client.create(&top, name), Err(Nfsstat3::Inval), "{name:?}");
        assert_eq!(client.lookup(&top, name).map(drop), Err(Nfsstat3::Inval), "{name:?}");
    }
    for name in [".", ".."] {
        assert_eq!(client.create(&top, name), Err(Nfsstat3::Exist));
    }
    for path in ["", "/", "//", "/s/none", "/s@v:9", "/s@", "/S", "/s/../../etc"] {
        client.mount(path).expect_err(path);
    }
    assert_eq!(client.mount(&format!("/{}", "x".repeat(2000))), Err(63));
}

#[test]
fn numbers_at_their_ends_are_answered_whatever_the_object() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    let file = client.create(&top, "f").expect("made");
    client.write(&file, 0, 2, b"bytes").expect("written");
    let link = Args::default().at(&top, "l").u32(0).u32(0).u32(0).u32(0).u32(0).u32(0);
    let link = client.made(Procedure::Symlink, link.opaque(b"f")).expect("made");
    let then = client.mount("/s@latest").expect("a handle");
    let old = client.find(&then, "f").expect("found");
    let (moments, _) = client.lookup(&top, ".hindsight").expect("found");
    let ends = [0, 1, 4095, u64::from(u32::MAX), 1 << 44, (1 << 44) - 1, 1 << 63, u64::MAX];
    for handle in [&top, &file, &link, &then, &old, &moments] {
        let on = || Args::default().opaque(handle);
        for end in ends {
            let count = u32::try_from(end).unwrap_or(u32::MAX);
            let write = on().u64(end).u32(3).u32(2).opaque(b"end");
            let mode = on().u32(0).u32(0).u32(0).u32(1).u64(end).u32(0).u32(0).u32(0);
            let times = on().u32(0).u32(0).u32(0).u32(0).u32(2).u32(count).u32(count);
            let calls = [
                (Procedure::Read, on().u64(end).u32(count)),
                (Procedure::Read, on().u64(end).u32(7)),
                (Procedure::Commit, on().u64(end).u32(count)),
                (Procedure::Readdir, on().u64(end).u64(end).u32(count)),
                (Procedure::Readdirplus, on().u64(end).u64(end).u32(count).u32(count)),
                (Procedure::Access, on().u32(count)),
                (Procedure::Readlink, on()),
                (Procedure::Write, write),
                (Procedure::Setattr, mode),
                (Procedure::Setattr, times.u32(0).u32(1).u32(count).u32(count)),
                (Procedure::Link, on().at(&top, "linked")),
                (Procedure::Rename, on().opaque(b"f").at(handle, "f")),
                (Procedure::Rename, Args::default().at(&top, "f").at(handle, "f")),
            ];
            for (procedure, arguments) in calls {
                // Any status: an answer, and a server that goes on.
                let _ = client.nfs(procedure, arguments);
            }
        }
    }
    let found = client.getattr(&file).expect("told");
    assert!(found.size <= 1 << 44, "{}", found.size);
    assert_eq!(client.read(&old, 0, 10), Ok((b"bytes".to_vec(), true)));
    assert!(client.list(&top, 4096).is_ok());
}

#[test]
fn garbage_and_records_too_long_end_their_connection_alone() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    let mut random = 0x1234_5678_u64;
    for round in 0..200_usize {
        let mut other = Client::connect(rig.address);
        let mut bytes: Vec<u8> = (0..round * 3)
            .map(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) as u8
            })
            .collect();
        if round % 2 == 0 {
            // A whole record of them.
            let mark = wire::rpc::record::last_mark(bytes.len());
            bytes.splice(..0, mark);
        }
        other.send(&bytes);
        drop(other);
    }
    let mut other = Client::connect(rig.address);
    other.send(&(1_u32 << 31 | 2 << 20).to_be_bytes());
    assert_eq!(other.receive(), None);
    // Fragments without data have an end too.
    let mut other = Client::connect(rig.address);
    other.send(&vec![0; 2 << 20]);
    assert_eq!(other.receive(), None);
    assert!(client.getattr(&top).is_ok());
}

#[test]
fn a_call_may_come_in_any_pieces() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    let file = client.create(&top, "f").expect("made");
    let data = vec![5; 100_000];
    let arguments = Args::default().opaque(&file).u64(0).u32(100_000).u32(0).opaque(&data).0;
    let record = client.record(PROGRAM, Procedure::Write.number(), &arguments);
    let body = &record[4..];
    for fragment in [7, 4096, 65_536, 200_000] {
        // Fragments without data before it too.
        client.send(&[0; 8]);
        let mut pieces = body.chunks(fragment).peekable();
        while let Some(piece) = pieces.next() {
            let last = if pieces.peek().is_none() { 1 << 31 } else { 0 };
            let mark = (last | u32::try_from(piece.len()).expect("short")).to_be_bytes();
            client.send(&[&mark[..], piece].concat());
        }
        let (_, answer) = client.receive().expect("a reply");
        assert_eq!(answer[16..20], [0; 4]);
    }
    assert_eq!(client.read(&file, 0, 1 << 20), Ok((data, true)));
}

#[test]
fn a_client_that_takes_no_replies_is_not_read_from_and_others_go_on() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    let file = client.create(&top, "f").expect("made");
    client.write(&file, 0, 0, &vec![3; 1 << 20]).expect("written");
    let mut greedy = Client::connect(rig.address);
    let arguments = Args::default().opaque(&file).u64(0).u32(1 << 20).0;
    let mut all = Vec::new();
    for _ in 0..2000 {
        greedy.xid += 1;
        all.extend(greedy.record(PROGRAM, Procedure::Read.number(), &arguments));
    }
    // 240 KB of calls ask for 2 GB.
    greedy.send(&all);
    for _ in 0..100 {
        assert!(client.getattr(&file).is_ok());
    }
    let received = rig.context.counters.requests.load(std::sync::atomic::Ordering::Relaxed);
    assert!(received < 1000, "{received} were carried out");
}
