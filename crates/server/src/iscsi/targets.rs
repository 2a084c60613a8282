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
use volume::Access;
use wire::iscsi::{LoginStatus, names};
use wire::scsi::Identity;

use super::IscsiContext;
use super::sessions::Opened;
use super::unit::UnitId;
use crate::serving::{Export, OpenError, attach, off_thread};
use crate::{Attachment, VolumeId};

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

/// The moment that a name came to mean: of which volume, for another may get its name.
type Moment = (VolumeId, Seq);

#[derive(Debug)]
struct Meaning {
    moment: Moment,
    sessions: usize,
    last_used: Instant,
}

/// A target that an initiator has open.
pub(super) struct Target {
    pub(super) export: Arc<dyn Export>,
    pub(super) attachment: Attachment,
    pub(super) identity: Identity,
    /// The disk that it is, and as of which revert.
    pub(super) opened: Opened,
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

impl From<OpenError> for Refusal {
    fn from(error: OpenError) -> Refusal {
        // Initiators take "not found" as final, and try again whatever may pass.
        let status = match error.may_pass {
            true => LoginStatus::SERVICE_UNAVAILABLE,
            false => LoginStatus::NOT_FOUND,
        };
        Refusal { status, why: error.message }
    }
}

impl Refusal {
    fn not_found(why: String) -> Refusal {
        Refusal { status: LoginStatus::NOT_FOUND, why }
    }
}

impl Meaning {
    fn is_kept(&self, now: Instant) -> bool {
        self.sessions > 0 || now - self.last_used < NAME_KEPT
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

    /// The meaning of a name that was opened before, and not too long ago.
    fn meaning(&self, name: &str) -> Option<Moment> {
        let now = Instant::now();
        let opened = self.opened.lock();
        opened.get(name).filter(|meaning| meaning.is_kept(now)).map(|meaning| meaning.moment)
    }

    /// Enters a session that opened a name; false if the name means something else, or too many
    /// names are in use.
    fn enter(&self, name: &str, moment: Moment) -> bool {
        let now = Instant::now();
        let mut opened = self.opened.lock();
        if opened.get(name).is_some_and(|meaning| !meaning.is_kept(now)) {
            opened.remove(name);
        }
        if !opened.contains_key(name) && opened.len() >= NAMES_MAX && !forget_oldest(&mut opened) {
            return false;
        }
        let fresh = Meaning { moment, sessions: 0, last_used: now };
        let meaning = opened.entry(name.to_owned()).or_insert(fresh);
        let is_same = meaning.moment == moment;
        meaning.sessions += usize::from(is_same);
        is_same
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

/// Forgets the name that was not in use for longest; false if all are in use.
fn forget_oldest(opened: &mut BTreeMap<String, Meaning>) -> bool {
    let unused = opened.iter().filter(|(_, meaning)| meaning.sessions == 0);
    let Some((oldest, _)) = unused.min_by_key(|(_, meaning)| meaning.last_used) else {
        return false;
    };
    let oldest = oldest.clone();
    tracing::warn!(name = oldest, "forgotten: more names of moments are in use than are kept");
    opened.remove(&oldest).is_some()
}

/// A number that other bytes hardly have (FNV-1a).
fn mixed(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The names of all presents, and who may log in to them. The past is opened by whoever knows its
/// name: initiators log in to whatever is listed.
pub(super) async fn all(context: &Arc<IscsiContext>) -> io::Result<Vec<(String, Access)>> {
    let context = Arc::clone(context);
    let all = move || {
        let presents = context.exports.presents();
        let named = presents
            .iter()
            .filter_map(|export| Some((context.targets.name_of(export.name())?, export.access())));
        named.take(TARGETS_MAX).collect()
    };
    off_thread(all).await
}

/// The access to the target of a name, present or past; everybody has it if there is none.
pub(super) async fn access(context: &Arc<IscsiContext>, name: &str) -> io::Result<Access> {
    let Some(wanted) = names::split(&context.targets.base, name) else {
        return Ok(Access::default());
    };
    let context = Arc::clone(context);
    let present = move || context.exports.open(&wanted.volume);
    Ok(off_thread(present).await?.map_or_else(|_| Access::default(), |export| export.access()))
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
    let Some(moment) = &wanted.moment else {
        return Ok(match attach(context, &wanted.volume, client).await? {
            Ok(opened) => Ok(target(targets, name, opened, None)),
            Err(error) => Err(error.into()),
        });
    };
    let meaning = targets.meaning(name);
    let disk = match meaning {
        Some((_, seq)) => format!("{}@seq:{}", wanted.volume, seq.0),
        None => format!("{}@{moment}", wanted.volume),
    };
    let opened = match attach(context, &disk, client).await? {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error.into())),
    };
    let Some(seq) = opened.0.moment() else {
        return Ok(Err(Refusal::not_found("that is no moment of the past".to_owned())));
    };
    let found = (opened.0.part_of().0, seq);
    // The nearest moment that is there is another disk.
    let said = moment.strip_prefix("seq:").map(|text| text.parse() == Ok(seq.0));
    if meaning.is_some_and(|meaning| meaning != found) || said == Some(false) {
        let why = "the moment that this name means can no longer be opened".to_owned();
        return Ok(Err(Refusal::not_found(why)));
    }
    // A name that says its moment needs no memory.
    if said.is_some() {
        return Ok(Ok(target(targets, name, opened, None)));
    }
    if !targets.enter(name, found) {
        // Another login gave it its meaning meanwhile, or there are too many: it is tried again.
        let why = "the name is being opened, or too many names of moments are in use".to_owned();
        return Ok(Err(Refusal { status: LoginStatus::OUT_OF_RESOURCES, why }));
    }
    let used = Some(Used { context: Arc::clone(context), name: name.to_owned() });
    Ok(Ok(target(targets, name, opened, used)))
}

fn target(
    targets: &Targets,
    name: &str,
    (export, attachment): (Arc<dyn Export>, Attachment),
    used: Option<Used>,
) -> Target {
    let unit = (export.part_of().0, export.moment());
    let identity = targets.identity(name, unit);
    // Nobody reverts it while it is attached.
    let opened = (unit, export.last_rewrite());
    Target { export, attachment, identity, opened, used }
}

impl Drop for Used {
    fn drop(&mut self) {
        self.context.targets.leave(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use units::Seq;

    use super::{NAME_KEPT, NAMES_MAX, Targets};

    #[test]
    fn a_name_that_is_not_in_use_gives_way_to_another() {
        let targets = Targets::new(1, None);
        for number in 0..NAMES_MAX as u64 {
            assert!(targets.enter(&number.to_string(), (1, Seq(number))));
            if number == 7 || number == 9 {
                targets.leave(&number.to_string());
            }
        }
        assert!(targets.enter("another", (1, Seq(1))));
        assert_eq!(targets.meaning("7"), None);
        assert!(targets.meaning("9").is_some() && targets.meaning("8").is_some());
        assert!(targets.enter("one more", (1, Seq(1))) && !targets.enter("too many", (1, Seq(1))));
    }

    #[test]
    fn a_name_keeps_its_meaning_and_units_differ() {
        let targets = Targets::new(0x1234_5678_9abc_def0, None);
        let name = targets.name_of("Pg_data").expect("a name");
        assert_eq!(name, "iqn.2026-11.local.hindsight.12345678::1pg:0data");
        assert!(targets.enter("past", (1, Seq(5))));
        targets.leave("past");
        assert!(!targets.enter("past", (1, Seq(6))) && !targets.enter("past", (2, Seq(5))));
        assert_eq!(targets.meaning("past"), Some((1, Seq(5))));
        // It was not in use for longer than names are kept.
        let long_ago = Instant::now().checked_sub(NAME_KEPT).expect("a machine that ran so long");
        targets.opened.lock().get_mut("past").expect("known").last_used = long_ago;
        assert_eq!(targets.meaning("past"), None);
        assert!(targets.enter("past", (2, Seq(6))));
        let identities = [(1, None), (2, None), (1, Some(Seq(5))), (1, Some(Seq(6)))]
            .map(|unit| targets.identity(&name, unit));
        for (index, one) in identities.iter().enumerate() {
            for other in &identities[..index] {
                assert_ne!((one.naa_bytes(), &one.serial), (other.naa_bytes(), &other.serial));
            }
        }
    }
}
