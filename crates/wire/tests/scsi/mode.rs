//! Mode pages, both ways.

use hindsight_wire as wire;
use proptest::prelude::{any, prop_assert, proptest};
use wire::scsi::command::{ModeSense, PageControl};
use wire::scsi::mode::{self, ModeState, Threshold, Unit};
use wire::scsi::{Code, Sense};

use crate::hex;

const THRESHOLDS: [Threshold; 2] = [Threshold { sets: 0x75 }, Threshold { sets: 0x95 }];

const UNIT: Unit<'_> = Unit {
    blocks: 1 << 21,
    block_bytes: 512,
    is_protected: false,
    obeys_fua: true,
    state: ModeState { write_cache: true, descriptor_sense: false, software_protected: false },
    thresholds: &THRESHOLDS,
};

const ALL: ModeSense = ModeSense {
    is_ten: false,
    page: mode::ALL_PAGES,
    subpage: 0,
    control: PageControl::Current,
    no_descriptor: true,
    long_descriptor: false,
    allocation_bytes: 255,
};

fn sense(command: &ModeSense, unit: &Unit<'_>) -> Result<Vec<u8>, Sense> {
    let mut out = Vec::new();
    mode::put_sense(command, unit, &mut out).map(|()| out)
}

const RECOVERY: &str = "01 0a 00 00 00 00 00 80 00 00 0000";
const CACHING: &str = "08 12 04 00000000000000000000000000000000 00";
const CONTROL: &str = "0a 0a 00 10 00 00 0000 ffff 0000";
const EXCEPTIONS: &str = "1c 0a 08 00 00000000 00000000";
const PROVISIONING: &str = "5c 02 001c 000000000000000000000000
                            81 02 0000 00000075 81 02 0000 00000095";

#[test]
fn pages_have_their_known_bytes() {
    let whole = format!("3b 00 10 00 {RECOVERY} {CACHING} {CONTROL} {EXCEPTIONS}");
    assert_eq!(sense(&ALL, &UNIT), Ok(hex(&whole)));
    let with_subpages = ModeSense { subpage: mode::ALL_SUBPAGES, ..ALL };
    let whole = format!("5b 00 10 00 {RECOVERY} {CACHING} {CONTROL} {EXCEPTIONS} {PROVISIONING}");
    assert_eq!(sense(&with_subpages, &UNIT), Ok(hex(&whole)));
    for (page, subpage, bytes) in [
        (0x01, 0, RECOVERY.to_owned()),
        (0x08, 0, CACHING.to_owned()),
        (0x0a, 0, CONTROL.to_owned()),
        (0x1c, 0, EXCEPTIONS.to_owned()),
        (0x1c, 2, PROVISIONING.to_owned()),
        (0x1c, 0xff, format!("{EXCEPTIONS} {PROVISIONING}")),
    ] {
        let command = ModeSense { is_ten: true, page, subpage, ..ALL };
        let answer = sense(&command, &UNIT).expect("a page");
        assert_eq!(answer[8..], hex(&bytes));
        assert_eq!(usize::from(answer[1]) + 2, answer.len());
    }
}

#[test]
fn headers_tell_protection_and_blocks() {
    let descriptor = ModeSense { no_descriptor: false, page: 0x0a, ..ALL };
    let protected = Unit { is_protected: true, obeys_fua: false, ..UNIT };
    let answer = sense(&descriptor, &protected).expect("a page");
    assert_eq!(answer[..12], hex("17 00 80 08 00200000 00 000200"));
    let large = Unit { blocks: 1 << 40, ..UNIT };
    assert_eq!(sense(&descriptor, &large).expect("a page")[4..8], [0xff; 4]);
    let ten = ModeSense { is_ten: true, ..descriptor };
    assert_eq!(
        sense(&ten, &large).expect("a page")[..16],
        hex("001a 00 10 00 00 0008 ffffffff 00 000200")
    );
    let long = ModeSense { long_descriptor: true, ..ten };
    assert_eq!(
        sense(&long, &large).expect("a page")[..24],
        hex("0022 00 10 01 00 0010 0000010000000000 00000000 00000200")
    );
}

#[test]
fn masks_tell_what_may_be_changed() {
    for (page, mask) in [
        (0x01, "01 0a 00 00 00 00 00 00 00 00 0000"),
        (0x08, "08 12 04 00000000000000000000000000000000 00"),
        (0x0a, "0a 0a 04 00 08 00 0000 0000 0000"),
        (0x1c, "1c 0a 00 00 00000000 00000000"),
    ] {
        let command = ModeSense { page, control: PageControl::Changeable, ..ALL };
        assert_eq!(sense(&command, &UNIT).expect("a page")[4..], hex(mask));
    }
    let changed =
        ModeState { write_cache: false, descriptor_sense: true, software_protected: true };
    let unit = Unit { state: changed, ..UNIT };
    let default = ModeSense { page: 0x08, control: PageControl::Default, ..ALL };
    assert_eq!(sense(&default, &unit).expect("a page")[4..], hex(CACHING));
    let current = ModeSense { page: 0x0a, ..ALL };
    assert_eq!(
        sense(&current, &unit).expect("a page")[4..],
        hex("0a 0a 04 10 08 00 0000 ffff 0000")
    );
}

