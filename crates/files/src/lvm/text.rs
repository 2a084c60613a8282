//! The text that LVM keeps its metadata in: names with values, lists and sections.

use crate::error::{Error, Result};

/// Sections in one another, at most; LVM has five.
const DEPTH_MAX: usize = 8;
/// Words of a text, at most.
const WORDS_MAX: usize = 1 << 18;
/// Characters of a text that a message shows.
const SHOWN_MAX: usize = 40;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Number(u64),
    List(Vec<Value>),
    Section(Section),
}

/// Names and values, in the order of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section(Vec<(String, Value)>);

fn lacks(name: &str) -> Error {
    Error::damaged(format!("LVM: the metadata lacks `{}`", shown(name)))
}

/// A text of the disk in a message: not all of a long one, and nothing that a terminal acts on.
pub fn shown(text: &str) -> String {
    let is_plain = |character: &char| character.is_ascii_graphic() || *character == ' ';
    let text: String = text.chars().take(SHOWN_MAX).collect();
    text.chars().map(|c| if is_plain(&c) { c } else { '?' }).collect()
}

impl Section {
    /// Reads a text whole.
    pub fn parse(text: &[u8]) -> Result<Section> {
        let mut words = Words { rest: text, left: WORDS_MAX };
        let section = words.section(0)?;
        match words.next()? {
            None => Ok(section),
            Some(word) => Err(unexpected(&word)),
        }
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub fn number(&self, name: &str) -> Result<u64> {
        match self.get(name) {
            Some(Value::Number(number)) => Ok(*number),
            _ => Err(lacks(name)),
        }
    }

    pub fn text(&self, name: &str) -> Result<&str> {
        match self.get(name) {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(lacks(name)),
        }
    }

    pub fn list(&self, name: &str) -> Result<&[Value]> {
        match self.get(name) {
            Some(Value::List(list)) => Ok(list),
            _ => Err(lacks(name)),
        }
    }

    /// Whether a list of words has one.
    pub fn says(&self, name: &str, word: &str) -> bool {
        let is_it = |value: &Value| matches!(value, Value::Text(text) if text == word);
        self.list(name).is_ok_and(|list| list.iter().any(is_it))
    }

    /// The sections within one of a name; none where that is not there.
    pub fn sections_of(&self, name: &str) -> impl Iterator<Item = (&str, &Section)> {
        let within = match self.get(name) {
            Some(Value::Section(section)) => section.0.as_slice(),
            _ => &[],
        };
        sections(within)
    }

    /// The first section in this one, with its name.
    pub fn into_first(self) -> Option<(String, Section)> {
        self.0.into_iter().find_map(|(name, value)| match value {
            Value::Section(section) => Some((name, section)),
            _ => None,
        })
    }

    /// The sections in this one.
    pub fn sections(&self) -> impl Iterator<Item = (&str, &Section)> {
        sections(&self.0)
    }
}

fn sections(values: &[(String, Value)]) -> impl Iterator<Item = (&str, &Section)> {
    values.iter().filter_map(|(name, value)| match value {
        Value::Section(section) => Some((name.as_str(), section)),
        _ => None,
    })
}

/// A word of the text.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Name(String),
    Quoted(String),
    Sign(u8),
}

fn unexpected(word: &Word) -> Error {
    let shown = match word {
        Word::Name(text) | Word::Quoted(text) => self::shown(text),
        Word::Sign(sign) => char::from(*sign).to_string(),
    };
    Error::damaged(format!("LVM: the metadata has `{shown}` in a place that has none"))
}

struct Words<'a> {
    rest: &'a [u8],
    /// Words that may still come.
    left: usize,
}

