//! Repair: the share as it would be without some operations (RFS).
//!
//! **The result is the tree after all operations but those that are undone**, in their order. An
//! operation that is kept and cannot be done without one that is to be undone either keeps that one
//! (the default), or is undone with it ([`Follow`]); so all that are kept are done as they were.
//! Only the removal of what would not have been made is left out: it is not there.
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
mod kinds;
mod moments;
mod ranges;
mod steps;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use format::share::operation::Procedure;
use format::share::place::LOG_FIRST;
use units::{FileId, Seq, WallTime};

use crate::blocks::{Blocks, Present};
use crate::error::{Error, ErrorKind, Result};
use crate::operation_log::{Logged, OperationLog, Transactions};
use crate::share::Share;

use effects::touched;
use world::{Conflict, World};

pub use apply::{Applied, apply};
pub use difference::{Change, Difference};
pub use kinds::{Entangled, Follow, Reason};
pub use moments::Moments;

/// An operation, and why it is undone though nobody named it, or another not though somebody did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependent {
    /// The operation that is kept, or follows.
    pub operation: Logged,
    /// The relation.
    pub reason: Reason,
    /// Operations on which it stands, that were to be undone: some of them, if it follows.
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
    /// The operations that stand on others, and so kept them, or followed them: the first of them.
    pub dependents: Vec<Dependent>,
    /// The difference to the share as it is.
    pub difference: Difference,
}

/// The operations that are to be undone.
pub struct Request<'a> {
    /// None is older.
    pub since: WallTime,
    /// Asked of each, from the oldest on.
    pub named: &'a mut dyn FnMut(&Logged) -> Result<bool>,
    /// Those that are undone with them.
    pub follow: Follow,
    /// Since when reads are in the log, if they are.
    pub reads_since: Option<WallTime>,
    /// Asked at times whether to go on; if not, the plan fails with `Unusable`.
    pub goes_on: &'a dyn Fn() -> bool,
}

/// Dependents that are told.
const DEPENDENTS_MAX: usize = 10_000;
/// How often operations are played with more of them left out, or fewer.
const PASSES_MAX: usize = 200;

/// Plans a repair: nothing is changed.
///
/// # Errors
/// `NotFound` if a moment that is needed is not kept any more; `Invalid` of operations that cannot
/// be disentangled; `Corrupt`, `Storage`, `Unusable`.
pub fn plan<P: Present, B: Blocks>(
    share: &Share<P>,
    moments: &Moments<'_, B>,
    request: &mut Request<'_>,
) -> Result<Plan> {
    let last = moments.present.state().operation;
    let log = share.operation_log();
    let oldest = log.operations(log.block_since(request.since)?)?;
    let oldest = oldest.first().map_or(0, Logged::number);
    let history = History { log, last, goes_on: request.goes_on };
    let mut undone = BTreeSet::new();
    history.each(oldest, &mut |logged| {
        if logged.record.procedure == Procedure::Read || !(request.named)(logged)? {
            return Ok(());
        }
        let has_reads = request.reads_since.is_some_and(|since| since <= logged.record.time);
        if request.follow == Follow::Reads && !has_reads {
            return Err(Error::with_source(ErrorKind::Invalid, Entangled::Reads));
        }
        undone.insert(logged.number());
        Ok(())
    })?;
    let asked = undone.clone();
    let follow = request.follow;
    let mut dependents = Vec::new();
    let grown = history.together(&undone, true)?;
    undone.extend(grown);
    let transactions = history.transactions(undone.first().copied())?;
    for _ in 0..PASSES_MAX {
        let world = history.play(&transactions, (&undone, follow), moments)?;
        if world.conflicts.is_empty() {
            let difference = difference::between(&world, moments)?;
            return Ok(Plan {
                kept: asked.difference(&undone).copied().collect(),
                followed: undone.difference(&asked).copied().collect(),
                undone,
                dependents,
                difference,
            });
        }
        let before = undone.len();
        settle(&mut undone, world.conflicts, follow, &mut dependents);
        let changed = history.together(&undone, follow != Follow::Nothing)?;
        match follow {
            Follow::Nothing => undone.retain(|number| !changed.contains(number)),
            _ => undone.extend(changed),
        }
        if undone.len() == before {
            return Err(Error::damage(LOG_FIRST, "records of operations that cannot have been"));
        }
    }
    Err(Error::with_source(ErrorKind::Invalid, Entangled::Chain))
}

