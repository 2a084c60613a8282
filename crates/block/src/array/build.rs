//! The layers of a stack, from the members up.

use std::io::{self, IoSlice};
use std::sync::Arc;

use format::label::Member;

use super::opening::ArrayError;
use super::renewed::Renewed;
use super::{MemberDevice, Shared, number_of};
use crate::layers::{
    CryptDevice, CryptError, CryptKey, DelayDevice, IntegrityDevice, IntegrityOptions, Keeper,
    KeySource, Layout, MirrorDevice, Mismatch, ParityDevice, Pause, Side, Standing, StripeDevice,
};
use crate::stack::Stack;
use crate::{BlockDevice, DeviceError, DeviceErrorKind, InTurn, Operation, Result, Together};

/// What layers need that is neither on the members nor in the stack's text.
pub struct Materials<'a> {
    /// Reads a key; the error is for people.
    pub key: &'a dyn Fn(&KeySource) -> std::result::Result<CryptKey, String>,
    /// Fills bytes with what nobody can guess.
    pub random: &'a dyn Fn(&mut [u8]),
    /// How the delay layer waits.
    pub pause: Pause,
    /// How several members are asked to make something durable.
    pub together: Arc<dyn Together>,
}

impl Materials<'_> {
    /// For stacks without `crypt` and `delay`.
    #[must_use]
    pub fn none() -> Materials<'static> {
        Materials {
            key: &|source| Err(format!("nobody reads {source} here")),
            random: &|bytes| bytes.fill(1),
            pause: Arc::new(|_| {}),
            together: Arc::new(InTurn),
        }
    }
}

type Device = Arc<dyn BlockDevice>;

/// Whether layers that keep something on what is below them are made, or are there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Making<'a> {
    New,
    There,
    /// There, on members that were these before some of them became longer.
    Longer(&'a [Member]),
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
        Stack::Integrity { below, .. } => {
            IntegrityDevice::<Device>::bytes_above(top_bytes(below, members))
        }
        Stack::Crypt { below, .. } => CryptDevice::<Device>::bytes_above(top_bytes(below, members)),
        Stack::Delay { below, .. } => top_bytes(below, members),
    }
}

/// Builds the layers of a stack whose members are numbers of these.
pub(super) fn build(
    shared: &Arc<Shared>,
    members: &[Arc<MemberDevice>],
    stack: &Stack,
    materials: &Materials<'_>,
    making: Making<'_>,
) -> std::result::Result<Device, ArrayError> {
    let all = |below: &[Stack]| {
        below
            .iter()
            .map(|s| build(shared, members, s, materials, making))
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
            let keeper = Arc::<Shared>::clone(shared) as Arc<dyn Keeper>;
            let ledger = Arc::clone(&shared.ledger);
            let mirror = MirrorDevice::new(sides(all(below)?, below), keeper, ledger);
            Arc::new(mirror.asked(Arc::clone(&materials.together)))
        }
        Stack::Parity { below, .. } => {
            let devices = all(below)?;
            let parity = parity(shared, layout(stack), devices, below, making)?;
            Arc::new(parity.asked(Arc::clone(&materials.together)))
        }
        Stack::Integrity { mismatch, below } => {
            let device = build(shared, members, below, materials, making)?;
            integrity(shared, members, (*mismatch, below), device, (materials, making))?
        }
        Stack::Crypt { key, below } => {
            let device = build(shared, members, below, materials, making)?;
            let bytes = CryptDevice::<Device>::bytes_above(device.len_bytes());
            match crypt(&device, key, materials, making) {
                Ok(device) => device,
                Err(CryptError::Device(error)) => missing(shared, below, bytes, error)?,
                Err(error @ CryptError::Header { .. }) if !all_in(shared, below) => {
                    let source = io::Error::other(error.to_string());
                    missing(shared, below, bytes, failure(Operation::Read, bytes, source))?
                }
                Err(error) => return Err(refused(&error)),
            }
        }
        Stack::Delay { delays, below } => {
            let device = build(shared, members, below, materials, making)?;
            Arc::new(DelayDevice::new(device, *delays, Arc::clone(&materials.pause)))
        }
    })
}

