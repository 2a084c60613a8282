//! Directories: entries in the order of their keys, packed; and the nodes of a directory that has
//! more of them than its inode's block holds.
//!
//! 1. Keys of entries rise strictly and have 63 bits; names keep to [`FileName`]'s rule.
//! 2. The keys of the children of an inner node rise strictly; each is a lower bound of all keys
//!    below its child, and below the next.

use units::{FileName, Generation, Inode};

use crate::error::{Place, Result};
use crate::field::{get, put, verify_zero_bytes};
use crate::share::kind::FileKind;
use crate::share::name_hash::KEYS_OF_A_HASH;
use crate::share::place::{BLOCK_BYTES, ShareAddress, is_slab};

/// Where the fields are.
pub mod layout {
    use crate::field::{Field, tile};

    /// A node but for its entries or children.
    pub const BYTES: usize = 32;
    pub(crate) const BEGIN: Field = Field::new("begin", 0, 16);
    pub(crate) const DIRECTORY: Field = Field::new("directory", 16, 8);
    pub(crate) const COUNT: Field = Field::new("count", 24, 2);
    pub(crate) const CONTENT_BYTES: Field = Field::new("content_bytes", 26, 2);
    pub(crate) const LEVEL: Field = Field::new("level", 28, 1);
    pub(crate) const ZERO: Field = Field::new("zero", 29, 3);
    /// In order.
    pub const FIELDS: &[Field] = &[BEGIN, DIRECTORY, COUNT, CONTENT_BYTES, LEVEL, ZERO];
    const _: () = assert!(tile(FIELDS, BYTES));

    /// An entry but for its name.
    pub const ENTRY_BYTES: usize = 17;
    pub(crate) const KEY: Field = Field::new("key", 0, 8);
    pub(crate) const OBJECT: Field = Field::new("object", 8, 8);
    pub(crate) const NAME_BYTES: Field = Field::new("name_bytes", 16, 1);
    /// In order.
    pub const ENTRY_FIELDS: &[Field] = &[KEY, OBJECT, NAME_BYTES];
    const _: () = assert!(tile(ENTRY_FIELDS, ENTRY_BYTES));

    /// A child.
    pub const CHILD_BYTES: usize = 16;
    pub(crate) const CHILD_KEY: Field = Field::new("key", 0, 8);
    pub(crate) const CHILD_BLOCK: Field = Field::new("block", 8, 8);
    /// In order.
    pub const CHILD_FIELDS: &[Field] = &[CHILD_KEY, CHILD_BLOCK];
    const _: () = assert!(tile(CHILD_FIELDS, CHILD_BYTES));
}

const MAGIC: &[u8; 4] = b"HSDN";
/// Bytes of entries or children in a node.
pub const NODE_BYTES_MAX: usize = BLOCK_BYTES - layout::BYTES;
/// Children of an inner node.
pub const CHILDREN_MAX: usize = NODE_BYTES_MAX / layout::CHILD_BYTES;
/// Bytes of an entry but for its name.
pub const ENTRY_BYTES: usize = layout::ENTRY_BYTES;
/// Levels of a directory: more would hold more entries than there are inodes times links.
pub const NODE_LEVELS_MAX: u8 = 8;

/// Bits of the number of an inode, and of its kind; those of its generation are above.
const INODE_BITS: u32 = Inode::END.0.trailing_zeros();
const KIND_BITS: u32 = 3;
const GENERATION_BITS: u32 = 64 - INODE_BITS - KIND_BITS;

/// The object that an entry names, with so much of it that another one is told from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryObject {
    /// Its inode.
    pub inode: Inode,
    /// Its kind.
    pub kind: FileKind,
    /// The lowest 27 bits of its generation.
    pub generation: u32,
}

impl EntryObject {
    /// The object that has an inode.
    pub fn of(inode: Inode, kind: FileKind, generation: Generation) -> EntryObject {
        EntryObject {
            inode,
            kind,
            generation: (generation.0 & ((1 << GENERATION_BITS) - 1)) as u32,
        }
    }

    fn to_bits(self) -> u64 {
        let above = (self.kind as u64) | u64::from(self.generation) << KIND_BITS;
        self.inode.0 | above << INODE_BITS
    }

    fn from_bits(bits: u64) -> Option<EntryObject> {
        let inode = Inode(bits & (Inode::END.0 - 1));
        let kind = FileKind::from_number(bits >> INODE_BITS & ((1 << KIND_BITS) - 1))?;
        let generation = (bits >> (INODE_BITS + KIND_BITS)) as u32;
        (inode.0 != 0).then_some(EntryObject { inode, kind, generation })
    }
}

