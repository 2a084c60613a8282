//! Schedules, retention and ranges of versions, over HTTP.

use std::time::{Duration, Instant};

use api::{
    ApplyRetention, CreateGroup, CreateVersion, Keep, ListQuery, ProblemKind, RangeQuery, SetKeep,
    SetSchedule, SpanInput,
};
use units::Span;

use crate::fixture::{Fixture, kind, new_volume, problem};

const SECOND: Span = Span(1_000_000_000);

fn every(span: Span, keep: Keep) -> SetSchedule {
    SetSchedule {
        every: Some(SpanInput(span)),
        keep: keep.into(),
        label: Some("auto".to_owned()),
        ..SetSchedule::default()
    }
}

#[test]
fn a_schedule_is_set_runs_and_is_removed() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    assert_eq!(kind(client.schedule("v")), ProblemKind::NotFound);
    let keep = Keep { last: 1, ..Keep::default() };
    let set = client.set_schedule("v", &every(SECOND, keep)).expect("set");
    assert_eq!((set.volume.as_deref(), set.keep, set.cron), (Some("v"), keep, None));
    assert!(set.next.is_some_and(|next| next > set.set));
    // The background thread captures by the real clock; nothing of ours waits for longer.
    let began = Instant::now();
    while client.schedule("v").expect("show").captures < 2 {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing was captured");
        std::thread::yield_now();
    }
    assert_eq!(client.schedules().expect("list").len(), 1);
    let line = SetSchedule {
        cron: Some("@yearly".to_owned()),
        keep: keep.into(),
        ..SetSchedule::default()
    };
    let changed = client.set_schedule("v", &line).expect("change");
    assert_eq!((changed.every, changed.cron.as_deref()), (None, Some("0 0 1 1 *")));
    let versions = client.versions("v", &ListQuery::default()).expect("list").entries;
    assert!(versions.iter().all(|v| v.made_by == "schedule" && v.label == "auto"), "{versions:?}");

    let told = client.retention("v", &ListQuery::default()).expect("explained").entries;
    let (newest, older) = told.split_last().expect("some");
    assert_eq!((newest.stays, &newest.rules[..]), (true, &["last 1/1".to_owned()][..]));
    assert!(older.iter().all(|v| !v.stays && v.goes.is_some()));
    let doomed: Vec<u64> = older.iter().map(|v| v.number).collect();
    let dry = client.apply_retention("v", &ApplyRetention { dry_run: true }).expect("told");
    assert_eq!((&dry.versions, dry.dry_run), (&doomed, true));
    let done = client.apply_retention("v", &ApplyRetention::default()).expect("pruned");
    assert_eq!(done.versions, doomed);
    let left = client.versions("v", &ListQuery::default()).expect("list").entries;
    assert_eq!(left.len(), 1);
    let (_, metrics) =
        fixture.raw("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(metrics.contains("hindsight_schedule_pruned_total{volume=\"v\"}"), "{metrics}");
    assert!(metrics.contains("hindsight_volume_versions{volume=\"v\"} 1"), "{metrics}");
    client.remove_schedule("v").expect("remove");
    assert_eq!(kind(client.remove_schedule("v")), ProblemKind::NotFound);
    assert_eq!(
        kind(client.apply_retention("v", &ApplyRetention::default())),
        ProblemKind::NotFound
    );
}

#[test]
fn what_is_no_schedule_is_refused() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    assert_eq!(kind(client.set_schedule("v", &SetSchedule::default())), ProblemKind::Invalid);
    let both = SetSchedule { cron: Some("0 * * * *".to_owned()), ..every(SECOND, Keep::default()) };
    assert_eq!(kind(client.set_schedule("v", &both)), ProblemKind::Invalid);
    let often = every(Span(1_000_000), Keep::default());
    assert_eq!(kind(client.set_schedule("v", &often)), ProblemKind::Invalid);
    let line = SetSchedule { cron: Some("0 0 31 2 *".to_owned()), ..SetSchedule::default() };
    let problem = problem(client.set_schedule("v", &line));
    assert_eq!(problem.problem_kind(), Some(ProblemKind::Malformed));
    assert!(problem.hint.is_some_and(|hint| hint.contains("five fields")));
    assert_eq!(
        kind(client.set_schedule("x", &every(SECOND, Keep::default()))),
        ProblemKind::NotFound
    );
    let (status, _) =
        fixture.send("PUT", "/volumes/v/schedule", "{\"every\": \"1h\", \"keep\": 3}");
    assert_eq!(status, 400);
}

#[test]
fn a_range_of_versions_is_deleted() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    for block in 0..5 {
        fixture.write(block, 1);
        client.create_version("v", &CreateVersion::default()).expect("version");
    }
    let range = |from, to, dry_run| client.delete_versions("v", &RangeQuery { from, to, dry_run });
    assert_eq!(range(1, 3, true).expect("told").count, 3);
    assert_eq!(range(1, 3, false).expect("deleted").count, 3);
    assert_eq!(kind(range(1, 3, false)), ProblemKind::NotFound);
    let versions = client.versions("v", &ListQuery::default()).expect("list").entries;
    let numbers: Vec<u64> = versions.iter().map(|v| v.number).collect();
    assert_eq!(numbers, [0, 4]);
    assert_eq!(versions[0].until, Some(versions[1].time));
    assert!(versions[0].span.is_some() && versions[1].span.is_none());
    assert_eq!((versions[1].encoding.as_str(), versions[1].made_by.as_str()), ("raw", "people"));
}

