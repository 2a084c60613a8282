//! The label that each member of a pool on several devices begins with: who it is, who the others
//! are, how they are put together; and the maps of regions. `docs/format/label.md`.
//!
//! 1. Four copies of the label; a generation goes to one pair of them, the next to the other.
//! 2. Two copies of the regions; a sequence goes to one of them, the next to the other.
//! 3. The checksum covers everything, so a torn write is never taken for a label.

use std::fmt::Write as _;

use units::WallTime;

use crate::error::{Place, Result};
use crate::field::{
    Field, codec, get, get_u32, get_u128, numbered, put, put_u128, verify_zero, verify_zero_bytes,
};
use crate::head::seal;

/// Where the fields are.
pub mod layout {
    use crate::field::{Field, fields, tile};

    /// A label.
    pub const BYTES: usize = 16_384;
    fields! {
        /// In order.
        FIELDS[BYTES]:
        MAGIC = "magic", 0, 8;
        CRC = "crc", 8, 4;
        FORMAT_VERSION = "format_version", 12, 4;
        ARRAY_ID = "array_id", 16, 16;
        MEMBER_ID = "member_id", 32, 16;
        GENERATION = "generation", 48, 8;
        ADDRESS = "address", 56, 8;
        CREATED = "created", 64, 8;
        REGION_BYTES = "region_bytes", 72, 8;
        MEMBER_COUNT = "member_count", 80, 4;
        STACK_BYTES = "stack_bytes", 84, 4;
        ZERO = "zero", 88, 40;
        STACK = "stack", 128, 4096;
        MEMBERS = "members", 4224, 8192;
        ZERO_AFTER = "zero", 12_416, 3968;
    }

    /// A member in the table.
    pub const MEMBER_BYTES: usize = 256;
    fields! {
        /// In order.
        MEMBER_FIELDS[MEMBER_BYTES]:
        ID = "id", 0, 16;
        DATA_BYTES = "data_bytes", 16, 8;
        OUT_GENERATION = "out_generation", 24, 8;
        STANDING = "standing", 32, 1;
        MEMBER_ZERO = "zero", 33, 5;
        PATH_BYTES = "path_bytes", 38, 2;
        PATH = "path", 40, 216;
    }

    /// The maps of regions.
    pub const REGIONS_BYTES: usize = 12_288;
    fields! {
        /// In order.
        REGIONS_FIELDS[REGIONS_BYTES]:
        REGIONS_MAGIC = "magic", 0, 8;
        REGIONS_CRC = "crc", 8, 4;
        REGIONS_VERSION = "format_version", 12, 4;
        REGIONS_ARRAY_ID = "array_id", 16, 16;
        SEQUENCE = "sequence", 32, 8;
        REGIONS_ADDRESS = "address", 40, 8;
        COUNT = "count", 48, 4;
        REGIONS_ZERO = "zero", 52, 12;
        OPEN = "open", 64, 4032;
        STALE = "stale", 4096, 4032;
        USED = "used", 8128, 4032;
        REGIONS_ZERO_AFTER = "zero", 12_160, 128;
    }
}

/// The magic of a label: `HINDLABL`, as bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HINDLABL");
const REGIONS_MAGIC: u64 = u64::from_le_bytes(*b"HINDRGNS");
const SALT: u32 = u32::from_le_bytes(*b"labl");
const REGIONS_SALT: u32 = u32::from_le_bytes(*b"rgns");

/// Bytes at the beginning of a member that are its label's and its maps'.
pub const AREA_BYTES: u64 = 1 << 20;
/// Byte offsets of the four copies of a label.
pub const COPY_OFFSETS: [u64; 4] = [0, 65_536, 131_072, 196_608];
/// Byte offsets of the two copies of the maps.
pub const REGIONS_OFFSETS: [u64; 2] = [262_144, 327_680];
/// The most members.
pub const MEMBERS_MAX: usize = layout::MEMBERS.bytes / layout::MEMBER_BYTES;
/// The most regions.
pub const REGIONS_MAX: usize = layout::OPEN.bytes * 8;
/// The longest path that is noted, in bytes; a longer one is noted as empty.
pub const PATH_BYTES_MAX: usize = layout::PATH.bytes;
/// The longest stack, in bytes.
pub const STACK_BYTES_MAX: usize = layout::STACK.bytes;
/// The smallest region, in bytes.
pub const REGION_BYTES_MIN: u64 = 1 << 20;

