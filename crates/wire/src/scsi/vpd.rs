//! Pages of vital product data: whose unit it is, and what it can do.

use super::identity::{Identity, put_padded, put_text};
use super::inquiry::DIRECT_ACCESS;
use super::sense::Sense;
use crate::fields::put;

/// The pages that are served, in order.
pub const PAGES: [u8; 9] = [
    SUPPORTED_PAGES,
    UNIT_SERIAL_NUMBER,
    DEVICE_IDENTIFICATION,
    EXTENDED_INQUIRY,
    MODE_PAGE_POLICY,
    SCSI_PORTS,
    BLOCK_LIMITS,
    BLOCK_CHARACTERISTICS,
    LOGICAL_BLOCK_PROVISIONING,
];

/// Supported pages.
pub const SUPPORTED_PAGES: u8 = 0x00;
/// Unit serial number.
pub const UNIT_SERIAL_NUMBER: u8 = 0x80;
/// Device identification.
pub const DEVICE_IDENTIFICATION: u8 = 0x83;
/// Extended INQUIRY data.
pub const EXTENDED_INQUIRY: u8 = 0x86;
/// Mode page policy.
pub const MODE_PAGE_POLICY: u8 = 0x87;
/// SCSI ports.
pub const SCSI_PORTS: u8 = 0x88;
/// Block limits.
pub const BLOCK_LIMITS: u8 = 0xb0;
/// Block device characteristics.
pub const BLOCK_CHARACTERISTICS: u8 = 0xb1;
/// Logical block provisioning.
pub const LOGICAL_BLOCK_PROVISIONING: u8 = 0xb2;

/// The block limits page, in logical blocks; 0 says that there is no limit, or no such ability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockLimits {
    /// WSNZ: WRITE SAME of no blocks is refused.
    pub refuses_write_same_of_none: bool,
    /// Longest COMPARE AND WRITE.
    pub compare_and_write_max: u8,
    /// Transfers are best in multiples of this.
    pub transfer_granularity: u16,
    /// Longest transfer.
    pub transfer_max: u32,
    /// Longest transfer that is not slower than shorter ones.
    pub transfer_optimal: u32,
    /// Longest PRE-FETCH.
    pub prefetch_max: u32,
    /// Most blocks of an UNMAP.
    pub unmap_blocks_max: u32,
    /// Most descriptors of an UNMAP.
    pub unmap_descriptors_max: u32,
    /// UNMAP frees room in multiples of this.
    pub unmap_granularity: u32,
    /// The first block from which such multiples count.
    pub unmap_alignment: Option<u32>,
    /// Longest WRITE SAME.
    pub write_same_max: u64,
    /// Longest WRITE ATOMIC.
    pub atomic_max: u32,
    /// Where a WRITE ATOMIC may begin: multiples of this.
    pub atomic_alignment: u32,
    /// How long a WRITE ATOMIC may be: multiples of this.
    pub atomic_granularity: u32,
    /// Longest WRITE ATOMIC with a boundary.
    pub atomic_max_with_boundary: u32,
    /// Largest boundary of a WRITE ATOMIC.
    pub atomic_boundary_max: u32,
}

/// The abilities of a unit that the pages tell of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Block limits.
    pub limits: BlockLimits,
    /// Writes wait in a volatile cache (V_SUP).
    pub has_volatile_cache: bool,
    /// Thin: UNMAP and WRITE SAME free room, and what is unmapped reads as zeros.
    pub is_thin: bool,
    /// Blocks of a threshold set, as a power of two; 0 when there are no thresholds.
    pub threshold_exponent: u8,
}

/// Appends a page.
///
/// # Errors
/// Invalid field in CDB, for a page that there is not.
pub fn put_page(
    page: u8,
    identity: &Identity,
    traits: &Traits,
    out: &mut Vec<u8>,
) -> Result<(), Sense> {
    let start = out.len();
    out.extend_from_slice(&[DIRECT_ACCESS, page, 0, 0]);
    match page {
        SUPPORTED_PAGES => out.extend_from_slice(&PAGES),
        UNIT_SERIAL_NUMBER => put_text(&identity.serial, SERIAL_BYTES_MAX, out),
        DEVICE_IDENTIFICATION => put_designators(identity, out),
        EXTENDED_INQUIRY => put_extended_inquiry(traits, out),
        // All pages: shared by all initiators.
        MODE_PAGE_POLICY => out.extend_from_slice(&[0x3f, 0xff, 0, 0]),
        SCSI_PORTS => put_ports(identity, out),
        BLOCK_LIMITS => put_block_limits(&traits.limits, out),
        BLOCK_CHARACTERISTICS => put_characteristics(out),
        LOGICAL_BLOCK_PROVISIONING => put_provisioning(traits, out),
        _ => {
            out.truncate(start);
            return Err(Sense::cdb_field(2, None));
        }
    }
    let length = u16::try_from(out.len() - start - 4).expect("a short page");
    put(out, start + 2, &length.to_be_bytes());
    Ok(())
}

