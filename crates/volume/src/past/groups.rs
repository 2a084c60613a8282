//! Events of all volumes of a group at one instant: reverts, clones, and how a moment of the group
//! is resolved.
//!
//! Invariants
//! 1. As for captures (`groups`): all gates are closed at the same time, in the order of ids.
//! 2. One commit has the reverts, or the clones, of all volumes: after a crash all are there, or
//!    none.

use std::sync::Arc;

use history::Gate;
use units::{Moment, WallTime};

use crate::catalogue::{GroupRecord, tables};
use crate::names::check_name;
use crate::past::revert::{Coming, Place, REVERT};
use crate::retention::groups::{GroupInfo, Groups, changed_meanwhile};
use crate::retention::stand_still::Still;
use crate::types::{Resolved, RevertReport, Stamp};
use crate::volume::Volume;
use crate::volume::creation::Origin;
use crate::{Error, Result};

/// Which moment of each volume of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupMoment {
    /// The present, a time, a version of the group, or a mark that each of its volumes has.
    Of(Moment),
    /// One of each of its volumes, by name.
    Each(Vec<(String, Moment)>),
}

/// The volumes of a group, with a moment of each.
struct Members {
    group: GroupRecord,
    volumes: Vec<Arc<Volume>>,
    moments: Vec<Moment>,
}

/// Gates that are closed, of several volumes.
trait Gates {
    fn places(&self, into: &mut Vec<Place>);
    fn take_events(&mut self, places: &[Place]);
}

struct NoGates;

impl Gates for NoGates {
    fn places(&self, _: &mut Vec<Place>) {}

    fn take_events(&mut self, places: &[Place]) {
        assert!(places.is_empty(), "each event is taken by its volume's gate");
    }
}

/// A gate within others.
struct Within<'g, 'l> {
    outer: &'g mut dyn Gates,
    gate: &'g mut Gate<'l>,
}

impl Gates for Within<'_, '_> {
    fn places(&self, into: &mut Vec<Place>) {
        self.outer.places(into);
        into.push(Place::of(self.gate));
    }

    fn take_events(&mut self, places: &[Place]) {
        let (own, outer) = places.split_last().expect("there is a place for each gate");
        self.gate.take_event(own.event.0, own.event.1);
        self.outer.take_events(outer);
    }
}

/// Closes the gates of all volumes, one within the other.
fn at_one_instant<T>(
    volumes: &[Arc<Volume>],
    outer: &mut dyn Gates,
    act: &mut dyn FnMut(&mut dyn Gates) -> Result<T>,
) -> Result<T> {
    let Some((first, rest)) = volumes.split_first() else { return act(outer) };
    first.log().with_gate(|gate| at_one_instant(rest, &mut Within { outer, gate }, act))
}

impl Groups {
    fn members_at(&self, name: &str, at: &GroupMoment) -> Result<Members> {
        let group = self.group_record(name)?;
        let volumes = self.served_members(&group)?;
        let moments = match at {
            GroupMoment::Of(moment) => self.moments_of(&group, &volumes, moment)?,
            GroupMoment::Each(all) => {
                let of = |volume: &Arc<Volume>| {
                    let own = all.iter().find(|(of, _)| of == volume.name());
                    own.map(|(_, moment)| moment.clone())
                };
                let own: Vec<Moment> = volumes.iter().filter_map(of).collect();
                if (own.len(), all.len()) != (volumes.len(), volumes.len()) {
                    let names: Vec<&str> = volumes.iter().map(|volume| volume.name()).collect();
                    let text =
                        format!("a moment of each volume is asked for: {}", names.join(", "));
                    return Err(Error::invalid(text));
                }
                own
            }
        };
        Ok(Members { group, volumes, moments })
    }