/// One entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its key: the cookie of READDIR.
    pub key: u64,
    /// The object that it names.
    pub object: EntryObject,
    /// The name.
    pub name: FileName<'a>,
}

/// Entries, packed, in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    bytes: Vec<u8>,
    count: usize,
}

impl Entries {
    /// Verifies packed entries.
    pub(crate) fn decode(place: Place, bytes: &[u8], count: usize) -> Result<Entries> {
        let mut rest = bytes;
        let mut least = KEYS_OF_A_HASH;
        let mut found = 0;
        while !rest.is_empty() {
            let length = rest.get(layout::NAME_BYTES.offset).map_or(0, |n| usize::from(*n));
            let end = layout::ENTRY_BYTES + length;
            let Some(entry) = rest.get(..end) else {
                return Err(place.invalid("whole entries", rest.len()));
            };
            let key = get(entry, layout::KEY);
            place.require((least..1 << 63).contains(&key), "keys that rise", key)?;
            let object = get(entry, layout::OBJECT);
            let is_object = EntryObject::from_bits(object).is_some();
            place.require(is_object, "an inode and its kind", object)?;
            let name = FileName::new(&entry[layout::ENTRY_BYTES..]);
            place.require(name.is_ok(), "a name", "bytes that are none")?;
            least = key + 1;
            found += 1;
            rest = &rest[end..];
        }
        place.require(found == count, "as many entries as it says", found)?;
        Ok(Entries { bytes: bytes.to_vec(), count })
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Their bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All of them, in order.
    pub fn iter(&self) -> EntryIter<'_> {
        EntryIter { rest: &self.bytes }
    }

    /// Those with keys from `key` on.
    pub fn from(&self, key: u64) -> EntryIter<'_> {
        EntryIter { rest: &self.bytes[self.seek(key)..] }
    }

    /// Adds an entry, unless its key is taken; whether it did.
    #[must_use]
    pub fn insert(&mut self, entry: Entry<'_>) -> bool {
        let at = self.seek(entry.key);
        if self.from(entry.key).next().is_some_and(|next| next.key == entry.key) {
            return false;
        }
        let name = entry.name.as_bytes();
        let length = layout::ENTRY_BYTES + name.len();
        let end = self.bytes.len();
        self.bytes.resize(end + length, 0);
        self.bytes.copy_within(at..end, at + length);
        let slot = &mut self.bytes[at..at + length];
        put(slot, layout::KEY, entry.key);
        put(slot, layout::OBJECT, entry.object.to_bits());
        put(slot, layout::NAME_BYTES, name.len() as u64);
        slot[layout::ENTRY_BYTES..].copy_from_slice(name);
        self.count += 1;
        true
    }

    /// Takes the entry with that key away; whether it was there.
    pub fn remove(&mut self, key: u64) -> bool {
        let at = self.seek(key);
        match self.from(key).next() {
            Some(entry) if entry.key == key => {
                let end = at + layout::ENTRY_BYTES + entry.name.as_bytes().len();
                self.bytes.drain(at..end);
                self.count -= 1;
                true
            }
            _ => false,
        }
    }

    /// Splits off the upper ones, so that halves have about as many bytes. None is left empty.
    pub fn split(&mut self) -> Entries {
        assert!(self.count >= 2);
        let (mut at, mut count) = (0, 0);
        for entry in self.iter() {
            let next = at + layout::ENTRY_BYTES + entry.name.as_bytes().len();
            if count > 0 && (next > self.bytes.len() / 2 || count + 1 == self.count) {
                break;
            }
            (at, count) = (next, count + 1);
        }
        let upper = Entries { bytes: self.bytes.split_off(at), count: self.count - count };
        self.count = count;
        upper
    }

    /// Adds those of a neighbour whose keys are all larger.
    pub fn append(&mut self, upper: &Entries) {
        self.bytes.extend_from_slice(&upper.bytes);
        self.count += upper.count;
    }

    /// The offset of the first entry whose key is not below `key`.
    fn seek(&self, key: u64) -> usize {
        let mut at = 0;
        // Only keys and lengths are looked at: this is most of what a look-up costs.
        while let Some(head) = self.bytes.get(at..at + layout::ENTRY_BYTES) {
            if get(head, layout::KEY) >= key {
                break;
            }
            at += layout::ENTRY_BYTES + usize::from(head[layout::NAME_BYTES.offset]);
        }
        at
    }
}

/// Why bytes of entries are what they should be.
const VERIFIED: &str = "entries were verified, or are ours";

