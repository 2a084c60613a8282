//! Each check that a server cannot be made to fail by a test of the program, with what it looks at.

use std::path::Path;

use api::{ExitCode, Healed, Import, Scrub, Server, SpanInput, Time, Volume};
use server::{Config, Settings, write_memory_default};
use units::{Span, WallTime};

use super::machine::{asked_memory, look_at_files, look_at_kind, look_at_memory, look_at_program};
use super::report::{Level, Report, SERVER};
use super::served::{self, Served};

const DAY_NS: u64 = 86_400_000_000_000;

fn day(number: u64) -> Time {
    Time(WallTime::from_nanos(20_000 * DAY_NS + number * DAY_NS))
}

/// The answers about a pool of one file with nothing wrong.
fn healthy() -> Served {
    let pool = r#"{"id":"0123456789abcdef","state":"online","layers":"disk(pool.img)",
        "format_version":1,"server_version":"0","volumes":0,"size_bytes":1,"used_bytes":0,
        "free_bytes":1,"available_bytes":1,"promised_bytes":0,"fill_percent":0,"warning":null,
        "warning_percent":0,"live_bytes":0,"live_exact":true,"history_bytes":0,"pinned_bytes":0,
        "trash_volumes":0,"trash_bytes":0,"common_bytes":0,"common_named_bytes":0,"growth":null,
        "full_in":null,"next_sacrifice":null,"reclaimable_bytes":0,"log_bytes":0,
        "current_bytes":0,"map_bytes":0,"catalogue_bytes":0,"pending_entries":0,
        "checksum_errors":0,"healed":{"recovered":0,"transient":0,"unrecoverable":0},
        "members":[{"path":"pool.img","id":"1","state":"in","present":true,"size_bytes":1,
        "errors":0,"read_bytes":0,"written_bytes":0}],"behind_bytes":0,"scrub":null,
        "scrub_every":null,"scrub_rate_bytes":null,"rebuild_rate_bytes":null,
        "write_buffers":[{"path":"pool.img","state":"in-use","why":null,"memory":null,
        "size_bytes":1,"waiting_bytes":0}]}"#;
    Served {
        server: Server {
            version: "0".to_owned(),
            time: day(30),
            started: day(0),
            nbd_socket: None,
            nbd: Some("127.0.0.1:10809".to_owned()),
            iscsi: None,
            nfs: vec!["[::1]:20490".to_owned()],
            page: None,
            hooks: Vec::new(),
            who: None,
        },
        pool: serde_json::from_str(pool).expect("a pool"),
        volumes: Vec::new(),
        schedules: Vec::new(),
        alarms: Vec::new(),
        made: Some(day(0)),
    }
}

fn scrub(state: &str, ended: Option<Time>, lost: u64) -> Option<Scrub> {
    Some(Scrub {
        state: state.to_owned(),
        started: day(0),
        ended,
        progress_percent: 100,
        read_bytes: 0,
        wrong: lost,
        healed: 0,
        repaired: 0,
        elsewhere: 0,
        lost,
        losses: Vec::new(),
    })
}

fn report(change: impl FnOnce(&mut Served)) -> Report {
    let mut served = healthy();
    change(&mut served);
    let mut report = Report::default();
    served::look(&served, &mut report);
    report
}

fn found(change: impl FnOnce(&mut Served)) -> Vec<(&'static str, Level)> {
    let report = report(change);
    report.findings.iter().map(|finding| (finding.check, finding.level)).collect()
}

#[test]
fn a_good_pool_is_told_nothing_of() {
    assert_eq!(found(|_| {}), []);
}

#[test]
fn a_pool_that_refuses_writes_or_has_a_failed_write_buffer_is_critical() {
    let refuses = found(|s| s.pool.state = "refusing-writes".to_owned());
    assert_eq!(refuses, [("pool-writes", Level::Critical)]);
    assert_eq!(found(|s| s.pool.state = "degraded".to_owned()), [], "it takes writes");
    let failed = found(|s| s.pool.write_buffers[0].state = "failed".to_owned());
    assert_eq!(failed, [("write-buffer", Level::Critical)]);
}

