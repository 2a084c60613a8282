//! Selections of operations on a share, from the fields of a query or from an expression such as
//! `client=10.0.0.7 and time>=-2h and path~/docs/*`.

use std::net::{IpAddr, Ipv6Addr};

use ::share::{CauseKind, Logged, Naming, Procedure, Tree};
use ::volume::Volume;
use api::ProblemKind;
use units::{Moment, Network, Seq, WallTime};

use super::answer::{Answer, Refusal};
use super::files::bytes_of;

const FORMS: &str = "conditions are KEY=VALUE with `and` or `or` between them: client, uid, \
                     time>=, time<=, path, path~ (with * and ?), op, number, number>=, number<=, \
                     repair, restore, import; a value with blanks goes in quotes";

/// Conditions that all have to hold, or others in their place: `and` binds before `or`.
#[derive(Clone, Debug)]
pub(super) struct Selection(Vec<Vec<Condition>>);

impl Default for Selection {
    /// All operations.
    fn default() -> Selection {
        Selection(vec![Vec::new()])
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Clients(Vec<Network>),
    Uids(Vec<u32>),
    Since(When),
    Until(When),
    /// It, or something below it.
    Path(Vec<u8>),
    Glob(Vec<u8>),
    Procedures(Vec<Procedure>),
    Numbers(u64, u64),
    Cause(CauseKind, u64),
}

/// A moment among operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Time(WallTime),
    /// Between transactions: after the write with this number.
    Seq(Seq),
}

impl When {
    /// Whether an operation was done at that moment or later.
    fn is_before(self, logged: &Logged) -> bool {
        match self {
            When::Time(time) => logged.record.time >= time,
            When::Seq(seq) => logged.record.seq_before >= seq,
        }
    }

    /// Whether an operation was done at that moment or earlier.
    fn is_after(self, logged: &Logged) -> bool {
        match self {
            When::Time(time) => logged.record.time <= time,
            When::Seq(seq) => logged.record.seq_before < seq,
        }
    }
}

/// The procedures of records, by name.
pub(super) const PROCEDURES: [(&str, Procedure); 11] = [
    ("CREATE", Procedure::Create),
    ("LINK", Procedure::Link),
    ("MKDIR", Procedure::MakeDirectory),
    ("MKNOD", Procedure::MakeNode),
    ("READ", Procedure::Read),
    ("REMOVE", Procedure::Remove),
    ("RENAME", Procedure::Rename),
    ("RMDIR", Procedure::RemoveDirectory),
    ("SETATTR", Procedure::SetAttributes),
    ("SYMLINK", Procedure::MakeSymlink),
    ("WRITE", Procedure::Write),
];

fn wrong(text: impl Into<String>) -> Refusal {
    Refusal::new(ProblemKind::Invalid, text).with_hint(FORMS)
}

impl Selection {
    /// Reads an expression; one without conditions is refused.
    pub(super) fn parse(text: &str, volume: &Volume) -> Answer<Selection> {
        let mut all = Selection(Vec::new());
        for part in parts(text)? {
            let Selection(alternative) = Selection::parse_part(&part, volume)?;
            all.0.extend(alternative);
        }
        Ok(all)
    }

    fn parse_part(terms: &[String], volume: &Volume) -> Answer<Selection> {
        let mut selection = Selection::default();
        for term in terms {
            let at = term.find(['=', '<', '>', '~']);
            let (key, rest) = term.split_at(at.unwrap_or(term.len()));
            let operators = [">=", "<=", "=", "~"];
            let found = operators.into_iter().find_map(|o| Some((o, rest.strip_prefix(o)?)));
            let Some((operator, value)) = found else {
                return Err(wrong(format!("`{term:.200}` is no condition")));
            };
            let value = value.trim();
            let plain = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            if plain.is_none() && value.contains(char::is_whitespace) {
                return Err(wrong(format!("`{term:.200}`: a value with blanks goes in quotes")));
            }
            selection.add(key.trim(), operator, plain.unwrap_or(value), volume)?;
        }
        Ok(selection)
    }

