//! Made iSCSI targets: several volumes, or moments of them, as units with numbers. The engine keeps
//! them and knows no protocol: front ends go by it.
//!
//! Invariants
//! 1. A number that a target has once given to a unit is never another unit's in that target.
//! 2. Volumes are known by number; one that is not served leaves a number without a unit.
//! 3. No target has the name of a volume that is served.
//! 4. A target is not opener than its volumes, also those in the trash.
//! 5. Targets in memory change under the pool's books, as the catalogue does.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use units::{Moment, Seq, WallTime};

use crate::catalogue::transaction::Transaction;
use crate::catalogue::{TargetRecord, UnitRecord, tables};
use crate::names::check_name;
use crate::past::groups::GroupMoment;
use crate::pool::volumes::Volumes;
use crate::retention::groups::Groups;
use crate::types::{Access, AccessChange};
use crate::volume::Volume;
use crate::{Error, Result};

/// Units of a target at once.
const UNITS_MAX: usize = 256;
/// The greatest number: flat addresses have 14 bits.
const NUMBER_MAX: u16 = (1 << 14) - 1;

/// A made target as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetInfo {
    /// Its number, which no other target ever has.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created: WallTime,
    /// Its units, ascending by number.
    pub units: Vec<UnitInfo>,
    /// Numbers of units that were taken out.
    pub retired: Vec<u16>,
    /// The access to it.
    pub access: Access,
}

/// A unit of a made target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitInfo {
    /// Its number.
    pub number: u16,
    /// The volume's number.
    pub volume_id: u64,
    /// The volume's name; none while it is not served.
    pub volume: Option<String>,
    /// The moment; none is the present.
    pub seq: Option<Seq>,
}

/// A unit that a target is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitSpec {
    /// Its number.
    pub number: u16,
    /// The volume's name.
    pub volume: String,
    /// The moment; none is the present.
    pub moment: Option<Moment>,
}

/// The units of a new target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitsSpec {
    /// These.
    Each(Vec<UnitSpec>),
    /// The volumes of a group, in the order of their names, now or at a moment of the group.
    Group(String, Option<GroupMoment>),
}

/// The request for a change; what is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetChange {
    /// The access to it.
    pub access: AccessChange,
    /// Units to add.
    pub add: Vec<UnitSpec>,
    /// Numbers of units to take out, for good.
    pub remove: Vec<u16>,
}

fn invalid(text: impl Into<String>, hint: &str) -> Error {
    Error::invalid(text).with_hint(hint)
}

fn no_target(name: &str) -> Error {
    Error::not_found(format!("there is no made target {name}"))
        .with_hint("`hindsight target list` names them")
}

/// The records of the catalogue by name.
fn named(records: Vec<TargetRecord>) -> Result<BTreeMap<String, TargetRecord>> {
    let mut all = BTreeMap::new();
    for record in records {
        record.check()?;
        if let Some(other) = all.insert(record.name.clone(), record) {
            return Err(Error::corrupt(format!(
                "two targets have the name of target {}",
                other.id
            )));
        }
    }
    Ok(all)
}

impl TargetRecord {
    /// Adds a unit.
    fn add(&mut self, unit: UnitRecord) -> Result<()> {
        let number = unit.number;
        if number > NUMBER_MAX {
            return Err(invalid(format!("{number} is no number of a unit"), "0 to 16383"));
        }
        if self.retired.contains(&number) {
            let text = format!("number {number} of {} was another unit", self.name);
            return Err(invalid(text, "a number is never given again: take the next one"));
        }
        if self.units.iter().any(|other| other.number == number) {
            return Err(invalid(format!("{number} is a unit of {} already", self.name), "another"));
        }
        let is_same = |other: &&UnitRecord| (other.volume, other.seq) == (unit.volume, unit.seq);
        if let Some(same) = self.units.iter().find(is_same) {
            let text = format!("unit {number} would be the same disk as unit {}", same.number);
            return Err(invalid(text, "one number is enough"));
        }
        if self.units.len() >= UNITS_MAX {
            let text = format!("{} has {UNITS_MAX} units already", self.name);
            return Err(invalid(text, "make another target"));
        }
        self.units.push(unit);
        self.units.sort_by_key(|unit| unit.number);
        Ok(())
    }

