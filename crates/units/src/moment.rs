//! Moment expressions: what stands behind the `@` of `VOLUME@MOMENT`.
//!
//! The forms are those of the interface contract; local times, which only the CLI takes, are in
//! `local`.

use std::fmt;
use std::str::FromStr;

use crate::malformed::{Malformed, shorten};
use crate::{MarkName, Seq, Span, TimeZone, VolumeName, WallTime};

/// A moment as a user names it; a volume resolves it to a seq.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The present.
    Latest,
    /// An instant.
    At(WallTime),
    /// That long ago.
    Ago(Span),
    /// The state after the write with this number.
    Seq(Seq),
    /// A captured version by number.
    Version(u64),
    /// A mark by name.
    Mark(String),
}

/// A volume at a moment: `NAME` or `NAME@MOMENT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeMoment {
    /// Name of the volume.
    pub volume: String,
    /// Its moment; the present where none was given.
    pub moment: Moment,
}

const FORMS_HINT: &str =
    "use latest, 2026-11-21T10:00:00Z, -5min, seq:12345, v:3, mark:NAME or the NAME of a mark";

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Latest => f.write_str("latest"),
            Moment::At(time) => time.fmt(f),
            Moment::Ago(span) => write!(f, "-{span}"),
            Moment::Seq(seq) => write!(f, "seq:{seq}"),
            Moment::Version(number) => write!(f, "v:{number}"),
            Moment::Mark(name) => write!(f, "mark:{name}"),
        }
    }
}

impl FromStr for Moment {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Moment, Malformed> {
        Moment::form(text).or_else(|error| Moment::bare_mark(text).ok_or(error))
    }
}

impl Moment {
    /// A text that has no other form names a mark, if it can: one that begins with a letter, as
    /// times do not, and is no word that commands take for a time.
    pub(crate) fn bare_mark(text: &str) -> Option<Moment> {
        let is_time = matches!(text, "now" | "today" | "yesterday" | "tomorrow" | "ago");
        let is_name = text.starts_with(|c: char| c.is_ascii_alphabetic());
        let is_mark = is_name && !is_time && MarkName::check(text).is_ok();
        is_mark.then(|| Moment::Mark(text.to_owned()))
    }

    /// A moment in one of its own forms, which no mark's name is.
    pub(crate) fn form(text: &str) -> Result<Moment, Malformed> {
        if text == "latest" {
            return Ok(Moment::Latest);
        }
        if let Some(span) = text.strip_prefix('-') {
            return Ok(Moment::Ago(span.parse::<Span>()?));
        }
        match text.split_once(':') {
            Some(("seq", number)) => {
                let seq = Seq(whole_number("seq", number)?);
                if seq > Seq::MAX {
                    let message = format!("seq:{seq} is beyond the largest seq, {}", Seq::MAX);
                    return Err(Malformed { message, hint: None });
                }
                Ok(Moment::Seq(seq))
            }
            Some(("v", number)) => Ok(Moment::Version(whole_number("version", number)?)),
            Some(("mark", name)) => {
                MarkName::check(name)?;
                Ok(Moment::Mark(name.to_owned()))
            }
            _ => instant(text),
        }
    }
}

fn instant(text: &str) -> Result<Moment, Malformed> {
    // Times beyond the years that can be told apart lie outside every window too.
    match WallTime::nearest(text) {
        Ok(time) => Ok(Moment::At(time)),
        Err(_) if text.is_empty() => Err(Malformed::new("the moment is empty", FORMS_HINT)),
        // A text that begins like a date was meant as one: the reason helps more than the list of
        // forms.
        Err(e) if text.bytes().take_while(u8::is_ascii_digit).count() == 4 => {
            Err(Malformed::new(e.to_string(), "times need an offset: Z, or one such as +01:00"))
        }
        Err(_) => Err(Malformed::new(format!("`{}` is not a moment", shorten(text)), FORMS_HINT)),
    }
}

fn whole_number(what: &str, text: &str) -> Result<u64, Malformed> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or_else(|| {
        let message = format!("`{}` is not the number of a {what}", shorten(text));
        Malformed::new(message, FORMS_HINT)
    })
}

impl VolumeMoment {
    /// The same as `FromStr`, and also takes local times ([`Moment::parse_local`]); the second
    /// value says what was made of the moment.
    ///
    /// # Errors
    /// When the name or the moment cannot be read.
    pub fn parse_local(
        text: &str,
        now: WallTime,
        zone: &TimeZone,
    ) -> Result<(VolumeMoment, String), Malformed> {
        let (volume, moment) = split(text)?;
        let Some(moment) = moment else {
            return Ok((VolumeMoment { volume, moment: Moment::Latest }, "latest".into()));
        };
        let reading = Moment::parse_local(moment, now, zone)?;
        Ok((VolumeMoment { volume, moment: reading.moment }, reading.text))
    }
}

fn split(text: &str) -> Result<(String, Option<&str>), Malformed> {
    let (volume, moment) = match text.split_once('@') {
        Some((volume, moment)) => (volume, Some(moment)),
        None => (text, None),
    };
    VolumeName::check(volume)?;
    Ok((volume.to_owned(), moment))
}

impl FromStr for VolumeMoment {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<VolumeMoment, Malformed> {
        let (volume, moment) = split(text)?;
        let moment = moment.map_or(Ok(Moment::Latest), str::parse)?;
        Ok(VolumeMoment { volume, moment })
    }
}

impl fmt::Display for VolumeMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.moment {
            Moment::Latest => f.write_str(&self.volume),
            moment => write!(f, "{}@{moment}", self.volume),
        }
    }
}
