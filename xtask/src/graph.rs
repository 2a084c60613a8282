//! `cargo x graph`: the crates and their edges, against the ladder. A new crate or edge needs a
//! design note and a line here.
//!
//! Invariants
//! 1. A crate names only lower rungs; `sim` and `tests` are named by tests alone.
//! 2. Every dependency takes its version from the workspace.
//! 3. An engine crate has at most `ENGINE_DEPENDENCIES_MAX` direct dependencies.
//! 4. Files of a crate import each other in cycles no larger than `cycles` says.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{cycles, program, tree};

const PREFIX: &str = "hindsight-";
/// Direct dependencies of a crate below `api`, our own included.
const ENGINE_DEPENDENCIES_MAX: usize = 10;
/// Packages of others in the lock file.
const LOCKED_PACKAGES_MAX: usize = 234;

/// A crate's place.
struct Rung {
    name: &'static str,
    height: u8,
    /// Which of our crates its code may name.
    may_name: &'static [&'static str],
}

const LADDER: &[Rung] = &[
    Rung { name: "units", height: 0, may_name: &[] },
    Rung { name: "format", height: 1, may_name: &["units"] },
    Rung { name: "wire", height: 1, may_name: &["units"] },
    Rung { name: "env", height: 1, may_name: &["units"] },
    Rung { name: "files", height: 1, may_name: &["units"] },
    Rung { name: "model", height: 2, may_name: &["units"] },
    Rung { name: "trace", height: 3, may_name: &["model", "format", "units"] },
    Rung { name: "sim", height: 2, may_name: &["env", "units"] },
    Rung { name: "block", height: 2, may_name: &["env", "format", "units"] },
    Rung { name: "history", height: 3, may_name: &["block", "format", "env", "units"] },
    Rung { name: "volume", height: 4, may_name: &["history", "block", "format", "env", "units"] },
    Rung { name: "lab", height: 4, may_name: &["trace", "model", "units"] },
    Rung {
        name: "replay",
        height: 5,
        may_name: &["lab", "trace", "model", "volume", "block", "env", "units"],
    },
    Rung {
        name: "load",
        height: 5,
        may_name: &["lab", "trace", "model", "volume", "block", "format", "env", "units"],
    },
    Rung { name: "share", height: 5, may_name: &["volume", "format", "env", "units"] },
    Rung { name: "api", height: 5, may_name: &["units"] },
    Rung { name: "intercept", height: 6, may_name: &["share", "units", "wire"] },
    Rung {
        name: "server",
        height: 7,
        may_name: &[
            "intercept",
            "wire",
            "share",
            "files",
            "volume",
            "api",
            "block",
            "env",
            "format",
            "trace",
            "model",
            "units",
        ],
    },
    Rung { name: "terminal", height: 7, may_name: &["api", "trace", "model", "units", "wire"] },
    Rung {
        name: "cli",
        height: 8,
        may_name: &[
            "terminal", "api", "trace", "model", "format", "server", "files", "units", "wire",
        ],
    },
    Rung {
        name: "lab-cli",
        height: 8,
        may_name: &[
            "terminal", "lab", "load", "replay", "api", "trace", "model", "volume", "units", "wire",
        ],
    },
    Rung { name: "csi", height: 8, may_name: &["terminal", "api", "units"] },
    // From outside: they know the contract, not the code. Benchmarks use what drives real clients.
    Rung { name: "tests", height: 9, may_name: &[] },
    Rung { name: "xtask", height: 10, may_name: &["tests"] },
];

/// One dependency as cargo sees it.
struct Edge {
    from: String,
    to: String,
    is_ours: bool,
    is_for_tests: bool,
}

/// Checks the edges and prints the ladder.
pub fn run() -> Result<()> {
    let edges = read_edges()?;
    let mut wrong = check(&edges);
    wrong.extend(check_manifests()?);
    wrong.extend(check_lock()?);
    wrong.extend(cycles::check(&tree::files()?));
    if !wrong.is_empty() {
        bail!("{} wrong\n{}", wrong.len(), wrong.join("\n"));
    }
    print_ladder(&edges);
    Ok(())
}

fn short(package: &str) -> &str {
    package.strip_prefix(PREFIX).unwrap_or(package)
}

