//! The layers of a stack, from the members up.

use std::sync::Arc;

use format::label::Member;

use super::candidate::{ArrayError, refused};
use super::kept::{Kept, Unopened, base_of, of_layer};
use super::materials::{Device, Materials, missing};
use super::member::MemberDevice;
use super::renewed::Renewed;
use super::shared::{Shared, is_readable, number_of};
use crate::layers::{
    CryptDevice, CryptError, Keeper, KeySource, Layout, MirrorDevice, ParityDevice, Setting, Side,
    Standing, StripeDevice,
};
use crate::stack::Stack;
use crate::{Result, Together};

/// Whether layers that keep something on what is below them are made, or are there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Making {
    New,
    There,
}

/// How long the top of a stack is.
pub(super) fn top_bytes(stack: &Stack, members: &[Member]) -> u64 {
    let least = |below: &[Stack]| below.iter().map(|s| top_bytes(s, members)).min().unwrap_or(0);
    match stack {
        Stack::Member(number) => members[number_of(number)].data_bytes,
        Stack::Stripe { chunk_bytes, below } => {
            least(below) / chunk_bytes * chunk_bytes * below.len() as u64
        }
        Stack::Concat { below } => below.iter().map(|s| top_bytes(s, members)).sum(),
        Stack::Mirror { below } => least(below),
        Stack::Parity { below, .. } => layout(stack).len_bytes(least(below)),
        Stack::Crypt { below, .. } => CryptDevice::bytes_above(top_bytes(below, members)),
    }
}

/// Fails if a part of a stack has no bytes above it.
///
/// # Errors
/// `Refused`, with the lowest such part.
pub(super) fn check_room(stack: &Stack, members: &[Member]) -> std::result::Result<(), ArrayError> {
    stack.below().iter().try_for_each(|part| check_room(part, members))?;
    if top_bytes(stack, members) > 0 {
        return Ok(());
    }
    let named = stack.renamed(&mut |number| members[number_of(number)].path.clone());
    let what = format!("{named} has no room for anything but what it keeps itself");
    let hint = "longer members; a parity takes four times its journal= of each of its sides";
    Err(refused(what, hint))
}

/// Builds the layers of a stack whose members are numbers of these.
pub(super) fn build(
    shared: &Arc<Shared>,
    members: &[Arc<MemberDevice>],
    stack: &Stack,
    materials: &Materials<'_>,
    making: Making,
) -> std::result::Result<Device, ArrayError> {
    build_at(0, shared, members, stack, materials, making)
}

/// The same so deep in a stack.
fn build_at(
    depth: usize,
    shared: &Arc<Shared>,
    members: &[Arc<MemberDevice>],
    stack: &Stack,
    materials: &Materials<'_>,
    making: Making,
) -> std::result::Result<Device, ArrayError> {
    let all = |below: &[Stack]| {
        below
            .iter()
            .map(|s| build_at(depth + 1, shared, members, s, materials, making))
            .collect::<std::result::Result<Vec<_>, _>>()
    };
    Ok(match stack {
        Stack::Member(number) => Arc::<MemberDevice>::clone(&members[number_of(number)]) as Device,
        Stack::Stripe { chunk_bytes, below } => {
            let stripe = StripeDevice::new(all(below)?, *chunk_bytes);
            Arc::new(stripe.asked(Arc::clone(&materials.together)))
        }
        Stack::Concat { below } => {
            Arc::new(StripeDevice::concat(all(below)?).asked(Arc::clone(&materials.together)))
        }
        Stack::Mirror { below } => {
            let setting = setting(shared, &materials.together, depth);
            Arc::new(MirrorDevice::new(sides(all(below)?, below), setting))
        }
        Stack::Parity { below, .. } => {
            let devices = all(below)?;
            let setting = setting(shared, &materials.together, depth);
            Arc::new(parity(shared, layout(stack), (devices, below), setting, making)?)
        }
        Stack::Crypt { .. } => over(depth, shared, members, stack, materials, making)?,
    })
}

/// How a layer of an array stands.
pub(super) fn setting(shared: &Arc<Shared>, together: &Arc<dyn Together>, depth: usize) -> Setting {
    let keeper = Arc::<Shared>::clone(shared) as Arc<dyn Keeper>;
    let (ledger, together) = (Arc::clone(&shared.ledger), Arc::clone(together));
    Setting { keeper, ledger, together, depth }
}

/// The mirror that a stack is, if its sides are single members.
pub(super) fn plain_mirror(
    shared: &Arc<Shared>,
    stack: &Stack,
    together: &Arc<dyn Together>,
) -> Option<Arc<MirrorDevice>> {
    let Stack::Mirror { below } = stack else { return None };
    let members = shared.members();
    let device = |side: &Stack| match side {
        Stack::Member(number) => {
            Some(Arc::<MemberDevice>::clone(&members[number_of(number)]) as Device)
        }
        _ => None,
    };
    let devices = below.iter().map(device).collect::<Option<Vec<_>>>()?;
    Some(Arc::new(MirrorDevice::new(sides(devices, below), setting(shared, together, 0))))
}

