//! `docs/format/catalogue.md` and the code say the same: tables, their types, the fields of JSON
//! records, the places in a segment record.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use format::superblock::Superblock;
use redb::{TableError, WriteTransaction};
use serde::Serialize;
use units::{Role, Sensitivity, WallTime};

use super::{
    ALL_TABLES, AlarmRecord, Catalogue, CatalogueMedia, CompactionRecord, ConversionRecord,
    EventRecord, GroupRecord, GroupVersionRecord, MarkRecord, OpenedNameRecord, RunRecord, Sample,
    ScheduleRecord, ScheduledRecord, ScrubPhase, ScrubRecord, ScrubScheduleRecord, SegmentRecord,
    SourceRecord, TargetRecord, TimelineRecord, TokenRecord, TrashRecord, UnitRecord,
    VersionRecord, VolumeRecord, WatchRecord, tables,
};
use crate::ErrorKind;
use crate::pool::run_figures::{Figures, SpanFigures};
use crate::retention::keep_rules::KeepRules;
use crate::retention::open_files::OpenFiles;
use crate::types::{
    Access, AlarmKind, Allowed, Architecture, AuditRecord, CacheSetting, Compaction, Consistency,
    Credential, Encoding, EncodingSetting, Grace, Granularity, InitiatorPort, Proof, Registration,
    Reservation, ReservationKind, Reservations, Secret, ShareSetting, Verdict,
};

/// The cells of the first table under a heading.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format/catalogue.md");
    let text = std::fs::read_to_string(&path).expect("the page is there");
    let after = text.lines().skip_while(|line| *line != format!("## {heading}"));
    let table = after.skip_while(|line| !line.starts_with('|')).take_while(|l| l.starts_with('|'));
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let rows: Vec<_> = table.skip(2).map(cells).collect();
    assert!(!rows.is_empty(), "no table under {heading}");
    rows
}

/// The first text between backticks.
fn quoted(cell: &str) -> String {
    cell.split('`').nth(1).unwrap_or_else(|| panic!("nothing is quoted in {cell}")).to_owned()
}

#[test]
fn the_page_names_every_table_and_its_types() {
    let told: Vec<Vec<String>> =
        rows("Tables").iter().map(|row| row.iter().map(|cell| quoted(cell)).collect()).collect();
    assert_eq!(told, tables::types());
}

fn fields(record: &str, value: &impl Serialize) -> Vec<(String, String)> {
    let value = serde_json::to_value(value).expect("records are plain data");
    let names = value.as_object().expect("records are objects").keys();
    names.map(|name| (record.to_owned(), name.clone())).collect()
}

fn conversion() -> ConversionRecord {
    ConversionRecord { from: Architecture::Redirect, since_ns: 1 }
}

fn source() -> SourceRecord {
    SourceRecord {
        file: "/image".to_owned(),
        length_bytes: 1,
        inode: 1,
        modified_ns: 1,
        changed_ns: 1,
        orders_below: 1,
        moment: true,
    }
}

fn encoding() -> EncodingSetting {
    EncodingSetting { encoding: Encoding::Delta, after_ns: 1 }
}

fn proof() -> Proof {
    Proof {
        seq: 1,
        time_ns: 1,
        hook: "boots".to_owned(),
        verdict: Verdict::Good,
        proved_ns: 1,
        took_ns: 1,
        said: "exit status: 0".to_owned(),
    }
}

fn alarm() -> AlarmRecord {
    AlarmRecord {
        mark: "watch-20261129T100000Z".to_owned(),
        seq: 1,
        time_ns: 1,
        given_ns: 1,
        kind: AlarmKind::Wiped,
        bytes: 1,
    }
}

fn watch() -> WatchRecord {
    WatchRecord { sensitivity: Sensitivity::High, alarms: vec![alarm()] }
}

fn trash() -> TrashRecord {
    TrashRecord { deleted_ns: 1, until_ns: 2 }
}

fn grace() -> Grace {
    Grace { until_ns: 1, window_ns: 1, history_limit_bytes: None }
}

fn figures() -> Figures {
    let span = SpanFigures { after: 1, until: 2, blocks: 1, pinned: 1, own: 1 };
    Figures { newest: 1, spans: vec![span] }
}

