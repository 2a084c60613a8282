//! The list of READDIR and READDIRPLUS: bytes, and that it keeps to what the client takes.

use hindsight_wire as wire;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use proptest::{collection, option};
use wire::nfs3::limits::LIST_BYTES_MAX;
use wire::nfs3::{DirList, Entry3, EntryPlus3, FileHandle, Nfsstat3, ReaddirOk, Results, encode};

use crate::golden_calls::handle;
use crate::golden_results::ATTRIBUTES;
use crate::{hex, replies};

/// Attributes, verifier, the end of the list, `eof`.
const FIXED: u32 = 88 + 8 + 4 + 4;

const ENTRY: Entry3<'_> = Entry3 { fileid: 17, name: b"abcde", cookie: 0x0102_0304_0506_0708 };

#[test]
fn lists_have_their_known_bytes() {
    let mut list = DirList::readdir(4096);
    assert!(list.add(&ENTRY));
    let known = "00000001 0000000000000011 00000005 6162636465 000000 0102030405060708";
    assert_eq!(list.finish(true), Ok(hex(&[known, "00000000 00000001"].concat())));

    let mut list = DirList::readdirplus(4096, 4096);
    let bare = EntryPlus3 { entry: ENTRY, name_attributes: None, name_handle: None };
    let whole =
        EntryPlus3 { entry: ENTRY, name_attributes: Some(ATTRIBUTES), name_handle: Some(handle()) };
    assert!(list.add_plus(&bare) && list.add_plus(&whole));
    let attributes = "00000001 000001a4 00000002 000003e8 00000064 0000000100000005
        0000000000002000 0000000800000001 0102030405060708 0000000000000011
        65000001 00000005 65000002 00000006 65000003 00000007";
    let parts = [
        known,
        "00000000 00000000",
        known,
        "00000001",
        attributes,
        "00000001 00000005 0102030405 000000",
        "00000000 00000000",
    ];
    assert_eq!(list.finish(false), Ok(hex(&parts.concat())));
}

#[test]
fn an_entry_with_exactly_enough_room_is_added() {
    let takes = u32::try_from(ENTRY.list_bytes()).unwrap();
    assert_eq!(takes, 32);
    for (count, fits) in [(FIXED + takes, true), (FIXED + takes - 1, false)] {
        let mut list = DirList::readdir(count);
        assert_eq!(list.add(&ENTRY), fits);
        assert!(!list.add(&ENTRY));
        assert_eq!(list.finish(false).is_ok(), fits);
    }
}

#[test]
fn no_room_at_all_is_too_small_and_an_empty_directory_is_not() {
    assert_eq!(DirList::readdir(FIXED).finish(true), Ok(hex("00000000 00000001")));
    assert_eq!(DirList::readdir(FIXED - 1).finish(true), Err(Nfsstat3::TooSmall));
    assert_eq!(DirList::readdir(4096).finish(false), Err(Nfsstat3::TooSmall));
    assert_eq!(DirList::readdirplus(0, FIXED - 1).finish(true), Err(Nfsstat3::TooSmall));
}

#[test]
fn dircount_holds_for_all_entries_but_the_first() {
    let entry = EntryPlus3 { entry: ENTRY, name_attributes: None, name_handle: Some(handle()) };
    for (dircount, count) in [(0, 1), (32, 1), (63, 1), (64, 2), (95, 2), (96, 3)] {
        let mut list = DirList::readdirplus(dircount, 4096);
        let added = (0..9).take_while(|_| list.add_plus(&entry)).count();
        assert_eq!(added, count, "a dircount of {dircount}");
    }
}

#[test]
fn a_huge_count_is_held_to_our_limit_and_allocates_nothing() {
    let mut list = DirList::readdirplus(u32::MAX, u32::MAX);
    assert_eq!(DirList::readdirplus(u32::MAX, u32::MAX).finish(true).unwrap().len(), 8);
    let name = [b'n'; 255];
    let entry = Entry3 { name: &name, ..ENTRY };
    let entry =
        EntryPlus3 { entry, name_attributes: Some(ATTRIBUTES), name_handle: Some(handle()) };
    let added = (0..10_000).take_while(|_| list.add_plus(&entry)).count();
    let fixed = usize::try_from(FIXED).unwrap();
    assert_eq!(added, (LIST_BYTES_MAX - fixed) / entry.list_bytes());
    assert_eq!(list.finish(false).unwrap().len(), added * entry.list_bytes() + 8);
}

#[test]
#[should_panic(expected = "READDIRPLUS has other entries")]
fn entries_of_the_two_procedures_are_not_mixed() {
    let _ = DirList::readdirplus(4096, 4096).add(&ENTRY);
}

/// The entry with another name.
fn named<'a>(bare: &EntryPlus3<'_>, name: &'a [u8]) -> EntryPlus3<'a> {
    EntryPlus3 { entry: Entry3 { name, ..ENTRY }, ..*bare }
}

proptest! {
    #[test]
    fn lists_keep_to_their_counts_and_survive_the_wire(
        names in collection::vec(collection::vec(any::<u8>(), 0..256), 0..40),
        handle in option::of(collection::vec(any::<u8>(), 0..65)),
        (has_attributes, is_plus) in any::<(bool, bool)>(),
        dircount in 0..4096_u32,
        maxcount in 0..6000_u32,
    ) {
        let bare = EntryPlus3 {
            entry: ENTRY,
            name_attributes: has_attributes.then_some(ATTRIBUTES),
            name_handle: handle.as_deref().map(|bytes| FileHandle::new(bytes).unwrap()),
        };
        let mut list = DirList::readdir(maxcount);
        if is_plus {
            list = DirList::readdirplus(dircount, maxcount);
        }
        let add = |name: &&Vec<u8>| {
            let entry = named(&bare, name);
            if is_plus { list.add_plus(&entry) } else { list.add(&entry.entry) }
        };
        let added: Vec<&Vec<u8>> = names.iter().take_while(add).collect();
        let eof = added.len() == names.len();
        let Ok(tail) = list.finish(eof) else {
            prop_assert!(added.is_empty());
            return Ok(());
        };
        let dir_bytes: usize = added.iter().map(|name| named(&bare, name).entry.list_bytes()).sum();
        let dircount = usize::try_from(dircount).unwrap();
        prop_assert!(!is_plus || dir_bytes <= dircount || added.len() == 1);
        let ok = ReaddirOk { dir_attributes: Some(ATTRIBUTES), cookieverf: [0; 8] };
        let mut bytes = Vec::new();
        encode::results(&Results::Readdirplus(Ok(ok)), &mut bytes);
        // The status is no part of the `resok`.
        let resok = bytes.len() - 4 + tail.len();
        prop_assert!(resok <= usize::try_from(maxcount).unwrap());
        let (entries, end) = replies::dir_list(&tail, is_plus).unwrap();
        prop_assert_eq!(end, eof);
        prop_assert_eq!(entries.len(), added.len());
        for (entry, name) in entries.iter().zip(&added) {
            let sent = named(&bare, name);
            prop_assert_eq!(&entry.name, *name);
            prop_assert_eq!((entry.fileid, entry.cookie), (sent.entry.fileid, sent.entry.cookie));
            if is_plus {
                prop_assert_eq!(entry.attributes, sent.name_attributes);
                prop_assert_eq!(entry.handle, sent.name_handle);
            }
        }
    }
}