    /// Fails where a record of the catalogue is none that was ever written.
    fn check(&self) -> Result<()> {
        let numbers = || self.units.iter().map(|unit| &unit.number).chain(&self.retired);
        let once: BTreeSet<u16> = numbers().copied().collect();
        let is_sound = self.units.len() <= UNITS_MAX
            && self.units.is_sorted_by_key(|unit| unit.number)
            && once.len() == numbers().count()
            && once.last().is_none_or(|&last| last <= NUMBER_MAX);
        match is_sound {
            true => Ok(()),
            false => Err(Error::corrupt(format!("the units of target {} are wrong", self.id))),
        }
    }

    /// Takes a unit out, for good.
    fn remove(&mut self, number: u16) -> Result<()> {
        let Some(at) = self.units.iter().position(|unit| unit.number == number) else {
            return Err(Error::not_found(format!("{} has no unit {number}", self.name)));
        };
        self.units.remove(at);
        self.retired.push(number);
        self.retired.sort_unstable();
        Ok(())
    }
}

impl Volumes {
    /// All made targets, by name.
    #[must_use]
    pub fn targets(&self) -> Vec<TargetInfo> {
        let records: Vec<TargetRecord> = self.targets.lock().values().cloned().collect();
        records.into_iter().map(|record| self.target_info(record)).collect()
    }

    /// At most `limit` of what is an iSCSI target, behind a name: volumes and made targets by name,
    /// and who may log in.
    #[must_use]
    pub fn targets_after(&self, name: &str, limit: usize) -> Vec<(String, Access)> {
        let volumes = self.registry.served_after(name, limit, |volume| volume.share().is_none());
        let told = |volume: &Arc<Volume>| (volume.name().to_owned(), volume.access());
        let mut all: Vec<(String, Access)> = volumes.iter().map(told).collect();
        let made = self.targets.lock();
        let behind = made.range::<str, _>((Bound::Excluded(name), Bound::Unbounded)).take(limit);
        all.extend(behind.map(|(name, made)| (name.clone(), made.access.clone())));
        drop(made);
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all.truncate(limit);
        all
    }

