//! Persistent reservations of one unit: who is registered, who holds what, and who may do what.
//!
//! Knows no sessions: a port is an initiator's name and its part of the session's identity, and it
//! stays registered when its session ends. Those of a present are kept over a restart of the server
//! while the last that registered asked for that (APTPL).

use std::collections::BTreeMap;

use volume::{InitiatorPort, Registration as KeptRegistration, Reservation, ReservationKind};
use wire::iscsi::Isid;
use wire::scsi::command::Command;
use wire::scsi::reservations::{
    Held, InAction, OutAction, OutList, Registration, ReservationType, put_capabilities,
    put_full_status, put_keys, put_reservation,
};
use wire::scsi::{Code, Sense, Status};

use super::answer::Ended;

/// Registrations of a unit.
const REGISTRATIONS_MAX: usize = 256;

/// An initiator's port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port {
    pub(super) initiator: String,
    pub(super) isid: Isid,
}

impl Port {
    fn of(kept: InitiatorPort) -> Port {
        Port { initiator: kept.initiator, isid: Isid(kept.isid) }
    }

    pub(super) fn kept(&self) -> InitiatorPort {
        InitiatorPort { initiator: self.initiator.clone(), isid: self.isid.0 }
    }
}

/// The types of reservations, as they are told on the wire and as they are kept.
const TYPES: [(ReservationType, ReservationKind); 6] = [
    (ReservationType::WriteExclusive, ReservationKind::WriteExclusive),
    (ReservationType::ExclusiveAccess, ReservationKind::ExclusiveAccess),
    (ReservationType::WriteExclusiveRegistrants, ReservationKind::WriteExclusiveRegistrants),
    (ReservationType::ExclusiveAccessRegistrants, ReservationKind::ExclusiveAccessRegistrants),
    (ReservationType::WriteExclusiveAll, ReservationKind::WriteExclusiveAll),
    (ReservationType::ExclusiveAccessAll, ReservationKind::ExclusiveAccessAll),
];

fn kind_of(kind: ReservationType) -> ReservationKind {
    TYPES.iter().find(|(wire, _)| *wire == kind).expect("all are there").1
}

fn type_of(kind: ReservationKind) -> ReservationType {
    TYPES.iter().find(|(_, kept)| *kept == kind).expect("all are there").0
}

#[derive(Clone, Copy, Debug)]
struct Registrant {
    key: u64,
    all_ports: bool,
}

/// The reservations of a unit.
#[derive(Clone, Debug, Default)]
pub(super) struct Reservations {
    /// Whether they can be kept over a restart.
    can_persist: bool,
    /// Whether they are.
    persists: bool,
    generation: u32,
    registrants: BTreeMap<Port, Registrant>,
    /// A port that holds the unit; of a type that all hold it is the one that asked for it.
    held: Option<(Port, ReservationType)>,
}

/// Ports that are to be told what was done.
pub(super) type Told = Vec<(Port, Code)>;

const CONFLICT: Ended = Ended::Status(Status::RESERVATION_CONFLICT);

impl Reservations {
    /// As they were kept; of a unit for which none can be, none.
    pub(super) fn of(kept: Option<volume::Reservations>) -> Reservations {
        let can_persist = kept.is_some();
        let kept = kept.unwrap_or_default();
        let persists = !kept.is_empty();
        let registrant = |it: KeptRegistration| {
            (Port::of(it.port), Registrant { key: it.key, all_ports: it.all_ports })
        };
        let registrants = kept.registrations.into_iter().map(registrant).collect();
        let held = kept.held.map(|held| (Port::of(held.port), type_of(held.kind)));
        Reservations { can_persist, persists, generation: 0, registrants, held }
    }

    /// All of it that is to be kept.
    pub(super) fn kept(&self) -> volume::Reservations {
        if self.persists { self.all() } else { volume::Reservations::default() }
    }

    /// Whether the last that registered asked to have them kept.
    pub(super) fn persists(&self) -> bool {
        self.persists
    }

    /// All of it, by its own account.
    pub(super) fn all(&self) -> volume::Reservations {
        let registration = |(port, it): (&Port, &Registrant)| KeptRegistration {
            port: port.kept(),
            key: it.key,
            all_ports: it.all_ports,
        };
        let held = |(port, kind): &(Port, ReservationType)| Reservation {
            port: port.kept(),
            kind: kind_of(*kind),
        };
        volume::Reservations {
            registrations: self.registrants.iter().map(registration).collect(),
            held: self.held.as_ref().map(held),
        }
    }

