//! The shape of files: size, names, line length, ASCII, headers, paths of somebody's machine.

use super::{Finding, RustFile};
use crate::tree::SourceFile;

/// Lines of a Rust file, tests apart.
const FILE_LINES_MAX: usize = 800;
const LINE_CHARS_MAX: usize = 100;
/// Bytes of a text.
const TEXT_BYTES_MAX: usize = 512 << 10;
/// Bytes of anything that is not text.
const BINARY_BYTES_MAX: usize = 64 << 10;
/// Names that say nothing.
const EMPTY_NAMES: [&str; 6] = ["utils", "util", "common", "helpers", "misc", "manager"];
/// Kinds of files that are source, and so ASCII.
const SOURCE_ENDINGS: [&str; 3] = [".rs", ".toml", ".sh"];

/// What holds for every file.
pub fn check(file: &SourceFile, findings: &mut Vec<Finding>) {
    let mut found = |line: usize, message: String| {
        findings.push(Finding { path: file.path.clone(), line, message });
    };
    for part in file.path.split(['/', '.']) {
        if EMPTY_NAMES.contains(&part) {
            found(0, format!("`{part}` says nothing: name what is in it"));
        }
    }
    let Some(text) = file.text().filter(|text| !text.contains('\0')) else {
        if file.bytes.len() > BINARY_BYTES_MAX {
            found(0, format!("a binary file over {BINARY_BYTES_MAX} bytes: make it in a test"));
        }
        return;
    };
    if text.len() > TEXT_BYTES_MAX {
        found(0, format!("a text over {TEXT_BYTES_MAX} bytes: split it, or generate it"));
    }
    let is_source = SOURCE_ENDINGS.iter().any(|ending| file.path.ends_with(ending));
    for (index, line) in text.lines().enumerate() {
        if is_source && !line.is_ascii() {
            found(index + 1, "source is ASCII: use an escape, or the word".to_owned());
        }
        if let Some(place) = machine_path(line) {
            found(
                index + 1,
                format!("a path of one machine: {place}; name it relative to the top"),
            );
        }
    }
}

/// What holds for Rust files.
pub fn check_rust(file: &RustFile<'_>, findings: &mut Vec<Finding>) {
    let lines =
        if file.is_test_file() { file.text.lines().count() } else { file.code.production_lines() };
    if lines > FILE_LINES_MAX {
        let message =
            format!("{lines} lines, at most {FILE_LINES_MAX}: what are these really two of?");
        findings.push(file.finding(0, message));
    }
    for (index, line) in file.text.lines().enumerate() {
        let chars = line.chars().count();
        if chars > LINE_CHARS_MAX {
            let message = format!("{chars} characters, at most {LINE_CHARS_MAX}: break the line");
            findings.push(file.finding(index + 1, message));
        }
    }
    if !file.text.starts_with("//!") && !file.text.starts_with("#!") {
        findings.push(file.finding(1, "begin with `//!`: what it is, and its invariants"));
    }
}

/// A path in somebody's home, if there is one.
fn machine_path(line: &str) -> Option<&str> {
    const HOMES: [&str; 3] = [concat!("/", "root/"), concat!("/", "home/"), concat!("/", "Users/")];
    for home in HOMES {
        let mut from = 0;
        while let Some(found) = line[from..].find(home) {
            let start = from + found;
            let before = line[..start].chars().next_back();
            let is_top = before.is_none_or(|c| !c.is_alphanumeric() && !".-_~}".contains(c));
            if is_top {
                return line[start..].split([' ', '"', '`', ')']).next();
            }
            from = start + home.len();
        }
    }
    None
}
