//! Sessions over a pool in a file: the past by name, changes, and many writers at once.

use std::sync::Arc;

use block::MediaDevice;
use env::{FileMedia, RealClock, RealEntropy};
use units::{Moment, Seq};
use volume::{
    Architecture, CacheChange, Deletion, Machine, Pool, PoolFormat, PoolOptions, Volume, VolumeSpec,
};
use wire::nbd::{Command, CommandFlags, OptionCode, OptionReplyKind, ReplyStyle, Request, encode};

use super::client::Client;
use super::rig::Rig;
use super::tools::python;
use crate::serving::{Export, Exports, Limits, Listed, OpenError, PoolExports};

pub(super) const SIZE: u64 = 16 << 20;

/// A pool with one volume, `vol`, and a server of it.
struct PoolRig {
    rig: Rig,
    pool: Arc<Pool>,
    volume: Arc<Volume>,
    _dir: tempfile::TempDir,
}

/// Every architecture, without a cache (unless it needs one) and with one.
fn kinds() -> Vec<(Architecture, CacheChange)> {
    let cached = CacheChange { bytes: Some(1 << 20), dirty_percent: Some(20) };
    let with = Architecture::ALL.into_iter();
    let without = with.clone().filter(|architecture| !architecture.needs_cache());
    let without = without.map(|architecture| (architecture, CacheChange::default()));
    without.chain(with.map(|architecture| (architecture, cached))).collect()
}

pub(super) fn spec(name: &str, architecture: Architecture, cache: CacheChange) -> VolumeSpec {
    VolumeSpec { architecture, window_ns: 3_600_000_000_000, cache, ..VolumeSpec::new(name, SIZE) }
}

fn pool_rig() -> PoolRig {
    pool_rig_of(Architecture::Logging, CacheChange::default())
}

fn pool_rig_of(architecture: Architecture, cache: CacheChange) -> PoolRig {
    let dir = tempfile::tempdir().expect("directory");
    let media = FileMedia::create(&dir.path().join("pool.img"), 256 << 20).expect("a file");
    let device: Arc<dyn block::BlockDevice> = Arc::new(MediaDevice::new(Arc::new(media)));
    let machine =
        Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) };
    Pool::create(&device, &machine, &PoolFormat { zone_bytes: 1 << 20 }).expect("a pool");
    let options = PoolOptions { memory_bytes: 32 << 20 };
    let pool = Pool::open(device, machine, options).expect("it opens");
    let volume = pool.create_volume(&spec("vol", architecture, cache)).expect("a volume");
    let exports = Arc::new(PoolExports::new(Arc::clone(&pool)));
    let rig = Rig::start(exports, Limits::default(), None);
    PoolRig { rig, pool, volume, _dir: dir }
}

fn refusal(rig: &Rig, export: &str) -> String {
    let mut client = Client::connect(rig);
    let mut data = Vec::new();
    encode::info_request(export, &[], &mut data);
    let replies = client.option(OptionCode::INFO, &data);
    assert_eq!(replies[0].kind, OptionReplyKind::UNKNOWN, "{export}");
    String::from_utf8(replies[0].data.clone()).expect("a text")
}

#[test]
fn the_past_is_opened_by_name_and_does_not_change() {
    for (architecture, cache) in kinds() {
        let PoolRig { rig, volume, .. } = &pool_rig_of(architecture, cache);
        let mut client = Client::begin(rig, "vol", ReplyStyle::Structured);
        assert_eq!(client.ask(Command::Write, 0, &[1; 4096]), 0);
        assert_eq!(client.ask(Command::Write, 5000, &[2; 300]), 0);
        let version = volume.create_version("before").expect("a version");
        volume.create_mark("here", &Moment::Latest, true).expect("a mark");
        let seq = version.stamp.seq;
        assert_eq!(client.ask(Command::Write, 0, &[3; 8192]), 0);
        for name in
            [format!("vol@v:{}", version.number), format!("vol@seq:{seq}"), "vol@mark:here".into()]
        {
            let mut past = Client::begin(rig, &name, ReplyStyle::Structured);
            assert_eq!(past.read(0, 4096), Ok(vec![1; 4096]), "{name}");
            assert_eq!(past.read(4990, 20), Ok([vec![0; 10], vec![2; 10]].concat()));
            assert_eq!(past.ask(Command::Write, 0, &[9; 10]), 1);
        }
        let mut empty = Client::begin(rig, "vol@seq:0", ReplyStyle::Structured);
        assert_eq!(empty.read(0, 8192), Ok(vec![0; 8192]));
        assert_eq!(client.read(0, 8192), Ok(vec![3; 8192]));
    }
}