/// The most bytes that the stack has of a member: what all of them have together can be counted.
pub const DATA_BYTES_MAX: u64 = 1 << 56;
/// The largest region, in bytes.
pub const REGION_BYTES_MAX: u64 = 1 << 60;
/// The generation of a label on a device that is to become a member and is none yet.
pub const CLAIM_GENERATION: u64 = 0;

/// How a member stands, the best first; in a label, how it stood when that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemberStanding {
    /// It has everything.
    In = 0,
    /// It gets what is written, and is brought up to date meanwhile; it is not read.
    Stale = 1,
    /// It failed or is away; of no use as it is.
    Out = 2,
    /// Nothing is on it: it waits to take the place of one that fails. The stack does not name it.
    Spare = 3,
}

numbered!(MemberStanding: In Stale Out Spare);
units::names!(MemberStanding: In "in", Stale "stale", Out "out", Spare "spare");

/// A member, as every label names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its random identity.
    pub id: u128,
    /// Bytes of it that the stack has: those after the label's area.
    pub data_bytes: u64,
    /// The generation that put it out last; 0 if none did.
    pub out_generation: u64,
    /// How it stands.
    pub standing: MemberStanding,
    /// Where it was found last; for people, and to look there.
    pub path: String,
}

/// A label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The identity that all members share.
    pub array_id: u128,
    /// The identity of the member that this is the label of.
    pub member_id: u128,
    /// Rises by one with every change.
    pub generation: u64,
    /// When the stack was made.
    pub created: WallTime,
    /// Bytes of a region: a power of two.
    pub region_bytes: u64,
    /// The stack, with the members' numbers for their paths.
    pub stack: String,
    /// The members, by number.
    pub members: Vec<Member>,
}

/// The maps of regions: one bit each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions {
    /// The identity of the members.
    pub array_id: u128,
    /// Rises by one with every change.
    pub sequence: u64,
    /// How many regions there are.
    pub count: u32,
    /// May be in flight.
    pub open: Box<[u8]>,
    /// Written while a member was not in.
    pub stale: Box<[u8]>,
    /// Written, and not discarded since.
    pub used: Box<[u8]>,
}

/// The two copies that a generation is written to.
pub fn copies_of_generation(generation: u64) -> [usize; 2] {
    if generation.is_multiple_of(2) { [0, 1] } else { [2, 3] }
}

/// The copy that a sequence is written to.
pub fn copy_of_sequence(sequence: u64) -> usize {
    usize::from(!sequence.is_multiple_of(2))
}

/// Which array a device belongs to by the beginning of its first label, sound or not.
pub fn array_of(head: &[u8]) -> Option<u128> {
    let is_own = head.len() >= layout::ARRAY_ID.end() && get(head, layout::MAGIC) == MAGIC;
    is_own.then(|| get_u128(head, layout::ARRAY_ID))
}

codec! {
    Label:
    array_id = ARRAY_ID, member_id = MEMBER_ID, generation = GENERATION, created = CREATED,
    region_bytes = REGION_BYTES; stack: String, members: Vec<Member>
}

impl Label {
    /// The bytes of one of the four copies. Asserts that every field is in its range.
    pub fn encode(&self, copy: usize) -> Vec<u8> {
        self.verify(place(copy)).expect("a label that we write is in range");
        let mut bytes = vec![0; layout::BYTES];
        let b = &mut bytes[..];
        self.put_fields(b);
        put(b, layout::ADDRESS, COPY_OFFSETS[copy]);
        put(b, layout::MEMBER_COUNT, self.members.len() as u64);
        put(b, layout::STACK_BYTES, self.stack.len() as u64);
        let stack = layout::STACK.offset..layout::STACK.offset + self.stack.len();
        b[stack].copy_from_slice(self.stack.as_bytes());
        let table = b[layout::MEMBERS.offset..].chunks_exact_mut(layout::MEMBER_BYTES);
        for (bytes, member) in table.zip(&self.members) {
            member.encode(bytes);
        }
        seal(b, MAGIC, SALT);
        bytes
    }

