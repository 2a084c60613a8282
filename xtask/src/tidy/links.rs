//! Links of Markdown pages to files and headings of the project: none is dead.

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
    use super::{anchor, resolve, targets};

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