    /// A made target.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn target(&self, name: &str) -> Result<TargetInfo> {
        self.target_record(name).map(|record| self.target_info(record))
    }

    /// The volume of this number that is served.
    #[must_use]
    pub fn volume_by_id(&self, id: u64) -> Option<Arc<Volume>> {
        self.registry.by_id(id)
    }

    fn target_record(&self, name: &str) -> Result<TargetRecord> {
        self.targets.lock().get(name).cloned().ok_or_else(|| no_target(name))
    }

    fn target_info(&self, record: TargetRecord) -> TargetInfo {
        let unit = |unit: &UnitRecord| UnitInfo {
            number: unit.number,
            volume_id: unit.volume,
            volume: self.registry.by_id(unit.volume).map(|volume| volume.name().to_owned()),
            seq: unit.seq.map(Seq),
        };
        TargetInfo {
            id: record.id,
            created: WallTime::from_nanos(record.created_ns),
            units: record.units.iter().map(unit).collect(),
            name: record.name,
            retired: record.retired,
            access: record.access,
        }
    }

    /// Takes up the targets of the catalogue.
    pub(crate) fn load_targets(&self) -> Result<()> {
        *self.targets.lock() = named(self.core.catalogue.all(tables::TARGETS)?)?;
        Ok(())
    }

    /// The record of a unit. Moments become seqs.
    fn unit_of(&self, spec: &UnitSpec) -> Result<UnitRecord> {
        let volume = self.volume(&spec.volume)?;
        volume.refuse_share("iSCSI does not serve it", "`hindsight share show` says how it is")?;
        let resolved = spec.moment.as_ref().map(|moment| volume.resolve(moment)).transpose()?;
        let seq = resolved.map(|resolved| resolved.seq.0);
        Ok(UnitRecord { number: spec.number, volume: volume.id, seq })
    }

    /// Fails where a target would let in whom one of its volumes does not. Under the books.
    fn check_target(&self, record: &TargetRecord) -> Result<()> {
        record.access.check()?;
        self.check_secrets((&record.name, None), &record.access)?;
        // Those in the trash come back as they are.
        let is_unit = |id| record.units.iter().any(|unit| unit.volume == id);
        for volume in self.registry.all().iter().filter(|volume| is_unit(volume.id)) {
            if !record.access.is_as_closed_as(&volume.access()) {
                let text = format!("{} would be opener than {}", record.name, volume.name());
                let hint = "give it CHAP where a volume of it has it, and no initiators that a \
                            list of a volume of it has not";
                return Err(invalid(text, hint));
            }
        }
        Ok(())
    }

    /// Fails where a volume would be less open than a target that it is a unit of. Under the books.
    pub(crate) fn check_targets_of(&self, volume: &Volume, access: &Access) -> Result<()> {
        let targets = self.targets.lock();
        let has_it =
            |target: &&TargetRecord| target.units.iter().any(|unit| unit.volume == volume.id);
        match targets.values().filter(has_it).find(|it| !it.access.is_as_closed_as(access)) {
            None => Ok(()),
            Some(target) => {
                let text = format!("{} would be opener than {}", target.name, volume.name());
                Err(invalid(text, "it has this volume as a unit: set the same there first"))
            }
        }
    }

    /// Writes a target down, and takes it up.
    fn put_target(&self, mut tx: Transaction<'_>, record: TargetRecord, told: &str) -> Result<()> {
        let units = record.units.iter().map(|unit| {
            let name = self.registry.by_id(unit.volume).map(|volume| volume.name().to_owned());
            let name = name.unwrap_or_else(|| format!("deleted volume {}", unit.volume));
            let at = unit.seq.map_or_else(String::new, |seq| format!("@seq:{seq}"));
            format!("{}={name}{at}", unit.number)
        });
        let units = units.collect::<Vec<_>>().join(" ");
        let detail = format!("target {}: units {units}; {}", record.name, record.access);
        tx.put(tables::TARGETS, record.id, &record)?;
        tx.audit(told, "", detail)?;
        let _books = tx.commit()?;
        self.targets.lock().insert(record.name.clone(), record);
        Ok(())
    }

    /// Changes a made target: its units from now on, who may log in from the next login on.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`, `Refused`.
    pub fn change_target(&self, name: &str, change: &TargetChange) -> Result<TargetInfo> {
        self.check_open()?;
        let added = change.add.iter().map(|spec| self.unit_of(spec)).collect::<Result<Vec<_>>>()?;
        let tx = self.core.begin()?;
        let mut record = self.target_record(name)?;
        change.remove.iter().try_for_each(|&number| record.remove(number))?;
        added.into_iter().try_for_each(|unit| record.add(unit))?;
        record.access = record.access.changed(&change.access);
        self.check_target(&record)?;
        self.put_target(tx, record, "target-set")?;
        self.target(name)
    }

    /// Deletes a made target; its volumes stay.
    ///
    /// # Errors
    /// `NotFound`, `Refused`.
    pub fn delete_target(&self, name: &str) -> Result<()> {
        self.check_open()?;
        let mut tx = self.core.begin()?;
        let record = self.target_record(name)?;
        tx.remove(tables::TARGETS, record.id)?;
        tx.audit("target-delete", "", format!("target {name}; volumes stay"))?;
        let _books = tx.commit()?;
        self.targets.lock().remove(name);
        Ok(())
    }
}

