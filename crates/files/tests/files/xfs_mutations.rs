//! An XFS with bytes changed at random and all checksums right: readers refuse or read, and come to
//! an end.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::OnceLock;

use hindsight_files::{Error, Part, Source, State, Tree, open};
use proptest::prelude::{ProptestConfig, any, proptest};
use proptest::sample::Index;

use crate::mutations::{cases, walk};
use crate::xfs_log::{SECTOR, image, listed, records, sectors};
use crate::xfs_sums::{log_of, mend_block, mend_record};

const BLOCK: usize = 4096;

/// The image with some sectors changed.
#[derive(Clone, Default)]
struct Changed(BTreeMap<usize, Vec<u8>>);

impl Source for Changed {
    fn size(&self) -> u64 {
        image().len() as u64
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let from = offset as usize;
        let beyond = || io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end");
        let end = from.checked_add(bytes.len()).ok_or_else(beyond)?;
        bytes.copy_from_slice(image().get(from..end).ok_or_else(beyond)?);
        for (&at, sector) in self.0.range((from + 1).saturating_sub(SECTOR)..end) {
            let (start, past) = (at.max(from), (at + SECTOR).min(end));
            bytes[start - from..past - from].copy_from_slice(&sector[start - at..past - at]);
        }
        Ok(())
    }
}

impl Changed {
    fn get(&self, sectors: &[usize]) -> Vec<u8> {
        let mut bytes = vec![0; sectors.len() * SECTOR];
        for (&at, bytes) in sectors.iter().zip(bytes.chunks_exact_mut(SECTOR)) {
            self.read_at(at as u64, bytes).unwrap();
        }
        bytes
    }

    fn put(&mut self, sectors: &[usize], bytes: &[u8]) {
        for (&at, bytes) in sectors.iter().zip(bytes.chunks_exact(SECTOR)) {
            self.0.insert(at, bytes.to_vec());
        }
    }
}

/// What has checksums: blocks, as their sectors; and records of the log.
struct Parts {
    blocks: Vec<Vec<usize>>,
    records: Vec<Vec<usize>>,
}

fn parts() -> &'static Parts {
    static PARTS: OnceLock<Parts> = OnceLock::new();
    PARTS.get_or_init(|| {
        let log = log_of(image());
        let is_metadata = |at: &usize| {
            let block = &image()[*at..*at + BLOCK];
            let mut mended = block.to_vec();
            mended[500] ^= 1;
            let before = mended.clone();
            mend_block(&mut mended);
            !log.contains(at) && mended != before
        };
        let blocks = (0..image().len()).step_by(BLOCK).filter(is_metadata);
        let blocks = blocks.map(|at| (at..at + BLOCK).step_by(SECTOR).collect()).collect();
        let of = |record: (usize, usize)| sectors(image(), record);
        Parts { blocks, records: records(image()).into_iter().map(of).collect() }
    })
}

fn opened(changed: Changed) -> hindsight_files::Result<Box<dyn Tree>> {
    let size = changed.size();
    let disk: Rc<dyn Source> = Rc::new(changed);
    Ok(open(&disk, &Part::whole(size))?.1)
}

#[test]
fn what_is_mutated_is_much_and_right() {
    let (blocks, records) = (&parts().blocks, &parts().records);
    assert!(blocks.len() > 30 && records.len() > 10, "{} and {}", blocks.len(), records.len());
    let mut same = Changed::default();
    for sectors in blocks {
        let mut bytes = same.get(sectors);
        mend_block(&mut bytes);
        same.put(sectors, &bytes);
    }
    for sectors in records {
        let mut bytes = same.get(sectors);
        mend_record(&mut bytes);
        same.put(sectors, &bytes);
    }
    for (at, sector) in &same.0 {
        assert!(sector == &image()[*at..*at + SECTOR], "the checksum at {at}");
    }
    assert!(matches!(opened(same).unwrap().state(), State::Replayed(_)));
}

/// A checksum that does not match is not put right by a change of another part of the block.
#[test]
fn rot_under_what_the_log_changes_is_damage_or_is_overwritten() {
    let expected = listed(&*opened(Changed::default()).unwrap()).unwrap();
    let mut found = (0, 0);
    for (index, sectors) in parts().blocks.iter().enumerate() {
        for part in 0..6 {
            let mut changed = Changed::default();
            let mut bytes = changed.get(sectors);
            let at = 64 + (index * 6 + part) * 797 % (BLOCK - 64);
            bytes[at] ^= 1 << (index % 8);
            changed.put(sectors, &bytes);
            match opened(changed).and_then(|tree| listed(&*tree)) {
                Ok(listed) => {
                    assert!(listed == expected, "byte {at} of the block at {}", sectors[0]);
                    found.0 += 1;
                }
                Err(_) => found.1 += 1,
            }
        }
    }
    assert!(found.1 > 10, "{found:?}");
}

