//! The error of a text that cannot be read.

/// Why a text, or a number, is not what it was to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Malformed {
    /// The fault.
    pub message: String,
    /// The remedy.
    pub hint: Option<String>,
}

impl Malformed {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Malformed {
        Malformed { message: message.into(), hint: Some(hint.into()) }
    }

    /// The fault and the remedy, for where there is one line only.
    #[must_use]
    pub fn in_one_line(self) -> String {
        match self.hint {
            Some(hint) => format!("{} ({hint})", self.message),
            None => self.message,
        }
    }
}

/// The first characters of a text, for messages.
pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Serialises what is read from a text as that text.
macro_rules! as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let wrong = |e: Malformed| serde::de::Error::custom(e.in_one_line());
                String::deserialize(from)?.parse().map_err(wrong)
            }
        }
    };
}
pub(crate) use as_text;
