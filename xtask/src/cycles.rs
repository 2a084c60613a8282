//! Import cycles between the files of a crate: a file of a cycle cannot be read, tested or moved
//! without all the others of it.
//!
//! A file names another by `use`, or by a path. Methods are not seen: a file that calls a method
//! which another one adds to a type names the type's file. Test code is left out.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::code::Code;
use crate::tree::SourceFile;

/// The attributes of items that are only there in tests.
const TESTS: [&str; 2] = ["#[cfg(test)]", "#[cfg(all(test,"];

/// A module's path in its crate.
type Module = Vec<String>;

/// The files of a crate by module, with their code.
type Modules = BTreeMap<Module, String>;

/// The largest cycle of each crate that has one.
pub fn check(files: &[SourceFile]) -> Vec<String> {
    let mut crates: BTreeMap<String, Modules> = BTreeMap::new();
    for file in files {
        let Some((name, module)) = module_of(&file.path) else { continue };
        let code = without_tests(&Code::new(file.text().unwrap_or_default()).text);
        crates.entry(name).or_default().insert(module, code);
    }
    let told = |(name, modules): (&String, &Modules)| {
        let cycle: Vec<String> =
            largest_cycle(&edges(modules)).iter().map(|module| module.join("/")).collect();
        let files = cycle.len();
        (files > 0)
            .then(|| format!("{name}: {files} files import each other: {}", cycle.join(", ")))
    };
    crates.iter().filter_map(told).collect()
}

/// The crate and module of a source file; none of tests and examples.
fn module_of(path: &str) -> Option<(String, Module)> {
    let (name, rest) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let module = rest.strip_suffix(".rs")?;
    if module.ends_with("tests") || module.starts_with("bin/") {
        return None;
    }
    let mut module: Module = module.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod" || module.len() == 1 && is_root(last)) {
        module.pop();
    }
    Some((name.to_owned(), module))
}

fn is_root(name: &str) -> bool {
    name == "lib" || name == "main"
}

/// Code without the items that are only there in tests.
fn without_tests(code: &str) -> String {
    let mut out = String::new();
    let mut rest = code;
    while let Some(at) = TESTS.iter().filter_map(|attribute| rest.find(attribute)).min() {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let mut depth = 0;
        let end = rest.char_indices().find(|&(_, c)| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0 && (c == '}' || c == ';')
        });
        rest = end.map_or("", |(at, _)| &rest[at + 1..]);
    }
    out + rest
}

/// The modules that each one names.
fn edges(modules: &Modules) -> BTreeMap<&Module, BTreeSet<&Module>> {
    let root = Module::new();
    // `crate::Name` is what the root has from elsewhere.
    let mut exported: BTreeMap<String, &Module> = BTreeMap::new();
    for path in modules.get(&root).map_or_else(Vec::new, |code| paths(code)) {
        if let (Some(module), Some(name)) = (find(modules, &path), path.last()) {
            exported.insert(name.clone(), module);
        }
    }
    let mut edges = BTreeMap::new();
    for (module, code) in modules.iter().filter(|(module, _)| !module.is_empty()) {
        let mut named = BTreeSet::new();
        for path in paths(code) {
            let absolute = absolute(modules, module, &path);
            let found = absolute.as_ref().and_then(|path| {
                let first = path.first().and_then(|first| exported.get(first)).copied();
                find(modules, path).filter(|module| !module.is_empty()).or(first)
            });
            named.extend(found.filter(|found| *found != module));
        }
        edges.insert(module, named);
    }
    edges
}

/// A path as it is from the root of the crate; none if it is another crate's.
fn absolute(modules: &Modules, module: &Module, path: &[String]) -> Option<Module> {
    let mut at = module.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            at.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|first| first == "super") {
                at.pop();
                rest = &rest[1..];
            }
        }
        child => {
            at.push(child.to_owned());
            modules.get(&at)?;
            rest = &path[1..];
        }
    }
    at.extend_from_slice(rest);
    Some(at)
}

/// The file that the longest part of a path leads to.
fn find<'m>(modules: &'m Modules, path: &[String]) -> Option<&'m Module> {
    let lengths = (0..=path.len()).rev();
    lengths.filter_map(|length| modules.get_key_value(&path[..length])).map(|(m, _)| m).next()
}

/// The paths of several parts that code names; those of a `use` with braces each by itself.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(|c: char| c.is_alphabetic() || c == '_') {
        rest = &rest[at..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if word == "use" {
            let (tree, after) = after.split_once(';').unwrap_or((after, ""));
            expand(&[], tree, &mut found);
            rest = after;
            continue;
        }
        let mut path = vec![word.to_owned()];
        rest = after;
        while let Some(next) = rest.strip_prefix("::") {
            let end = next.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(next.len());
            path.extend((end > 0).then(|| next[..end].to_owned()));
            rest = &next[end..];
        }
        found.extend((path.len() > 1).then_some(path));
    }
    found
}

