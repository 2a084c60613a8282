//! A share that follows a server: whatever clients do through the relay, and whatever breaks, it
//! comes to have the server's tree.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ::intercept::State;
use share::{Credentials, FileKind, Share, Tree, VolumeBlocks, Wait};
use units::FileId;
use wire::nfs3::{Nfsstat3, Procedure};

use super::{Intercept, Intercepts};
use crate::nfs::tests::client::{Args, Client, Fh, Res};
use crate::nfs::tests::rig::Rig;
use crate::{InterceptSettings, Listening};

/// A server of a share `s`, and a relay before it that `copy` follows.
struct Followed {
    rig: Rig,
    intercepts: Intercepts,
    relay: SocketAddr,
}

/// All that is at a path: kind, mode, owner, size, links, content. Not the time of modification:
/// that of two writes of different bytes at once may be of either.
type Thing = (FileKind, u16, (u32, u32), u64, u32, Vec<u8>);

fn start(rig: &Rig, form: &str) -> (Intercepts, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let relay = listener.local_addr().expect("address");
    let primary = (form != "inline").then(|| format!("{}:/s", rig.address));
    let (listen, share) = ("127.0.0.1:0".to_owned(), "copy".to_owned());
    let settings = InterceptSettings { listen, form: form.to_owned(), share, primary };
    let intercept = Intercept::new(&settings, Listening::default()).expect("settings");
    let bound = vec![(intercept, listener)];
    let intercepts = Intercepts::start(&rig.pool, &rig.shares, bound, Some(rig.address));
    (intercepts.expect("started"), relay)
}

impl Followed {
    fn new(form: &str, before: impl FnOnce(&mut Client, &Fh)) -> Followed {
        let rig = Rig::new();
        let mut client = Client::connect(rig.address);
        let top = client.mount("/s").expect("mounted");
        before(&mut client, &top);
        let (intercepts, relay) = start(&rig, form);
        Followed { rig, intercepts, relay }
    }

    /// A client that mounted the relay.
    fn client(&self) -> (Client, Fh) {
        let mut client = Client::connect(self.relay);
        let top = client.mount("/s").expect("mounted");
        (client, top)
    }

    fn status(&self) -> ::intercept::Status {
        self.intercepts.running[0].interceptor.status().expect("it has a follower")
    }

    /// Waits until the follower has done all.
    fn settle(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let before = self.status();
            // All that was taken is done when the share has no transaction under way.
            drop(share_of(&self.rig, "copy", |share| share.begin(Wait::May).map(drop)));
            let after = self.status();
            let is_idle = |s: &::intercept::Status| s.state == State::Following && s.waiting == 0;
            if is_idle(&before) && is_idle(&after) && before.followed == after.followed {
                thread::sleep(Duration::from_millis(20));
                if self.status().followed == after.followed {
                    return;
                }
            }
            assert!(Instant::now() < until, "{after:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn assert_alike(&self) {
        self.settle();
        let ours = share_of(&self.rig, "copy", everything);
        let theirs = share_of(&self.rig, "s", everything);
        for (path, thing) in &theirs {
            let is_alike = ours.get(path) == Some(thing);
            let brief = |of: &Thing| format!("{:?}, {} bytes", (of.0, of.1, of.2, of.4), of.3);
            assert!(is_alike, "{path}: {} {:?}", brief(thing), ours.get(path).map(brief));
        }
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    }
}

fn share_of<T>(rig: &Rig, name: &str, look: impl FnOnce(&Share<VolumeBlocks>) -> T) -> T {
    let volume = rig.pool.volume(name).expect("it is there");
    look(rig.shares.open_volume(&volume).expect("it opens").share())
}

/// All that a share has, by path.
fn everything(share: &Share<VolumeBlocks>) -> BTreeMap<String, Thing> {
    let tree = share.tree(Wait::May).expect("a tree");
    let mut all = BTreeMap::new();
    let mut stack = vec![(String::new(), tree.top().expect("a top"))];
    while let Some((path, id)) = stack.pop() {
        all.insert(path.clone(), thing(&tree, id));
        if tree.attributes(id).expect("there").kind != FileKind::Directory {
            continue;
        }
        let mut below = Vec::new();
        let tell = &mut |entry: share::Listed<'_>| {
            if !matches!(entry.name, b"." | b"..") {
                below.push((String::from_utf8(entry.name.to_vec()).expect("text"), entry.inode));
            }
            true
        };
        tree.read_directory(&Credentials::root(), id, 0, tell).expect("listed");
        for (name, inode) in below {
            let id = tree.attributes_of(inode).expect("there").id;
            stack.push((format!("{path}/{name}"), id));
        }
    }
    all
}

