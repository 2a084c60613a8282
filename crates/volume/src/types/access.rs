//! The access to a volume over iSCSI: kept in its record, so that it goes with the volume through
//! renames, the trash, clones and restarts. The engine keeps it and knows no protocol: front ends
//! go by it.
//!
//! Invariants
//! 1. A secret is in the catalogue and in memory; nothing prints it, neither log nor audit record.
//! 2. No secret proves both sides: who is challenged with the challenge of another connection has
//!    no answer that anybody would take (RFC 7143 section 12.1.4).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Names of initiators that one volume allows.
const ALLOWED_MAX: usize = 256;
/// Bytes of a name of an initiator or a user.
const NAME_BYTES_MAX: usize = 223;
/// Bytes of a secret: 96 bits are the least (RFC 7143), and Windows takes no more than 16 bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 12..=16;

/// A secret, which is not printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

/// A name and the secret that proves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The name.
    pub user: String,
    /// The secret.
    pub secret: Secret,
}

/// The initiators that may log in to a volume and its past.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// The proof that initiators give (CHAP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<Credential>,
    /// The proof that they are given, if they ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual: Option<Credential>,
    /// The names of initiators that may; none are all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
}

/// The request for another access; `None` leaves it as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessChange {
    /// The proof of initiators; `Some(None)` asks for none any more.
    pub chap: Option<Option<Credential>>,
    /// The proof that they are given.
    pub mutual: Option<Option<Credential>>,
    /// The initiators.
    pub allow: Option<Vec<String>>,
}

impl Secret {
    /// A secret of these characters.
    ///
    /// # Errors
    /// `Invalid` if it is too short, too long, or holds what clients could not be told.
    pub fn new(text: String) -> Result<Secret> {
        if !SECRET_BYTES.contains(&text.len()) {
            let what = format!("a secret of {} bytes", text.len());
            return Err(Error::invalid(what).with_hint("12 to 16 characters"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            let what = "a secret holds letters, digits and signs of ASCII, and no blanks";
            return Err(Error::invalid(what));
        }
        Ok(Secret(text))
    }

    /// Its bytes, for digests.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Access {
    /// Whether everybody may.
    #[must_use]
    pub fn is_open(&self) -> bool {
        *self == Access::default()
    }

    /// Whether an initiator of this name may, as far as its name goes.
    #[must_use]
    pub fn allows(&self, initiator: &str) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|allowed| allowed == initiator)
    }

    /// Whether it asks for a proof where another does, and allows no name that the other does not.
    /// Which proof is not compared.
    pub(crate) fn is_as_closed_as(&self, other: &Access) -> bool {
        let is_within = other.allow.is_empty()
            || !self.allow.is_empty() && self.allow.iter().all(|name| other.allows(name));
        (self.chap.is_some() || other.chap.is_none()) && is_within
    }

    pub(crate) fn changed(&self, change: &AccessChange) -> Access {
        let mut access = self.clone();
        access.chap = change.chap.clone().unwrap_or(access.chap);
        access.mutual = change.mutual.clone().unwrap_or(access.mutual);
        access.allow = change.allow.clone().unwrap_or(access.allow);
        access.allow.sort();
        access.allow.dedup();
        access
    }

    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |what: &str, hint: &str| Err(Error::invalid(what).with_hint(hint));
        if self.mutual.is_some() && self.chap.is_none() {
            return wrong("a target proves itself only to who does", "give a CHAP user as well");
        }
        let is_name = |name: &str| {
            (1..=NAME_BYTES_MAX).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let users = [&self.chap, &self.mutual].into_iter().flatten().map(|one| &one.user);
        if users.clone().any(|name| name == "none") {
            return wrong("no user is called `none`", "that means that nothing is to be proved");
        }
        if !users.chain(&self.allow).all(|name| is_name(name)) {
            return wrong("that is no name", "1 to 223 characters of ASCII, without blanks");
        }
        if self.allow.len() > ALLOWED_MAX {
            return wrong("too many initiators", "256 at most; none are all");
        }
        Ok(())
    }

    /// Whether a secret proves one side here and the other there.
    pub(crate) fn reflects(&self, other: &Access) -> bool {
        let both = self.chap.as_ref().zip(other.mutual.as_ref());
        both.is_some_and(|(own, others)| own.secret == others.secret)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = |one: &Option<Credential>| {
            one.as_ref().map_or_else(|| "none".to_owned(), |one| one.user.clone())
        };
        let allow = match self.allow.is_empty() {
            true => "all".to_owned(),
            false => self.allow.join(" "),
        };
        write!(f, "CHAP {}, mutual {}, allowed {allow}", user(&self.chap), user(&self.mutual))
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, Credential, Secret};

    fn credential(user: &str, secret: &str) -> Credential {
        Credential { user: user.to_owned(), secret: Secret::new(secret.to_owned()).expect("fits") }
    }

    #[test]
    fn a_secret_fits_every_initiator_and_is_not_printed() {
        for text in ["elevenchars", "seventeencharactr", "with a blank!", "not \u{e4}scii...", ""] {
            assert!(Secret::new(text.to_owned()).is_err(), "{text}");
        }
        let access = Access {
            chap: Some(credential("me", "twelvechars1")),
            mutual: Some(credential("store", "sixteencharacter")),
            allow: vec!["iqn.a".to_owned()],
        };
        let told = format!("{access} {access:?}");
        assert!(!told.contains("twelve") && !told.contains("sixteen"), "{told}");
        assert_eq!(access.to_string(), "CHAP me, mutual store, allowed iqn.a");
        assert!(access.allows("iqn.a") && !access.allows("iqn.ab"));
        assert!(Access::default().allows("iqn.a"));
        let kept = serde_json::to_string(&access).expect("it can be kept");
        assert_eq!(serde_json::from_str::<Access>(&kept).expect("it can be read"), access);
    }
}
