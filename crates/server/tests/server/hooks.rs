//! Hooks and groups over HTTP: commands around captures, named by clients and never given by them.

use std::time::{Duration, Instant};

use api::{
    ChangeGroup, ChangeVolume, CreateGroup, CreateVersion, ListQuery, ProblemKind, RangeQuery,
    SetSchedule, SpanInput,
};
use hindsight_server::{HookSettings, Settings};
use units::Span;

use crate::fixture::{Fixture, kind, new_volume, problem};

fn shell(script: String) -> Vec<String> {
    vec!["/bin/sh".to_owned(), "-c".to_owned(), script]
}

/// A server with hooks that write down what they did: `quiet` succeeds, `loud` fails.
fn fixture() -> Fixture {
    let fixture = Fixture::with(|settings: &mut Settings, folder| {
        let log = folder.join("log").display().to_string();
        for (name, end) in [("quiet", "true"), ("loud", "false")] {
            let line = format!("echo $HINDSIGHT_PHASE $HINDSIGHT_SUBJECT >> {log}");
            let hook = HookSettings {
                before: shell(format!("{line}; {end}")),
                after: shell(line),
                timeout: Some("20s".to_owned()),
                ..HookSettings::default()
            };
            settings.hooks.insert(name.to_owned(), hook);
        }
    });
    fixture.client.create_volume(&new_volume("v", 1 << 20)).expect("create");
    fixture
}

