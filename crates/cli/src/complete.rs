//! `hindsight complete`, which the completions of shells call. People do not see it.

use std::path::PathBuf;

use api::ExitCode;
use terminal::complete::{self, Line};

use crate::session::{Session, TlsSource, TokenSource};

mod values;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The words of the command line behind `hindsight`, up to the cursor.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let words = args.words.clone();
    complete::print(move || candidates(&words));
    Ok(ExitCode::Done)
}

fn candidates(words: &[String]) -> Vec<String> {
    match words {
        [first, rest @ ..] if first == "lab" && !rest.is_empty() => crate::lab::candidates(rest),
        _ => complete::candidates(crate::help::command(), words, |line, arg, typed| {
            values::of(line, arg, typed, &session(line))
        }),
    }
}

/// The server that the line is for, or that of the environment.
fn session(line: &Line) -> Session {
    let given = |name: &str, variable: &str| {
        line.options.get(name).cloned().or_else(|| std::env::var(variable).ok())
    };
    let of_line = |name: &str| line.options.get(name).cloned();
    let variable = |name: &str| std::env::var(name).ok();
    let text = |text: Option<String>| text.map(TokenSource::Text);
    let file = |path: Option<String>| path.map(|path| TokenSource::File(path.into()));
    let token = text(of_line("token"))
        .or_else(|| file(of_line("token_file")))
        .or_else(|| text(variable("HINDSIGHT_TOKEN")))
        .or_else(|| file(variable("HINDSIGHT_TOKEN_FILE")));
    let server = given("server", "HINDSIGHT_SERVER");
    let server = server.unwrap_or_else(|| crate::global::SERVER.to_owned());
    let path = |name: &str, variable: &str| given(name, variable).map(PathBuf::from);
    let tls = TlsSource {
        ca: path("ca", "HINDSIGHT_CA"),
        cert: path("cert", "HINDSIGHT_CERT"),
        key: path("key", "HINDSIGHT_KEY"),
    };
    Session::new(server, token, false, false).with_tls(tls)
}

#[cfg(test)]
mod tests {
    use super::candidates;

    fn of(line: &str) -> Vec<String> {
        candidates(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn commands_and_options_are_those_of_the_definition() {
        assert_eq!(of("vol"), ["volume"]);
        assert_eq!(of("volume re"), ["rename", "resize"]);
        assert_eq!(of("help group sche"), ["schedule"]);
        assert_eq!(of("group schedule s"), ["set", "show"]);
        assert_eq!(of("volume set pg --arch"), ["--architecture"]);
        assert_eq!(of("volume rename --dr"), ["--dry-run"]);
        assert!(of("comp").iter().all(|name| name != "complete"), "it is for shells");
        assert!(of("nonsense wor").is_empty() && of("volume list ").is_empty());
    }

    #[test]
    fn values_of_options_are_known_without_a_server() {
        assert_eq!(of("volume set pg --architecture split"), ["split-downstream", "split-stream"]);
        assert_eq!(
            of("volume set pg --encoding="),
            ["--encoding=delta", "--encoding=raw", "--encoding=xor"]
        );
        assert_eq!(of("volume create pg --granularity on"), ["on-demand"]);
        assert_eq!(of("volume create pg --dedup o"), ["off", "on"]);
        assert_eq!(of("volume set pg --copy-unit 6"), ["64KiB"]);
        assert_eq!(of("completions z"), ["zsh"]);
        assert_eq!(of("volume export pg pg.raw --format q"), ["qcow2"]);
        assert_eq!(of("revert pg --to la"), ["latest"], "whatever the server");
    }
}
