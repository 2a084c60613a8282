//! The OpenAPI document passes a validator, and a server does what it says: requests that
//! schemathesis makes of the document, right ones and wrong ones, against a server over TCP.
//!
//! Both come from PyPI in pinned versions (`tests/openapi/requirements.txt`), into a virtual
//! environment that is kept below the target directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::Fixture;

/// At most so many seconds are spent on requests.
const SECONDS_MAX: &str = "60";

fn openapi(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/openapi").join(file)
}

fn done(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}:\n{}\n{}",
        said(&output.stdout),
        said(&output.stderr)
    );
}

/// Where the programs of the virtual environment are; it is made anew when versions change.
fn programs() -> PathBuf {
    let wanted = fs::read_to_string(openapi("requirements.txt")).expect("requirements");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openapi-venv");
    let made = dir.join("made-of.txt");
    if fs::read_to_string(&made).is_ok_and(|has| has == wanted) {
        return dir.join("bin");
    }
    done(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir));
    let mut install = Command::new(dir.join("bin/pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check", "-r"]);
    done(install.arg(openapi("requirements.txt")));
    fs::write(made, wanted).expect("write");
    dir.join("bin")
}

#[test]
fn the_document_is_valid_and_a_server_does_what_it_says() {
    let programs = programs();
    let fixture = Fixture::new();
    let document = fixture.path("openapi.json");
    fs::write(&document, api::OPENAPI_JSON).expect("write");
    done(Command::new(programs.join("openapi-spec-validator")).arg(&document));
    fixture.ok(&["volume", "create", "pg", "--size", "64MiB"]);
    fixture.ok(&["version", "create", "pg"]);
    fixture.ok(&["mark", "create", "pg", "m"]);
    fixture.ok(&["group", "create", "db", "pg"]);
    fixture.ok(&["group", "version", "db"]);
    let (address, token) = fixture.http_address();
    let mut fuzz = Command::new(programs.join("schemathesis"));
    fuzz.current_dir(fixture.dir.path()).arg("--config-file").arg(openapi("schemathesis.toml"));
    fuzz.arg("run").arg(&document).args(["--url", &format!("http://{address}")]);
    fuzz.args(["-H", &format!("Authorization: Bearer {token}")]);
    fuzz.args(["--phases", "examples,coverage", "--max-time", SECONDS_MAX, "--seed", "1"]);
    // A recording answers as long as it is asked to; health and metrics take no input.
    fuzz.args(["--exclude-operation-id", "get_volumes_volume_trace"]);
    fuzz.args(["--exclude-path-regex", "z$|^/metrics$"]);
    // No schema says what an archive is; its reader has tests of its own.
    fuzz.args(["--exclude-operation-id", "post_shares_share_archive"]);
    // A code that fits the document is a wrong one, which is 401, and 429 from the eleventh on.
    fuzz.args(["--exclude-operation-id", "post_login"]);
    // Whether a token is asked for is a test of the server's own, on every path.
    fuzz.args(["--checks", "all", "--exclude-checks", "ignored_auth"]);
    done(fuzz.args(["--continue-on-failure", "--no-color"]));
    fixture.ok(&["pool", "status"]);
}
