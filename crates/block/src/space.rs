//! The space of a pool: zones of equal size, handed out whole.
//!
//! Invariants
//! 1. A zone is free or used, never both; the last `reserve` free zones go only to those who say
//!    they make room (reclamation, the catalogue).
//! 2. Some of the reserve is *backed*: its space is reserved on the device, so that room can be
//!    made where the pool is a sparse file and others filled the file system under it.
//! 3. A zone that is freed stays backed, and is the first to be used again. More of them than
//!    `SPARED_MAX` beyond those of 2 are given back to the device, a piece at a time, and only
//!    while they are free.
//! 4. A zone that was used when the table was built is not *known* below: the layers there heard of
//!    its space in an earlier opening.
//!
//! Knows nothing of what a zone holds: the catalogue says which zones are used, and this table is
//! built from it at each opening.

/// Who asks for a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// New data of clients: stops short of the reserve.
    Data,
    /// Work that makes room or keeps the books: may use the reserve.
    Reclaim,
}

/// Backed zones kept for reclamation, at most: enough for a merge's output and the catalogue.
const KEPT_MAX: u32 = 16;
/// Backed zones that wait to be used again beyond those, at most, and at most 1 in so many of all:
/// what a merge frees is what the next one fills.
const SPARED_MAX: u32 = 16;
const SPARED_SHARE: u32 = 32;

/// Which zones of a pool are free, and which of those have their space on the device.
#[derive(Debug)]
pub struct Zones {
    states: Vec<State>,
    /// The zones whose space was reserved in an earlier opening, and neither since nor given back.
    unknown: Vec<bool>,
    free_count: u32,
    backed_count: u32,
    reserve_count: u32,
    lowest_free: usize,
    giving: Option<Giving>,
}

/// A zone whose space is being given back to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Giving {
    /// The zone; it is free and not backed.
    pub zone: u32,
    /// Its bytes that are given back.
    pub given_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Used,
    /// The device has reserved its space: using it cannot fail for want of room.
    FreeBacked,
    Free,
}

impl Zones {
    /// A table of `count` zones, all free, the last `reserve_count` of which are kept for
    /// reclamation.
    #[must_use]
    pub fn new(count: u32, reserve_count: u32) -> Zones {
        Zones {
            states: vec![State::Free; count as usize],
            unknown: vec![false; count as usize],
            free_count: count,
            backed_count: 0,
            reserve_count,
            lowest_free: 0,
            giving: None,
        }
    }

    /// Has more zones from now on, all that are new free, and keeps so many for reclamation.
    pub fn extend(&mut self, count: u32, reserve_count: u32) {
        let more = count.checked_sub(self.count()).expect("a pool only grows");
        self.states.resize(count as usize, State::Free);
        self.unknown.resize(count as usize, false);
        self.free_count += more;
        self.reserve_count = reserve_count;
    }

    /// Marks a zone used while the table is built; false when it does not exist or is used already.
    pub fn occupy(&mut self, zone: u32) -> bool {
        match self.states.get(zone as usize) {
            None | Some(State::Used) => false,
            Some(_) => {
                self.take(zone as usize);
                self.unknown[zone as usize] = true;
                true
            }
        }
    }

    /// Takes the lowest zone that needs nothing more of the device, beyond those kept backed for
    /// reclamation.
    pub fn take_backed(&mut self, purpose: Purpose) -> Option<u32> {
        if !self.may_take(purpose) || self.backed_count <= self.kept() {
            return None;
        }
        self.take_lowest(State::FreeBacked)
    }

    /// Whether the layers below know that a zone has its space.
    #[must_use]
    pub fn is_known(&self, zone: u32) -> bool {
        !self.unknown[zone as usize]
    }

    /// The layers below know now.
    pub fn note_known(&mut self, zone: u32) {
        self.unknown[zone as usize] = false;
    }

    /// Takes the lowest zone whose space the caller must reserve on the device before it is used.
    pub fn take_unbacked(&mut self, purpose: Purpose) -> Option<u32> {
        if self.may_take(purpose) { self.take_lowest(State::Free) } else { None }
    }

    /// Takes one of the backed zones that are kept for reclamation.
    pub fn take_kept(&mut self) -> Option<u32> {
        self.take_lowest(State::FreeBacked)
    }

