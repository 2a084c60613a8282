//! Repair: the share as it would be without some operations (RFS).
//!
//! **The result is the tree after all operations but those that are undone**, in their order. An
//! operation that is kept and cannot be done without one that is to be undone either keeps that one
//! (the default), or is undone with it ([`Follow`]); so all that are kept are done as they were.
//!
//! 1. Only what would differ is looked at: names that undone operations made or took, and objects
//!    that they changed.
//! 2. Bytes come from moments of the past, never from records; a moment that is not kept any more
//!    is an error.
//! 3. A repair is a set of ordinary operations with a cause, so a repair can be undone by another.

mod apply;
mod content;
mod difference;
mod effects;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use format::share::place::LOG_FIRST;
use units::{FileId, Seq};

use crate::blocks::{Blocks, Present, Wait};
use crate::error::{Error, ErrorKind, Result};
use crate::operation_log::{Logged, OperationLog, Transactions};
use crate::share::Share;

use effects::touched;
use world::World;

pub use apply::{Applied, apply};
pub use difference::{Change, Difference};
pub use world::Moments;

/// Operations that are undone too, though nobody named them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// None: an operation on which another stands is not undone.
    #[default]
    Nothing,
    /// Those that cannot be done without the undone ones: that found their object by an undone
    /// name, or changed one that would not be there.
    Names,
    /// These, and those that wrote over bytes that an undone one wrote.
    Bytes,
}

/// The relation by which an operation stands on others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The object that it changes would not be there.
    Object,
    /// The directory that it makes a name in would not be there.
    Directory,
    /// Its name would have another object.
    NameTaken,
    /// Its name would not have its object.
    NameGone,
    /// The directory that it removes would have entries.
    NotEmpty,
    /// It wrote over bytes of theirs, or took a file away whose bytes are at no moment.
    Bytes,
}

/// An operation, and why it is undone though nobody named it, or not though somebody did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependent {
    /// The operation that is kept.
    pub operation: Logged,
    /// The relation.
    pub reason: Reason,
    /// The operations on which it stands, that were to be undone.
    pub on: BTreeSet<u64>,
}

/// A repair as it would be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The numbers of the operations that are undone.
    pub undone: BTreeSet<u64>,
    /// The numbers of those that were named and are kept, as others stand on them.
    pub kept: BTreeSet<u64>,
    /// The numbers of those that nobody named and are undone.
    pub followed: BTreeSet<u64>,
    /// The operations that stand on others, and so kept them, or followed them.
    pub dependents: Vec<Dependent>,
    /// The difference to the share as it is.
    pub difference: Difference,
}

/// The operations that are to be undone: asked of each, from the oldest on.
pub type Named<'a> = &'a mut dyn FnMut(&Logged) -> Result<bool>;

/// Operations that a transaction has at most: each writes a block of its own.
const TRANSACTION_MAX: u64 = 8192;
/// Dependents that are told.
const DEPENDENTS_MAX: usize = 10_000;

