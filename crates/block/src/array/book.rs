//! What the members' labels and maps say, and what of it has still to be written.

use std::ops::Range;

use format::label::{Label, Member, MemberStanding, Regions};

use super::regions::{clear, count, is_set, set};
use crate::Resync;

/// The label and the maps; whoever changes them holds them.
pub(super) struct Book {
    /// As the members have it, but for their own identity.
    pub label: Label,
    /// As the members have it, unless it is changed.
    pub regions: Regions,
    /// Whether there are marks that the members have not.
    pub is_changed: bool,
    /// Regions that stale members have still to get, and how far the first of them is done.
    behind: Box<[u8]>,
    behind_from: u64,
    /// Regions that they got and that were not flushed since: still stale, should the power fail.
    brought: Vec<usize>,
    /// Whether a layer keeps something beside the data of regions that nobody uses.
    keeps_beside: bool,
}

/// A part of a region that stale members have to get.
pub(super) struct Piece {
    region: usize,
    /// Where it begins in the stack, and how long it is.
    pub start: u64,
    pub length_bytes: u64,
    /// All of it, or what layers keep beside it.
    pub which: Resync,
    /// Whether the region ends with it.
    is_last: bool,
}

/// What members have, or had: the label, the maps, and whether a layer keeps something beside its
/// data.
pub(super) type Former = (Label, Regions, bool);

impl Book {
    pub fn new(label: Label, regions: Regions, keeps_beside: bool) -> Book {
        let behind = vec![0; regions.stale.len()].into_boxed_slice();
        let (is_changed, behind_from, brought) = (false, 0, Vec::new());
        Book { label, regions, is_changed, behind, behind_from, brought, keeps_beside }
    }

    /// Takes what the members are to have from now on; returns what they had.
    pub fn change(&mut self, (label, regions, keeps): (Label, Regions, bool)) -> Former {
        let label = std::mem::replace(&mut self.label, label);
        let regions = std::mem::replace(&mut self.regions, regions);
        (label, regions, std::mem::replace(&mut self.keeps_beside, keeps))
    }

    /// Takes back what [`Book::change`] was given, though members may have it by now: what they had
    /// is written once more, later than all that was tried. These members were put out meanwhile.
    ///
    /// Maps that are as long stay: they have all marks that were there, and until the labels are
    /// taken back they are those of the labels that were tried, whose new members miss everything.
    pub fn undo(&mut self, former: Former, out: &[usize]) {
        let generation = self.label.generation;
        let tried = self.regions.clone();
        self.change(former);
        self.label.generation = generation;
        match self.regions.count == tried.count {
            true => self.regions = tried,
            false => self.regions.sequence = tried.sequence,
        }
        let are_in = |m: &&mut Member| m.standing == MemberStanding::In;
        for member in self.label.members.iter_mut().filter(are_in) {
            // Where a label that was tried calls it out it came back since.
            member.out_generation = generation;
        }
        if !out.is_empty() {
            self.put_out(out);
        }
        self.is_changed = true;
    }

    /// Sets the marks of regions that are about to be written; says whether the members have them
    /// to get.
    pub fn open(&mut self, range: Range<usize>) -> bool {
        let is_degraded = self.has(MemberStanding::Out);
        for region in range {
            if self.is_marked_with(region, is_degraded) {
                continue;
            }
            set(&mut self.regions.open, region);
            set(&mut self.regions.used, region);
            if is_degraded {
                set(&mut self.regions.stale, region);
            }
            self.is_changed = true;
        }
        self.is_changed
    }

    /// Whether a region has all the marks that writing into it needs, on the members.
    pub fn is_marked(&self, region: usize) -> bool {
        !self.is_changed && self.is_marked_with(region, self.has(MemberStanding::Out))
    }

    fn is_marked_with(&self, region: usize, is_degraded: bool) -> bool {
        is_set(&self.regions.open, region)
            && is_set(&self.regions.used, region)
            && (!is_degraded || is_set(&self.regions.stale, region))
    }

    /// The regions that are marked as open.
    pub fn open_regions(&self) -> Vec<usize> {
        let count = self.regions.count as usize;
        (0..count).filter(|&region| is_set(&self.regions.open, region)).collect()
    }

    /// Takes the mark off a region that is quiet.
    pub fn close(&mut self, region: usize) {
        clear(&mut self.regions.open, region);
        self.is_changed = true;
    }

    /// Notes that a region has nothing in it any more.
    pub fn forget_use(&mut self, region: usize) {
        clear(&mut self.regions.used, region);
    }

    /// Whether some member stands so.
    pub fn has(&self, standing: MemberStanding) -> bool {
        self.label.members.iter().any(|member| member.standing == standing)
    }