/// The same of inodes: an inode tells where the bytes of its file are, and the log may change other
/// fields of it.
#[test]
fn rot_in_an_inode_that_the_log_changes_is_damage_or_is_overwritten() {
    let expected = listed(&*opened(Changed::default()).unwrap()).unwrap();
    let inodes = parts().blocks.iter().flatten().filter(|&&at| image()[at..].starts_with(b"IN"));
    let mut damaged = 0;
    for &at in inodes {
        let mut changed = Changed::default();
        let mut bytes = changed.get(&[at]);
        // The lowest byte of the first extent's place, or of what else the data fork begins with.
        bytes[176 + 13] ^= 0x80;
        changed.put(&[at], &bytes);
        match opened(changed).and_then(|tree| listed(&*tree)) {
            Ok(listed) => assert!(listed == expected, "the inode at {at}"),
            Err(_) => damaged += 1,
        }
    }
    assert!(damaged > 10, "{damaged}");
}

/// The image with some bytes of one block changed, and its checksum right.
fn with(sectors: &[usize], change: impl FnOnce(&mut Vec<u8>)) -> Box<dyn Tree> {
    let mut changed = Changed::default();
    let mut bytes = changed.get(sectors);
    change(&mut bytes);
    mend_block(&mut bytes);
    changed.put(sectors, &bytes);
    opened(changed).unwrap()
}

