//! Proofs: checks of the configuration on scratch clones, and what is kept of what they say.

use std::time::{Duration, Instant};

use api::{
    ChangeVolume, CreateGroup, CreateVersion, HistoryQuery, ListQuery, ProblemKind, SetSchedule,
    Verification, Verify,
};
use hindsight_server::{HookSettings, Settings};
use units::Granularity;

use crate::fixture::{Fixture, kind, new_volume, problem};

/// Fails once the first byte of the disk is a 9; cannot tell of one that is a 7.
const LOOK: &str = "byte=$(qemu-io -r -f raw -c 'read -v 0 1' $HINDSIGHT_URI | \
                    awk 'NR == 1 {print $2}'); \
                    case $byte in 01) exit 0 ;; 09) exit 1 ;; 07) exit 125 ;; esac; exit 99";

fn fixture() -> Fixture {
    let fixture = Fixture::with(|settings: &mut Settings, _| {
        for (name, script, timeout) in [
            ("looks", LOOK, "30s"),
            ("hangs", "sleep 600", "1s"),
            ("slow", "sleep 600", "3s"),
            ("plain", "", "1s"),
        ] {
            let shell = |script: &str| vec!["/bin/sh".into(), "-c".into(), script.to_owned()];
            let hook = match script {
                "" => HookSettings { before: shell("true"), ..HookSettings::default() },
                script => HookSettings { verify: shell(script), ..HookSettings::default() },
            };
            let hook = HookSettings { timeout: Some(timeout.to_owned()), ..hook };
            settings.hooks.insert(name.to_owned(), hook);
        }
    });
    fixture.client.create_volume(&new_volume("v", 1 << 20)).expect("create");
    fixture
}

fn verify(seq: u64, hook: &str) -> Verify {
    Verify { at: Some(format!("seq:{seq}")), hook: hook.to_owned() }
}

