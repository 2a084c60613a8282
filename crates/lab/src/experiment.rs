//! Experiments: a workload, what the model says, what is counted, and what a paper says of it.
//!
//! 1. An experiment depends on seed and scale alone, but for what the engine does and how long it
//!    takes, where that is handed in.
//! 2. Every figure that a paper states in words is a claim, and has a verdict with the numbers
//!    beside it. Figures that are only in pictures are not known here and not claimed.
//!
//! Times are not measured, only I/Os and space: what a device makes of them is not known here.
//! Where a paper is about times (`darc`, `clotho`), they are handed in.

mod asked;
mod bench;
mod clotho;
pub mod darc;
mod drawing;
mod engine;
mod laden;
mod laden_cache;
mod outcome;
mod prediction;
pub mod ucdp;
mod xiao;
pub mod xiao_served;

pub use asked::{
    Compacted, CompactionAsked, CompactionRun, EngineAsked, EngineCount, VersionReads,
};
pub use bench::{Bench, BenchSettings};
pub use outcome::{Claim, Outcome, Table, Verdict};

use model::{Error, Result};

use outcome::Found;

/// One that can be run.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    run: fn(&mut Bench) -> Result<Found>,
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
