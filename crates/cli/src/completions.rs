//! `hindsight completions`.

use std::io::Write;

use api::ExitCode;
use clap::CommandFactory;
use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell.
    shell: Shell,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "hindsight", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::Done)
}
