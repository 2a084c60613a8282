//! What a volume lives through, over HTTP.

use std::time::{Duration, Instant};

use api::{
    ChangeVolume, CreateClone, CreateMark, CreateVersion, CreateVolume, DiffQuery, HistoryQuery,
    ListQuery, ProblemKind, Range, Revert, SizeInput, SpanInput,
};
use units::{Size, Span};

use crate::fixture::{Fixture, attach, kind, new_volume, problem};

fn revert(to: &str) -> Revert {
    Revert { to: to.to_owned(), dry_run: false, force: false }
}

#[test]
fn a_volume_is_made_shown_changed_and_deleted() {
    let fixture = Fixture::new();
    let client = &fixture.client;
    let made = client.create_volume(&new_volume("pg", 1 << 30)).expect("create");
    assert_eq!((made.size, made.architecture.as_str()), (1 << 30, "logging"));
    assert_eq!((made.extent, made.window.0.to_string().as_str()), (4096, "1d"));
    let socket = fixture.nbd_socket();
    assert_eq!(made.nbd_uri, Some(format!("nbd+unix:///pg?socket={}", socket.display())));
    let tcp = made.nbd_tcp_uri.expect("TCP");
    assert!(tcp.starts_with("nbd://127.0.0.1:") && tcp.ends_with("/pg"), "{tcp}");
    assert_eq!(client.volumes().expect("list").len(), 1);

    let change = ChangeVolume {
        size: Some(SizeInput(Size(2 << 30))),
        window: Some(SpanInput(Span(3_600_000_000_000))),
        history_limit: Some(Some(SizeInput(Size(1 << 20)))),
        ..ChangeVolume::default()
    };
    let changed = client.change_volume("pg", &change, false).expect("change");
    assert_eq!((changed.size, changed.history_limit), (2 << 30, Some(1 << 20)));
    assert_eq!(changed.window.0.to_string(), "1h");
    let (status, _) = fixture.send("PATCH", "/volumes/pg", "{\"history_limit\": null}");
    assert_eq!(status, 200);
    assert_eq!(client.volume("pg").expect("show").history_limit, None);

    client.delete_volume("pg", false).expect("delete");
    assert_eq!(kind(client.volume("pg")), ProblemKind::NotFound);
    assert_eq!(kind(client.delete_volume("pg", false)), ProblemKind::NotFound);
}

#[test]
fn a_revert_changes_the_present_and_is_undone_and_redone() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    fixture.write(0, 1);
    let good = fixture.write(1, 1);
    fixture.write(0, 2);
    let dry = Revert { dry_run: true, ..revert(&format!("seq:{good}")) };
    let told = client.revert("v", &dry).expect("dry run");
    assert!(told.dry_run);
    assert_eq!((told.changed_bytes, fixture.first_byte(0)), (4096, 2));

    let done = client.revert("v", &revert(&format!("seq:{good}"))).expect("revert");
    assert_eq!((done.changed_bytes, done.to.seq, fixture.first_byte(0)), (4096, good, 1));
    let undone = client.revert("v", &revert(&done.undo)).expect("undo");
    assert_eq!(fixture.first_byte(0), 2);
    client.revert("v", &revert(&undone.undo)).expect("redo");
    assert_eq!(fixture.first_byte(0), 1);
}

#[test]
fn moments_are_resolved_marked_and_captured() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    let first = fixture.write(0, 1);
    let version =
        client.create_version("v", &CreateVersion { label: Some("a".to_owned()), hook: None });
    let version = version.expect("version");
    assert_eq!((version.number, version.seq, version.label.as_str()), (0, first, "a"));
    fixture.write(0, 2);
    let mark = CreateMark { name: "m".to_owned(), at: Some(format!("seq:{first}")), pin: true };
    let mark = client.create_mark("v", &mark).expect("mark");
    assert_eq!((mark.seq, mark.pinned), (first, true));
    for moment in ["v:0", "mark:m", &format!("seq:{first}")] {
        let resolved = client.resolve("v", moment).expect(moment);
        assert_eq!((resolved.seq, resolved.exact), (first, true), "{moment}");
    }
    let at_its_time = client.resolve("v", &mark.time.to_string()).expect("time");
    assert_eq!(at_its_time.seq, first);
    let listed = client.versions("v", &ListQuery::default()).expect("list").entries;
    // What changed is counted behind: first it is a bound.
    let counted = api::Version { bytes_exact: listed[0].bytes_exact, ..version };
    assert_eq!((&listed[..], counted.bytes_changed), (&[counted.clone()][..], 4096));
    assert_eq!(client.marks("v", &ListQuery::default()).expect("list").entries, [mark]);
    client.delete_version("v", 0).expect("delete");
    assert_eq!(kind(client.version("v", 0)), ProblemKind::NotFound);
    client.delete_mark("v", "m").expect("delete");
    assert_eq!(kind(client.delete_mark("v", "m")), ProblemKind::NotFound);
}

