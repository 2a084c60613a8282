//! `hindsight help`, and what every help and manual page ends with: examples, environment, exit
//! status.

use anyhow::Context;
use api::ExitCode;
use clap::{Command, CommandFactory};
use terminal::help::with_endings;

use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The command, such as volume create [default: hindsight itself].
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

const ENVIRONMENT: &str = "\
Environment:
  HINDSIGHT_SERVER      where the server is, as --server
  HINDSIGHT_TOKEN       a token to show the server, as --token
  HINDSIGHT_TOKEN_FILE  a file with it, as --token-file
  HINDSIGHT_CA          by which a server at https:// is known, as --ca
  HINDSIGHT_CERT        the certificate shown there, as --cert
  HINDSIGHT_KEY         its private key, as --key
  TZ                    the time zone of local times, such as \"yesterday 14:03\"
  NO_COLOR              no colours, if it is set

Exit status:
  0 done; 1 failed; 2 the command line was wrong; 3 partly done; 10 no such volume, version or mark;
  11 busy; 12 refused; 13 outside the window; 14 the file system cannot be read; 130 interrupted";

/// An example of each command, behind `hindsight `.
pub const EXAMPLES: &[(&str, &str)] = &[
    ("serve", "--pool /srv/pool --nbd 127.0.0.1:10809"),
    ("volume create", "pg --size 10GiB --window 7d"),
    ("volume list", "--json"),
    ("volume show", "pg"),
    ("volume space", "pg"),
    ("volume set", "pg --window 2d --dry-run"),
    ("volume resize", "pg +10GiB"),
    ("volume rename", "pg pg-main"),
    ("volume delete", "pg --dry-run"),
    ("volume undelete", "pg --as pg-old"),
    ("volume import", "pg disk.qcow2"),
    ("volume export", "pg@mark:before-upgrade pg.raw"),
    ("version create", "pg --label nightly"),
    ("version list", "pg --limit 20"),
    ("version show", "pg 3"),
    ("version delete", "pg 7 20..300 --dry-run"),
    ("version compact", "pg 3 --wait"),
    ("version uncompact", "pg 3"),
    ("version schedule set", "pg --every 1h --keep-hourly 48 --keep-daily 14"),
    ("version schedule show", "pg"),
    ("version schedule list", ""),
    ("version schedule remove", "pg"),
    ("group create", "db pg-data pg-wal"),
    ("group list", ""),
    ("group show", "db"),
    ("group set", "db --hook freeze"),
    ("group delete", "db --dry-run"),
    ("group delete-version", "db 3..100"),
    ("group version", "db --label nightly"),
    ("group revert", "db --to -1h --dry-run"),
    ("group clone", "db@v:3 db-test"),
    ("group diff", "db@v:3 db"),
    ("group schedule set", "db --cron '30 3 * * *' --keep-daily 14"),
    ("group schedule show", "db"),
    ("group schedule list", ""),
    ("group schedule remove", "db"),
    ("group retention explain", "db"),
    ("group retention apply", "db --dry-run"),
    ("retention explain", "pg"),
    ("retention apply", "pg --dry-run"),
    ("mark create", "pg before-upgrade --pin"),
    ("mark list", "pg"),
    ("mark delete", "pg before-upgrade"),
    ("share create", "home --window 7d"),
    ("share list", ""),
    ("share show", "home"),
    ("share set", "home --metadata server"),
    ("share delete", "home --dry-run"),
    ("share allow", "home 10.1.0.0/16 --ro"),
    ("share deny", "home 10.1.0.0/16"),
    ("share ls", "home@-1h /docs"),
    ("share cat", "home@-1h /docs/letter.txt"),
    ("share import", "home /srv/home"),
    ("share export", "home@-1h /tmp/home-before"),
    ("share ops", "home --since -1h --client 10.0.0.7"),
    ("share log", "home /docs/letter.txt"),
    ("share repair", "home --undo 'client=10.0.0.7 and time>=-2h' --dry-run"),
    ("share restore", "home@-1h /docs --dry-run"),
    ("target list", ""),
    ("target show", "pg@-5min"),
    ("target create", "db --group db@v:3"),
    ("target delete", "db"),
    ("target set", "pg --chap-user db1 --chap-secret-file /etc/hindsight/db1.secret"),
    ("token create", "nightly --role keeper --volume 'pg*' --expires 90d --output nightly.token"),
    ("token list", ""),
    ("token show", "nightly"),
    ("token revoke", "nightly"),
    ("tls init", "--name storage.example --name 10.0.0.5 tls"),
    ("tls client", "backup tls --out backup-tls"),
    ("tls list", "tls"),
    ("page", "--role operator --volume 'pg*' --for 2h"),
    ("history", "pg --since -1h --step 1min"),
    ("timeline", "pg --since -1h"),
    ("resolve", "pg@-5min"),
    ("revert", "pg --to before-upgrade --dry-run"),
    ("clone", "pg@\"yesterday 14:03\" pg-yesterday"),
    ("diff", "pg@-1h pg"),
    ("file list", "pg@-1h:/etc -l"),
    ("file stat", "pg@-1h:/etc/fstab"),
    ("file cat", "pg@-1h:/etc/fstab"),
    ("file restore", "pg@-1h:/etc/fstab fstab.before"),
    ("file tar", "pg@v:3:p2/home > home.tar"),
    ("file diff", "pg@-1h pg /etc"),
    ("file history", "pg:/etc/fstab --since -1d"),
    ("file find", "pg:/etc/fstab"),
    ("mount", "pg@-1h /mnt/before"),
    ("unmount", "/mnt/before"),
    ("bisect", "pg --good -1h --bad latest -- sh -c 'fsck.ext4 -fn $HINDSIGHT_DISK'"),
    ("prove", "pg@-1h --hook boots"),
    ("prove list", "pg"),
    ("watch set", "pg"),
    ("watch show", "pg"),
    ("watch remove", "pg"),
    ("pool create", "--pool /srv/pool --stack 'mirror(/dev/sdb, /dev/sdc)'"),
    ("pool status", ""),
    ("pool audit", "--json"),
    ("pool set", "--scrub-rate 50MiB"),
    ("pool grow", "--add 'mirror(/dev/sdd, /dev/sde)'"),
    ("pool replace", "/dev/sdb /dev/sdf"),
    ("pool attach", "/dev/sdb"),
    ("pool spare add", "/dev/sdg"),
    ("pool spare remove", "/dev/sdg"),
    ("pool scrub", "--wait"),
    ("pool inspect", "--pool /srv/pool"),
    ("pool rebuild", "--pool /srv/pool"),
    ("doctor", ""),
    ("trace convert", "vm.csv --format msr -o vm.trace"),
    ("trace record", "pg pg.trace --for 10min"),
    ("trace cut", "pg.trace --since 1h -o hour.trace"),
    ("trace scale", "pg.trace --time 0.5 -o fast.trace"),
    ("trace summarise", "pg.trace"),
    ("trace generate", "spc1 -o spc1.trace"),
    ("model show", "pg.trace"),
    ("model advise", "pg"),
    ("lab", "run laden-fig9"),
    ("completions", "bash > /etc/bash_completion.d/hindsight"),
    ("man", "/usr/local/share/man/man1"),
    ("help", "volume create"),
];