fn read_edges() -> Result<Vec<Edge>> {
    let mut command = Command::new("cargo");
    command.args(["metadata", "--format-version", "1", "--no-deps"]).current_dir(tree::top());
    let metadata: Value = serde_json::from_str(&program::output(&mut command)?)?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = list(&metadata["packages"]);
    let ours: BTreeSet<String> = packages.iter().map(|p| text(&p["name"])).collect();
    let mut edges = Vec::new();
    for package in &packages {
        let from = text(&package["name"]);
        for dependency in list(&package["dependencies"]) {
            let to = text(&dependency["name"]);
            edges.push(Edge {
                from: short(&from).to_owned(),
                is_ours: ours.contains(&to),
                to: short(&to).to_owned(),
                is_for_tests: dependency["kind"] == "dev",
            });
        }
    }
    Ok(edges)
}

fn check(edges: &[Edge]) -> Vec<String> {
    let rungs: BTreeMap<&str, &Rung> = LADDER.iter().map(|rung| (rung.name, rung)).collect();
    let mut wrong = Vec::new();
    let mut direct: BTreeMap<&str, usize> = BTreeMap::new();
    for edge in edges {
        let Some(from) = rungs.get(edge.from.as_str()) else {
            wrong.push(format!("{}: not on the ladder: give it a rung in graph.rs", edge.from));
            continue;
        };
        if !edge.is_for_tests {
            *direct.entry(from.name).or_default() += 1;
        }
        if !edge.is_ours {
            continue;
        }
        let lower = rungs.get(edge.to.as_str()).is_some_and(|to| to.height <= from.height);
        let allowed = from.may_name.contains(&edge.to.as_str());
        if !(allowed || edge.is_for_tests && lower) {
            let names = from.may_name.join(", ");
            wrong.push(format!("{} -> {}: it may name [{names}]", edge.from, edge.to));
        }
    }
    for (name, count) in direct {
        if rungs[name].height < 5 && count > ENGINE_DEPENDENCIES_MAX {
            wrong.push(format!("{name}: {count} dependencies, at most {ENGINE_DEPENDENCIES_MAX}"));
        }
    }
    wrong
}

/// Every dependency of a member says `workspace = true`, so that there is one version of each.
fn check_manifests() -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for file in tree::files()? {
        let is_member = file.path.starts_with("crates/")
            || file.path.starts_with("xtask/")
            || file.path.starts_with("tests/");
        if !is_member || !file.path.ends_with("Cargo.toml") {
            continue;
        }
        let text = file.text().context("a manifest is UTF-8")?;
        let mut in_dependencies = false;
        for (index, line) in text.lines().enumerate() {
            if line.starts_with('[') {
                in_dependencies = line.contains("dependencies");
            } else if in_dependencies && line.contains('=') && !line.contains("workspace = true") {
                let place = format!("{}:{}", file.path, index + 1);
                wrong
                    .push(format!("{place}: write `workspace = true`, the version in /Cargo.toml"));
            }
        }
    }
    Ok(wrong)
}

fn check_lock() -> Result<Option<String>> {
    let lock = std::fs::read_to_string(tree::top().join("Cargo.lock")).context("Cargo.lock")?;
    let count = lock.lines().filter(|line| line.starts_with("source = ")).count();
    let over = count > LOCKED_PACKAGES_MAX;
    let wrong = || format!("Cargo.lock: {count} packages of others, at most {LOCKED_PACKAGES_MAX}");
    Ok(over.then(wrong))
}

fn print_ladder(edges: &[Edge]) {
    for rung in LADDER {
        let named: BTreeSet<&str> = edges
            .iter()
            .filter(|edge| edge.from == rung.name && edge.is_ours && !edge.is_for_tests)
            .map(|edge| edge.to.as_str())
            .collect();
        let named: Vec<&str> = named.into_iter().collect();
        println!("{} {:8} -> {}", rung.height, rung.name, named.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::{Edge, check};

    fn edge(from: &str, to: &str, is_for_tests: bool) -> Edge {
        Edge { from: from.to_owned(), to: to.to_owned(), is_ours: true, is_for_tests }
    }

    #[test]
    fn the_crates_keep_to_the_ladder() {
        super::run().unwrap();
    }

    #[test]
    fn an_edge_upwards_is_found() {
        assert_eq!(check(&[edge("history", "volume", false)]).len(), 1);
        assert_eq!(check(&[edge("history", "volume", true)]).len(), 1);
        assert_eq!(check(&[edge("volume", "history", false)]).len(), 0);
    }

    #[test]
    fn only_tests_name_the_simulator() {
        assert_eq!(check(&[edge("volume", "sim", false)]).len(), 1);
        assert_eq!(check(&[edge("volume", "sim", true)]).len(), 0);
    }

    #[test]
    fn a_crate_without_a_rung_is_found() {
        assert_eq!(check(&[edge("attic", "volume", false)]).len(), 1);
    }
}