    /// Whether nothing of it is worth keeping.
    pub(super) fn is_empty(&self) -> bool {
        self.registrants.is_empty()
    }

    /// Whether somebody holds the unit.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether a port holds the unit.
    fn holds(&self, port: &Port) -> bool {
        self.held.as_ref().is_some_and(|(holder, kind)| match kind.is_of_all() {
            true => self.registrants.contains_key(port),
            false => holder == port,
        })
    }

    /// Whether a command of a port conflicts with what is held.
    pub(super) fn forbids(&self, port: &Port, command: &Command) -> bool {
        let Some((_, kind)) = &self.held else { return false };
        let is_registered = self.registrants.contains_key(port);
        if self.holds(port) || is_registered && kind.is_for_registrants() {
            return false;
        }
        match needs(command) {
            Access::None => false,
            Access::Read => !kind.lets_others_read(),
            Access::Write => true,
        }
    }

    /// Answers a question.
    pub(super) fn ask(&self, action: InAction, out: &mut Vec<u8>) {
        match action {
            InAction::Keys => {
                let keys: Vec<u64> = self.registrants.values().map(|r| r.key).collect();
                put_keys(self.generation, &keys, out);
            }
            InAction::Reservation => {
                let key = |port| self.registrants.get(port).map_or(0, |r| r.key);
                let held = self.held.as_ref().map(|(port, kind)| Held {
                    key: if kind.is_of_all() { 0 } else { key(port) },
                    kind: *kind,
                });
                put_reservation(self.generation, held, out);
            }
            InAction::Capabilities => {
                put_capabilities(self.can_persist, self.persists, out);
            }
            InAction::FullStatus => {
                let kind = self.held.as_ref().map(|(_, kind)| *kind);
                let registrations: Vec<Registration<'_>> = self
                    .registrants
                    .iter()
                    .map(|(port, registrant)| Registration {
                        key: registrant.key,
                        all_ports: registrant.all_ports,
                        holds: kind.filter(|_| self.holds(port)),
                        port: 1,
                        initiator: &port.initiator,
                        isid: port.isid.0,
                    })
                    .collect();
                put_full_status(self.generation, &registrations, out);
            }
        }
    }

    /// Carries out a change; the ports that are to be told of it.
    pub(super) fn change(
        &mut self,
        port: &Port,
        action: OutAction,
        kind: Option<ReservationType>,
        list: &OutList,
    ) -> Result<Told, Ended> {
        let own = self.registrants.get(port).map(|registrant| registrant.key);
        match action {
            OutAction::Register if list.key != own.unwrap_or(0) => return Err(CONFLICT),
            OutAction::Register | OutAction::RegisterAndIgnore => return self.register(port, list),
            _ if own != Some(list.key) => return Err(CONFLICT),
            OutAction::Clear => return Ok(self.clear(port)),
            _ => {}
        }
        let Some(kind) = kind else { return Err(Sense::cdb_field(2, None).into()) };
        match action {
            OutAction::Reserve => self.reserve(port, kind).map(|()| Told::new()),
            OutAction::Release => self.release(port, kind),
            _ => self.preempt(port, kind, list.action_key),
        }
    }

    fn register(&mut self, port: &Port, list: &OutList) -> Result<Told, Ended> {
        if list.persists && !self.can_persist {
            return Err(Sense::parameter(20, Some(0)).into());
        }
        if list.action_key == 0 && !self.registrants.contains_key(port) {
            // Nothing is to be done for one that is not registered (SPC-4 table 62).
            return Ok(Told::new());
        }
        let mut told = Told::new();
        if list.action_key == 0 {
            told = self.unregister(port);
        } else {
            let is_new = !self.registrants.contains_key(port);
            if is_new && self.registrants.len() >= REGISTRATIONS_MAX {
                return Err(Sense::illegal(Code::NO_REGISTRATION_RESOURCES).into());
            }
            let registrant = Registrant { key: list.action_key, all_ports: list.all_ports };
            self.registrants.insert(port.clone(), registrant);
        }
        // The last that registers says it for all (SPC-4 5.12.5).
        self.persists = list.persists;
        self.generation = self.generation.wrapping_add(1);
        Ok(told)
    }