    /// Gives a zone back; `is_backed` says whether the device keeps its space reserved.
    pub fn free(&mut self, zone: u32, is_backed: bool) {
        let state = &mut self.states[zone as usize];
        assert!(*state == State::Used, "zone {zone} freed twice");
        *state = if is_backed { State::FreeBacked } else { State::Free };
        self.free_count += 1;
        self.backed_count += u32::from(is_backed);
        self.lowest_free = self.lowest_free.min(zone as usize);
    }

    /// Whether fewer backed zones are free than are to be kept for reclamation.
    #[must_use]
    pub fn wants_backed(&self) -> bool {
        self.backed_count < self.kept()
    }

    /// What is to be given back next, if there is more than is kept and spared, or anything beyond
    /// what is kept if none is to be spared. Give it back before anything is taken.
    pub fn next_giving(&mut self, spares: bool) -> Option<Giving> {
        if self.giving.is_none() && self.backed_count > self.most_backed(spares) {
            // Low addresses are used again first.
            let is_backed = |&i: &usize| self.states[i] == State::FreeBacked;
            let zone = (0..self.states.len()).rev().find(is_backed)?;
            self.states[zone] = State::Free;
            self.unknown[zone] = false;
            self.backed_count -= 1;
            let zone = u32::try_from(zone).expect("a table has at most 2^32 zones");
            self.giving = Some(Giving { zone, given_bytes: 0 });
        }
        self.giving
    }

    /// So many more bytes of the zone that is being given back are; it has `zone_bytes`.
    pub fn gave(&mut self, bytes: u64, zone_bytes: u64) {
        let mut giving = self.giving.take().expect("something is being given back");
        giving.given_bytes += bytes;
        self.giving = Some(giving).filter(|giving| giving.given_bytes < zone_bytes);
    }

    /// Whether there is more to be given back.
    #[must_use]
    pub fn has_giving(&self) -> bool {
        self.giving.is_some() || self.backed_count > self.most_backed(true)
    }

    fn most_backed(&self, spares: bool) -> u32 {
        let spared = if spares { SPARED_MAX.min(self.count() / SPARED_SHARE) } else { 0 };
        self.kept() + spared
    }

    fn kept(&self) -> u32 {
        self.reserve_count.min(KEPT_MAX)
    }

    /// Whether more than half of the reserve is free; on a full device of what is kept backed.
    #[must_use]
    pub fn has_half_of_reserve(&self, is_device_full: bool) -> bool {
        let (free, reserve) = match is_device_full {
            true => (self.backed_count, self.kept()),
            false => (self.free_count, self.reserve_count),
        };
        free > reserve.div_ceil(2)
    }

    fn may_take(&self, purpose: Purpose) -> bool {
        let floor = if purpose == Purpose::Data { self.reserve_count } else { 0 };
        self.free_count > floor
    }

    fn take_lowest(&mut self, state: State) -> Option<u32> {
        // Low addresses are used again first, so that a sparse file stays short.
        let found = (self.lowest_free..self.states.len()).find(|&i| self.states[i] == state)?;
        self.take(found);
        Some(u32::try_from(found).expect("a table has at most 2^32 zones"))
    }

    fn take(&mut self, zone: usize) {
        // The rest of it is used again instead.
        self.giving.take_if(|giving| giving.zone as usize == zone);
        self.backed_count -= u32::from(self.states[zone] == State::FreeBacked);
        self.states[zone] = State::Used;
        self.free_count -= 1;
        if zone == self.lowest_free {
            self.lowest_free = zone + 1;
        }
    }

    /// Zones in all.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.states.len()).expect("a table has at most 2^32 zones")
    }

    /// Free zones, the reserve included.
    #[must_use]
    pub fn free_count(&self) -> u32 {
        self.free_count
    }

    /// Free zones whose space the device has reserved.
    #[must_use]
    pub fn backed_count(&self) -> u32 {
        self.backed_count
    }

    /// Zones kept for reclamation.
    #[must_use]
    pub fn reserve_count(&self) -> u32 {
        self.reserve_count
    }
}

#[cfg(test)]
mod tests {
    use super::{Purpose, Zones};

