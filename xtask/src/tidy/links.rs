//! Links of Markdown pages to files and headings of the project, and names of source files in pages
//! and comments, such as `volume/write/cache`: none is dead.

use super::Finding;
use crate::tree::{self, SourceFile};

/// Checks the links of one page.
pub fn check(file: &SourceFile, files: &[SourceFile], findings: &mut Vec<Finding>) {
    let (true, Some(text)) = (file.path.ends_with(".md"), file.text()) else { return };
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for target in targets(line) {
            if let Some(message) = fault(&file.path, target, files) {
                findings.push(Finding { path: file.path.clone(), line: index + 1, message });
            }
        }
    }
}

/// Checks the names of source files on a page or in the comments of a file. Dated notes keep the
/// names that files had.
pub fn check_names(file: &SourceFile, findings: &mut Vec<Finding>) {
    let is_page = file.path.ends_with(".md") && !file.path.starts_with("docs/design/");
    let is_source = file.path.ends_with(".rs");
    let (true, Some(text)) = (is_page || is_source, file.text()) else { return };
    let lines = text.lines().enumerate();
    for (index, line) in lines.filter(|(_, l)| is_page || l.trim_start().starts_with("//")) {
        for name in source_names(line).filter(|name| !is_source_file(name)) {
            let message = format!("there is no source file {name}");
            findings.push(Finding { path: file.path.clone(), line: index + 1, message });
        }
    }
}

/// What stands between backquotes and looks like the path of a source file below a crate's name.
fn source_names(line: &str) -> impl Iterator<Item = &str> {
    let is_part =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    line.split('`').skip(1).step_by(2).filter(move |name| {
        let mut parts = name.split('/');
        let is_crate = parts.next().is_some_and(|first| {
            is_part(first) && tree::top().join("crates").join(first).join("src").exists()
        });
        let mut rest = parts.peekable();
        is_crate && rest.peek().is_some() && rest.all(is_part)
    })
}

/// Whether a name is a file or folder below the sources of its crate, or below the tests of one.
fn is_source_file(name: &str) -> bool {
    let crates = tree::top().join("crates");
    let Some((of, path)) = name.split_once('/') else { return false };
    let source = crates.join(of).join("src").join(path);
    if source.exists() || source.with_extension("rs").exists() {
        return true;
    }
    let folders = std::fs::read_dir(crates).into_iter().flatten().flatten();
    let mut tests = folders.map(|folder| folder.path().join("tests").join(name));
    tests.any(|file| file.with_extension("rs").exists())
}

/// What stands between `](` and `)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

fn fault(page: &str, target: &str, files: &[SourceFile]) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { page.to_owned() } else { resolve(page, path) };
    if !tree::top().join(&path).exists() {
        return Some(format!("dead link: {target}"));
    }
    let linked = files.iter().find(|file| file.path == path);
    let text = linked.and_then(SourceFile::text).unwrap_or_default();
    let has_heading = text.lines().any(|line| line.starts_with('#') && anchor(line) == heading);
    (!heading.is_empty() && path.ends_with(".md") && !has_heading)
        .then(|| format!("dead link: {path} has no heading #{heading}"))
}

/// A path relative to a page, from the top of the project.
fn resolve(page: &str, path: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// How a heading is named in links.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::{anchor, is_source_file, resolve, source_names, targets};

    #[test]
    fn names_of_source_files_are_told_from_other_words() {
        let line = "`volume/write/cache`, `and/or`, `volume/Write`, `volume/` and `history/none`";
        let found: Vec<&str> = source_names(line).collect();
        assert_eq!(found, ["volume/write/cache", "history/none"]);
        assert!(is_source_file("volume/write/cache") && is_source_file("volume/handover"));
        assert!(!is_source_file("history/none"));
    }

    #[test]
    fn links_are_relative_to_their_page() {
        assert_eq!(resolve("docs/design/a.md", "../format/batch.md"), "docs/format/batch.md");
        assert_eq!(resolve("README.md", "docs/safety.md"), "docs/safety.md");
    }

    #[test]
    fn all_links_of_a_line_are_found() {
        let found: Vec<&str> = targets("a [b](c.md) and [d](e.md#f).").collect();
        assert_eq!(found, ["c.md", "e.md#f"]);
    }

    #[test]
    fn headings_become_anchors() {
        assert_eq!(anchor("## What happens when: full?"), "what-happens-when-full");
    }
}
