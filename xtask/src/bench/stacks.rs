//! P10 and parity: what layers cost, each on a pool and a server of its own.

use anyhow::Result;

use super::Options;
use super::patterns::ALL;
use super::report::Report;
use super::servers::Hindsight;
use super::throughput::{in_turns, measure};

/// The stacks of P10: one member without a layer is what the others are held against.
const LAYERS: [(&str, &str); 4] = [
    ("plain", "a.img"),
    ("mirror", "mirror(a.img, b.img)"),
    ("raid10", "stripe(mirror(a.img, b.img), mirror(c.img, d.img))"),
    ("stripe", "stripe(a.img, b.img)"),
];

/// Two members' worth of data with parity over it, and without; and two copies.
const PARITIES: [(&str, &str); 4] = [
    ("stripe", "stripe(a.img, b.img)"),
    ("mirror", "mirror(a.img, b.img)"),
    ("parity-3-1", "parity(a.img, b.img, c.img)"),
    ("parity-4-2", "parity[failures=2](a.img, b.img, c.img, d.img)"),
];

/// P10: copies of everything, and stripes, against one member. No layer has checksums: what those of
/// DARC cost is the business of `darc`.
pub fn cost_of_layers(options: &Options) -> Result<Report> {
    let goal = "none; what a client pays for copies and stripes";
    let mut report = Report::new("P10: what layers cost", goal, "requests/s");
    for name in ["mirror", "raid10", "stripe"] {
        report = report.with_ratio(name, &["plain"], &format!("{name} / plain, round by round"));
    }
    report.note(
        "All members are files on one disk, so a mirror writes everything twice to it. The map's \
         checksums are kept and verified in all of them; there is no setting without.",
    );
    measure_stacks(options, &LAYERS, report)
}

/// Parity over two members' worth of data, against a stripe of as much and against a mirror.
pub fn cost_of_parity(options: &Options) -> Result<Report> {
    let goal = "none; what a client pays for parity instead of nothing or of a second copy";
    let mut report = Report::new("What parity costs", goal, "requests/s");
    for name in ["parity-3-1", "parity-4-2"] {
        for other in ["stripe", "mirror"] {
            let text = format!("{name} / {other}, round by round");
            report = report.with_ratio(name, &[other], &text);
        }
    }
    report.note(
        "`parity-N-F`: N members of which F may be lost, so that stripe and both parities have the \
         data of two. All members are files on one disk: what would go to several disks at a time \
         goes to one, and is flushed there.",
    );
    measure_stacks(options, &PARITIES, report)
}

/// Every pattern on every stack in turns.
fn measure_stacks(
    options: &Options,
    stacks: &[(&str, &str)],
    mut report: Report,
) -> Result<Report> {
    let servers = stacks
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