#[test]
fn each_state_of_a_member_has_its_level() {
    for (state, present, level) in [
        ("in", true, None),
        ("spare", true, None),
        ("stale", true, Some(Level::Warning)),
        ("copying", true, Some(Level::Warning)),
        ("out", true, Some(Level::Critical)),
        ("in", false, Some(Level::Critical)),
        ("spare", false, Some(Level::Warning)),
    ] {
        let is = found(|s| {
            s.pool.members[0].state = state.to_owned();
            s.pool.members[0].present = present;
        });
        let expected: Vec<_> = level.map(|level| ("member", level)).into_iter().collect();
        assert_eq!(is, expected, "{state} {present}");
    }
}

#[test]
fn wrong_checksums_are_a_warning_and_lost_data_is_critical() {
    let warning = [("checksums", Level::Warning)];
    assert_eq!(found(|s| s.pool.checksum_errors = 1), warning);
    let healed = Healed { recovered: 1, ..healthy().pool.healed };
    assert_eq!(found(|s| s.pool.healed = healed), warning);
    let critical = [("data-lost", Level::Critical)];
    let gone = Healed { unrecoverable: 1, ..healthy().pool.healed };
    assert_eq!(found(|s| s.pool.healed = gone), critical);
    assert_eq!(found(|s| s.pool.scrub = scrub("done", Some(day(29)), 1)), critical);
}

#[test]
fn a_pool_that_fills_is_a_warning_and_a_full_one_is_critical() {
    let full = |percent: u64| {
        found(|s| {
            s.pool.warning_percent = percent;
            s.pool.warning = Some(format!("the pool is {percent} % full"));
        })
    };
    assert_eq!(full(75), [("space", Level::Warning)]);
    assert_eq!(full(95), [("space", Level::Critical)]);
}

#[test]
fn an_alarm_whose_mark_is_there_is_critical() {
    let alarm = r#"{"given":"2026-01-01T00:00:00Z","kind":"wiped","bytes":1,"mark":"watch-1",
        "seq":1,"time":"2026-01-01T00:00:00Z","held":true}"#;
    let alarm = serde_json::from_str(alarm).expect("an alarm");
    let alarms = vec![("pg".to_owned(), alarm)];
    assert_eq!(found(|s| s.alarms.clone_from(&alarms)), [("watch", Level::Critical)]);
}

/// The answer about a volume with nothing wrong.
fn volume() -> Volume {
    let volume = r#"{"name":"pg","size":1,"architecture":"logging","granularity":"every-write",
        "extent":1,"window":"1d","window_held":"1d","window_kept":true,"state":"online",
        "clients":0,"live_bytes":0,"live_exact":true,"history_bytes":0,"pinned_bytes":0,
        "hook":"freeze","hook_known":true,
        "oldest":{"seq":0,"time":"2026-01-01T00:00:00Z"},
        "latest":{"seq":0,"time":"2026-01-01T00:00:00Z"},"created":"2026-01-01T00:00:00Z",
        "unplaced_bytes":0,"deferred_bytes":0,"time_ahead_seconds":0,"unfinished_import":false,
        "base_bytes":0,"versions":0,"device_io":[]}"#;
    serde_json::from_str(volume).expect("a volume")
}

#[test]
fn windows_hooks_and_imports_of_volumes_are_told_of() {
    let of = |change: &dyn Fn(&mut Volume)| {
        let mut volume = volume();
        change(&mut volume);
        found(|s| s.volumes = vec![volume])
    };
    let held = |hours: u64| {
        of(&|v| {
            v.window_kept = false;
            v.window_held = SpanInput(Span(hours * 3_600_000_000_000));
        })
    };
    assert_eq!(of(&|_| {}), []);
    assert_eq!(held(18), [("window", Level::Warning)]);
    assert_eq!(held(17), [("window", Level::Critical)]);
    assert_eq!(of(&|v| v.hook_known = false), [("hook", Level::Warning)]);
    assert_eq!(of(&|v| v.unfinished_import = true), [("import", Level::Warning)]);
    let import = |trouble: Option<&str>| Import {
        file: "/image".to_owned(),
        done_bytes: 0,
        total_bytes: 1,
        unverified_bytes: 1,
        trouble: trouble.map(str::to_owned),
    };
    assert_eq!(of(&|v| v.import = Some(import(None))), []);
    assert_eq!(of(&|v| v.import = Some(import(Some("it changed")))), [("import", Level::Critical)]);
}

