//! An inode: the attributes of an object, the slabs that it has, and content that fits in.
//!
//! 1. Content is inline or in slabs, never both; a file that is longer than its inline part is in
//!    slabs, though it may have none (a hole).
//! 2. Inline content may be shorter than the file: zeros follow.

use units::{Generation, Inode, WallTime};

use crate::error::{Place, Result};
use crate::field::{Field, codec, get, put, verify_zero_bytes};
use crate::share::directory::{Entries, EntryObject};
pub use crate::share::kind::FileKind;
use crate::share::place::{
    BLOCK_BYTES, FILE_BYTES_MAX, LEVELS, ShareAddress, first_of_level, is_slab,
};

/// Where the fields are.
pub mod layout {
    use crate::field::{Field, fields, tile};

    /// The whole structure.
    pub const BYTES: usize = 4096;
    fields! {
        /// In order.
        FIELDS[BYTES]:
        BEGIN = "begin", 0, 16;
        GENERATION = "generation", 16, 8;
        KIND = "kind", 24, 1;
        FLAGS = "flags", 25, 1;
        MODE = "mode", 26, 2;
        LINKS = "links", 28, 4;
        UID = "uid", 32, 4;
        GID = "gid", 36, 4;
        SIZE = "size", 40, 8;
        USED = "used", 48, 8;
        ACCESSED = "accessed", 56, 8;
        MODIFIED = "modified", 64, 8;
        CHANGED = "changed", 72, 8;
        CREATED = "created", 80, 8;
        PARENT = "parent", 88, 8;
        ENTRIES = "entries", 96, 8;
        VERIFIER = "verifier", 104, 8;
        DEVICE = "device", 112, 8;
        OPERATION = "operation", 120, 8;
        SLABS = "slabs", 128, 136;
        INLINE_BYTES = "inline_bytes", 264, 2;
        ZERO = "zero", 266, 6;
        EXTENDED = "extended", 272, 8;
        PRIMARY = "primary", 280, 72;
        REST = "zero", 352, 160;
        INLINE = "inline", 512, 3584;
    }
}

const MAGIC: &[u8; 4] = b"HSIN";
/// Bytes of content that fit in.
pub const INLINE_BYTES_MAX: usize = layout::INLINE.bytes;
/// Entries that a directory has at most: names of all inodes, with all their links.
const ENTRIES_END: u64 = 1 << 50;
/// Bytes of what a symbolic link holds at most.
pub const SYMLINK_BYTES_MAX: u64 = 4095;
/// Permissions, and the bits for setuid, setgid and sticky.
pub const MODE_BITS: u16 = 0o7777;
const IN_SLABS: u8 = 1;
const HAS_VERIFIER: u8 = 2;

/// Where the content is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nowhere: the kind has none.
    None,
    /// The first bytes of a file or symbolic link; zeros follow.
    Inline(Vec<u8>),
    /// The entries of a directory.
    Entries(Entries),
    /// The block of the root of a directory's tree.
    Tree(u64),
    /// The slabs of each level of a file or symbolic link; 0: none, a hole.
    Slabs([u64; LEVELS]),
}

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeBlock {
    /// Its life.
    pub generation: Generation,
    /// Its kind.
    pub kind: FileKind,
    /// Permissions and the bits above them.
    pub mode: u16,
    /// Names that it has; of a directory 2 and its directories.
    pub links: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Bytes of content; of a directory those of its nodes.
    pub size: u64,
    /// Blocks of data that it holds, of a sparse file perhaps fewer than these.
    pub used: u64,
    /// Last access that somebody told of.
    pub accessed: WallTime,
    /// Last change of the content.
    pub modified: WallTime,
    /// Last change of anything; rises strictly.
    pub changed: WallTime,
    /// Its birth.
    pub created: WallTime,
    /// Of a directory: the one that it is in; the root is in itself. Of others 0.
    pub parent: Inode,
    /// Of a directory: how many entries it has.
    pub entries: u64,
    /// The verifier of the exclusive CREATE that made it, until its attributes are set.
    pub verifier: Option<[u8; 8]>,
    /// Of a device: major and minor number.
    pub device: (u32, u32),
    /// The number of the operation that changed it last.
    pub operation: u64,
    /// Where the content is.
    pub content: Content,
}

