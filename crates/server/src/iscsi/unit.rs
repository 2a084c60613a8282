//! Logical units: a volume's present, or a moment of it, as all sessions on it share it.
//!
//! The request path looks at atomic words only; the mutex of a unit is a leaf, and held across no
//! call of the engine.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use env::{Rank, RankedGuard, RankedMutex};
use tokio::sync::watch;
use units::Seq;
use volume::InitiatorPort;
use wire::scsi::mode::ModeState;
use wire::scsi::reservations::{InAction, OutAction, OutList, ReservationType};
use wire::scsi::{Code, Command, Status};

use super::answer::Ended;
use super::reservations::{Port, Reservations, Told};
use crate::VolumeId;

/// Attentions that wait for a session; more become the loss of the nexus, which says them all.
const ATTENTIONS_MAX: usize = 8;

/// All units that sessions are on.
#[derive(Debug, Default)]
pub(super) struct Units(RankedMutex<HashMap<UnitId, Arc<Unit>>>);

/// A volume, and the moment of the past that it is.
pub(super) type UnitId = (VolumeId, Option<Seq>);

/// The number of a unit within a target.
pub(super) type Number = u16;

/// Tells a session that its commands are to be aborted.
pub(super) struct Ring(pub(super) Box<dyn Fn(u64) + Send + Sync>);

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ring")
    }
}

/// A logical unit.
#[derive(Debug, Default)]
pub(super) struct Unit {
    mode: AtomicU8,
    /// The nexus that has reserved it, by its number; 0 is none.
    reserved_by: AtomicU64,
    /// Whether somebody holds a persistent reservation.
    is_held: AtomicBool,
    /// Whether somebody is registered.
    has_registrations: AtomicBool,
    /// Reservations of it were kept, be it none any more: they are taken up once.
    was_kept: AtomicBool,
    state: RankedMutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_nexus: u64,
    nexuses: BTreeMap<u64, Arc<Pending>>,
    reservations: Reservations,
    /// A change of them is being kept: another waits for it.
    is_keeping: bool,
}

/// Reservations that were changed, and the ports whose registrations were preempted.
pub(super) struct Changed {
    pub(super) preempted: Vec<Port>,
    /// It is to be kept over restarts first, and has not come about yet.
    pub(super) keeping: Option<Keeping>,
}

/// A change of reservations that comes about once it is kept. Until it is, or is given up, others
/// are refused.
pub(super) struct Keeping {
    unit: Arc<Unit>,
    next: Reservations,
    told: Told,
    by: Port,
    /// Those whose commands are aborted as it comes about, whatever becomes of who asked for it.
    aborts: Vec<Port>,
}

/// The attentions that a session is still to be told.
#[derive(Debug)]
struct Pending {
    port: Port,
    is_any: AtomicBool,
    codes: RankedMutex<VecDeque<Code>>,
    /// How often its commands were to be aborted.
    aborts: AtomicU64,
    /// Tells its session of that, with the number of that time.
    ring: Ring,
    /// Up to which of these they have ended.
    aborted: watch::Sender<u64>,
}

/// Ready when others have ended what they were to abort.
pub(super) type Aborted = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A session on a unit, as long as it lives.
#[derive(Debug)]
pub(super) struct Nexus {
    unit: Arc<Unit>,
    number: u64,
    port: Port,
    pending: Arc<Pending>,
}

const NO_CACHE: u8 = 1;
const DESCRIPTORS: u8 = 2;
const PROTECTED: u8 = 4;

impl Units {
    /// A session on this unit, of which these reservations are kept, if any can be.
    pub(super) fn join(
        &self,
        id: UnitId,
        kept: Option<volume::Reservations>,
        port: Port,
        ring: Ring,
    ) -> Nexus {
        let mut units = self.0.lock();
        // Without a session nothing but registrations and a mode is worth keeping, of presents: an
        // initiator that logs in again goes by what it set. Volumes are limited, moments are not.
        let is_kept = |(_, moment): &UnitId, unit: &Arc<Unit>| {
            let has_something = || {
                unit.has_registrations.load(Ordering::Acquire)
                    || unit.was_kept.load(Ordering::Acquire)
                    || unit.mode.load(Ordering::Acquire) != 0
            };
            Arc::strong_count(unit) > 1 || moment.is_none() && has_something()
        };
        units.retain(|id, unit| is_kept(id, unit));
        let unit = Arc::clone(units.entry(id).or_insert_with(|| Arc::new(Unit::of(kept))));
        drop(units);
        let pending = Pending {
            port: port.clone(),
            is_any: AtomicBool::new(false),
            codes: RankedMutex::default(),
            aborts: AtomicU64::new(0),
            ring,
            aborted: watch::Sender::new(0),
        };
        let pending = Arc::new(pending);
        pending.add(Code::POWER_ON);
        let mut state = unit.state.lock();
        state.last_nexus += 1;
        let number = state.last_nexus;
        state.nexuses.insert(number, Arc::clone(&pending));
        drop(state);
        Nexus { unit, number, port, pending }
    }
}