/// Plans a repair: nothing is changed.
///
/// # Errors
/// `NotFound` if a moment that is needed is not kept any more; `Corrupt`, `Storage`, `Unusable`.
pub fn plan<P: Present, B: Blocks>(
    share: &Share<P>,
    moments: Moments<'_, B>,
    named: Named<'_>,
    follow: Follow,
) -> Result<Plan> {
    let (now, last) = {
        let tree = share.tree(Wait::May)?;
        (share.present().seq(), tree.state().operation)
    };
    let history = History { log: share.operation_log(), last };
    let mut undone = BTreeSet::new();
    history.each(0, &mut |logged| {
        if named(logged)? {
            undone.insert(logged.number());
        }
        Ok(())
    })?;
    let asked = undone.clone();
    let grown = history.together(&undone, true)?;
    let mut dependents = Vec::new();
    undone.extend(grown);
    let mut transactions = Transactions::default();
    let first = undone.first().copied().unwrap_or(last + 1);
    history.each(first.saturating_sub(TRANSACTION_MAX), &mut |logged| {
        transactions.see(logged);
        Ok(())
    })?;
    let world = loop {
        let world = history.play(&transactions, now, (&undone, follow), moments)?;
        if world.conflicts.is_empty() {
            break world;
        }
        let before = undone.len();
        let conflicts = world.conflicts;
        for conflict in conflicts {
            match follow {
                Follow::Nothing => undone.retain(|number| !conflict.on.contains(number)),
                _ => drop(undone.insert(conflict.operation.number())),
            }
            if dependents.len() < DEPENDENTS_MAX {
                let world::Conflict { operation, reason, on } = conflict;
                dependents.push(Dependent { operation, reason, on });
            }
        }
        let changed = history.together(&undone, follow != Follow::Nothing)?;
        match follow {
            Follow::Nothing => undone.retain(|number| !changed.contains(number)),
            _ => undone.extend(changed),
        }
        if undone.len() == before {
            return Err(Error::damage(LOG_FIRST, "records of operations that cannot have been"));
        }
    };
    let difference = difference::between(&world, now, moments)?;
    Ok(Plan {
        kept: asked.difference(&undone).copied().collect(),
        followed: undone.difference(&asked).copied().collect(),
        undone,
        dependents,
        difference,
    })
}

/// The operations up to one.
struct History<'s, P> {
    log: OperationLog<'s, P>,
    last: u64,
}

impl<P: Present> History<'_, P> {
    /// Tells of each operation from a number on.
    fn each(&self, first: u64, tell: &mut dyn FnMut(&Logged) -> Result<()>) -> Result<()> {
        let begin = self.log.block_of(first)?;
        for block in begin..=*self.log.blocks().end() {
            for logged in self.log.operations(block)? {
                if (first..=self.last).contains(&logged.number()) {
                    tell(&logged)?;
                }
            }
        }
        Ok(())
    }

    /// The operations that are to be undone together with some that are, and are not (`is_to_grow`);
    /// or that are undone and have to be kept, together with some that are.
    fn together(&self, undone: &BTreeSet<u64>, is_to_grow: bool) -> Result<BTreeSet<u64>> {
        type Group = (Seq, u128, u32, FileId);
        let mut all = BTreeSet::new();
        let mut groups: BTreeMap<Group, Vec<u64>> = BTreeMap::new();
        let mut transaction = Seq::ZERO;
        let mut settle = |groups: &mut BTreeMap<Group, Vec<u64>>| {
            for (_, numbers) in std::mem::take(groups) {
                let (inside, outside): (Vec<u64>, Vec<u64>) =
                    numbers.into_iter().partition(|number| undone.contains(number));
                if !inside.is_empty() && !outside.is_empty() {
                    all.extend(if is_to_grow { outside } else { inside });
                }
            }
        };
        let Some(first) = undone.first() else { return Ok(all) };
        let first = first.saturating_sub(TRANSACTION_MAX);
        self.each(first, &mut |logged| {
            let record = &logged.record;
            if record.seq_before != transaction {
                settle(&mut groups);
                transaction = record.seq_before;
            }
            if let Some(id) = touched(logged) {
                let group = (record.seq_before, record.origin.client, record.origin.uid, id);
                groups.entry(group).or_default().push(logged.number());
            }
            Ok(())
        })?;
        settle(&mut groups);
        Ok(all)
    }

    fn play<'a, B: Blocks>(
        &self,
        transactions: &'a Transactions,
        now: Seq,
        (undone, follow): (&BTreeSet<u64>, Follow),
        moments: Moments<'a, B>,
    ) -> Result<World<'a, B>> {
        let mut world = World::new(transactions, now, follow, moments);
        let Some(first) = undone.first() else { return Ok(world) };
        self.each(*first, &mut |logged| {
            if undone.contains(&logged.number()) {
                world.leave_out(logged);
                return Ok(());
            }
            world.play(logged)
        })?;
        Ok(world)
    }
}

/// The fault of a moment that is not kept.
pub(crate) fn not_kept() -> Error {
    Error::with_source(ErrorKind::NotFound, NotKept)
}

/// A moment that is needed is not in history.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("bytes of then are not in the history any more (its window, or its granularity)")]
pub struct NotKept;