#[test]
fn a_group_has_a_schedule_and_keep_rules() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    client.create_volume(&new_volume("w", 1 << 20)).expect("create");
    let volumes = vec!["v".to_owned(), "w".to_owned()];
    client.create_group(&CreateGroup { name: "g".to_owned(), volumes }).expect("create");
    assert_eq!(kind(client.group_schedule("g")), ProblemKind::NotFound);
    assert_eq!(
        kind(client.set_group_schedule("h", &every(SECOND, Keep::default()))),
        ProblemKind::NotFound
    );
    let keep = Keep { last: 1, ..Keep::default() };
    let set = client.set_group_schedule("g", &every(SECOND, keep)).expect("set");
    assert_eq!((set.group.as_deref(), set.volume, set.keep), (Some("g"), None, keep));
    let began = Instant::now();
    while client.group_schedule("g").expect("show").captures < 2 {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing was captured");
        std::thread::yield_now();
    }
    assert_eq!(client.schedules().expect("list").len(), 1);
    // From now on nothing is due for years.
    let line = SetSchedule {
        cron: Some("@yearly".to_owned()),
        keep: keep.into(),
        ..SetSchedule::default()
    };
    client.set_group_schedule("g", &line).expect("change");
    let all = client.group_versions("g", &ListQuery::default()).expect("list").entries;
    assert!(all.iter().all(|c| c.made_by == "schedule" && c.versions.len() == 2), "{all:?}");
    let told = client.group_retention("g", &ListQuery::default()).expect("explained").entries;
    let (newest, older) = told.split_last().expect("some");
    assert_eq!((newest.stays, &newest.rules[..]), (true, &["last 1/1".to_owned()][..]));
    let doomed: Vec<u64> = older.iter().map(|capture| capture.number).collect();
    let of_volume = client.retention("v", &ListQuery::default()).expect("explained").entries;
    assert!(of_volume.iter().all(|v| v.made_by == "group-schedule"), "{of_volume:?}");
    let dry = client.apply_group_retention("g", &ApplyRetention { dry_run: true }).expect("told");
    assert_eq!((&dry.versions, dry.dry_run), (&doomed, true));
    let done = client.apply_group_retention("g", &ApplyRetention::default()).expect("pruned");
    assert_eq!(done.versions, doomed);
    for name in ["v", "w"] {
        let left = client.versions(name, &ListQuery::default()).expect("list").entries;
        assert_eq!(left.len(), 1, "{name}");
    }
    let (_, metrics) =
        fixture.raw("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(metrics.contains("hindsight_schedule_pruned_total{group=\"g\"}"), "{metrics}");
    client.remove_group_schedule("g").expect("remove");
    assert_eq!(kind(client.remove_group_schedule("g")), ProblemKind::NotFound);
}

#[test]
fn what_is_not_named_of_a_schedule_stays_and_a_dry_run_says_what_would_go() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    let keep = Keep { last: 100, daily: 7, ..Keep::default() };
    client.set_schedule("v", &every(SECOND, keep)).expect("set");
    let began = Instant::now();
    while client.schedule("v").expect("show").captures < 2 {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing was captured");
        std::thread::yield_now();
    }
    let yearly = SetSchedule { cron: Some("@yearly".to_owned()), ..SetSchedule::default() };
    let changed = client.set_schedule("v", &yearly).expect("change");
    assert_eq!((changed.keep, &*changed.label, changed.dry_run), (keep, "auto", false));
    assert!(changed.goes.is_empty());
    let versions = client.versions("v", &ListQuery::default()).expect("list").entries;
    let fewer = SetKeep { last: Some(1), daily: Some(0), ..SetKeep::default() };
    let body = SetSchedule { keep: fewer, dry_run: true, ..SetSchedule::default() };
    let told = client.set_schedule("v", &body).expect("told");
    assert_eq!((told.keep.last, told.keep.daily, told.dry_run), (1, 0, true));
    let older: Vec<u64> = versions[..versions.len() - 1].iter().map(|v| v.number).collect();
    assert_eq!(told.goes.iter().map(|one| one.number).collect::<Vec<_>>(), older);
    assert!(told.goes.iter().all(|one| !one.stays && one.goes.is_some()));
    assert_eq!(client.schedule("v").expect("show").keep, keep, "nothing was changed");
    let set = client.set_schedule("v", &SetSchedule { dry_run: false, ..body }).expect("set");
    assert_eq!((set.keep.last, set.goes.len()), (1, older.len()));
    assert_eq!(kind(client.set_schedule("v", &SetSchedule::default())), ProblemKind::Invalid);

    let group = CreateGroup { name: "g".to_owned(), volumes: vec!["v".to_owned()] };
    client.create_group(&group).expect("made");
    let dry = SetSchedule { dry_run: true, ..every(SECOND, keep) };
    assert!(client.set_group_schedule("g", &dry).expect("told").dry_run);
    assert_eq!(kind(client.group_schedule("g")), ProblemKind::NotFound);
    client.set_group_schedule("g", &SetSchedule { dry_run: false, ..dry }).expect("set");
    let changed = client.set_group_schedule("g", &yearly).expect("change");
    assert_eq!((changed.keep, &*changed.label), (keep, "auto"));
}