fn volume() -> VolumeRecord {
    VolumeRecord {
        id: 1,
        name: "v".to_owned(),
        deleted: false,
        created_ns: 1,
        created_seq: 0,
        cloned_from: None,
        window_ns: 1,
        history_limit_bytes: None,
        granularities: vec![
            (0, Granularity::EveryWrite),
            (1, Granularity::Interval(5)),
            (2, Granularity::OnDemand),
        ],
        sizes: vec![(0, 4096)],
        line: vec![(0, 1)],
        events: Vec::new(),
        horizon_seq: 0,
        horizon_ns: 1,
        reclaimed_to: 0,
        flushed_seq: 0,
        flushed_ns: 0,
        flushed_bytes_total: 0,
        flushed_flushes_total: 0,
        voids: Vec::new(),
        next_version: 0,
        architecture: Architecture::SplitStream,
        placed: vec![(0, 1)],
        cache: Some(CacheSetting { bytes: 1 << 20, dirty_percent: 3 }),
        conversion: Some(conversion()),
        extent: units::MapExtent::ALL[4],
        copy_unit: units::MapExtent::ALL[4],
        encoding: Some(encoding()),
        dedup: true,
        common: 1,
        uncut: 1,
        grace: Some(grace()),
        trash: Some(trash()),
        scratch_until_ns: Some(1),
        proofs: vec![proof()],
        watch: Some(watch()),
        access: access(),
        reservations: reservations(),
        hook: Some("freeze".to_owned()),
        strict: true,
        share: Some(Arc::new(share())),
    }
}

fn share() -> ShareSetting {
    let network = "10.1.0.0/16".parse().expect("a network");
    let allowed = Allowed { read_only: true, any_port: true, ..Allowed::new(network) };
    let reads_since_ns = Some(1);
    ShareSetting { allowed: vec![allowed], reads_since_ns, ..ShareSetting::default() }
}

fn access() -> Access {
    let secret = Secret::new("twelve bytes".replace(' ', "-")).expect("it fits");
    let one = Credential { user: "u".to_owned(), secret };
    Access { chap: Some(one.clone()), mutual: Some(one), allow: vec!["iqn.a".to_owned()] }
}

fn reservations() -> Reservations {
    let port = InitiatorPort { initiator: "iqn.a".to_owned(), isid: [0; 6] };
    let kind = ReservationKind::WriteExclusive;
    Reservations {
        registrations: vec![Registration { port: port.clone(), key: 1, all_ports: true }],
        held: Some(Reservation { port, kind }),
    }
}

fn group() -> GroupRecord {
    GroupRecord {
        id: 1,
        name: "g".to_owned(),
        members: vec![1],
        created_ns: 1,
        next_version: 1,
        hook: Some("freeze".to_owned()),
    }
}

fn target() -> TargetRecord {
    TargetRecord {
        id: 1,
        name: "t".to_owned(),
        created_ns: 1,
        units: vec![UnitRecord { number: 1, volume: 1, seq: Some(1) }],
        retired: vec![0],
        access: Access { allow: vec!["iqn.a".to_owned()], ..Access::default() },
    }
}

fn token() -> TokenRecord {
    TokenRecord {
        id: "abcdefghij".to_owned(),
        secret_sha256: "00".repeat(32),
        role: Role::Keeper,
        volumes: vec!["pg*".to_owned()],
        created_ns: 1,
        made_by: Some("unix:0 root".to_owned()),
        expires_ns: Some(1),
        chap: Some(Secret::new("twelvechars1".to_owned()).expect("a secret")),
        used_day: 1,
    }
}

fn capture(scheduled: ScheduledRecord) -> GroupVersionRecord {
    GroupVersionRecord {
        time_ns: 1,
        label: String::new(),
        consistency: Consistency::QuiesceFailed,
        versions: vec![(1, 0)],
        scheduled: Some(scheduled),
    }
}

fn scrub() -> ScrubRecord {
    ScrubRecord {
        started_ns: 1,
        ended_ns: Some(1),
        stopped: true,
        phase: ScrubPhase::Runs,
        repaired: 1,
        elsewhere: 1,
        suspects: vec![(1, 64, 128)],
        ..ScrubRecord::default()
    }
}

const MARK: MarkRecord = MarkRecord { seq: 1, time_ns: 1, pinned: true, created_ns: 1 };

const COMPACTION: CompactionRecord =
    CompactionRecord { wish: Compaction::Uncompacted, asked_ns: 1, done: true, packed: 1, raw: 1 };

fn audit() -> AuditRecord {
    let text = String::new;
    let (action, volume, detail, caller) = (text(), text(), text(), Some(text()));
    let (who, from) = (Some(text()), Some(text()));
    AuditRecord { number: 1, time_ns: 1, action, volume, detail, caller, who, from }
}

fn keep() -> KeepRules {
    KeepRules { last: 1, hourly: 1, daily: 1, weekly: 1, monthly: 1, yearly: 1, within_ns: 1 }
}

fn schedule() -> ScheduleRecord {
    ScheduleRecord {
        id: 1,
        every_ns: Some(1),
        cron: Some(String::new()),
        keep: keep(),
        label: String::new(),
        hook: Some(String::new()),
        prove: Some(String::new()),
        set_ns: 1,
        done_ns: 1,
    }
}

