//! Mode pages: caching, control, informational exceptions, and the thresholds of provisioning.
//!
//! MODE SELECT may send a page only as it stands but for what is changeable: the write cache,
//! descriptor sense data, and software write protection. It is decoded as the state that it asks
//! for, or refused as a whole.

use super::command::{ModeSense, PageControl};
use super::sense::{Code, Sense};
use crate::fields::{be16, be24, be32, be64, put};

/// Read and write error recovery: says that thresholds are told.
pub const RECOVERY: u8 = 0x01;
/// Caching.
pub const CACHING: u8 = 0x08;
/// Control.
pub const CONTROL: u8 = 0x0a;
/// Informational exceptions; subpage 2 has the thresholds.
pub const EXCEPTIONS: u8 = 0x1c;
/// Subpage of `EXCEPTIONS`: logical block provisioning.
pub const PROVISIONING_SUBPAGE: u8 = 0x02;
/// All pages.
pub const ALL_PAGES: u8 = 0x3f;
/// All subpages.
pub const ALL_SUBPAGES: u8 = 0xff;

/// The values that MODE SELECT may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeState {
    /// WCE: acknowledged is not durable yet.
    pub write_cache: bool,
    /// D_SENSE: sense data has descriptors.
    pub descriptor_sense: bool,
    /// SWP: writes are refused.
    pub software_protected: bool,
}

impl Default for ModeState {
    fn default() -> ModeState {
        ModeState { write_cache: true, descriptor_sense: false, software_protected: false }
    }
}

/// A threshold of used room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Sets of blocks that are used, from which a unit attention is due.
    pub sets: u32,
}

/// The unit that mode pages tell of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit<'a> {
    /// Blocks of the unit.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Writes are refused, for whichever reason.
    pub is_protected: bool,
    /// FUA and DPO are obeyed.
    pub obeys_fua: bool,
    /// The values in force.
    pub state: ModeState,
    /// Thresholds; none without thin provisioning.
    pub thresholds: &'a [Threshold],
}

/// Most thresholds of a unit.
pub const THRESHOLDS_MAX: usize = 16;

/// Appends the answer to MODE SENSE.
///
/// # Errors
/// For pages that there are not, and for saved values.
///
/// # Panics
/// With more than 16 thresholds.
pub fn put_sense(command: &ModeSense, unit: &Unit<'_>, out: &mut Vec<u8>) -> Result<(), Sense> {
    assert!(unit.thresholds.len() <= THRESHOLDS_MAX, "few thresholds");
    if command.control == PageControl::Saved {
        return Err(Sense::illegal(Code::NO_SAVING));
    }
    if command.page == ALL_PAGES && ![0, ALL_SUBPAGES].contains(&command.subpage) {
        return Err(Sense::cdb_field(3, None));
    }
    let mut pages = Vec::new();
    for (page, subpage) in [
        (RECOVERY, 0),
        (CACHING, 0),
        (CONTROL, 0),
        (EXCEPTIONS, 0),
        (EXCEPTIONS, PROVISIONING_SUBPAGE),
    ] {
        let is_page = [ALL_PAGES, page].contains(&command.page);
        let is_subpage = [ALL_SUBPAGES, subpage].contains(&command.subpage);
        if is_page && is_subpage {
            put_page(page, subpage, command.control, unit, &mut pages);
        }
    }
    if pages.is_empty() {
        return Err(Sense::cdb_field(if known(command.page) { 3 } else { 2 }, None));
    }
    let descriptor = descriptor(command, unit);
    put_header(command.is_ten, unit, descriptor.len(), pages.len(), out);
    out.extend_from_slice(&descriptor);
    out.extend_from_slice(&pages);
    Ok(())
}

const fn known(page: u8) -> bool {
    matches!(page, RECOVERY | CACHING | CONTROL | EXCEPTIONS | ALL_PAGES)
}

fn put_header(is_ten: bool, unit: &Unit<'_>, descriptor: usize, pages: usize, out: &mut Vec<u8>) {
    let protected = if unit.is_protected { 0x80 } else { 0 };
    let parameter = protected | if unit.obeys_fua { 0x10 } else { 0 };
    let descriptor_bytes = u8::try_from(descriptor).expect("16 at most");
    if is_ten {
        let length = u16::try_from(6 + descriptor + pages).expect("short pages");
        let long = u8::from(descriptor == LONG_DESCRIPTOR_BYTES);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&[0, parameter, long, 0, 0, descriptor_bytes]);
    } else {
        // The length of MODE SENSE(6) has one byte: at most 4 + 8 + 12 + 20 + 12 + 12
        // + 144.
        let length = u8::try_from(3 + descriptor + pages).expect("short pages");
        out.extend_from_slice(&[length, 0, parameter, descriptor_bytes]);
    }
}

