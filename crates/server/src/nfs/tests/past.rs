//! The past: mounted, and from inside.

use units::Moment;
use wire::nfs3::{Nfsstat3, Procedure};

use super::client::{Args, Client};
use super::rig::Rig;

const FILE_SYNC: u32 = 2;

#[test]
fn every_moment_is_a_tree_by_mount_and_from_inside_that_nobody_changes() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    let dir = client.mkdir(&top, "dir").expect("made");
    let file = client.create(&dir, "file").expect("made");
    client.write(&file, 0, FILE_SYNC, b"old").expect("written");
    let version = rig.share().create_version("").expect("a version").number;
    client.write(&file, 0, FILE_SYNC, b"new bytes").expect("written");
    client.create(&dir, "later").expect("made");

    let then = client.mount(&format!("/s@v:{version}")).expect("a handle");
    let old = client.find(&then, "dir/file").expect("it was there");
    assert_eq!(client.read(&old, 0, 100), Ok((b"old".to_vec(), true)));
    let inside = client.find(&top, &format!("dir/.hindsight/v:{version}/file")).expect("found");
    assert_eq!(inside, old, "one handle, whatever the way");
    let short = client.find(&dir, &format!("@v:{version}/file")).expect("found");
    assert_eq!(short, old);
    let mounted = client.mount(&format!("/s/dir/.hindsight/v:{version}")).expect("a handle");
    assert_eq!(client.find(&mounted, "file").as_ref(), Ok(&old));
    assert_eq!(client.mount(&format!("/s/dir/later/.hindsight/v:{version}")), Err(20));
    assert_eq!(client.mount("/s/dir/.hindsight/v:99"), Err(2));
    let (moments, _) = client.lookup(&dir, ".hindsight").expect("found");
    assert_eq!(client.mount("/s/dir/.hindsight").as_ref(), Ok(&moments));
    let below = client.mount(&format!("/s@v:{version}/dir")).expect("a handle");
    assert_eq!(client.lookup(&below, "later"), Err(Nfsstat3::NoEnt));
    assert_eq!(client.read(&file, 0, 100), Ok((b"new bytes".to_vec(), true)));

    let [now, then] = [&file, &old].map(|handle| client.getattr(handle).expect("told"));
    assert_eq!(now.fsid, then.fsid);
    assert_ne!(now.fileid, then.fileid, "or cp takes them for one");
    assert_eq!((now.size, then.size), (9, 3));

    assert_eq!(client.write(&old, 0, FILE_SYNC, b"x"), Err(Nfsstat3::Rofs));
    assert_eq!(client.create(&below, "x"), Err(Nfsstat3::Rofs));
    assert_eq!(client.remove(&below, "file"), Err(Nfsstat3::Rofs));
    let rename = Args::default().at(&dir, "file").at(&below, "moved");
    assert_eq!(client.nfs(Procedure::Rename, rename), Err(Nfsstat3::Rofs));
    let link = Args::default().opaque(&old).at(&dir, "linked");
    assert_eq!(client.nfs(Procedure::Link, link), Err(Nfsstat3::Rofs));
    for handle in [&old, &file] {
        assert!(client.commit(handle).is_ok());
    }
}

#[test]
fn the_list_of_moments_is_found_not_listed_and_lists_versions_and_marks() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    let dir = client.mkdir(&top, "dir").expect("made");
    let volume = rig.share();
    let number = volume.create_version("").expect("a version").number;
    volume.create_mark("here", &Moment::Latest, true).expect("a mark");
    let (moments, found) = client.lookup(&dir, ".hindsight").expect("found");
    assert_eq!((found.kind, found.mode), (2, 0o555));
    let told = client.getattr(&moments).expect("told");
    assert_eq!(told.fileid, found.fileid);
    for count in [200, 4096] {
        let listed = client.list(&moments, count).expect("listed");
        let names: Vec<&str> = listed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[..4], [".", "..", &format!("v:{number}"), "mark:here"]);
        for (name, fileid) in &listed {
            let (_, found) = client.lookup(&moments, name).expect("found");
            assert_eq!(found.fileid, *fileid, "{name}");
        }
    }
    assert_eq!(client.lookup(&moments, "..").map(|found| found.0).as_ref(), Ok(&dir));
    assert!(client.list(&top, 4096).expect("listed").iter().all(|(name, _)| name != ".hindsight"));
    for name in ["v:99", "no such mark", "2020-01-01T00:00:00Z", "-100d", "x/y", "latest "] {
        assert_eq!(client.lookup(&moments, name).map(drop), Err(Nfsstat3::NoEnt), "{name}");
    }
    assert_eq!(client.create(&top, ".hindsight"), Err(Nfsstat3::Acces));
    assert_eq!(client.create(&moments, "x"), Err(Nfsstat3::Rofs));
    assert_eq!(client.remove(&top, ".hindsight"), Err(Nfsstat3::NoEnt));
    assert_eq!(client.read(&moments, 0, 10), Err(Nfsstat3::IsDir));
    // A directory that was not there then has no such moment.
    let young = client.mkdir(&top, "young").expect("made");
    let name = format!(".hindsight/v:{number}");
    assert_eq!(client.find(&young, &name), Err(Nfsstat3::NoEnt));
    assert!(client.find(&top, &name).is_ok());
    // Of a file there are no moments by this way.
    let file = client.create(&top, "f").expect("made");
    assert_eq!(client.lookup(&file, ".hindsight").map(drop), Err(Nfsstat3::NotDir));
}

