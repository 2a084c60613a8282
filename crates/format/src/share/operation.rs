//! The record of an operation that changed a share, or of a read of what one changed.

use std::fmt;

use units::{FileId, Generation, Inode, Seq, WallTime};

use crate::error::{Place, Result};
use crate::field::{Field, codec, get, get_u128, put, put_u128};
use crate::share::inode::FileKind;

/// Where the fields are.
pub mod layout {
    use crate::field::{Field, fields, tile};

    /// A record but for its parts and names.
    pub const BYTES: usize = 112;
    fields! {
        /// In order.
        FIELDS[BYTES]:
        RECORD_BYTES = "record_bytes", 0, 2;
        PROCEDURE = "procedure", 2, 1;
        PARTS = "parts", 3, 1;
        XID = "xid", 4, 4;
        NUMBER = "number", 8, 8;
        TIME = "time", 16, 8;
        SEQ_BEFORE = "seq_before", 24, 8;
        CLIENT = "client", 32, 16;
        UID = "uid", 48, 4;
        GID = "gid", 52, 4;
        GROUPS_HASH = "groups_hash", 56, 8;
        ARGUMENTS_CRC = "arguments_crc", 64, 4;
        NAME_BYTES = "name_bytes", 68, 1;
        NEW_NAME_BYTES = "new_name_bytes", 69, 1;
        ZERO = "zero", 70, 2;
        OBJECT = "object", 72, 16;
        OTHER = "other", 88, 16;
        INCARNATION = "incarnation", 104, 8;
    }

    /// The part with attributes before.
    pub const BEFORE_BYTES: usize = 48;
    fields! {
        /// In order.
        BEFORE_FIELDS[BEFORE_BYTES]:
        KIND = "kind", 0, 1;
        BEFORE_ZERO = "zero", 1, 1;
        MODE = "mode", 2, 2;
        LINKS = "links", 4, 4;
        BEFORE_UID = "uid", 8, 4;
        BEFORE_GID = "gid", 12, 4;
        SIZE = "size", 16, 8;
        ACCESSED = "accessed", 24, 8;
        MODIFIED = "modified", 32, 8;
        CHANGED = "changed", 40, 8;
    }

    /// The part with attributes that were set.
    pub const SET_BYTES: usize = 32;
    fields! {
        /// In order.
        SET_FIELDS[SET_BYTES]:
        SET_WHICH = "which", 0, 1;
        SET_ZERO = "zero", 1, 1;
        SET_MODE = "mode", 2, 2;
        SET_UID = "uid", 4, 4;
        SET_GID = "gid", 8, 4;
        SET_PADDING = "zero", 12, 4;
        SET_ACCESSED = "accessed", 16, 8;
        SET_MODIFIED = "modified", 24, 8;
    }
}

const PART_BYTES: usize = 16;
const HAS_RANGE: u8 = 1;
const HAS_TARGET: u8 = 2;
const HAS_BEFORE: u8 = 4;
const HAS_CAUSE: u8 = 8;
/// It stands behind the names, where older readers skip it.
const HAS_SET: u8 = 16;
/// Bytes of the longest record.
pub const RECORD_BYTES_MAX: usize = layout::BYTES
    + 4 * PART_BYTES
    + layout::BEFORE_BYTES
    + layout::SET_BYTES
    + 2 * units::FILE_NAME_BYTES_MAX;

/// What was done; the numbers are those of NFSv3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Procedure {
    /// SETATTR.
    SetAttributes,
    /// READ; it changes nothing.
    Read,
    /// WRITE.
    Write,
    /// CREATE.
    Create,
    /// MKDIR.
    MakeDirectory,
    /// SYMLINK.
    MakeSymlink,
    /// MKNOD.
    MakeNode,
    /// REMOVE.
    Remove,
    /// RMDIR.
    RemoveDirectory,
    /// RENAME.
    Rename,
    /// LINK.
    Link,
    /// One that this program does not know.
    Other(u8),
}

/// Those that are known, by number.
const PROCEDURES: [(u8, Procedure); 11] = [
    (2, Procedure::SetAttributes),
    (6, Procedure::Read),
    (7, Procedure::Write),
    (8, Procedure::Create),
    (9, Procedure::MakeDirectory),
    (10, Procedure::MakeSymlink),
    (11, Procedure::MakeNode),
    (12, Procedure::Remove),
    (13, Procedure::RemoveDirectory),
    (14, Procedure::Rename),
    (15, Procedure::Link),
];

