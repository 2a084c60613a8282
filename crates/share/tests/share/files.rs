//! Files: edges of blocks and slabs, holes, the largest size, what counts as used; links; names.

use units::FileId;

use crate::memory::Memory;
use crate::model::Bytes;
use crate::share::{
    Create, Credentials, ErrorKind, FILE_BYTES_MAX, LINKS_MAX, Result, SetAttributes, Share,
    Transaction, Tree, Wait,
};
use crate::world::{assert_sound, caller, make};

const BLOCK: u64 = 4096;

/// Does something in a transaction of its own.
fn once<'s, 'd, T>(
    share: &'s Share<&'s Memory>,
    update: impl FnOnce(&mut Transaction<'s, 'd, &'s Memory>) -> Result<T>,
) -> std::result::Result<T, ErrorKind> {
    let mut transaction = share.begin(Wait::May).expect("usable");
    let done = update(&mut transaction).map_err(|error| error.kind)?;
    transaction.commit().expect("it is written");
    Ok(done)
}

fn create(share: &Share<&Memory>, name: &[u8]) -> FileId {
    let root = Credentials::root();
    let top = share.tree(Wait::May).expect("usable").top().expect("a top");
    let set = SetAttributes::default();
    let made = once(share, |t| t.create(&caller(&root, 1), top, name, Create::Guarded(&set)));
    made.expect("it is made").id
}

fn write(share: &Share<&Memory>, id: FileId, offset: u64, bytes: &[u8]) {
    let root = Credentials::root();
    once(share, |t| t.write(&caller(&root, 1), id, offset, bytes)).expect("it is written");
}

fn resize(share: &Share<&Memory>, id: FileId, size: u64) {
    let root = Credentials::root();
    let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
    once(share, |t| t.set_attributes(&caller(&root, 1), id, &set, None)).expect("it is set");
}

fn read(share: &Share<&Memory>, id: FileId, offset: u64, count: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; count];
    let root = Credentials::root();
    let read = share.read(&root, id, offset, &mut buffer, Wait::May).expect("it is read");
    buffer.truncate(read.count);
    buffer
}

fn used(share: &Share<&Memory>) -> u64 {
    share.statistics().data_bytes / BLOCK
}

/// Blocks of data that there are.
fn there(memory: &Memory) -> u64 {
    memory.data_blocks().iter().filter(|block| **block >= 1 << 39).count() as u64
}

#[test]
fn writes_over_every_edge_up_to_eight_kibibytes_are_merged() {
    let memory = Memory::default();
    let share = make(&memory);
    for size in [0, 1, 3583, 3584, 3585, 4095, 4096, 4097, 8191] {
        let id = create(&share, format!("{size}").as_bytes());
        let mut model = Bytes::default();
        write(&share, id, 0, &vec![7; size]);
        model.write(0, &vec![7; size]);
        for (turn, offset) in (0..8300).step_by(509).enumerate() {
            for length in [1, 75, 4096, 4100] {
                let bytes = vec![turn as u8 | 0x80; length];
                write(&share, id, offset, &bytes);
                model.write(offset, &bytes);
                assert!(read(&share, id, 0, 20_000) == model.read(0, 20_000));
            }
            let cut = (offset * 3) % 9000;
            resize(&share, id, cut);
            model.resize(cut);
            resize(&share, id, 9000);
            model.resize(9000);
            assert!(read(&share, id, 0, 20_000) == model.read(0, 20_000), "cut to {cut}");
        }
        assert_sound(&share);
    }
}

#[test]
fn a_file_reaches_sixteen_tebibytes_and_its_holes_take_nothing() {
    let memory = Memory::default();
    let share = make(&memory);
    let id = create(&share, b"large");
    let mut model = Bytes::default();
    for level in 0..=16 {
        let edge = BLOCK << (2 * level);
        let bytes = vec![level as u8 + 1; 5000];
        let offset = edge - 2500.min(edge);
        let length = (FILE_BYTES_MAX - offset).min(5000) as usize;
        write(&share, id, offset, &bytes[..length]);
        model.write(offset, &bytes[..length]);
    }
    assert_eq!(model.size, FILE_BYTES_MAX);
    assert_sound(&share);
    assert_eq!(used(&share), model.blocks.len() as u64);
    assert_eq!(there(&memory), used(&share));
    for block in model.blocks.keys() {
        let offset = (block * BLOCK).saturating_sub(BLOCK);
        assert!(read(&share, id, offset, 12_288) == model.read(offset, 12_288));
    }
    assert_eq!(read(&share, id, 1 << 41, 100), [0; 100]);
    assert_eq!(read(&share, id, FILE_BYTES_MAX - 1, 100).len(), 1);
    assert_eq!(read(&share, id, FILE_BYTES_MAX, 100).len(), 0);
    assert_eq!(read(&share, id, u64::MAX, 100).len(), 0);

    let root = Credentials::root();
    let beyond = |offset: u64| once(&share, |t| t.write(&caller(&root, 1), id, offset, b"beyond"));
    assert_eq!(beyond(FILE_BYTES_MAX - 5), Err(ErrorKind::FileTooLarge));
    assert_eq!(beyond(u64::MAX - 2), Err(ErrorKind::FileTooLarge));
    let set = SetAttributes { size: Some(FILE_BYTES_MAX + 1), ..SetAttributes::default() };
    let set = once(&share, |t| t.set_attributes(&caller(&root, 1), id, &set, None));
    assert_eq!(set, Err(ErrorKind::FileTooLarge));

    for size in [FILE_BYTES_MAX - 1, 5 << 40, (1 << 30) + 1, 100_000, 4096, 1, 0] {
        resize(&share, id, size);
        model.resize(size);
        assert_sound(&share);
        assert_eq!(there(&memory), model.blocks.len() as u64, "blocks of a file of {size}");
        resize(&share, id, FILE_BYTES_MAX);
        assert_eq!(there(&memory), model.blocks.len() as u64);
        resize(&share, id, size);
    }
    let top = share.tree(Wait::May).expect("usable").top().expect("a top");
    once(&share, |t| t.remove(&caller(&root, 1), top, b"large")).expect("it is removed");
    assert_eq!((used(&share), there(&memory)), (0, 0));
    assert_sound(&share);
}

