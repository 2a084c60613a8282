//! What every help and manual page ends with: an example, the environment, the exit status.

use clap::Command;

/// A command line with what its pages end with. `examples` are of each command: its words, and what
/// stands behind them.
pub fn with_endings(
    command: Command,
    program: &str,
    examples: &[(&str, &str)],
    environment: &str,
) -> Command {
    below(command, "", &|path| {
        let example = examples.iter().find(|(of, _)| *of == path);
        let example = example.map_or(String::new(), |(of, rest)| {
            format!("Example:\n  {program} {}\n\n", format!("{of} {rest}").trim_end())
        });
        format!("{example}{environment}")
    })
}

fn below(command: Command, path: &str, ending: &dyn Fn(&str) -> String) -> Command {
    command.after_long_help(ending(path)).mut_subcommands(|one| {
        let path = format!("{path} {}", one.get_name());
        below(one, path.trim_start(), ending)
    })
}

/// The commands that do something, in order: each must have an example.
pub fn leaves(command: &Command) -> Vec<String> {
    let mut found = Vec::new();
    for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        // With words of its own it is a command beside those below it.
        if !one.has_subcommands() || one.is_args_conflicts_with_subcommands_set() {
            found.push(one.get_name().to_owned());
        }
        found.extend(leaves(one).iter().map(|l| format!("{} {l}", one.get_name())));
    }
    found.sort_unstable();
    found
}

/// The words of an example as a shell has them.
pub fn words(program: &str, (path, rest): &(&str, &str)) -> Vec<String> {
    let rest = rest.split(" > ").next().unwrap_or_default();
    let mut words: Vec<String> =
        format!("{program} {path}").split(' ').map(str::to_owned).collect();
    // Quoted words are one.
    for (index, part) in rest.split(['\'', '"']).enumerate() {
        match index % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ if words.last().is_some_and(|last| last.ends_with('@')) => {
                let at = words.pop().unwrap_or_default();
                words.push(format!("{at}{part}"));
            }
            _ => words.push(part.to_owned()),
        }
    }
    words
}
