//! Sentences begin with their subject: no comment and no page begins one as a noun clause ("What
//! waits is lost" is "Waiting writes are lost").
//!
//! Holds in [`HELD`] and on the pages that are kept up to date; dated notes stay as they were.
//! Headings and questions may begin so. It knows no grammar, only first words.

use super::Finding;
use crate::tree::SourceFile;

/// Sources whose comments are held to it.
const HELD: [&str; 9] = [
    "crates/api/src/",
    "crates/env/src/",
    "crates/history/src/",
    "crates/server/src/",
    "crates/share/src/",
    "crates/sim/src/",
    "crates/units/src/",
    "crates/volume/src/",
    "crates/wire/src/",
];
/// First words of a clause.
const CLAUSES: [&str; 8] =
    ["Who", "What", "Whoever", "Whatever", "Whichever", "Whose", "Nobody who", "That which"];

/// Every sentence of a file whose begin can be seen in its line.
pub fn check(file: &SourceFile, findings: &mut Vec<Finding>) {
    let is_page = is_page(&file.path);
    let is_source = file.path.ends_with(".rs") && HELD.iter().any(|h| file.path.starts_with(h));
    let (true, Some(text)) = (is_page || is_source, file.text()) else { return };
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        fenced ^= is_page && line.starts_with("```");
        let prose = if is_page { (!fenced).then_some(line) } else { comment(line) };
        if let Some(word) = prose.and_then(clause) {
            let message = format!("a sentence begins with `{word}`: begin with its subject");
            findings.push(Finding { path: file.path.clone(), line: index + 1, message });
        }
    }
}

/// Pages at the top, in `docs` and in `docs/format`.
fn is_page(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    name.ends_with(".md") && name != "CHANGELOG.md" && ["", "docs", "docs/format"].contains(&folder)
}

/// The text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    line.strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']))
}

/// The clause that a sentence of the line begins with.
fn clause(line: &str) -> Option<&'static str> {
    CLAUSES.into_iter().find(|word| {
        line.match_indices(word).any(|(at, _)| {
            let (before, after) = (&line[..at], &line[at + word.len()..]);
            let is_word = after.starts_with(' ') && !after.contains('?');
            is_word && is_begin(before)
        })
    })
}

/// Whether a sentence begins after this part of a line.
fn is_begin(before: &str) -> bool {
    let is_marker = |c: char| c.is_ascii_digit() || " -*.|".contains(c);
    before.chars().all(is_marker)
        || before.ends_with([' ', '*']) && {
            let before = before.trim_end_matches([' ', '*']);
            before.ends_with(['.', ':', ';', '!', '?', '|'])
        }
}

#[cfg(test)]
mod tests {
    use super::{clause, comment, is_page};

    #[test]
    fn sentences_that_begin_as_clauses_are_found() {
        for bad in ["What waits is lost.", "- Who waits is told.", "1. **Whoever may** is."] {
            assert!(clause(bad).is_some(), "{bad}");
        }
        assert_eq!(comment("/// What it holds.").and_then(clause), Some("What"));
        assert_eq!(clause("It waits. Nobody who asks knows."), Some("Nobody who"));
        for good in ["It says what waits.", "## What clients see", "Whole blocks.", "What is it?"] {
            assert_eq!(clause(good), None, "{good}");
        }
        assert_eq!(comment("let what = 1; // no line of its own"), None);
    }

    #[test]
    fn dated_notes_and_the_changelog_are_left_alone() {
        assert!(is_page("README.md") && is_page("docs/cli.md") && is_page("docs/format/batch.md"));
        assert!(!is_page("CHANGELOG.md") && !is_page("docs/design/2026-11-21-cache.md"));
    }
}
