//! What the value of an argument may be: by its name in the help, and from the server.

use api::{Client, ListQuery};
use clap::Arg;
use terminal::complete::Line;
use units::{Moment, VolumeMoment};

use crate::session::Session;

/// Versions of a volume, marks, and the like that are looked through.
const LIMIT: usize = 1000;

/// Values of options that are words, by the name that the help has for them.
const WORDS: &[(&str, &[&str])] = &[
    (
        "ARCHITECTURE",
        &[
            "logging",
            "split-stream",
            "split-downstream",
            "redirect",
            "checkpointing",
            "hybrid",
            "auto",
        ],
    ),
    ("stable|server", &["stable", "server"]),
    ("root|all|none", &["root", "all", "none"]),
    ("none|root|all", &["none", "root", "all"]),
    ("ENCODING", &["raw", "delta", "xor"]),
    ("GRANULARITY", &["every-write", "on-demand", "1s", "1min", "1h"]),
    ("ON|OFF", &["on", "off"]),
    ("UNIT", &["4KiB", "8KiB", "16KiB", "32KiB", "64KiB"]),
];

/// All values that an argument may have and that are known, some of which begin with `typed`.
pub fn of(line: &Line, arg: &Arg, typed: &str, session: &Session) -> Vec<String> {
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        return possible.iter().map(|value| value.get_name().to_owned()).collect();
    }
    let name = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name);
    if let Some((_, words)) = WORDS.iter().find(|(of, _)| *of == name) {
        return words.iter().map(|word| (*word).to_owned()).collect();
    }
    let server = Server(session.client().ok());
    server.values(line, name, arg.is_positional(), typed)
}

/// The server, if there is one.
struct Server(Option<Client>);

impl Server {
    fn values(&self, line: &Line, name: &str, is_positional: bool, typed: &str) -> Vec<String> {
        let path = line.path.as_str();
        let first = line.positionals.first().map_or("", String::as_str);
        let subject = first.split('@').next().unwrap_or_default();
        let of_group = path.starts_with("group ");
        match (name, is_positional) {
            ("NAME", true) if path == "volume undelete" => self.deleted(),
            ("NAME", true)
                if matches!(
                    path,
                    "volume create"
                        | "volume import"
                        | "share create"
                        | "tls client"
                        | "token create"
                ) =>
            {
                Vec::new()
            }
            ("HOST|CIDR", true) if path == "share deny" => self.networks(first),
            ("NAME", true) if path.starts_with("share ") => self.shares(),
            ("NAME", true) if path.starts_with("token ") => self.tokens(),
            ("NAME", true) if path == "target create" => Vec::new(),
            ("NAME", true) if path == "target delete" => self.made_targets(),
            ("NAME", true) if path.starts_with("target ") => {
                [self.volumes(), self.made_targets()].concat()
            }
            ("NAME", true) => self.volumes_and_shares(),
            ("VOLUME", _) => self.volumes(),
            ("TRACE", true) if path.starts_with("model ") => self.volumes(),
            ("GROUP", true) if path != "group create" => self.groups(),
            ("NAME@MOMENT" | "NAME[@MOMENT]" | "GROUP[@MOMENT]", true) => {
                self.moments_of(typed, name == "NAME@MOMENT", of_group)
            }
            ("MOMENT", false) => self.moments(subject, typed, of_group),
            ("MARK", true) if path == "mark delete" => self.marks(subject),
            ("N" | "NUMBER", true) => self.numbers(subject, of_group),
            ("MEMBER", true) => self.members(false),
            ("PATH", true) if path == "pool spare remove" => self.members(true),
            _ => Vec::new(),
        }
    }

    fn ask<T>(&self, ask: impl FnOnce(&Client) -> Result<Vec<T>, api::ClientError>) -> Vec<T> {
        self.0.as_ref().and_then(|client| ask(client).ok()).unwrap_or_default()
    }

    fn volumes(&self) -> Vec<String> {
        self.ask(Client::volumes).into_iter().map(|volume| volume.name).collect()
    }

    fn made_targets(&self) -> Vec<String> {
        self.ask(Client::made_targets).into_iter().map(|target| target.name).collect()
    }

    fn tokens(&self) -> Vec<String> {
        self.ask(Client::tokens).into_iter().map(|token| token.name).collect()
    }

    fn shares(&self) -> Vec<String> {
        self.ask(Client::shares).into_iter().map(|share| share.name).collect()
    }

    fn volumes_and_shares(&self) -> Vec<String> {
        [self.volumes(), self.shares()].concat()
    }

    /// Networks that a share has entries of.
    fn networks(&self, share: &str) -> Vec<String> {
        let allowed = self.ask(|client| client.share(share).map(|share| share.allowed));
        allowed.into_iter().map(|allowed| allowed.network).collect()
    }

    fn deleted(&self) -> Vec<String> {
        self.ask(Client::trash).into_iter().map(|volume| volume.name).collect()
    }

    fn groups(&self) -> Vec<String> {
        self.ask(Client::groups).into_iter().map(|group| group.name).collect()
    }

    fn members(&self, spare: bool) -> Vec<String> {
        let members = self.ask(|client| client.pool().map(|pool| pool.members));
        let wanted = members.into_iter().filter(|one| (one.state == "spare") == spare);
        wanted.map(|one| one.path).collect()
    }

    fn marks(&self, volume: &str) -> Vec<String> {
        let query = ListQuery { limit: Some(LIMIT), next: None };
        let marks = self.ask(|client| client.marks(volume, &query).map(|page| page.entries));
        marks.into_iter().map(|mark| mark.name).collect()
    }

    /// Numbers of versions.
    fn numbers(&self, subject: &str, of_group: bool) -> Vec<String> {
        let query = ListQuery { limit: Some(LIMIT), next: None };
        if of_group {
            let all = self.ask(|client| Ok(client.group_versions(subject, &query)?.entries));
            return all.into_iter().map(|version| version.number.to_string()).collect();
        }
        let all = self.ask(|client| Ok(client.versions(subject, &query)?.entries));
        all.into_iter().map(|version| version.number.to_string()).collect()
    }

    /// `VOLUME@MOMENT`, or what may become one.
    fn moments_of(&self, typed: &str, is_needed: bool, of_group: bool) -> Vec<String> {
        if let Some((subject, moment)) = typed.split_once('@') {
            let moments = self.moments(subject, moment, of_group);
            return moments.into_iter().map(|moment| format!("{subject}@{moment}")).collect();
        }
        let mut all = if of_group { self.groups() } else { self.volumes_and_shares() };
        let begun: Vec<String> = all.iter().map(|name| format!("{name}@")).collect();
        if is_needed {
            return begun;
        }
        all.extend(begun);
        all
    }

    /// Moments with a name: the present, versions, marks.
    fn moments(&self, subject: &str, typed: &str, of_group: bool) -> Vec<String> {
        let mut all = vec!["latest".to_owned()];
        all.extend(self.numbers(subject, of_group).iter().map(|number| format!("v:{number}")));
        if of_group {
            return all;
        }
        for mark in self.marks(subject) {
            let is_plain = format!("{subject}@{mark}")
                .parse::<VolumeMoment>()
                .is_ok_and(|read| read.moment == Moment::Mark(mark.clone()));
            match is_plain && !typed.starts_with("mark:") {
                true => all.push(mark),
                false => all.push(format!("mark:{mark}")),
            }
        }
        all
    }
}
