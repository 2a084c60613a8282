//! How full the pool is, as initiators hear of it: pages of the log, thresholds, an attention.

use units::Seq;

use super::initiator::{Initiator, Rig};
use super::units::{DISK, log_in, set};
use crate::fill::Fill;

const MIB: u64 = 1 << 20;
const READY: [u8; 6] = [0; 6];
const THRESHOLD_REACHED: (u8, u8, u8) = (6, 0x38, 7);

fn fill(rig: &Rig, used: u64, available: u64, has_reached: bool) {
    let (used_bytes, available_bytes) = (used * MIB, available * MIB);
    let fill = Fill { used_bytes, available_bytes, level_before: 0 };
    rig.context.thin().note(fill, has_reached);
}

fn log_sense(initiator: &mut Initiator, page: u8, first: u8) -> Vec<u8> {
    initiator.command(5, &[0x4d, 0, 0x40 | page, 0, 0, 0, first, 0, 255, 0], 255, &[]);
    initiator.data()
}

#[test]
fn the_log_and_the_thresholds_say_how_full_the_pool_is() {
    let rig = Rig::new();
    fill(&rig, 74, 126, false);
    let mut initiator = rig.initiator(1);
    assert_eq!(log_sense(&mut initiator, 0, 0), [0, 0, 0, 2, 0, 0x0c]);
    let page = log_sense(&mut initiator, 0x0c, 0);
    assert_eq!((page[0], page.len()), (0x0c, 28));
    assert_eq!(
        [&page[4..12], &page[16..24]],
        [[0, 1, 3, 8, 0, 0, 0, 126], [0, 2, 3, 8, 0, 0, 0, 74]]
    );
    assert_eq!(log_sense(&mut initiator, 0x0c, 2).len(), 16, "from the second on");
    initiator.command(6, &[0x4d, 0, 0x4d, 0, 0, 0, 0, 0, 255, 0], 255, &[]);
    assert_eq!(initiator.sense(), (5, 0x24, 0));
    // 1 MiB a set: 75, 85 and 95 % of 200, armed where more is used, and told.
    initiator.command(7, &[0x1a, 8, 0x1c, 2, 255, 0], 255, &[]);
    let page = initiator.data();
    let sets: Vec<u8> = page[20..].chunks(8).map(|threshold| threshold[7]).collect();
    assert_eq!((&page[20..24], &*sets), (&[0x81, 2, 0, 0][..], &[150, 170, 190][..]));
    initiator.command(8, &[0x1a, 8, 1, 0, 255, 0], 255, &[]);
    assert_eq!(initiator.data()[4 + 7], 0x80);
    initiator.command(9, &[0x12, 1, 0xb2, 0, 255, 0], 255, &[]);
    assert_eq!(initiator.data()[4], 11);
}

#[test]
fn each_session_on_a_present_is_told_once_when_a_threshold_is_reached() {
    let rig = Rig::new();
    let (mut one, mut two) = (rig.initiator(1), rig.initiator(2));
    set(&rig, &[(0, DISK, Some(Seq(1)))]);
    let mut past = log_in(&rig, 3);
    past.command(1, &READY, 0, &[]);
    assert_eq!(past.status().1, 2);
    for round in 0..2 {
        fill(&rig, 150 + round, 50, true);
        for initiator in [&mut one, &mut two] {
            // It is no attention to these.
            initiator.command(2, &[0x12, 0, 0, 0, 96, 0], 96, &[]);
            initiator.data();
            initiator.command(3, &READY, 0, &[]);
            assert_eq!(initiator.sense(), THRESHOLD_REACHED);
            initiator.command(4, &READY, 0, &[]);
            assert_eq!(initiator.status(), (4, 0));
        }
        past.command(3, &READY, 0, &[]);
        assert_eq!(past.status(), (3, 0), "the past needs no room");
    }
    // More room, or less above the same threshold, is no news; nor is it to a new session.
    fill(&rig, 160, 40, false);
    one.command(5, &READY, 0, &[]);
    assert_eq!(one.status(), (5, 0));
    let mut new = rig.initiator(4);
    new.command(6, &READY, 0, &[]);
    assert_eq!(new.status(), (6, 0));
}
