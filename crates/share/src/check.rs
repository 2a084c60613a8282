//! Walks a share and says what is wrong with it.
//!
//! It trusts nothing that an operation trusts: links are counted from the entries, free numbers
//! from what is used. It holds 24 bytes an object and slab in memory.
//!
//! 1. The slabs of objects, those on stacks and the rests of runs tile the data area, up to the run
//!    of the highest level.
//! 2. Inodes that are used and those on the stack are all below the next one, each once.

use std::collections::{BTreeMap, BTreeSet};

use format::share::directory::{DirectoryNode, NodeContent};
use format::share::inode::{Content, FileKind, InodeBlock};
use format::share::log::{State, run_end};
use format::share::name_hash::{KEYS_OF_A_HASH, first_key};
use format::share::place::{
    DATA_FIRST, INODES_FIRST, LEVELS, ROOT_BLOCK, inode_block, is_slab, slab_blocks,
};
use format::share::stack::{StackBlock, stack_place};
use units::Inode;

use crate::error::{ErrorKind, Result};
use crate::source::{Meta, Source};

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The block where it shows.
    pub block: u64,
    /// The fault.
    pub fault: String,
}

/// Findings at most: one who has so many wants to know that there are, not each.
const FINDINGS_MAX: usize = 1000;

/// Says what is wrong with a share: nothing, if all is well.
///
/// # Errors
/// `Storage` and `WouldWait`; what is `Corrupt` is a finding.
pub fn check(source: &dyn Source, state: &State) -> Result<Vec<Finding>> {
    let mut check = Check {
        source,
        findings: Vec::new(),
        links: BTreeMap::new(),
        slabs: Vec::new(),
        used: 0,
        found: BTreeSet::new(),
    };
    check.directories()?;
    check.inodes(state)?;
    check.free_inodes(state)?;
    check.slabs(state)?;
    if check.used != state.used {
        check.find(ROOT_BLOCK, format!("{} blocks are used, {} counted", check.used, state.used));
    }
    Ok(check.findings)
}

struct Check<'s> {
    source: &'s dyn Source,
    findings: Vec<Finding>,
    /// Names of each object that has one, and of a directory those of its directories.
    links: BTreeMap<Inode, u32>,
    /// First block and length of every slab that is accounted for.
    slabs: Vec<(u64, u64)>,
    used: u64,
    /// Objects, as far as they were looked at.
    found: BTreeSet<Inode>,
}

/// An entry, as the walk has it.
struct Named {
    key: u64,
    inode: Inode,
    name: Vec<u8>,
}