#[test]
fn no_more_large_files_than_there_is_address_space_for() {
    let memory = Memory::default();
    let share = make(&memory);
    let root = Credentials::root();
    let files: Vec<FileId> = (0..66).map(|i| create(&share, format!("{i}").as_bytes())).collect();
    let write_last =
        |id| once(&share, |t| t.write(&caller(&root, 1), id, FILE_BYTES_MAX - 1, b"!")).map(drop);
    let done: Vec<_> = files.iter().map(|id| write_last(*id)).collect();
    assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 64);
    assert_eq!(done[64], Err(ErrorKind::NoSpace));
    assert_sound(&share);
    resize(&share, files[5], 10);
    assert_eq!(write_last(files[65]), Ok(()));
    assert_eq!(write_last(files[64]), Err(ErrorKind::NoSpace));
    // Everybody else goes on, up to files of 4 GiB.
    write(&share, files[64], 0, &[7; 4096]);
    write(&share, files[64], (4 << 30) - 4096, &[7; 4096]);
    let beyond = once(&share, |t| t.write(&caller(&root, 1), files[64], 4 << 30, b"!"));
    assert_eq!(beyond.err(), Some(ErrorKind::NoSpace));
    assert_sound(&share);
}

#[test]
fn holes_are_counted_as_they_are_filled() {
    let memory = Memory::default();
    let share = make(&memory);
    let id = create(&share, b"sparse");
    resize(&share, id, 1 << 20);
    let mut random = 1_u64;
    for _ in 0..300 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(7);
        let offset = (random >> 40) % (1 << 20);
        let length = (random >> 20) % 9000;
        write(&share, id, offset, &vec![1; length as usize]);
        assert_eq!(used(&share), there(&memory));
    }
    let attributes = share.tree(Wait::May).expect("usable").attributes(id).expect("it is there");
    assert_eq!(attributes.used_bytes, used(&share) * BLOCK);
    assert_sound(&share);
}

#[test]
fn an_object_has_65000_links_at_most() {
    let memory = Memory::default();
    let share = make(&memory);
    let root = Credentials::root();
    let top = share.tree(Wait::May).expect("usable").top().expect("a top");
    let id = create(&share, b"0");
    let names: Vec<Vec<u8>> = (0..LINKS_MAX).map(|i| i.to_string().into_bytes()).collect();
    for names in names[1..].chunks(2000) {
        let linked = once(&share, |t| {
            names.iter().try_for_each(|name| t.link(&caller(&root, 1), id, top, name).map(drop))
        });
        assert_eq!(linked, Ok(()));
    }
    let more = once(&share, |t| t.link(&caller(&root, 1), id, top, b"more"));
    assert_eq!(more, Err(ErrorKind::TooManyLinks));
    assert_sound(&share);
    for names in names.chunks(2000) {
        let removed = once(&share, |t| {
            names.iter().try_for_each(|name| t.remove(&caller(&root, 1), top, name))
        });
        assert_eq!(removed, Ok(()));
    }
    assert_eq!(share.statistics().inodes, 1);
    assert_sound(&share);
}

#[test]
fn names_keep_to_the_rule() {
    let memory = Memory::default();
    let share = make(&memory);
    let root = Credentials::root();
    let top = share.tree(Wait::May).expect("usable").top().expect("a top");
    let long = [b'l'; 256];
    let set = SetAttributes::default();
    for (name, made, removed) in [
        (&long[..255], None, None),
        (&long[..], Some(ErrorKind::NameTooLong), Some(ErrorKind::NameTooLong)),
        (b"", Some(ErrorKind::Invalid), Some(ErrorKind::Invalid)),
        (b"a/b", Some(ErrorKind::Invalid), Some(ErrorKind::Invalid)),
        (b"a\0", Some(ErrorKind::Invalid), Some(ErrorKind::Invalid)),
        (b".", Some(ErrorKind::Exists), Some(ErrorKind::Invalid)),
        (b"..", Some(ErrorKind::Exists), Some(ErrorKind::NotEmpty)),
        (b"\xff\xfe\n", None, None),
    ] {
        let create = once(&share, |t| t.make_directory(&caller(&root, 1), top, name, &set));
        assert_eq!(create.err(), made, "{name:?}");
        let remove = once(&share, |t| t.remove_directory(&caller(&root, 1), top, name));
        assert_eq!(remove.err(), removed, "{name:?}");
    }
    for (target, error) in [
        (vec![b'x'; 4095], None),
        (vec![b'x'; 4096], Some(ErrorKind::NameTooLong)),
        (vec![], Some(ErrorKind::Invalid)),
    ] {
        let made = once(&share, |t| t.make_symlink(&caller(&root, 1), top, b"link", &set, &target));
        assert_eq!(made.err(), error);
    }
    assert_sound(&share);
}
