//! The names of targets, and what they open.
//!
//! A name of a moment keeps its meaning once it was opened: initiators log in again by themselves,
//! and `-5min` would be another disk each time. So the first login resolves it, and later ones get
//! the same moment or none. A name is forgotten a day after its last session.
//!
//! *Absent yet*: the memory of names over a restart of the server; the canonical name of a moment,
//! `:at:seq:N`, means the same for ever.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use env::RankedMutex;
use units::Seq;
use wire::iscsi::{LoginStatus, names};
use wire::scsi::Identity;

use super::IscsiContext;
use super::unit::UnitId;
use crate::Attachment;
use crate::serving::{Export, attach};

/// Names that are remembered.
const NAMES_MAX: usize = 4096;
/// How long a name is remembered after its last session.
const NAME_KEPT: Duration = Duration::from_hours(24);
/// Targets named in answer to one SendTargets.
const TARGETS_MAX: usize = 10_000;

/// The names of a server's targets.
#[derive(Debug)]
pub struct Targets {
    base: String,
    pool_id: u64,
    opened: RankedMutex<BTreeMap<String, Meaning>>,
}

/// The moment that a name came to mean.
#[derive(Debug)]
struct Meaning {
    seq: Seq,
    sessions: usize,
    last_used: Instant,
}

/// A target that an initiator has open.
pub(super) struct Target {
    pub(super) export: Arc<dyn Export>,
    pub(super) attachment: Attachment,
    pub(super) identity: Identity,
    pub(super) unit: UnitId,
    pub(super) used: Option<Used>,
}

impl Target {
    /// Its iSCSI name.
    pub(super) fn name(&self) -> &str {
        &self.identity.target
    }
}

/// A name in use by a session.
pub(super) struct Used {
    context: Arc<IscsiContext>,
    name: String,
}

/// Why a target is not opened.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: LoginStatus,
    /// For people.
    pub(super) why: String,
}

impl Refusal {
    fn not_found(why: String) -> Refusal {
        Refusal { status: LoginStatus::NOT_FOUND, why }
    }
}

impl Targets {
    /// The targets of the pool with this number, which begin with `base`; without one, with a name
    /// that no other pool has.
    #[must_use]
    pub fn new(pool_id: u64, base: Option<String>) -> Targets {
        let own = || format!("iqn.2026-11.local.hindsight.{:08x}", pool_id >> 32);
        let opened = RankedMutex::default();
        Targets { base: base.unwrap_or_else(own), pool_id, opened }
    }

    /// The name of the target that is the present of a volume, if it can have one.
    #[must_use]
    pub fn name_of(&self, volume: &str) -> Option<String> {
        names::join(&self.base, volume, None)
    }

    /// The meaning of a name that was opened before.
    fn meaning(&self, name: &str) -> Option<Seq> {
        self.opened.lock().get(name).map(|meaning| meaning.seq)
    }

    /// Enters a session that opened a name; the seq that the name means, if that is another, and
    /// none if too many names are in use.
    fn enter(&self, name: &str, seq: Seq) -> Result<(), Option<Seq>> {
        let now = Instant::now();
        let mut opened = self.opened.lock();
        if !opened.contains_key(name) && opened.len() >= NAMES_MAX {
            let is_kept = |m: &Meaning| m.sessions > 0 || now - m.last_used < NAME_KEPT;
            opened.retain(|_, meaning| is_kept(meaning));
            if opened.len() >= NAMES_MAX {
                return Err(None);
            }
        }
        let fresh = Meaning { seq, sessions: 0, last_used: now };
        let meaning = opened.entry(name.to_owned()).or_insert(fresh);
        if meaning.sessions == 0 && now - meaning.last_used >= NAME_KEPT {
            meaning.seq = seq;
        }
        if meaning.seq != seq {
            return Err(Some(meaning.seq));
        }
        meaning.sessions += 1;
        Ok(())
    }

    fn leave(&self, name: &str) {
        if let Some(meaning) = self.opened.lock().get_mut(name) {
            meaning.sessions -= 1;
            meaning.last_used = Instant::now();
        }
    }

    /// The identity of a unit, which a rename, a revert or a resize does not change.
    fn identity(&self, name: &str, (volume, moment): UnitId) -> Identity {
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

/// The names of all presents.
pub(super) async fn all(context: &Arc<IscsiContext>) -> io::Result<Vec<String>> {
    let serving = Arc::clone(context);
    let listed = crate::serving::off_thread(move || serving.exports.list(TARGETS_MAX)).await?;
    // The past is opened by whoever knows its name: initiators log in to whatever is listed.
    let presents = listed.iter().filter(|listed| !listed.name.contains('@'));
    Ok(presents.filter_map(|listed| context.targets.name_of(&listed.name)).collect())
}

/// Opens a target, by its name with upper case folded, and attaches its session.
pub(super) async fn open(
    context: &Arc<IscsiContext>,
    name: &str,
    client: &str,
) -> io::Result<Result<Target, Refusal>> {
    let targets = &context.targets;
    let Some(wanted) = names::split(&targets.base, name) else {
        return Ok(Err(Refusal::not_found(format!(
            "no such target; those of this server are called {}:VOLUME",
            targets.base
        ))));
    };
    let mut meaning = targets.meaning(name);
    loop {
        let disk = match (&wanted.moment, meaning) {
            (None, _) => wanted.volume.clone(),
            (Some(_), Some(seq)) => format!("{}@seq:{}", wanted.volume, seq.0),
            (Some(moment), None) => format!("{}@{moment}", wanted.volume),
        };
        let (export, attachment) = match attach(context, &disk, client).await? {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(Refusal::not_found(error.0))),
        };
        let mut used = None;
        if wanted.moment.is_some() {
            let Some(seq) = export.moment() else {
                return Ok(Err(Refusal::not_found("that is no moment of the past".to_owned())));
            };
            match targets.enter(name, seq) {
                Ok(()) => {
                    used = Some(Used { context: Arc::clone(context), name: name.to_owned() });
                }
                // Another login gave it its meaning meanwhile.
                Err(Some(other)) => {
                    meaning = Some(other);
                    continue;
                }
                Err(None) => {
                    let why = "too many names of moments are in use".to_owned();
                    let status = LoginStatus::OUT_OF_RESOURCES;
                    return Ok(Err(Refusal { status, why }));
                }
            }
        }
        let unit = (export.part_of().0, export.moment());
        let identity = targets.identity(name, unit);
        return Ok(Ok(Target { export, attachment, identity, unit, used }));
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        self.context.targets.leave(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use units::Seq;

    use super::Targets;

    #[test]
    fn a_name_keeps_its_meaning_and_units_differ() {
        let targets = Targets::new(0x1234_5678_9abc_def0, None);
        let name = targets.name_of("Pg_data").expect("a name");
        assert_eq!(name, "iqn.2026-11.local.hindsight.12345678::1pg:0data");
        assert_eq!(targets.enter("past", Seq(5)), Ok(()));
        targets.leave("past");
        assert_eq!(targets.enter("past", Seq(6)), Err(Some(Seq(5))));
        assert_eq!(targets.meaning("past"), Some(Seq(5)));
        let identities = [(1, None), (2, None), (1, Some(Seq(5))), (1, Some(Seq(6)))]
            .map(|unit| targets.identity(&name, unit));
        for (index, one) in identities.iter().enumerate() {
            for other in &identities[..index] {
                assert_ne!((one.naa_bytes(), &one.serial), (other.naa_bytes(), &other.serial));
            }
        }
    }
}