fn thing(tree: &impl Tree, id: FileId) -> Thing {
    let of = tree.attributes(id).expect("there");
    let content = match of.kind {
        FileKind::File => {
            let mut bytes = vec![0; of.size as usize];
            tree.read(&Credentials::root(), id, 0, &mut bytes).expect("read");
            bytes
        }
        FileKind::Symlink => tree.read_link(id).expect("read"),
        _ => Vec::new(),
    };
    // That of a directory is of how its entries came.
    let size = if of.kind == FileKind::Directory { 0 } else { of.size };
    (of.kind, of.mode, (of.uid, of.gid), size, of.links, content)
}

/// Numbers that look random, the same for a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }

    fn name(&mut self) -> String {
        format!("n{}", self.below(6))
    }
}

/// The handle of a directory below the top, or the top.
fn some_directory(client: &mut Client, top: &Fh, random: &mut Random) -> Fh {
    let mut at = top.clone();
    for _ in 0..random.below(3) {
        match client.lookup(&at, &random.name()) {
            Ok((handle, attr)) if attr.kind == 2 => at = handle,
            _ => break,
        }
    }
    at
}

/// A random call that changes something; those that others overtook may fail.
fn some_call(client: &mut Client, top: &Fh, random: &mut Random) -> Res<()> {
    let dir = some_directory(client, top, random);
    let (name, what) = (random.name(), random.below(15));
    match what {
        0 | 1 => client.create(&dir, &name).map(drop),
        2 => client.mkdir(&dir, &name).map(drop),
        3 => client.remove(&dir, &name),
        4 => client.nfs(Procedure::Rmdir, Args::default().at(&dir, &name)).map(drop),
        5 | 6 => {
            let (to, new) = (some_directory(client, top, random), random.name());
            client.nfs(Procedure::Rename, Args::default().at(&dir, &name).at(&to, &new)).map(drop)
        }
        7 => {
            let target = format!("to/{}", random.below(1000));
            let arguments = Args::default().at(&dir, &name).mode(0o777).opaque(target.as_bytes());
            client.made(Procedure::Symlink, arguments).map(drop)
        }
        8 => {
            let (to, new) = (some_directory(client, top, random), random.name());
            let (file, _) = client.lookup(&dir, &name)?;
            let arguments = Args::default().opaque(&file).at(&to, &new);
            client.nfs(Procedure::Link, arguments).map(drop)
        }
        9 => {
            // Mode, owner, size.
            let (file, attr) = client.lookup(&dir, &name)?;
            let size = random.below(20_000);
            let mode = 0o600 + u32::try_from(random.below(0o100)).expect("small");
            let arguments = Args::default().opaque(&file).u32(1).u32(mode).u32(1);
            let arguments = arguments.u32(u32::try_from(random.below(9)).expect("small")).u32(0);
            let arguments = match attr.kind {
                1 => arguments.u32(1).u64(size),
                _ => arguments.u32(0),
            };
            client.nfs(Procedure::Setattr, arguments.u32(0).u32(1).u32(0)).map(drop)
        }
        10 => {
            // A fifo.
            let arguments = Args::default().at(&dir, &name).u32(7).mode(0o600);
            client.made(Procedure::Mknod, arguments).map(drop)
        }
        11 => {
            // UNCHECKED, which cuts what is there.
            let set = Args::default().at(&dir, &name).u32(0).u32(1).u32(0o644).u32(0).u32(0);
            client.made(Procedure::Create, set.u32(1).u64(0).u32(0).u32(0)).map(drop)
        }
        _ => {
            let (file, _) = client.lookup(&dir, &name)?;
            let (offset, length) = (random.below(30_000), 1 + random.below(9_000));
            let byte = random.below(256) as u8;
            client.write(&file, offset, 0, &vec![byte; length as usize]).map(drop)
        }
    }
}