    fn unregister(&mut self, port: &Port) -> Told {
        let was_held = self.holds(port);
        self.registrants.remove(port);
        let Some((_, kind)) = self.held.clone().filter(|_| was_held) else { return Told::new() };
        if kind.is_of_all() && !self.registrants.is_empty() {
            return Told::new();
        }
        self.held = None;
        self.tell_registrants(port, kind, Code::RESERVATIONS_RELEASED)
    }

    /// All others that are registered, where the type is for those.
    fn tell_registrants(&self, port: &Port, kind: ReservationType, code: Code) -> Told {
        let others = self.registrants.keys().filter(|other| *other != port);
        let others = others.filter(|_| kind.is_for_registrants());
        others.map(|other| (other.clone(), code)).collect()
    }

    fn reserve(&mut self, port: &Port, kind: ReservationType) -> Result<(), Ended> {
        match &self.held {
            None => self.held = Some((port.clone(), kind)),
            Some((_, held)) if self.holds(port) && *held == kind => {}
            Some(_) => return Err(CONFLICT),
        }
        Ok(())
    }

    fn release(&mut self, port: &Port, kind: ReservationType) -> Result<Told, Ended> {
        let Some((_, held)) = self.held.clone().filter(|_| self.holds(port)) else {
            return Ok(Told::new());
        };
        if held != kind {
            return Err(Sense::illegal(Code::INVALID_RELEASE).into());
        }
        self.held = None;
        Ok(self.tell_registrants(port, kind, Code::RESERVATIONS_RELEASED))
    }

    fn clear(&mut self, port: &Port) -> Told {
        let others = self.registrants.keys().filter(|other| *other != port);
        let told = others.map(|other| (other.clone(), Code::RESERVATIONS_PREEMPTED)).collect();
        self.registrants.clear();
        self.held = None;
        self.generation = self.generation.wrapping_add(1);
        told
    }

    fn preempt(&mut self, port: &Port, kind: ReservationType, key: u64) -> Result<Told, Ended> {
        let held = self.held.clone();
        let takes_all = held.as_ref().is_some_and(|(_, held)| held.is_of_all()) && key == 0;
        if key == 0 && !takes_all {
            return Err(match held {
                Some(_) => Sense::parameter(8, None).into(),
                None => CONFLICT,
            });
        }
        let takes_over = takes_all
            || held.as_ref().is_some_and(|(holder, held)| {
                let holders = self.registrants.get(holder).map(|registrant| registrant.key);
                !held.is_of_all() && holders == Some(key)
            });
        if !takes_all && !self.registrants.values().any(|registrant| registrant.key == key) {
            return Err(CONFLICT);
        }
        let mut told = Told::new();
        self.registrants.retain(|other, registrant| {
            let goes = other != port && (takes_all || registrant.key == key);
            if goes {
                told.push((other.clone(), Code::REGISTRATIONS_PREEMPTED));
            }
            !goes
        });
        if takes_over {
            if let Some((_, before)) = held.filter(|(_, before)| *before != kind) {
                told.extend(self.tell_registrants(port, before, Code::RESERVATIONS_RELEASED));
            }
            self.held = Some((port.clone(), kind));
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(told)
    }
}

/// The use that a command makes of a unit that somebody else holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    None,
    Read,
    Write,
}

/// The access that a command needs (SPC-4 table 66, SBC-3 table 13).
fn needs(command: &Command) -> Access {
    match command {
        Command::Inquiry { .. }
        | Command::ReportLuns { .. }
        | Command::RequestSense { .. }
        | Command::TestUnitReady
        | Command::ReadCapacity10
        | Command::ReadCapacity16 { .. }
        | Command::PersistentReserveIn { .. }
        | Command::PersistentReserveOut { .. }
        | Command::LogSense { .. }
        | Command::ReportTargetPortGroups { .. }
        | Command::ReportSupportedOpcodes { .. }
        | Command::ReportSupportedFunctions { .. }
        | Command::StartStopUnit { start: true, power_condition: 0, .. } => Access::None,
        Command::Read(_)
        | Command::Verify { .. }
        | Command::Prefetch { .. }
        | Command::GetLbaStatus { .. }
        | Command::ModeSense(_) => Access::Read,
        _ => Access::Write,
    }
}