#[test]
fn a_mark_is_also_deleted_by_query() {
    let fixture = Fixture::with_volume();
    let mark = CreateMark { name: "m".to_owned(), at: None, pin: false };
    fixture.client.create_mark("v", &mark).expect("mark");
    assert_eq!(fixture.send("DELETE", "/volumes/v/marks?name=m", "").0, 204);
    assert_eq!(fixture.send("DELETE", "/volumes/v/marks?name=m", "").0, 404);
}

#[test]
fn lists_come_in_pages() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    for number in 0..5_u8 {
        client.create_version("v", &CreateVersion::default()).expect("version");
        let mark = CreateMark { name: format!("m{number}"), at: None, pin: false };
        client.create_mark("v", &mark).expect("mark");
    }
    let mut query = ListQuery { limit: Some(2), next: None };
    let mut numbers = Vec::new();
    let mut names = Vec::new();
    loop {
        let page = client.versions("v", &query).expect("page");
        numbers.extend(page.entries.iter().map(|v| v.number));
        query.next = page.next;
        if page.next.is_none() {
            break;
        }
    }
    loop {
        let page = client.marks("v", &query).expect("page");
        names.extend(page.entries.into_iter().map(|m| m.name));
        query.next = page.next;
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
    assert_eq!(names, ["m0", "m1", "m2", "m3", "m4"]);
    let audit = client.audit(&ListQuery { limit: Some(1), next: None }).expect("audit");
    assert_eq!(audit.entries[0].action, "volume-create");
}

#[test]
fn a_diff_comes_in_pages_that_join() {
    let fixture = Fixture::with_volume();
    for block in [1, 3, 4, 9] {
        fixture.write(block, 1);
    }
    let mut query = DiffQuery { from: "seq:0".to_owned(), limit: Some(1), ..DiffQuery::default() };
    let mut ranges = Vec::new();
    loop {
        let page = fixture.client.diff("v", &query).expect("page");
        ranges.extend(page.entries);
        query.next = page.next;
        if page.next.is_none() {
            break;
        }
    }
    let range = |block: u64, blocks: u64| Range { offset: block * 4096, length: blocks * 4096 };
    assert_eq!(ranges, [range(1, 1), range(3, 2), range(9, 1)]);
}

#[test]
fn a_diff_is_of_two_volumes_that_have_a_past_in_common() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    fixture.write(1, 1);
    let clone = CreateClone { name: "c".to_owned(), ..CreateClone::default() };
    client.create_clone("v", &clone).expect("clone");
    for block in [2, 4, 6] {
        fixture.write(block, 2);
    }
    let with = |other: &str, limit, next| {
        let to_volume = Some(other.to_owned());
        let query = DiffQuery { from: "seq:0".to_owned(), to: None, to_volume, limit, next };
        client.diff("v", &query)
    };
    let range = |block: u64| Range { offset: block * 4096, length: 4096 };
    assert_eq!(with("c", None, None).expect("compared").entries, [range(1)]);
    let mut query = DiffQuery {
        from: "latest".to_owned(),
        to_volume: Some("c".to_owned()),
        limit: Some(2),
        ..DiffQuery::default()
    };
    let first = client.diff("v", &query).expect("compared");
    assert_eq!(first.entries, [range(2), range(4)]);
    query.next = first.next;
    let last = client.diff("v", &query).expect("compared");
    assert_eq!((last.entries, last.next), (vec![range(6)], None));
    let path = "/volumes/v/diff?from=latest&to_volume=c&limit=1";
    assert_eq!(fixture.send("GET", path, "").0, 200);
    client.create_volume(&new_volume("w", 1 << 20)).expect("another");
    assert_eq!(kind(with("w", None, None)), ProblemKind::Invalid);
    assert_eq!(kind(with("x", None, None)), ProblemKind::NotFound);
}