#[test]
fn the_page_names_every_field_of_every_json_record() {
    let told: Vec<(String, String)> =
        rows("JSON records").iter().map(|row| (row[0].clone(), quoted(&row[1]))).collect();
    let text = String::new;
    let event = EventRecord { seq: 1, time_ns: 1, kind: text(), detail: text() };
    let run = RunRecord { id: 1, owner: 1, order: 1, extents: Vec::new(), entries: 1 };
    let scheduled = ScheduledRecord { schedule: 1, made_ns: 1 };
    let version = VersionRecord {
        seq: 1,
        time_ns: 1,
        label: text(),
        bytes_changed: None,
        is_bound: true,
        consistency: Consistency::Quiesced,
        scheduled: Some(scheduled),
        open_files: Some(1),
    };
    let (keep, schedule) = (keep(), schedule());
    let code: BTreeSet<(String, String)> = [
        fields("volume", &volume()),
        fields("conversion", &conversion()),
        fields("encoding", &encoding()),
        fields("event", &event),
        fields("timeline", &TimelineRecord { id: 1, log: 1, parent: None, source: Some(source()) }),
        fields("source", &source()),
        fields("run", &run),
        fields("version", &version),
        fields("scheduled", &scheduled),
        fields("mark", &MARK),
        fields("schedule", &schedule),
        fields("keep", &keep),
        fields("compaction", &COMPACTION),
        fields("group", &group()),
        fields("target", &target()),
        fields("unit", &target().units[0]),
        fields("token", &token()),
        fields("capture", &capture(scheduled)),
        fields("audit", &audit()),
        fields("grace", &grace()),
        [
            fields("trash", &trash()),
            fields("proof", &proof()),
            fields("watch", &watch()),
            fields("alarm", &alarm()),
        ]
        .concat(),
        fields("access", &access()),
        fields("reservations", &reservations()),
        fields("registration", &reservations().registrations[0]),
        fields("reservation", &reservations().held.expect("it is held")),
        fields("port", &reservations().registrations[0].port),
        fields("opened name", &OpenedNameRecord { volume: 1, seq: 1, gone_ns: Some(1) }),
        fields("share", &share()),
        fields("allowed", &share().allowed[0]),
        fields("credential", &access().chap.expect("it has one")),
        fields("open files", &OpenFiles::default()),
        fields("figures", &figures()),
        fields("sample", &Sample { pool_bytes: 1, volumes: vec![(1, 1)], history: vec![(1, 1)] }),
        fields("span", &figures().spans[0]),
        fields("scrub", &scrub()),
        fields("scrub schedule", &ScrubScheduleRecord { every_ns: 1, set_ns: 1 }),
    ]
    .into_iter()
    .flatten()
    .collect();
    assert_eq!(told.len(), code.len(), "a field is told twice, or not at all");
    assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), code);
    let granularities = serde_json::to_string(&volume().granularities).expect("plain data");
    assert_eq!(granularities, r#"[[0,"every-write"],[1,{"interval":5}],[2,"on-demand"]]"#);
}

#[test]
fn the_page_tells_the_places_in_a_segment_record() {
    let record = SegmentRecord {
        zone: 0x0a0b_0c0d,
        end: 0x0102_0304,
        log: 2,
        nonce: 3,
        last_seq: 4,
        live_entries: 5,
        sealed: true,
        packed: 6,
        shared: true,
    };
    let bytes = record.encode();
    let mut at = 0;
    for row in rows("Segment record") {
        let (offset, size): (usize, usize) =
            (row[0].parse().expect("a number"), row[1].parse().expect("a number"));
        assert_eq!(offset, at, "{row:?} follows what is before it");
        at += size;
        let mut word = [0; 8];
        word[..size].copy_from_slice(&bytes[offset..at]);
        let expected = match row[2].as_str() {
            "zone" => u64::from(record.zone),
            "end" => u64::from(record.end),
            "log" => record.log,
            "nonce" => record.nonce,
            "last_seq" => record.last_seq,
            "live_entries" => 5,
            "flags" => 3,
            "packed" => 6,
            other => panic!("there is no field {other}"),
        };
        assert_eq!(u64::from_le_bytes(word), expected, "{row:?}");
    }
    assert_eq!(at, SegmentRecord::BYTES);
    assert_eq!(SegmentRecord::decode(&bytes), Some(record));
}

/// A catalogue of its own, with so many features.
fn media(features_incompatible: u64) -> CatalogueMedia {
    let superblock = Superblock {
        format_version: format::FORMAT_VERSION,
        features_compatible: 0,
        features_read_only: 0,
        features_incompatible,
        generation: 0,
        pool_id: 1,
        zone_bytes: 1 << 20,
        device_bytes: 16 << 20,
        created: WallTime::from_nanos(0),
        secret: 1,
        catalogue_bytes: 0,
        catalogue_zones: Vec::new(),
    };
    let mut zones = 1..16;
    let take_zone = move || zones.next().ok_or_else(|| std::io::ErrorKind::StorageFull.into());
    let device = Arc::new(block::MemoryDevice::new(16 << 20));
    CatalogueMedia::new(device, superblock, Box::new(take_zone))
}