fn load(followed: &Followed, seed: u64, calls: usize) {
    let work = |number: u64| {
        let (mut client, top) = followed.client();
        // Numbers of their own: a server that was started anew would take repeated ones for calls
        // that are sent again.
        client.xid = u32::try_from(seed * 1_000_000 + number * 100_000).expect("small");
        let mut random = Random(seed * 100 + number);
        let mut done = 0;
        for _ in 0..calls {
            match some_call(&mut client, &top, &mut random) {
                Ok(()) => done += 1,
                Err(Nfsstat3::Io | Nfsstat3::ServerFault | Nfsstat3::NotSupp) => panic!("failed"),
                Err(_) => {}
            }
        }
        assert!(done > calls / 8, "{done} of {calls} did something");
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

fn a_tree(client: &mut Client, top: &Fh) {
    let mut random = Random(7);
    for _ in 0..120 {
        let _ = some_call(client, top, &mut random);
    }
    // Holes, and more than one READ, and more than one READDIRPLUS.
    let large = client.create(top, "large").expect("made");
    client.write(&large, 700_000, 0, &[7; 100_000]).expect("written");
    let many = client.mkdir(top, "many").expect("made");
    for number in 0..700 {
        client.create(&many, &format!("a name of some length, number {number:05}")).expect("made");
    }
}

#[test]
fn a_share_is_made_what_the_server_has_and_follows_it_through_random_calls() {
    let mut followed_alone = 0;
    for (seed, form) in [(1, "append"), (2, "overwrite"), (3, "append")] {
        let followed = Followed::new(form, a_tree);
        load(&followed, seed, 250);
        followed.assert_alike();
        let first = followed.status();
        assert!(first.compared > 700, "{first:?}");
        // From here on there is nothing to be compared: each call is one of the log.
        let operations = || share_of(&followed.rig, "copy", |share| share.statistics().operations);
        let before = (operations(), share_of(&followed.rig, "s", |s| s.statistics().operations));
        load(&followed, seed + 10, 120);
        followed.assert_alike();
        let after = (operations(), share_of(&followed.rig, "s", |s| s.statistics().operations));
        let last = followed.status();
        if last.comparisons == first.comparisons {
            assert!(after.0 - before.0 >= after.1 - before.1, "{last:?}");
            followed_alone += 1;
        }
        assert_eq!(last.trouble, None);
    }
    assert!(followed_alone > 0, "each of them had to compare");
}

#[test]
fn records_have_the_client_and_the_user_of_the_call() {
    let followed = Followed::new("append", |_, _| {});
    followed.settle();
    let (mut client, top) = followed.client();
    let open = Args::default().opaque(&top).u32(1).u32(0o777).u32(0).u32(0).u32(0).u32(0).u32(0);
    client.nfs(Procedure::Setattr, open.u32(0)).expect("set");
    client.uid = 1007;
    let file = client.create(&top, "mine").expect("made");
    client.write(&file, 0, 0, b"words").expect("written");
    followed.assert_alike();
    assert_eq!(followed.status().followed, 3);
    let modified = |name| {
        share_of(&followed.rig, name, |share| {
            let tree = share.tree(Wait::May).expect("a tree");
            let top = tree.top().expect("a top");
            tree.look_up(&Credentials::root(), top, b"mine").expect("there").modified
        })
    };
    assert_eq!(modified("copy"), modified("s"));
    let volume = followed.rig.pool.volume("copy").expect("there");
    let opened = followed.rig.shares.open_volume(&volume).expect("it opens");
    let log = opened.share().operation_log();
    let last = log.operations(*log.blocks().end()).expect("read");
    let told = |logged: &share::Logged| {
        (logged.record.procedure, logged.record.origin.uid, logged.record.origin.client)
    };
    let seen: Vec<_> = last[last.len() - 2..].iter().map(told).collect();
    let loopback = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().to_bits();
    let (write, create) = (share::Procedure::Write, share::Procedure::Create);
    assert_eq!(seen, [(create, 1007, loopback), (write, 1007, loopback)]);
}

/// A server that takes connections and calls, and answers none of them.
fn silent() -> (SocketAddr, std::sync::mpsc::Receiver<std::net::TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    let (sender, accepted) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if sender.send(stream).is_err() {
                return;
            }
        }
    });
    (address, accepted)
}

