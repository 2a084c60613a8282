//! Figure 10 and Tables 3 and 4.

use super::super::{Claim, Outcome, Table};
use super::measured::{
    Case, Configuration, Ended, Finder, MailRun, Measured, NO_OTHER, NOT_MEASURED, QueryRun,
    Recovery, Spread, captured, told,
};
use crate::plot::{Chart, Look, Scale, Series};

/// Table 3: reads and writes of the data volume and writes of the log volume, a second.
const TABLE3: [(Configuration, [f64; 3]); 3] = [
    (Configuration::NoEdc, [679.32, 556.79, 70.32]),
    (Configuration::Edc, [544.41, 456.17, 54.2]),
    (Configuration::Version, [516.43, 434.65, 53.95]),
];
const COLUMNS3: [&str; 3] = ["data reads", "data writes", "log writes"];

/// Table 4: data I/Os, checksum I/Os, checksums computed.
fn published(case: Case) -> ([u64; 3], Ended) {
    match case {
        Case::OneWrong => ([3, 0, 2], Ended::DataRecovered),
        Case::BothTheSame => ([2, 1, 2], Ended::ChecksumRecovered),
        Case::BothWrong => ([2, 0, 2], Ended::Refused),
    }
}

/// A chart with a place for each of some names.
fn named(
    title: &str,
    (x_label, y_label): (&str, &str),
    names: &[&str],
    series: Vec<Series>,
) -> Chart {
    let places = names.iter().enumerate().map(|(i, name)| ((i + 1) as f64, (*name).to_owned()));
    // Half a place is free at both ends.
    let [begin, end] = [0.5, names.len() as f64 + 0.5].map(|at| (at, String::new()));
    let ticks = std::iter::once(begin).chain(places).chain([end]);
    Chart {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        y_label: y_label.to_owned(),
        x_scale: Scale::Linear,
        x_ticks: ticks.collect(),
        series,
    }
}

/// Dots beside each other at the places; `aside` of 0 is in the middle of one.
fn dots(name: &str, (colour, aside): (usize, f64), look: Look, values: &[Option<f64>]) -> Series {
    let points = values.iter().enumerate();
    let points = points.filter_map(|(i, value)| value.map(|value| ((i + 1) as f64 + aside, value)));
    Series { name: name.to_owned(), colour, look, points: points.collect() }
}

/// The ratio of two configurations, round by round.
fn ratio<T>(
    runs: &[T],
    key: impl Fn(&T) -> (Configuration, u32),
    value: impl Fn(&T) -> f64,
    (one, other): (Configuration, Configuration),
) -> Option<Spread> {
    let ratios = runs.iter().filter(|run| key(run).0 == one).filter_map(|run| {
        let beside = runs.iter().find(|r| key(r) == (other, key(run).1))?;
        Some(value(run) / value(beside))
    });
    Spread::of(ratios)
}

pub(super) fn fig10(measured: &Measured) -> Outcome {
    let runs = &measured.queries;
    let configurations = measured.configurations(runs, |run| run.configuration);
    let names: Vec<&str> = configurations.iter().map(|one| one.name()).collect();
    let against = |one: Configuration, other: Configuration| {
        ratio(runs, |run| (run.configuration, run.round), |run| run.seconds, (one, other))
    };
    let relative = |one: &Configuration| Some(against(*one, Configuration::NoEdc)?.median);
    let found: Vec<Option<f64>> = configurations.iter().map(relative).collect();
    let paper: Vec<Option<f64>> = configurations.iter().map(|one| paper_time(*one)).collect();
    let series = vec![
        dots("measured", (0, 0.0), Look::Dots, &found),
        dots("paper", (1, 0.0), Look::Squares, &paper),
    ];
    let claim = |one, other, paper: &str, note: &str| {
        let what = format!("time of {} / {}", Configuration::name(one), Configuration::name(other));
        let found = told(against(one, other), 3);
        Claim::new(&what, paper, String::new(), found, true).with_note(note).not_judged()
    };
    use Configuration::{Edc, NoEdc, Pool, Version};
    let claims = vec![
        claim(Edc, NoEdc, "1.12", "EDC costs around 12 %"),
        claim(Version, Pool, "1.02", "2.5 points more of the baseline; little is written"),
        claim(Pool, NoEdc, "-", "what history and the map's checksums cost together, or save"),
        Claim::new("DARC / ARC-1680", "1, matched", String::new(), NO_OTHER.to_owned(), true)
            .not_judged(),
        captured(runs.iter().map(|run| (run.configuration, run.measure))),
    ];
    let columns =
        ["configuration", "round", "seconds", "mb_per_second", "cpu_us_per_request", "captures"];
    let mut table = Table::new(&columns);
    for QueryRun { configuration, round, seconds, measure } in runs {
        table.row(vec![
            configuration.name().to_owned(),
            round.to_string(),
            format!("{seconds:.3}"),
            format!("{:.2}", measure.bytes_per_second / 1e6),
            measure.cpu_us.map_or_else(String::new, |cpu| format!("{cpu:.2}")),
            measure.captures.to_string(),
        ]);
    }
    Outcome {
        name: "darc-fig10",
        title: "Queries over a database",
        setting: format!(
            "A stand-in for TPC-H (4 GB, ten queries, MySQL 5.1 on NTFS), of our making: \
             passes over the volume in 64 KiB with random 16 KiB between, one request in 200 a \
             write; as many for each configuration, RAID-10. {}",
            measured.setting
        ),
        chart: named(
            "Queries over a database: time of the same passes",
            ("configuration", "time, no-edc = 1"),
            &names,
            series,
        ),
        table,
        claims,
    }
}

