//! What the word under the cursor of a shell may become, one candidate a line.
//!
//! 1. It says nothing where it knows nothing: neither a wrong word nor a server that is not there
//!    is worth a message in the middle of a line that somebody types.
//! 2. It takes no longer than `PATIENCE`.
//!
//! It does not know what commands there are: it reads that off the command line's own definition.
//! (`clap_complete` can do this too, but only behind its `unstable-dynamic`, with three more
//! crates, and its script for bash takes `pg@v:3` for five words. So this is in its place.)

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::{Arg, Command};

/// How long the server may take.
const PATIENCE: Duration = Duration::from_millis(700);

/// A command line up to the cursor.
#[derive(Debug, Default)]
pub struct Line {
    /// The commands, such as `volume show`.
    pub path: String,
    /// What is neither a command nor an option.
    pub positionals: Vec<String>,
    /// Values of options, by the options' names.
    pub options: BTreeMap<String, String>,
}

/// What is under the cursor.
enum Place<'a> {
    /// A value of an argument; before it stands what is no part of it, such as `--to=`.
    Value(&'a Arg, String),
    /// An option.
    Option(&'a Command),
    /// A command, or a value of the command's own.
    Word(&'a Command, Option<&'a Arg>),
}

/// Prints what `find` finds.
pub fn print(find: impl FnOnce() -> Vec<String> + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(find()));
    // Whoever takes longer is not waited for: the process ends with it.
    let mut text = String::new();
    let found = receiver.recv_timeout(PATIENCE).unwrap_or_default();
    for candidate in found.iter().filter(|found| found.chars().all(is_plain)) {
        text.push_str(candidate);
        text.push('\n');
    }
    // A shell that does not listen any more is none of our business.
    let _ = io::stdout().write_all(text.as_bytes());
}

/// Whether a shell takes a character for nothing but itself: what a server says becomes part of a
/// command.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._@:/=+,%-".contains(c)
}

/// What the last of the words may become. `values` has those of an argument, some of which begin
/// with what is typed.
pub fn candidates(
    mut root: Command,
    words: &[String],
    values: impl Fn(&Line, &Arg, &str) -> Vec<String>,
) -> Vec<String> {
    let Some((current, before)) = words.split_last() else { return Vec::new() };
    root.build();
    let (line, place) = read(&root, before, current);
    let mut all: Vec<String> = match place {
        Place::Value(arg, prefix) => {
            let typed = &current[prefix.len()..];
            let of = values(&line, arg, typed);
            of.into_iter().map(|value| format!("{prefix}{value}")).collect()
        }
        Place::Option(command) => {
            let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
            shown.filter_map(Arg::get_long).map(|long| format!("--{long}")).collect()
        }
        Place::Word(command, arg) => {
            let below = if line.path == "help" { named(&root, &line.positionals) } else { command };
            let mut all = names_below(below);
            if let Some(arg) = arg {
                all.extend(values(&line, arg, current));
            }
            all
        }
    };
    all.retain(|candidate| candidate.starts_with(current.as_str()));
    all.sort();
    all.dedup();
    all
}

fn names_below(command: &Command) -> Vec<String> {
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    shown.map(|below| below.get_name().to_owned()).collect()
}

/// The command that words name.
fn named<'a>(root: &'a Command, words: &[String]) -> &'a Command {
    words.iter().fold(root, |at, word| at.find_subcommand(word).unwrap_or(at))
}

/// Reads the words before the cursor, and tells what is there.
fn read<'a>(root: &'a Command, before: &[String], current: &str) -> (Line, Place<'a>) {
    let (mut line, mut command) = (Line::default(), root);
    let mut open: Option<&Arg> = None;
    for word in before {
        if let Some(arg) = open.take() {
            line.options.insert(arg.get_id().to_string(), word.clone());
        } else if let Some((arg, value)) = option(command, word) {
            match value {
                Some(value) => {
                    drop(line.options.insert(arg.get_id().to_string(), value.to_owned()))
                }
                None => open = arg.get_action().takes_values().then_some(arg),
            }
        } else if let Some(below) = below(command, word, &line) {
            line.path = format!("{} {}", line.path, below.get_name()).trim_start().to_owned();
            command = below;
        } else if word != "--" && !is_flag(word) {
            line.positionals.push(word.clone());
        }
    }
    if let Some(arg) = open {
        return (line, Place::Value(arg, String::new()));
    }
    if let Some((arg, Some(value))) = option(command, current) {
        return (line, Place::Value(arg, current[..current.len() - value.len()].to_owned()));
    }
    if current.starts_with('-') {
        return (line, Place::Option(command));
    }
    let mut positionals = command.get_positionals();
    let own = positionals.nth(line.positionals.len());
    // The last one may take any number.
    let arg = own.or_else(|| {
        let last = command.get_positionals().last()?;
        last.get_num_args().is_some_and(|many| many.max_values() > 1).then_some(last)
    });
    (line, Place::Word(command, arg))
}

fn is_flag(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-')
}

fn below<'a>(command: &'a Command, word: &str, line: &Line) -> Option<&'a Command> {
    if line.positionals.is_empty() { command.find_subcommand(word) } else { None }
}

/// The option that a word is, and its value if the word has that, too.
fn option<'a, 'b>(command: &'a Command, word: &'b str) -> Option<(&'a Arg, Option<&'b str>)> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let is_it = |arg: &&Arg| {
        let long = name.strip_prefix("--").is_some_and(|name| arg.get_long() == Some(name));
        let short = name
            .strip_prefix('-')
            .is_some_and(|name| arg.get_short().is_some_and(|short| name == short.to_string()));
        long || short
    };
    command.get_arguments().find(is_it).map(|arg| (arg, value))
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn what_a_shell_would_take_for_more_than_a_word_is_left_out() {
        assert!("pg@2026-11-25T10:00:00.5Z,mark:a_b=+1%/x".chars().all(is_plain));
        for bad in ["a;b", "$(x)", "a b", "\x1b[2J", "`x`", "a\nb", "~", "a&b", "'", "\\"] {
            assert!(!bad.chars().all(is_plain), "{bad:?}");
        }
    }
}
