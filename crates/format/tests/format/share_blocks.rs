//! The blocks of a share: the values that the page shows, round trips, hostile bytes.

use hindsight_format::share::directory::{
    CHILDREN_MAX, Child, DirectoryNode, Entries, Entry, EntryObject, NODE_BYTES_MAX, NodeContent,
};
use hindsight_format::share::inode::{Content, FileKind, INLINE_BYTES_MAX, InodeBlock};
use hindsight_format::share::log::{LogBlock, State, log_block};
use hindsight_format::share::operation::{
    Before, Cause, CauseKind, Operation, Origin, Procedure, RECORD_BYTES_MAX, Set, Target,
};
use hindsight_format::share::place::{
    DATA_FIRST, FILE_BYTES_MAX, LEVELS, ShareAddress, inode_block, slab_blocks,
};
use hindsight_format::share::root::ShareRoot;
use hindsight_format::share::stack::{STACK_NUMBERS, StackBlock, stack_place};
use hindsight_format::{FormatErrorKind, Result};
use proptest::prelude::{any, proptest};
use units::{FileId, FileName, Generation, Inode, Seq, WallTime};

use crate::examples::{POOL_ID, TIME};

const TAG: u32 = 0xc3d2_e1f0;
pub const FILE: ShareAddress = address(inode_block(Inode(7)));
pub const LEAF: ShareAddress = address(DATA_FIRST + 5);
pub const LOG: ShareAddress = address((1 << 20) + 4099);
const STACK: ShareAddress = address(1 << 36);

const fn address(block: u64) -> ShareAddress {
    ShareAddress { tag: TAG, block, has_more: false }
}

pub fn root() -> ShareRoot {
    let hash_key = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff;
    ShareRoot {
        share_id: POOL_ID,
        hash_key,
        created: TIME,
        log_hint: 4096,
        features_read_only: 0,
        features_compatible: 0,
    }
}

pub fn file() -> InodeBlock {
    InodeBlock {
        generation: Generation(121),
        kind: FileKind::File,
        mode: 0o4644,
        links: 2,
        uid: 1000,
        gid: 100,
        size: 11,
        used: 0,
        accessed: TIME,
        modified: WallTime::from_nanos(TIME.as_nanos() + 5),
        changed: WallTime::from_nanos(TIME.as_nanos() + 9),
        created: TIME,
        parent: Inode(0),
        entries: 0,
        verifier: Some(*b"verifier"),
        device: (0, 0),
        operation: 77,
        content: Content::Inline(b"hello share".to_vec()),
    }
}

fn entries() -> Entries {
    let mut entries = Entries::default();
    for (key, inode, name) in [(512, 7, "second"), (256, 9, "first"), (1 << 62, 3, "last")] {
        let name = FileName::new(name.as_bytes()).expect("a name");
        let object = EntryObject::of(Inode(inode), FileKind::Fifo, Generation(121));
        assert!(entries.insert(Entry { key, object, name }));
    }
    entries
}

pub fn leaf() -> DirectoryNode {
    DirectoryNode { directory: Inode(4), content: NodeContent::Leaf(entries()) }
}

fn inner() -> DirectoryNode {
    let child = |index: u64| Child { key: index << 40, block: DATA_FIRST + index };
    let children = (0..CHILDREN_MAX as u64).map(child).collect();
    DirectoryNode { directory: Inode(4), content: NodeContent::Inner(1, children) }
}

fn id(inode: u64, generation: u64) -> FileId {
    FileId { inode: Inode(inode), generation: Generation(generation) }
}

