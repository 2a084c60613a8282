//! The rules hold here, and each one finds what it is for.

use super::functions::functions;
use super::mounts::is_root;
use super::{Code, check};
use crate::tree::SourceFile;

fn file(path: &str, text: &str) -> SourceFile {
    SourceFile { path: path.to_owned(), bytes: text.as_bytes().to_vec() }
}

/// What the rules say of one library file that is mounted.
fn findings(body: &str) -> Vec<String> {
    let text = format!("//! A file.\n{body}\n");
    let found = check(&[file("crates/history/src/lib.rs", &text)]);
    found.into_iter().map(|finding| finding.message).collect()
}

#[test]
fn the_project_keeps_its_rules() {
    super::run().unwrap();
}

#[test]
fn each_ban_is_found_in_the_engine() {
    for bad in [
        "let now = std::time::SystemTime::now();",
        "let now = Instant::now();",
        "use std::fs::File;",
        "let home = std::env::var(\"HOME\");",
        "let n = rand::random();",
        "async fn run() {}",
        "std::thread::sleep(d);",
        "let b = x.to_ne_bytes();",
        "println!(\"x\");",
        "let x = y.unwrap();",
        "unsafe { f() }",
        concat!("to", "do!()"),
        "use super::*;",
        concat!("// TO", "DO later"),
    ] {
        assert_eq!(findings(bad).len(), 1, "{bad}: {:?}", findings(bad));
    }
}

#[test]
fn prose_and_strings_may_name_what_code_may_not() {
    for good in [
        "// SystemTime is not for us, nor is x.unwrap()",
        "/* std::fs /* nested */ rand:: */",
        "let s = \"println! std::env \\\" SystemTime\";",
        "let s = r#\"std::fs \" unwrap()\"#;",
        "let q = '\"'; let s = \"SystemTime\"; let t: &'static str = s;",
        "let q = '\\''; let s = \"SystemTime\";",
        concat!("// TO", "DO(#12) later"),
    ] {
        assert_eq!(findings(good), Vec::<String>::new(), "{good}");
    }
}

#[test]
fn tests_may_unwrap_and_read_clocks() {
    let body =
        "#[cfg(test)]\nmod tests {\n    fn t() {\n        Instant::now().x().unwrap();\n    }\n}";
    assert_eq!(findings(body), Vec::<String>::new());
    let after = format!("{body}\nfn f() {{\n    x.unwrap();\n}}");
    assert_eq!(findings(&after).len(), 1);
}

#[test]
fn long_lines_files_and_functions_are_found() {
    assert_eq!(findings(&format!("// {}", "x".repeat(100))).len(), 1);
    assert_eq!(findings(&"// x\n".repeat(801)).len(), 1);
    let long = format!("fn f() {{\n{}}}", "    g();\n".repeat(70));
    // The function, and that it is more than 2 % of all.
    assert_eq!(findings(&long).len(), 2, "{:?}", findings(&long));
    let fits = format!("fn f() {{\n{}}}", "    g();\n".repeat(68));
    assert_eq!(findings(&fits).len(), 0);
}

#[test]
fn functions_are_measured_to_their_brace() {
    let code = "fn a(x: [u8; 4]) -> u8 {\n    x[0]\n}\ntrait T {\n    fn b(&self);\n}\nfn c() {}\n";
    let found: Vec<(String, usize, usize)> =
        functions(code).into_iter().map(|f| (f.name, f.line, f.lines)).collect();
    assert_eq!(found, [("a".to_owned(), 1, 3), ("c".to_owned(), 7, 1)]);
}

#[test]
fn a_file_that_no_mod_leads_to_is_found() {
    let root = file("crates/history/src/lib.rs", "//! Root.\nmod a;\n");
    let mounted = file("crates/history/src/a.rs", "//! A.\nmod b;\n");
    let below = file("crates/history/src/a/b.rs", "//! B.\n");
    let lost = file("crates/history/src/lost.rs", "//! Lost.\n");
    let found = check(&[root, mounted, below, lost]);
    let paths: Vec<&str> = found.iter().map(|finding| finding.path.as_str()).collect();
    assert_eq!(paths, ["crates/history/src/lost.rs"]);
}

#[test]
fn roots_are_where_cargo_looks() {
    for root in ["crates/x/src/lib.rs", "crates/x/tests/a.rs", "crates/x/tests/a/main.rs"] {
        assert!(is_root(root), "{root}");
    }
    for inner in ["crates/x/src/a.rs", "crates/x/tests/a/b.rs", "xtask/src/a/tests/b.rs"] {
        assert!(!is_root(inner), "{inner}");
    }
}

#[test]
fn empty_names_and_dead_links_are_found() {
    let found = check(&[file("docs/misc.md", "[gone](nowhere.md)\n")]);
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn headers_and_ascii_are_asked_for() {
    let found = check(&[file("crates/history/src/lib.rs", "fn f() {} // \u{e4}\n")]);
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn blanked_code_keeps_its_places() {
    let text = "let a = \"x\ny\"; // z\nlet b = 'c';\n";
    let code = Code::new(text);
    assert_eq!(code.text.len(), text.len());
    assert_eq!(code.text.lines().count(), text.lines().count());
    assert!(!code.text.contains(['x', 'y', 'z', 'c']));
}
