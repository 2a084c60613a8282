//! Experiments: a workload, what the model says, what is counted, and what a paper says of it.
//!
//! 1. An experiment depends on seed and scale alone, but for what the engine does and how long it
//!    takes, where that is handed in.
//! 2. Every figure that a paper states in words is a claim, and has a verdict with the numbers
//!    beside it. Figures that are only in pictures are not known here and not claimed.
//!
//! Times are not measured, only I/Os and space: what a device makes of them is not known here.
//! Where a paper is about times (`darc`, `clotho`), they are handed in.

mod bench;
mod clotho;
pub mod darc;
mod engine;
mod laden;
mod laden_cache;
mod prediction;
pub mod ucdp;
mod xiao;
pub mod xiao_served;

pub use bench::{Bench, BenchSettings};
pub use clotho::{Compacted, CompactionAsked, CompactionRun, VersionReads};
pub use engine::{EngineAsked, EngineCount};

use serde::Serialize;

use crate::plot::Chart;
use model::{Error, Result};

/// How a claim came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As the paper says, or as predicted.
    Holds,
    /// So, but the workload was made for it to be so: it is evidence of nothing.
    Fit,
    /// Not so; the note says why, if that is known.
    Differs,
    /// The paper says too little, or contradicts itself: shown, not judged.
    NotJudged,
}

/// Something that a paper says, beside what was found.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// What it is about.
    pub what: String,
    /// What the paper says.
    pub paper: String,
    /// What the model says.
    pub predicted: String,
    /// What was counted.
    pub measured: String,
    /// How it came out.
    pub verdict: Verdict,
    /// What would have had to be found for it not to hold.
    pub fails_with: String,
    /// What has to be known to read it.
    pub note: String,
}

impl Claim {
    fn new(what: &str, paper: &str, predicted: String, measured: String, holds: bool) -> Claim {
        let verdict = if holds { Verdict::Holds } else { Verdict::Differs };
        let (what, paper) = (what.to_owned(), paper.to_owned());
        let (fails_with, note) = (String::new(), String::new());
        Claim { what, paper, predicted, measured, verdict, fails_with, note }
    }

    fn with_note(self, note: &str) -> Claim {
        Claim { note: note.to_owned(), ..self }
    }

    fn fails(self, with: &str) -> Claim {
        Claim { fails_with: with.to_owned(), ..self }
    }

    /// The generator was fitted to what is claimed.
    fn fitted(self) -> Claim {
        let verdict = if self.verdict == Verdict::Holds { Verdict::Fit } else { self.verdict };
        Claim { verdict, ..self }
    }

    fn not_judged(self) -> Claim {
        Claim { verdict: Verdict::NotJudged, ..self }
    }
}

/// Numbers with headings.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Headings.
    pub columns: Vec<String>,
    /// Rows, each as long as the headings.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    fn new(columns: &[&str]) -> Table {
        Table { columns: columns.iter().map(|name| (*name).to_owned()).collect(), rows: Vec::new() }
    }

    fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "a row is as wide as the heading");
        self.rows.push(cells);
    }

    /// As CSV. No cell holds a comma or a quote: they are numbers and names of ours.
    #[must_use]
    pub fn csv(&self) -> String {
        let lines = std::iter::once(&self.columns).chain(&self.rows);
        lines.map(|cells| cells.join(",") + "\n").collect()
    }
}

/// The middle of some numbers; none of none.
fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len().checked_sub(1)? / 2;
    Some(numbers[middle].midpoint(numbers[numbers.len() / 2]))
}

/// What came out of an experiment.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// What it ran on.
    pub setting: String,
    /// Its picture.
    pub chart: Chart,
    /// Its numbers.
    pub table: Table,
    /// What it says of the paper.
    pub claims: Vec<Claim>,
}

/// One that can be run.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    run: fn(&mut Bench) -> Result<Found>,
}