fn ran(fixture: &Fixture) -> Vec<String> {
    let text = std::fs::read_to_string(fixture.dir.path().join("log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn with(hook: &str) -> CreateVersion {
    CreateVersion { label: None, hook: Some(hook.to_owned()) }
}

#[test]
fn a_version_says_how_quiet_its_volume_was() {
    let fixture = fixture();
    let client = &fixture.client;
    let plain = client.create_version("v", &CreateVersion::default()).expect("captured");
    assert_eq!(plain.consistency, "crash-consistent");
    assert_eq!(
        client.create_version("v", &with("quiet")).expect("captured").consistency,
        "quiesced"
    );
    let failed = client.create_version("v", &with("loud")).expect("captured all the same");
    assert_eq!(failed.consistency, "quiesce-failed");
    assert_eq!(ran(&fixture), ["before v", "after v", "before v", "after v"]);
    let versions = client.versions("v", &ListQuery::default()).expect("list").entries;
    let told: Vec<&str> = versions.iter().map(|v| v.consistency.as_str()).collect();
    assert_eq!(told, ["crash-consistent", "quiesced", "quiesce-failed"]);
    let (_, metrics) =
        fixture.raw("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(metrics.contains("hindsight_hook_quiesced_total 1"), "{metrics}");
    assert!(metrics.contains("hindsight_hook_failed_total 1"), "{metrics}");
}

#[test]
fn only_what_the_configuration_names_can_be_run() {
    let fixture = fixture();
    let problem = problem(fixture.client.create_version("v", &with("other")));
    assert_eq!(problem.problem_kind(), Some(ProblemKind::NotFound));
    assert_eq!(problem.hint.as_deref(), Some("there is loud, quiet"));
    let body = "{\"hook\": [\"/bin/true\"]}";
    assert_eq!(fixture.send("POST", "/volumes/v/versions", body).0, 400);
    assert_eq!(kind(fixture.client.create_version("x", &with("quiet"))), ProblemKind::NotFound);
    assert_eq!(ran(&fixture), [""; 0], "nothing ran");
}

#[test]
fn a_schedule_captures_with_its_hook() {
    let fixture = fixture();
    let client = &fixture.client;
    let schedule = |hook: &str| SetSchedule {
        every: Some(SpanInput(Span(1_000_000_000))),
        hook: Some(Some(hook.to_owned())),
        ..SetSchedule::default()
    };
    assert_eq!(kind(client.set_schedule("v", &schedule("other"))), ProblemKind::NotFound);
    let set = client.set_schedule("v", &schedule("quiet")).expect("set");
    assert_eq!(set.hook.as_deref(), Some("quiet"));
    let began = Instant::now();
    while client.schedule("v").expect("show").captures < 2 {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing was captured");
        std::thread::yield_now();
    }
    client.remove_schedule("v").expect("removed");
    let versions = client.versions("v", &ListQuery::default()).expect("list").entries;
    assert!(versions.iter().all(|v| v.consistency == "quiesced" && v.made_by == "schedule"));
}

#[test]
fn a_group_is_captured_at_one_instant_with_or_without_a_hook() {
    let fixture = fixture();
    let client = &fixture.client;
    client.create_volume(&new_volume("w", 1 << 20)).expect("create");
    let volumes = vec!["v".to_owned(), "w".to_owned()];
    let body = CreateGroup { name: "g".to_owned(), volumes: volumes.clone() };
    let made = client.create_group(&body).expect("create");
    assert_eq!((made.volumes, made.captures), (volumes, 0));
    assert_eq!(kind(client.create_group(&body)), ProblemKind::Exists);
    let first = client.create_group_version("g", &CreateVersion::default()).expect("captured");
    assert_eq!((first.number, first.consistency.as_str()), (0, "crash-consistent"));
    assert_eq!(first.versions.len(), 2);
    let second = client.create_group_version("g", &with("quiet")).expect("captured");
    assert_eq!(second.consistency, "quiesced");
    assert_eq!(ran(&fixture), ["before g", "after g"]);
    let page = client.group_versions("g", &ListQuery { limit: Some(1), next: None });
    let page = page.expect("page");
    assert_eq!((&page.entries[..], page.next), (&[first][..], Some(1)));
    let rest = client.group_versions("g", &ListQuery { limit: Some(1), next: page.next });
    assert_eq!(rest.expect("page").entries, [second]);
    client.delete_volume("w", true).expect("delete");
    let range = |dry_run| RangeQuery { from: 0, to: 0, dry_run };
    assert_eq!(client.delete_group_versions("g", &range(true)).expect("told").count, 1);
    assert_eq!(client.delete_group_versions("g", &range(false)).expect("deleted").count, 1);
    assert_eq!(kind(client.delete_group_versions("g", &range(false))), ProblemKind::NotFound);
    assert_eq!(client.group("g").expect("show").volumes, ["v"]);
    assert_eq!(client.groups().expect("list").len(), 1);
    client.delete_group("g").expect("delete");
    assert_eq!(kind(client.group("g")), ProblemKind::NotFound);
    // The one that was not deleted.
    assert_eq!(client.versions("v", &ListQuery::default()).expect("list").entries.len(), 1);
}

#[test]
fn a_schedule_of_a_group_captures_with_its_hook_or_says_that_it_failed() {
    let fixture = fixture();
    let client = &fixture.client;
    let volumes = vec!["v".to_owned()];
    client.create_group(&CreateGroup { name: "g".to_owned(), volumes }).expect("create");
    let schedule = |hook: &str| SetSchedule {
        every: Some(SpanInput(Span(1_000_000_000))),
        hook: Some(Some(hook.to_owned())),
        ..SetSchedule::default()
    };
    assert_eq!(kind(client.set_group_schedule("g", &schedule("other"))), ProblemKind::NotFound);
    let consistencies = || -> Vec<String> {
        let all = client.group_versions("g", &ListQuery::default()).expect("list").entries;
        all.into_iter().map(|capture| capture.consistency).collect()
    };
    for (hook, consistency) in [("quiet", "quiesced"), ("loud", "quiesce-failed")] {
        // The schedule before may have made one more, or be about to.
        assert!(!consistencies().iter().any(|one| one == consistency), "not with another hook");
        client.set_group_schedule("g", &schedule(hook)).expect("set");
        let began = Instant::now();
        while !consistencies().iter().any(|one| one == consistency) {
            assert!(began.elapsed() < Duration::from_secs(60), "nothing was captured");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_hook_that_is_set_goes_around_every_capture_that_names_none() {
    let fixture = fixture();
    let client = &fixture.client;
    let change = |hook: Option<&str>| {
        let hook = Some(hook.map(str::to_owned));
        client.change_volume("v", &ChangeVolume { hook, ..ChangeVolume::default() }, false)
    };
    let refused = problem(change(Some("other")));
    assert_eq!(refused.problem_kind(), Some(ProblemKind::NotFound));
    assert_eq!(refused.hint.as_deref(), Some("there is loud, quiet"));
    let set = change(Some("quiet")).expect("set");
    assert_eq!((set.hook.as_deref(), set.hook_known), (Some("quiet"), true));
    let capture = |body: &CreateVersion| client.create_version("v", body).expect("captured");
    assert_eq!(capture(&CreateVersion::default()).consistency, "quiesced");
    assert_eq!(capture(&with("none")).consistency, "crash-consistent");
    let failed = capture(&with("loud"));
    assert_eq!(failed.consistency, "quiesce-failed");
    assert!(failed.hook_failure.is_some_and(|why| why.starts_with("hook loud: ")));
    assert_eq!(ran(&fixture).len(), 4);
    // A group has the hooks of its volumes, until it has one of its own.
    client.create_volume(&new_volume("w", 1 << 20)).expect("create");
    let volumes = vec!["v".to_owned(), "w".to_owned()];
    client.create_group(&CreateGroup { name: "g".to_owned(), volumes }).expect("create");
    let made = client.create_group_version("g", &CreateVersion::default()).expect("captured");
    assert_eq!(made.consistency, "crash-consistent", "w has no hook");
    assert_eq!(client.version("v", made.versions[0].number).expect("show").consistency, "quiesced");
    let group = |hook: Option<&str>| {
        client.change_group("g", &ChangeGroup { hook: Some(hook.map(str::to_owned)) })
    };
    assert_eq!(kind(group(Some("other"))), ProblemKind::NotFound);
    assert_eq!(group(Some("quiet")).expect("set").hook.as_deref(), Some("quiet"));
    let made = client.create_group_version("g", &CreateVersion::default()).expect("captured");
    assert_eq!(made.consistency, "quiesced");
    assert_eq!(ran(&fixture)[4..], ["before v", "after v", "before g", "after g"]);
    assert_eq!(change(None).expect("set").hook, None);
    assert_eq!(capture(&CreateVersion::default()).consistency, "crash-consistent");
}

#[test]
fn a_hook_that_the_configuration_lost_fails_and_the_capture_is_made() {
    let mut fixture = fixture();
    let hook = Some(Some("quiet".to_owned()));
    let body = ChangeVolume { hook, ..ChangeVolume::default() };
    fixture.client.change_volume("v", &body, false).expect("set");
    fixture.restart();
    let client = &fixture.client;
    let shown = client.volume("v").expect("show");
    assert_eq!((shown.hook.as_deref(), shown.hook_known), (Some("quiet"), false));
    let made = client.create_version("v", &CreateVersion::default()).expect("captured");
    assert_eq!(made.consistency, "quiesce-failed");
    let why = "the server's configuration has no hook quiet";
    assert_eq!(made.hook_failure.as_deref(), Some(why));
    let every = Some(SpanInput(Span(1_000_000_000)));
    client.set_schedule("v", &SetSchedule { every, ..SetSchedule::default() }).expect("set");
    let began = Instant::now();
    while client.schedule("v").expect("show").captures < 1 {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing was captured");
        std::thread::yield_now();
    }
    let versions = client.versions("v", &ListQuery::default()).expect("list").entries;
    assert!(versions.iter().all(|v| v.consistency == "quiesce-failed"), "{versions:?}");
}

#[test]
fn files_that_are_open_at_a_capture_are_listed() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/open-files");
    let fixture = Fixture::with(|settings: &mut Settings, folder| {
        // As a mount point that another process uses.
        let mount = folder.join("mount [1]");
        std::fs::create_dir(&mount).expect("a folder");
        let look = format!("{script} '{}'", mount.display());
        let hook =
            |before: String| HookSettings { before: shell(before), ..HookSettings::default() };
        settings.hooks.insert("look".to_owned(), hook(look));
        settings.hooks.insert("blind".to_owned(), hook("true".to_owned()));
    });
    let client = &fixture.client;
    client.create_volume(&new_volume("v", 1 << 20)).expect("create");
    let path = fixture.dir.path().join("mount [1]/held open");
    std::fs::write(fixture.dir.path().join("mount [1]/not open"), "").expect("written");
    let mut holder = {
        let output = std::fs::File::create(&path).expect("made");
        let mut sleep = std::process::Command::new("/bin/sleep");
        sleep.arg("600").stdout(output).spawn().expect("a process")
    };
    let made = client.create_version("v", &with("look")).expect("captured");
    holder.kill().and_then(|()| holder.wait()).expect("ended");
    assert_eq!((made.consistency.as_str(), made.open_files), ("quiesced", Some(1)));
    let told = client.open_files("v", made.number).expect("told");
    assert_eq!((told.count, told.paths), (Some(1), vec![path.display().to_string()]));
    let made = client.create_version("v", &with("look")).expect("captured");
    assert_eq!(made.open_files, Some(0), "it looked, and there was none");
    let made = client.create_version("v", &with("blind")).expect("captured");
    assert_eq!(made.open_files, None);
    let told = client.open_files("v", made.number).expect("told");
    assert_eq!((told.count, told.paths.len()), (None, 0));
    assert_eq!(kind(client.open_files("v", 99)), ProblemKind::NotFound);
}
