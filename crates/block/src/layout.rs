//! What a pool lies on, as one line of text: a stack, and the spares that wait beside it.
//!
//! `mirror(a.img, b.img) spare(c.img)`; without spares it is the stack alone.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use format::label::MEMBERS_MAX;

use crate::stack::{Stack, StackError};

/// A stack and its spares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The layers over the members.
    pub stack: Stack,
    /// The paths of the spares.
    pub spares: Vec<String>,
}

impl Layout {
    /// The members from left to right, then the spares.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let spares = self.spares.iter().map(String::as_str);
        self.stack.members().into_iter().chain(spares).collect()
    }

    /// The same with another stack behind it.
    #[must_use]
    pub fn followed_by(&self, added: &Stack) -> Layout {
        let stack = self.stack.clone().followed_by(added.clone());
        Layout { stack, spares: self.spares.clone() }
    }

    /// The same without its last part, and that part, if there are several.
    #[must_use]
    pub fn without_last(&self) -> Option<(Layout, Stack)> {
        let Stack::Concat { below } = &self.stack else { return None };
        let (last, others) = below.split_last()?;
        let stack = match others {
            [one] => one.clone(),
            several => Stack::Concat { below: several.to_vec() },
        };
        Some((Layout { stack, spares: self.spares.clone() }, last.clone()))
    }

    /// The same with a side more, if it takes one: a mirror of members gets it, a lone member
    /// becomes one with it.
    #[must_use]
    pub fn with_side(&self, side: &str) -> Option<Layout> {
        let stack = self.stack.clone().with_side(Stack::Member(side.to_owned()))?;
        Some(Layout { stack, spares: self.spares.clone() })
    }

    /// The same without the last side, and its name, if it is a mirror whose last side is a member.
    #[must_use]
    pub fn without_last_side(&self) -> Option<(Layout, String)> {
        let Stack::Mirror { below } = &self.stack else { return None };
        let (Stack::Member(last), others) = below.split_last()? else { return None };
        let stack = match others {
            [one] => one.clone(),
            several => Stack::Mirror { below: several.to_vec() },
        };
        Some((Layout { stack, spares: self.spares.clone() }, last.clone()))
    }

    /// The same with one more spare, if there is one.
    #[must_use]
    pub fn with_spare(&self, spare: Option<&str>) -> Layout {
        let spares = self.spares.iter().map(String::as_str).chain(spare);
        Layout { stack: self.stack.clone(), spares: spares.map(str::to_owned).collect() }
    }

    /// The same with another name for the member of a number, counted from the left.
    #[must_use]
    pub fn with_member(&self, number: usize, name: &str) -> Layout {
        let mut at = 0;
        let stack = self.stack.renamed(&mut |old| {
            at += 1;
            if at - 1 == number { name.to_owned() } else { old.to_owned() }
        });
        let spares = self.spares.iter().filter(|spare| *spare != name).cloned();
        Layout { stack, spares: spares.collect() }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.stack)?;
        match self.spares.as_slice() {
            [] => Ok(()),
            spares => write!(f, " spare({})", spares.join(", ")),
        }
    }
}

impl FromStr for Layout {
    type Err = StackError;

    fn from_str(text: &str) -> Result<Layout, StackError> {
        let end = end_of_stack(text);
        let stack: Stack = text[..end].parse()?;
        let wrong =
            |what: &str| StackError { what: what.to_owned(), at: end, text: text.to_owned() };
        let rest = text[end..].trim();
        let spares = match rest {
            "" => Vec::new(),
            _ => {
                let list = rest.strip_prefix("spare").map(str::trim_start);
                let list = list.and_then(|l| l.strip_prefix('(')).and_then(|l| l.strip_suffix(')'));
                let list = list.ok_or_else(|| wrong("spare(..) or nothing was expected"))?;
                list.split(',').map(|name| name.trim().to_owned()).collect()
            }
        };
        // A name is what a stack of that name alone would be.
        for spare in &spares {
            if !matches!(spare.parse(), Ok(Stack::Member(name)) if name == *spare) {
                return Err(wrong(&format!("{spare:?} is no path of a spare")));
            }
        }
        let layout = Layout { stack, spares };
        let names = layout.names();
        let mut seen = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(**name)) {
            return Err(wrong(&format!("{twice} is there twice")));
        }
        if names.len() > MEMBERS_MAX {
            return Err(wrong(&format!("at most {MEMBERS_MAX} members and spares")));
        }
        Ok(layout)
    }
}

/// Where a stack at the beginning of a text ends: after the bracket that closes it, or behind a
/// single name before the spares.
fn end_of_stack(text: &str) -> usize {
    let are_spares = |text: &str| {
        let list = text.trim_start().strip_prefix("spare").map(str::trim_start);
        list.is_some_and(|list| list.starts_with('('))
    };
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth <= 1 => return at + 1,
            ')' => depth -= 1,
            _ if depth == 0 && c.is_whitespace() && are_spares(&text[at..]) => return at,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::Layout;

    fn error_of(text: &str) -> String {
        text.parse::<Layout>().expect_err("no layout").to_string()
    }

    #[test]
    fn what_is_printed_is_what_was_parsed() {
        for text in [
            "a.img",
            "a.img spare(b.img)",
            "mirror(a, b)",
            "stripe(mirror(a, b), mirror(c, d)) spare(e, /dev/f)",
        ] {
            assert_eq!(text.parse::<Layout>().expect("a layout").to_string(), text);
        }
        let spaced: Layout = "mirror(a,b)spare ( c ,d )".parse().expect("a layout");
        assert_eq!(spaced.spares, ["c", "d"]);
        assert_eq!(spaced.names(), ["a", "b", "c", "d"]);
        assert_eq!(spaced.with_member(1, "d").to_string(), "mirror(a, d) spare(c)");
        assert!(spaced.without_last().is_none());
        let added = "mirror(e, f)".parse().expect("a stack");
        let grown = spaced.followed_by(&added);
        assert_eq!(grown.without_last(), Some((spaced, added.clone())));
        assert_eq!(grown.followed_by(&added).without_last(), Some((grown, added)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(error_of("mirror(a, b) spares(c)").contains("spare(..) or nothing"));
        assert!(error_of("mirror(a, b) spare(c").contains("spare(..) or nothing"));
        assert!(error_of("mirror(a, b) spare()").contains("no path"));
        assert!(error_of("mirror(a, b) spare(mirror(c, d))").contains("no path"));
        assert!(error_of("mirror(a, b) spare(a)").contains("a is there twice"));
        assert!(error_of("mirror(a, b").contains(") or , was expected"));
        assert!(error_of("spare(a)").contains("no layer spare"));
    }
}