impl Procedure {
    fn from_number(number: u8) -> Procedure {
        let found = PROCEDURES.iter().find(|(own, _)| *own == number);
        found.map_or(Procedure::Other(number), |(_, procedure)| *procedure)
    }

    /// Its number.
    pub fn number(self) -> u8 {
        if let Procedure::Other(number) = self {
            return number;
        }
        let found = PROCEDURES.iter().find(|(_, own)| *own == self);
        found.expect("each has a number").0
    }
}

/// Whose request: what a record knows of its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The client's address, as IPv6.
    pub client: u128,
    /// The request's number.
    pub xid: u32,
    /// CRC32C of the request's arguments.
    pub arguments_crc: u32,
    /// The user, after squashing.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// A hash of its other groups.
    pub groups_hash: u64,
}

codec! {
    Origin:
    client = CLIENT, xid = XID, arguments_crc = ARGUMENTS_CRC, uid = UID, gid = GID,
    groups_hash = GROUPS_HASH;
}

/// Attributes before an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// The object's kind.
    pub kind: FileKind,
    /// Its mode.
    pub mode: u16,
    /// Its links.
    pub links: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its size.
    pub size: u64,
    /// Last access.
    pub accessed: WallTime,
    /// Last change of the content.
    pub modified: WallTime,
    /// Last change.
    pub changed: WallTime,
}

codec! {
    Before:
    mode = MODE, links = LINKS, uid = BEFORE_UID, gid = BEFORE_GID, size = SIZE,
    accessed = ACCESSED, modified = MODIFIED, changed = CHANGED; kind: FileKind
}

/// Two more objects of a RENAME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The directory of the new name.
    pub directory: FileId,
    /// The object that had the new name.
    pub victim: Option<FileId>,
}

/// Attributes that an operation set, those that it named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// The mode.
    pub mode: Option<u16>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Last access.
    pub accessed: Option<WallTime>,
    /// Last change of the content.
    pub modified: Option<WallTime>,
}

/// The commands that change a share without a request over NFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CauseKind {
    /// A repair.
    Repair,
    /// A restore of a file or a subtree.
    Restore,
    /// An import.
    Import,
    /// One that this program does not know.
    Other(u8),
}

impl CauseKind {
    fn from_number(number: u8) -> CauseKind {
        match number {
            1 => CauseKind::Repair,
            2 => CauseKind::Restore,
            3 => CauseKind::Import,
            other => CauseKind::Other(other),
        }
    }

    fn number(self) -> u8 {
        match self {
            CauseKind::Repair => 1,
            CauseKind::Restore => 2,
            CauseKind::Import => 3,
            CauseKind::Other(number) => number,
        }
    }
}

impl fmt::Display for CauseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CauseKind::Repair => f.write_str("repair"),
            CauseKind::Restore => f.write_str("restore"),
            CauseKind::Import => f.write_str("import"),
            CauseKind::Other(number) => number.fmt(f),
        }
    }
}

/// The command that an operation was done for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The kind of command.
    pub kind: CauseKind,
    /// Its number: of the last operation before it.
    pub number: u64,
}

/// The record of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// What was done.
    pub procedure: Procedure,
    /// Rises by one from each to the next.
    pub number: u64,
    /// A random number of the opening that it was done in: numbers may repeat, after a revert or a
    /// crash, and not in one opening.
    pub incarnation: u64,
    /// The time that it gave to what it changed.
    pub time: WallTime,
    /// The seq of the volume before the transaction that it is in.
    pub seq_before: Seq,
    /// Whose request.
    pub origin: Origin,
    /// The file, or the directory of the name.
    pub object: FileId,
    /// The object that was made, linked, removed or renamed.
    pub other: Option<FileId>,
    /// The rest of a RENAME.
    pub target: Option<Target>,
    /// First byte and length of a WRITE; new size, and 0, of a SETATTR or CREATE that sets one; of
    /// a READ the number of the operation that had changed the file last, and 0.
    pub range: Option<(u64, u64)>,
    /// Of the file that was written, set, or created though it was there; of what lost a name by
    /// REMOVE, RMDIR or RENAME.
    pub before: Option<Before>,
    /// The command, of what nobody asked for by NFS.
    pub cause: Option<Cause>,
    /// Attributes that a SETATTR set, besides the size.
    pub set: Option<Set>,
    /// The name; empty if there is none.
    pub name: &'a [u8],
    /// The new name of a RENAME; empty of others.
    pub new_name: &'a [u8],
}

