//! Length of functions: at most 70 lines, kept by a ratchet. The ones that are longer stand in
//! `xtask/long-functions.txt` with their length; none may be added without a reason there, none may
//! grow, and what has become short leaves the list. At most 2 % of all functions may be on it.

use std::collections::BTreeMap;

use super::code::block_end;
use super::{Finding, RustFile};
use crate::tree::SourceFile;

/// The list: `path::function lines reason`.
const RATCHET: &str = "xtask/long-functions.txt";
/// Lines from `fn` to the closing brace.
const LINES_MAX: usize = 70;

/// A function and its place.
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of its `fn`, from 1.
    pub line: usize,
    /// Lines to its closing brace.
    pub lines: usize,
}

/// Compares all functions with the ratchet.
pub fn check(rust: &[RustFile<'_>], files: &[SourceFile], findings: &mut Vec<Finding>) {
    let mut allowed = read_ratchet(files, findings);
    let mut count = 0;
    let mut long = 0;
    for file in rust {
        for function in functions(&file.code.text) {
            count += 1;
            let key = format!("{}::{}", file.path, function.name);
            let listed = allowed.get(&key).copied();
            if function.lines <= LINES_MAX {
                continue;
            }
            allowed.remove(&key);
            long += 1;
            let length = function.lines;
            let message = match listed {
                Some(lines) if length <= lines => continue,
                Some(lines) => format!("{key} grew from {lines} to {length} lines: split it"),
                None => format!(
                    "{key} has {length} lines, at most {LINES_MAX}: keep the branching, move the \
                     leaves to functions"
                ),
            };
            findings.push(file.finding(function.line, message));
        }
    }
    for (key, _) in allowed {
        let message = format!("{key} is short now or gone: take it off the list");
        findings.push(Finding { path: RATCHET.to_owned(), line: 0, message });
    }
    if long * 50 > count {
        let message = format!("{long} of {count} functions are over {LINES_MAX} lines: over 2 %");
        findings.push(Finding { path: RATCHET.to_owned(), line: 0, message });
    }
}

fn read_ratchet(files: &[SourceFile], findings: &mut Vec<Finding>) -> BTreeMap<String, usize> {
    let file = files.iter().find(|file| file.path == RATCHET);
    let text = file.and_then(SourceFile::text).unwrap_or_default();
    let mut allowed = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let mut words = line.split_whitespace();
        let key = words.next().unwrap_or_default();
        let lines = words.next().and_then(|lines| lines.parse().ok());
        match (lines, words.next()) {
            (Some(lines), Some(_reason)) => {
                allowed.insert(key.to_owned(), lines);
            }
            _ => {
                let message = "a line is `path::function lines reason`".to_owned();
                findings.push(Finding { path: RATCHET.to_owned(), line: index + 1, message });
            }
        }
    }
    allowed
}

/// The functions with a body in blanked code.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(offset) = code[from..].find("fn ") {
        let start = from + offset;
        from = start + 3;
        let before = code[..start].bytes().next_back();
        if before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            continue;
        }
        let rest = code[from..].trim_start();
        let is_name = |c: &char| c.is_alphanumeric() || *c == '_';
        let name: String = rest.chars().take_while(is_name).collect();
        if name.is_empty() {
            continue;
        }
        let end = block_end(code, start);
        if code[..end].ends_with('}') {
            let line = code[..start].matches('\n').count() + 1;
            let lines = code[start..end].matches('\n').count() + 1;
            found.push(Function { name, line, lines });
        }
    }
    found
}