/// The verdict, once there is one.
fn ended(fixture: &Fixture, told: &Verification) -> Verification {
    let began = Instant::now();
    loop {
        let all = fixture.client.verifications("v").expect("listed");
        let is_it = |one: &&Verification| (one.seq, one.asked) == (told.seq, told.asked);
        let found = all.iter().find(is_it).expect("it stays in the list");
        if found.verdict != "running" {
            return found.clone();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it never ends");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn checks_say_of_moments_what_they_are_and_that_is_kept() {
    let mut fixture = fixture();
    let seqs = [1, 9, 7].map(|byte| fixture.write(0, byte));
    let verdicts = ["good", "bad", "unknown"];
    for (seq, verdict) in seqs.into_iter().zip(verdicts) {
        let told = fixture.client.verify("v", &verify(seq, "looks")).expect("asked");
        assert_eq!((told.verdict.as_str(), told.seq), ("running", seq));
        assert_eq!(ended(&fixture, &told).verdict, verdict, "{:?}", ended(&fixture, &told));
    }
    let hangs = fixture.client.verify("v", &verify(seqs[0], "hangs")).expect("asked");
    let hung = ended(&fixture, &hangs);
    assert_eq!((hung.verdict.as_str(), hung.said.as_str()), ("unknown", "killed after 1s"));
    let names: Vec<String> =
        fixture.client.volumes().expect("listed").into_iter().map(|v| v.name).collect();
    assert_eq!(names, ["v"], "no clone stays");
    let (_, metrics) =
        fixture.raw("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let line = metrics.lines().find(|line| {
        line.starts_with("hindsight_volume_verified_time_seconds{") && !line.ends_with("} 0")
    });
    assert!(line.is_some(), "{metrics}");
    let before = fixture.client.verifications("v").expect("listed");
    fixture.restart();
    assert_eq!(fixture.client.verifications("v").expect("listed"), before);
    let history = fixture.client.history("v", &HistoryQuery::default()).expect("told");
    let proofs = history.events.iter().filter(|event| event.kind == "proof");
    let proofs: Vec<(u64, &str)> = proofs.map(|e| (e.seq, e.detail.as_str())).collect();
    assert!(proofs.contains(&(seqs[1], "looks: bad")), "{proofs:?}");
    assert_eq!(proofs.len(), 4);
}

#[test]
fn only_checks_of_the_configuration_can_be_asked_for() {
    let fixture = fixture();
    let seq = fixture.write(0, 1);
    let ask = |name: &str, body: &Verify| kind(fixture.client.verify(name, body));
    assert_eq!(ask("v", &verify(seq, "other")), ProblemKind::NotFound);
    assert_eq!(ask("v", &verify(seq, "plain")), ProblemKind::NotFound);
    assert_eq!(ask("v", &verify(seq, "none")), ProblemKind::NotFound);
    assert_eq!(ask("w", &verify(seq, "looks")), ProblemKind::NotFound);
    assert_eq!(ask("v", &verify(99, "looks")), ProblemKind::OutsideWindow);
    let said = problem(fixture.client.verify("v", &verify(seq, "plain")));
    assert!(said.hint.expect("a hint").contains("verify ="));
    assert!(fixture.client.verifications("v").expect("listed").is_empty());
}

#[test]
fn versions_of_a_schedule_are_checked_as_they_come() {
    let mut fixture = fixture();
    let set = |fixture: &Fixture, body: &str| {
        let body: SetSchedule = serde_json::from_str(body).expect("a schedule");
        fixture.client.set_schedule("v", &body)
    };
    for hook in ["plain", "other", "none"] {
        let body = format!(r#"{{"every": "1s", "prove": "{hook}"}}"#);
        assert_eq!(kind(set(&fixture, &body)), ProblemKind::NotFound, "{hook}");
    }
    fixture.write(0, 9);
    set(&fixture, r#"{"every": "1s", "keep": {"last": 9}, "prove": "looks"}"#).expect("set");
    let wait = |fixture: &Fixture, verdict: &str| {
        let began = Instant::now();
        loop {
            let all = fixture.client.verifications("v").expect("listed");
            if let Some(found) = all.iter().find(|one| one.verdict == verdict) {
                return (found.seq, found.hook.clone());
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{all:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let bad = wait(&fixture, "bad");
    fixture.write(0, 1);
    let good = wait(&fixture, "good");
    assert!(good.0 > bad.0 && good.1 == "looks", "{bad:?} {good:?}");
    let versions = fixture.client.versions("v", &ListQuery::default()).expect("listed");
    assert!(versions.entries.iter().any(|version| version.seq == good.0), "it is a version");
    // It stays what it was until it is taken away.
    let changed = set(&fixture, r#"{"keep": {"last": 5}}"#).expect("changed");
    assert_eq!(changed.prove.as_deref(), Some("looks"));
    fixture.restart();
    let changed = set(&fixture, r#"{"prove": null}"#).expect("changed");
    assert_eq!((changed.prove, changed.keep.last), (None, 5));
    // One that was asked for by then ends, and no other comes.
    let count = |fixture: &Fixture| fixture.client.verifications("v").expect("listed").len();
    let captures = |fixture: &Fixture| fixture.client.schedule("v").expect("shown").captures;
    let (before, made) = (count(&fixture), captures(&fixture));
    fixture.write(0, 1);
    while captures(&fixture) < made + 3 {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(count(&fixture) <= before + 1, "{} {before}", count(&fixture));
}

#[test]
fn a_version_that_two_schedules_want_is_asked_for_once_of_each() {
    let fixture = fixture();
    let volumes = vec!["v".to_owned()];
    fixture.client.create_group(&CreateGroup { name: "g".to_owned(), volumes }).expect("grouped");
    let body = |every: &str| -> SetSchedule {
        let body = format!(r#"{{"every": "{every}", "prove": "slow"}}"#);
        serde_json::from_str(&body).expect("a schedule")
    };
    let set = |every: &str| {
        fixture.client.set_schedule("v", &body(every)).expect("set");
        fixture.client.set_group_schedule("g", &body(every)).expect("set");
    };
    // A version of each, at different moments, and no other for a while.
    set("1s");
    let made = |captures: u64| captures > 0;
    let began = Instant::now();
    loop {
        let of_group = fixture.client.group_schedule("g").expect("shown").captures;
        if made(fixture.client.schedule("v").expect("shown").captures) && made(of_group) {
            break;
        }
        fixture.write(0, 1);
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is captured");
    }
    set("1h");
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        let all = fixture.client.verifications("v").expect("listed");
        let mut seqs: Vec<u64> = all.iter().map(|one| one.seq).collect();
        seqs.sort_unstable();
        assert!(seqs.is_sorted_by(|a, b| a < b), "asked for twice: {all:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!fixture.client.verifications("v").expect("listed").is_empty());
}

#[test]
fn a_server_that_stops_ends_its_check() {
    let mut fixture = Fixture::with(|settings: &mut Settings, _| {
        let verify = ["/bin/sleep".to_owned(), "600".to_owned()].into();
        let timeout = Some("10min".to_owned());
        let hook = HookSettings { verify, timeout, ..HookSettings::default() };
        settings.hooks.insert("hangs".to_owned(), hook);
    });
    fixture.client.create_volume(&new_volume("v", 1 << 20)).expect("create");
    let seq = fixture.write(0, 1);
    fixture.client.verify("v", &verify(seq, "hangs")).expect("asked");
    let began = Instant::now();
    fixture.restart();
    assert!(began.elapsed() < Duration::from_secs(60), "it was waited for");
    assert!(fixture.client.verifications("v").expect("listed").is_empty());
    assert_eq!(fixture.client.volumes().expect("listed").len(), 1);
}

#[test]
fn a_moment_that_was_not_kept_until_its_turn_is_not_proven_by_another() {
    let fixture = fixture();
    let change =
        ChangeVolume { granularity: Some(Granularity::OnDemand), ..ChangeVolume::default() };
    fixture.client.change_volume("v", &change, false).expect("changed");
    fixture.write(0, 1);
    fixture.client.create_version("v", &CreateVersion::default()).expect("captured");
    let hangs = Verify { at: Some("v:0".to_owned()), hook: "hangs".to_owned() };
    fixture.client.verify("v", &hangs).expect("asked");
    fixture.write(0, 1);
    let latest = Verify { at: None, hook: "looks".to_owned() };
    let told = fixture.client.verify("v", &latest).expect("asked");
    // Its turn comes in a second; until then the present has gone on.
    fixture.write(0, 9);
    let proof = ended(&fixture, &told);
    assert_eq!(proof.verdict, "unknown", "{proof:?}");
    assert!(proof.said.contains("was not kept"), "{proof:?}");
}

#[test]
fn a_check_that_loses_its_clone_to_a_stop_says_nothing() {
    let mut fixture = Fixture::with(|settings: &mut Settings, _| {
        // It ends with 1 as soon as nobody serves it any more.
        let script = "until ! qemu-io -r -f raw -c 'read 0 512' $HINDSIGHT_URI >/dev/null 2>&1; \
                      do sleep 0.02; done; exit 1";
        let verify = ["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()].into();
        let hook = HookSettings { verify, ..HookSettings::default() };
        settings.hooks.insert("reads".to_owned(), hook);
    });
    fixture.client.create_volume(&new_volume("v", 1 << 20)).expect("create");
    let seq = fixture.write(0, 1);
    fixture.client.verify("v", &verify(seq, "reads")).expect("asked");
    std::thread::sleep(Duration::from_millis(300));
    fixture.restart();
    assert_eq!(fixture.client.verifications("v").expect("listed"), []);
}
