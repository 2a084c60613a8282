//! Logical units: a volume's present, or a moment of it, as all sessions on it share it.
//!
//! The request path looks at atomic words only; the mutex of a unit is a leaf, and held across no
//! call of the engine.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use env::RankedMutex;
use units::Seq;
use wire::scsi::Code;
use wire::scsi::mode::ModeState;

use crate::VolumeId;

/// Attentions that wait for a session; more become the loss of the nexus, which says them all.
const ATTENTIONS_MAX: usize = 8;

/// All units that sessions are on.
#[derive(Debug, Default)]
pub(super) struct Units(RankedMutex<HashMap<UnitId, Weak<Unit>>>);

/// A volume, and the moment of the past that it is.
pub(super) type UnitId = (VolumeId, Option<Seq>);

/// A logical unit.
#[derive(Debug, Default)]
pub(super) struct Unit {
    mode: AtomicU8,
    /// The nexus that has reserved it, by its number; 0 is none.
    reserved_by: AtomicU64,
    state: RankedMutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_nexus: u64,
    nexuses: BTreeMap<u64, Arc<Pending>>,
}

/// The attentions that a session is still to be told.
#[derive(Debug, Default)]
struct Pending {
    is_any: AtomicBool,
    codes: RankedMutex<VecDeque<Code>>,
}

/// A session on a unit, as long as it lives.
#[derive(Debug)]
pub(super) struct Nexus {
    unit: Arc<Unit>,
    number: u64,
    pending: Arc<Pending>,
}

const NO_CACHE: u8 = 1;
const DESCRIPTORS: u8 = 2;
const PROTECTED: u8 = 4;

impl Units {
    /// A session on this unit.
    pub(super) fn join(&self, id: UnitId) -> Nexus {
        let mut units = self.0.lock();
        units.retain(|_, unit| unit.strong_count() > 0);
        let known = units.get(&id).and_then(Weak::upgrade);
        let unit = known.unwrap_or_else(|| {
            let unit = Arc::new(Unit::default());
            units.insert(id, Arc::downgrade(&unit));
            unit
        });
        drop(units);
        let pending = Arc::new(Pending::default());
        pending.add(Code::POWER_ON);
        let mut state = unit.state.lock();
        state.last_nexus += 1;
        let number = state.last_nexus;
        state.nexuses.insert(number, Arc::clone(&pending));
        drop(state);
        Nexus { unit, number, pending }
    }
}

impl Pending {
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

    /// Something that this session is to be told.
    pub(super) fn attend(&self, code: Code) {
        self.pending.add(code);
    }

    /// Something that all others on the unit are to be told.
    pub(super) fn tell_others(&self, code: Code) {
        let state = self.unit.state.lock();
        let others = state.nexuses.iter().filter(|(number, _)| **number != self.number);
        others.for_each(|(_, pending)| pending.add(code));
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

    /// Changes the unit's mode, and tells the others.
    pub(super) fn set_mode(&self, mode: ModeState) {
        if mode == self.mode() {
            return;
        }
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let bits = bit(!mode.write_cache, NO_CACHE)
            | bit(mode.descriptor_sense, DESCRIPTORS)
            | bit(mode.software_protected, PROTECTED);
        self.unit.mode.store(bits, Ordering::Release);
        self.tell_others(Code::MODE_CHANGED);
    }

    /// Whether another session has reserved the unit.
    pub(super) fn is_reserved_by_another(&self) -> bool {
        let holder = self.unit.reserved_by.load(Ordering::Acquire);
        holder != 0 && holder != self.number
    }

    /// Reserves the unit; whether that was possible.
    pub(super) fn reserve(&self) -> bool {
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

    /// Resets the unit: its mode and reservation go, and all others are told.
    pub(super) fn reset(&self, code: Code) {
        self.unit.mode.store(0, Ordering::Release);
        self.unit.reserved_by.store(0, Ordering::Release);
        self.tell_others(code);
        self.attend(code);
    }
}

impl Drop for Nexus {
    fn drop(&mut self) {
        self.release();
        self.unit.state.lock().nexuses.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use wire::scsi::Code;
    use wire::scsi::mode::ModeState;

    use super::{ATTENTIONS_MAX, Units};

    #[test]
    fn sessions_of_a_unit_share_its_mode_and_tell_one_another() {
        let units = Units::default();
        let (one, two) = (units.join((1, None)), units.join((1, None)));
        let other = units.join((2, None));
        for nexus in [&one, &two, &other] {
            assert_eq!(nexus.take_attention(), Some(Code::POWER_ON));
            assert_eq!(nexus.take_attention(), None);
        }
        one.set_mode(ModeState { write_cache: false, ..ModeState::default() });
        assert!(!two.mode().write_cache && other.mode().write_cache);
        assert_eq!(two.take_attention(), Some(Code::MODE_CHANGED));
        assert_eq!((one.take_attention(), other.take_attention()), (None, None));
        assert!(one.reserve() && one.reserve() && !two.reserve());
        assert!(two.is_reserved_by_another() && !one.is_reserved_by_another());
        two.release();
        assert!(two.is_reserved_by_another());
        drop(one);
        assert!(two.reserve());
    }

    #[test]
    fn attentions_that_nobody_takes_become_one() {
        let units = Units::default();
        let nexus = units.join((1, None));
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
