//! Walks a share and says what is wrong with it.
//!
//! It trusts nothing that an operation trusts: links are counted from the entries, free numbers
//! from what is used. It holds 24 bytes an object and slab in memory.
//!
//! 1. The slabs of objects, those on stacks and the rests of runs tile the data area, up to the run
//!    of the highest level.
//! 2. Inodes that are used and those on the stack are all below the next one, each once.

use std::collections::{BTreeMap, BTreeSet};

use format::share::directory::{Entry, EntryObject, NodeContent};
use format::share::inode::{Content, FileKind, InodeBlock};
use format::share::log::{State, run_end};
use format::share::name_hash::{KEYS_OF_A_HASH, first_key};
use format::share::place::{
    DATA_FIRST, INODES_FIRST, LEVELS, ROOT_BLOCK, inode_block, is_slab, slab_blocks,
};
use format::share::stack::{StackBlock, stack_place};
use units::Inode;

use crate::directory::OUTSIDE;
use crate::error::{ErrorKind, Result};
use crate::source::{Below, Meta, Source};

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The block where it shows.
    pub block: u64,
    /// The fault.
    pub fault: String,
}

/// Findings at most: with so many the walk ends.
const FINDINGS_MAX: usize = 1000;
/// Inodes that are looked at together.
const INODES_AT_ONCE: u64 = 1 << 16;

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
    if !check.is_over() && check.used != state.used {
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
    object: EntryObject,
    name: Vec<u8>,
}

impl From<Entry<'_>> for Named {
    fn from(entry: Entry<'_>) -> Named {
        Named { key: entry.key, object: entry.object, name: entry.name.as_bytes().to_vec() }
    }
}

impl Check<'_> {
    fn find(&mut self, block: u64, fault: impl Into<String>) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { block, fault: fault.into() });
        }
    }

    /// Whether there are so many findings that nobody wants more.
    fn is_over(&self) -> bool {
        self.findings.len() >= FINDINGS_MAX
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
        while let Some((number, parent)) = waiting.pop().filter(|_| !self.is_over()) {
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
                let found = entry.object.inode;
                let seen = self.links.contains_key(&found);
                *self.links.entry(found).or_default() += 1;
                let at = inode_block(found);
                let read = self.source.inode(found);
                match self.read(at, read)?.flatten() {
                    None => self.find(at, "an entry names an inode that is free"),
                    Some(inode) if !entry.object.is(&inode) => {
                        self.find(at, "not the object that an entry names");
                    }
                    Some(inode) if inode.kind == FileKind::Directory && seen => {
                        self.find(at, "a directory with two names");
                    }
                    Some(inode) if inode.kind == FileKind::Directory => {
                        *self.links.entry(number).or_default() += 1;
                        waiting.push((found, number));
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
            Content::Entries(entries) => found.extend(entries.iter().map(Named::from)),
            Content::Tree(root) => self.walk(number, Below::root(*root), &mut found)?,
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

    /// Walks the nodes of a directory. No node is below two: their keys would not be as said.
    fn walk(&mut self, number: Inode, at: Below, found: &mut Vec<Named>) -> Result<()> {
        self.slabs.push((at.block, 1));
        self.used += 1;
        let read = self.source.node(number, at);
        let Some(node) = self.read(at.block, read)? else { return Ok(()) };
        match &node.content {
            NodeContent::Leaf(entries) => {
                if entries.count() == 0 {
                    self.find(at.block, "a leaf without entries");
                }
                if !entries.iter().all(|entry| at.has(entry.key)) {
                    self.find(at.block, OUTSIDE);
                }
                found.extend(entries.iter().map(Named::from));
            }
            NodeContent::Inner(level, children) => {
                for index in 0..children.len() {
                    if self.is_over() {
                        break;
                    }
                    self.walk(number, at.child(*level, children, index), found)?;
                }
            }
        }
        Ok(())
    }

    /// Looks at every inode that ever was given out.
    fn inodes(&mut self, state: &State) -> Result<()> {
        let end = state.free[0].next;
        for first in (Inode::ROOT.0..end).step_by(INODES_AT_ONCE as usize) {
            if self.is_over() {
                return Ok(());
            }
            let numbers = first..end.min(first + INODES_AT_ONCE);
            let blocks = numbers.end - numbers.start;
            // Where a damaged state has numbers that never were given out, there are holes.
            if self.source.count_data(inode_block(Inode(first)), blocks)? > 0 {
                self.some_inodes(numbers, state)?;
            }
        }
        let beyond = self.links.range(Inode(end)..).next().map(|(inode, _)| *inode);
        if let Some(inode) = beyond {
            self.find(inode_block(inode), "an inode that was never given out");
        }
        if self.found.len() as u64 != state.inodes {
            let fault = format!("{} objects, {} counted", self.found.len(), state.inodes);
            self.find(ROOT_BLOCK, fault);
        }
        Ok(())
    }

    fn some_inodes(&mut self, numbers: std::ops::Range<u64>, state: &State) -> Result<()> {
        for number in numbers.map(Inode) {
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
        let lost = all.saturating_sub((free.len() + self.found.len()) as u64);
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
        if self.is_over() {
            return Ok(());
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
            if self.is_over() {
                break;
            }
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