    fn moments_of(
        &self,
        group: &GroupRecord,
        volumes: &[Arc<Volume>],
        moment: &Moment,
    ) -> Result<Vec<Moment>> {
        let same = |moment: Moment| Ok(volumes.iter().map(|_| moment.clone()).collect());
        match moment {
            Moment::Latest | Moment::At(_) | Moment::Mark(_) => same(moment.clone()),
            Moment::Ago(span) => {
                let now = self.core.machine.clock.wall().as_nanos();
                let then = WallTime::from_nanos(now.saturating_sub(span.0));
                // One instant for all. A volume whose times are ahead of the clock counts by its
                // own times, asked for some microseconds apart.
                let time = |volume: &Arc<Volume>| match volume.time_ahead_ns() {
                    0 => then,
                    _ => volume.time_ago(*span),
                };
                Ok(volumes.iter().map(|volume| Moment::At(time(volume))).collect())
            }
            Moment::Seq(_) => Err(Error::invalid(format!(
                "a seq is of one volume, and {} is a group",
                group.name
            ))
            .with_hint("a time, v:N, a mark of each volume, or VOLUME=seq:N,...")),
            Moment::Version(number) => {
                let key = (group.id, *number);
                let capture = self.core.catalogue.get(tables::GROUP_VERSIONS, key)?;
                let versions = capture.map_or(Vec::new(), |capture| capture.versions);
                let own = |volume: &Arc<Volume>| {
                    let version = versions.iter().find(|(id, _)| *id == volume.id);
                    version.map(|&(_, number)| Moment::Version(number)).ok_or_else(|| {
                        let text = format!(
                            "group {} has no version {number} of {}",
                            group.name, volume.name
                        );
                        Error::not_found(text)
                    })
                };
                volumes.iter().map(own).collect()
            }
        }
    }