impl Units {
    /// The reservations of a unit that a session was on, and whether they are kept.
    pub(super) fn reservations(&self, id: UnitId) -> Option<(volume::Reservations, bool)> {
        let unit = self.0.lock().get(&id).cloned()?;
        let state = unit.state.lock();
        Some((state.reservations.all(), state.reservations.persists()))
    }
}

impl Unit {
    fn of(kept: Option<volume::Reservations>) -> Unit {
        let was_kept = kept.as_ref().is_some_and(|kept| !kept.is_empty());
        let reservations = Reservations::of(kept);
        Unit {
            is_held: AtomicBool::new(reservations.is_held()),
            has_registrations: AtomicBool::new(!reservations.is_empty()),
            was_kept: AtomicBool::new(was_kept),
            state: RankedMutex::new(Rank::Leaf, State { reservations, ..State::default() }),
            ..Unit::default()
        }
    }

    /// Takes up other reservations, tells those whom it concerns, and has the sessions of ports
    /// abort their commands.
    fn take_up(
        &self,
        mut state: RankedGuard<'_, State>,
        next: Reservations,
        told: Told,
        aborts: &[Port],
    ) {
        self.is_held.store(next.is_held(), Ordering::Release);
        self.has_registrations.store(!next.is_empty(), Ordering::Release);
        state.reservations = next;
        let nexuses: Vec<_> = state.nexuses.values().cloned().collect();
        drop(state);
        for (port, code) in told {
            let those = nexuses.iter().filter(|pending| pending.port == port);
            those.for_each(|pending| pending.add(code));
        }
        let aborted = nexuses.iter().filter(|pending| aborts.contains(&pending.port));
        aborted.for_each(|pending| pending.abort());
    }
}

impl Keeping {
    /// All that is to be kept.
    pub(super) fn kept(&self) -> volume::Reservations {
        self.next.kept()
    }

    /// The port that asked for it.
    pub(super) fn by(&self) -> InitiatorPort {
        self.by.kept()
    }

    /// It is kept, and comes about.
    pub(super) fn done(mut self) {
        let (next, told) = (std::mem::take(&mut self.next), std::mem::take(&mut self.told));
        self.unit.was_kept.store(true, Ordering::Release);
        self.unit.take_up(self.unit.state.lock(), next, told, &self.aborts);
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.unit.state.lock().is_keeping = false;
    }
}

impl Pending {
    /// Has the session abort its commands.
    fn abort(&self) {
        let number = self.aborts.fetch_add(1, Ordering::AcqRel) + 1;
        (self.ring.0)(number);
    }

    fn add(&self, code: Code) {
        let mut codes = self.codes.lock();
        if codes.contains(&code) {
            return;
        }
        if codes.len() >= ATTENTIONS_MAX {
            codes.clear();
            codes.push_back(Code::NEXUS_LOSS);
        } else {
            codes.push_back(code);
        }
        self.is_any.store(true, Ordering::Release);
    }
}

impl Nexus {
    /// The next attention, which is told once.
    pub(super) fn take_attention(&self) -> Option<Code> {
        if !self.pending.is_any.load(Ordering::Acquire) {
            return None;
        }
        let mut codes = self.pending.codes.lock();
        let code = codes.pop_front();
        self.pending.is_any.store(!codes.is_empty(), Ordering::Release);
        code
    }

    /// The session knows it already.
    pub(super) fn forget(&self, code: Code) {
        if self.pending.is_any.load(Ordering::Acquire) {
            let mut codes = self.pending.codes.lock();
            codes.retain(|other| *other != code);
            self.pending.is_any.store(!codes.is_empty(), Ordering::Release);
        }
    }

    /// Something that this session is to be told.
    pub(super) fn attend(&self, code: Code) {
        self.pending.add(code);
    }

