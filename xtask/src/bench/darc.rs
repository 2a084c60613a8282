//! P10 and P11 as DARC's figures have them: `hindsight lab darc` measures in turns, and its numbers
//! are made into ratios within rounds here. No sockets: the lab calls the engine.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Options;
use super::report::Report;
use crate::program;

/// What the lab writes of each figure on RAID-10.
const FIGURES: [&str; 5] = ["fig6-ws", "fig6-rs", "fig8-oltp", "fig8-fs", "fig8-web"];
/// The most and the fewest in flight of the paper, and one between.
const DEPTHS: [&str; 3] = ["1", "8", "64"];

/// The laboratory's layer of checksums against none; versions with pruning beside the load against none.
pub fn figures(options: &Options) -> Result<Report> {
    let goal = "DARC: EDC costs 12 to 20 %, versions every 60 s with purge 2.5 to 5 % more";
    let mut report = Report::new("DARC's configurations on RAID-10", goal, "requests/s")
        .with_ratio("edc", &["no-edc"], "edc / no-edc, round by round")
        .with_ratio("pool-version", &["pool"], "pool-version / pool, round by round");
    let output = options.directory.join("darc");
    program::cargo(&["build", "--release", "-p", "hindsight-lab-cli"])?;
    let mut command = Command::new(&options.hindsight);
    command.args(["lab", "darc", "fig6", "fig8", "--json", "--output"]).arg(&output);
    command.args(["--rounds", &options.rounds.to_string()]);
    command.args(["--time", &format!("{}s", options.seconds)]);
    command.args(["--size", &options.size_bytes.to_string()]);
    for depth in DEPTHS {
        command.args(["--depth", depth]);
    }
    program::output(&mut command)?;
    for figure in FIGURES {
        let path = output.join(format!("darc-{figure}.csv"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        read(&mut report, figure, &text).with_context(|| path.display().to_string())?;
    }
    let each = f64::from(options.seconds) / 5.0;
    report.note(format!(
        "Versions every {:.1} s, so that a measurement has as many as the paper's five minutes \
         (schedules capture no more often than every second); the one before is pruned. All \
         members are files on one disk, through the page cache.",
        each.max(1.0)
    ));
    Ok(report)
}

/// Adds the rows of a figure.
fn read(report: &mut Report, figure: &str, text: &str) -> Result<()> {
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let heading = lines.next().context("it is empty")?;
    let place = |name: &str| {
        let found = heading.iter().position(|column| *column == name);
        found.with_context(|| format!("it has no column {name}"))
    };
    let [configuration, depth, round] = [place("configuration")?, place("depth")?, place("round")?];
    let [requests, p99] = [place("requests_per_second")?, place("p99_us")?];
    for row in lines {
        ensure!(row.len() == heading.len(), "a row is as wide as the heading: {row:?}");
        let case = format!("{figure} QD{}", row[depth]);
        let p99_us = row[p99].parse().ok();
        report.add(&case, row[configuration], row[round].parse()?, row[requests].parse()?, p99_us);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Report, read};

    #[test]
    fn rows_are_made_into_ratios() {
        let mut report = Report::new("", "", "requests/s").with_ratio("edc", &["no-edc"], "ratio");
        let text = "configuration,depth,round,requests_per_second,p99_us\n\
                    no-edc,8,0,100.0,5\nedc,8,0,80.0,6\nno-edc,8,1,200.0,5\nedc,8,1,180.0,6\n";
        read(&mut report, "fig6-ws", text).expect("read");
        let summary = report.summary();
        assert!(summary.contains("| fig6-ws QD8 | 0.85 | 0.80 | 0.90 |"), "{summary}");
        assert!(read(&mut report, "fig6-ws", "configuration\nedc\n").is_err());
    }
}