/// Keeps the operations that conflicts stand on, or lets these follow.
fn settle(
    undone: &mut BTreeSet<u64>,
    conflicts: Vec<Conflict>,
    follow: Follow,
    dependents: &mut Vec<Dependent>,
) {
    for Conflict { operation, reason, on } in conflicts {
        match follow {
            Follow::Nothing => {
                for number in &on {
                    undone.remove(number);
                }
            }
            _ => {
                undone.insert(operation.number());
            }
        }
        if dependents.len() < DEPENDENTS_MAX {
            dependents.push(Dependent { operation, reason, on });
        }
    }
}

/// The operations up to one.
struct History<'s, P> {
    log: OperationLog<'s, P>,
    last: u64,
    goes_on: &'s dyn Fn() -> bool,
}

/// The operations that one sender did to an object in one transaction.
type Group = (Seq, u128, u32, FileId);

impl<P: Present> History<'_, P> {
    /// Tells of each operation from a number on.
    fn each(&self, first: u64, tell: &mut dyn FnMut(&Logged) -> Result<()>) -> Result<()> {
        let mut number = 0;
        for block in self.log.block_of(first)?..=*self.log.blocks().end() {
            if !(self.goes_on)() {
                return Err(Error::from(ErrorKind::Unusable));
            }
            for logged in self.log.operations(block)? {
                if logged.number() <= number {
                    return Err(Error::damage(LOG_FIRST, "numbers of operations that fall"));
                }
                number = logged.number();
                if (first..=self.last).contains(&number) {
                    tell(&logged)?;
                }
            }
        }
        Ok(())
    }

    /// The first operation of the transaction that an operation is in, as far as it is kept; and
    /// the one before it.
    fn begin(&self, operation: u64) -> Result<(u64, Option<Logged>)> {
        let (mut first, mut seq) = (operation, None);
        for block in (*self.log.blocks().start()..=self.log.block_of(operation)?).rev() {
            for logged in self.log.operations(block)?.into_iter().rev() {
                if logged.number() > operation {
                    continue;
                }
                if *seq.get_or_insert(logged.record.seq_before) != logged.record.seq_before {
                    return Ok((first, Some(logged)));
                }
                first = logged.number();
            }
        }
        Ok((first, None))
    }

    /// The transactions from that of an operation on.
    fn transactions(&self, first: Option<u64>) -> Result<Transactions> {
        let mut transactions = Transactions::default();
        let Some(first) = first else { return Ok(transactions) };
        let (first, before) = self.begin(first)?;
        before.iter().for_each(|logged| transactions.see_before(logged));
        self.each(first, &mut |logged| {
            transactions.see(logged);
            Ok(())
        })?;
        Ok(transactions)
    }

    /// The operations that are to be undone together with some that are, and are not
    /// (`is_to_grow`); or that are undone and have to be kept, together with some that are.
    fn together(&self, undone: &BTreeSet<u64>, is_to_grow: bool) -> Result<BTreeSet<u64>> {
        let mut all = BTreeSet::new();
        let Some(first) = undone.first() else { return Ok(all) };
        let (first, _) = self.begin(*first)?;
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
        (undone, follow): (&BTreeSet<u64>, Follow),
        moments: &'a Moments<'a, B>,
    ) -> Result<World<'a, B>> {
        let mut world = World::new(transactions, follow, moments);
        let Some(first) = undone.first() else { return Ok(world) };
        self.each(*first, &mut |logged| {
            if world.is_full() {
                return Ok(());
            }
            if let Procedure::Other(_) = logged.record.procedure {
                return Err(Error::with_source(ErrorKind::Invalid, Entangled::Unknown));
            }
            match undone.contains(&logged.number()) {
                true => world.leave_out(logged),
                false => world.play(logged)?,
            }
            Ok(())
        })?;
        Ok(world)
    }
}