#[test]
fn a_table_that_is_not_there_is_damage_once_all_are_and_empty_before() {
    for features in [0, ALL_TABLES] {
        let media = media(features);
        let catalogue = Catalogue::create(media.clone()).expect("made");
        let commit = catalogue.begin().expect("begun");
        let was_there = commit.transaction.delete_table(tables::GROUPS.definition());
        assert!(was_there.expect("deleted"));
        commit.commit().expect("durable");
        drop(catalogue);
        let opened = Catalogue::open(media, &mut |_, _| ());
        if features == ALL_TABLES {
            assert_eq!(opened.err().map(|e| e.kind), Some(ErrorKind::Corrupt));
            continue;
        }
        let mut catalogue = opened.expect("opened");
        assert_eq!(catalogue.all(tables::GROUPS).expect("none yet"), []);
        catalogue.make_tables().expect("made");
        catalogue.has_all_tables = true;
        assert_eq!(catalogue.all(tables::GROUPS).expect("there"), []);
    }
}

#[test]
fn a_table_of_tokens_comes_with_the_first_and_one_that_cannot_be_read_lets_nobody_in() {
    let media = media(ALL_TABLES);
    let catalogue = Catalogue::create(media.clone()).expect("made");
    assert!(!catalogue.has_table("tokens").expect("read"), "a pool without any stays as it is");
    assert_eq!(catalogue.get(tables::TOKENS, "nightly").expect("none"), None);
    let commit = catalogue.begin().expect("begun");
    commit.put(tables::TOKENS, "nightly", &token()).expect("put");
    let later = br#"{"id": "a", "secret_sha256": "", "role": "auditor", "created_ns": 1}"#;
    let mut open = commit.transaction.open_table(tables::TOKENS.definition()).expect("opened");
    open.insert("of-a-later-program", &later[..]).expect("put");
    drop(open);
    commit.commit().expect("durable");
    drop(catalogue);
    let catalogue = Catalogue::open(media, &mut |_, _| ()).expect("opened");
    let mut read = Vec::new();
    let each = catalogue.each(tables::TOKENS, ""..="~", |name, record| {
        read.push((name.to_owned(), record.is_ok()));
        Ok(true)
    });
    each.expect("all of them");
    assert_eq!(read, [("nightly".to_owned(), true), ("of-a-later-program".to_owned(), false)]);
}

#[test]
fn a_table_that_every_program_made_is_missed_in_a_pool_of_an_older_one() {
    type Delete = fn(&WriteTransaction) -> std::result::Result<bool, TableError>;
    let deletes: [Delete; 4] = [
        |tx| tx.delete_table(tables::VOLUMES.definition()),
        |tx| tx.delete_table(tables::TIMELINES.definition()),
        |tx| tx.delete_table(tables::SEGMENTS.definition()),
        |tx| tx.delete_table(tables::SPARES.definition()),
    ];
    for delete in deletes {
        let media = media(0);
        let catalogue = Catalogue::create(media.clone()).expect("made");
        let commit = catalogue.begin().expect("begun");
        assert!(delete(&commit.transaction).expect("deleted"));
        commit.commit().expect("durable");
        drop(catalogue);
        let catalogue = Catalogue::open(media, &mut |_, _| ()).expect("opened");
        let loaded = catalogue.load();
        assert_eq!(loaded.err().map(|e| e.kind), Some(ErrorKind::Corrupt));
    }
}

#[test]
fn a_table_of_slabs_is_missed_where_a_volume_has_some() {
    type Delete = fn(&WriteTransaction) -> std::result::Result<bool, TableError>;
    let current: Delete = |tx| tx.delete_table(tables::SLABS.definition());
    let bases: Delete = |tx| tx.delete_table(tables::BASES.definition());
    for (architecture, delete, is_sound) in [
        (Architecture::Logging, current, true),
        (Architecture::SplitStream, current, false),
        (Architecture::SplitStream, bases, true),
        (Architecture::Checkpointing, bases, false),
    ] {
        let media = media(0);
        let catalogue = Catalogue::create(media.clone()).expect("made");
        let commit = catalogue.begin().expect("begun");
        let record = VolumeRecord { architecture, ..volume() };
        commit.put(tables::VOLUMES, record.id, &record).expect("put");
        assert!(delete(&commit.transaction).expect("deleted"));
        commit.commit().expect("durable");
        drop(catalogue);
        let catalogue = Catalogue::open(media, &mut |_, _| ()).expect("opened");
        assert_eq!(catalogue.load().is_ok(), is_sound, "{}", architecture.name());
    }
}