#[test]
fn names_that_cannot_be_opened_are_explained() {
    let PoolRig { rig, pool, .. } = &pool_rig();
    assert!(refusal(rig, "nope").contains("nope"));
    assert!(refusal(rig, "vol@v:7").contains('7'));
    assert!(refusal(rig, "vol@-5m").contains("min"), "{}", refusal(rig, "vol@-5m"));
    assert!(refusal(rig, "vol@seq:999999").contains("seq"), "{}", refusal(rig, "vol@seq:999999"));
    let early = refusal(rig, "vol@2001-01-01T00:00:00Z");
    assert!(early.contains("20"), "the valid range is told: {early}");
    Client::begin(rig, "", ReplyStyle::Simple);
    pool.create_volume(&spec("other", Architecture::Logging, CacheChange::default()))
        .expect("a volume");
    assert!(refusal(rig, "").contains("2 volumes"));
}

#[test]
fn a_share_is_no_disk() {
    let PoolRig { rig, pool, .. } = &pool_rig();
    let share = pool.create_volume(&VolumeSpec::share("home")).expect("a share");
    share.create_version("first").expect("a version");
    share.create_mark("pinned", &Moment::Latest, true).expect("a mark");
    pool.clone_volume("home", &Moment::Latest, "copy").expect("a clone");
    for name in ["home", "home@v:0", "home@latest", "copy"] {
        let told = refusal(rig, name);
        let volume = name.split('@').next().expect("a name");
        assert_eq!(
            told,
            format!(
                "{volume} is a share: mount it over NFS; `hindsight share show {volume}` says how"
            )
        );
    }
    // The one disk that there is is what no name means.
    Client::begin(rig, "", ReplyStyle::Simple);
    let exports = PoolExports::new(Arc::clone(pool));
    let names: Vec<String> = exports.list(100).into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["vol"]);
    let presents = exports.presents();
    assert_eq!(presents.iter().map(|one| one.name()).collect::<Vec<_>>(), ["vol"]);
    let refused = exports.open("home").map(drop).expect_err("refused");
    assert!(!refused.may_pass, "initiators do not try for ever");
}

/// Deletes a volume when it has just been opened, before its client is on the register.
struct DeletedMeanwhile(PoolExports, Arc<Pool>);

impl Exports for DeletedMeanwhile {
    fn open(&self, name: &str) -> Result<Arc<dyn Export>, OpenError> {
        let opened = self.0.open(name)?;
        let asked = Deletion { grace_ns: None, force: false, dry_run: false };
        self.1.remove_volume("vol", asked)?;
        Ok(opened)
    }

    fn list(&self, limit: usize) -> Vec<Listed> {
        self.0.list(limit)
    }
}

#[test]
fn a_volume_that_is_deleted_while_a_client_attaches_is_none_for_it() {
    let PoolRig { pool, .. } = &pool_rig();
    let exports = DeletedMeanwhile(PoolExports::new(Arc::clone(pool)), Arc::clone(pool));
    let rig = Rig::start(Arc::new(exports), Limits::default(), None);
    let mut client = Client::connect(&rig);
    let mut data = Vec::new();
    encode::info_request("vol", &[], &mut data);
    let replies = client.option(OptionCode::GO, &data);
    assert_eq!(replies[0].kind, OptionReplyKind::UNKNOWN, "{replies:?}");
}

#[test]
fn volumes_versions_and_pinned_marks_are_listed() {
    let PoolRig { rig, volume, .. } = &pool_rig();
    volume.create_version("first").expect("a version");
    volume.create_mark("pinned", &Moment::Latest, true).expect("a mark");
    volume.create_mark("loose", &Moment::Latest, false).expect("a mark");
    let mut client = Client::connect(rig);
    let replies = client.option(OptionCode::LIST, &[]);
    let names: Vec<String> = replies[..replies.len() - 1]
        .iter()
        .map(|r| {
            let length = u32::from_be_bytes(*r.data.first_chunk().expect("a length")) as usize;
            String::from_utf8(r.data[4..4 + length].to_vec()).expect("a name")
        })
        .collect();
    assert_eq!(names, ["vol", "vol@v:0", "vol@mark:pinned"]);
}

#[test]
fn block_status_tells_what_changed_since_a_moment() {
    for (architecture, cache) in kinds() {
        let PoolRig { rig, volume, .. } = &pool_rig_of(architecture, cache);
        let mut client = Client::begin(rig, "vol", ReplyStyle::Simple);
        client.ask(Command::Write, 0, &vec![1; 65536]);
        let version = volume.create_version("").expect("a version").number;
        client.ask(Command::Write, 8192, &[2; 4096]);
        client.ask(Command::Write, 20000, &[3; 10]);
        let script = format!(
            r#"
import nbd
def status(export, context):
    h = nbd.NBD()
    h.add_meta_context(context)
    h.set_export_name(export)
    h.connect_unix("{socket}")
    found = []
    offset = 0
    size = h.get_size()
    def extent(name, at, entries, error):
        nonlocal offset
        for i in range(0, len(entries), 2):
            if found and found[-1][1] == entries[i + 1]:
                found[-1][0] += entries[i]
            else:
                found.append([entries[i], entries[i + 1]])
            offset += entries[i]
    while offset < size:
        h.block_status(size - offset, offset, extent)
    h.shutdown()
    return found
rest = {SIZE} - 20480
found = status("vol", "x-hindsight:changed@v:{version}")
assert found == [[8192, 0], [4096, 1], [4096, 0], [4096, 1], [rest, 0]], found
assert status("vol@v:{version}", "x-hindsight:changed@seq:0") == [[65536, 1], [{SIZE} - 65536, 0]]
assert status("vol", "x-hindsight:changed@latest") == [[{SIZE}, 0]]
assert status("vol", "base:allocation") == [[65536, 0], [{SIZE} - 65536, 3]]
"#,
            socket = rig.socket.display()
        );
        python(&script);
    }
}