    /// Notes that members are out, and that they may have missed what is in flight.
    pub fn put_out(&mut self, members: &[usize]) {
        for &member in members {
            let member = &mut self.label.members[member];
            member.standing = MemberStanding::Out;
            member.out_generation = self.label.generation + 1;
        }
        for (stale, open) in self.regions.stale.iter_mut().zip(&self.regions.open) {
            *stale |= open;
        }
        self.is_changed = true;
    }

    /// Takes a spare's row out.
    pub fn take_row(&mut self, id: u128) -> Member {
        let at = self.label.members.iter().position(|m| m.id == id);
        let at = at.expect("each spare has its row");
        assert_eq!(self.label.members[at].standing, MemberStanding::Spare, "a spare's row");
        self.label.members.remove(at)
    }

    /// Notes how members stand.
    pub fn stand(&mut self, members: &[usize], standing: MemberStanding) {
        for &member in members {
            self.label.members[member].standing = standing;
        }
    }

    /// The members that are stale.
    pub fn stale_members(&self) -> Vec<usize> {
        let stale = |m: &usize| self.label.members[*m].standing == MemberStanding::Stale;
        (0..self.label.members.len()).filter(stale).collect()
    }

    /// Begins anew with what stale members have still to get; says how many regions that are.
    /// What was never written need not be copied, but what layers keep beside it.
    pub fn begin_behind(&mut self) -> u64 {
        for (i, behind) in self.behind.iter_mut().enumerate() {
            let used = if self.keeps_beside { u8::MAX } else { self.regions.used[i] };
            *behind = (self.regions.stale[i] | self.regions.open[i]) & used;
        }
        self.behind_from = 0;
        self.brought.clear();
        u64::from(count(&self.behind))
    }

    /// The next pieces to bring up to date of a stack so long, each within a region: what nobody
    /// uses as a whole, else of so many bytes at most.
    pub fn next_behind(&self, pieces_max: usize, bytes_max: u64, len_bytes: u64) -> Vec<Piece> {
        let region_bytes = self.label.region_bytes;
        let regions = 0..self.regions.count as usize;
        let mut pieces = Vec::with_capacity(pieces_max);
        let mut from = self.behind_from;
        for region in regions.filter(|region| is_set(&self.behind, *region)) {
            let is_used = is_set(&self.regions.used, region);
            let end = ((region as u64 + 1) * region_bytes).min(len_bytes);
            let mut start = (region as u64 * region_bytes + from).min(end);
            loop {
                if pieces.len() == pieces_max {
                    return pieces;
                }
                let left = end - start;
                let length_bytes = if is_used { left.min(bytes_max) } else { left };
                let which = if is_used { Resync::Stale } else { Resync::Beside };
                let is_last = length_bytes == left;
                pieces.push(Piece { region, start, length_bytes, which, is_last });
                if is_last {
                    break;
                }
                start += length_bytes;
            }
            from = 0;
        }
        pieces
    }

    /// Notes that pieces that were the next are up to date; says how many regions are left.
    pub fn came_up(&mut self, pieces: &[Piece]) -> u64 {
        for piece in pieces {
            let until = piece.start + piece.length_bytes;
            self.behind_from = until - piece.region as u64 * self.label.region_bytes;
            if piece.is_last {
                self.behind_from = 0;
                clear(&mut self.behind, piece.region);
                self.brought.push(piece.region);
            }
        }
        u64::from(count(&self.behind))
    }

    /// How many regions came up since the last flush.
    pub fn brought(&self) -> usize {
        self.brought.len()
    }

    /// The regions that came up since the last flush, to be flushed.
    pub fn take_brought(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.brought)
    }

    /// Notes that regions that came up are durable, or may be lost and are behind once more; says
    /// how many regions are left.
    pub fn flushed(&mut self, brought: Vec<usize>, is_durable: bool) -> u64 {
        let has_out = self.has(MemberStanding::Out);
        for region in brought {
            if !is_durable {
                self.behind_from = 0;
                set(&mut self.behind, region);
            } else if !has_out {
                clear(&mut self.regions.stale, region);
            }
        }
        u64::from(count(&self.behind))
    }

    /// Notes that somebody has nothing of what was written.
    pub fn all_is_stale(&mut self) {
        if self.keeps_beside {
            (0..self.regions.count as usize)
                .for_each(|region| set(&mut self.regions.stale, region));
        }
        for (stale, used) in self.regions.stale.iter_mut().zip(&self.regions.used) {
            *stale |= used;
        }
        self.is_changed = true;
    }

    /// Forgets what was missed: nobody misses anything any more.
    pub fn forget_stale(&mut self) {
        self.regions.stale.fill(0);
        self.is_changed = true;
    }
}
