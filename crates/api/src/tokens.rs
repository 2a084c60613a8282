//! Tokens: callers with a name, a role, and patterns of the volumes that they see.

use std::fmt;

use serde::{Deserialize, Serialize};
use units::{NamePattern, Role};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::{SpanInput, Time};

/// A role, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RoleName(pub Role);

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialSchema for RoleName {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .description(Some("What a caller may."))
            .enum_values(Some(Role::ALL.map(Role::name)))
            .into()
    }
}

impl ToSchema for RoleName {}

/// A pattern of names of volumes: `*` stands for any characters, `?` for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(pub NamePattern);

impl Serialize for Pattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Pattern, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Pattern).map_err(serde::de::Error::custom)
    }
}

impl PartialSchema for Pattern {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .description(Some("`*` stands for any characters of a name, `?` for one."))
            .pattern(Some("^[A-Za-z0-9._*?-]{1,128}$"))
            .into()
    }
}

impl ToSchema for Pattern {}

/// A caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Who {
    /// As the audit log names it.
    pub name: String,
    /// Its role.
    pub role: RoleName,
    /// Patterns of the volumes that it sees; none are all.
    pub volumes: Vec<String>,
}

/// A token. Its secret is kept by nobody but its owner; that for CHAP by the pool too.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessToken {
    /// Its name.
    pub name: String,
    /// Its beginning, which may be shown.
    #[schema(example = "hs1_abcdefghij")]
    pub prefix: String,
    /// Its role.
    pub role: RoleName,
    /// Patterns of the volumes that it sees; none are all.
    pub volumes: Vec<String>,
    /// When it was made.
    pub created: Time,
    /// Its maker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
    /// When it is no longer good, by the server's clock; without it it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Time>,
    /// Whether that was so when this was told.
    #[serde(default)]
    pub expired: bool,
    /// The day of its last use; not there before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Time>,
    /// The token itself: in the answer to the call that made it, and never again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Whether it logs in over iSCSI, with its name as the user of CHAP.
    #[serde(default)]
    pub chap: bool,
    /// The secret of that: in the answer to the call that made it, and never again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap_secret: Option<String>,
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A token to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: RoleName,
    /// Patterns of the volumes that it sees; none are all. 64 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Pattern>,
    /// How long it is good; for ever if that is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<SpanInput>,
    /// Whether it gets a secret for CHAP too, by which it logs in over iSCSI.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chap: bool,
}

/// A code to make: it lets somebody in once, within a minute, as a token that is made then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateCode {
    /// The token's role.
    pub role: RoleName,
    /// Patterns of the volumes that it sees; none are all. 64 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Pattern>,
    /// How long the token is good; 12 hours if that is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<SpanInput>,
}

/// A code that was made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginCode {
    /// The code.
    pub code: String,
    /// When it is no longer good.
    pub expires: Time,
}

impl fmt::Debug for LoginCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginCode").finish_non_exhaustive()
    }
}

/// A login by a code.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The code of `POST /codes`.
    pub code: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").finish_non_exhaustive()
    }
}
