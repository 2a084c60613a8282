//! Arguments of calls that an NFS client may send, and lists within the counts it may ask for:
//! decoded or refused, never a panic, and never longer than asked.

#![no_main]

use hindsight_wire::nfs3::{Call, DirList, Entry3, EntryPlus3, FileHandle, decode};
use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "calls of RPC and to MOUNT are for the other target")]
#[path = "../../crates/wire/tests/nfs3/caller.rs"]
mod caller;

fuzz_target!(|input: (u8, &[u8])| {
    let (procedure, bytes) = input;
    // Most inputs name a procedure, some do not.
    let Ok(call) = decode::call(u32::from(procedure % 24), bytes) else { return };
    let (number, encoded) = caller::nfs_call(&call);
    assert!(encoded.len() <= bytes.len());
    assert_eq!(decode::call(number.number(), &encoded), Ok(call));
    match call {
        Call::Readdir { count, .. } => {
            list(DirList::readdir(count), count, |list, entry| list.add(&entry));
        }
        Call::Readdirplus { dir, dircount, maxcount, .. } => {
            list(DirList::readdirplus(dircount, maxcount), maxcount, |list, entry| {
                list.add_plus(&plus(entry, dir))
            });
        }
        _ => {}
    }
});

fn plus(entry: Entry3<'_>, handle: FileHandle) -> EntryPlus3<'_> {
    EntryPlus3 { entry, name_attributes: None, name_handle: Some(handle) }
}

/// Lists until there is no room.
fn list(mut list: DirList, count: u32, add: impl Fn(&mut DirList, Entry3<'_>) -> bool) {
    let name = [b'n'; 255];
    let names = (0..255).map(|length| &name[..length]);
    let mut added = 0;
    for (index, name) in (0_u64..).zip(names) {
        if !add(&mut list, Entry3 { fileid: index, name, cookie: index }) {
            break;
        }
        added += 1;
    }
    match list.finish(added == 255) {
        Ok(bytes) => assert!(bytes.len() + 96 <= usize::try_from(count).expect("64 bits")),
        Err(_) => assert_eq!(added, 0),
    }
}
