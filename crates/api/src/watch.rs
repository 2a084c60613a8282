//! Watches over volumes, and their alarms.

use std::fmt;

use serde::{Deserialize, Serialize};
use units::Sensitivity;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::Time;

/// How soon a watch gives an alarm, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SensitivityName(pub Sensitivity);

impl fmt::Display for SensitivityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialSchema for SensitivityName {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .description(Some("How soon a watch gives an alarm."))
            .enum_values(Some(Sensitivity::ALL.map(Sensitivity::name)))
            .into()
    }
}

impl ToSchema for SensitivityName {}

/// A watch to be set.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetWatch {
    /// How soon it gives an alarm.
    pub sensitivity: SensitivityName,
}

/// The watch over a volume. Its figures are estimated by a sample.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Watch {
    /// How soon it gives an alarm.
    pub sensitivity: SensitivityName,
    /// When it last looked what was written over since the look before; not there until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked: Option<Time>,
    /// Bytes of data that were written over then.
    pub written_over_bytes: u64,
    /// Of these those that look random, and did not.
    pub scrambled_bytes: u64,
    /// Of these those that are zeros now.
    pub wiped_bytes: u64,
    /// Its alarms, the last first: at most 16, the first of all and the newest.
    pub alarms: Vec<WatchAlarm>,
}

/// An alarm: much data was written over in a short time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WatchAlarm {
    /// When it was given.
    pub given: Time,
    /// `scrambled`: with what looks random, as encryption does; `wiped`: with zeros, or trimmed.
    pub kind: String,
    /// How much of that there was by then.
    pub bytes: u64,
    /// The mark at the moment before that began.
    pub mark: String,
    /// That moment.
    pub seq: u64,
    /// Its time.
    pub time: Time,
    /// Whether the mark is there, and holds the moment: it is deleted after a week.
    pub held: bool,
}
