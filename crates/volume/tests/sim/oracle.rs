//! The oracle: a volume's history is a `Vec` of changes, and `view_at(m)` applies the first of
//! them, up to m.
//!
//! Byte-granular and slow on purpose: there is nothing in it to get wrong.

/// What one write (or event) did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// These bytes were written at this offset.
    Write(u64, Vec<u8>),
    /// This range (offset, bytes) reads as zeros.
    Zero(u64, u64),
    /// The state of an earlier seq became the present.
    Revert(u64),
    /// The volume got this many bytes.
    Resize(u64),
    /// These, of which not each has a seq: some were replaced in a cache before they were destaged.
    Several(Vec<Change>),
    /// All became this, for what a crash left of several: these, some of which have seqs of their
    /// own.
    Become(Vec<u8>, Vec<Change>),
    /// These, as one batch: no moment lies within it.
    Whole(Vec<Change>),
    /// Nothing: seqs that a power cut made void.
    Nothing,
}

/// A change with its place in history.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its last seq (a long or unaligned write takes several).
    pub seq: u64,
    /// When it was made, nanoseconds since 1970.
    pub time_ns: u64,
    /// When it was begun at the earliest: parts of a large write, and those that have a seq
    /// together, may have earlier times.
    pub earliest_ns: u64,
    /// What it did.
    pub change: Change,
}

/// A volume's history.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// Seq and content at which it begins: zeros, or the moment it was cloned from.
    pub base: (u64, Vec<u8>),
    /// Changes, oldest first.
    pub entries: Vec<Entry>,
}

impl Oracle {
    /// A volume of `content` as of `seq`.
    pub fn new(seq: u64, content: Vec<u8>) -> Oracle {
        Oracle { base: (seq, content), entries: Vec::new() }
    }

    /// The last seq.
    pub fn latest(&self) -> u64 {
        self.entries.last().map_or(self.base.0, |e| e.seq)
    }

    /// Adds a change.
    pub fn push(&mut self, seq: u64, time_ns: u64, change: Change) {
        self.push_between(seq, (time_ns, time_ns), change);
    }

    /// Adds a change of which it is not known when exactly it was made.
    pub fn push_between(&mut self, seq: u64, (earliest_ns, time_ns): (u64, u64), change: Change) {
        assert!(seq > self.latest(), "seqs rise: {seq} after {}", self.latest());
        self.entries.push(Entry { seq, time_ns, earliest_ns, change });
    }

    /// Until when a change's end was the present at least: then the next one began.
    pub fn was_present_until_ns(&self, index: usize) -> u64 {
        let own_ns = self.entries[index].time_ns;
        self.entries.get(index + 1).map_or(u64::MAX, |next| next.earliest_ns.max(own_ns))
    }

    /// The content after the change with this seq, or the last one before it.
    pub fn view_at(&self, seq: u64) -> Vec<u8> {
        let mut content = self.base.1.clone();
        for entry in self.entries.iter().take_while(|e| e.seq <= seq) {
            self.apply(&mut content, &entry.change);
        }
        content
    }

    /// Applies one change to a content.
    pub fn apply(&self, content: &mut Vec<u8>, change: &Change) {
        match change {
            Change::Write(offset, bytes) => {
                let start = *offset as usize;
                content[start..start + bytes.len()].copy_from_slice(bytes);
            }
            Change::Zero(offset, length) => {
                content[*offset as usize..(*offset + *length) as usize].fill(0);
            }
            Change::Revert(to) => *content = self.view_at(*to),
            Change::Resize(size) => content.resize(*size as usize, 0),
            Change::Several(changes) | Change::Whole(changes) => {
                changes.iter().for_each(|c| self.apply(content, c));
            }
            Change::Become(all, _) => content.clone_from(all),
            Change::Nothing => {}
        }
    }
}