#[test]
fn pages_that_there_are_not_are_refused() {
    let field = |page, subpage| sense(&ModeSense { page, subpage, ..ALL }, &UNIT);
    assert_eq!(field(0x00, 0), Err(Sense::cdb_field(2, None)));
    assert_eq!(field(0x02, 0xff), Err(Sense::cdb_field(2, None)));
    assert_eq!(field(0x08, 1), Err(Sense::cdb_field(3, None)));
    assert_eq!(field(0x3f, 1), Err(Sense::cdb_field(3, None)));
    assert_eq!(field(0x3f, 2), Err(Sense::cdb_field(3, None)));
    let saved = ModeSense { control: PageControl::Saved, ..ALL };
    assert_eq!(sense(&saved, &UNIT), Err(Sense::illegal(Code::NO_SAVING)));
}

#[test]
fn selected_values_are_read() {
    let off = hex("00000000 08 12 00 00000000000000000000000000000000 00");
    let state = ModeState { write_cache: false, ..UNIT.state };
    assert_eq!(mode::select(false, &off, &UNIT), Ok(state));
    let both = hex("0000000000000000 0a 0a 04 10 08 00 0000 ffff 0000
                    88 12 00 00000000000000000000000000000000 00");
    let state = ModeState { write_cache: false, descriptor_sense: true, software_protected: true };
    assert_eq!(mode::select(true, &both, &UNIT), Ok(state));
    assert_eq!(mode::select(false, &[], &UNIT), Ok(UNIT.state));
    assert_eq!(mode::select(false, &[0; 4], &UNIT), Ok(UNIT.state));
}

#[test]
fn pages_as_they_were_read_can_be_written() {
    for is_ten in [false, true] {
        for long_descriptor in [false, is_ten] {
            let command =
                ModeSense { is_ten, long_descriptor, no_descriptor: false, subpage: 0xff, ..ALL };
            let list = sense(&command, &UNIT).expect("all pages");
            assert_eq!(mode::select(is_ten, &list, &UNIT), Ok(UNIT.state));
            let length = Sense::illegal(Code::PARAMETER_LIST_LENGTH);
            // Ends of the header with its descriptor, and of each page.
            let head = if !is_ten {
                12
            } else if long_descriptor {
                24
            } else {
                16
            };
            let ends = [0, head, head + 12, head + 32, head + 44, head + 56];
            for end in (0..list.len()).filter(|end| !ends.contains(end)) {
                let refused = mode::select(is_ten, &list[..end], &UNIT);
                assert_eq!(refused, Err(length), "{end}");
            }
        }
    }
}

#[test]
fn values_that_are_not_changeable_are_pointed_at() {
    let list = hex(&format!("00000000 {CONTROL} {CACHING}"));
    assert_eq!(mode::select(false, &list, &UNIT), Ok(UNIT.state));
    for at in 6..list.len() * 8 / 8 {
        // The headers of both pages are another test's.
        if (16..18).contains(&at) {
            continue;
        }
        for bit in 0..8 {
            let mut list = list.clone();
            list[at] ^= 1 << bit;
            let selected = mode::select(false, &list, &UNIT);
            let is_changeable = [(6, 2), (8, 3), (18, 2)].contains(&(at, bit));
            let at = u16::try_from(at).expect("short");
            let refused = Err(Sense::parameter(at, Some(bit)));
            assert_eq!(selected.is_ok(), is_changeable, "{at} {bit}");
            assert!(is_changeable || selected == refused, "{at} {bit}");
        }
    }
}

#[test]
fn lists_that_say_something_else_are_refused() {
    for (list, byte) in [
        ("00000008 00100000 00 000200", 4),
        ("00000008 00200000 00 001000", 9),
        ("00000004 00200000", 3),
        ("00000000 08 0a 04 00 00000000 00000000", 5),
    ] {
        let refused = mode::select(false, &hex(list), &UNIT);
        assert_eq!(refused, Err(Sense::parameter(byte, None)), "{list}");
    }
    let other = mode::select(false, &hex("00000000 02 00"), &UNIT);
    assert_eq!(other, Err(Sense::parameter(4, Some(5))));
    for same in ["00000008 00000000 00 000200", "00000008 ffffffff 00 000200"] {
        assert_eq!(mode::select(false, &hex(same), &UNIT), Ok(UNIT.state));
    }
}

proptest! {
    #[test]
    fn random_lists_are_read_or_refused(
        is_ten in any::<bool>(),
        head in 0..3_usize,
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let _ = mode::select(is_ten, &bytes, &UNIT);
        let mut list = vec![0; if is_ten { 8 } else { 4 }];
        let pages = hex(&format!("{CACHING} {CONTROL} {EXCEPTIONS}"));
        list.extend_from_slice(&pages[..[0, 20, 32][head]]);
        list.extend_from_slice(&bytes);
        if let Ok(state) = mode::select(is_ten, &list, &UNIT) {
            prop_assert!(bytes.is_empty() || bytes.len() >= 12 || state == UNIT.state);
        }
    }
}