/// Entries, one after the other.
#[derive(Clone, Debug)]
pub struct EntryIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for EntryIter<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        let (head, rest) = self.rest.split_at_checked(layout::ENTRY_BYTES)?;
        let (name, rest) = rest.split_at(usize::from(head[layout::NAME_BYTES.offset]));
        self.rest = rest;
        Some(Entry {
            key: get(head, layout::KEY),
            object: EntryObject::from_bits(get(head, layout::OBJECT)).expect(VERIFIED),
            name: FileName::new(name).expect(VERIFIED),
        })
    }
}

/// A child of an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// No key below it is smaller.
    pub key: u64,
    /// Its block.
    pub block: u64,
}

/// What is in a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeContent {
    /// Level 0.
    Leaf(Entries),
    /// The level, from 1 on, and the children.
    Inner(u8, Vec<Child>),
}

/// A node of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryNode {
    /// Whose node.
    pub directory: Inode,
    /// What is in it.
    pub content: NodeContent,
}

impl DirectoryNode {
    /// Its level: 0 of leaves.
    pub fn level(&self) -> u8 {
        match self.content {
            NodeContent::Leaf(_) => 0,
            NodeContent::Inner(level, _) => level,
        }
    }

    /// Bytes of what is in it.
    pub fn content_bytes(&self) -> usize {
        match &self.content {
            NodeContent::Leaf(entries) => entries.as_bytes().len(),
            NodeContent::Inner(_, children) => children.len() * layout::CHILD_BYTES,
        }
    }

    /// Its block.
    pub fn encode(&self, address: ShareAddress) -> Box<[u8; BLOCK_BYTES]> {
        let mut bytes = address.begin(MAGIC);
        let b = &mut bytes[..];
        let content_bytes = self.content_bytes();
        assert!(content_bytes <= NODE_BYTES_MAX);
        put(b, layout::DIRECTORY, self.directory.0);
        put(b, layout::CONTENT_BYTES, content_bytes as u64);
        put(b, layout::LEVEL, u64::from(self.level()));
        let content = &mut b[layout::BYTES..layout::BYTES + content_bytes];
        let count = match &self.content {
            NodeContent::Leaf(entries) => {
                content.copy_from_slice(entries.as_bytes());
                entries.count()
            }
            NodeContent::Inner(_, children) => {
                for (slot, child) in content.chunks_exact_mut(layout::CHILD_BYTES).zip(children) {
                    put(slot, layout::CHILD_KEY, child.key);
                    put(slot, layout::CHILD_BLOCK, child.block);
                }
                children.len()
            }
        };
        put(b, layout::COUNT, count as u64);
        bytes
    }

    /// Decodes a node from its block.
    ///
    /// # Errors
    /// `NotThis` or `Invalid`.
    pub fn decode(bytes: &[u8; BLOCK_BYTES], address: ShareAddress) -> Result<DirectoryNode> {
        let place = address.place("directory node");
        address.verify(place, MAGIC, bytes)?;
        let b = &bytes[..];
        let directory = Inode(get(b, layout::DIRECTORY));
        let is_inode = directory.0 != 0 && directory < Inode::END;
        place.require(is_inode, "the number of an inode", directory)?;
        address.verify_spare(place, &b[layout::ZERO.offset..layout::BYTES], layout::ZERO.offset)?;
        let count = get(b, layout::COUNT) as usize;
        let length = get(b, layout::CONTENT_BYTES) as usize;
        place.require(length <= NODE_BYTES_MAX, "content_bytes of at most 4064", length)?;
        let (content, rest) = b[layout::BYTES..].split_at(length);
        verify_zero_bytes(place, rest, layout::BYTES + length)?;
        let level = b[layout::LEVEL.offset];
        let content = match level {
            0 => NodeContent::Leaf(Entries::decode(place, content, count)?),
            _ => NodeContent::Inner(level, decode_children(place, content, count)?),
        };
        place.require(level < NODE_LEVELS_MAX, "a level below 8", level)?;
        Ok(DirectoryNode { directory, content })
    }
}

fn decode_children(place: Place, bytes: &[u8], count: usize) -> Result<Vec<Child>> {
    let is_whole = count > 0 && bytes.len() == count * layout::CHILD_BYTES;
    place.require(is_whole, "whole children, one at least", count)?;
    let mut children: Vec<Child> = Vec::with_capacity(count);
    for slot in bytes.chunks_exact(layout::CHILD_BYTES) {
        let child =
            Child { key: get(slot, layout::CHILD_KEY), block: get(slot, layout::CHILD_BLOCK) };
        let rises = children.last().is_none_or(|last| last.key < child.key);
        place.require(rises && child.key < 1 << 63, "keys that rise", child.key)?;
        place.require(is_slab(0, child.block), "a block of data", child.block)?;
        children.push(child);
    }
    Ok(children)
}