impl Operation<'_> {
    /// Bytes that it takes.
    pub fn encoded_bytes(&self) -> usize {
        let mut bytes = layout::BYTES + self.name.len() + self.new_name.len();
        bytes += self.cause.map_or(0, |_| PART_BYTES);
        bytes += self.range.map_or(0, |_| PART_BYTES);
        bytes += self.target.map_or(0, |_| 2 * PART_BYTES);
        bytes += self.set.map_or(0, |_| layout::SET_BYTES);
        bytes + self.before.map_or(0, |_| layout::BEFORE_BYTES)
    }

    /// Appends it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + layout::BYTES, 0);
        let b = &mut out[start..];
        let part = |is_there, part| if is_there { part } else { 0 };
        let parts = part(self.range.is_some(), HAS_RANGE)
            | part(self.target.is_some(), HAS_TARGET)
            | part(self.before.is_some(), HAS_BEFORE)
            | part(self.cause.is_some(), HAS_CAUSE)
            | part(self.set.is_some(), HAS_SET);
        put(b, layout::RECORD_BYTES, self.encoded_bytes() as u64);
        put(b, layout::PROCEDURE, u64::from(self.procedure.number()));
        put(b, layout::PARTS, u64::from(parts));
        self.origin.put_fields(b);
        put(b, layout::NUMBER, self.number);
        put(b, layout::TIME, self.time.as_nanos());
        put(b, layout::SEQ_BEFORE, self.seq_before.0);
        put(b, layout::NAME_BYTES, self.name.len() as u64);
        put(b, layout::NEW_NAME_BYTES, self.new_name.len() as u64);
        put_u128(b, layout::OBJECT, pair_of(Some(self.object)));
        put_u128(b, layout::OTHER, pair_of(self.other));
        put(b, layout::INCARNATION, self.incarnation);
        if let Some((offset, bytes)) = self.range {
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&bytes.to_le_bytes());
        }
        if let Some(target) = self.target {
            out.extend_from_slice(&pair_of(Some(target.directory)).to_le_bytes());
            out.extend_from_slice(&pair_of(target.victim).to_le_bytes());
        }
        if let Some(before) = &self.before {
            encode_before(before, out);
        }
        if let Some(cause) = self.cause {
            out.extend_from_slice(&u64::from(cause.kind.number()).to_le_bytes());
            out.extend_from_slice(&cause.number.to_le_bytes());
        }
        out.extend_from_slice(self.name);
        out.extend_from_slice(self.new_name);
        if let Some(set) = &self.set {
            encode_set(set, out);
        }
        assert!(out.len() == start + self.encoded_bytes());
    }

    /// Decodes the first record of `bytes`; and how long it is.
    pub(crate) fn decode(place: Place, bytes: &[u8]) -> Result<(Operation<'_>, usize)> {
        let b = bytes;
        let is_there = b.len() >= layout::BYTES;
        place.require(is_there, "a whole record", b.len())?;
        let length = get(b, layout::RECORD_BYTES) as usize;
        let is_whole = (layout::BYTES..=b.len()).contains(&length);
        place.require(is_whole, "a whole record", length)?;
        let parts = b[layout::PARTS.offset];
        place.require(get(b, layout::ZERO) == 0, "padding of zeros", "others")?;
        let name_bytes = get(b, layout::NAME_BYTES) as usize;
        let new_name_bytes = get(b, layout::NEW_NAME_BYTES) as usize;
        let mut rest = &b[layout::BYTES..length];
        let mut take = |count: usize| -> Result<&[u8]> {
            let found = rest.len();
            let Some((taken, after)) = rest.split_at_checked(count) else {
                return Err(place.invalid("a whole record", found));
            };
            rest = after;
            Ok(taken)
        };
        let part = |part: u8, bytes: usize| if parts & part == 0 { 0 } else { bytes };
        let range = some(take(part(HAS_RANGE, PART_BYTES))?);
        let target = some(take(part(HAS_TARGET, 2 * PART_BYTES))?);
        let before = some(take(part(HAS_BEFORE, layout::BEFORE_BYTES))?);
        let cause = some(take(part(HAS_CAUSE, PART_BYTES))?);
        let (name, new_name) = (take(name_bytes)?, take(new_name_bytes)?);
        let set = some(take(part(HAS_SET, layout::SET_BYTES))?);
        let operation = Operation {
            procedure: Procedure::from_number(b[layout::PROCEDURE.offset]),
            number: get(b, layout::NUMBER),
            incarnation: get(b, layout::INCARNATION),
            time: WallTime::from_nanos(get(b, layout::TIME)),
            seq_before: Seq(get(b, layout::SEQ_BEFORE)),
            origin: Origin::get_fields(b),
            object: file_id(get_u128(b, layout::OBJECT)).unwrap_or_default(),
            other: file_id(get_u128(b, layout::OTHER)),
            target: target.map(|bytes| Target {
                directory: file_id(wide(bytes)).unwrap_or_default(),
                victim: file_id(wide(&bytes[PART_BYTES..])),
            }),
            range: range.map(|bytes| (wide(bytes) as u64, (wide(bytes) >> 64) as u64)),
            before: before.map(|bytes| decode_before(place, bytes)).transpose()?,
            cause: cause.map(|bytes| Cause {
                kind: CauseKind::from_number(wide(bytes) as u8),
                number: (wide(bytes) >> 64) as u64,
            }),
            set: set.map(decode_set),
            name,
            new_name,
        };
        place.require_countable("operation", operation.number)?;
        // More may follow in it, of parts that this program does not know.
        Ok((operation, length))
    }
}

