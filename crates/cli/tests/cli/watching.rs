//! What watches a server: its metrics as Prometheus checks them, the alert rules and the dashboard
//! in `dist/`. `promtool` is part of the Debian package prometheus.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::fixture::{Fixture, run};

fn dist(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(file)
}

fn promtool() -> Command {
    Command::new("promtool")
}

/// A server on two members with everything that has metrics of its own, and what it serves.
fn metrics() -> String {
    let dir = tempfile::tempdir().expect("directory");
    let pool = dir.path().join("pool");
    let pool = pool.to_str().expect("UTF-8");
    let make = ["pool", "create", "--pool", pool, "--size", "512MiB"];
    let made = run(&[&make[..], &["--stack", "mirror(a.img, b.img)"]].concat());
    assert_eq!(made.code, 0, "{made:?}");
    let fixture = Fixture::on(dir);
    fixture.ok(&["volume", "create", "pg", "--size", "64MiB"]);
    fixture.ok(&["version", "schedule", "set", "pg", "--every", "7d", "--keep-last", "1"]);
    fixture.ok(&["pool", "scrub", "--wait"]);
    let writes = ["write -P 1 0 1M", "write -f -P 2 0 4k"];
    // Of what is carried out at once one wake-up in 16 is timed.
    let trims = ["discard 0 4k"; 33];
    let commands = [&writes[..], &["read 0 1M", "read 0 4k", "flush"], &trims].concat();
    assert!(fixture.qemu_io("pg", &commands));
    let answer = fixture.http("/metrics");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(body.ends_with("# EOF\n"), "{body}");
    body.to_owned()
}

/// OpenMetrics as the older text format that `promtool check metrics` reads: there a counter has
/// `_total` in its name also where its help and type are told, and an info is a gauge.
fn as_text(metrics: &str) -> String {
    let of_kind = |kind: &'static str| {
        let types = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let named = types.filter_map(move |line| line.strip_suffix(kind));
        named.map(|name| name.trim_end().to_owned()).collect::<BTreeSet<_>>()
    };
    let (counters, infos) = (of_kind(" counter"), of_kind(" info"));
    let mut text = String::new();
    for line in metrics.lines().filter(|line| *line != "# EOF") {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", what, name, rest] if counters.contains(name) => {
                text.push_str(&format!("# {what} {name}_total {rest}\n"));
            }
            ["#", what, name, rest] if infos.contains(name) => {
                let rest = rest.replace("info", "gauge");
                text.push_str(&format!("# {what} {name}_info {rest}\n"));
            }
            _ => text.push_str(&format!("{line}\n")),
        }
    }
    text
}

/// The names of metrics in a query, or in many.
fn names(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c));
    words.filter(|word| word.starts_with("hindsight_") || word.starts_with("process_")).collect()
}

#[test]
fn promtool_finds_nothing_wrong_with_the_metrics_and_units_are_base_units() {
    let metrics = metrics();
    let mut check = promtool();
    check.args(["check", "metrics"]).stdin(Stdio::piped());
    let mut check = check.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("promtool");
    let text = as_text(&metrics);
    check.stdin.take().expect("piped").write_all(text.as_bytes()).expect("send");
    let output = check.wait_with_output().expect("promtool");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}\n{text}");
    for name in names(&metrics) {
        let is_wrong = ["_percent", "_per_day", "_ms", "_ns", "_kb"].iter();
        assert!(!is_wrong.clone().any(|end| name.ends_with(end)), "{name}");
    }
    for line in [
        "hindsight_build_info{version=",
        "process_cpu_seconds_total ",
        "process_resident_memory_bytes ",
        "process_open_fds ",
        "process_start_time_seconds ",
    ] {
        assert!(metrics.lines().any(|served| served.starts_with(line)), "{line}: {metrics}");
    }
}

#[test]
fn requests_are_counted_by_kind_with_the_time_they_took() {
    let metrics = metrics();
    let count = |kind: &str| -> u64 {
        let name = format!("hindsight_nbd_request_seconds_count{{kind=\"{kind}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(name.as_str()));
        line.expect("a count").parse().expect("a number")
    };
    // A flush, a write with FUA, and what is of 1 MiB are jobs, which are all timed.
    let counts = ["flush", "trim", "read", "write"].map(count);
    assert!(counts.iter().zip([1, 1, 1, 2]).all(|(count, least)| *count >= least), "{metrics}");
    let http = "hindsight_http_request_seconds_count";
    assert!(metrics.lines().any(|line| line.starts_with(http)), "{metrics}");
    let last = "hindsight_nbd_request_seconds_bucket{le=\"+Inf\",kind=\"flush\"}";
    assert!(metrics.contains(last) || metrics.contains("kind=\"flush\",le=\"+Inf\""), "{metrics}");
}

#[test]
fn every_alert_can_fire_and_every_metric_that_alerts_and_panels_name_is_served() {
    let tests = ["test", "rules", "alerts_test.yml", "alerts_slow_test.yml"];
    for arguments in [&["check", "rules", "alerts.yml"][..], &tests] {
        let mut promtool = promtool();
        let output = promtool.args(arguments).current_dir(dist("")).output().expect("promtool");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    let read = |file: &str| fs::read_to_string(dist(file)).expect("a file of dist");
    let (alerts, panels) = (read("alerts.yml"), read("dashboard.json"));
    let tests = tests[2..].iter().map(|file| read(file)).collect::<String>();
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(tests.contains(&format!("alertname: {alert}\n")), "nothing makes {alert} fire");
    }
    let metrics = metrics();
    let samples = metrics.lines().filter(|line| !line.starts_with('#'));
    let samples = samples.collect::<Vec<_>>().join("\n");
    let served = names(&samples);
    let dashboard: serde_json::Value = serde_json::from_str(&panels).expect("JSON");
    let queries: Vec<&str> = dashboard["panels"]
        .as_array()
        .expect("panels")
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("targets"))
        .map(|target| target["expr"].as_str().expect("a query"))
        .collect();
    let queries = queries.join("\n");
    let named = names(&alerts).into_iter().chain(names(&queries));
    let missing: Vec<&str> = named.filter(|name| !served.contains(name)).collect();
    assert!(missing.is_empty(), "not served: {missing:?}");
    let variables = dashboard["templating"].to_string();
    assert!(names(&variables).is_subset(&served), "{variables}");
}