#[test]
fn the_pages_of_a_history_hold_every_write_once() {
    let fixture = Fixture::with_volume();
    for block in 0..50 {
        fixture.write(block, 1);
        if block % 10 == 0 {
            fixture.server().pool().volume("v").expect("v").flush().expect("flush");
        }
    }
    let step = || Some("100ms".to_owned());
    let whole = HistoryQuery { step: step(), ..HistoryQuery::default() };
    let whole = fixture.client.history("v", &whole).expect("history");
    assert_eq!(whole.buckets.iter().map(|b| b.writes).sum::<u64>(), 50);
    assert_eq!(whole.events[0].kind, "created");
    let mut query = HistoryQuery { step: step(), limit: Some(1), ..HistoryQuery::default() };
    let mut buckets = Vec::new();
    loop {
        let page = fixture.client.history("v", &query).expect("page");
        assert_eq!(page.events.is_empty(), query.next.is_some());
        buckets.extend(page.buckets);
        query.next = page.next;
        if query.next.is_none() {
            break;
        }
    }
    assert_eq!(buckets, whole.buckets);
    let between = |since: &str, until: &str| {
        let (since, until) = (Some(since.to_owned()), Some(until.to_owned()));
        fixture.client.history("v", &HistoryQuery { since, until, ..HistoryQuery::default() })
    };
    for (since, until) in [("-1h", "-2h"), ("seq:20", "seq:10")] {
        assert_eq!(kind(between(since, until)), ProblemKind::Invalid, "{since} to {until}");
    }
    let before = between("-2d", "-1d").expect("a time before there was anything");
    assert!(before.buckets.is_empty() && before.events.is_empty(), "{before:?}");
    let all = between("-2d", "seq:50").expect("all of it");
    assert_eq!(all.buckets.iter().map(|b| b.writes).sum::<u64>(), 50);
    assert_eq!(all.events.len(), whole.events.len());
}

#[test]
fn a_clone_is_a_volume_of_its_own() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    let at = fixture.write(0, 1);
    fixture.write(0, 2);
    let body = CreateClone {
        name: "c".to_owned(),
        at: Some(format!("seq:{at}")),
        ..CreateClone::default()
    };
    let clone = client.create_clone("v", &body).expect("clone");
    let from = clone.cloned_from.expect("its source");
    assert_eq!((from.volume.as_str(), from.seq), ("v", at));
    assert_eq!(kind(client.create_clone("v", &body)), ProblemKind::Exists);
    client.delete_volume("v", false).expect("delete the source");
    let mut byte = [0];
    let clone = fixture.server().pool().volume("c").expect("c");
    clone.read(0, &mut byte).expect("read");
    assert_eq!(byte, [1]);
}

#[test]
fn a_full_clone_is_copied_and_depends_on_nothing() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    let at = fixture.write(0, 1);
    client.create_version("v", &CreateVersion::default()).expect("create");
    fixture.write(0, 2);
    let at = Some(format!("seq:{at}"));
    let body = CreateClone { name: "c".to_owned(), at, full: true, ..CreateClone::default() };
    let mut clone = client.create_clone("v", &body).expect("clone");
    assert_eq!(clone.cloned_from, None, "in the end it shares nothing");
    let began = Instant::now();
    while let Some(import) = clone.import {
        assert!(began.elapsed() < Duration::from_secs(60), "it is not copied: {import:?}");
        assert_eq!(import.unverified_bytes, 0, "its origin has checksums");
        std::thread::sleep(Duration::from_millis(20));
        clone = client.volume("c").expect("show");
    }
    assert!(client.version("v", 0).expect("show").clones.is_empty());
    let (_, audit) = fixture.send("GET", "/audit", "");
    assert!(audit.contains("\"cloned\"") && audit.contains("in full"), "{audit}");
    let mut byte = [0];
    let clone = fixture.server().pool().volume("c").expect("c");
    clone.read(0, &mut byte).expect("read");
    assert_eq!(byte, [1]);
}