    /// Adds a condition, which has to hold whatever else does.
    pub(super) fn add(
        &mut self,
        key: &str,
        operator: &str,
        value: &str,
        volume: &Volume,
    ) -> Answer<()> {
        let number = || -> Answer<u64> {
            value.parse().map_err(|_| wrong(format!("`{value:.64}` is no number")))
        };
        let condition = match (key, operator) {
            ("client", "=") => Condition::Clients(each(value, |one| {
                one.parse().map_err(|e: units::Malformed| wrong(e.message))
            })?),
            ("uid", "=") => Condition::Uids(each(value, |one| {
                let text = || format!("`{one:.64}` is no user: they are 0 to 4294967295");
                one.parse().map_err(|_| wrong(text()))
            })?),
            ("time", ">=") => Condition::Since(when(value, volume)?),
            ("time", "<=") => Condition::Until(when(value, volume)?),
            ("path", "=") => Condition::Path(absolute(value)?),
            ("path", "~") => Condition::Glob(absolute(value)?),
            ("op", "=") => Condition::Procedures(procedures(value)?),
            ("number", "=") => {
                let number = number()?;
                Condition::Numbers(number, number)
            }
            ("number", ">=") => Condition::Numbers(number()?, u64::MAX),
            ("number", "<=") => Condition::Numbers(0, number()?),
            ("repair", "=") => Condition::Cause(CauseKind::Repair, number()?),
            ("restore", "=") => Condition::Cause(CauseKind::Restore, number()?),
            ("import", "=") => Condition::Cause(CauseKind::Import, number()?),
            _ => return Err(wrong(format!("`{key:.64}{operator}` is no condition"))),
        };
        self.0.iter_mut().for_each(|alternative| alternative.push(condition.clone()));
        Ok(())
    }

    /// The time before which nothing is selected.
    pub(super) fn since(&self) -> WallTime {
        let time = |condition: &Condition| match condition {
            Condition::Since(When::Time(time)) => Some(*time),
            _ => None,
        };
        let of = |alternative: &Vec<Condition>| {
            alternative.iter().filter_map(time).max().unwrap_or_default()
        };
        self.0.iter().map(of).min().unwrap_or_default()
    }

    /// Whether it asks for paths, so that the names of what is gone have to be seen first.
    pub(super) fn has_paths(&self) -> bool {
        self.0.iter().flatten().any(Condition::is_path)
    }