    /// Something that all others on the unit are to be told.
    pub(super) fn tell_others(&self, code: Code) {
        self.others().iter().for_each(|pending| pending.add(code));
    }

    fn others(&self) -> Vec<Arc<Pending>> {
        let state = self.unit.state.lock();
        let others = state.nexuses.iter().filter(|(number, _)| **number != self.number);
        others.map(|(_, pending)| Arc::clone(pending)).collect()
    }

    /// Has others of the unit abort their commands; ready when none of these is under way any more.
    pub(super) fn abort_others(&self) -> Aborted {
        self.others().iter().for_each(|pending| pending.abort());
        self.await_others(|_| true)
    }

    /// Ready when others have aborted what they were to abort until now.
    pub(super) fn await_others(&self, whom: impl Fn(&Port) -> bool) -> Aborted {
        let others = self.others();
        let others = others.iter().filter(|pending| whom(&pending.port));
        let wait = |it: &Arc<Pending>| (it.aborted.subscribe(), it.aborts.load(Ordering::Acquire));
        let waits: Vec<_> = others.map(wait).collect();
        Box::pin(async move {
            for (mut aborted, number) in waits {
                // A session that is gone has ended all.
                let _ = aborted.wait_for(|aborted| *aborted >= number).await;
            }
        })
    }

    /// None of the commands that were to be aborted so often is under way any more.
    pub(super) fn aborted(&self, number: u64) {
        // Two that ring at once may be heard in the other order.
        self.pending.aborted.send_modify(|aborted| *aborted = number.max(*aborted));
    }

    /// The unit's mode.
    pub(super) fn mode(&self) -> ModeState {
        let bits = self.unit.mode.load(Ordering::Acquire);
        ModeState {
            write_cache: bits & NO_CACHE == 0,
            descriptor_sense: bits & DESCRIPTORS != 0,
            software_protected: bits & PROTECTED != 0,
        }
    }

