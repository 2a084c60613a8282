//! Shares: settings that go with their volume wherever it goes, and what no share has.

use std::sync::Arc;

use hindsight_volume::{
    Allowed, Architecture, Budget, CacheChange, CloneSpec, Deletion, ErrorKind, GroupMoment,
    Metadata, Pool, SHARE_BYTES, ShareChange, ShareSetting, Squash, Volume, VolumeChange,
    VolumeSpec, WriteOp,
};
use units::{MapExtent, Moment, Network, Seq};

use crate::hook::Rig;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// Blocks as a file tree has them: far apart.
const BLOCKS: [u64; 4] = [0, 1 << 34, 1 << 39, (1 << 40) - 1];
const ALONE: [Architecture; 4] = [
    Architecture::Logging,
    Architecture::SplitStream,
    Architecture::Redirect,
    Architecture::Checkpointing,
];

fn network(text: &str) -> Network {
    text.parse().expect("a network")
}

/// A share that allows somebody.
fn make(pool: &Pool, architecture: Architecture) -> (Arc<Volume>, Arc<ShareSetting>) {
    let volume = pool
        .create_volume(&VolumeSpec { architecture, ..VolumeSpec::share("home") })
        .expect("made");
    let allow = Allowed { squash: Squash::All, ..Allowed::new(network("10.1.0.0/16")) };
    let change = ShareChange {
        metadata: Some(Metadata::Server),
        allow: vec![allow],
        ..ShareChange::default()
    };
    let share = pool.change_share("home", &change).expect("changed");
    assert_eq!(volume.share(), Some(Arc::clone(&share)));
    assert_eq!((share.metadata, &share.allowed[..]), (Metadata::Server, &[allow][..]));
    (volume, share)
}

fn put(volume: &Volume, byte: u8) -> Seq {
    let bytes = [byte; BLOCK as usize];
    let op = |block: u64| WriteOp::Data { offset: block * BLOCK, bytes: &bytes };
    volume.write_whole(&BLOCKS.map(op)).expect("written")
}

fn holds(volume: &Volume, byte: u8) {
    for block in BLOCKS {
        let mut bytes = [0xee; BLOCK as usize];
        volume.read(block * BLOCK, &mut bytes).expect("read");
        assert!(bytes == [byte; BLOCK as usize], "block {block}");
    }
}

#[test]
fn settings_go_with_the_volume_wherever_it_goes() {
    for architecture in ALONE {
        let rig = Rig::new(256 * MIB, MIB);
        let mut pool = rig.open();
        let (volume, share) = make(&pool, architecture);
        let expected = Some(Arc::clone(&share));
        let old = Moment::Seq(put(&volume, 1));
        put(&volume, 2);
        let info = volume.info().expect("told");
        assert_eq!((info.size_bytes, info.strict), (SHARE_BYTES, true));
        assert_eq!(info.share, expected);

        drop(volume);
        pool = rig.kill(pool);
        pool.rename_volume("home", "homes", false).expect("renamed");
        let volume = pool.volume("homes").expect("there");
        assert_eq!(volume.share(), expected, "{architecture:?}");
        holds(&volume, 2);

        let clone = pool.clone_volume("homes", &old, "c").expect("cloned");
        let spec = CloneSpec { in_full: true, ..CloneSpec::default() };
        let full = pool.clone_as("homes", &old, "f", spec).map(drop);
        let error = full.expect_err("refused");
        assert_eq!((error.kind, error.hint.is_some()), (ErrorKind::Invalid, true));
        pool.create_group("g", &["homes".to_owned()]).expect("made");
        pool.clone_group("g", &GroupMoment::Of(Moment::Latest), "copy").expect("cloned");
        let copied = pool.group_volumes("copy").expect("there");
        while pool.step(Budget { bytes: 8 * MIB }).expect("stepped") {}
        for (volume, byte) in [(&clone, 1), (&copied[0], 2)] {
            assert_eq!(volume.share(), expected, "{architecture:?} {}", volume.name());
            assert!(volume.info().expect("told").strict);
            holds(volume, byte);
            put(volume, 9);
        }

        volume.revert(&old, false).expect("reverted");
        holds(&volume, 1);
        assert_eq!(volume.share(), expected, "settings have no past");
        let (id, asked) = (volume.id(), Deletion { force: true, ..Deletion::default() });
        pool.remove_volume("homes", asked).expect("deleted");
        let change = ShareChange { metadata: Some(Metadata::Stable), ..ShareChange::default() };
        let error = pool.change_share("homes", &change).expect_err("in the trash");
        assert_eq!(error.kind, ErrorKind::NotFound);
        drop((volume, clone, copied));
        pool.close().expect("closed");
        drop(pool);
        let pool = rig.open();
        let volume = pool.undelete_volume(id, None).expect("back");
        assert_eq!(volume.share(), expected, "{architecture:?}");
        holds(&volume, 1);
        // Settings of clones are their own.
        pool.change_share("homes", &change).expect("changed");
        assert_eq!(pool.volume("c").expect("there").share(), expected);
        pool.verify_invariants().expect("sound");
    }
}