codec! {
    InodeBlock:
    generation = GENERATION, mode = MODE, links = LINKS, uid = UID, gid = GID, size = SIZE,
    used = USED, accessed = ACCESSED, modified = MODIFIED, changed = CHANGED, created = CREATED,
    parent = PARENT, entries = ENTRIES, operation = OPERATION;
    kind: FileKind, verifier: Option<[u8; 8]>, device: (u32, u32), content: Content
}

impl InodeBlock {
    /// Its block.
    pub fn encode(&self, address: ShareAddress) -> Box<[u8; BLOCK_BYTES]> {
        let mut bytes = address.begin(MAGIC);
        let b = &mut bytes[..];
        self.put_fields(b);
        put(b, layout::KIND, self.kind as u64);
        put(b, layout::VERIFIER, u64::from_le_bytes(self.verifier.unwrap_or_default()));
        put(b, layout::DEVICE, u64::from(self.device.0) | u64::from(self.device.1) << 32);
        let mut flags = if self.verifier.is_some() { HAS_VERIFIER } else { 0 };
        let inline = match &self.content {
            Content::None => &[],
            Content::Inline(inline) => &inline[..],
            Content::Entries(entries) => entries.as_bytes(),
            Content::Tree(block) => {
                flags |= IN_SLABS;
                put(b, slab_field(0), *block);
                &[]
            }
            Content::Slabs(slabs) => {
                flags |= IN_SLABS;
                for (level, slab) in slabs.iter().enumerate() {
                    put(b, slab_field(level), *slab);
                }
                &[]
            }
        };
        assert!(inline.len() <= INLINE_BYTES_MAX);
        put(b, layout::FLAGS, u64::from(flags));
        put(b, layout::INLINE_BYTES, inline.len() as u64);
        b[layout::INLINE.offset..][..inline.len()].copy_from_slice(inline);
        bytes
    }

    /// Decodes an inode from its block.
    ///
    /// # Errors
    /// `NotThis` or `Invalid`.
    pub fn decode(bytes: &[u8; BLOCK_BYTES], address: ShareAddress) -> Result<InodeBlock> {
        let place = address.place("inode");
        address.verify(place, MAGIC, bytes)?;
        let b = &bytes[..];
        let kind = FileKind::decode(place, b, layout::KIND)?;
        let flags = b[layout::FLAGS.offset];
        place.require(flags & !(IN_SLABS | HAS_VERIFIER) == 0, "flags that are known", flags)?;
        let verifier = get(b, layout::VERIFIER).to_le_bytes();
        let device = get(b, layout::DEVICE);
        let has_verifier = flags & HAS_VERIFIER != 0;
        let numbers = (device as u32, (device >> 32) as u32);
        let content = decode_content(address, b, kind, flags & IN_SLABS != 0)?;
        let told = has_verifier.then_some(verifier);
        let inode = InodeBlock::get_fields(b, kind, told, numbers, content);
        place.require(has_verifier || verifier == [0; 8], "no verifier", "one without flag")?;
        inode.verify(place, has_verifier, device)?;
        Ok(inode)
    }

