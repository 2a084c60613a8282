//! P10: what layers cost, each on a pool and a server of its own.

use anyhow::Result;

use super::Options;
use super::patterns::ALL;
use super::report::Report;
use super::servers::Hindsight;
use super::throughput::{in_turns, measure};

/// The stacks: one member without a layer is what the others are held against.
const STACKS: [(&str, &str); 5] = [
    ("plain", "a.img"),
    ("integrity", "integrity(a.img)"),
    ("mirror", "mirror(a.img, b.img)"),
    ("raid10", "stripe(mirror(a.img, b.img), mirror(c.img, d.img))"),
    ("stripe", "stripe(a.img, b.img)"),
];

/// P10: checksums beside everything, and copies of everything, against neither.
pub fn cost_of_layers(options: &Options) -> Result<Report> {
    let goal = "the integrity layer costs at most 3 % (ratio at least 0.97)";
    let mut report = Report::new("P10: what layers cost", goal, "requests/s");
    for name in ["integrity", "mirror", "raid10", "stripe"] {
        report = report.with_ratio(name, &["plain"], &format!("{name} / plain, round by round"));
    }
    report.note(
        "All members are files on one disk, so a mirror writes everything twice to it. The map's \
         checksums are kept and verified in all of them; there is no setting without.",
    );
    let servers = STACKS
        .iter()
        .map(|(name, stack)| Hindsight::start_on(options, name, stack))
        .collect::<Result<Vec<Hindsight>>>()?;
    for pattern in &ALL {
        for hindsight in &servers {
            hindsight.make_volume("bench", options.size_bytes, "every-write")?;
        }
        in_turns(options.rounds, &servers, |round, hindsight| {
            let found = measure(options, &hindsight.server.uri("bench"), pattern)?;
            let name = hindsight.server.name.as_str();
            report.add(pattern.name, name, round, found.iops, Some(found.p99_us));
            Ok(())
        })?;
        for hindsight in &servers {
            hindsight.delete_volume("bench")?;
        }
    }
    Ok(report)
}