/// The paths of a tree of a `use`.
fn expand(before: &[String], tree: &str, found: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let (head, branches) = match tree.split_once('{') {
        Some((head, branches)) => (head, branches.trim_end().strip_suffix('}')),
        None => (tree.split_whitespace().next().unwrap_or_default(), None),
    };
    let mut path = before.to_vec();
    path.extend(head.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned));
    let Some(branches) = branches else {
        found.push(path);
        return;
    };
    let (mut depth, mut start) = (0, 0);
    for (at, c) in branches.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            expand(&path, &branches[start..at], found);
            start = at + 1;
        }
    }
    if !branches[start..].trim().is_empty() {
        expand(&path, &branches[start..], found);
    }
}

/// The largest set of modules of which each names, by way of others, every other.
fn largest_cycle<'m>(edges: &BTreeMap<&'m Module, BTreeSet<&'m Module>>) -> Vec<&'m Module> {
    let reached = |from: &'m Module| {
        let mut seen = BTreeSet::new();
        let mut waiting = vec![from];
        while let Some(module) = waiting.pop() {
            for &next in edges.get(module).into_iter().flatten() {
                if seen.insert(next) {
                    waiting.push(next);
                }
            }
        }
        seen
    };
    let all: BTreeMap<&Module, BTreeSet<&Module>> =
        edges.keys().map(|&module| (module, reached(module))).collect();
    let cycle_of = |(module, seen): (&&'m Module, &BTreeSet<&'m Module>)| -> Vec<&'m Module> {
        let back = |other: &&&Module| all.get(**other).is_some_and(|seen| seen.contains(*module));
        seen.iter().filter(back).copied().collect()
    };
    all.iter().map(cycle_of).max_by_key(Vec::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{check, paths, without_tests};
    use crate::tree::SourceFile;

    fn largest(files: &[(&str, &str)]) -> usize {
        let file = |(path, text): &(&str, &str)| SourceFile {
            path: format!("crates/c/src/{path}"),
            bytes: text.as_bytes().to_vec(),
        };
        let files: Vec<SourceFile> = files.iter().map(file).collect();
        check(&files).first().map_or(0, |told| told.split(", ").count())
    }

    #[test]
    fn paths_are_those_of_uses_and_of_code() {
        let code = "use crate::a::{b, c::{D, E as F}};\nfn f(x: super::G) -> h::I { x.y() }";
        let found: Vec<String> = paths(code).iter().map(|path| path.join("::")).collect();
        let expected = ["crate::a::b", "crate::a::c::D", "crate::a::c::E", "super::G", "h::I"];
        assert_eq!(found, expected);
    }

    #[test]
    fn test_code_is_left_out() {
        let code =
            "a;\n#[cfg(test)]\nuse b::C;\nd;\n#[cfg(test)]\nmod tests { fn e() { f(); } }\ng;";
        assert_eq!(without_tests(code).split_whitespace().collect::<String>(), "a;d;g;");
    }

    #[test]
    fn files_that_import_each_other_are_a_cycle() {
        let straight = [("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "")];
        assert_eq!(largest(&straight), 0);
        let by_path = [("a.rs", "use crate::b::B;"), ("b.rs", "fn f() { crate::a::g() }")];
        assert_eq!(largest(&by_path), 2);
        let by_way = [("a.rs", "use super::b::B;"), ("b.rs", "use crate::{c::C};"), ("c/d.rs", "")];
        assert_eq!(largest(&by_way), 0);
        let three = [
            ("a.rs", "use super::b::B;"),
            ("b.rs", "use crate::{c::d::E};"),
            ("c/d.rs", "use super::super::a::A;"),
        ];
        assert_eq!(largest(&three), 3);
    }

    #[test]
    fn a_parent_that_only_mounts_its_child_is_no_cycle() {
        let mounts = [("a.rs", "mod b;"), ("a/b.rs", "use super::A;")];
        assert_eq!(largest(&mounts), 0);
        let names = [("a.rs", "mod b; pub use b::B;"), ("a/b.rs", "use super::A;")];
        assert_eq!(largest(&names), 2);
    }

    #[test]
    fn names_that_the_root_exports_lead_to_their_files() {
        let root = ("lib.rs", "mod a; mod b; pub use a::A; pub use b::{B};");
        assert_eq!(largest(&[root, ("a.rs", "use crate::B;"), ("b.rs", "use crate::A;")]), 2);
        assert_eq!(largest(&[root, ("a.rs", "use crate::B;"), ("b.rs", "// crate::A")]), 0);
    }
}