    #[test]
    fn the_reserve_is_only_for_reclamation() {
        let mut zones = Zones::new(4, 2);
        assert!(zones.occupy(0));
        assert!(!zones.occupy(0));
        assert!(!zones.occupy(4));
        assert_eq!(zones.take_unbacked(Purpose::Data), Some(1));
        assert_eq!(zones.take_unbacked(Purpose::Data), None);
        assert_eq!(zones.take_unbacked(Purpose::Reclaim), Some(2));
        assert_eq!(zones.take_unbacked(Purpose::Reclaim), Some(3));
        assert_eq!(zones.take_unbacked(Purpose::Reclaim), None);
        zones.free(2, false);
        assert_eq!(zones.free_count(), 1);
        assert_eq!(zones.take_unbacked(Purpose::Reclaim), Some(2));
    }

    #[test]
    fn a_zone_that_was_used_before_is_unknown_until_it_is_noted_or_given_back() {
        let mut zones = Zones::new(4, 0);
        assert!(zones.occupy(2) && !zones.is_known(2) && zones.is_known(1));
        zones.free(2, true);
        assert_eq!(zones.take_backed(Purpose::Data), Some(2));
        assert!(!zones.is_known(2), "freed is not reserved");
        zones.free(2, true);
        assert_eq!(zones.next_giving(false).map(|giving| giving.zone), Some(2));
        assert!(zones.is_known(2), "nobody takes it but by way of the device");
        assert!(zones.occupy(3) && !zones.is_known(3));
        zones.note_known(3);
        assert!(zones.is_known(3));
    }

    #[test]
    fn a_full_pool_that_grows_has_room_again() {
        let mut zones = Zones::new(4, 1);
        while zones.take_unbacked(Purpose::Data).is_some() {}
        assert_eq!((zones.count(), zones.free_count()), (4, 1));
        zones.extend(7, 2);
        assert_eq!((zones.count(), zones.free_count(), zones.reserve_count()), (7, 4, 2));
        assert_eq!(zones.take_unbacked(Purpose::Data), Some(3), "what was kept before");
        assert_eq!(zones.take_unbacked(Purpose::Data), Some(4));
        assert_eq!(zones.take_unbacked(Purpose::Data), None, "two are kept");
    }

    #[test]
    fn backed_zones_are_kept_for_reclamation() {
        let mut zones = Zones::new(8, 2);
        for _ in 0..3 {
            let zone = zones.take_unbacked(Purpose::Data).expect("all are free");
            zones.free(zone, true);
            assert_eq!(zones.take_unbacked(Purpose::Data), Some(zone + 1), "the lowest unbacked");
            zones.free(zone + 1, false);
        }
        assert_eq!((zones.backed_count(), zones.wants_backed()), (3, false));
        assert_eq!(zones.take_backed(Purpose::Data), Some(0));
        assert_eq!(zones.take_backed(Purpose::Data), None, "two are kept");
        assert_eq!(zones.take_backed(Purpose::Reclaim), None, "also for a first try");
        assert_eq!(zones.take_kept(), Some(1));
        assert!(zones.wants_backed());
        assert_eq!((zones.free_count(), zones.backed_count()), (6, 1));
    }

    #[test]
    fn what_is_freed_is_spared_up_to_a_bound_and_the_rest_given_back_while_it_is_free() {
        let mut zones = Zones::new(64, 1);
        let taken: Vec<_> = (0..6).map(|_| zones.take_unbacked(Purpose::Data)).collect();
        taken.into_iter().flatten().for_each(|zone| zones.free(zone, true));
        // One is kept, and one in 32 are spared.
        let first = zones.next_giving(true).expect("six are backed");
        assert_eq!((first.zone, zones.backed_count(), zones.free_count()), (5, 5, 64));
        zones.gave(1, 2);
        assert_eq!(zones.next_giving(true).map(|g| (g.zone, g.given_bytes)), Some((5, 1)));
        zones.gave(1, 2);
        assert_eq!(zones.next_giving(true).map(|g| (g.zone, g.given_bytes)), Some((4, 0)));
        zones.gave(1, 2);
        // All others are taken, then what is being given back: nothing of it is given any more.
        let backed = (0..3).filter_map(|_| zones.take_backed(Purpose::Data)).collect::<Vec<_>>();
        assert_eq!(backed, [0, 1, 2]);
        assert_eq!(zones.take_unbacked(Purpose::Data), Some(4));
        assert_eq!((zones.next_giving(true), zones.has_giving()), (None, false));
        zones.free(4, true);
        assert_eq!(zones.next_giving(true), None, "one kept and one more");
        assert_eq!(zones.next_giving(false).map(|giving| giving.zone), Some(4));
    }
}