const SHORT_DESCRIPTOR_BYTES: usize = 8;
const LONG_DESCRIPTOR_BYTES: usize = 16;

/// The block descriptor: the long one where it is allowed, else one of 32 bits.
fn descriptor(command: &ModeSense, unit: &Unit<'_>) -> Vec<u8> {
    if command.no_descriptor {
        return Vec::new();
    }
    if command.long_descriptor {
        let mut descriptor = vec![0; LONG_DESCRIPTOR_BYTES];
        put(&mut descriptor, 0, &unit.blocks.to_be_bytes());
        put(&mut descriptor, 12, &unit.block_bytes.to_be_bytes());
        return descriptor;
    }
    let mut descriptor = vec![0; SHORT_DESCRIPTOR_BYTES];
    put(&mut descriptor, 0, &u32::try_from(unit.blocks).unwrap_or(u32::MAX).to_be_bytes());
    let [_, high, middle, low] = unit.block_bytes.to_be_bytes();
    put(&mut descriptor, 5, &[high, middle, low]);
    descriptor
}

/// Appends one page with the values that are asked for.
fn put_page(page: u8, subpage: u8, control: PageControl, unit: &Unit<'_>, out: &mut Vec<u8>) {
    let state = match control {
        PageControl::Current | PageControl::Saved => Some(unit.state),
        PageControl::Default => Some(ModeState::default()),
        PageControl::Changeable => None,
    };
    match (page, subpage) {
        (RECOVERY, _) => put_recovery(state.is_some() && !unit.thresholds.is_empty(), out),
        (CACHING, _) => put_caching(state, out),
        (CONTROL, _) => put_control(state, out),
        (EXCEPTIONS, 0) => put_exceptions(state.is_some(), out),
        _ => put_thresholds(state.is_some(), unit.thresholds, out),
    }
}

const fn bit(set: bool, mask: u8) -> u8 {
    if set { mask } else { 0 }
}

const WCE: u8 = 0x04;
const D_SENSE: u8 = 0x04;
const SWP: u8 = 0x08;

fn put_recovery(tells_thresholds: bool, out: &mut Vec<u8>) {
    /// LBPERE: logical block provisioning error reporting enabled.
    const PROVISIONING_TOLD: u8 = 0x80;
    out.extend_from_slice(&[RECOVERY, 0x0a, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&[bit(tells_thresholds, PROVISIONING_TOLD), 0, 0, 0, 0]);
}

/// The caching page; without a state, the mask of what may change.
fn put_caching(state: Option<ModeState>, out: &mut Vec<u8>) {
    let start = out.len();
    let cache = state.is_none_or(|state| state.write_cache);
    out.extend_from_slice(&[CACHING, 0x12, bit(cache, WCE)]);
    out.resize(start + 20, 0);
}

fn put_control(state: Option<ModeState>, out: &mut Vec<u8>) {
    /// Simple tasks run in any order.
    const UNRESTRICTED: u8 = 0x10;
    let descriptor = state.is_none_or(|state| state.descriptor_sense);
    let protected = state.is_none_or(|state| state.software_protected);
    let reorder = bit(state.is_some(), UNRESTRICTED);
    // The busy timeout is unlimited.
    let busy = bit(state.is_some(), 0xff);
    out.extend_from_slice(&[CONTROL, 0x0a, bit(descriptor, D_SENSE), reorder]);
    out.extend_from_slice(&[bit(protected, SWP), 0, 0, 0, busy, busy, 0, 0]);
}

fn put_exceptions(is_value: bool, out: &mut Vec<u8>) {
    /// DEXCPT: exceptions are not reported.
    const DISABLED: u8 = 0x08;
    out.extend_from_slice(&[EXCEPTIONS, 0x0a, bit(is_value, DISABLED), 0]);
    out.extend_from_slice(&[0; 8]);
}

fn put_thresholds(is_value: bool, thresholds: &[Threshold], out: &mut Vec<u8>) {
    const SUBPAGE_FORMAT: u8 = 0x40;
    /// Enabled, and armed where more becomes used.
    const ARMED: u8 = 0x81;
    const USED: u8 = 0x02;
    let length = u16::try_from(12 + 8 * thresholds.len()).expect("few thresholds");
    out.extend_from_slice(&[SUBPAGE_FORMAT | EXCEPTIONS, PROVISIONING_SUBPAGE]);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&[0; 12]);
    for threshold in thresholds {
        let sets = if is_value { threshold.sets } else { 0 };
        out.extend_from_slice(&[bit(is_value, ARMED), bit(is_value, USED), 0, 0]);
        out.extend_from_slice(&sets.to_be_bytes());
    }
}

