//! Every block of every page of the documentation, run by `tests/docs/run.py`; what is not run, and
//! why, is in its output (`-- --nocapture`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use hindsight_tests::command::{self, skips_without_root};
use hindsight_tests::server::program;

use crate::stage::folder;

fn root() -> Result<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(own.parent().context("the tests lie in the project")?.to_owned())
}

fn outcome(page: &Path) -> Result<Output> {
    command::output(Command::new(root()?.join("tests/docs/run.py")).arg(program()?).arg(page))
}

fn run(page: &str) -> Result<()> {
    if skips_without_root(page) {
        return Ok(());
    }
    let output = outcome(&root()?.join(page))?;
    println!("{}", String::from_utf8_lossy(&output.stdout));
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $test() -> Result<()> {
                run($page)
            }
        )*
    };
}

pages! {
    what_the_readme_shows_is_so: "README.md",
    what_the_page_of_rights_shows_is_so: "docs/access.md",
    what_the_page_of_bisect_shows_is_so: "docs/bisect.md",
    what_the_page_of_clients_shows_is_so: "docs/attach.md",
    what_the_page_of_choices_shows_is_so: "docs/choosing.md",
    what_the_page_of_commands_shows_is_so: "docs/cli.md",
    what_the_page_of_encodings_shows_is_so: "docs/encoding.md",
    what_the_page_of_files_shows_is_so: "docs/files.md",
    what_the_glossary_shows_is_so: "docs/glossary.md",
    what_the_page_of_the_api_shows_is_so: "docs/http.md",
    what_the_page_of_packages_shows_is_so: "docs/install.md",
    what_the_page_of_iscsi_shows_is_so: "docs/iscsi.md",
    what_the_page_of_kubernetes_shows_is_so: "docs/kubernetes.md",
    what_the_page_of_nfs_shows_is_so: "docs/nfs.md",
    what_the_page_of_relays_shows_is_so: "docs/intercept.md",
    what_the_page_of_the_laboratory_shows_is_so: "docs/lab.md",
    what_the_page_of_operations_shows_is_so: "docs/operations.md",
    what_the_page_of_proofs_shows_is_so: "docs/prove.md",
    what_the_page_of_watches_shows_is_so: "docs/watch.md",
    what_the_page_of_the_web_page_shows_is_so: "docs/page.md",
    what_the_page_of_safety_shows_is_so: "docs/safety.md",
}

#[test]
fn no_page_is_forgotten() -> Result<()> {
    let mut there = BTreeSet::from(["README.md".to_owned()]);
    for entry in fs::read_dir(root()?.join("docs"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            there.insert(format!("docs/{name}"));
        }
    }
    let known: BTreeSet<String> = PAGES.iter().map(|&page| page.to_owned()).collect();
    ensure!(there == known, "{there:?}, of which {known:?} are run");
    Ok(())
}

#[test]
fn a_page_that_is_not_so_is_found() -> Result<()> {
    if skips_without_root("pages that are not so") {
        return Ok(());
    }
    let own = folder()?;
    let page = own.path().join("page.md");
    let is_so = |text: &str| -> Result<bool> {
        fs::write(&page, text)?;
        Ok(outcome(&page)?.status.success())
    };
    ensure!(is_so("```console\n$ echo a  1\na 1\n$ echo b; echo c\nb\n...\n```\n")?);
    ensure!(is_so("```console not run: why\n$ false\n```\n<!-- setup\ntrue\n-->\n")?);
    for wrong in [
        "```console\n$ echo a\nb\n```\n",
        "```console\n$ echo a; echo b\na\n```\n",
        "```console\n$ false\n```\n",
        "```console output varies\n$ false\nx\n```\n",
        "<!-- setup\nfalse\ntrue\n-->\n",
        "```console\nno command\n```\n",
        "```sh\ntrue\n```\n",
        "```toml\nmemroy = \"64MiB\"\n```\n",
        "```xml\n<a>\n```\n",
    ] {
        ensure!(!is_so(wrong)?, "{wrong}");
    }
    Ok(())
}
