//! The names of a server's targets.

use tokio::sync::watch;
use wire::iscsi::names;
use wire::scsi::Identity;

use super::opened_names::OpenedNames;
use super::unit::UnitId;

/// The names of a server's targets.
#[derive(Debug)]
pub struct Targets {
    pub(super) base: String,
    pub(super) pool_id: u64,
    pub(crate) opened: OpenedNames,
    /// Made targets have changed.
    pub(super) changed: watch::Sender<()>,
}

impl Targets {
    /// The targets of the pool with this number, which begin with `base`; without one, with a name
    /// that no other pool has.
    #[must_use]
    pub fn new(pool_id: u64, base: Option<String>) -> Targets {
        let own = || format!("iqn.2026-11.local.hindsight.{:08x}", pool_id >> 32);
        let opened = OpenedNames::default();
        let changed = watch::Sender::new(());
        Targets { base: base.unwrap_or_else(own), pool_id, opened, changed }
    }

    /// Has sessions look at the units of made targets anew.
    pub(crate) fn tell_of_change(&self) {
        self.changed.send_replace(());
    }

    /// The identity of a number that has no unit, which has nothing of its own.
    pub(super) fn absent(&self, name: &str) -> Identity {
        self.identity(name, (0, None))
    }

    /// The name of the target that is the present of a volume, if it can have one.
    #[must_use]
    pub fn name_of(&self, volume: &str) -> Option<String> {
        names::join(&self.base, volume, None)
    }

    /// The identity of a unit, which a rename, a revert or a resize does not change.
    pub(super) fn identity(&self, name: &str, (volume, moment): UnitId) -> Identity {
        let mut serial = format!("{:016x}{volume:08x}", self.pool_id);
        if let Some(seq) = moment {
            serial.push_str(&format!("-{:x}", seq.0));
        }
        Identity {
            vendor: "HNDSIGHT".to_owned(),
            product: if moment.is_some() { "PAST" } else { "VOLUME" }.to_owned(),
            revision: env!("CARGO_PKG_VERSION").chars().take(4).collect(),
            naa: mixed(serial.as_bytes()),
            serial,
            target: name.to_owned(),
            port: 1,
            port_group: 1,
        }
    }
}

/// A number that other bytes hardly have (FNV-1a).
fn mixed(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
