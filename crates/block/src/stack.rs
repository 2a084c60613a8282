//! A stack as one line of text: `stripe[chunk=64KiB](mirror(a, b), mirror(c, d))`.
//!
//! ```text
//! stack   = layer | member
//! layer   = name [ "[" option { "," option } "]" ] "(" stack { "," stack } ")"
//! option  = name "=" value
//! member  = a path, or in a label the member's number; no space and none of ( ) [ ] , = in it
//! ```
//!
//! Spaces between the parts are allowed and not kept. `Display` and `FromStr` are inverse but for
//! them. What is parsed is also checked: a stack that was parsed can be built.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use units::Size;

use crate::layers::{CryptError, KeySource, PARITIES_MAX};

/// Members of one stack, at most.
pub const MEMBERS_MAX: usize = 32;
/// Layers over one another, at most.
pub const DEPTH_MAX: usize = 8;
/// Bytes of a stripe's chunk if nothing is said (DARC: 64 KiB, section 3.1).
pub const CHUNK_BYTES: u64 = 64 << 10;
/// Bytes of one slot of a parity's journal if nothing is said: about as much as a client writes
/// between two flushes.
pub const JOURNAL_BYTES: u64 = 16 << 20;
/// The way out for a pool on a layer that was removed.
const REMOVED: &str = "open the pool with the version that made it, export its volumes, and import \
    them into a new pool";
/// The longest text, in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;

/// A stack of layers; `M` is what stands for a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stack {
    /// A file or disk.
    Member(String),
    /// Chunks in turn over several.
    Stripe {
        /// Bytes of a chunk: a power of two.
        chunk_bytes: u64,
        /// Over what.
        below: Vec<Stack>,
    },
    /// One after the other.
    Concat {
        /// Over what.
        below: Vec<Stack>,
    },
    /// The same on each.
    Mirror {
        /// Over what.
        below: Vec<Stack>,
    },
    /// Chunks in turn over several, with what computes some of them from the others.
    Parity {
        /// How many may be lost.
        failures: usize,
        /// Bytes of a chunk: a power of two.
        chunk_bytes: u64,
        /// Bytes of one of the two slots of the journal.
        journal_bytes: u64,
        /// Over what.
        below: Vec<Stack>,
    },
    /// Encrypted.
    Crypt {
        /// Where the key is.
        key: KeySource,
        /// Over what.
        below: Box<Stack>,
    },
}

/// Why a text is no stack.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} (at byte {at} of {text:?})")]
pub struct StackError {
    /// What is wrong.
    pub what: String,
    /// Where.
    pub at: usize,
    /// The whole text.
    pub text: String,
}

impl Stack {
    /// What it lies over.
    pub(crate) fn below(&self) -> &[Stack] {
        match self {
            Stack::Member(_) => &[],
            Stack::Stripe { below, .. }
            | Stack::Concat { below }
            | Stack::Mirror { below }
            | Stack::Parity { below, .. } => below,
            Stack::Crypt { below, .. } => std::slice::from_ref(below),
        }
    }

    fn below_mut(&mut self) -> &mut [Stack] {
        match self {
            Stack::Member(_) => &mut [],
            Stack::Stripe { below, .. }
            | Stack::Concat { below }
            | Stack::Mirror { below }
            | Stack::Parity { below, .. } => below,
            Stack::Crypt { below, .. } => std::slice::from_mut(below),
        }
    }

    /// The members from left to right.
    #[must_use]
    pub fn members(&self) -> Vec<&str> {
        match self {
            Stack::Member(name) => vec![name],
            _ => self.below().iter().flat_map(Stack::members).collect(),
        }
    }

    /// The same stack with other names for its members, given from left to right.
    #[must_use]
    pub fn renamed(&self, name: &mut dyn FnMut(&str) -> String) -> Stack {
        let mut renamed = self.clone();
        renamed.rename(name);
        renamed
    }

    fn rename(&mut self, name: &mut dyn FnMut(&str) -> String) {
        match self {
            Stack::Member(member) => *member = name(member),
            _ => self.below_mut().iter_mut().for_each(|stack| stack.rename(name)),
        }
    }

    /// The stack with another one behind it.
    pub(crate) fn followed_by(self, added: Stack) -> Stack {
        match self {
            Stack::Concat { mut below } => {
                below.push(added);
                Stack::Concat { below }
            }
            one => Stack::Concat { below: vec![one, added] },
        }
    }