#[test]
fn the_past_is_found_by_a_server_that_has_nothing_in_memory_yet() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    let dir = client.mkdir(&top, "dir").expect("made");
    let number = rig.share().create_version("").expect("a version").number;
    let inside = format!(".hindsight/v:{number}");
    let then = client.find(&dir, &inside).expect("found");
    let mut rig = rig;
    for path in [".hindsight", &inside, &format!("@v:{number}")] {
        rig = rig.restart();
        let mut client = Client::connect(rig.address);
        let found = client.find(&dir, path).expect("found");
        if path != ".hindsight" {
            assert_eq!(found, then);
        }
        assert_eq!(client.getattr(&found).expect("told").kind, 2);
    }
}

#[test]
fn a_revert_is_seen_by_clients_at_once_and_can_be_undone() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    let file = client.create(&top, "f").expect("made");
    client.write(&file, 0, FILE_SYNC, b"old").expect("written");
    let volume = rig.share();
    let before = volume.resolve(&Moment::Latest).expect("resolved").seq;
    client.write(&file, 0, FILE_SYNC, b"changed").expect("written");
    let late = client.create(&top, "late").expect("made");
    let revert = |to| {
        let volumes = std::slice::from_ref(&volume);
        let reverted = rig.shares.revert(volumes, || volume.revert(&to, false));
        reverted.expect("reverted").from.seq
    };
    let ctime = client.getattr(&top).expect("told").ctime;
    let verifier = client.commit(&file).expect("flushed");
    let undo = revert(Moment::Seq(before));
    assert_eq!(client.read(&file, 0, 100), Ok((b"old".to_vec(), true)));
    assert_ne!(client.commit(&file), Ok(verifier), "what was not committed is written again");
    assert_eq!(client.getattr(&late), Err(Nfsstat3::Stale));
    let new = client.create(&top, "new").expect("made");
    assert_ne!(new, late);
    assert!(client.getattr(&top).expect("told").ctime > ctime, "clients tell versions by it");
    revert(Moment::Seq(undo));
    assert_eq!(client.read(&file, 0, 100), Ok((b"changed".to_vec(), true)));
    assert!(client.getattr(&late).is_ok());
    assert_eq!(client.getattr(&new), Err(Nfsstat3::Stale));
    // To before there was a tree: it is another one, and empty.
    revert(Moment::Seq(units::Seq(0)));
    assert_eq!(client.getattr(&top), Err(Nfsstat3::Stale));
    let empty = client.mount("/s").expect("a handle");
    assert_eq!(client.list(&empty, 4096).expect("listed").len(), 2);
    revert(Moment::Seq(undo));
    assert_eq!(client.read(&file, 0, 100), Ok((b"changed".to_vec(), true)));
}

#[test]
fn shares_and_moments_are_closed_when_they_are_gone_and_not_before() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    client.create(&top, "f").expect("made");
    let old = client.mount("/s@latest").expect("a handle");
    let volume = rig.share();
    let is_open = || rig.shares.opened(volume.id()).is_some();
    rig.shares.purge();
    assert!(is_open() && client.find(&old, "f").is_ok());
    rig.delete("s");
    rig.shares.purge();
    let deleted = rig.pool.trash().expect("told");
    rig.pool.undelete_volume(deleted[0].id, None).expect("back");
    assert!(is_open(), "in the trash it stays open");
    assert!(client.find(&top, "f").is_ok() && client.find(&old, "f").is_ok());
    rig.pool.delete_volume("s").expect("deleted for good");
    rig.shares.purge();
    assert!(!is_open());
    for handle in [&top, &old] {
        assert_eq!(client.getattr(handle), Err(Nfsstat3::Stale));
    }
    drop(volume);
}

#[test]
fn one_command_changes_a_share_at_a_time() {
    let rig = Rig::new();
    let opened = rig.shares.open_volume(&rig.share()).expect("opened");
    let first = opened.command();
    assert!(first.is_some() && opened.command().is_none());
    drop(first);
    assert!(opened.command().is_some());
}

#[test]
fn handles_of_a_deleted_share_are_stale_until_it_is_back() {
    let rig = Rig::new();
    let mut client = Client::connect(rig.address);
    let top = client.mount("/s").expect("a handle");
    client.create(&top, "f").expect("made");
    let old = client.mount("/s@latest").expect("a handle");
    rig.delete("s");
    assert_eq!(client.getattr(&top), Err(Nfsstat3::Stale));
    assert_eq!(client.getattr(&old), Err(Nfsstat3::Stale));
    assert_eq!(client.create(&top, "g"), Err(Nfsstat3::Stale));
    assert_eq!(client.mount("/s"), Err(2));
    let deleted = rig.pool.trash().expect("told");
    rig.pool.undelete_volume(deleted[0].id, None).expect("back");
    assert!(client.find(&top, "f").is_ok());
    assert!(client.find(&old, "f").is_ok());
}