fn rename() -> Operation<'static> {
    Operation {
        procedure: Procedure::Rename,
        number: 78,
        incarnation: 0xabcd,
        time: TIME,
        seq_before: Seq(400),
        origin: Origin {
            client: 0xffff_0a00_0007,
            xid: 0x1234,
            arguments_crc: 0x5678,
            uid: 1000,
            gid: 100,
            groups_hash: 0x9abc,
        },
        object: id(1, 1),
        other: Some(id(7, 121)),
        target: Some(Target { directory: id(4, 2), victim: Some(id(9, 130)) }),
        range: Some((4096, 8192)),
        before: Some(Before {
            kind: FileKind::File,
            mode: 0o600,
            links: 1,
            uid: 1000,
            gid: 100,
            size: 5,
            accessed: TIME,
            modified: TIME,
            changed: TIME,
        }),
        cause: Some(Cause { kind: CauseKind::Restore, number: 17 }),
        set: None,
        name: b"old",
        new_name: b"newer",
    }
}

pub fn log() -> LogBlock {
    let mut state = State::empty(TIME);
    state.operation = 78;
    state.incarnation = 0xabcd;
    state.log_first = 3;
    state.inodes = 9;
    state.free[0].next = 12;
    state.free[0].height = 2;
    state.free[1].next = DATA_FIRST + 6;
    let mut block = LogBlock::new(4099, state);
    assert!(block.push(&rename()));
    block
}

fn directory() -> InodeBlock {
    InodeBlock {
        kind: FileKind::Directory,
        size: 4096,
        parent: Inode(1),
        entries: 3,
        verifier: None,
        content: Content::Entries(entries()),
        ..file()
    }
}

fn large() -> InodeBlock {
    let slabs = std::array::from_fn(|level| DATA_FIRST + slab_blocks(level));
    InodeBlock { size: FILE_BYTES_MAX, used: 20, content: Content::Slabs(slabs), ..file() }
}

/// Decodes a block of any kind, and what is in it.
type Decode = fn(&[u8; 4096]) -> Result<()>;

fn decoders() -> Vec<(Decode, Box<[u8; 4096]>)> {
    let decode_inode: Decode = |bytes| InodeBlock::decode(bytes, FILE).map(drop);
    let decode_node: Decode = |bytes| DirectoryNode::decode(bytes, LEAF).map(drop);
    let decode_log: Decode = |bytes| {
        let block = LogBlock::decode(bytes, LOG)?;
        assert!(block.operations().all(|operation| operation.number <= block.state.operation));
        Ok(())
    };
    let tree = Content::Tree(DATA_FIRST + 9);
    vec![
        (|bytes| ShareRoot::decode(bytes).map(drop), root().encode()),
        (decode_inode, file().encode(FILE)),
        (decode_inode, directory().encode(FILE)),
        (decode_inode, InodeBlock { content: tree, ..directory() }.encode(FILE)),
        (decode_inode, large().encode(FILE)),
        (decode_node, leaf().encode(LEAF)),
        (decode_node, inner().encode(LEAF)),
        (decode_log, log().encode(LOG)),
        (|bytes| StackBlock::decode(bytes, STACK).map(drop), StackBlock::default().encode(STACK)),
    ]
}

#[test]
fn what_is_encoded_comes_back() {
    assert_eq!(ShareRoot::decode(&root().encode()), Ok(root()));
    let device = InodeBlock {
        kind: FileKind::CharacterDevice,
        device: (4, 0xffff_ffff),
        size: 0,
        verifier: None,
        content: Content::None,
        ..file()
    };
    let full = vec![7; INLINE_BYTES_MAX];
    let full = InodeBlock { size: 3584, content: Content::Inline(full), ..file() };
    for inode in [file(), directory(), large(), device, full] {
        assert_eq!(InodeBlock::decode(&inode.encode(FILE), FILE), Ok(inode));
    }
    for node in [leaf(), inner()] {
        assert_eq!(DirectoryNode::decode(&node.encode(LEAF), LEAF), Ok(node));
    }
    assert_eq!(LogBlock::decode(&log().encode(LOG), LOG), Ok(log()));
    assert_eq!(log().operations().collect::<Vec<_>>(), [rename()]);
    assert_eq!(log_block(4099), LOG.block);
    let mut stack = StackBlock::default();
    stack.numbers[STACK_NUMBERS - 1] = 5;
    assert_eq!(StackBlock::decode(&stack.encode(STACK), STACK), Ok(stack));
    assert_eq!(stack_place(0, 510), (STACK.block + 1, 0));
}