#[test]
fn a_scrub_is_old_after_35_days_and_a_new_pool_needs_none() {
    let old = [("scrub", Level::Warning)];
    let at = |now: u64, scrub: Option<Scrub>| {
        found(|s| {
            s.server.time = day(now);
            s.pool.scrub = scrub;
        })
    };
    assert_eq!(at(35, None), []);
    assert_eq!(at(36, None), old);
    assert_eq!(at(70, scrub("done", Some(day(35)), 0)), []);
    assert_eq!(at(71, scrub("done", Some(day(35)), 0)), old);
    assert_eq!(at(71, scrub("running", None, 0)), []);
    assert_eq!(at(71, scrub("stopped", Some(day(70)), 0)), old, "it did not read everything");
    let stopped = report(|s| {
        s.server.time = day(71);
        s.pool.scrub = scrub("stopped", Some(day(70)), 0);
    });
    assert_eq!(stopped.findings[0].what, "the last scrub was stopped before its end");
}

#[test]
fn addresses_beyond_this_machine_are_noted() {
    let note = ("listener", Level::Note);
    assert_eq!(found(|s| s.server.nbd = Some("0.0.0.0:10809".to_owned())), [note]);
    assert_eq!(found(|s| s.server.iscsi = Some("192.0.2.1:3260".to_owned())), [note]);
    assert_eq!(found(|s| s.server.nfs = vec!["[::]:20490".to_owned()]), [note]);
}

fn machine(look: impl FnOnce(&mut Report)) -> Vec<(&'static str, Level)> {
    let mut report = Report::default();
    look(&mut report);
    report.findings.iter().map(|finding| (finding.check, finding.level)).collect()
}

#[test]
fn limits_and_programs_and_file_systems_are_told_of() {
    let limits =
        |hard: &str| format!("Max open files            1024                 {hard}      files\n");
    let files = |hard: &str| machine(|r| look_at_files(&limits(hard), None, r));
    assert_eq!(files("1279"), [("open-files", Level::Warning)]);
    assert_eq!(files("1280"), []);
    assert_eq!(files("unlimited"), []);
    let memory = |asked: u64| machine(|r| look_at_memory(asked, 1000, r));
    assert_eq!(memory(801), [("memory", Level::Warning)]);
    assert_eq!(memory(800), []);
    let settings = Settings { pool: Some("/pool".into()), ..Settings::default() };
    let config = Config::from_settings(settings).expect("the default");
    let limits = [1 << 30, 1 << 40];
    let [of_group, of_machine] = limits.map(|limit| asked_memory(&config, limit));
    let buffers = limits.map(|limit| write_memory_default(limit).unwrap_or(0));
    assert_eq!(of_machine - of_group, buffers[1] - buffers[0], "a small group has small buffers");
    let program = |name: &str| machine(|r| look_at_program(name, r));
    assert_eq!(program("/usr/bin/hindsight (deleted)"), [("program", Level::Warning)]);
    assert_eq!(program("/usr/bin/hindsight"), []);
    let kind = |number: u64| machine(|r| look_at_kind(Path::new("/pool"), number, r));
    assert_eq!(kind(0x6969), [("file-system", Level::Warning)]);
    assert_eq!(kind(0x0102_1994), [("file-system", Level::Critical)]);
    assert_eq!(kind(0xef53), [], "ext4");
}

#[test]
fn the_exit_code_is_that_of_monitoring_plugins() {
    let code = |levels: &[Level], is_asked: bool| {
        let mut report = Report::default();
        levels.iter().for_each(|&level| report.find(("x", level), "", "", ""));
        report.not_looked("clock", "");
        if !is_asked {
            report.not_looked(SERVER, "");
        }
        report.exit_code()
    };
    assert_eq!(code(&[], true) as i32, 0);
    assert_eq!(code(&[Level::Note], true) as i32, 0);
    assert_eq!(code(&[Level::Warning, Level::Note], true) as i32, 1);
    assert_eq!(code(&[Level::Warning, Level::Critical], true) as i32, 2);
    assert_eq!(code(&[Level::Warning], false) as i32, 3);
    assert_eq!(code(&[Level::Critical], false), ExitCode::Usage);
}