/// The command line with what its pages end with.
pub fn command() -> Command {
    // No page shows the secrets of whom it is printed for.
    let command = crate::Cli::command().mut_args(|argument| argument.hide_env_values(true));
    with_endings(command, "hindsight", EXAMPLES, ENVIRONMENT)
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let [first, rest @ ..] = &args.command[..]
        && first == "lab"
    {
        return crate::lab::start(&[&["help".to_owned()][..], rest].concat());
    }
    let mut command = command();
    command.build();
    let mut found = &mut command;
    for word in &args.command {
        let here = found.get_name().to_owned();
        found = found.find_subcommand_mut(word).with_context(|| {
            Failure::usage(format!("{here} has no command {word}")).with_hint("hindsight --help")
        })?;
    }
    found.print_long_help()?;
    Ok(ExitCode::Done)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};
    use terminal::help::{leaves, words};

    use super::EXAMPLES;

    #[test]
    fn every_command_has_an_example_that_can_be_read() {
        let mut shown: Vec<&str> = EXAMPLES.iter().map(|(path, _)| *path).collect();
        shown.sort_unstable();
        assert_eq!(leaves(&crate::Cli::command()), shown);
        for words in EXAMPLES.iter().map(|example| words("hindsight", example)) {
            if let Err(error) = crate::Cli::try_parse_from(&words) {
                panic!("{words:?}: {error}");
            }
        }
    }
}
