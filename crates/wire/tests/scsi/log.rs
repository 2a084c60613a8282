//! Log pages.

use hindsight_wire as wire;
use proptest::prelude::{any, prop_assert, proptest};
use wire::scsi::Sense;
use wire::scsi::log::{self, Room};

use crate::hex;

const ROOM: Room = Room { available: 0x30, used: 0x1_0000_0000 };
const AVAILABLE: &str = "0001 03 08 00000030 02 000000";
const USED: &str = "0002 03 08 ffffffff 02 000000";

fn page(page: (u8, u8), first: u16) -> Result<Vec<u8>, Sense> {
    let mut out = Vec::new();
    log::put(page, first, &ROOM, &mut out).map(|()| out)
}

#[test]
fn pages_have_their_known_bytes() {
    assert_eq!(page((0, 0), 0), Ok(hex("00 00 0002 00 0c")));
    assert_eq!(page((0, 0xff), 0), Ok(hex("40 ff 0006 0000 00ff 0c00")));
    for first in [0, 1] {
        assert_eq!(page((0x0c, 0), first), Ok(hex(&format!("0c 00 0018 {AVAILABLE} {USED}"))));
    }
    assert_eq!(page((0x0c, 0), 2), Ok(hex(&format!("0c 00 000c {USED}"))));
    for (which, first, byte, bit) in [
        ((0x0c, 0), 3, 5, None),
        ((0, 0), 1, 5, None),
        ((0x0c, 0xff), 0, 3, None),
        ((0, 1), 0, 3, None),
        ((0x0d, 0), 0, 2, Some(5)),
    ] {
        assert_eq!(page(which, first), Err(Sense::cdb_field(byte, bit)), "{which:?} {first}");
    }
}

#[test]
fn thresholds_are_parts_of_all_room_rounded_up() {
    let room = Room { available: 31, used: 70 };
    assert_eq!([75, 85, 95].map(|percent| room.percent(percent)), [76, 86, 96]);
    assert_eq!(Room::default().percent(75), 0);
    assert_eq!(Room { available: u64::MAX, used: u64::MAX }.percent(95), u32::MAX);
}

proptest! {
    #[test]
    fn any_page_is_told_or_refused(which in any::<(u8, u8)>(), first in any::<u16>()) {
        match page(which, first) {
            Ok(answer) => {
                prop_assert!(matches!(which, (0, 0 | 0xff) | (0x0c, 0)) && answer.len() > 4);
            }
            Err(sense) => prop_assert!(sense.pointer.is_some()),
        }
    }
}