    /// Changes the unit's mode from what it was, and tells the others. A change of another session
    /// meanwhile, of something else, stays.
    pub(super) fn set_mode(&self, before: ModeState, mode: ModeState) {
        let (was, bits) = (mode_bits(before), mode_bits(mode));
        if was != bits {
            let changed = |now: u8| Some(now & !(was ^ bits) | bits & (was ^ bits));
            let _ = self.unit.mode.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed);
            self.tell_others(Code::MODE_CHANGED);
        }
    }

    /// Whether a command conflicts with a reservation of another.
    pub(super) fn forbids(&self, command: &Command) -> bool {
        let holder = self.unit.reserved_by.load(Ordering::Acquire);
        if holder != 0 && holder != self.number {
            return !matches!(
                command,
                Command::Inquiry { .. }
                    | Command::ReportLuns { .. }
                    | Command::RequestSense { .. }
                    | Command::Release
            );
        }
        self.unit.is_held.load(Ordering::Acquire)
            && self.unit.state.lock().reservations.forbids(&self.port, command)
    }

    /// Answers a question about persistent reservations.
    pub(super) fn ask_reservations(&self, action: InAction, out: &mut Vec<u8>) {
        self.unit.state.lock().reservations.ask(action, out);
    }

    /// Changes persistent reservations, and tells those whom it concerns.
    pub(super) fn change_reservations(
        &self,
        action: OutAction,
        kind: Option<ReservationType>,
        list: &OutList,
    ) -> Result<Changed, Ended> {
        let mut state = self.unit.state.lock();
        if state.is_keeping {
            return Err(Ended::Status(Status::BUSY));
        }
        let mut next = state.reservations.clone();
        let told = next.change(&self.port, action, kind, list)?;
        let is_preempted = |(_, code): &&(Port, Code)| *code == Code::REGISTRATIONS_PREEMPTED;
        let preempted: Vec<Port> =
            told.iter().filter(is_preempted).map(|(port, _)| port.clone()).collect();
        let aborts = match action {
            OutAction::PreemptAndAbort => preempted.clone(),
            _ => Vec::new(),
        };
        if next.kept() == state.reservations.kept() {
            self.unit.take_up(state, next, told, &aborts);
            return Ok(Changed { preempted, keeping: None });
        }
        state.is_keeping = true;
        let keeping =
            Keeping { unit: Arc::clone(&self.unit), next, told, by: self.port.clone(), aborts };
        Ok(Changed { preempted, keeping: Some(keeping) })
    }

    /// Reserves the unit; whether that was possible.
    pub(super) fn reserve(&self) -> bool {
        let state = self.unit.state.lock();
        if state.is_keeping || !state.reservations.is_empty() {
            return false;
        }
        let reserved_by = &self.unit.reserved_by;
        let taken =
            reserved_by.compare_exchange(0, self.number, Ordering::AcqRel, Ordering::Acquire);
        taken.map_or_else(|holder| holder == self.number, |_| true)
    }

    /// Gives the unit free, if this session has reserved it.
    pub(super) fn release(&self) {
        let reserved_by = &self.unit.reserved_by;
        let _ = reserved_by.compare_exchange(self.number, 0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Resets the unit: its mode and reservation go, and all others are told. A cache that was
    /// switched off stays off: others of the unit go by that.
    pub(super) fn reset(&self, code: Code) {
        self.unit.mode.fetch_and(NO_CACHE, Ordering::AcqRel);
        self.unit.reserved_by.store(0, Ordering::Release);
        self.tell_others(code);
        self.attend(code);
    }
}

fn mode_bits(mode: ModeState) -> u8 {
    let bit = |set: bool, bit: u8| if set { bit } else { 0 };
    bit(!mode.write_cache, NO_CACHE)
        | bit(mode.descriptor_sense, DESCRIPTORS)
        | bit(mode.software_protected, PROTECTED)
}

impl Drop for Nexus {
    fn drop(&mut self) {
        self.release();
        self.unit.state.lock().nexuses.remove(&self.number);
        self.pending.aborted.send_replace(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use wire::scsi::Code;
    use wire::scsi::mode::ModeState;

    use super::super::reservations::Port;
    use wire::iscsi::Isid;

    use super::{ATTENTIONS_MAX, Command, Nexus, Ring, Seq, UnitId, Units};

    fn join(units: &Units, id: UnitId, last: u8) -> Nexus {
        let isid = Isid([0, 0, 0, 0, 0, last]);
        let port = Port { initiator: "iqn.a".to_owned(), isid };
        units.join(id, None, port, Ring(Box::new(|_| ())))
    }

    #[test]
    fn sessions_of_a_unit_share_its_mode_and_tell_one_another() {
        const TUR: Command = Command::TestUnitReady;
        let units = Units::default();
        let (one, two) = (join(&units, (1, None), 1), join(&units, (1, None), 2));
        let other = join(&units, (2, None), 3);
        for nexus in [&one, &two, &other] {
            assert_eq!(nexus.take_attention(), Some(Code::POWER_ON));
            assert_eq!(nexus.take_attention(), None);
        }
        let before = one.mode();
        one.set_mode(before, ModeState { write_cache: false, ..before });
        // Another that has looked before.
        other.set_mode(before, before);
        assert!(!two.mode().write_cache && other.mode().write_cache);
        assert_eq!(two.take_attention(), Some(Code::MODE_CHANGED));
        assert_eq!((one.take_attention(), other.take_attention()), (None, None));
        // Another session changes something else, as of before.
        two.set_mode(before, ModeState { descriptor_sense: true, ..before });
        assert!(!one.mode().write_cache && one.mode().descriptor_sense);
        assert_eq!(one.take_attention(), Some(Code::MODE_CHANGED));
        assert!(one.reserve() && one.reserve() && !two.reserve());
        assert!(two.forbids(&TUR) && !one.forbids(&TUR));
        two.release();
        assert!(two.forbids(&TUR));
        drop(one);
        assert!(two.reserve());
    }

    #[test]
    fn a_moment_without_a_session_is_forgotten_and_a_present_is_not() {
        let units = Units::default();
        for moment in [None, Some(Seq(5))] {
            let nexus = join(&units, (1, moment), 1);
            let before = nexus.mode();
            nexus.set_mode(before, ModeState { descriptor_sense: true, ..before });
        }
        assert!(join(&units, (1, None), 1).mode().descriptor_sense);
        assert!(!join(&units, (1, Some(Seq(5))), 1).mode().descriptor_sense);
    }

    #[test]
    fn attentions_that_nobody_takes_become_one() {
        let units = Units::default();
        let nexus = join(&units, (1, None), 1);
        for code in 0..2 * ATTENTIONS_MAX as u8 {
            nexus.attend(Code(0x2a, code));
        }
        let mut told = Vec::new();
        while let Some(code) = nexus.take_attention() {
            told.push(code);
        }
        assert!(told.len() <= ATTENTIONS_MAX && told[0] == Code::NEXUS_LOSS, "{told:?}");
    }
}
