//! Moments between two recorded ones: each is the state after whole operations, of each client
//! after some of its own in their order, and of all in an order that fits what they saw.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use super::client::{Step, told};
use super::look::{Times, Walked, compare};
use super::model::{Id, Op, Tree, User};

/// Operations that are under way together, of which all that may be there are tried.
const TRIED_MAX: usize = 4;

/// What a client did in a storm.
pub(super) struct Done {
    pub user: User,
    pub top: Id,
    pub steps: Vec<Step>,
}

/// How far a client came: so many whole steps, and whether it was in the middle of one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reached {
    whole: usize,
    has_part: bool,
}

/// How far each client may have come in what was found, of a tree before the storm; `least` is how
/// far it was before.
pub(super) fn reached(
    before: &Tree,
    done: &[Done],
    walked: &Walked,
    least: &mut Vec<Reached>,
) -> Result<()> {
    least.resize(done.len(), Reached { whole: 0, has_part: false });
    let mut all = Vec::new();
    for (client, least) in done.iter().zip(least.iter()) {
        let found = below(before, client.top, walked)?;
        let states = states(before, client, &found, *least);
        if states.is_empty() {
            let mut tree = before.clone();
            let mut faults = String::new();
            for step in &client.steps {
                let fault = compare(&tree, client.top, &found, Times::Any).err();
                let fault = fault.map(|fault| format!("{fault:#}")).unwrap_or_default();
                let ops: Vec<String> = step.ops.iter().map(told).collect();
                faults.push_str(&format!("\n{fault}\nthen {}", ops.join(" + ")));
                tree.apply_all(&step.ops, client.user);
            }
            bail!("the tree of {:?} is after no number of its operations:{faults}", client.user);
        }
        all.push(states);
    }
    let mut chosen = Vec::new();
    if !choose(done, &all, &mut chosen) {
        bail!("an operation is there without one that was answered before it was sent: {all:?}");
    }
    for (least, states) in least.iter_mut().zip(&all) {
        *least = states[0];
    }
    Ok(())
}

/// What is found below a client's directory.
fn below(before: &Tree, top: Id, walked: &Walked) -> Result<Walked> {
    let place = before.places(super::model::ROOT).into_iter().find(|place| place.id == top);
    let path = place.context("the directory of a client")?.path;
    let inside = walked.iter().filter_map(|(at, found)| {
        let rest = at.strip_prefix(&path[..])?;
        let is_below = rest.is_empty() || rest[0] == b'/';
        is_below.then(|| (rest.to_vec(), found.clone()))
    });
    Ok(inside.collect())
}

/// All that the client may have done.
fn states(before: &Tree, client: &Done, found: &Walked, least: Reached) -> Vec<Reached> {
    let mut states = Vec::new();
    let mut tree = before.clone();
    let mut fits = |tree: &Tree, whole, has_part| {
        let reached = Reached { whole, has_part };
        if reached >= least && compare(tree, client.top, found, Times::Any).is_ok() {
            states.push(reached);
        }
    };
    fits(&tree, 0, false);
    for (whole, step) in client.steps.iter().enumerate() {
        if step.ops.len() > 1 {
            for part in parts(&step.ops, client.top, &tree, found) {
                let mut partly = tree.clone();
                partly.apply_all(part, client.user);
                fits(&partly, whole, true);
            }
        }
        tree.apply_all(&step.ops, client.user);
        fits(&tree, whole + 1, false);
    }
    states.dedup();
    states
}

/// Those of some operations that may be there: of many, which make or take names, those whose names
/// are as they leave them.
fn parts<'o>(ops: &'o [Op], top: Id, tree: &Tree, found: &Walked) -> Vec<Vec<&'o Op>> {
    if ops.len() <= TRIED_MAX {
        let subsets = 1..(1_u32 << ops.len()) - 1;
        let chosen = |bits: u32| {
            let is_in = |(at, _): &(usize, &'o Op)| bits >> at & 1 == 1;
            ops.iter().enumerate().filter(is_in).map(|(_, op)| op).collect()
        };
        return subsets.map(chosen).collect();
    }
    let mut paths = BTreeMap::from([(top, Vec::new())]);
    paths.extend(tree.places(top).into_iter().map(|place| (place.id, place.path)));
    let is_there = |dir: &Id, name: &[u8]| {
        let path = paths.get(dir).map(|above| [&above[..], b"/", name].concat());
        path.is_some_and(|path| found.contains_key(&path))
    };
    let is_done = |op: &&Op| match op {
        Op::Create { dir, name, .. } => is_there(dir, name),
        Op::Remove { dir, name } => !is_there(dir, name),
        _ => true,
    };
    vec![ops.iter().filter(is_done).collect()]
}

/// Whether there is a choice of how far each client came in which nothing is there without what was
/// answered before it was sent.
fn choose(done: &[Done], all: &[Vec<Reached>], chosen: &mut Vec<Reached>) -> bool {
    let at = chosen.len();
    if at == all.len() {
        return true;
    }
    for &reached in &all[at] {
        chosen.push(reached);
        let fits = (0..at).all(|other| {
            is_ordered(&done[other], chosen[other], &done[at], reached)
                && is_ordered(&done[at], reached, &done[other], chosen[other])
        });
        if fits && choose(done, all, chosen) {
            return true;
        }
        chosen.pop();
    }
    false
}

/// Whether all that the last operation of one needs of another is there.
fn is_ordered(one: &Done, reached: Reached, other: &Done, others: Reached) -> bool {
    let last = (reached.whole + usize::from(reached.has_part)).checked_sub(1);
    let Some(last) = last else { return true };
    // Wholly there are those below `whole`.
    let Some(missing) = other.steps.get(others.whole) else { return true };
    missing.done > one.steps[last].sent
}