#[test]
fn reads_are_logged_anew_after_a_revert_and_of_a_clone() {
    let rig = Rig::new(96 * MIB, MIB);
    let pool = rig.open();
    let (volume, _) = make(&pool, Architecture::Logging);
    let since = |volume: &Volume| volume.share().expect("a share").reads_since_ns;
    let first = put(&volume, 1);
    put(&volume, 2);
    volume.revert(&Moment::Seq(first), false).expect("reverted");
    assert_eq!(since(&volume), None, "nobody asked for it");
    let log_reads = ShareChange { log_reads: Some(true), ..ShareChange::default() };
    pool.change_share("home", &log_reads).expect("changed");
    let on = since(&volume).expect("logged");
    let first = put(&volume, 1);
    put(&volume, 2);
    assert_eq!(volume.revert(&Moment::Latest, false).map(|_| since(&volume)).ok(), Some(Some(on)));
    let last = volume.info().expect("told").latest.time;
    volume.revert(&Moment::Seq(first), false).expect("reverted");
    assert!(
        since(&volume).expect("logged") >= last.as_nanos(),
        "readers go on with what they read"
    );
    let at = since(&volume);
    let clone = pool.clone_volume("home", &Moment::Latest, "c").expect("cloned");
    assert!(since(&clone) >= at);
    assert_eq!(since(&volume), at);
}

#[test]
fn a_share_that_is_deleted_for_good_allows_nobody() {
    let rig = Rig::new(96 * MIB, MIB);
    let pool = rig.open();
    let (volume, _) = make(&pool, Architecture::Logging);
    let clone = pool.clone_volume("home", &Moment::Latest, "c").expect("cloned");
    let asked = Deletion { grace_ns: Some(0), force: true, ..Deletion::default() };
    pool.remove_volume("home", asked).expect("deleted");
    assert_eq!(volume.share(), None);
    assert!(clone.share().is_some());
}

#[test]
fn each_change_is_told_and_a_refused_one_changes_nothing() {
    let rig = Rig::new(96 * MIB, MIB);
    let pool = rig.open();
    let (volume, share) = make(&pool, Architecture::Logging);
    pool.create_volume(&VolumeSpec::new("disk", 8 * MIB)).expect("made");
    let deny = |text| ShareChange { deny: vec![network(text)], ..ShareChange::default() };
    let mut late = deny("10.1.0.0/16");
    late.deny.push(network("10.2.0.0/16"));
    let allow = (0..=1024).map(|n| Allowed::new(network(&format!("10.9.{}.{}", n / 256, n % 256))));
    let many = ShareChange { allow: allow.collect(), ..ShareChange::default() };
    for (name, change, kind) in [
        ("home", &deny("10.1.0.0/17"), ErrorKind::NotFound),
        ("home", &late, ErrorKind::NotFound),
        ("home", &many, ErrorKind::Invalid),
        ("disk", &deny("10.1.0.0/16"), ErrorKind::Invalid),
        ("none", &deny("10.1.0.0/16"), ErrorKind::NotFound),
    ] {
        let error = pool.change_share(name, change).expect_err("refused");
        assert_eq!((&error.kind, error.hint.is_some()), (&kind, true), "{error}");
        assert_eq!(volume.share(), Some(Arc::clone(&share)));
    }
    assert_eq!(pool.volume("disk").expect("there").share(), None);
    assert!(pool.change_share("home", &deny("10.1.9.9/16")).expect("gone").allowed.is_empty());
    let told: Vec<_> = pool.audit(0, 100).expect("read").into_iter().collect();
    let told: Vec<_> = told
        .iter()
        .filter(|record| record.volume == "home")
        .map(|record| (&*record.action, &*record.detail))
        .collect();
    let allowed = "metadata server; allowed 10.1.0.0/16 reads and writes, squash all, anonymous \
                   65534:65534, ports below 1024, past all";
    let expected = [
        ("volume-create", "a share, every-write"),
        ("share-set", allowed),
        ("share-set", "denied 10.1.0.0/16"),
    ];
    assert_eq!(told, expected);
}

