//! Answers to bytes.

use super::limits::{DATA_BYTES_MAX, PAGES_MAX, REPLY_BYTES, VERSION};
use super::types::{Attributes, Errno};

/// Reads may be answered in any order.
const ASYNC_READ: u32 = 1 << 0;
/// Writes of more than a page.
const BIG_WRITES: u32 = 1 << 5;
/// Names are asked for with what is known of them, where that pays.
const READDIRPLUS: u32 = 1 << 13 | 1 << 14;
/// Files are not opened.
const NO_OPEN: u32 = 1 << 17;
/// `PAGES_MAX` is read.
const MAX_PAGES: u32 = 1 << 22;
/// Where links lead is kept.
const CACHE_SYMLINKS: u32 = 1 << 23;
/// Directories are not opened.
const NO_OPENDIR: u32 = 1 << 24;
const WANTED: u32 =
    ASYNC_READ | BIG_WRITES | READDIRPLUS | NO_OPEN | MAX_PAGES | CACHE_SYMLINKS | NO_OPENDIR;

/// For how long what was told holds, in seconds: it never changes.
const VALID_SECONDS: u64 = 365 * 24 * 3600;
/// Requests that the kernel sends without a process that waits for them, at most.
const BACKGROUND: u16 = 64;
/// A name in a directory begins at a multiple of this.
const ALIGN: usize = 8;
const DIRENT_BYTES: usize = 24;

/// An answer.
pub struct Reply(Vec<u8>);

impl Reply {
    /// One to a request, with nothing in it.
    #[must_use]
    pub fn to(unique: u64) -> Reply {
        let mut bytes = vec![0; 8];
        bytes.extend(unique.to_le_bytes());
        Reply(bytes)
    }

    /// One that says that it failed.
    #[must_use]
    pub fn failure(unique: u64, errno: Errno) -> Vec<u8> {
        let mut reply = Reply::to(unique);
        reply.0[4..8].copy_from_slice(&(-errno.0).to_le_bytes());
        reply.finish()
    }

    /// The message.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        self.0
    }

    /// Adds bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Room for so many bytes, which `fill` has; it says how many it had.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn fill<E>(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let from = self.0.len();
        let mut bytes = vec![0; from + length];
        bytes[..from].copy_from_slice(&self.0);
        self.0 = bytes;
        let filled = fill(&mut self.0[from..])?;
        self.0.truncate(from + filled.min(length));
        Ok(())
    }

    fn u32(&mut self, number: u32) {
        self.put(&number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.put(&number.to_le_bytes());
    }

    /// The terms that are agreed on.
    pub fn init(&mut self, readahead_bytes: u32, flags: u32) {
        self.u32(VERSION.0);
        self.u32(VERSION.1);
        self.u32(readahead_bytes);
        self.u32(flags & WANTED);
        self.put(&BACKGROUND.to_le_bytes());
        self.put(&(BACKGROUND / 4 * 3).to_le_bytes());
        self.u32(DATA_BYTES_MAX);
        // Times are to the nanosecond.
        self.u32(1);
        self.put(&PAGES_MAX.to_le_bytes());
        self.put(&[0; 34]);
    }

    /// A name's object.
    pub fn entry(&mut self, node: u64, generation: u64, attributes: &Attributes) {
        self.u64(node);
        self.u64(generation);
        self.u64(VALID_SECONDS);
        self.u64(VALID_SECONDS);
        self.u64(0);
        self.attributes_alone(attributes);
    }

    /// That there is no object with a name, which is as sure.
    pub fn no_entry(&mut self) {
        self.entry(0, 0, &Attributes::default());
    }

    /// The attributes of an object.
    pub fn attributes(&mut self, attributes: &Attributes) {
        self.u64(VALID_SECONDS);
        self.u64(0);
        self.attributes_alone(attributes);
    }

    fn attributes_alone(&mut self, of: &Attributes) {
        [of.inode, of.size, of.blocks].into_iter().for_each(|number| self.u64(number));
        of.times.iter().for_each(|(seconds, _)| self.put(&seconds.to_le_bytes()));
        of.times.iter().for_each(|(_, nanos)| self.u32(*nanos));
        let (major, minor) = of.device;
        let device = minor & 0xFF | major << 8 | (minor & !0xFF) << 12;
        let numbers = [of.mode, of.links, of.uid, of.gid, device, of.block_bytes, 0];
        numbers.into_iter().for_each(|number| self.u32(number));
    }

    /// The size of it all, in blocks, none of them free.
    pub fn space(&mut self, blocks: u64, block_bytes: u32, name_bytes_max: u32) {
        self.u64(blocks);
        [0; 4].into_iter().for_each(|number| self.u64(number));
        [block_bytes, name_bytes_max, block_bytes].into_iter().for_each(|number| self.u32(number));
        self.put(&[0; 28]);
    }

    /// A number of 32 bits, and padding.
    pub fn number(&mut self, number: u32) {
        self.u32(number);
        self.u32(0);
    }

    /// A place in a file.
    pub fn place(&mut self, offset: u64) {
        self.u64(offset);
    }

    /// A name in a directory, if there is room for it: then the answer has at most `room` bytes
    /// behind its header.
    pub fn name(&mut self, room: u32, name: &Name<'_>) -> bool {
        let plus = if name.known.is_some() { 128 } else { 0 };
        let length = (plus + DIRENT_BYTES + name.name.len()).next_multiple_of(ALIGN);
        let from = self.0.len();
        if from - REPLY_BYTES + length > room as usize {
            return false;
        }
        match name.known {
            None => {}
            Some(None) => self.no_entry(),
            Some(Some((node, generation, attributes))) => self.entry(node, generation, attributes),
        }
        self.u64(name.inode);
        self.u64(name.next);
        self.u32(name.name.len() as u32);
        self.u32(name.kind);
        self.put(name.name);
        self.0.resize(from + length, 0);
        true
    }
}