/// The state that the parameter list of MODE SELECT asks for. Its length is that of the CDB.
///
/// # Errors
/// When the list is cut short, names a page that there is not, or changes what is not changeable:
/// then nothing of it holds.
pub fn select(is_ten: bool, list: &[u8], unit: &Unit<'_>) -> Result<ModeState, Sense> {
    const LENGTH: Sense = Sense::illegal(Code::PARAMETER_LIST_LENGTH);
    let mut state = unit.state;
    if list.is_empty() {
        return Ok(state);
    }
    let header = if is_ten { 8 } else { 4 };
    let Some((head, rest)) = list.split_at_checked(header) else { return Err(LENGTH) };
    let (descriptor_bytes, is_long) = if is_ten {
        (usize::from(be16(head, 6)), head[4] & 1 != 0)
    } else {
        (usize::from(head[3]), false)
    };
    let (descriptor, mut pages) = rest.split_at_checked(descriptor_bytes).ok_or(LENGTH)?;
    check_descriptor(descriptor, is_long, header, unit)?;
    while !pages.is_empty() {
        let at = list.len() - pages.len();
        let length = page_bytes(pages).ok_or(LENGTH)?;
        let (page, rest) = pages.split_at_checked(length).ok_or(LENGTH)?;
        select_page(page, at, unit, &mut state)?;
        pages = rest;
    }
    Ok(state)
}

/// Bytes of the page at the start, as it says.
fn page_bytes(pages: &[u8]) -> Option<usize> {
    if pages.first()? & 0x40 == 0 {
        return Some(2 + usize::from(*pages.get(1)?));
    }
    let header = pages.first_chunk::<4>()?;
    Some(4 + usize::from(be16(header, 2)))
}

/// A block descriptor may only say what is so: a format with other blocks is not to be had.
fn check_descriptor(
    descriptor: &[u8],
    is_long: bool,
    at: usize,
    unit: &Unit<'_>,
) -> Result<(), Sense> {
    let (blocks, block_bytes) = match (descriptor.len(), is_long) {
        (0, _) => return Ok(()),
        (SHORT_DESCRIPTOR_BYTES, false) => {
            let blocks = match be32(descriptor, 0) {
                u32::MAX => unit.blocks,
                blocks => u64::from(blocks),
            };
            (blocks, be24(descriptor, 5))
        }
        (LONG_DESCRIPTOR_BYTES, true) => (be64(descriptor, 0), be32(descriptor, 12)),
        _ => return Err(parameter(at - 1, None)),
    };
    if blocks != 0 && blocks != unit.blocks {
        return Err(parameter(at, None));
    }
    if block_bytes != unit.block_bytes {
        return Err(parameter(at + if is_long { 12 } else { 5 }, None));
    }
    Ok(())
}

fn parameter(byte: usize, bit: Option<u8>) -> Sense {
    Sense::parameter(u16::try_from(byte).unwrap_or(u16::MAX), bit)
}

/// Takes up one page, which stands at `at` in the list.
fn select_page(
    page: &[u8],
    at: usize,
    unit: &Unit<'_>,
    state: &mut ModeState,
) -> Result<(), Sense> {
    let number = page[0] & 0x3f;
    let subpage = if page[0] & 0x40 == 0 { 0 } else { page[1] };
    match (number, subpage) {
        (RECOVERY | CACHING | CONTROL | EXCEPTIONS, 0) | (EXCEPTIONS, PROVISIONING_SUBPAGE) => {}
        _ => return Err(parameter(at, Some(5))),
    }
    let (mut now, mut mask) = (Vec::new(), Vec::new());
    put_page(number, subpage, PageControl::Current, unit, &mut now);
    put_page(number, subpage, PageControl::Changeable, unit, &mut mask);
    if page.len() != now.len() {
        return Err(parameter(at + 1, None));
    }
    // PS, the first bit of a page, is reserved here, and initiators send it as they got it.
    let header = if subpage == 0 { 2 } else { 4 };
    for index in header..page.len() {
        let wrong = (page[index] ^ now[index]) & !mask[index];
        if wrong != 0 {
            let bit = u8::try_from(wrong.ilog2()).expect("a byte has eight bits");
            return Err(parameter(at + index, Some(bit)));
        }
    }
    match number {
        CACHING => state.write_cache = page[2] & WCE != 0,
        CONTROL => {
            state.descriptor_sense = page[2] & D_SENSE != 0;
            state.software_protected = page[4] & SWP != 0;
        }
        _ => {}
    }
    Ok(())
}