fn append(rig: &Rig, primary: SocketAddr) -> Result<(Intercepts, SocketAddr), String> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let relay = listener.local_addr().expect("address");
    let text = format!("127.0.0.1:0,append,copy,{primary}:/s");
    let settings: InterceptSettings = text.parse().expect("settings");
    let intercept = Intercept::new(&settings, Listening::default()).expect("settings");
    let bound = vec![(intercept, listener)];
    let started = Intercepts::start(&rig.pool, &rig.shares, bound, None);
    started.map(|intercepts| (intercepts, relay)).map_err(|error| error.to_string())
}

/// Connections to a server through somebody who can lose what it answers.
struct Lossy {
    address: SocketAddr,
    lost: Arc<std::sync::Mutex<Vec<Arc<std::sync::atomic::AtomicBool>>>>,
}

impl Lossy {
    fn new(server: SocketAddr) -> Lossy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let lost: Arc<std::sync::Mutex<Vec<Arc<std::sync::atomic::AtomicBool>>>> = Arc::default();
        let flags = Arc::clone(&lost);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = std::net::TcpStream::connect(server).expect("connect");
                let flag = Arc::new(std::sync::atomic::AtomicBool::new(false));
                flags.lock().expect("no panic").push(Arc::clone(&flag));
                let (mut to, mut from) =
                    (server.try_clone().expect("clone"), client.try_clone().expect("clone"));
                thread::spawn(move || std::io::copy(&mut from, &mut to));
                thread::spawn(move || answers(server, client, &flag));
            }
        });
        Lossy { address, lost }
    }

    /// Loses what is answered on the newest connection.
    fn lose(&self) {
        let flags = self.lost.lock().expect("no panic");
        flags.last().expect("a connection").store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

fn answers(
    mut server: std::net::TcpStream,
    mut client: std::net::TcpStream,
    is_lost: &std::sync::atomic::AtomicBool,
) {
    let mut part = vec![0; 64 << 10];
    while let Ok(count @ 1..) = std::io::Read::read(&mut server, &mut part) {
        if is_lost.load(std::sync::atomic::Ordering::SeqCst) {
            // All that was asked is done by then.
            thread::sleep(Duration::from_millis(300));
            break;
        }
        if std::io::Write::write_all(&mut client, &part[..count]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(std::net::Shutdown::Both);
}

#[test]
fn calls_whose_answer_nobody_saw_are_compared() {
    let rig = Rig::new();
    let mut direct = Client::connect(rig.address);
    let top = direct.mount("/s").expect("mounted");
    a_tree(&mut direct, &top);
    let behind = direct.mkdir(&top, "behind").expect("made");
    direct.create(&behind, "old").expect("made");
    let lossy = Lossy::new(rig.address);
    let (intercepts, relay) = append(&rig, lossy.address).expect("started");
    let followed = Followed { rig, intercepts, relay };
    followed.settle();
    let (mut client, top) = followed.client();
    let file = client.create(&top, "broken").expect("made");
    followed.settle();
    let comparisons = followed.status().comparisons;
    // Another directory of the same name and number, that no call tells of: its entries are looked
    // at all the same when those of the one above are.
    direct.remove(&behind, "old").expect("removed");
    direct.nfs(Procedure::Rmdir, Args::default().at(&top, "behind")).expect("removed");
    let number = |client: &mut Client, handle: &Fh| client.getattr(handle).expect("there").fileid;
    let again = direct.mkdir(&top, "behind").expect("made");
    direct.create(&again, "new").expect("made");
    assert!(direct.getattr(&behind).is_err() && again != behind);
    assert!(number(&mut direct, &again) > 0);
    lossy.lose();
    client.xid += 1;
    let arguments = Args::default().at(&top, "unseen").u32(0).mode(0o644);
    client.send(&client.record(wire::nfs3::PROGRAM, Procedure::Create.number(), &arguments.0));
    for part in 0..4 {
        client.xid += 1;
        let arguments = Args::default().opaque(&file).u64(part * 4096).u32(4096).u32(0);
        let number = Procedure::Write.number();
        let arguments = arguments.opaque(&[7; 4096]);
        client.send(&client.record(wire::nfs3::PROGRAM, number, &arguments.0));
    }
    assert_eq!(client.receive(), None, "its answers are lost");
    let until = Instant::now() + Duration::from_secs(30);
    while followed.status().comparisons == comparisons {
        assert!(Instant::now() < until, "nothing is compared");
        thread::sleep(Duration::from_millis(20));
    }
    followed.assert_alike();
}

#[test]
fn a_server_that_goes_away_with_calls_under_way_holds_nobody() {
    let rig = Rig::new();
    let (address, accepted) = silent();
    let (intercepts, relay) = append(&rig, address).expect("started");
    // The follower's own connection, which stays open.
    let _own = accepted.recv().expect("it mounts");
    let write = Args::default().opaque(&[7; 16]).u64(0).u32(4).u32(0).opaque(b"data");
    for _ in 0..2 {
        let mut client = Client::connect(relay);
        for _ in 0..2 {
            // The second one waits for the answer to the first.
            client.xid += 1;
            let number = Procedure::Write.number();
            let record = client.record(wire::nfs3::PROGRAM, number, &write.0);
            client.send(&record);
        }
        let passed = accepted.recv_timeout(Duration::from_secs(30)).expect("the first one passes");
        thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        drop(passed);
        assert_eq!(client.receive(), None);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    let began = Instant::now();
    intercepts.stop();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

fn another_share(rig: &Rig, name: &str) {
    let share = Some(volume::ShareSetting::default());
    let spec = volume::VolumeSpec { share, ..volume::VolumeSpec::share(name) };
    rig.pool.create_volume(&spec).expect("made");
}

#[test]
fn other_exports_are_neither_mounted_nor_followed() {
    let followed = Followed::new("append", a_tree);
    another_share(&followed.rig, "t");
    followed.settle();
    let (mut client, top) = followed.client();
    // Its numbers are those of `s`, too.
    let foreign = Client::connect(followed.rig.address).mount("/t").expect("mounted");
    let file = client.create(&foreign, "foreign").expect("made there");
    client.write(&file, 0, 0, b"not followed").expect("written there");
    client.create(&top, "own").expect("made");
    followed.assert_alike();
}

#[test]
fn a_share_that_was_not_made_to_follow_is_not_overwritten() {
    let rig = Rig::new();
    another_share(&rig, "copy");
    let refused = append(&rig, rig.address).map(drop).expect_err("refused");
    assert!(refused.contains("was not made to follow"), "{refused}");
}

#[test]
fn what_changed_behind_the_relay_is_found_at_the_next_start() {
    let mut followed = Followed::new("append", a_tree);
    load(&followed, 4, 60);
    followed.assert_alike();
    followed.intercepts.stop();
    let mut client = Client::connect(followed.rig.address);
    client.xid = 900_000_000;
    let top = client.mount("/s").expect("mounted");
    let mut random = Random(99);
    for _ in 0..200 {
        let _ = some_call(&mut client, &top, &mut random);
    }
    let large = client.find(&top, "large").expect("there");
    client.write(&large, 300_000, 0, &[9; 5_000]).expect("written");
    // `Shares` knows its followers once for all.
    followed.intercepts = Intercepts::default();
    followed.rig = followed.rig.restart();
    (followed.intercepts, followed.relay) = start(&followed.rig, "append");
    followed.assert_alike();
    load(&followed, 5, 60);
    followed.assert_alike();
}

#[test]
fn only_the_relay_changes_a_share_that_follows() {
    let followed = Followed::new("append", a_tree);
    followed.settle();
    let mut client = Client::connect(followed.rig.address);
    let copy = client.mount("/copy").expect("mounted");
    assert_eq!(client.create(&copy, "x"), Err(Nfsstat3::Rofs));
    assert_eq!(client.remove(&copy, "large"), Err(Nfsstat3::Rofs));
    let large = client.find(&copy, "large").expect("it can be read");
    assert_eq!(client.read(&large, 700_000, 4).expect("read").0, [7; 4]);
}

#[test]
fn what_would_change_the_server_unseen_is_refused() {
    let rig = Rig::new();
    // It would not answer.
    let (address, _accepted) = silent();
    let (_intercepts, relay) = append(&rig, address).expect("started");
    let mut client = Client::connect(relay);
    let ask = |client: &mut Client, program: u32, change: &dyn Fn(&mut Vec<u8>)| {
        client.xid += 1;
        let mut record = client.record(program, 1, &Args::default().opaque(b"/t").0);
        change(&mut record);
        client.send(&record);
        client.receive().expect("an answer").1
    };
    let words = |reply: &[u8]| -> Vec<u32> {
        reply.chunks(4).map(|w| u32::from_be_bytes(w.try_into().expect("four"))).collect()
    };
    // NFS 4: PROG_MISMATCH, 3 to 3.
    let reply = ask(&mut client, wire::nfs3::PROGRAM, &|record| record[4 + 19] = 4);
    assert_eq!(words(&reply), [0, 0, 0, 2, 3, 3]);
    // ACLs: PROG_UNAVAIL.
    let reply = ask(&mut client, 100_227, &|_| {});
    assert_eq!(words(&reply), [0, 0, 0, 1]);
    // RPCSEC_GSS: AUTH_TOOWEAK.
    let reply = ask(&mut client, wire::nfs3::PROGRAM, &|record| record[4 + 27] = 6);
    assert_eq!(words(&reply), [1, 1, 5]);
    // No procedure of NFS: PROC_UNAVAIL.
    let reply = ask(&mut client, wire::nfs3::PROGRAM, &|record| record[4 + 23] = 99);
    assert_eq!(words(&reply), [0, 0, 0, 3]);
    // Another export: SYSTEM_ERR.
    let reply = ask(&mut client, wire::mount::PROGRAM, &|_| {});
    assert_eq!(words(&reply), [0, 0, 0, 5]);
}

#[test]
fn a_server_that_lost_what_was_written_is_compared_whole() {
    let followed = Followed::new("append", a_tree);
    followed.settle();
    let before = followed.rig.share().info().expect("shown").latest.seq;
    load(&followed, 8, 60);
    followed.assert_alike();
    // It goes back behind the relay, and tells so by the verifier of the next write.
    let server = followed.rig.share();
    let revert = || server.revert(&units::Moment::Seq(before), false).expect("reverted");
    followed.rig.shares.revert(std::slice::from_ref(&server), revert);
    let (mut client, top) = followed.client();
    client.xid = 800_000_000;
    let large = client.find(&top, "large").expect("there");
    let comparisons = followed.status().comparisons;
    // The first verifier that was seen is of before, whatever the load did.
    client.write(&large, 0, 0, b"after").expect("written");
    followed.assert_alike();
    assert!(followed.status().comparisons > comparisons);
}

#[test]
fn a_directory_that_is_removed_and_made_again_while_it_is_compared_is_followed() {
    let mut followed = Followed::new("append", |client, top| {
        let x = client.mkdir(top, "x").expect("made");
        client.create(&x, "old").expect("made");
        // It is read for a while.
        let large = client.create(top, "large").expect("made");
        client.write(&large, 256 << 20, 0, &[1]).expect("written");
    });
    followed.settle();
    followed.intercepts.stop();
    // `Shares` knows its followers once for all.
    followed.intercepts = Intercepts::default();
    followed.rig = followed.rig.restart();
    (followed.intercepts, followed.relay) = start(&followed.rig, "append");
    let (mut client, top) = followed.client();
    client.xid = 700_000_000;
    // The names at the top are seen, and the large file is being read.
    while followed.status().compared == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let x = client.find(&top, "x").expect("there");
    client.remove(&x, "old").expect("removed");
    client.nfs(Procedure::Rmdir, Args::default().at(&top, "x")).expect("removed");
    let again = client.mkdir(&top, "x").expect("made");
    client.create(&again, "new").expect("made");
    assert_eq!(followed.status().state, State::Comparing, "too late to be a test");
    let number = |client: &mut Client, handle: &Fh| client.getattr(handle).expect("there").fileid;
    assert_eq!(client.getattr(&x), Err(Nfsstat3::Stale));
    assert!(number(&mut client, &again) > 0);
    followed.assert_alike();
}

#[test]
fn inline_passes_calls_to_the_share_itself() {
    let followed = Followed::new("inline", |_, _| {});
    let mut client = Client::connect(followed.relay);
    let top = client.mount("/copy").expect("mounted");
    let file = client.create(&top, "file").expect("made");
    client.write(&file, 0, 0, b"words").expect("written");
    let (bytes, _) = client.read(&file, 0, 100).expect("read");
    assert_eq!(bytes, b"words");
    let volume = followed.rig.pool.volume("copy").expect("it was made");
    let info = volume.info().expect("shown");
    assert_eq!(info.architecture, volume::Architecture::Redirect);
    assert!(followed.intercepts.of(volume.id()).expect("shown").status.is_none());
    drop(Arc::clone(&volume));
}