/// A node, its generation, and what is known of it.
pub type Known<'a> = (u64, u64, &'a Attributes);

/// A name in a directory.
pub struct Name<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The number that people see.
    pub inode: u64,
    /// How many names are passed with this one.
    pub next: u64,
    /// The upper four bits of the mode.
    pub kind: u32,
    /// For answers with what is known: that, or that it is to be asked for by itself.
    pub known: Option<Option<Known<'a>>>,
}

#[cfg(test)]
mod tests {
    use super::{Attributes, Errno, Name, Reply};

    /// Lengths of `linux/fuse.h`, behind the header.
    #[test]
    fn answers_have_the_lengths_of_the_protocol() {
        let length = |put: &dyn Fn(&mut Reply)| {
            let mut reply = Reply::to(3);
            put(&mut reply);
            let bytes = reply.finish();
            assert_eq!(bytes[..4], (bytes.len() as u32).to_le_bytes());
            assert_eq!(bytes[8..16], 3_u64.to_le_bytes());
            bytes.len() - 16
        };
        assert_eq!(length(&|reply| reply.init(0, u32::MAX)), 64);
        assert_eq!(length(&|reply| reply.no_entry()), 128);
        assert_eq!(length(&|reply| reply.attributes(&Attributes::default())), 104);
        assert_eq!(length(&|reply| reply.space(1, 4096, 255)), 80);
        assert_eq!(length(&|reply| reply.number(1)), 8);
        assert_eq!(length(&|reply| reply.place(1)), 8);
        let failed = Reply::failure(3, Errno::IO);
        assert_eq!(failed, [16, 0, 0, 0, 251, 255, 255, 255, 3, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn names_are_put_until_there_is_no_room() {
        let mut reply = Reply::to(1);
        let name = Name { name: b"abc", inode: 5, next: 1, kind: 8, known: Some(None) };
        assert!(reply.name(400, &name));
        assert!(reply.name(400, &Name { known: None, ..name }));
        // 160 and 32 are taken; 160 more are 352, and 160 more are too many.
        assert!(reply.name(400, &name));
        assert!(!reply.name(400, &name));
        assert!(reply.name(384, &Name { known: None, ..name }));
        assert!(!reply.name(384, &Name { known: None, ..name }));
        assert_eq!(reply.finish().len(), 16 + 384);
    }
}