#[test]
fn every_part_of_a_record_may_be_missing() {
    let long = [b'n'; 255];
    for parts in 0..128 {
        let has = |part: u32| parts & part != 0;
        let whole = rename();
        let operation = Operation {
            other: whole.other.filter(|_| has(1)),
            target: whole.target.filter(|_| has(2)),
            range: whole.range.filter(|_| has(4)),
            before: whole.before.filter(|_| has(8)),
            cause: whole.cause.filter(|_| has(64)),
            name: if has(16) { &long } else { b"" },
            new_name: if has(32) { &long } else { b"" },
            ..whole
        };
        let mut block = LogBlock::new(4099, log().state);
        assert!(block.push(&operation));
        let found = LogBlock::decode(&block.encode(LOG), LOG).expect("a block of the log");
        assert_eq!(found.operations().collect::<Vec<_>>(), [operation]);
        assert!(operation.encoded_bytes() <= RECORD_BYTES_MAX);
    }
}

#[test]
fn attributes_that_were_set_are_told_from_those_that_were_not() {
    let whole = Set {
        mode: Some(0o4711),
        uid: Some(0),
        gid: Some(u32::MAX),
        accessed: Some(TIME),
        modified: Some(units::WallTime::from_nanos(0)),
    };
    let long = [b'n'; 255];
    for which in 0..32 {
        let has = |bit: u32| which & bit != 0;
        let set = Set {
            mode: whole.mode.filter(|_| has(1)),
            uid: whole.uid.filter(|_| has(2)),
            gid: whole.gid.filter(|_| has(4)),
            accessed: whole.accessed.filter(|_| has(8)),
            modified: whole.modified.filter(|_| has(16)),
        };
        let operation =
            Operation { set: Some(set), name: &long, new_name: &long, number: 77, ..rename() };
        let mut block = LogBlock::new(4099, log().state);
        assert!(block.push(&operation) && block.push(&rename()));
        let found = LogBlock::decode(&block.encode(LOG), LOG).expect("a block of the log");
        assert_eq!(found.operations().collect::<Vec<_>>(), [operation, rename()]);
        assert!(operation.encoded_bytes() <= RECORD_BYTES_MAX);
    }
}

#[test]
fn a_block_of_the_log_takes_what_fits() {
    let mut block = LogBlock::new(4099, log().state);
    let mut count = 0;
    while block.push(&Operation { number: count + 1, ..rename() }) {
        count += 1;
        block.state.operation = count;
    }
    assert_eq!(count, 3584 / 232);
    let found = LogBlock::decode(&block.encode(LOG), LOG).expect("a block of the log");
    assert_eq!(found.operations().count(), count as usize);
}

#[test]
fn a_block_elsewhere_or_of_another_share_is_refused() {
    for (decode, bytes) in decoders() {
        assert_eq!(decode(&bytes), Ok(()));
        for at in [0, 4, 8] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            let kind = decode(&bytes).expect_err("another block").kind;
            let is_expected = match at {
                0 => kind == FormatErrorKind::NotThis,
                _ => kind != FormatErrorKind::Checksum,
            };
            assert!(is_expected, "{kind:?} at {at}");
        }
    }
    let mut later = root().encode();
    later[64] = 1;
    let error = ShareRoot::decode(&later).expect_err("an unknown feature");
    assert_eq!(error.kind, FormatErrorKind::Version);
}