impl Groups {
    /// Makes a target of several units. Without another access it has that of its volumes that
    /// have one, which is to be the same.
    ///
    /// # Errors
    /// `Exists`, `NotFound`, `Invalid`, `Refused`; those of resolving moments.
    pub fn create_target(
        &self,
        name: &str,
        units: &UnitsSpec,
        access: &AccessChange,
    ) -> Result<TargetInfo> {
        self.check_open()?;
        check_name("target", name)?;
        let units = match units {
            UnitsSpec::Each(specs) => {
                specs.iter().map(|spec| self.unit_of(spec)).collect::<Result<Vec<_>>>()?
            }
            UnitsSpec::Group(group, moment) => self.units_of_group(group, moment.as_ref())?,
        };
        if units.is_empty() {
            return Err(invalid("a target of no units", "name some volumes, or a group"));
        }
        let mut tx = self.core.begin()?;
        self.check_unused(name)?;
        tx.numbers.target += 1;
        let mut record = TargetRecord {
            id: tx.numbers.target,
            name: name.to_owned(),
            created_ns: self.core.machine.clock.wall().as_nanos(),
            units: Vec::new(),
            retired: Vec::new(),
            access: Access::default(),
        };
        units.into_iter().try_for_each(|unit| record.add(unit))?;
        let volumes = record.units.iter().filter_map(|unit| self.registry.by_id(unit.volume));
        let theirs = volumes.map(|volume| volume.access()).filter(|access| !access.is_open());
        let mut theirs: Vec<Access> = theirs.map(|own| own.changed(access)).collect();
        theirs.dedup();
        if theirs.len() > 1 {
            let text = format!("the volumes of {name} have different accesses");
            return Err(invalid(text, "say which it is to have: --chap-user, --allow"));
        }
        record.access = theirs.pop().unwrap_or_else(|| Access::default().changed(access));
        self.check_target(&record)?;
        self.put_target(tx, record, "target-create")?;
        self.target(name)
    }

    fn units_of_group(&self, group: &str, at: Option<&GroupMoment>) -> Result<Vec<UnitRecord>> {
        let mut volumes = self.group_volumes(group)?;
        volumes.sort_by(|one, other| one.name().cmp(other.name()));
        let moments = at.map(|at| self.resolve_group(group, at)).transpose()?;
        if at.is_some() && self.group_record(group)?.members.len() != volumes.len() {
            let text = format!("a volume of group {group} is deleted");
            return Err(invalid(text, "bring it back from the trash, or name the others by --lun"));
        }
        let unit = |(number, volume): (u16, &Arc<Volume>)| {
            volume.refuse_share("iSCSI does not serve it", "take the others by --lun")?;
            let seq = moments.as_ref().map(|moments| {
                let own = moments.iter().find(|(name, _)| name == volume.name());
                let gone = || Error::busy(format!("group {group} was changed"));
                own.map(|(_, resolved)| resolved.seq.0).ok_or_else(gone)
            });
            Ok(UnitRecord { number, volume: volume.id, seq: seq.transpose()? })
        };
        (0..).zip(&volumes).map(unit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{NUMBER_MAX, TargetRecord, UNITS_MAX, UnitRecord, named};
    use crate::ErrorKind;
    use crate::types::Access;

    fn record(id: u64, units: &[u16], retired: &[u16]) -> TargetRecord {
        let unit = |&number: &u16| UnitRecord { number, volume: number.into(), seq: None };
        TargetRecord {
            id,
            name: "t".to_owned(),
            created_ns: 0,
            units: units.iter().map(unit).collect(),
            retired: retired.to_vec(),
            access: Access::default(),
        }
    }

    #[test]
    fn a_target_that_was_never_written_so_is_an_error() {
        let most: Vec<u16> = (0..UNITS_MAX as u16).collect();
        let more: Vec<u16> = (0..=UNITS_MAX as u16).collect();
        for (units, retired) in
            [(&[][..], &[][..]), (&[0, 3, NUMBER_MAX], &[1]), (&[3], &[NUMBER_MAX]), (&most, &[])]
        {
            named(vec![record(1, units, retired)]).expect("sound");
        }
        for (units, retired) in [
            (&[NUMBER_MAX + 1][..], &[][..]),
            (&[u16::MAX], &[]),
            (&[0], &[NUMBER_MAX + 1]),
            (&[0, 0], &[]),
            (&[3, 0], &[]),
            (&[0, 3], &[3]),
            (&[0], &[1, 1]),
            (&more, &[]),
        ] {
            let wrong = named(vec![record(1, units, retired)]);
            assert_eq!(wrong.expect_err("wrong").kind, ErrorKind::Corrupt, "{units:?} {retired:?}");
        }
        let twice = named(vec![record(1, &[0], &[]), record(2, &[1], &[])]);
        assert_eq!(twice.expect_err("two of one name").kind, ErrorKind::Corrupt);
    }
}