    /// The stack with another side: a mirror of members gets it, a lone member becomes one with it,
    /// and nothing else has sides.
    pub(crate) fn with_side(self, side: Stack) -> Option<Stack> {
        let is_member = |stack: &Stack| matches!(stack, Stack::Member(_));
        match self {
            Stack::Mirror { mut below } if below.iter().all(is_member) => {
                below.push(side);
                Some(Stack::Mirror { below })
            }
            Stack::Member(_) => Some(Stack::Mirror { below: vec![self, side] }),
            _ => None,
        }
    }

    /// Whether a member can fail without loss, whichever it is.
    #[must_use]
    pub fn is_redundant(&self) -> bool {
        match self {
            Stack::Member(_) => false,
            Stack::Mirror { .. } | Stack::Parity { .. } => true,
            _ => self.below().iter().all(Stack::is_redundant),
        }
    }

    /// Whether nothing of it is plain text.
    pub(crate) fn is_encrypted(&self) -> bool {
        let is_all = || !self.below().is_empty() && self.below().iter().all(Stack::is_encrypted);
        matches!(self, Stack::Crypt { .. }) || is_all()
    }

    /// Whether a parity is somewhere in it.
    #[must_use]
    pub fn has_parity(&self) -> bool {
        matches!(self, Stack::Parity { .. }) || self.below().iter().any(Stack::has_parity)
    }

    /// Whether a mirror is somewhere in it.
    pub(crate) fn has_mirror(&self) -> bool {
        matches!(self, Stack::Mirror { .. }) || self.below().iter().any(Stack::has_mirror)
    }

    /// Whether some of it can be had in several ways.
    pub(crate) fn has_copies(&self) -> bool {
        let is_redundant = matches!(self, Stack::Mirror { .. } | Stack::Parity { .. });
        is_redundant || self.below().iter().any(Stack::has_copies)
    }

    /// Whether a layer over several copies keeps something beside its data.
    pub(crate) fn keeps_over_copies(&self) -> bool {
        let keeps = matches!(self, Stack::Crypt { .. });
        let below = self.below();
        below.iter().any(|stack| keeps && stack.has_copies() || stack.keeps_over_copies())
    }

    fn depth(&self) -> usize {
        match self {
            Stack::Member(_) => 0,
            _ => 1 + self.below().iter().map(Stack::depth).max().unwrap_or(0),
        }
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = match self {
            Stack::Member(name) => return f.write_str(name),
            Stack::Stripe { chunk_bytes, below } => {
                f.write_str("stripe")?;
                if *chunk_bytes != CHUNK_BYTES {
                    write!(f, "[chunk={}]", Size(*chunk_bytes))?;
                }
                below
            }
            Stack::Mirror { below } => {
                f.write_str("mirror")?;
                below
            }
            Stack::Concat { below } => {
                f.write_str("concat")?;
                below
            }
            Stack::Parity { failures, chunk_bytes, journal_bytes, below } => {
                let mut options = Vec::new();
                if *failures != 1 {
                    options.push(format!("failures={failures}"));
                }
                if *chunk_bytes != CHUNK_BYTES {
                    options.push(format!("chunk={}", Size(*chunk_bytes)));
                }
                if *journal_bytes != JOURNAL_BYTES {
                    options.push(format!("journal={}", Size(*journal_bytes)));
                }
                f.write_str("parity")?;
                if !options.is_empty() {
                    write!(f, "[{}]", options.join(","))?;
                }
                below
            }
            Stack::Crypt { key, below } => return write!(f, "crypt[key={key}]({below})"),
        };
        for (i, stack) in below.iter().enumerate() {
            write!(f, "{}{stack}", if i == 0 { "(" } else { ", " })?;
        }
        f.write_str(")")
    }
}

impl FromStr for Stack {
    type Err = StackError;