    fn verify(&self, place: Place, has_verifier: bool, device: u64) -> Result<()> {
        let is_directory = self.kind == FileKind::Directory;
        place.require_countable("generation", self.generation.0)?;
        place.require_countable("operation", self.operation)?;
        place.require(self.generation.0 > 0, "a generation", 0)?;
        place.require(self.mode & !MODE_BITS == 0, "a mode of 12 bits", self.mode)?;
        place.require(self.links > 0, "links", self.links)?;
        let has_parent = self.parent.0 != 0 || !is_directory;
        place.require(has_parent && self.parent < Inode::END, "a parent", self.parent)?;
        place.require(is_directory || self.entries == 0, "no entries", self.entries)?;
        place.require(self.used <= 1 << 40, "a used that fits", self.used)?;
        let is_file = self.kind == FileKind::File;
        place.require(is_file || !has_verifier, "no verifier", "one")?;
        place.require(self.kind.is_device() || device == 0, "no device", device)?;
        let size = self.size;
        let longest = match (self.kind, &self.content) {
            (FileKind::Symlink, _) => SYMLINK_BYTES_MAX,
            (FileKind::File, Content::Slabs(_)) => FILE_BYTES_MAX,
            (FileKind::File, _) => INLINE_BYTES_MAX as u64,
            (FileKind::Directory, _) => 1 << 62,
            _ => 0,
        };
        place.require(size <= longest, "a size of its kind", size)?;
        match &self.content {
            Content::Inline(inline) => {
                place.require(inline.len() as u64 <= size, "no more inline than its size", size)
            }
            Content::Entries(entries) => {
                let are_all = entries.count() as u64 == self.entries;
                place.require(are_all, "entries as it says", self.entries)
            }
            Content::Slabs(slabs) => {
                let blocks = size.div_ceil(units::BLOCK_BYTES);
                let fits = |(level, slab): (usize, &u64)| {
                    *slab == 0 || is_slab(level, *slab) && first_of_level(level) < blocks
                };
                place.require(slabs.iter().enumerate().all(fits), "slabs of its size", size)
            }
            Content::Tree(block) => {
                let are_some = (1..ENTRIES_END).contains(&self.entries);
                place.require(are_some, "1 to 2^50 - 1 entries of a tree", self.entries)?;
                place.require(is_slab(0, *block), "a block of data", block)
            }
            Content::None => Ok(()),
        }
    }
}

impl EntryObject {
    /// Whether it is that of a block of its inode.
    pub fn is(&self, inode: &InodeBlock) -> bool {
        *self == EntryObject::of(self.inode, inode.kind, inode.generation)
    }
}

fn slab_field(level: usize) -> Field {
    Field::new("slab", layout::SLABS.offset + level * 8, 8)
}

fn decode_content(
    address: ShareAddress,
    b: &[u8],
    kind: FileKind,
    in_slabs: bool,
) -> Result<Content> {
    let place = address.place("inode");
    let spare = layout::ZERO.offset..layout::REST.end();
    address.verify_spare(place, &b[spare.clone()], spare.start)?;
    let length = get(b, layout::INLINE_BYTES) as usize;
    let is_short = length <= INLINE_BYTES_MAX && !(in_slabs && length > 0);
    place.require(is_short, "inline_bytes that fit", length)?;
    let (inline, rest) = b[layout::INLINE.offset..].split_at(length);
    verify_zero_bytes(place, rest, layout::INLINE.offset + length)?;
    let slabs: [u64; LEVELS] = std::array::from_fn(|level| get(b, slab_field(level)));
    let has_slabs = slabs.iter().any(|slab| *slab != 0);
    place.require(in_slabs || !has_slabs, "no slabs", "some")?;
    match (kind, in_slabs) {
        (FileKind::Directory, false) => {
            let count = get(b, layout::ENTRIES) as usize;
            Ok(Content::Entries(Entries::decode(place, inline, count)?))
        }
        (FileKind::Directory, true) => {
            let is_alone = slabs[1..].iter().all(|slab| *slab == 0);
            place.require(is_alone, "one root of a tree", "slabs")?;
            Ok(Content::Tree(slabs[0]))
        }
        (FileKind::File | FileKind::Symlink, false) => Ok(Content::Inline(inline.to_vec())),
        (FileKind::File | FileKind::Symlink, true) => Ok(Content::Slabs(slabs)),
        _ => {
            place.require(length == 0 && !in_slabs, "no content", length)?;
            Ok(Content::None)
        }
    }
}
