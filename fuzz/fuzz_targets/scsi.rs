//! CDBs and parameter lists that an initiator may send: decoded or refused, never a panic.

#![no_main]

use hindsight_wire::scsi::encode::{self, Form};
use hindsight_wire::scsi::mode::{self, ModeState, Unit};
use hindsight_wire::scsi::{Sense, decode, lba_status, report_luns, reservations, unmap};
use libfuzzer_sys::fuzz_target;

const UNIT: Unit<'_> = Unit {
    blocks: 1 << 21,
    block_bytes: 512,
    is_protected: false,
    obeys_fua: true,
    state: ModeState { write_cache: true, descriptor_sense: false, software_protected: false },
    thresholds: &[],
};

fuzz_target!(|input: ([u8; 16], u32, &[u8])| {
    let (cdb, length, list) = input;
    if let Ok(command) = decode::command(&cdb) {
        let _ = (command.range(), command.writes(), command.movement(length));
        let forms = [Form::Six, Form::Ten, Form::Twelve, Form::Sixteen];
        for cdb in forms.into_iter().filter_map(|form| encode::command(&command, form)) {
            assert_eq!(decode::command(&cdb), Ok(command));
        }
    }
    let _ = mode::select(length & 1 != 0, list, &UNIT);
    if let Ok(list) = reservations::OutList::decode(length, list) {
        assert_eq!(reservations::OutList::decode(length, &list.encode()), Ok(list));
    }
    if let Ok(descriptors) = unmap::descriptors(list) {
        assert!(8 + 16 * descriptors.len() <= list.len() || descriptors.is_empty());
    }
    let _ = (reservations::keys(list), reservations::reservation(list));
    let _ = (report_luns::decode(list), lba_status::decode(list));
    let _ = Sense::decode(list);
});