impl Check<'_> {
    fn find(&mut self, block: u64, fault: impl Into<String>) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { block, fault: fault.into() });
        }
    }

    /// A result of reading; none if it is damaged, which is a finding.
    fn read<T>(&mut self, block: u64, read: Result<T>) -> Result<Option<T>> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind == ErrorKind::Corrupt => {
                let cause = error.source.map(|source| source.to_string()).unwrap_or_default();
                self.find(block, format!("damaged: {cause}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Walks all directories from the top.
    fn directories(&mut self) -> Result<()> {
        let mut waiting = vec![(Inode::ROOT, Inode::ROOT)];
        self.links.insert(Inode::ROOT, 1);
        while let Some((number, parent)) = waiting.pop() {
            let block = inode_block(number);
            let read = self.source.inode(number);
            let Some(Some(directory)) = self.read(block, read)? else {
                self.find(block, "a directory is missing");
                continue;
            };
            if directory.parent != parent {
                self.find(block, format!("its parent is {parent}, not {}", directory.parent));
            }
            *self.links.entry(number).or_default() += 1;
            for entry in self.entries(number, &directory)? {
                self.check_name(block, &entry);
                let seen = self.links.contains_key(&entry.inode);
                *self.links.entry(entry.inode).or_default() += 1;
                let at = inode_block(entry.inode);
                let read = self.source.inode(entry.inode);
                match self.read(at, read)?.flatten() {
                    None => self.find(at, "an entry names an inode that is free"),
                    Some(inode) if inode.kind == FileKind::Directory && seen => {
                        self.find(at, "a directory with two names");
                    }
                    Some(inode) if inode.kind == FileKind::Directory => {
                        *self.links.entry(number).or_default() += 1;
                        waiting.push((entry.inode, number));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    fn check_name(&mut self, block: u64, entry: &Named) {
        let first = first_key(self.source.root().hash_key, &entry.name);
        if !(first..first + KEYS_OF_A_HASH).contains(&entry.key) {
            let name = String::from_utf8_lossy(&entry.name);
            self.find(block, format!("the key of `{name}` is not of its name"));
        }
    }

    /// The entries of a directory, and its nodes.
    fn entries(&mut self, number: Inode, directory: &InodeBlock) -> Result<Vec<Named>> {
        let block = inode_block(number);
        let mut found = Vec::new();
        match &directory.content {
            Content::Entries(entries) => found.extend(entries.iter().map(|entry| Named {
                key: entry.key,
                inode: entry.inode,
                name: entry.name.as_bytes().to_vec(),
            })),
            Content::Tree(root) => self.walk(number, *root, None, (0, 1 << 63), &mut found)?,
            _ => self.find(block, "a directory without entries"),
        }
        if found.len() as u64 != directory.entries {
            let fault = format!("{} entries, {} counted", found.len(), directory.entries);
            self.find(block, fault);
        }
        let mut names: Vec<&[u8]> = found.iter().map(|entry| &entry.name[..]).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            self.find(block, "a name twice");
        }
        Ok(found)
    }

    /// Walks the nodes of a directory; all keys below are from `keys.0` on and before `keys.1`.
    fn walk(
        &mut self,
        number: Inode,
        block: u64,
        level: Option<u8>,
        keys: (u64, u64),
        found: &mut Vec<Named>,
    ) -> Result<()> {
        self.slabs.push((block, 1));
        self.used += 1;
        let read = self.source.node(number, block, level);
        let Some(node) = self.read(block, read)? else { return Ok(()) };
        let DirectoryNode { content, .. } = &*node;
        match content {
            NodeContent::Leaf(entries) => {
                if entries.count() == 0 {
                    self.find(block, "a leaf without entries");
                }
                for entry in entries.iter() {
                    if !(keys.0..keys.1).contains(&entry.key) {
                        self.find(block, "a key outside of what its parent says");
                    }
                    let name = entry.name.as_bytes().to_vec();
                    found.push(Named { key: entry.key, inode: entry.inode, name });
                }
            }
            NodeContent::Inner(level, children) => {
                if children[0].key != keys.0 {
                    self.find(block, "the first child is not where its parent says");
                }
                for (index, child) in children.iter().enumerate() {
                    let end = children.get(index + 1).map_or(keys.1, |next| next.key);
                    self.walk(number, child.block, Some(level - 1), (child.key, end), found)?;
                }
            }
        }
        Ok(())
    }

    /// Looks at every inode that ever was given out.
    fn inodes(&mut self, state: &State) -> Result<()> {
        for number in (Inode::ROOT.0..state.free[0].next).map(Inode) {
            let block = inode_block(number);
            let read = self.source.inode(number);
            let Some(Some(inode)) = self.read(block, read)? else { continue };
            self.found.insert(number);
            let names = self.links.get(&number).copied().unwrap_or_default();
            match names {
                0 => self.find(block, "an object without a name"),
                _ if names != inode.links => {
                    self.find(block, format!("{names} links, {} counted", inode.links));
                }
                _ => {}
            }
            if inode.changed > state.time || inode.operation > state.operation {
                self.find(block, "changed after the last operation");
            }
            if inode.kind != FileKind::Directory {
                self.used += inode.used;
            }
            self.content(block, &inode)?;
        }
        let beyond = self.links.range(Inode(state.free[0].next)..).next().map(|(inode, _)| *inode);
        if let Some(inode) = beyond {
            self.find(inode_block(inode), "an inode that was never given out");
        }
        if self.found.len() as u64 != state.inodes {
            let fault = format!("{} objects, {} counted", self.found.len(), state.inodes);
            self.find(ROOT_BLOCK, fault);
        }
        Ok(())
    }

    /// The slabs of a file; beyond its end there is nothing.
    fn content(&mut self, block: u64, inode: &InodeBlock) -> Result<()> {
        let Content::Slabs(slabs) = &inode.content else { return Ok(()) };
        for (level, slab) in slabs.iter().enumerate().filter(|(_, slab)| **slab != 0) {
            self.slabs.push((*slab, slab_blocks(level)));
        }
        let kept = (inode.size % units::BLOCK_BYTES) as usize;
        let last = inode.size.saturating_sub(1) / units::BLOCK_BYTES;
        let slab = slabs[format::share::place::level_of(last)];
        if kept > 0 && slab != 0 {
            let mut bytes = [0; units::BLOCK_BYTES as usize];
            let read = self.source.data(slab + last, &mut bytes);
            let is_clean = self.read(slab + last, read)?.is_none()
                || bytes[kept..].iter().all(|byte| *byte == 0);
            if !is_clean {
                self.find(block, "bytes beyond the end of the file");
            }
        }
        Ok(())
    }

    /// The stack of free inodes.
    fn free_inodes(&mut self, state: &State) -> Result<()> {
        let numbers = self.stack(state, 0)?;
        let mut free = BTreeSet::new();
        for (block, number) in numbers {
            let inode = Inode(number);
            if !(Inode::ROOT.0..state.free[0].next).contains(&number) || !free.insert(inode) {
                self.find(block, format!("inode {number} is free twice, or was never used"));
            } else if self.found.contains(&inode) {
                self.find(block, format!("inode {number} is used, and free"));
            }
        }
        let all = state.free[0].next - Inode::ROOT.0;
        let lost = all - (free.len() + self.found.len()) as u64;
        if lost != 0 && self.findings.is_empty() {
            self.find(INODES_FIRST, format!("{lost} numbers of inodes are lost"));
        }
        Ok(())
    }

    /// Whether the slabs of objects, free ones and rests of runs tile the area.
    fn slabs(&mut self, state: &State) -> Result<()> {
        for level in 0..LEVELS {
            for (block, slab) in self.stack(state, 1 + level)? {
                if is_slab(level, slab) {
                    self.slabs.push((slab, slab_blocks(level)));
                } else {
                    self.find(block, format!("{slab} is no slab of level {level}"));
                }
            }
            let next = state.free[1 + level].next;
            let end = run_end(level, next);
            if level + 1 < LEVELS && next < end {
                self.slabs.push((next, end - next));
            }
        }
        self.slabs.sort_unstable();
        let mut at = DATA_FIRST;
        for (first, blocks) in std::mem::take(&mut self.slabs) {
            if first > at {
                self.find(at, format!("{} blocks are lost", first - at));
            } else if first < at {
                self.find(first, "a slab is used twice");
            }
            at = at.max(first + blocks);
        }
        let end = state.free[LEVELS].next;
        if at != end {
            self.find(at, format!("slabs end here, not at {end}"));
        }
        Ok(())
    }

    /// The numbers on a stack, with the blocks that they are in.
    fn stack(&mut self, state: &State, stack: usize) -> Result<Vec<(u64, u64)>> {
        let mut numbers = Vec::new();
        let mut current: Option<(u64, StackBlock)> = None;
        for height in 0..state.free[stack].height {
            let (block, index) = stack_place(stack, height);
            if current.as_ref().is_none_or(|(at, _)| *at != block) {
                let read = self.source.meta(block);
                let Some(Some(Meta::Stack(found))) = self.read(block, read)? else {
                    self.find(block, "a block of a stack is missing");
                    return Ok(numbers);
                };
                current = Some((block, (*found).clone()));
            }
            let (_, found) = current.as_ref().expect("it was just read");
            numbers.push((block, found.numbers[index]));
        }
        Ok(numbers)
    }
}