    /// Decodes copy number `copy`.
    ///
    /// # Errors
    /// `NotThis`, `Checksum`, `Version` (in this order of checking), or `Invalid`.
    pub fn decode(bytes: &[u8], copy: usize) -> Result<Label> {
        let place = place(copy);
        let b = place.head(bytes, layout::BYTES, MAGIC, SALT)?;
        verify_zero(place, b, layout::ZERO)?;
        verify_zero(place, b, layout::ZERO_AFTER)?;
        place.require_own_address(b, layout::ADDRESS)?;
        let count = get_u32(b, layout::MEMBER_COUNT) as usize;
        place.require(count <= MEMBERS_MAX, "at most 32 members", count)?;
        let table = b[layout::MEMBERS.offset..layout::MEMBERS.end()]
            .chunks_exact(layout::MEMBER_BYTES)
            .take(count)
            .map(|bytes| Member::decode(place, bytes))
            .collect::<Result<Vec<Member>>>()?;
        let end = layout::MEMBERS.offset + count * layout::MEMBER_BYTES;
        verify_zero_bytes(place, &b[end..layout::MEMBERS.end()], end)?;
        let stack = text(place, b, layout::STACK, get(b, layout::STACK_BYTES))?;
        let label = Label::get_fields(b, stack, table);
        label.verify(place)?;
        place.require_countable("generation", label.generation)?;
        Ok(label)
    }

    /// The label as text, one field a line.
    pub fn explain(&self) -> String {
        let mut text = String::from("label\n");
        let mut line = |name: &str, value: String| {
            writeln!(text, "  {name:<22}{value}").expect("a String takes all");
        };
        line("array_id", format!("{:032x}", self.array_id));
        line("member_id", format!("{:032x}", self.member_id));
        line("generation", self.generation.to_string());
        line("created", format!("{} ns", self.created.as_nanos()));
        line("region_bytes", self.region_bytes.to_string());
        line("stack", self.stack.clone());
        for (number, member) in self.members.iter().enumerate() {
            let standing = member.standing.name();
            let Member { id, data_bytes, out_generation, path, .. } = member;
            let rest = format!("{data_bytes} bytes, put out by generation {out_generation}");
            line(&format!("member {number}"), format!("{id:032x} {standing}, {rest}, {path}"));
        }
        text
    }

    fn verify(&self, place: Place) -> Result<()> {
        let count = self.members.len();
        place.require((1..=MEMBERS_MAX).contains(&count), "1 to 32 members", count)?;
        let region = self.region_bytes;
        let holds =
            region.is_power_of_two() && (REGION_BYTES_MIN..=REGION_BYTES_MAX).contains(&region);
        place.require(holds, "region_bytes a power of two from 1 MiB to 2^60", region)?;
        let length = self.stack.len();
        place.require(length <= STACK_BYTES_MAX, "a stack of at most 4096 bytes", length)?;
        for (i, member) in self.members.iter().enumerate() {
            let twice = self.members[..i].iter().any(|other| other.id == member.id);
            place.require(!twice, "each member once", format_args!("{:032x}", member.id))?;
            let data_bytes = member.data_bytes;
            place.require(
                data_bytes <= DATA_BYTES_MAX,
                "data_bytes of at most 2^56",
                data_bytes,
            )?;
            let length = member.path.len();
            place.require(length <= PATH_BYTES_MAX, "a path of at most 216 bytes", length)?;
        }
        let spare = |member: &Member| member.standing == MemberStanding::Spare;
        let is_ordered = self.members.is_sorted_by_key(spare);
        place.require(is_ordered, "spares after the others", count)?;
        let own = self.members.iter().any(|member| member.id == self.member_id);
        place.require(own, "its member in the table", format_args!("{:032x}", self.member_id))
    }
}

impl Member {
    fn encode(&self, bytes: &mut [u8]) {
        put_u128(bytes, layout::ID, self.id);
        put(bytes, layout::DATA_BYTES, self.data_bytes);
        put(bytes, layout::OUT_GENERATION, self.out_generation);
        put(bytes, layout::STANDING, self.standing as u64);
        put(bytes, layout::PATH_BYTES, self.path.len() as u64);
        let path = layout::PATH.offset..layout::PATH.offset + self.path.len();
        bytes[path].copy_from_slice(self.path.as_bytes());
    }