#[test]
fn values_out_of_their_ranges_are_refused() {
    type Change = fn(&mut InodeBlock);
    let wrong: [Change; 13] = [
        |i| i.generation = Generation(0),
        |i| i.links = 0,
        |i| i.mode = 1 << 12,
        |i| i.size = 3585,
        |i| i.size = 10,
        |i| i.parent = Inode(1 << 34),
        |i| i.entries = 1,
        |i| i.device = (1, 0),
        |i| i.kind = FileKind::Directory,
        |i| i.kind = FileKind::Fifo,
        |i| i.content = Content::Slabs([DATA_FIRST + 1; LEVELS]),
        |i| i.content = Content::Slabs([7; LEVELS]),
        |i| i.used = 1 << 41,
    ];
    for (index, change) in wrong.into_iter().enumerate() {
        let mut inode = file();
        change(&mut inode);
        let error = InodeBlock::decode(&inode.encode(FILE), FILE).expect_err("a wrong value");
        assert_eq!(error.kind, FormatErrorKind::Invalid, "change {index}");
    }
    let slab_beyond_the_end = InodeBlock { size: 4096, ..large() };
    InodeBlock::decode(&slab_beyond_the_end.encode(FILE), FILE).expect_err("slabs beyond the end");
}

#[test]
fn a_tree_says_how_many_entries_it_has_and_links_have_no_bound_of_ours() {
    let tree = InodeBlock { content: Content::Tree(DATA_FIRST + 9), ..directory() };
    for (entries, is_right) in [(0, false), (1, true), ((1 << 50) - 1, true), (1 << 50, false)] {
        let inode = InodeBlock { entries, links: u32::MAX, ..tree.clone() };
        assert_eq!(InodeBlock::decode(&inode.encode(FILE), FILE).is_ok(), is_right, "{entries}");
    }
}

#[test]
fn a_state_that_would_overflow_is_refused() {
    type Change = fn(&mut State);
    let wrong: [Change; 6] = [
        |s| s.time = WallTime::from_nanos(u64::MAX),
        |s| s.inodes = 1 << 34,
        |s| s.inodes = 10,
        |s| s.operation = u64::MAX,
        |s| s.used = (1 << 40) + 1,
        |s| s.log_first = 4100,
    ];
    for (index, change) in wrong.into_iter().enumerate() {
        let mut block = log();
        change(&mut block.state);
        let error = LogBlock::decode(&block.encode(LOG), LOG).expect_err("a wrong value");
        assert_eq!(error.kind, FormatErrorKind::Invalid, "change {index}");
    }
}

#[test]
fn an_entry_tells_its_object_from_another_that_has_its_number() {
    let generation = Generation((1 << 61) | (5 << 27) | 77);
    let object = EntryObject::of(Inode((1 << 34) - 1), FileKind::Symlink, generation);
    assert_eq!(object.generation, 77);
    let mut entries = Entries::default();
    let name = FileName::new(b"n").expect("a name");
    assert!(entries.insert(Entry { key: 256, object, name }));
    assert_eq!(entries.iter().next().map(|entry| entry.object), Some(object));
    let inode = InodeBlock { generation, kind: FileKind::Symlink, ..file() };
    assert!(object.is(&inode));
    assert!(!object.is(&InodeBlock { generation: Generation(generation.0 + 1), ..inode.clone() }));
    assert!(!object.is(&InodeBlock { kind: FileKind::Fifo, ..inode }));
}

#[test]
fn records_of_other_procedures_and_with_more_parts_are_carried() {
    let mut bytes = log().encode(LOG);
    let length = rename().encoded_bytes();
    let at = 512;
    // Procedure 200, a part of 40 bytes behind all that is known, and a record after it.
    bytes[at + 2] = 200;
    bytes[at + 3] |= 0x80;
    bytes[at..at + 2].copy_from_slice(&(length as u16 + 40).to_le_bytes());
    bytes[at + length..at + length + 40].fill(0xee);
    bytes[56..58].copy_from_slice(&(length as u16 + 40).to_le_bytes());
    let mut block = LogBlock::decode(&bytes, LOG).expect("a block of the log");
    let next = Operation { number: 79, procedure: Procedure::Link, ..rename() };
    assert!(block.push(&next));
    block.state.operation = 79;
    let again = block.encode(LOG);
    assert_eq!(again[at..at + length + 40], bytes[at..at + length + 40], "nothing is lost");
    let block = LogBlock::decode(&again, LOG).expect("a block of the log");
    let unknown = Operation { procedure: Procedure::Other(200), ..rename() };
    assert_eq!(block.operations().collect::<Vec<_>>(), [unknown, next]);
    for short in [0, 111, length as u16 - 1] {
        bytes[at..at + 2].copy_from_slice(&short.to_le_bytes());
        LogBlock::decode(&bytes, LOG).expect_err("a record that is too short");
    }
}

