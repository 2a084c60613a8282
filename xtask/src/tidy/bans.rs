//! What code may not name, where, and what to write instead.

use super::{Finding, RustFile};

/// A ban.
struct Ban {
    /// What may not be written; the text of code without comments and strings is searched for it.
    words: &'static [&'static str],
    /// Where it holds.
    holds: fn(&Place<'_>) -> bool,
    /// What to write instead.
    instead: &'static str,
}

/// Where a line is.
struct Place<'a> {
    /// The crate, if it is a source of one (not its tests).
    library: Option<&'a str>,
    is_test: bool,
    /// In the folder of the one crate that may be unsafe.
    is_env: bool,
}

impl Place<'_> {
    /// In the engine: everything below `api`.
    fn is_engine(&self) -> bool {
        const ENGINE: [&str; 12] = [
            "units", "format", "wire", "sim", "block", "history", "volume", "share", "model",
            "trace", "lab", "files",
        ];
        !self.is_test && self.library.is_some_and(|name| ENGINE.contains(&name))
    }

    fn is_library(&self) -> bool {
        !self.is_test && self.library.is_some_and(|name| !matches!(name, "cli" | "lab-cli"))
    }
}

const BANS: &[Ban] = &[
    Ban {
        words: &["SystemTime", "Instant::now", "jiff::Zoned::now", "Timestamp::now"],
        holds: |place| place.is_engine(),
        instead: "the engine reads clocks through `env::Clock`, so that a seed can replay it",
    },
    Ban {
        words: &["std::fs", "fs::File", "std::net", "std::os::unix::net"],
        holds: |place| place.is_engine(),
        instead: "the engine reaches files through `env::Media`, and sockets not at all",
    },
    Ban {
        words: &["std::env", "env::var"],
        holds: |place| place.is_engine(),
        instead: "the engine is told by its options, not by the environment",
    },
    Ban {
        words: &["rand::"],
        // Generators are told their seed, and need distributions.
        holds: |place| place.is_engine() && place.library != Some("trace"),
        instead: "the engine takes random numbers from `env::Entropy`",
    },
    Ban {
        words: &["thread_rng", "getrandom", "RandomState"],
        holds: |place| place.is_engine(),
        instead: "the engine takes random numbers from `env::Entropy`",
    },
    Ban {
        words: &["async fn", "tokio", ".await"],
        holds: |place| place.is_engine(),
        instead: "no async below `server`: background work is `step(budget)`",
    },
    Ban {
        words: &["thread::spawn", "thread::sleep", "thread::Builder"],
        holds: |place| place.is_engine(),
        instead: "threads belong to `server`: background work is `step(budget)`",
    },
    Ban {
        words: &["to_ne_bytes", "from_ne_bytes"],
        holds: |_| true,
        instead: "bytes that leave the process are little-endian (wire: big-endian)",
    },
    Ban {
        words: &["println!", "print!", "eprintln!", "eprint!", "dbg!"],
        holds: |place| place.is_library(),
        instead: "a library returns what it has to say, or logs it with `tracing`",
    },
    Ban {
        words: &[".unwrap()"],
        holds: |place| !place.is_test,
        instead: "`?`, or `expect` with the proof that it cannot fail",
    },
    Ban {
        words: &["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"],
        holds: |place| !place.is_env,
        instead: "only `env` may be unsafe, with a SAFETY comment",
    },
    Ban {
        words: &["todo!", "unimplemented!", "#[ignore"],
        holds: |_| true,
        instead: "do it, or leave it out and say so",
    },
    Ban {
        words: &["allow(warnings)", "allow(clippy::all)", "allow(unused)"],
        holds: |_| true,
        instead: "name the one lint and give the reason",
    },
];

/// Every ban on one file.
pub fn check(file: &RustFile<'_>, findings: &mut Vec<Finding>) {
    for (line, code) in file.code.lines() {
        let is_test = file.is_test_file() || file.code.is_test_line(line);
        let is_env =
            ["crates/env/src/", "crates/env/support/"].iter().any(|dir| file.path.starts_with(dir));
        let place = Place { library: file.library(), is_test, is_env };
        for ban in BANS.iter().filter(|ban| (ban.holds)(&place)) {
            if let Some(word) = ban.words.iter().find(|word| names(code, word)) {
                findings.push(file.finding(line, format!("`{word}`: {}", ban.instead)));
            }
        }
        check_glob(file, line, code, findings);
    }
    check_unfinished(file, findings);
}

/// Whether the word stands in the code, not as the end of a longer word.
fn names(code: &str, word: &str) -> bool {
    let mut from = 0;
    while let Some(found) = code[from..].find(word) {
        let start = from + found;
        let before = code[..start].chars().next_back();
        let is_inside = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let starts_word = word.starts_with(|c: char| c.is_alphanumeric());
        if !(is_inside && starts_word) {
            return true;
        }
        from = start + word.len();
    }
    false
}

fn check_glob(file: &RustFile<'_>, line: usize, code: &str, findings: &mut Vec<Finding>) {
    let is_use = ["use ", "pub use ", "pub(crate) use "].iter().any(|u| code.trim().starts_with(u));
    if is_use && code.contains("::*") {
        findings.push(file.finding(line, "a glob hides where names come from: list them"));
    }
}

/// Notes of what is missing need an issue: `TODO(#12)`.
fn check_unfinished(file: &RustFile<'_>, findings: &mut Vec<Finding>) {
    const NOTES: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];
    for (index, text) in file.text.lines().enumerate() {
        for note in NOTES {
            if names(text, note) && !text.contains(&format!("{note}(#")) {
                let message = format!("{note} without an issue: write {note}(#12), or do it");
                findings.push(file.finding(index + 1, message));
            }
        }
    }
}