    /// Resolves the moments of volumes that stand still; their presents are of one instant.
    fn resolve_together(&self, members: &Members, stills: &[Still<'_>]) -> Result<Vec<Resolved>> {
        let mut places = Vec::new();
        at_one_instant(&members.volumes, &mut NoGates, &mut |gates| {
            gates.places(&mut places);
            Ok(())
        })?;
        let each = members.volumes.iter().zip(&members.moments).zip(stills).zip(places);
        let resolve =
            |(((volume, moment), still), place): (((&Arc<Volume>, &Moment), &Still<'_>), Place)| {
                match moment {
                    Moment::Latest => {
                        let Stamp { seq, time } = place.from;
                        Ok(Resolved { seq, time, exact: true })
                    }
                    moment => volume.resolve_with(moment, &still.pins),
                }
            };
        each.map(resolve).collect()
    }

    /// Fails when the group was changed since its members were asked for. Under the books.
    fn check_unchanged(&self, members: &Members) -> Result<()> {
        let now = self.group_record(&members.group.name)?;
        if now.id == members.group.id && now.members == members.group.members {
            return members.volumes.iter().try_for_each(|volume| volume.check_served());
        }
        Err(changed_meanwhile(&members.group.name))
    }

    /// Reverts all volumes, whose gates are closed, in one commit.
    fn revert_together(
        &self,
        members: &Members,
        targets: &[Resolved],
        gates: &mut dyn Gates,
    ) -> Result<Vec<Place>> {
        let mut places = Vec::new();
        gates.places(&mut places);
        let mut tx = self.core.begin()?;
        self.check_unchanged(members)?;
        let mut all: Vec<Coming> = Vec::new();
        for ((volume, &target), place) in members.volumes.iter().zip(targets).zip(&places) {
            all.push(volume.prepare_revert(place, (target, REVERT), &mut tx)?);
        }
        let _books =
            tx.commit_then(|| all.iter().for_each(|coming| coming.add_timeline(&self.core)))?;
        gates.take_events(&places);
        for (volume, coming) in members.volumes.iter().zip(all) {
            volume.take_revert(coming);
        }
        Ok(places)
    }
}

impl Groups {
    /// Resolves a moment of a group for each of its volumes.
    ///
    /// # Errors
    /// Those of resolving; `Invalid` for a seq.
    pub fn resolve_group(&self, name: &str, at: &GroupMoment) -> Result<Vec<(String, Resolved)>> {
        let members = self.members_at(name, at)?;
        let stills = self.stand_together(&members.volumes)?;
        let resolved = self.resolve_together(&members, &stills)?;
        drop(stills);
        Ok(members.volumes.iter().map(|v| v.name().to_owned()).zip(resolved).collect())
    }

    /// Makes a past moment the present of all volumes of a group, or of none. Everything before
    /// stays: a revert to the seqs that the reports begin at undoes it. `closed` are the volumes
    /// from which the caller keeps clients away, as [`Groups::group_volumes`] gave them; without
    /// them nothing is done, and the reports say what would be.
    ///
    /// # Errors
    /// Those of resolving; `Busy` when the group was changed meanwhile; `Refused`, `Io`.
    pub fn revert_group(
        &self,
        name: &str,
        to: &GroupMoment,
        closed: Option<&[Arc<Volume>]>,
    ) -> Result<Vec<(String, RevertReport)>> {
        let members = self.members_at(name, to)?;
        let volumes = &members.volumes;
        let ids = |all: &[Arc<Volume>]| all.iter().map(|volume| volume.id()).collect::<Vec<u64>>();
        if closed.is_some_and(|closed| ids(closed) != ids(volumes)) {
            return Err(changed_meanwhile(name));
        }
        let stills = self.stand_together(volumes)?;
        let targets = self.resolve_together(&members, &stills)?;
        let mut reports = Vec::new();
        for (volume, target) in volumes.iter().zip(&targets) {
            let from = volume.latest()?;
            let (changed_bytes, changed_exact) =
                volume.changed_bytes_bounded(target.seq, from.seq)?;
            let to = Stamp { seq: target.seq, time: target.time };
            let report = RevertReport { from, to, changed_bytes, changed_exact, seq: from.seq };
            reports.push((volume.name().to_owned(), report));
        }
        if closed.is_some() {
            let places = at_one_instant(volumes, &mut NoGates, &mut |gates| {
                self.revert_together(&members, &targets, gates)
            })?;
            for ((_, report), place) in reports.iter_mut().zip(places) {
                (report.from, report.seq) = (place.from, place.event.0);
            }
        }
        drop(stills);
        Ok(reports)
    }

    /// Makes a clone of each volume of a group, `NEW-VOLUME`, and a group of them: all of them, or
    /// none.
    ///
    /// # Errors
    /// Those of resolving; `Exists`, `Invalid`; `Busy` when the group was changed meanwhile;
    /// `Refused`, `Io`.
    pub fn clone_group(&self, name: &str, at: &GroupMoment, new: &str) -> Result<GroupInfo> {
        self.check_open()?;
        check_name("group", new)?;
        let core = &self.core;
        let members = self.members_at(name, at)?;
        let names: Vec<String> =
            members.volumes.iter().map(|volume| format!("{new}-{}", volume.name)).collect();
        names.iter().try_for_each(|name| check_name("volume", name))?;
        let stills = self.stand_together(&members.volumes)?;
        let moments = self.resolve_together(&members, &stills)?;
        let mut tx = core.begin()?;
        self.check_unchanged(&members)?;
        let mut newborns = Vec::new();
        for ((volume, at), name) in members.volumes.iter().zip(moments).zip(&names) {
            let (record, branch, detail) = self.clone_record(volume, (at.seq, at.seq), name)?;
            let origin = Origin::Moment(volume, branch, None);
            newborns.push(self.prepare_volume(record, origin, &mut tx, ("clone", detail))?);
        }
        let ids = newborns.iter().map(|newborn| newborn.record.id).collect();
        let group = self.prepare_group(new, ids, &names.join(", "), &mut tx)?;
        let books = tx.commit()?;
        for newborn in newborns {
            self.take_volume(newborn)?;
        }
        self.set_groups(vec![group.clone()]);
        drop(books);
        drop(stills);
        self.share_memory();
        Ok(self.group_info(&group))
    }
}