impl Words<'_> {
    fn next(&mut self) -> Result<Option<Word>> {
        let too_long = || Error::limit(format!("LVM: metadata of more than {WORDS_MAX} words"));
        self.left = self.left.checked_sub(1).ok_or_else(too_long)?;
        loop {
            self.rest = self.rest.trim_ascii_start();
            if self.rest.first() != Some(&b'#') {
                break;
            }
            let end = self.rest.iter().position(|&byte| byte == b'\n');
            self.rest = &self.rest[end.unwrap_or(self.rest.len())..];
        }
        let Some((&first, behind)) = self.rest.split_first() else { return Ok(None) };
        match first {
            b'{' | b'}' | b'[' | b']' | b'=' | b',' => {
                self.rest = behind;
                Ok(Some(Word::Sign(first)))
            }
            b'"' => {
                self.rest = behind;
                self.quoted().map(|text| Some(Word::Quoted(text)))
            }
            _ => {
                let is_of_name =
                    |byte: &u8| byte.is_ascii_alphanumeric() || b"._+-/".contains(byte);
                let length = self.rest.iter().position(|byte| !is_of_name(byte));
                let (name, behind) = self.rest.split_at(length.unwrap_or(self.rest.len()));
                if name.is_empty() {
                    return Err(Error::damaged("LVM: the metadata is no text of LVM"));
                }
                self.rest = behind;
                Ok(Some(Word::Name(String::from_utf8_lossy(name).into_owned())))
            }
        }
    }

    /// A text up to the quote that ends it; a backslash takes what is behind it as it is.
    fn quoted(&mut self) -> Result<String> {
        let mut text = Vec::new();
        let mut bytes = self.rest.iter().enumerate();
        while let Some((at, &byte)) = bytes.next() {
            match byte {
                b'"' => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(String::from_utf8_lossy(&text).into_owned());
                }
                b'\\' => text.extend(bytes.next().map(|(_, &byte)| byte)),
                _ => text.push(byte),
            }
        }
        Err(Error::damaged("LVM: the metadata ends within a text"))
    }

    /// Names and values up to the brace that ends them, or the end of all.
    fn section(&mut self, depth: usize) -> Result<Section> {
        if depth > DEPTH_MAX {
            return Err(Error::limit(format!(
                "LVM: more than {DEPTH_MAX} sections in one another"
            )));
        }
        let mut found = Section::default();
        loop {
            let name = match self.next()? {
                Some(Word::Name(name)) => name,
                Some(Word::Sign(b'}')) if depth > 0 => return Ok(found),
                None if depth == 0 => return Ok(found),
                None => return Err(Error::damaged("LVM: the metadata ends within a section")),
                Some(word) => return Err(unexpected(&word)),
            };
            let value = match self.next()? {
                Some(Word::Sign(b'{')) => Value::Section(self.section(depth + 1)?),
                Some(Word::Sign(b'=')) => match self.next()? {
                    Some(Word::Sign(b'[')) => Value::List(self.list()?),
                    Some(word) => plain(word)?,
                    None => return Err(lacks(&name)),
                },
                _ => return Err(lacks(&name)),
            };
            found.0.push((name, value));
        }
    }

    fn list(&mut self) -> Result<Vec<Value>> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                Some(Word::Sign(b']')) => return Ok(list),
                Some(Word::Sign(b',')) => {}
                Some(word) => list.push(plain(word)?),
                None => return Err(Error::damaged("LVM: the metadata ends within a list")),
            }
        }
    }
}

/// A number or a text; a number of another kind than ours is kept as its text.
fn plain(word: Word) -> Result<Value> {
    match word {
        Word::Quoted(text) => Ok(Value::Text(text)),
        Word::Name(text) => Ok(text.parse().map_or(Value::Text(text), Value::Number)),
        Word::Sign(_) => Err(unexpected(&word)),
    }
}

#[cfg(test)]
mod tests {
    use super::{DEPTH_MAX, Section, Value};

    #[test]
    fn texts_are_read_as_lvm_writes_them() {
        let text = b"my-vg {\n# told\nseqno = 3\nflags = []\nid = \"a\\\"b\" # end\n\
                     stripes = [\n\"pv0\", 0\n]\nlogical_volumes {\nroot.a {\nsize=-1\n}\n}\n}\n";
        let all = Section::parse(text).unwrap();
        let (name, group) = all.sections().next().unwrap();
        assert_eq!((name, group.number("seqno").unwrap()), ("my-vg", 3));
        assert_eq!(group.text("id").unwrap(), "a\"b");
        assert_eq!(group.list("flags").unwrap(), []);
        let stripes = [Value::Text("pv0".to_owned()), Value::Number(0)];
        assert_eq!(group.list("stripes").unwrap(), stripes);
        assert!(group.says("stripes", "pv0") && !group.says("flags", "pv0"));
        let (name, volume) = group.sections_of("logical_volumes").next().unwrap();
        assert_eq!((name, volume.text("size").unwrap()), ("root.a", "-1"));
        assert!(volume.number("size").is_err() && group.number("id").is_err());
    }

    #[test]
    fn texts_of_the_disk_do_nothing_in_messages() {
        let error = Section::parse(b"a = 1 \"\x1b[2J\"").unwrap_err().to_string();
        assert!(error.contains("`?[2J`"), "{error:?}");
        let many = "a = 1\n".repeat(super::WORDS_MAX);
        assert!(Section::parse(many.as_bytes()).unwrap_err().to_string().contains("words"));
    }

    #[test]
    fn what_is_no_text_of_lvm_is_refused() {
        let deep = "a {".repeat(DEPTH_MAX + 2);
        for wrong in ["a {", "a", "a =", "a = [1", "}", "a = }", "a = \"x", "\x01", "= 1", &deep] {
            assert!(Section::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