    fn decode(place: Place, bytes: &[u8]) -> Result<Member> {
        verify_zero(place, bytes, layout::MEMBER_ZERO)?;
        let number = get(bytes, layout::STANDING);
        let unknown = || place.invalid("a standing of 0 to 3", number);
        Ok(Member {
            id: get_u128(bytes, layout::ID),
            data_bytes: get(bytes, layout::DATA_BYTES),
            out_generation: get(bytes, layout::OUT_GENERATION),
            standing: MemberStanding::from_number(number).ok_or_else(unknown)?,
            path: text(place, bytes, layout::PATH, get(bytes, layout::PATH_BYTES))?,
        })
    }
}

impl Regions {
    /// Maps of `count` regions of which nothing is known but that none was written.
    pub fn new(array_id: u128, count: u32) -> Regions {
        let empty = || vec![0; layout::OPEN.bytes].into_boxed_slice();
        let (open, stale, used) = (empty(), empty(), empty());
        Regions { array_id, sequence: 1, count, open, stale, used }
    }

    /// The bytes, with where they go. Asserts that the maps are as long as they are.
    pub fn encode(&self) -> (u64, Vec<u8>) {
        let address = REGIONS_OFFSETS[copy_of_sequence(self.sequence)];
        let mut bytes = vec![0; layout::REGIONS_BYTES];
        let b = &mut bytes[..];
        put_u128(b, layout::REGIONS_ARRAY_ID, self.array_id);
        put(b, layout::SEQUENCE, self.sequence);
        put(b, layout::REGIONS_ADDRESS, address);
        put(b, layout::COUNT, u64::from(self.count));
        for (field, map) in
            [(layout::OPEN, &self.open), (layout::STALE, &self.stale), (layout::USED, &self.used)]
        {
            b[field.offset..field.end()].copy_from_slice(map);
        }
        seal(b, REGIONS_MAGIC, REGIONS_SALT);
        (address, bytes)
    }

    /// Decodes copy number `copy`.
    ///
    /// # Errors
    /// `NotThis`, `Checksum`, `Version` (in this order of checking), or `Invalid`.
    pub fn decode(bytes: &[u8], copy: usize) -> Result<Regions> {
        let place = Place { structure: "regions", address: REGIONS_OFFSETS[copy] };
        let b = place.head(bytes, layout::REGIONS_BYTES, REGIONS_MAGIC, REGIONS_SALT)?;
        verify_zero(place, b, layout::REGIONS_ZERO)?;
        verify_zero(place, b, layout::REGIONS_ZERO_AFTER)?;
        place.require_own_address(b, layout::REGIONS_ADDRESS)?;
        let count = get_u32(b, layout::COUNT);
        place.require(count as usize <= REGIONS_MAX, "at most 32256 regions", count)?;
        let sequence = get(b, layout::SEQUENCE);
        place.require_countable("sequence", sequence)?;
        let map = |field: Field| b[field.offset..field.end()].into();
        let regions = Regions {
            array_id: get_u128(b, layout::REGIONS_ARRAY_ID),
            sequence,
            count,
            open: map(layout::OPEN),
            stale: map(layout::STALE),
            used: map(layout::USED),
        };
        for map in [&regions.open, &regions.stale, &regions.used] {
            let beyond = (count as usize..REGIONS_MAX).find(|i| map[i / 8] >> (i % 8) & 1 != 0);
            let found = beyond.unwrap_or_default();
            place.require(beyond.is_none(), "no region beyond the last", found)?;
        }
        Ok(regions)
    }
}

fn place(copy: usize) -> Place {
    Place { structure: "label", address: COPY_OFFSETS[copy] }
}

/// A text of `length` bytes at the start of a field whose rest is zeros.
fn text(place: Place, bytes: &[u8], field: Field, length: u64) -> Result<String> {
    place.require(length <= field.bytes as u64, "a text within its field", length)?;
    let end = field.offset + usize::try_from(length).expect("within its field");
    verify_zero_bytes(place, &bytes[end..field.end()], end)?;
    let text = std::str::from_utf8(&bytes[field.offset..end]);
    place.require(text.is_ok(), "UTF-8", field.name)?;
    Ok(text.unwrap_or_default().to_owned())
}