/// An outcome without its name.
struct Found {
    setting: String,
    chart: Chart,
    table: Table,
    claims: Vec<Claim>,
}

/// All there are, in the order of the papers.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "laden-fig5",
        title: "Device I/Os for one write, by architecture",
        run: prediction::fig5,
    },
    Experiment {
        name: "laden-fig6",
        title: "Space for current data and history",
        run: prediction::fig6,
    },
    Experiment {
        name: "laden-fig7",
        title: "How long until a write is overwritten",
        run: laden::fig7,
    },
    Experiment {
        name: "laden-fig8",
        title: "Retained writes by granularity, predicted and counted",
        run: laden::fig8,
    },
    Experiment {
        name: "laden-fig9",
        title: "I/Os by granularity: like SPC-1 with 100 BSU on 100 GB",
        run: laden::fig9,
    },
    Experiment {
        name: "laden-fig10",
        title: "I/Os by granularity: like SPC-1 with 33 BSU on 100 GB",
        run: laden::fig10,
    },
    Experiment {
        name: "laden-fig11",
        title: "I/Os predicted and counted: like SPC-1 with 100 BSU on 100 GB",
        run: laden::fig11,
    },
    Experiment {
        name: "laden-fig12",
        title: "I/Os by granularity: like cello99 with 64 MB of cache",
        run: laden::fig12,
    },
    Experiment {
        name: "laden-fig13",
        title: "I/Os predicted and counted: like cello99 with 64 MB of cache",
        run: laden::fig13,
    },
    Experiment {
        name: "laden-fig14",
        title: "I/Os by cache: like cello99 at 10 minutes",
        run: laden_cache::fig14,
    },
    Experiment {
        name: "hybrid-spc1",
        title: "Split-downstream or checkpointing, chosen at each destage: like SPC-1",
        run: laden_cache::hybrid_spc1,
    },
    Experiment {
        name: "hybrid-cello",
        title: "Split-downstream or checkpointing, chosen at each destage: like cello99",
        run: laden_cache::hybrid_cello,
    },
    Experiment {
        name: "prediction",
        title: "How far prediction and count are apart, on every generator",
        run: prediction::generators,
    },
    Experiment {
        name: "xiao-first-write",
        title: "What the first write after a capture costs",
        run: xiao::first_write,
    },
    Experiment {
        name: "xiao-block-size",
        title: "I/Os and space by the size of a snapshot's blocks",
        run: xiao::block_size,
    },
    Experiment {
        name: "xiao-mix",
        title: "Copy-on-write and redirect-on-write by the share of reads",
        run: xiao::mix,
    },
    Experiment {
        name: "clotho-fig14",
        title: "A compacted version: its space, and random reads of it",
        run: clotho::fig14,
    },
];

/// The experiments that names stand for: a name, the beginning of some (`laden`), or `all`.
///
/// # Errors
/// `Setting` for a name that stands for none.
pub fn chosen(names: &[String]) -> Result<Vec<Experiment>> {
    let stands_for = |name: &str, one: &Experiment| {
        let group = one.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
        name == "all" || one.name == name || group
    };
    for name in names {
        if !EXPERIMENTS.iter().any(|one| stands_for(name, one)) {
            let known: Vec<&str> = EXPERIMENTS.iter().map(|one| one.name).collect();
            return Err(Error::setting(format!("there is no experiment {name}"))
                .with_hint(format!("there are all, {}", known.join(", "))));
        }
    }
    let is_chosen = |one: &&Experiment| names.iter().any(|name| stands_for(name, one));
    Ok(EXPERIMENTS.iter().filter(is_chosen).copied().collect())
}

impl Experiment {
    /// Runs it.
    ///
    /// # Errors
    /// What a generator refuses.
    pub fn run(&self, bench: &mut Bench) -> Result<Outcome> {
        let Found { setting, chart, table, claims } = (self.run)(bench)?;
        Ok(Outcome { name: self.name, title: self.title, setting, chart, table, claims })
    }
}
