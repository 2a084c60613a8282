//! `cargo x tidy`: the house rules as code. It is also a test, so that `cargo test` holds them.
//!
//! Each rule says where it was broken and what to write instead. Rules read the text of a file with
//! comments and strings blanked ([`code::Code`]), so that prose may name what code may not.

use anyhow::{Result, bail};

use crate::tree::{self, SourceFile};
use code::Code;

mod bans;
pub mod code;
mod functions;
mod links;
mod mounts;
mod prose;
mod shape;
#[cfg(test)]
mod tests;

/// A rule that was broken.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path from the top.
    pub path: String,
    /// Line from 1; 0 is the whole file.
    pub line: usize,
    /// What is wrong and what to do instead.
    pub message: String,
}

/// A Rust file with its code set apart.
pub struct RustFile<'a> {
    /// Path from the top.
    pub path: &'a str,
    /// As it is.
    pub text: &'a str,
    /// Without comments and strings.
    pub code: Code,
}

impl RustFile<'_> {
    /// The crate's short name if this is one of its sources (not its tests or examples).
    pub fn library(&self) -> Option<&str> {
        let (name, rest) = self.path.strip_prefix("crates/")?.split_once('/')?;
        let is_source = rest.starts_with("src/") && !self.is_test_file();
        is_source.then_some(name)
    }

    /// Whether the whole file is test code.
    pub fn is_test_file(&self) -> bool {
        let path = self.path;
        path.starts_with("tests/")
            || path.contains("/tests/")
            || path.ends_with("/tests.rs")
            || path.ends_with("_tests.rs")
    }

    /// A finding at a line (from 1).
    pub fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: self.path.to_owned(), line, message: message.into() }
    }
}

/// Checks every rule; the findings are the error.
pub fn run() -> Result<()> {
    let files = tree::files()?;
    let findings = check(&files);
    if findings.is_empty() {
        eprintln!("tidy: {} files", files.len());
        return Ok(());
    }
    let lines: Vec<String> =
        findings.iter().map(|f| format!("{}:{}: {}", f.path, f.line, f.message)).collect();
    bail!("{} rules broken\n{}", lines.len(), lines.join("\n"));
}

/// Every rule on these files.
fn check(files: &[SourceFile]) -> Vec<Finding> {
    let rust: Vec<RustFile<'_>> = files
        .iter()
        .filter(|file| file.path.ends_with(".rs"))
        .filter_map(|file| {
            let text = file.text()?;
            Some(RustFile { path: &file.path, text, code: Code::new(text) })
        })
        .collect();
    let mut findings = Vec::new();
    for file in files {
        shape::check(file, &mut findings);
        links::check(file, files, &mut findings);
        links::check_names(file, &mut findings);
        prose::check(file, &mut findings);
    }
    for file in &rust {
        shape::check_rust(file, &mut findings);
        bans::check(file, &mut findings);
    }
    functions::check(&rust, files, &mut findings);
    mounts::check(files, &rust, &mut findings);
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings
}