/// Layers over one thing; those of a single member are made anew with it.
fn over(
    depth: usize,
    shared: &Arc<Shared>,
    members: &[Arc<MemberDevice>],
    stack: &Stack,
    materials: &Materials<'_>,
    making: Making,
) -> std::result::Result<Device, ArrayError> {
    let base = base_of(stack);
    let kept = Kept::of(stack, materials)?;
    let below = depth + kept.count();
    let kept = if matches!(base, Stack::Member(_)) { kept } else { kept.at_depth(depth) };
    let device = build_at(below, shared, members, base, materials, making)?;
    if making == Making::New {
        kept.make(&device).map_err(of_layer)?;
    }
    let bytes = kept.bytes_above(device.len_bytes());
    let layer = match kept.open(device) {
        Ok(layer) => layer,
        // Nobody reads it until its members are in.
        Err(_) if !can_be_read(shared, base) => missing(bytes),
        Err(unopened) => return Err(of_layer(unopened.error)),
    };
    let Stack::Member(number) = base else { return Ok(layer) };
    let number = number_of(number);
    let renewed = Arc::new(Renewed::new((number, &members[number]), kept, (layer, depth)));
    shared.note_renewed(&renewed);
    Ok(renewed)
}

/// Members whose layers cannot be opened, though they are there, and why.
pub(super) struct Unusable {
    pub members: Vec<usize>,
    pub error: CryptError,
}

/// What was found of the layers over members.
#[derive(Default)]
struct Looked {
    unopened: Vec<(Vec<usize>, Unopened)>,
    /// Keys that opened something.
    right_keys: Vec<KeySource>,
}

/// The members whose layers cannot be opened, as far as others may be enough: they are out from now
/// on. Nothing is written but to copies of headers that are wrong.
///
/// # Errors
/// When a key cannot be had, or one opens nothing at all: rather it is wrong than a member.
pub(super) fn unusable(
    shared: &Arc<Shared>,
    stack: &Stack,
    materials: &Materials<'_>,
) -> std::result::Result<Vec<Unusable>, ArrayError> {
    let mut looked = Looked::default();
    look(shared, stack, materials, &mut looked)?;
    let Looked { unopened, right_keys } = looked;
    let judge = |(members, Unopened { error, key }): (Vec<usize>, Unopened)| {
        let is_known = right_keys.contains(&key);
        match error {
            CryptError::WrongKey { .. } if !is_known => Err(of_layer(error)),
            error => Ok(Unusable { members, error }),
        }
    };
    unopened.into_iter().map(judge).collect()
}

fn look(
    shared: &Arc<Shared>,
    stack: &Stack,
    materials: &Materials<'_>,
    looked: &mut Looked,
) -> std::result::Result<(), ArrayError> {
    let base = match stack {
        Stack::Member(_) => return Ok(()),
        Stack::Stripe { below, .. }
        | Stack::Concat { below }
        | Stack::Mirror { below }
        | Stack::Parity { below, .. } => {
            return below.iter().try_for_each(|s| look(shared, s, materials, looked));
        }
        Stack::Crypt { .. } => base_of(stack),
    };
    let before = looked.unopened.len();
    look(shared, base, materials, looked)?;
    let numbers = numbers(base);
    // What is over a parity nothing else is instead of, and a parity that is opened writes.
    let is_to_be_opened = !base.has_parity()
        && match base.has_copies() {
            true => can_be_read(shared, base),
            // One that comes back is not in, but is to be brought up to date.
            false => {
                looked.unopened.len() == before
                    && numbers.iter().all(|&member| shared.member(member).is_there())
            }
        };
    if !is_to_be_opened {
        return Ok(());
    }
    let kept = Kept::of(stack, materials)?;
    let device = build(shared, &shared.members(), base, materials, Making::There)?;
    match kept.open(device) {
        Ok(_) => looked.right_keys.extend(kept.keys().cloned()),
        Err(unopened) => {
            numbers.iter().for_each(|&member| shared.set_standing(member, Standing::Out));
            looked.unopened.push((numbers, unopened));
        }
    }
    Ok(())
}

/// Whether members that are in are enough for a part of the stack.
fn can_be_read(shared: &Shared, stack: &Stack) -> bool {
    is_readable(stack, &|member| shared.standing_of(member) == Standing::In)
}

fn sides(devices: Vec<Device>, below: &[Stack]) -> Vec<Side> {
    let side = |(device, stack): (Device, &Stack)| Side { device, members: numbers(stack) };
    devices.into_iter().zip(below).map(side).collect()
}

fn parity(
    shared: &Arc<Shared>,
    layout: Layout,
    (devices, below): (Vec<Device>, &[Stack]),
    setting: Setting,
    making: Making,
) -> Result<ParityDevice> {
    // Several parities of an array are told apart by their first members, which keep their numbers.
    let first = below.first().and_then(|side| numbers(side).into_iter().next());
    let id = shared.book.lock().label.array_id ^ first.expect("a side has a member") as u128;
    if making == Making::New {
        ParityDevice::format(&devices, layout, id)?;
    }
    let device = ParityDevice::open(sides(devices, below), layout, id, setting)?;
    if making == Making::New {
        device.forget_all();
    }
    Ok(device)
}

/// How a parity is laid out.
fn layout(stack: &Stack) -> Layout {
    let Stack::Parity { failures, chunk_bytes, journal_bytes, below } = stack else {
        unreachable!("asked of parities only")
    };
    Layout {
        sides: below.len(),
        parities: *failures,
        chunk_bytes: *chunk_bytes,
        slot_bytes: *journal_bytes,
    }
}

fn numbers(stack: &Stack) -> Vec<usize> {
    stack.members().into_iter().map(number_of).collect()
}