#[test]
fn unknown_features_are_kept_or_forbid_writing_or_reading() {
    let plain = root().encode();
    for (at, is_read, has_more) in [(64, false, false), (72, true, true), (80, true, false)] {
        let mut bytes = plain.clone();
        bytes[at + 7] = 0x80;
        // With such a feature, bytes that are spare to us have a meaning.
        bytes[4000] = 7;
        let decoded = ShareRoot::decode(&bytes);
        assert_eq!(decoded.is_ok(), is_read);
        let Ok(root) = decoded else { continue };
        assert_eq!(root.address(1).has_more, has_more);
        ShareRoot::set_log_hint(&mut bytes, 8192);
        assert_eq!((bytes[at + 7], bytes[4000]), (0x80, 7));
        assert_eq!(ShareRoot::decode(&bytes).map(|root| root.log_hint), Ok(8192));
    }
    let mut bytes = plain.clone();
    bytes[4000] = 7;
    ShareRoot::decode(&bytes).expect_err("padding");
    let mut inode = file().encode(FILE);
    inode[300] = 1;
    InodeBlock::decode(&inode, FILE).expect_err("padding");
    let more = ShareAddress { has_more: true, ..FILE };
    assert_eq!(InodeBlock::decode(&inode, more), Ok(file()));
}

#[test]
fn entries_keep_their_order_and_halves_are_halves() {
    let mut entries = Entries::default();
    let names: Vec<String> = (0..40).map(|i| "n".repeat(1 + i * 5)).collect();
    for (index, name) in names.iter().enumerate().rev() {
        let name = FileName::new(name.as_bytes()).expect("a name");
        let object = EntryObject::of(Inode(1), FileKind::File, Generation(1));
        assert!(entries.insert(Entry { key: 256 + index as u64 * 3, object, name }));
        assert!(!entries.insert(Entry { key: 256 + index as u64 * 3, object, name }));
    }
    assert!(entries.iter().map(|entry| entry.key).is_sorted());
    assert_eq!(entries.from(257).next().map(|entry| entry.key), Some(259));
    let whole = entries.as_bytes().len();
    let upper = entries.split();
    assert!(whole.abs_diff(2 * upper.as_bytes().len()) < 2 * 272);
    assert!(entries.iter().last().map(|e| e.key) < upper.iter().next().map(|e| e.key));
    entries.append(&upper);
    assert_eq!((entries.count(), entries.as_bytes().len()), (40, whole));
    assert!(!entries.remove(257) && entries.remove(259) && !entries.remove(259));
    assert!(entries.as_bytes().len() < whole && whole < 2 * NODE_BYTES_MAX);
}

proptest! {
    #[test]
    fn hostile_blocks_are_errors_or_sound(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        near in any::<bool>(),
    ) {
        for (decode, mut bytes) in decoders() {
            for (index, byte) in &changes {
                bytes[index.index(if near { 700 } else { 4096 })] = *byte;
            }
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn random_blocks_are_errors(seed in any::<u64>(), keeps in 0..600_usize) {
        for (decode, sound) in decoders() {
            let mut bytes = sound.clone();
            let mut random = seed | 1;
            for byte in &mut bytes[keeps..] {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (random >> 56) as u8;
            }
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn an_inode_that_is_decoded_is_encoded_the_same(
        at in 16..600_usize, byte in any::<u8>(),
    ) {
        for inode in [file(), directory(), large()] {
            let mut bytes = inode.encode(FILE);
            bytes[at] = byte;
            if let Ok(found) = InodeBlock::decode(&bytes, FILE) {
                assert!(found.encode(FILE) == bytes);
            }
        }
    }
}
