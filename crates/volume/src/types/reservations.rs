//! Persistent reservations of a volume, as initiators asked to have them kept: in its record, so
//! that they outlive the server. The engine keeps them and knows no protocol: front ends go by
//! them.

use serde::{Deserialize, Serialize};

/// The ports that are registered with a volume, and the reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservations {
    /// Those that are registered, by port.
    pub registrations: Vec<Registration>,
    /// The reservation, if it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Reservation>,
}

/// A port of an initiator: its name, and its part of the session's identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitiatorPort {
    /// The initiator's name.
    pub initiator: String,
    /// ISID.
    pub isid: [u8; 6],
}

/// A port that is registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// The port.
    pub port: InitiatorPort,
    /// Its key.
    pub key: u64,
    /// It was made through all ports of the target.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_ports: bool,
}

/// A reservation that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    /// The port that asked for it.
    pub port: InitiatorPort,
    /// The use that it leaves to others.
    pub kind: ReservationKind,
}

/// The uses of a volume that a reservation leaves to others than its holder (SPC-4 5.12.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationKind {
    /// Others read.
    WriteExclusive,
    /// Others neither read nor write.
    ExclusiveAccess,
    /// Those that are registered read and write, others read.
    WriteExclusiveRegistrants,
    /// Those that are registered read and write, others neither.
    ExclusiveAccessRegistrants,
    /// As `WriteExclusiveRegistrants`, and all that are registered hold it.
    WriteExclusiveAll,
    /// As `ExclusiveAccessRegistrants`, and all that are registered hold it.
    ExclusiveAccessAll,
}

units::names!(ReservationKind:
    WriteExclusive "write-exclusive",
    ExclusiveAccess "exclusive-access",
    WriteExclusiveRegistrants "write-exclusive-registrants",
    ExclusiveAccessRegistrants "exclusive-access-registrants",
    WriteExclusiveAll "write-exclusive-all",
    ExclusiveAccessAll "exclusive-access-all"
);

impl Reservations {
    /// Whether nobody is registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.registrations.is_empty()
    }

    /// Whether a port is registered.
    pub(crate) fn has(&self, port: &InitiatorPort) -> bool {
        self.registrations.iter().any(|it| it.port == *port)
    }

    /// For the audit log.
    pub(crate) fn told(&self) -> String {
        if self.is_empty() {
            return "no longer kept over restarts; changed".to_owned();
        }
        let held = self.held.as_ref().map_or_else(String::new, |held| {
            format!(", {} of {}", held.kind.name(), held.port.initiator)
        });
        format!("{} registered, kept over restarts{held}; changed", self.registrations.len())
    }
}