/// Figure 10's text, against the stack without checksums.
fn paper_time(configuration: Configuration) -> Option<f64> {
    match configuration {
        Configuration::NoEdc => Some(1.0),
        Configuration::Edc => Some(1.12),
        Configuration::Version => Some(1.145),
        _ => None,
    }
}

pub(super) fn table3(measured: &Measured) -> Outcome {
    let runs = &measured.mail;
    let configurations = measured.configurations(runs, |run| run.configuration);
    let names: Vec<&str> = configurations.iter().map(|one| one.name()).collect();
    let value = |run: &MailRun, column: usize| [run.reads, run.writes, run.log_writes][column];
    let key = |run: &MailRun| (run.configuration, run.round);
    let paper_of = |one: Configuration, column: usize| {
        TABLE3.iter().find(|(of, _)| *of == one).map(|(_, values)| values[column])
    };
    let mut claims = Vec::new();
    for one in &configurations {
        for (column, heading) in COLUMNS3.iter().enumerate() {
            let of_it = runs.iter().filter(|run| run.configuration == *one);
            let found = told(Spread::of(of_it.map(|run| value(run, column))), 1);
            let paper = paper_of(*one, column).map_or("-".to_owned(), |value| value.to_string());
            let what = format!("{heading} a second, {}", one.name());
            claims.push(Claim::new(&what, &paper, String::new(), found, true).not_judged());
        }
    }
    // The paper's versions are over EDC; here what carries versions is a volume.
    let pairs = [
        (Configuration::Edc, Configuration::NoEdc, Some((1, 0))),
        (Configuration::Version, Configuration::Pool, Some((2, 1))),
        (Configuration::Pool, Configuration::NoEdc, None),
    ];
    for (one, other, rows) in pairs {
        for (column, heading) in COLUMNS3.iter().enumerate() {
            let paper = rows.map_or("-".to_owned(), |(row, against)| {
                format!("{:.3}", TABLE3[row].1[column] / TABLE3[against].1[column])
            });
            let found = told(ratio(runs, key, |run| value(run, column), (one, other)), 3);
            let what = format!("{heading}, {} / {}", one.name(), other.name());
            claims.push(Claim::new(&what, &paper, String::new(), found, true).not_judged());
        }
    }
    claims.push(captured(runs.iter().map(|run| (run.configuration, run.measure))));
    let relative = |one: &Configuration| {
        let pair = (*one, Configuration::NoEdc);
        Some(ratio(runs, key, |run| value(run, 0), pair)?.median)
    };
    let found: Vec<Option<f64>> = configurations.iter().map(relative).collect();
    let paper = |one: &Configuration| Some(paper_of(*one, 0)? / TABLE3[0].1[0]);
    let paper: Vec<Option<f64>> = configurations.iter().map(paper).collect();
    let series = vec![
        dots("measured", (0, 0.0), Look::Dots, &found),
        dots("paper", (1, 0.0), Look::Squares, &paper),
    ];
    Outcome {
        name: "darc-table3",
        title: "A mail store",
        setting: format!(
            "A stand-in for JetStress (1000 mailboxes of 100 MB), of our making: operations as in \
             Table 2 on pages of 8 KiB; 2.9 KB of log written in order for each 2.9 KB that \
             changed pages leave. The log's IOPS follow the data's here, and each write of it is \
             flushed. The paper also has ARC-1680: 774.94, 703.1 and 626.4 with its write-back \
             cache, 505.32, 425.93 and 39.99 without. RAID-10. {}",
            measured.setting
        ),
        chart: named(
            "A mail store: reads of its data",
            ("configuration", "reads a second, no-edc = 1"),
            &names,
            series,
        ),
        table: table3_numbers(runs),
        claims,
    }
}