#[test]
fn a_resize_is_an_event_and_the_past_keeps_its_size() {
    for (architecture, cache) in kinds() {
        let PoolRig { rig, volume, .. } = &pool_rig_of(architecture, cache);
        let mut client = Client::begin(rig, "vol", ReplyStyle::Structured);
        client.ask(Command::Write, SIZE - 4096, &[1; 4096]);
        let before = volume.resolve(&Moment::Latest).expect("now").seq;
        assert_eq!(client.ask_for(Command::Resize, SIZE / 2, 0, &[]), 0);
        assert_eq!(client.ask(Command::Write, SIZE / 2, &[1; 512]), 28);
        assert_eq!(client.ask_for(Command::Resize, SIZE / 2 + 1, 0, &[]), 22);
        let Seq(before) = before;
        let mut past = Client::begin(rig, &format!("vol@seq:{before}"), ReplyStyle::Structured);
        assert_eq!(past.read(SIZE - 4096, 4096), Ok(vec![1; 4096]));
    }
}

#[test]
fn parts_of_one_block_written_at_once_all_arrive() {
    for (architecture, cache) in kinds() {
        let PoolRig { rig, .. } = &pool_rig_of(architecture, cache);
        let mut client = Client::begin(rig, "vol", ReplyStyle::Simple);
        for round in 1..=20_u8 {
            let mut burst = Vec::new();
            for part in 0..64_u64 {
                let request = client.request(Command::Write, 4096 + part * 64, 64);
                burst.extend_from_slice(
                    encode::request(&request, client.style.headers()).as_bytes(),
                );
                burst.extend([round ^ part as u8; 64]);
            }
            std::io::Write::write_all(&mut client.socket, &burst).expect("send");
            for _ in 0..64 {
                assert_eq!(client.reply(0).error, 0);
            }
            let block = client.read(4096, 4096).expect("it reads");
            let expected: Vec<u8> = (0..4096).map(|i| round ^ (i / 64) as u8).collect();
            assert!(block == expected, "round {round}");
        }
    }
}

#[test]
fn four_clients_write_and_flush_side_by_side() {
    for (architecture, cache) in kinds() {
        let rig = pool_rig_of(architecture, cache);
        std::thread::scope(|scope| {
            for number in 0..4_u64 {
                let rig = &rig.rig;
                scope.spawn(move || {
                    let mut client = Client::begin(rig, "vol", ReplyStyle::Structured);
                    let base = number * (SIZE / 4);
                    for step in 0..40_u64 {
                        let offset = base + (step * 7919) % (SIZE / 4 - 70_000);
                        let bytes =
                            vec![(number * 40 + step) as u8 | 1; 1 + (step * 1777) as usize];
                        let flags = if step % 8 == 0 { CommandFlags::FUA } else { CommandFlags(0) };
                        let request = client.request(Command::Write, offset, bytes.len() as u64);
                        client.send(&Request { flags, ..request }, &bytes);
                        assert_eq!(client.reply(0).error, 0);
                        assert!(client.read(offset, bytes.len()) == Ok(bytes));
                    }
                    assert_eq!(client.ask(Command::Flush, 0, &[]), 0);
                });
            }
        });
        rig.pool.verify_invariants().expect("the pool is sound");
    }
}

#[test]
fn a_resize_says_in_the_audit_log_who_asked_for_it() {
    let PoolRig { rig, pool, _dir, .. } = pool_rig();
    let resized = |mut client: Client, bytes: u64| {
        assert_eq!(client.ask_for(Command::Resize, bytes, 0, &[]), 0);
        let last = pool.audit(0, 1000).expect("the log").pop().expect("a record");
        assert_eq!(last.action, "resize");
        last.who.expect("a caller")
    };
    let own = resized(Client::begin(&rig, "vol", ReplyStyle::Structured), 2 * SIZE);
    assert!(own.starts_with(&format!("unix:{}", rustix::process::getuid().as_raw())), "{own}");
    let client = Client::connect_tcp(&rig).at_export("vol", ReplyStyle::Structured, &[]);
    assert!(resized(client, 3 * SIZE) == "nbd");
}
