//! The outcomes of experiments as one page that needs nothing else: no script, no other file.

use std::fmt::Write;

use crate::experiment::{Claim, Outcome, Table, Verdict};
use crate::plot::{escaped, svg};

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff;
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid #ccc; padding-top: 1rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.875rem; margin: 1rem 0; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem;
  border-bottom: 1px solid #ddd; }
.numbers td { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.numbers th { text-align: right; }
.scroll { overflow-x: auto; }
svg { max-width: 100%; height: auto; }
.verdict { white-space: nowrap; font-weight: 600; }
.holds { color: #00664b; } .fit { color: #6b5200; }
.differs { color: #a33d00; } .not-judged { color: #555; }
.note, .setting { color: #555; font-size: 0.875rem; }
";

/// What stands above the experiments of a page.
#[derive(Clone, Copy, Debug)]
pub struct Preface<'a> {
    /// The heading.
    pub title: &'a str,
    /// What has to be known to read it.
    pub words: &'a str,
    /// What the last column of numbers is: counted, or measured.
    pub found: &'a str,
}

/// Above what is counted.
pub const COUNTED: Preface<'static> = Preface {
    title: "What each architecture costs",
    words: "Workloads are generated from a seed. Predicted is the cost model; counted is a \
            simulation of caches and stores, write by write, that knows how each architecture is \
            defined, as the formulas do, and none of their r, c and d; squares are the engine's \
            own count, with its journal and map. A fit is a workload that was made to come out so. \
            Beside them stands what the papers say in words (Laden et al., FAST 2007; \
            Xiao et al., MSST 2006). Figures that are only in their pictures are not known here.",
    found: "Counted",
};

/// The page.
#[must_use]
pub fn report(preface: Preface<'_>, outcomes: &[Outcome]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Hindsight: experiments</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n"
    );
    page(&mut out, preface, outcomes).expect("a string takes all");
    out.push_str("</body>\n</html>\n");
    out
}

fn page(out: &mut String, preface: Preface<'_>, outcomes: &[Outcome]) -> std::fmt::Result {
    let claims = || outcomes.iter().flat_map(|one| &one.claims);
    let count = |verdict| claims().filter(|claim| claim.verdict == verdict).count();
    writeln!(out, "<h1>{}</h1>", escaped(preface.title))?;
    writeln!(out, "<p>{}</p>", escaped(preface.words))?;
    writeln!(
        out,
        "<p>Of {} claims {} hold, {} are fits, {} differ, and {} are shown without a verdict.</p>",
        claims().count(),
        count(Verdict::Holds),
        count(Verdict::Fit),
        count(Verdict::Differs),
        count(Verdict::NotJudged)
    )?;
    writeln!(out, "<ul>")?;
    for one in outcomes {
        let (name, title) = (one.name, escaped(one.title));
        let differ = one.claims.iter().filter(|claim| claim.verdict == Verdict::Differs).count();
        let mark = if differ > 0 { format!(" ({differ} differ)") } else { String::new() };
        writeln!(out, "<li><a href=\"#{name}\">{name}</a>: {title}{mark}</li>")?;
    }
    writeln!(out, "</ul>")?;
    outcomes.iter().try_for_each(|one| section(out, preface, one))
}

fn section(out: &mut String, preface: Preface<'_>, one: &Outcome) -> std::fmt::Result {
    writeln!(out, "<h2 id=\"{}\">{}: {}</h2>", one.name, one.name, escaped(one.title))?;
    writeln!(out, "<p class=\"setting\">{}</p>", escaped(&one.setting))?;
    out.push_str(&svg(&one.chart));
    writeln!(
        out,
        "<table>\n<tr><th>What</th><th>Paper</th><th>Predicted</th><th>{}</th>\
         <th>Would differ with</th><th></th></tr>",
        preface.found
    )?;
    for claim in &one.claims {
        claim_row(out, claim)?;
    }
    writeln!(out, "</table>\n<details><summary>Numbers</summary>")?;
    numbers(out, &one.table)?;
    writeln!(out, "</details>")
}

fn claim_row(out: &mut String, claim: &Claim) -> std::fmt::Result {
    let (class, verdict) = match claim.verdict {
        Verdict::Holds => ("holds", "holds"),
        Verdict::Fit => ("fit", "a fit"),
        Verdict::Differs => ("differs", "differs"),
        Verdict::NotJudged => ("not-judged", "not judged"),
    };
    let what = escaped(&claim.what);
    let note = match claim.note.as_str() {
        "" => String::new(),
        note => format!("<br><span class=\"note\">{}</span>", escaped(note)),
    };
    writeln!(
        out,
        "<tr><td>{what}{note}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
         <td class=\"verdict {class}\">{verdict}</td></tr>",
        escaped(&claim.paper),
        escaped(&claim.predicted),
        escaped(&claim.measured),
        escaped(&claim.fails_with)
    )
}

fn numbers(out: &mut String, table: &Table) -> std::fmt::Result {
    writeln!(out, "<div class=\"scroll\"><table class=\"numbers\">\n<tr>")?;
    for column in &table.columns {
        write!(out, "<th>{}</th>", escaped(&column.replace('_', " ")))?;
    }
    writeln!(out, "</tr>")?;
    for row in &table.rows {
        let cells = row.iter().map(|cell| format!("<td>{}</td>", escaped(cell)));
        writeln!(out, "<tr>{}</tr>", cells.collect::<String>())?;
    }
    writeln!(out, "</table></div>")
}