#[test]
fn attached_clients_stop_deletes_and_reverts_unless_forced() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    let good = fixture.write(0, 1);
    fixture.write(0, 2);
    let mut attached = attach(&fixture.nbd_socket(), "v");
    assert_eq!(client.volume("v").expect("show").clients, 1);
    let to = format!("seq:{good}");
    let refused = problem(client.revert("v", &revert(&to)));
    assert_eq!((refused.status, refused.problem_kind()), (409, Some(ProblemKind::Busy)));
    assert!(refused.hint.expect("hint").contains("force"));
    client.revert("v", &Revert { force: true, ..revert(&to) }).expect("forced revert");
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut attached, &mut rest).expect("the session was ended");
    assert_eq!(client.volume("v").expect("show").clients, 0);
    let mut attached = attach(&fixture.nbd_socket(), "v");
    assert_eq!(kind(client.delete_volume("v", false)), ProblemKind::Busy);
    let shrink = ChangeVolume { size: Some(SizeInput(Size(8192))), ..ChangeVolume::default() };
    assert_eq!(kind(client.change_volume("v", &shrink, false)), ProblemKind::Busy);
    client.delete_volume("v", true).expect("forced delete");
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut attached, &mut rest).expect("the session was ended");
}

#[test]
fn an_impossible_request_disconnects_nobody_though_it_is_forced() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    fixture.write(0, 1);
    let _attached = attach(&fixture.nbd_socket(), "v");
    let forced = Revert { force: true, ..revert("v:99") };
    assert_eq!(kind(client.revert("v", &forced)), ProblemKind::NotFound);
    let size = Some(SizeInput(Size(8192)));
    let no_hook = Some(Some("nobody-knows-it".to_owned()));
    let shrink = ChangeVolume { size, hook: no_hook, ..ChangeVolume::default() };
    assert_eq!(kind(client.change_volume("v", &shrink, true)), ProblemKind::NotFound);
    let cache = Some(SizeInput(Size(1 << 50)));
    let shrink = ChangeVolume { size, cache, ..ChangeVolume::default() };
    client.change_volume("v", &shrink, true).expect_err("no memory is so large");
    assert_eq!(client.volume("v").expect("show").clients, 1);
}

#[test]
fn a_view_by_name_does_not_count_as_attached() {
    let fixture = Fixture::with_volume();
    let at = fixture.write(0, 1);
    let _view = attach(&fixture.nbd_socket(), &format!("v@seq:{at}"));
    assert_eq!(fixture.client.volume("v").expect("show").clients, 0);
}

#[test]
fn a_client_of_a_moment_stops_a_delete_and_no_revert() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    let at = fixture.write(0, 1);
    fixture.write(0, 2);
    let mut view = attach(&fixture.nbd_socket(), &format!("v@seq:{at}"));
    client.revert("v", &revert(&format!("seq:{at}"))).expect("the past does not change");
    assert_eq!(kind(client.delete_volume("v", false)), ProblemKind::Busy);
    client.delete_volume("v", true).expect("forced delete");
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut view, &mut rest).expect("the session was ended");
}