#[test]
fn no_share_has_a_size_or_a_cache() {
    let rig = Rig::new(96 * MIB, MIB);
    let pool = rig.open();
    let share = || VolumeSpec::share("s");
    let cache = CacheChange { bytes: Some(MIB), ..CacheChange::default() };
    let twice = ShareSetting {
        allowed: vec![Allowed::new(network("10.0.0.7")); 2],
        ..ShareSetting::default()
    };
    for spec in [
        VolumeSpec { size_bytes: 8 * MIB, ..share() },
        VolumeSpec { size_bytes: SHARE_BYTES - BLOCK, ..share() },
        VolumeSpec { strict: false, ..share() },
        VolumeSpec { cache, ..share() },
        VolumeSpec { architecture: Architecture::Hybrid, ..share() },
        VolumeSpec { architecture: Architecture::SplitDownstream, ..share() },
        VolumeSpec {
            architecture: Architecture::Redirect,
            granularity: hindsight_volume::Granularity::OnDemand,
            copy_unit: MapExtent::ALL[4],
            ..share()
        },
        VolumeSpec { share: Some(twice), ..share() },
    ] {
        let error = pool.create_volume(&spec).map(drop).expect_err("refused");
        assert_eq!(error.kind, ErrorKind::Invalid, "{spec:?}: {error}");
    }
    assert!(pool.volumes().is_empty());

    let volume = pool.create_volume(&share()).expect("made");
    let to = |size| VolumeChange { size_bytes: Some(size), ..VolumeChange::default() };
    for change in [
        to(SHARE_BYTES),
        to(8 * MIB),
        VolumeChange { window_ns: Some(5), ..to(SHARE_BYTES) },
        VolumeChange { cache, ..VolumeChange::default() },
        VolumeChange { architecture: Some(Architecture::Hybrid), ..VolumeChange::default() },
        VolumeChange {
            architecture: Some(Architecture::SplitDownstream),
            ..VolumeChange::default()
        },
    ] {
        for outcome in [volume.check_change(&change), volume.change(&change)] {
            let error = outcome.expect_err("refused");
            let told = (error.kind, error.hint.is_some());
            assert_eq!(told, (ErrorKind::Invalid, true), "{change:?}: {}", error.message);
        }
    }
    let error = volume.resize(8 * MIB).expect_err("refused");
    assert_eq!(error.message, "s is a share: it has no size");
    let change = VolumeChange { window_ns: Some(5), ..VolumeChange::default() };
    volume.change(&change).expect("changed");
    let info = volume.info().expect("told");
    assert_eq!((info.size_bytes, info.window_ns), (SHARE_BYTES, 5));
}

#[test]
fn another_architecture_keeps_a_share_as_it_is() {
    let rig = Rig::new(256 * MIB, MIB);
    let pool = rig.open();
    let (volume, share) = make(&pool, Architecture::Logging);
    put(&volume, 1);
    for to in [1, 2, 3, 0].map(|at: usize| ALONE[at]) {
        let change = VolumeChange { architecture: Some(to), ..VolumeChange::default() };
        volume.change(&change).expect("changed");
        while pool.step(Budget { bytes: 8 * MIB }).expect("stepped") {}
        holds(&volume, 1);
        assert_eq!(volume.share(), Some(Arc::clone(&share)), "{to:?}");
        pool.verify_invariants().expect("sound");
    }
}
