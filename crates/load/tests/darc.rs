//! All of DARC's figures and tables on small files for an instant: not how fast it is, but that
//! everything is there.

use std::time::Duration;

use hindsight_load::darc::{DarcSettings, measure};
use lab::experiment::darc::{Configuration, Exhibit, outcomes};
use lab::experiment::{Outcome, Verdict};

fn settings(dir: &std::path::Path) -> DarcSettings {
    DarcSettings {
        exhibits: Exhibit::ALL.to_vec(),
        configurations: Configuration::ALL.to_vec(),
        depths: vec![1, 8],
        dir: dir.to_owned(),
        volume_bytes: 8 << 20,
        members: 4,
        warm_up: Duration::ZERO,
        time: Duration::from_millis(20),
        rounds: 1,
        seed: 1,
    }
}

#[test]
fn every_row_is_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = settings(dir.path());
    let mut said = Vec::new();
    let measured =
        measure(&settings, None, &mut |text| said.push(text.to_owned())).expect("measured");
    assert!(said.iter().any(|text| text == "RAID-10 OLTP depth 8"), "{said:?}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 0, "nothing is left");
    // Five patterns on two layouts, two depths, four configurations; nothing is served.
    assert_eq!(measured.points.len(), 5 * 2 * 2 * 4);
    assert_eq!((measured.queries.len(), measured.mail.len()), (4, 4));
    for point in &measured.points {
        let m = point.measure;
        assert!(m.requests_per_second > 0.0 && m.p50_us <= m.p99_us, "{point:?}");
        let wants = point.configuration.checksums_a_block();
        assert_eq!(m.checksums > 0.0, wants > 0, "{point:?}");
    }
    let all = outcomes(&measured, &settings.exhibits);
    let names: Vec<&str> = all.iter().map(|one| one.name).collect();
    let figures = ["fig5-ws", "fig5-rs", "fig6-ws", "fig6-rs", "fig7-oltp", "fig7-fs", "fig7-web"];
    let more = ["fig8-oltp", "fig8-fs", "fig8-web", "fig9-ws", "fig9-rs", "fig10", "table3"];
    let wanted = figures.into_iter().chain(more).chain(["table4"]);
    assert_eq!(names, wanted.map(|name| format!("darc-{name}")).collect::<Vec<_>>());
    let of = |name: &str| all.iter().find(|one| one.name == name).expect("there");
    table4(of("darc-table4"));
    table3(of("darc-table3"));
    let missing = &of("darc-fig9-rs").claims[0];
    assert!(missing.measured.starts_with("not available: "), "{missing:?}");
    assert!(missing.paper.contains("177 %"), "{missing:?}");
    for one in &all {
        let differs = one.claims.iter().find(|claim| claim.verdict == Verdict::Differs);
        assert!(differs.is_none(), "{differs:?}");
        let is_served = one.name.starts_with("darc-fig9");
        assert_eq!(one.table.rows.is_empty(), is_served, "{}", one.name);
        assert!(!one.chart.series.is_empty(), "{}", one.name);
    }
}

/// The paper's counts, measured.
fn table4(one: &Outcome) {
    let rows: Vec<[&str; 4]> =
        one.table.rows.iter().take(3).map(|r| [&*r[2], &*r[3], &*r[4], &*r[5]]).collect();
    assert_eq!(
        rows,
        [
            ["3", "0", "2", "data recovered"],
            ["2", "1", "2", "checksum recovered"],
            ["2", "0", "2", "error to the client"],
        ]
    );
    let holds = one.claims.iter().filter(|claim| claim.verdict == Verdict::Holds).count();
    assert_eq!((holds, one.claims.len()), (6, 6));
}

/// The paper's numbers stand beside ours.
fn table3(one: &Outcome) {
    let paper = |what: &str| {
        let claim = one.claims.iter().find(|claim| claim.what == what);
        claim.unwrap_or_else(|| panic!("{what} is not there")).paper.clone()
    };
    assert_eq!(paper("data reads a second, no-edc"), "679.32");
    assert_eq!(paper("log writes a second, pool-version"), "53.95");
    assert_eq!(paper("data writes, edc / no-edc"), "0.819");
    assert_eq!(paper("data reads, pool-version / pool"), "0.949");
    assert_eq!(one.table.rows.len(), 4);
}

#[test]
fn versions_are_captured_and_pruned_beside_the_load() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = DarcSettings {
        exhibits: vec![Exhibit::Table3],
        configurations: vec![Configuration::Pool, Configuration::Version],
        time: Duration::from_millis(6500),
        ..settings(dir.path())
    };
    let measured = measure(&settings, None, &mut |_| {}).expect("measured");
    let [pool, version] = &measured.mail[..] else { panic!("{:?}", measured.mail) };
    assert_eq!((pool.measure.captures, pool.measure.pruned), (0, 0));
    // One a second; each but the first makes the one before it go.
    let m = version.measure;
    assert!(m.captures >= 2 && m.pruned >= 1, "{m:?}");
    assert!(m.member_flushes > 0, "a capture is a commit, and the log of the mail is durable");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let with = |change: &dyn Fn(&mut DarcSettings)| {
        let mut settings = settings(dir.path());
        change(&mut settings);
        measure(&settings, None, &mut |_| {}).expect_err("refused").to_string()
    };
    assert!(with(&|s| s.members = 3).contains("even number"));
    assert!(with(&|s| s.rounds = 0).contains("one round"));
    assert!(with(&|s| s.depths = vec![0]).contains("1 to 1024"));
    assert!(with(&|s| s.volume_bytes = 1 << 20).contains("8 at least"));
    assert!(with(&|s| s.dir = s.dir.join("none")).contains("none"));
    assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 0, "nothing was made");
}