/// The first thing that is wrong with a tree.
fn wrong_with(tree: &dyn Tree) -> String {
    let looked = hindsight_files::walk(tree, tree.top(), &mut |_, _, _| Ok::<_, Error>(()));
    looked.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn blocks_of_another_place_or_owner_or_of_the_future_are_damage() {
    let is_names = |sectors: &&Vec<usize>| image()[sectors[0]..].starts_with(b"XDD3");
    let mut found = [0; 4];
    for sectors in parts().blocks.iter().filter(is_names) {
        for (index, (at, says)) in [
            (15, "belongs elsewhere"),
            (30, "belongs elsewhere"),
            (47, "belongs elsewhere"),
            (18, "newer than the log"),
        ]
        .into_iter()
        .enumerate()
        {
            let tree = with(sectors, |bytes| bytes[at] ^= 0x40);
            found[index] += usize::from(wrong_with(&*tree).contains(says));
        }
    }
    assert!(found.iter().all(|&count| count > 1), "{found:?}");
}

/// An inode by its path, and the sectors of its block; there is one allocation group.
fn inode_of(path: &str) -> (u64, usize, Vec<usize>) {
    let tree = opened(Changed::default()).unwrap();
    let inode = *hindsight_files::look_up_path(&*tree, path.as_bytes()).unwrap().last().unwrap();
    let at = inode as usize * SECTOR;
    let block = at - at % BLOCK;
    (inode, at % BLOCK, (block..block + BLOCK).step_by(SECTOR).collect())
}

#[test]
fn names_in_an_inode_may_have_numbers_of_eight_bytes() {
    let (inode, at, sectors) = inode_of("/3 names");
    let expected = opened(Changed::default()).unwrap().entries(inode).unwrap();
    assert_eq!(expected.len(), 2);
    let tree = with(&sectors, |bytes| {
        let inode = &mut bytes[at..at + SECTOR];
        let mut names = vec![2, 2];
        names.extend(128_u64.to_be_bytes());
        for entry in &expected {
            names.extend([entry.name.len() as u8, 0, 0]);
            names.extend(&entry.name);
            names.push(1);
            names.extend(entry.node.to_be_bytes());
        }
        inode[56..64].copy_from_slice(&(names.len() as u64).to_be_bytes());
        inode[176..176 + names.len()].copy_from_slice(&names);
    });
    assert_eq!(tree.entries(inode).unwrap(), expected);
}

/// A block of names that a directory has at two offsets would tell its names twice.
#[test]
fn a_block_that_a_directory_has_twice_is_damage() {
    let (inode, at, sectors) = inode_of("/700 names");
    let tree = with(&sectors, |bytes| {
        let inode = &mut bytes[at..at + SECTOR];
        assert_eq!(inode[5], 2, "its extents are within it");
        let extents = inode[176..].to_vec();
        // The second one has the place of the first: 52 bits, the lowest nine in the first half.
        let half = |at: usize| u64::from_be_bytes(extents[at..at + 8].try_into().unwrap());
        let first = (half(0) & 0x1FF, half(8) >> 21);
        let second = (half(16) & !0x1FF | first.0, half(24) & 0x1F_FFFF | first.1 << 21);
        inode[192..200].copy_from_slice(&second.0.to_be_bytes());
        inode[200..208].copy_from_slice(&second.1.to_be_bytes());
    });
    let error = tree.entries(inode).unwrap_err();
    assert!(error.to_string().contains("has a block twice"), "{error}");
}

/// An attribute without a name is none, and takes room all the same.
#[test]
fn an_attribute_without_a_name_is_damage() {
    let is_leaf = |sectors: &&Vec<usize>| image()[sectors[0] + 8..][..2] == [0x3B, 0xEE];
    let mut damaged = 0;
    for sectors in parts().blocks.iter().filter(is_leaf) {
        let owner = &image()[sectors[0] + 48..][..8];
        let owner = u64::from_be_bytes(owner.try_into().unwrap());
        let tree = with(sectors, |bytes| {
            let at = usize::from(u16::from_be_bytes([bytes[84], bytes[85]]));
            let is_local = bytes[86] & 1 != 0;
            bytes[at + if is_local { 2 } else { 8 }] = 0;
        });
        let found = tree.extended(owner);
        let is_none = found.is_err_and(|error| error.to_string().contains("without a name"));
        damaged += usize::from(is_none);
    }
    assert!(damaged > 0);
}

/// An attribute on its way in or out is not shown.
#[test]
fn attributes_that_are_not_complete_are_none() {
    let (inode, ..) = inode_of("/file 3");
    let all = opened(Changed::default()).unwrap().extended(inode).unwrap().len();
    let is_leaf = |sectors: &&Vec<usize>| image()[sectors[0] + 8..][..2] == [0x3B, 0xEE];
    let leaves = parts().blocks.iter().filter(is_leaf);
    let less = leaves.map(|sectors| {
        let tree = with(sectors, |bytes| bytes[80 + 6] |= 0x80);
        all - tree.extended(inode).unwrap().len()
    });
    assert!(less.sum::<usize>() > 1);
}

/// Leaves of attributes that lead to one another without an end.
#[test]
fn leaves_that_lead_back_are_damage() {
    let is_leaf = |sectors: &&Vec<usize>| image()[sectors[0] + 8..][..2] == [0x3B, 0xEE];
    let mut damaged = 0;
    for sectors in parts().blocks.iter().filter(is_leaf) {
        for next in 0..9_u32 {
            let tree = with(sectors, |bytes| bytes[..4].copy_from_slice(&next.to_be_bytes()));
            let owner = &image()[sectors[0] + 48..][..8];
            let owner = u64::from_be_bytes(owner.try_into().unwrap());
            let found = tree.extended(owner);
            let is_endless = found.is_err_and(|error| error.to_string().contains("without an end"));
            damaged += usize::from(is_endless);
        }
    }
    assert!(damaged > 1, "{damaged}");
}

fn change(changed: &mut Changed, at: Index, within: Index, byte: u8, how: u8) {
    let Parts { blocks, records } = parts();
    let is_log = how.is_multiple_of(3);
    let sectors =
        if is_log { &records[at.index(records.len())] } else { &blocks[at.index(blocks.len())] };
    let mut bytes = changed.get(sectors);
    let near = match how / 3 % 4 {
        // The first fields of a block, or of an inode, mostly.
        0 => within.index(80),
        1 if !is_log => within.index(8) * SECTOR + at.index(256),
        _ => within.index(bytes.len()),
    };
    bytes[near] = match how / 12 % 3 {
        0 => byte,
        1 => bytes[near].wrapping_add(byte % 5).wrapping_sub(2),
        _ => bytes[near] ^ (1 << (byte % 8)),
    };
    if is_log {
        mend_record(&mut bytes)
    } else {
        mend_block(&mut bytes)
    }
    changed.put(sectors, &bytes);
}

/// Half as many as for other images: this one is larger.
fn fewer() -> ProptestConfig {
    let cases = cases();
    ProptestConfig { cases: cases.cases / 2, ..cases }
}

proptest! {
    #![proptest_config(fewer())]

    #[test]
    fn no_mutation_makes_the_reader_of_xfs_panic(
        changes in proptest::collection::vec(
            (any::<Index>(), any::<Index>(), any::<u8>(), any::<u8>()),
            1..12,
        ),
    ) {
        let mut changed = Changed::default();
        for (at, within, byte, how) in changes {
            change(&mut changed, at, within, byte, how);
        }
        if let Ok(tree) = opened(changed) {
            walk(&*tree);
        }
    }
}