fn encode_before(before: &Before, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + layout::BEFORE_BYTES, 0);
    let b = &mut out[start..];
    put(b, layout::KIND, before.kind as u64);
    before.put_fields(b);
}

fn decode_before(place: Place, b: &[u8]) -> Result<Before> {
    let kind = FileKind::decode(place, b, layout::KIND)?;
    place.require(get(b, layout::BEFORE_ZERO) == 0, "padding of zeros", "others")?;
    Ok(Before::get_fields(b, kind))
}

fn encode_set(set: &Set, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + layout::SET_BYTES, 0);
    let b = &mut out[start..];
    let values = set_fields(set);
    let mut which = 0;
    for (bit, (field, value)) in values.into_iter().enumerate() {
        let Some(value) = value else { continue };
        which |= 1 << bit;
        put(b, field, value);
    }
    put(b, layout::SET_WHICH, which);
}

/// Values and their fields, in the order of their bits.
fn set_fields(set: &Set) -> [(Field, Option<u64>); 5] {
    [
        (layout::SET_MODE, set.mode.map(u64::from)),
        (layout::SET_UID, set.uid.map(u64::from)),
        (layout::SET_GID, set.gid.map(u64::from)),
        (layout::SET_ACCESSED, set.accessed.map(WallTime::as_nanos)),
        (layout::SET_MODIFIED, set.modified.map(WallTime::as_nanos)),
    ]
}

fn decode_set(b: &[u8]) -> Set {
    let value =
        |bit: u8, field| (b[layout::SET_WHICH.offset] & 1 << bit != 0).then(|| get(b, field));
    Set {
        mode: value(0, layout::SET_MODE).map(|mode| mode as u16),
        uid: value(1, layout::SET_UID).map(|uid| uid as u32),
        gid: value(2, layout::SET_GID).map(|gid| gid as u32),
        accessed: value(3, layout::SET_ACCESSED).map(WallTime::from_nanos),
        modified: value(4, layout::SET_MODIFIED).map(WallTime::from_nanos),
    }
}

/// A part that is there.
fn some(bytes: &[u8]) -> Option<&[u8]> {
    (!bytes.is_empty()).then_some(bytes)
}

/// An inode and a generation side by side; 0 is none.
fn pair_of(file: Option<FileId>) -> u128 {
    file.map_or(0, |file| u128::from(file.inode.0) | u128::from(file.generation.0) << 64)
}

fn file_id(pair: u128) -> Option<FileId> {
    let (inode, generation) = (Inode(pair as u64), Generation((pair >> 64) as u64));
    (pair != 0).then_some(FileId { inode, generation })
}

fn wide(bytes: &[u8]) -> u128 {
    let bytes: &[u8; PART_BYTES] = bytes[..PART_BYTES].try_into().expect("16 bytes");
    u128::from_le_bytes(*bytes)
}
