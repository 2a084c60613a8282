//! Every Rust file is part of some crate: reached from a root by `mod`. One that is not would look
//! like code and never be compiled.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, RustFile};
use crate::tree::SourceFile;

/// Follows `mod` from every root and reports what was not reached.
pub fn check(files: &[SourceFile], rust: &[RustFile<'_>], findings: &mut Vec<Finding>) {
    let by_path: BTreeMap<&str, &RustFile<'_>> =
        rust.iter().map(|file| (file.path, file)).collect();
    let mut waiting: Vec<String> =
        by_path.keys().filter(|path| is_root(path)).map(|path| (*path).to_owned()).collect();
    waiting.extend(named_roots(files));
    let mut reached: BTreeSet<String> = BTreeSet::new();
    while let Some(path) = waiting.pop() {
        let Some(file) = by_path.get(path.as_str()) else { continue };
        if !reached.insert(path.clone()) {
            continue;
        }
        for candidates in children(file) {
            waiting.extend(candidates);
        }
    }
    for file in rust {
        if !reached.contains(file.path) {
            let message = "no `mod` leads here, so it is never compiled: mount it or remove it";
            findings.push(file.finding(0, message));
        }
    }
}

/// Whether cargo finds the file by itself.
pub fn is_root(path: &str) -> bool {
    let Some((folder, name)) = path.rsplit_once('/') else { return false };
    let parent = folder.rsplit('/').next().unwrap_or_default();
    let grandparent = folder.rsplit('/').nth(1).unwrap_or_default();
    let is_auto = |folder: &str| ["tests", "examples", "benches"].contains(&folder);
    match name {
        "build.rs" => true,
        "lib.rs" | "main.rs" if parent == "src" => true,
        "main.rs" if is_auto(grandparent) || grandparent == "bin" => true,
        // Not `src/tidy/tests/`: only a folder directly in a package.
        _ if is_auto(parent) => !folder.contains("/src/"),
        _ => parent == "bin" || parent == "fuzz_targets",
    }
}

/// Roots that a manifest names: `path = "x.rs"`.
fn named_roots(files: &[SourceFile]) -> Vec<String> {
    let mut roots = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with("Cargo.toml")) {
        let folder = file.path.trim_end_matches("Cargo.toml");
        for line in file.text().unwrap_or_default().lines() {
            if let Some(path) = line.strip_prefix("path = \"").and_then(|r| r.strip_suffix('"')) {
                roots.push(format!("{folder}{path}"));
            }
        }
    }
    roots
}

/// For each `mod x;` of a file, where `x` may be.
fn children(file: &RustFile<'_>) -> Vec<Vec<String>> {
    let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", file.path));
    let owns_folder = is_root(file.path) || name == "mod.rs";
    let stem = name.trim_end_matches(".rs");
    let inner = if owns_folder { folder.to_owned() } else { format!("{folder}/{stem}") };
    let mut found = Vec::new();
    let mut path_attribute = None;
    for ((_, code), text) in file.code.lines().zip(file.text.lines()) {
        let code = code.trim();
        if code.starts_with("#[path") {
            path_attribute = text.split('"').nth(1).map(|path| format!("{folder}/{path}"));
            continue;
        }
        let Some(declared) = code.strip_suffix(';') else { continue };
        let mut words = declared.split_whitespace().rev();
        let (Some(module), Some("mod")) = (words.next(), words.next()) else { continue };
        found.push(match path_attribute.take() {
            Some(path) => vec![normal(&path)],
            None => vec![format!("{inner}/{module}.rs"), format!("{inner}/{module}/mod.rs")],
        });
    }
    found
}

/// A path without `..`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            "." => {}
            name => parts.push(name),
        }
    }
    parts.join("/")
}
