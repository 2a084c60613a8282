//! What comes out of an experiment: claims with their verdicts, a table and a picture.

use serde::Serialize;

use crate::plot::Chart;

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
    pub(super) fn new(
        what: &str,
        paper: &str,
        predicted: String,
        measured: String,
        holds: bool,
    ) -> Claim {
        let verdict = if holds { Verdict::Holds } else { Verdict::Differs };
        let (what, paper) = (what.to_owned(), paper.to_owned());
        let (fails_with, note) = (String::new(), String::new());
        Claim { what, paper, predicted, measured, verdict, fails_with, note }
    }

    pub(super) fn with_note(self, note: &str) -> Claim {
        Claim { note: note.to_owned(), ..self }
    }

    pub(super) fn fails(self, with: &str) -> Claim {
        Claim { fails_with: with.to_owned(), ..self }
    }

    /// The generator was fitted to what is claimed.
    pub(super) fn fitted(self) -> Claim {
        let verdict = if self.verdict == Verdict::Holds { Verdict::Fit } else { self.verdict };
        Claim { verdict, ..self }
    }

    pub(super) fn not_judged(self) -> Claim {
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
    pub(super) fn new(columns: &[&str]) -> Table {
        Table { columns: columns.iter().map(|name| (*name).to_owned()).collect(), rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
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
pub(super) fn median(mut numbers: Vec<f64>) -> Option<f64> {
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

/// An outcome without its name.
pub(super) struct Found {
    pub(super) setting: String,
    pub(super) chart: Chart,
    pub(super) table: Table,
    pub(super) claims: Vec<Claim>,
}