fn table3_numbers(runs: &[MailRun]) -> Table {
    let mut table = Table::new(&[
        "configuration",
        "round",
        "data_reads_per_second",
        "data_writes_per_second",
        "log_writes_per_second",
        "data_ios_per_second",
        "p50_us",
        "p99_us",
        "cpu_us_per_request",
        "member_flushes",
        "captures",
        "pruned",
    ]);
    for run in runs {
        let m = &run.measure;
        table.row(vec![
            run.configuration.name().to_owned(),
            run.round.to_string(),
            format!("{:.1}", run.reads),
            format!("{:.1}", run.writes),
            format!("{:.1}", run.log_writes),
            format!("{:.1}", run.reads + run.writes),
            format!("{:.1}", m.p50_us),
            format!("{:.1}", m.p99_us),
            m.cpu_us.map_or_else(String::new, |cpu| format!("{cpu:.2}")),
            m.member_flushes.to_string(),
            m.captures.to_string(),
            m.pruned.to_string(),
        ]);
    }
    table
}

fn case_name(case: Case) -> &'static str {
    match case {
        Case::OneWrong => "pair differs, checksum matches one",
        Case::BothTheSame => "pair the same, checksum does not match",
        Case::BothWrong => "pair differs, checksum matches neither",
    }
}

fn ended_name(ended: Ended) -> &'static str {
    match ended {
        Ended::DataRecovered => "data recovered",
        Ended::ChecksumRecovered => "checksum recovered",
        Ended::Refused => "error to the client",
    }
}

fn counts(of: &Recovery) -> [u64; 3] {
    [of.data_ios, of.checksum_ios, of.checksums]
}

fn shown([data, checksum, computed]: [u64; 3], ended: Ended) -> String {
    format!("{data}, {checksum}, {computed}: {}", ended_name(ended))
}

pub(super) fn table4(measured: &Measured) -> Outcome {
    let mut claims = Vec::new();
    let columns = [
        "found_by",
        "case",
        "data_ios",
        "checksum_ios",
        "checksums",
        "outcome",
        "took_us",
        "clean_us",
    ];
    let mut table = Table::new(&columns);
    for by in Finder::ALL {
        for case in Case::ALL {
            let found = measured.recoveries.iter().find(|r| r.by == by && r.case == case);
            let what = format!("{}, {}", case_name(case), by.name());
            claims.push(claim(&what, by, case, found));
            let Some(found) = found else { continue };
            table.row(vec![
                by.name().to_owned(),
                case_name(case).replace(',', ";"),
                found.data_ios.to_string(),
                found.checksum_ios.to_string(),
                found.checksums.to_string(),
                ended_name(found.ended).to_owned(),
                format!("{:.1}", found.took_us),
                format!("{:.1}", found.clean_us),
            ]);
        }
    }
    Outcome {
        name: "darc-table4",
        title: "Operations of a recovery",
        setting: format!(
            "One block of 4 KiB on RAID-10, overwritten in the members' files and read. Operations \
             are data I/Os, checksum I/Os and checksums computed, as the ledger of the stack \
             counts them. {}",
            measured.setting
        ),
        chart: table4_chart(measured),
        table,
        claims,
    }
}

/// The paper's case is the layer that may overrule its checksum. A map never does, and says so
/// with an error: with the same operations, but for the checksum that is not written.
fn claim(what: &str, by: Finder, case: Case, found: Option<&Recovery>) -> Claim {
    let (counts_wanted, ended_wanted) = published(case);
    let paper = shown(counts_wanted, ended_wanted);
    let Some(found) = found else {
        return Claim::new(what, &paper, String::new(), NOT_MEASURED.to_owned(), true).not_judged();
    };
    let is_by_policy = case == Case::BothTheSame && by != Finder::Layer;
    let (wanted, note) = match is_by_policy {
        true => (
            ([2, 0, 2], Ended::Refused),
            "not as the paper has it, on purpose: what both copies say against their checksum may \
             be wrong on both",
        ),
        false => ((counts_wanted, ended_wanted), ""),
    };
    let holds = (counts(found), found.ended) == wanted;
    let predicted = shown(wanted.0, wanted.1);
    let measured = shown(counts(found), found.ended);
    Claim::new(what, &paper, predicted, measured, holds)
        .fails("any other number of operations, or another end")
        .with_note(note)
}

fn table4_chart(measured: &Measured) -> Chart {
    let columns = ["data I/Os", "checksum I/Os", "checksums"];
    let of = |case: Case| {
        let is_it = |r: &&Recovery| r.by == Finder::Layer && r.case == case;
        measured.recoveries.iter().find(is_it).map(counts)
    };
    let series = columns.iter().enumerate().flat_map(|(column, name)| {
        // Equal counts would lie on each other.
        let pen = (column, (column as f64 - 1.0) * 0.15);
        let found = Case::ALL.map(|case| of(case).map(|counts| counts[column] as f64));
        let paper = Case::ALL.map(|case| Some(published(case).0[column] as f64));
        [
            dots(name, pen, Look::Dots, &found),
            dots(&format!("{name}, paper"), pen, Look::Squares, &paper),
        ]
    });
    let names = ["one", "both, alike", "both, each otherwise"];
    let labels = ("copies that are overwritten", "operations for one read");
    named("Operations of a recovery", labels, &names, series.collect())
}
