//! The space of a pool: zones of equal size, handed out whole.
//!
//! Invariants: a zone is free or used, never both; the last `reserve` free zones go only to those
//! who say they make room (reclamation, the catalogue). Knows nothing of what a zone holds: the
//! catalogue says which zones are used, and this table is built from it at each opening.

/// Who asks for a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// New data of clients: stops short of the reserve.
    Data,
    /// Work that makes room or keeps the books: may use the reserve.
    Reclaim,
}

/// Which zones of a pool are free.
#[derive(Debug)]
pub struct Zones {
    used: Vec<bool>,
    free_count: u32,
    reserve_count: u32,
    lowest_free: usize,
}

impl Zones {
    /// A table of `count` zones, all free, the last `reserve_count` of which are kept for
    /// reclamation.
    #[must_use]
    pub fn new(count: u32, reserve_count: u32) -> Zones {
        Zones {
            used: vec![false; count as usize],
            free_count: count,
            reserve_count,
            lowest_free: 0,
        }
    }

    /// Marks a zone used while the table is built; false when it does not exist or is used already.
    pub fn occupy(&mut self, zone: u32) -> bool {
        match self.used.get_mut(zone as usize) {
            Some(used) if !*used => {
                *used = true;
                self.free_count -= 1;
                true
            }
            _ => false,
        }
    }

    /// Takes the lowest free zone.
    pub fn allocate(&mut self, purpose: Purpose) -> Option<u32> {
        let floor = if purpose == Purpose::Data { self.reserve_count } else { 0 };
        if self.free_count <= floor {
            return None;
        }
        // Low addresses are used again first, so that a sparse file stays short.
        let found = (self.lowest_free..self.used.len()).find(|&i| !self.used[i])?;
        self.used[found] = true;
        self.free_count -= 1;
        self.lowest_free = found + 1;
        Some(u32::try_from(found).expect("a table has at most 2^32 zones"))
    }

    /// Gives a zone back.
    pub fn free(&mut self, zone: u32) {
        let used = &mut self.used[zone as usize];
        assert!(*used, "zone {zone} freed twice");
        *used = false;
        self.free_count += 1;
        self.lowest_free = self.lowest_free.min(zone as usize);
    }

    /// Zones in all.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.used.len()).expect("a table has at most 2^32 zones")
    }

    /// Free zones, the reserve included.
    #[must_use]
    pub fn free_count(&self) -> u32 {
        self.free_count
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
        assert_eq!(zones.allocate(Purpose::Data), Some(1));
        assert_eq!(zones.allocate(Purpose::Data), None);
        assert_eq!(zones.allocate(Purpose::Reclaim), Some(2));
        assert_eq!(zones.allocate(Purpose::Reclaim), Some(3));
        assert_eq!(zones.allocate(Purpose::Reclaim), None);
        zones.free(2);
        assert_eq!(zones.free_count(), 1);
        assert_eq!(zones.allocate(Purpose::Reclaim), Some(2));
    }
}