/// An integrity layer; one on a single member is made anew with it.
fn integrity(
    shared: &Arc<Shared>,
    members: &[Arc<MemberDevice>],
    (mismatch, below): (Mismatch, &Stack),
    device: Device,
    (materials, making): (&Materials<'_>, Making<'_>),
) -> std::result::Result<Device, ArrayError> {
    let options = IntegrityOptions { mismatch, ..IntegrityOptions::default() };
    if making == Making::New {
        let mut id = [0; 16];
        (materials.random)(&mut id);
        IntegrityDevice::format(&device, u128::from_le_bytes(id))?;
    }
    if let Making::Longer(before) = making {
        IntegrityDevice::extend(&device, top_bytes(below, before))?;
    }
    let bytes = IntegrityDevice::<Device>::bytes_above(device.len_bytes());
    let layer: Device = match IntegrityDevice::open(device, options, Arc::clone(&shared.ledger)) {
        Ok(device) => Arc::new(device),
        Err(error) => missing(shared, below, bytes, error)?,
    };
    let Stack::Member(number) = below else { return Ok(layer) };
    let number = number_of(number);
    let renewed = Renewed::new((number, &members[number]), options, &shared.ledger, layer);
    let renewed = Arc::new(renewed);
    shared.note_renewed(&renewed);
    Ok(renewed)
}

fn sides(devices: Vec<Device>, below: &[Stack]) -> Vec<Side> {
    let side = |(device, stack): (Device, &Stack)| Side { device, members: numbers(stack) };
    devices.into_iter().zip(below).map(side).collect()
}

fn parity(
    shared: &Arc<Shared>,
    layout: Layout,
    devices: Vec<Device>,
    below: &[Stack],
    making: Making<'_>,
) -> Result<ParityDevice> {
    let keeper = Arc::<Shared>::clone(shared) as Arc<dyn Keeper>;
    let ledger = Arc::clone(&shared.ledger);
    // Several parities of an array are told apart by their first members, which keep their numbers.
    let first = below.first().and_then(|side| numbers(side).into_iter().next());
    let id = shared.book.lock().label.array_id ^ first.expect("a side has a member") as u128;
    if making == Making::New {
        ParityDevice::format(&devices, layout, id)?;
    }
    let device = ParityDevice::open(sides(devices, below), layout, id, keeper, ledger)?;
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

fn all_in(shared: &Shared, stack: &Stack) -> bool {
    numbers(stack).iter().all(|&member| shared.standing_of(member) == Standing::In)
}

fn crypt(
    device: &Device,
    source: &KeySource,
    materials: &Materials<'_>,
    making: Making<'_>,
) -> std::result::Result<Device, CryptError> {
    let key = (materials.key)(source).map_err(|text| CryptError::KeySource {
        text: format!("{source} ({text})"),
        expected: "one that can be read",
    })?;
    if making == Making::New {
        CryptDevice::format(device, &key, &mut |bytes| (materials.random)(bytes))?;
    }
    Ok(Arc::new(CryptDevice::open(Arc::clone(device), &key)?))
}

fn refused(error: &CryptError) -> ArrayError {
    let hint = match error {
        CryptError::WrongKey { .. } => "give the key that the pool was made with",
        CryptError::KeySource { .. } => "the key is named in pool.stack",
        _ => "",
    };
    ArrayError::Refused { what: error.to_string(), hint: hint.to_owned() }
}

fn failure(operation: Operation, length_bytes: u64, source: io::Error) -> DeviceError {
    let (kind, device) = (DeviceErrorKind::Io, "a layer over a missing member".to_owned());
    DeviceError { kind, operation, offset: 0, length_bytes, device, source }
}

/// What stands for a layer whose members are not all in and that cannot be opened therefore.
fn missing(
    shared: &Shared,
    below: &Stack,
    len_bytes: u64,
    error: DeviceError,
) -> std::result::Result<Device, ArrayError> {
    if all_in(shared, below) {
        return Err(error.into());
    }
    Ok(Arc::new(Missing::new(len_bytes)))
}

/// A device that answers nothing.
pub(super) struct Missing {
    len_bytes: u64,
}

impl Missing {
    pub fn new(len_bytes: u64) -> Missing {
        Missing { len_bytes }
    }

    fn fail<T>(&self, operation: Operation) -> Result<T> {
        let source = io::Error::new(io::ErrorKind::NotFound, "a member is missing");
        Err(failure(operation, self.len_bytes, source))
    }
}

impl BlockDevice for Missing {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }
    fn read_at(&self, _offset: u64, _buffer: &mut [u8]) -> Result<()> {
        self.fail(Operation::Read)
    }
    fn write_at(&self, _offset: u64, _slices: &[IoSlice<'_>]) -> Result<()> {
        self.fail(Operation::Write)
    }
    fn flush(&self) -> Result<()> {
        self.fail(Operation::Flush)
    }
    fn allocate(&self, _offset: u64, _length_bytes: u64) -> Result<()> {
        self.fail(Operation::Allocate)
    }
    fn discard(&self, _offset: u64, _length_bytes: u64) -> Result<()> {
        self.fail(Operation::Discard)
    }
    fn describe(&self) -> String {
        "missing".to_owned()
    }
}