#[test]
fn metrics_and_health_are_told() {
    let fixture = Fixture::with_volume();
    fixture.write(0, 1);
    let get = |path: &str| {
        fixture.raw(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    };
    let (status, text) = get("/metrics");
    assert_eq!(status, 200);
    for line in [
        "hindsight_volume_writes_total{volume=\"v\"} 1",
        "hindsight_volume_written_bytes_total{volume=\"v\"} 4096",
        "hindsight_volume_live_bytes{volume=\"v\"} 4096",
        "hindsight_volume_live_exact{volume=\"v\"} 1",
        "hindsight_volume_window_seconds{volume=\"v\"} 86400.0",
        "hindsight_volume_window_kept{volume=\"v\"} 1",
        "hindsight_volume_grace_end_time_seconds{volume=\"v\"} 0.0",
        "hindsight_volume_history_age_bytes{volume=\"v\",age=\"below 1h\"} 0",
        "hindsight_volume_history_age_bytes{volume=\"v\",age=\"older\"} 0",
        "hindsight_pool_live_bytes 4096",
        "hindsight_pool_history_bytes 0",
        "hindsight_volume_device_requests_total{volume=\"v\",kind=\"history-write\"} 1",
        "hindsight_volume_device_requests_total{volume=\"v\",kind=\"current-write\"} 0",
        "hindsight_pool_online 1",
        "hindsight_nbd_connections_total 0",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert_eq!(get("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(get("/readyz"), (200, "ok\n".to_owned()));
    let (status, text) = get("/api/v1/openapi.json");
    assert_eq!((status, text.as_str()), (200, api::OPENAPI_JSON));
    let pool = fixture.client.pool().expect("pool");
    assert_eq!((pool.state.as_str(), pool.volumes), ("online", 1));
    assert_eq!(
        pool.used_bytes,
        pool.log_bytes + pool.current_bytes + pool.map_bytes + pool.catalogue_bytes
    );
}

#[test]
fn a_volume_with_its_present_in_place_is_made_shown_and_reverted() {
    let fixture = Fixture::new();
    let asked =
        CreateVolume { architecture: Some("split-stream".to_owned()), ..new_volume("v", 1 << 24) };
    let made = fixture.client.create_volume(&asked).expect("create");
    assert_eq!(made.architecture, "split-stream");
    let first = fixture.write(0, 1);
    fixture.write(0, 2);
    let shown = fixture.client.volume("v").expect("show");
    let requests = |kind: &str| {
        shown.device_io.iter().find(|io| io.kind == kind).expect("every kind is told").requests
    };
    assert_eq!((requests("history-write"), requests("current-write")), (2, 2));
    assert!(fixture.client.pool().expect("pool").current_bytes > 0);
    let moment = format!("seq:{first}");
    fixture.client.revert("v", &revert(&moment)).expect("revert");
    let view = attach(&fixture.nbd_socket(), &format!("v@{moment}"));
    drop(view);
    fixture.client.delete_volume("v", false).expect("delete");
}

#[test]
fn a_cache_is_asked_for_shown_counted_and_switched_off() {
    let fixture = Fixture::new();
    let asked = CreateVolume {
        architecture: Some("split-downstream".to_owned()),
        cache: Some(SizeInput(Size(1 << 20))),
        cache_dirty_percent: Some(50),
        ..new_volume("v", 1 << 24)
    };
    let made = fixture.client.create_volume(&asked).expect("create");
    let cache = made.cache.expect("it has one");
    assert_eq!((cache.size, cache.granted_bytes, cache.dirty_percent), (1 << 20, 1 << 20, 50));
    assert!(cache.volatile && cache.dirty_limit_bytes == 1 << 19);
    fixture.write(0, 1);
    let shown = fixture.client.volume("v").expect("show").cache.expect("it has one");
    // The background destages what nobody adds to for some seconds.
    assert_eq!(shown.dirty_bytes + shown.destaged * 4096, 4096);
    let head = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let (_, text) = fixture.raw(head);
    assert!(
        text.contains("hindsight_volume_cache_dirty_limit_bytes{volume=\"v\"} 524288"),
        "{text}"
    );
    let off = ChangeVolume { cache: Some(SizeInput(Size(0))), ..ChangeVolume::default() };
    let refused = problem(fixture.client.change_volume("v", &off, false));
    assert!(refused.detail.contains("needs a cache"));
    let plain = CreateVolume { cache: Some(SizeInput(Size(1 << 20))), ..new_volume("w", 1 << 24) };
    assert!(fixture.client.create_volume(&plain).expect("create").cache.is_some());
    let changed = fixture.client.change_volume("w", &off, false).expect("change");
    assert_eq!(changed.cache, None);
}

#[test]
fn history_is_encoded_as_asked_for_shown_counted_and_audited() {
    let fixture = Fixture::new();
    let asked = CreateVolume {
        encoding: Some("xor".to_owned()),
        encode_after: Some(SpanInput(Span(0))),
        ..new_volume("v", 1 << 24)
    };
    let made = fixture.client.create_volume(&asked).expect("create").encoding;
    assert_eq!((made.kind.as_str(), made.after), ("xor", Some(SpanInput(Span(0)))));
    let first = fixture.write(0, 1);
    for byte in 2..60 {
        fixture.write(0, byte);
    }
    // Other settings begin another pass over the history, whenever the last one was.
    let change = ChangeVolume { encoding: Some("delta".to_owned()), ..ChangeVolume::default() };
    let mut shown = fixture.client.change_volume("v", &change, false).expect("change").encoding;
    let began = Instant::now();
    while shown.encoded == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is encoded: {shown:?}");
        std::thread::sleep(Duration::from_millis(20));
        shown = fixture.client.volume("v").expect("show").encoding;
    }
    assert!(shown.packed_bytes < shown.unpacked_bytes && shown.faults == 0, "{shown:?}");
    let (_, text) =
        fixture.raw("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(text.contains("hindsight_volume_packed_bytes{volume=\"v\"}"), "{text}");
    let (_, audit) = fixture.send("GET", "/audit", "");
    assert!(audit.contains("\"encode\""), "{audit}");
    let done = fixture.client.revert("v", &revert(&format!("seq:{first}"))).expect("revert");
    assert_eq!((done.to.seq, fixture.first_byte(0)), (first, 1));

    let raw = ChangeVolume { encoding: Some("raw".to_owned()), ..ChangeVolume::default() };
    let now = fixture.client.change_volume("v", &raw, false).expect("change").encoding;
    assert_eq!((now.kind.as_str(), now.after), ("raw", None));
    let wrong = ChangeVolume { encoding: Some("lz4".to_owned()), ..ChangeVolume::default() };
    let refused = problem(fixture.client.change_volume("v", &wrong, false));
    assert_eq!(refused.detail, "there is no encoding lz4");
    let aged = ChangeVolume { encode_after: Some(SpanInput(Span(1))), ..ChangeVolume::default() };
    let refused = problem(fixture.client.change_volume("v", &aged, false));
    assert!(refused.detail.contains("raw history is not encoded"), "{}", refused.detail);
}

#[test]
fn equal_blocks_are_shared_as_asked_for_shown_counted_and_audited() {
    let fixture = Fixture::new();
    let asked = CreateVolume { dedup: Some(true), ..new_volume("v", 1 << 24) };
    let mut shown = fixture.client.create_volume(&asked).expect("create").dedup;
    assert!(shown.on && shown.named_bytes == 0, "{shown:?}");
    for block in 0..40 {
        fixture.write(block, 1 + (block % 2) as u8);
    }
    let began = Instant::now();
    while shown.named_bytes == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is shared: {shown:?}");
        std::thread::sleep(Duration::from_millis(20));
        shown = fixture.client.volume("v").expect("show").dedup;
    }
    assert!(shown.shared_bytes < shown.named_bytes, "{shown:?}");
    assert_eq!((fixture.first_byte(0), fixture.first_byte(39)), (1, 2));
    let (_, text) =
        fixture.raw("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    for metric in ["volume_shared_bytes{volume=\"v\"}", "volume_named_bytes", "pool_common_bytes"] {
        assert!(text.contains(&format!("hindsight_{metric}")), "{metric}: {text}");
    }
    let (_, audit) = fixture.send("GET", "/audit", "");
    assert!(audit.contains("\"deduplicate\""), "{audit}");
    let off = ChangeVolume { dedup: Some(false), ..ChangeVolume::default() };
    assert!(!fixture.client.change_volume("v", &off, false).expect("change").dedup.on);
    let (_, audit) = fixture.send("GET", "/audit", "");
    assert!(audit.contains("dedup off"), "{audit}");
}

#[test]
fn a_version_is_compacted_as_a_job() {
    let fixture = Fixture::with_volume();
    for byte in 1..60 {
        fixture.write(0, byte);
    }
    let version = fixture.client.create_version("v", &CreateVersion::default()).expect("create");
    assert_eq!((version.compacted, version.job), (false, None));
    assert!(fixture.client.jobs(&ListQuery::default()).expect("jobs").entries.is_empty());
    let mut job = fixture.client.compact_version("v", 0).expect("asked");
    assert_eq!((job.id.as_str(), job.kind.as_str(), job.version), ("v.0", "compact", 0));
    let began = Instant::now();
    while job.state != "done" {
        assert!(began.elapsed() < Duration::from_secs(60), "it is not done: {job:?}");
        std::thread::sleep(Duration::from_millis(20));
        job = fixture.client.job("v.0").expect("a job");
    }
    assert_eq!((job.packed, job.raw, job.percent), (59, 0, 100), "the present is among them");
    let version = fixture.client.version("v", 0).expect("show");
    assert_eq!((version.compacted, version.job), (true, Some(job)));
    assert_eq!(fixture.client.volume("v").expect("show").encoding.unpacked_bytes, 59 * 4096);
    let (_, audit) = fixture.send("GET", "/audit", "");
    assert!(audit.contains("\"version-compact\"") && audit.contains("\"compacted\""), "{audit}");
    let job = fixture.client.uncompact_version("v", 0).expect("asked");
    assert_eq!(job.kind, "uncompact");
    for id in ["v.7", "v", "nobody.0", "v.x", "v."] {
        let (status, _) = fixture.send("GET", &format!("/jobs/{id}"), "");
        assert_eq!(status, 404, "{id}");
    }
    let refused = problem(fixture.client.compact_version("v", 7));
    assert_eq!(refused.detail, "v has no version 7");
}

#[test]
fn volumes_with_a_base_are_made_shown_and_reverted() {
    for (architecture, kind) in [("redirect", "history-write"), ("checkpointing", "journal-write")]
    {
        let fixture = Fixture::new();
        let architecture = architecture.to_owned();
        let asked =
            CreateVolume { architecture: Some(architecture.clone()), ..new_volume("v", 1 << 24) };
        let made = fixture.client.create_volume(&asked).expect("create");
        assert_eq!(made.architecture, architecture);
        let first = fixture.write(0, 1);
        fixture.write(0, 2);
        let shown = fixture.client.volume("v").expect("show");
        let requests = |kind: &str| {
            shown.device_io.iter().find(|io| io.kind == kind).expect("every kind is told").requests
        };
        assert_eq!((requests(kind), requests("current-write")), (2, 0));
        assert_eq!((requests("before-image-read"), requests("before-image-write")), (0, 0));
        assert_eq!(shown.base_bytes, 0, "nothing has come home yet");
        let moment = format!("seq:{first}");
        fixture.client.revert("v", &revert(&moment)).expect("revert");
        let view = attach(&fixture.nbd_socket(), &format!("v@{moment}"));
        drop(view);
        fixture.client.delete_volume("v", false).expect("delete");
    }
}

#[test]
fn an_architecture_is_changed_while_the_volume_is_used() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    let set = |name: &str, cache: Option<u64>| ChangeVolume {
        architecture: Some(name.to_owned()),
        cache: cache.map(|bytes| SizeInput(Size(bytes))),
        ..ChangeVolume::default()
    };
    let first = fixture.write(0, 1);
    fixture.write(0, 2);
    let (_, before) = fixture.raw(METRICS);
    assert!(before.contains("hindsight_volume_conversion_left_bytes{volume=\"v\"} 0"), "{before}");
    for (name, cache) in [
        ("split-stream", None),
        ("redirect", None),
        ("split-downstream", Some(1 << 20)),
        ("checkpointing", Some(0)),
        ("logging", None),
    ] {
        let changed = client.change_volume("v", &set(name, cache), false).expect("change");
        assert_eq!(changed.architecture, name, "at once");
        assert!(changed.conversion.is_none_or(|c| c.to == name && c.done_bytes <= c.total_bytes));
        assert_eq!(fixture.first_byte(0), 2, "{name}");
        // The server's own background work ends it.
        while client.volume("v").expect("show").conversion.is_some() {
            std::thread::yield_now();
        }
    }
    let done = client.revert("v", &revert(&format!("seq:{first}"))).expect("revert");
    assert_eq!((done.to.seq, fixture.first_byte(0)), (first, 1));
    let audit = client.audit(&ListQuery::default()).expect("audit");
    let told = |action: &str| audit.entries.iter().filter(|r| r.action == action).count();
    assert_eq!((told("convert"), told("converted")), (5, 5));

    let refused = problem(client.change_volume("v", &set("auto", None), false));
    assert!(refused.hint.expect("a hint").contains("hindsight trace record"));
    client.change_volume("v", &set("split-downstream", Some(1 << 20)), false).expect("change");
    let kept = client.change_volume("v", &set("redirect", None), false).expect("change");
    assert_eq!(kept.cache.expect("it keeps its cache").size, 1 << 20);
}

const METRICS: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[test]
fn jobs_come_in_pages() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    client.create_volume(&new_volume("w", 1 << 20)).expect("create");
    for name in ["v", "v", "v", "w", "w"] {
        let version = client.create_version(name, &CreateVersion::default()).expect("captured");
        client.compact_version(name, version.number).expect("asked");
    }
    let mut query = ListQuery { limit: Some(2), next: None };
    let mut pages = Vec::new();
    loop {
        let page = client.jobs(&query).expect("a page");
        pages.push(page.entries.into_iter().map(|job| job.id).collect::<Vec<_>>());
        query.next = page.next;
        if query.next.is_none() {
            break;
        }
    }
    assert_eq!(pages, [vec!["v.0", "v.1"], vec!["v.2", "w.0"], vec!["w.1"]]);
    assert_eq!(
        kind(client.jobs(&ListQuery { limit: Some(0), next: None })),
        ProblemKind::Malformed
    );
}