    /// Whether an operation is selected.
    pub(super) fn takes<T: Tree>(
        &self,
        logged: &Logged,
        naming: &mut Naming<'_, T>,
    ) -> ::share::Result<bool> {
        for alternative in &self.0 {
            // Conditions that need no path are asked first.
            if !alternative.iter().all(|condition| condition.holds(logged)) {
                continue;
            }
            if !alternative.iter().any(Condition::is_path) {
                return Ok(true);
            }
            let paths = naming.of_operation(logged)?;
            let paths: Vec<Vec<u8>> = paths.path.into_iter().chain(paths.to).collect();
            if alternative.iter().all(|condition| condition.holds_of(&paths)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Condition {
    fn holds(&self, logged: &Logged) -> bool {
        let record = &logged.record;
        match self {
            // Commands have no client, and do all as root: they are named by what they are.
            Condition::Clients(networks) => {
                let client = client_of(record.origin.client);
                record.cause.is_none() && networks.iter().any(|network| network.contains(client))
            }
            Condition::Uids(uids) => record.cause.is_none() && uids.contains(&record.origin.uid),
            Condition::Since(when) => when.is_before(logged),
            Condition::Until(when) => when.is_after(logged),
            Condition::Procedures(procedures) => procedures.contains(&record.procedure),
            Condition::Numbers(first, last) => (*first..=*last).contains(&record.number),
            Condition::Cause(kind, number) => {
                record.cause.is_some_and(|cause| (cause.kind, cause.number) == (*kind, *number))
            }
            Condition::Path(_) | Condition::Glob(_) => true,
        }
    }

    fn is_path(&self) -> bool {
        matches!(self, Condition::Path(_) | Condition::Glob(_))
    }

    /// Whether it holds of an operation with these paths, as far as it is about them.
    fn holds_of(&self, paths: &[Vec<u8>]) -> bool {
        match self {
            Condition::Path(of) => paths.iter().any(|path| is_at_or_below(path, of)),
            Condition::Glob(pattern) => paths.iter().any(|path| is_like(path, pattern)),
            _ => true,
        }
    }
}

/// The address of a client as a record has it.
pub(super) fn client_of(client: u128) -> IpAddr {
    Ipv6Addr::from_bits(client).to_canonical()
}

/// The conditions of an expression: between them stands `and`, between parts of it `or`, but not
/// within quotes.
fn parts(text: &str) -> Answer<Vec<Vec<String>>> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for char in text.chars() {
        match char {
            '"' => {
                is_quoted = !is_quoted;
                word.push(char);
            }
            char if char.is_whitespace() && !is_quoted => words.push(std::mem::take(&mut word)),
            char => word.push(char),
        }
    }
    if is_quoted {
        return Err(wrong("a quote has no end".to_owned()));
    }
    words.push(word);
    let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let term = |term: &[String]| match term {
        [] => Err(wrong("a condition is missing".to_owned())),
        term => Ok(term.join(" ")),
    };
    let part = |part: &[String]| {
        part.split(|word| word.eq_ignore_ascii_case("and")).map(term).collect::<Answer<Vec<_>>>()
    };
    words.split(|word| word.eq_ignore_ascii_case("or")).map(part).collect()
}

/// A moment: a time, which may be in the future and before all there is; or a place in the history.
fn when(text: &str, volume: &Volume) -> Answer<When> {
    match text.parse().map_err(|e: units::Malformed| wrong(e.message))? {
        Moment::At(time) => Ok(When::Time(time)),
        Moment::Ago(span) => Ok(When::Time(volume.time_ago(span))),
        other => Ok(When::Seq(volume.resolve(&other)?.seq)),
    }
}

fn absolute(text: &str) -> Answer<Vec<u8>> {
    let mut path = bytes_of(text)?;
    if path.first() != Some(&b'/') {
        path.insert(0, b'/');
    }
    while path.len() > 1 && path.last() == Some(&b'/') {
        path.pop();
    }
    Ok(path)
}

/// The values of a list with commas.
fn each<T>(text: &str, one: impl Fn(&str) -> Answer<T>) -> Answer<Vec<T>> {
    text.split(',').map(|part| one(part.trim())).collect()
}

fn procedures(text: &str) -> Answer<Vec<Procedure>> {
    let one = |name: &str| {
        let found = PROCEDURES.iter().find(|(own, _)| own.eq_ignore_ascii_case(name.trim()));
        found.map(|(_, procedure)| *procedure).ok_or_else(|| {
            let names: Vec<&str> = PROCEDURES.iter().map(|(name, _)| *name).collect();
            let hint = format!("there are {}", names.join(", "));
            let text = format!("`{name:.64}` is no procedure that is logged");
            Refusal::new(ProblemKind::Invalid, text).with_hint(hint)
        })
    };
    each(text, one)
}

fn is_at_or_below(path: &[u8], of: &[u8]) -> bool {
    let rest = path.strip_prefix(of);
    of == b"/" || rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Whether a path is like a pattern, in which `*` stands for any bytes and `?` for one.
fn is_like(path: &[u8], pattern: &[u8]) -> bool {
    let (mut at, mut next) = (0, 0);
    // Where the last star stands, and how far its bytes go.
    let mut star = None;
    while at < path.len() {
        match pattern.get(next) {
            Some(b'*') => {
                star = Some((next, at));
                next += 1;
            }
            Some(byte) if *byte == b'?' || *byte == path[at] => (at, next) = (at + 1, next + 1),
            _ => {
                let Some((place, from)) = star else { return false };
                star = Some((place, from + 1));
                (at, next) = (from + 1, place + 1);
            }
        }
    }
    pattern[next..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::{is_at_or_below, is_like, parts};

    #[test]
    fn conditions_have_and_or_or_between_them() {
        let of = |text| parts(text).expect("an expression");
        assert_eq!(
            of("uid=1 and time >= -2h AND path~\"/my docs/*\""),
            [["uid=1", "time >= -2h", "path~\"/my docs/*\""]]
        );
        assert_eq!(of("path=\"/a and b or c\""), [["path=\"/a and b or c\""]]);
        assert_eq!(
            of("uid=1 and op=WRITE or repair=7 OR repair=9"),
            [vec!["uid=1", "op=WRITE"], vec!["repair=7"], vec!["repair=9"]]
        );
        for text in [
            "",
            "and",
            "or",
            "uid=1 and",
            "and uid=1",
            "uid=1 and and uid=2",
            "uid=1 or",
            "or uid=1",
            "uid=1 or and uid=2",
            "uid=1 and or uid=2",
            "path=\"a",
        ] {
            parts(text).expect_err(text);
        }
    }

    #[test]
    fn patterns_and_paths() {
        for (path, pattern, is) in [
            ("/docs/a", "/docs/*", true),
            ("/docs", "/docs/*", false),
            ("/docs/a/b.txt", "*.txt", true),
            ("/docs/a.txt.locked", "*.txt", false),
            ("/aab", "/a*ab", true),
            ("/ab", "/a?b", false),
            ("/axb", "/a?b", true),
            ("/a", "/a***", true),
        ] {
            assert_eq!(is_like(path.as_bytes(), pattern.as_bytes()), is, "{path} {pattern}");
        }
        for (path, of, is) in [
            ("/docs", "/docs", true),
            ("/docs/a", "/docs", true),
            ("/docsa", "/docs", false),
            ("/docs", "/", true),
            ("/", "/docs", false),
        ] {
            assert_eq!(is_at_or_below(path.as_bytes(), of.as_bytes()), is, "{path} {of}");
        }
    }
}