    fn from_str(text: &str) -> Result<Stack, StackError> {
        let mut parser = Parser { text, at: 0 };
        if text.len() > TEXT_BYTES_MAX {
            return Err(parser.error(format!("a stack has at most {TEXT_BYTES_MAX} bytes")));
        }
        let stack = parser.stack(0)?;
        if parser.at < text.len() {
            return Err(parser.error("nothing was expected after the stack"));
        }
        parser.at = 0;
        let members = stack.members();
        if members.len() > MEMBERS_MAX {
            return Err(parser.error(format!("a stack has at most {MEMBERS_MAX} members")));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = members.iter().find(|name| !seen.insert(**name)) {
            return Err(parser.error(format!("{twice} is there twice")));
        }
        debug_assert!(stack.depth() <= DEPTH_MAX);
        Ok(stack)
    }
}

/// Takes the value of an option, if there is one of that name.
type Options<'o> = dyn FnMut(&str) -> Option<String> + 'o;

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl Parser<'_> {
    fn error(&self, what: impl Into<String>) -> StackError {
        StackError { what: what.into(), at: self.at, text: self.text.to_owned() }
    }

    fn skip_spaces(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    /// The next character that means something, if it is this one.
    fn take(&mut self, wanted: char) -> bool {
        self.skip_spaces();
        let found = self.text[self.at..].starts_with(wanted);
        if found {
            self.at += wanted.len_utf8();
            self.skip_spaces();
        }
        found
    }

    fn word(&mut self) -> Result<String, StackError> {
        self.skip_spaces();
        let rest = &self.text[self.at..];
        let ends = |c: char| c.is_whitespace() || c.is_control() || "()[],=".contains(c);
        let length = rest.find(ends).unwrap_or(rest.len());
        if length == 0 {
            return Err(self.error("a layer, a path or a value was expected"));
        }
        self.at += length;
        let word = rest[..length].to_owned();
        self.skip_spaces();
        Ok(word)
    }

    fn stack(&mut self, depth: usize) -> Result<Stack, StackError> {
        if depth > DEPTH_MAX {
            return Err(self.error(format!("at most {DEPTH_MAX} layers lie over one another")));
        }
        self.skip_spaces();
        let start = self.at;
        let name = self.word()?;
        let options = self.options()?;
        if !self.take('(') {
            if !options.is_empty() {
                return Err(self.error("( was expected: only layers have options"));
            }
            return Ok(Stack::Member(name));
        }
        let mut below = vec![self.stack(depth + 1)?];
        while self.take(',') {
            below.push(self.stack(depth + 1)?);
        }
        if !self.take(')') {
            return Err(self.error(") or , was expected"));
        }
        let end = std::mem::replace(&mut self.at, start);
        let stack = self.layer(&name, options, below)?;
        self.at = end;
        Ok(stack)
    }

    fn options(&mut self) -> Result<Vec<(String, String)>, StackError> {
        let mut options: Vec<(String, String)> = Vec::new();
        if !self.take('[') {
            return Ok(options);
        }
        loop {
            let name = self.word()?;
            if !self.take('=') {
                return Err(self.error(format!("= was expected after {name}")));
            }
            if options.iter().any(|(other, _)| *other == name) {
                return Err(self.error(format!("{name} is there twice")));
            }
            let value = self.word()?;
            options.push((name, value));
            if self.take(']') {
                return Ok(options);
            }
            if !self.take(',') {
                return Err(self.error("] or , was expected"));
            }
        }
    }

    fn layer(
        &self,
        name: &str,
        mut options: Vec<(String, String)>,
        below: Vec<Stack>,
    ) -> Result<Stack, StackError> {
        let mut option = |wanted: &str| {
            let at = options.iter().position(|(name, _)| name == wanted)?;
            Some(options.remove(at).1)
        };
        let several = |what: &str| match below.len() {
            1 => Err(self.error(format!("a {what} needs at least two below it"))),
            _ => Ok(()),
        };
        let stack = match name {
            "stripe" => {
                several("stripe")?;
                let chunk_bytes = match option("chunk") {
                    None => CHUNK_BYTES,
                    Some(text) => self.chunk(&text)?,
                };
                Stack::Stripe { chunk_bytes, below }
            }
            "concat" => {
                several("concat")?;
                Stack::Concat { below }
            }
            "mirror" => {
                several("mirror")?;
                if below.iter().any(Stack::has_parity) {
                    return Err(self.error("a mirror lies over no parity: see docs/operations.md"));
                }
                Stack::Mirror { below }
            }
            "parity" => self.parity(&mut option, below)?,
            "integrity" | "delay" => {
                return Err(self.error(format!("the layer {name} was removed: {REMOVED}")));
            }
            "crypt" => {
                let Some(text) = option("key") else {
                    return Err(self.error("crypt needs a key, as in crypt[key=file:/path](..)"));
                };
                let key = text.parse().map_err(|e: CryptError| self.error(e.to_string()))?;
                let Ok([one]) = <[Stack; 1]>::try_from(below) else {
                    return Err(self.error("crypt lies over one thing"));
                };
                Stack::Crypt { key, below: Box::new(one) }
            }
            _ => {
                let known = "stripe, concat, mirror, parity, crypt";
                return Err(self.error(format!("there is no layer {name}; there are {known}")));
            }
        };
        match options.first() {
            Some((unknown, _)) => Err(self.error(format!("{name} has no option {unknown}"))),
            None => Ok(stack),
        }
    }

    fn parity(&self, option: &mut Options<'_>, below: Vec<Stack>) -> Result<Stack, StackError> {
        let failures = match option("failures") {
            None => 1,
            Some(text) => self.failures(&text)?,
        };
        let chunk_bytes = match option("chunk") {
            None => CHUNK_BYTES,
            Some(text) => self.chunk(&text)?,
        };
        let journal_bytes = match option("journal") {
            None => JOURNAL_BYTES,
            Some(text) => self.journal(&text)?,
        };
        let least = failures + 2;
        if below.len() < least {
            let what = format!("a parity against {failures} needs at least {least} below it");
            return Err(self.error(what));
        }
        match below.iter().any(Stack::has_copies) {
            true => Err(self.error("what lies below a parity has no copies of its own")),
            false => Ok(Stack::Parity { failures, chunk_bytes, journal_bytes, below }),
        }
    }

    fn failures(&self, text: &str) -> Result<usize, StackError> {
        match text.parse() {
            Ok(failures) if (1..=PARITIES_MAX).contains(&failures) => Ok(failures),
            _ => Err(self.error(format!("failures={text}: 1 to {PARITIES_MAX} was expected"))),
        }
    }

    fn journal(&self, text: &str) -> Result<u64, StackError> {
        let size = Size::from_str(text).map_err(|e| self.error(e.to_string()))?;
        let bytes = size.bytes();
        if bytes.is_multiple_of(4 << 10) && ((64 << 10)..=(1 << 30)).contains(&bytes) {
            return Ok(bytes);
        }
        let expected = "a multiple of 4 KiB from 64 KiB to 1 GiB was expected";
        Err(self.error(format!("journal={text}: {expected}")))
    }

    fn chunk(&self, text: &str) -> Result<u64, StackError> {
        let size = Size::from_str(text).map_err(|e| self.error(e.to_string()))?;
        let bytes = size.bytes();
        if bytes.is_power_of_two() && ((4 << 10)..=(16 << 20)).contains(&bytes) {
            return Ok(bytes);
        }
        Err(self.error(format!("chunk={text}: a power of two from 4 KiB to 16 MiB was expected")))
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, Stack};

    fn error_of(text: &str) -> String {
        text.parse::<Stack>().expect_err("no stack").to_string()
    }

    #[test]
    fn what_is_printed_is_what_was_parsed() {
        for text in [
            "pool.img",
            "mirror(a, b)",
            "concat(mirror(a, b), stripe(c, d))",
            "mirror(a, b, c)",
            "stripe(mirror(/dev/sda, /dev/sdb), mirror(c.img, d.img))",
            "stripe[chunk=4KiB](a, b, c)",
            "mirror(stripe[chunk=16MiB](a, b), stripe(c, d))",
            "mirror(crypt[key=file:/etc/key](a), crypt[key=env:KEY](b))",
            "parity(a, b, c)",
            "stripe(parity[failures=2](a, b, c, d), parity[failures=2](e, f, g, h))",
            "parity[failures=3,chunk=4KiB,journal=64KiB](a, b, c, d, stripe(e, f))",
        ] {
            let stack: Stack = text.parse().expect("a stack");
            assert_eq!(stack.to_string(), text);
        }
        let spaced: Stack = " stripe [ chunk = 64KiB ] ( a ,b ) ".parse().expect("a stack");
        assert_eq!(spaced.to_string(), "stripe(a, b)");
        let Stack::Stripe { chunk_bytes, .. } = spaced else { panic!("a stripe") };
        assert_eq!(chunk_bytes, CHUNK_BYTES);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        assert!(error_of("").contains("was expected (at byte 0"));
        assert!(error_of("mirror(a)").contains("at least two"));
        assert!(error_of("mirror(a, b").contains(") or , was expected (at byte 11"));
        assert!(error_of("mirror(a, b))").contains("nothing was expected"));
        assert!(error_of("mirror(a, , b)").contains("(at byte 10"));
        assert!(
            error_of("raid(a, b)")
                .contains("no layer raid; there are stripe, concat, mirror, parity, crypt")
        );
        for text in ["integrity(a)", "mirror(integrity[mismatch=trust-copies](a), b)"] {
            assert!(error_of(text).contains("integrity was removed"), "{text}");
        }
        assert!(error_of("mirror(a, delay[read=5ms](b))").contains("delay was removed"));
        assert!(error_of("crypt[key=env:A](a, b)").contains("one thing"));
        assert!(error_of("crypt(a)").contains("needs a key"));
        assert!(error_of("crypt[key=here](a)").contains("no source of keys"));
        assert!(error_of("mirror[chunk=4KiB](a, b)").contains("mirror has no option chunk"));
        assert!(error_of("stripe[chunk=5KiB](a, b)").contains("power of two"));
        assert!(error_of("stripe[chunk=big](a, b)").contains("big"));
        assert!(error_of("stripe[chunk=4KiB,chunk=8KiB](a, b)").contains("twice"));
        assert!(error_of("parity(a, b)").contains("at least 3"));
        assert!(error_of("parity[failures=2](a, b, c)").contains("at least 4"));
        assert!(error_of("parity[failures=4](a, b, c, d, e, f)").contains("1 to 3"));
        assert!(error_of("parity[journal=5KiB](a, b, c)").contains("from 64 KiB"));
        assert!(error_of("parity(mirror(a, b), c, d)").contains("no copies of its own"));
        assert!(error_of("mirror(parity(a, b, c), d)").contains("over no parity"));
        assert!(error_of("mirror(a, a)").contains("a is there twice"));
        assert!(error_of("a[x=1]").contains("only layers"));
        let deep = "mirror(a,".repeat(9) + "b" + &")".repeat(9);
        assert!(error_of(&deep).contains("at most 8 layers"));
        let wide: Vec<String> = (0..33).map(|n| n.to_string()).collect();
        assert!(error_of(&format!("mirror({})", wide.join(","))).contains("32 members"));
        assert!(error_of(&"(".repeat(100_000)).contains("4096 bytes"));
    }

    #[test]
    fn redundancy_is_that_of_the_weakest_part() {
        let redundant = |text: &str| text.parse::<Stack>().expect("a stack").is_redundant();
        assert!(redundant("stripe(mirror(a, b), mirror(c, d))"));
        assert!(redundant("mirror(stripe(a, b), stripe(c, d))"));
        assert!(!redundant("stripe(mirror(a, b), c)"));
        assert!(!redundant("a"));
    }

    #[test]
    fn the_operations_page_has_every_layer_and_option_and_its_stacks_parse() {
        let page = include_str!("../../../docs/operations.md");
        let known = error_of("other(a)");
        let (_, known) = known.split_once("there are ").expect("they are named");
        let (known, _) = known.split_once(" (at byte").expect("with its place");
        let options = [
            "stripe[chunk=4KiB](a, b)",
            "parity[failures=2,chunk=4KiB,journal=64KiB](a, b, c, d)",
            "crypt[key=env:KEY](a)",
        ];
        for layer in known.split(", ") {
            let row = page.lines().find(|line| line.starts_with(&format!("| `{layer}(")));
            let row = row.unwrap_or_else(|| panic!("the page does not say what {layer} is"));
            let Some(example) = options.iter().find(|text| text.starts_with(layer)) else {
                continue;
            };
            let stack: Stack = example.parse().expect("a stack");
            assert_eq!(stack.to_string(), *example);
            let (_, named) = example.split_once('[').expect("it has options");
            let (named, _) = named.split_once(']').expect("they end");
            for option in named.split(',') {
                let name = option.split('=').next().expect("it has a name");
                assert!(row.contains(&format!("`{name}`")), "{layer} has an option {name}");
            }
        }
        let quoted = page.split("--stack '").skip(1).filter_map(|rest| rest.split('\'').next());
        let stacks: Vec<&str> = quoted.filter_map(|text| text.split(" spare(").next()).collect();
        assert!(!stacks.is_empty(), "the page has examples");
        for text in stacks {
            assert!(text.parse::<Stack>().is_ok(), "{text}");
        }
    }
}