/// Longest serial number, in bytes.
pub const SERIAL_BYTES_MAX: usize = 240;

/// Kind of a designator, and who is designated.
#[derive(Clone, Copy)]
struct Kind {
    code_set: u8,
    association: u8,
    kind: u8,
}

const BINARY: u8 = 1;
const ASCII: u8 = 2;
const UTF_8: u8 = 3;
const UNIT: u8 = 0;
const PORT: u8 = 1;
const TARGET: u8 = 2;

fn put_designator(kind: Kind, designator: &[u8], out: &mut Vec<u8>) {
    const ISCSI: u8 = 5;
    let length = u8::try_from(designator.len()).expect("a designator has at most 255 bytes");
    let names_protocol = kind.association != UNIT;
    let protocol = if names_protocol { ISCSI << 4 } else { 0 };
    let valid = if names_protocol { 0x80 } else { 0 };
    let second = valid | kind.association << 4 | kind.kind;
    out.extend_from_slice(&[protocol | kind.code_set, second, 0, length]);
    out.extend_from_slice(designator);
}

fn put_designators(identity: &Identity, out: &mut Vec<u8>) {
    let mut vendor = Vec::new();
    put_padded(&identity.vendor, 8, &mut vendor);
    put_text(&identity.serial, SERIAL_BYTES_MAX, &mut vendor);
    put_designator(Kind { code_set: ASCII, association: UNIT, kind: 1 }, &vendor, out);
    let naa = identity.naa_bytes();
    put_designator(Kind { code_set: BINARY, association: UNIT, kind: 3 }, &naa, out);
    let [high, low] = identity.port.to_be_bytes();
    let port = [0, 0, high, low];
    put_designator(Kind { code_set: BINARY, association: PORT, kind: 4 }, &port, out);
    let [high, low] = identity.port_group.to_be_bytes();
    let group = [0, 0, high, low];
    put_designator(Kind { code_set: BINARY, association: PORT, kind: 5 }, &group, out);
    put_name(&identity.target, TARGET, out);
    put_name(&identity.port_name(), PORT, out);
}

/// Appends a SCSI name string, which ends with a zero byte and is padded to four bytes.
fn put_name(name: &str, association: u8, out: &mut Vec<u8>) {
    let mut name = name.as_bytes().to_vec();
    name.resize((name.len() + 1).next_multiple_of(4), 0);
    put_designator(Kind { code_set: UTF_8, association, kind: 8 }, &name, out);
}

fn put_extended_inquiry(traits: &Traits, out: &mut Vec<u8>) {
    const HEAD_OF_QUEUE: u8 = 4;
    const ORDERED: u8 = 2;
    const SIMPLE: u8 = 1;
    let volatile = u8::from(traits.has_volatile_cache);
    let start = out.len();
    out.extend_from_slice(&[0, HEAD_OF_QUEUE | ORDERED | SIMPLE, volatile]);
    out.resize(start + 60, 0);
}

fn put_ports(identity: &Identity, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&identity.port.to_be_bytes());
    out.extend_from_slice(&[0; 6]);
    let mut designators = Vec::new();
    put_name(&identity.port_name(), PORT, &mut designators);
    let length = u16::try_from(designators.len()).expect("one designator");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&designators);
}

fn put_block_limits(limits: &BlockLimits, out: &mut Vec<u8>) {
    out.push(u8::from(limits.refuses_write_same_of_none));
    out.push(limits.compare_and_write_max);
    out.extend_from_slice(&limits.transfer_granularity.to_be_bytes());
    let alignment = limits.unmap_alignment.map_or(0, |alignment| 1 << 31 | alignment);
    for field in [
        limits.transfer_max,
        limits.transfer_optimal,
        limits.prefetch_max,
        limits.unmap_blocks_max,
        limits.unmap_descriptors_max,
        limits.unmap_granularity,
        alignment,
    ] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    out.extend_from_slice(&limits.write_same_max.to_be_bytes());
    for field in [
        limits.atomic_max,
        limits.atomic_alignment,
        limits.atomic_granularity,
        limits.atomic_max_with_boundary,
        limits.atomic_boundary_max,
    ] {
        out.extend_from_slice(&field.to_be_bytes());
    }
}

fn put_characteristics(out: &mut Vec<u8>) {
    const DOES_NOT_ROTATE: u16 = 1;
    let start = out.len();
    out.extend_from_slice(&DOES_NOT_ROTATE.to_be_bytes());
    out.resize(start + 60, 0);
}

fn put_provisioning(traits: &Traits, out: &mut Vec<u8>) {
    /// LBPU, LBPWS, LBPWS10 and LBPRZ.
    const ABILITIES: u8 = 0xe4;
    const THIN: u8 = 2;
    let (abilities, kind) = if traits.is_thin { (ABILITIES, THIN) } else { (0, 0) };
    out.extend_from_slice(&[traits.threshold_exponent, abilities, kind, 0]);
}
