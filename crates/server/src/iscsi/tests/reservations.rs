//! Persistent reservations that outlive the server: what is acknowledged is kept, and nothing comes
//! about before it is.

use std::sync::atomic::Ordering;

use volume::ErrorKind;
use wire::iscsi::{DataOut, LoginStatus, Request, Response, Serial, Tag, TaskFunction};
use wire::scsi::Lun;
use wire::scsi::reservations::{OutList, keys, reservation};

use super::initiator::{Initiator, Rig};
use crate::nbd::tests::rig::eventually;

const GOOD: u8 = 0;
const BUSY: u8 = 8;
const CONFLICT: u8 = 0x18;
const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 8, 0, 0, 8, 0];
/// PERSISTENT RESERVE OUT, and the type of a reservation.
const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_IGNORE: u8 = 6;
const WRITE_EXCLUSIVE: u8 = 1;

fn out(initiator: &mut Initiator, tag: u32, action: u8, list: OutList) {
    let cdb = [0x5f, action, WRITE_EXCLUSIVE, 0, 0, 0, 0, 0, 24, 0];
    initiator.command(tag, &cdb, 0, &list.encode());
}

fn register(key: u64, persists: bool) -> OutList {
    OutList { action_key: key, persists, ..OutList::default() }
}

fn by(key: u64, action_key: u64) -> OutList {
    OutList { key, action_key, ..OutList::default() }
}

/// PERSISTENT RESERVE IN.
fn ask(initiator: &mut Initiator, tag: u32, action: u8) -> Vec<u8> {
    initiator.command(tag, &[0x5e, action, 0, 0, 0, 0, 0, 1, 0, 0], 256, &[]);
    initiator.data()
}

fn keys_of(initiator: &mut Initiator) -> Vec<u64> {
    keys(&ask(initiator, 90, 0)).expect("keys").1
}

#[test]
fn a_reservation_comes_about_once_it_is_kept() {
    let rig = Rig::new();
    let (mut one, mut two) = (rig.initiator(1), rig.initiator(2));
    rig.disk.close_gate();
    out(&mut one, 2, REGISTER, register(7, true));
    eventually("it is being kept", || rig.disk.waiting.load(Ordering::SeqCst) > 0);
    // Others see nothing of it, change nothing beside it, and go on.
    assert!(keys_of(&mut two).is_empty());
    out(&mut two, 3, REGISTER, register(8, false));
    assert_eq!(two.status(), (3, BUSY));
    two.command(4, &WRITE, 0, &[3; 4096]);
    assert_eq!(two.status(), (4, GOOD));
    rig.disk.open_gate();
    assert_eq!(one.status(), (2, GOOD));
    assert_eq!(keys_of(&mut two), [7]);
    assert_eq!(ask(&mut one, 91, 2)[2..4], [0x05, 0x81], "it can be kept, and is");
    // One that cannot be kept is none, and what was kept stands.
    let before = rig.disk.kept.lock().clone();
    assert_eq!((before.registrations.len(), before.registrations[0].key), (1, 7));
    *rig.disk.failure.lock() = Some(ErrorKind::Refused);
    out(&mut one, 5, RESERVE, by(7, 0));
    assert_eq!(one.sense(), (2, 4, 3));
    *rig.disk.failure.lock() = None;
    assert_eq!(reservation(&ask(&mut one, 92, 1)), Some((1, None)));
    two.command(6, &WRITE, 0, &[3; 4096]);
    assert_eq!(two.status(), (6, GOOD));
    assert_eq!(*rig.disk.kept.lock(), before);
    out(&mut one, 7, RESERVE, by(7, 0));
    assert_eq!(one.status(), (7, GOOD));
    two.command(8, &WRITE, 0, &[3; 4096]);
    assert_eq!(two.status(), (8, CONFLICT));
    assert!(rig.disk.kept.lock().held.is_some());
    // The last that registers says for all that nothing is kept any more.
    out(&mut two, 9, REGISTER, register(8, false));
    assert_eq!(two.status(), (9, GOOD));
    assert!(rig.disk.kept.lock().is_empty());
    assert_eq!(ask(&mut one, 93, 2)[2..4], [0x05, 0x80]);
    two.command(10, &WRITE, 0, &[3; 4096]);
    assert_eq!(two.status(), (10, CONFLICT), "it holds as long as the server lives");
}

#[test]
fn a_reservation_that_was_kept_is_taken_up_by_another_server() {
    let before = Rig::new();
    let (mut one, mut two) = (before.initiator(1), before.initiator(2));
    for (initiator, key) in [(&mut one, 7), (&mut two, 8)] {
        out(initiator, 2, REGISTER, register(key, true));
        assert_eq!(initiator.status(), (2, GOOD));
    }
    out(&mut one, 3, RESERVE, by(7, 0));
    assert_eq!(one.status(), (3, GOOD));
    let rig = Rig::new();
    *rig.disk.kept.lock() = before.disk.kept.lock().clone();
    let mut two = rig.initiator(2);
    two.command(2, &WRITE, 0, &[3; 4096]);
    assert_eq!(two.status(), (2, CONFLICT));
    assert_eq!(keys_of(&mut two), [7, 8]);
    let (generation, held) = reservation(&ask(&mut two, 91, 1)).expect("an answer");
    assert_eq!((generation, held.map(|held| held.key)), (0, Some(7)));
    let mut one = rig.initiator(1);
    one.command(2, &WRITE, 0, &[3; 4096]);
    assert_eq!(one.status(), (2, GOOD), "it holds it still");
    // Nobody is there, and what was kept is none any more: it is not taken up again.
    for (initiator, key) in [(&mut one, 7), (&mut two, 8)] {
        out(initiator, 3, REGISTER, by(key, 0));
        let _ = initiator.receive();
    }
    one.log_out();
    two.log_out();
    *rig.disk.kept.lock() = before.disk.kept.lock().clone();
    assert!(keys_of(&mut rig.initiator(3)).is_empty());
}

#[test]
fn preempt_and_abort_that_is_kept_aborts_also_when_who_asked_is_gone() {
    for leaves in [false, true] {
        let rig = Rig::new();
        let (mut one, mut two) = (rig.initiator(1), rig.initiator(2));
        for (initiator, key) in [(&mut one, 7), (&mut two, 8)] {
            out(initiator, 2, REGISTER, register(key, true));
            assert_eq!(initiator.status(), (2, GOOD));
        }
        // A write whose data is still to come.
        two.send(&Request::Command(two.request(3, &WRITE, 0, 4096)), &[]);
        two.cmd_sn = two.cmd_sn.next();
        let Some((Response::ReadyToTransfer(r2t), _)) = two.receive() else { panic!("no R2T") };
        rig.disk.close_gate();
        out(&mut one, 3, PREEMPT_AND_ABORT, by(7, 8));
        eventually("it is being kept", || rig.disk.waiting.load(Ordering::SeqCst) == 1);
        if leaves {
            one.manage(4, TaskFunction::ABORT_TASK, 3);
            // It was heard: what comes is carried out in its order.
            one.nop(5);
            assert!(matches!(one.receive(), Some((Response::NopIn(_), _))));
        }
        rig.disk.open_gate();
        match leaves {
            true => assert!(matches!(one.receive(), Some((Response::Task(_), _)))),
            false => assert_eq!(one.status(), (3, GOOD)),
        }
        assert_eq!(rig.disk.kept.lock().registrations.len(), 1);
        // The data comes late: nothing is written, and nothing is answered but what comes next.
        two.send(
            &Request::DataOut(DataOut {
                is_final: true,
                lun: Lun(0),
                task_tag: Tag(3),
                transfer_tag: r2t.transfer_tag,
                exp_stat_sn: Serial(0),
                data_sn: 0,
                offset: 0,
            }),
            &[9; 4096],
        );
        two.command(4, &[0; 6], 0, &[]);
        assert_eq!(two.sense(), (6, 0x2a, 5), "registrations preempted");
        assert!(rig.disk.bytes.lock()[..8192].iter().all(|&byte| byte == 0), "leaves: {leaves}");
    }
}

#[test]
fn one_that_is_not_registered_ends_no_keeping() {
    let rig = Rig::new();
    let (mut one, mut two) = (rig.initiator(1), rig.initiator(2));
    out(&mut one, 2, REGISTER, register(7, true));
    assert_eq!(one.status(), (2, GOOD));
    let before = ask(&mut one, 91, 0);
    for (tag, action) in [(2, REGISTER), (3, REGISTER_AND_IGNORE)] {
        out(&mut two, tag, action, register(0, false));
        assert_eq!(two.status(), (tag, GOOD));
    }
    assert_eq!(ask(&mut one, 92, 0), before, "the generation neither");
    assert_eq!(rig.disk.kept.lock().registrations.len(), 1);
}

#[test]
fn nobody_reserves_by_the_older_command_while_a_registration_is_being_kept() {
    let rig = Rig::new();
    let (mut one, mut two) = (rig.initiator(1), rig.initiator(2));
    rig.disk.close_gate();
    out(&mut one, 2, REGISTER, register(7, true));
    eventually("it is being kept", || rig.disk.waiting.load(Ordering::SeqCst) > 0);
    two.command(2, &[0x16, 0, 0, 0, 0, 0], 0, &[]);
    assert_eq!(two.status(), (2, CONFLICT));
    rig.disk.open_gate();
    assert_eq!(one.status(), (2, GOOD));
}

#[test]
fn a_moment_keeps_no_reservation() {
    let rig = Rig::new();
    let mut initiator = Initiator::new(rig.address, 1);
    let past = format!("{}:at:past", rig.target);
    assert_eq!(initiator.log_in(&past), LoginStatus::SUCCESS);
    initiator.command(1, &[0; 6], 0, &[]);
    assert_eq!(initiator.status(), (1, 2));
    assert_eq!(ask(&mut initiator, 2, 2)[2..4], [0x04, 0x80]);
    out(&mut initiator, 3, REGISTER, register(7, true));
    assert_eq!(initiator.sense(), (5, 0x26, 0));
    out(&mut initiator, 4, REGISTER, register(7, false));
    assert_eq!(initiator.status(), (4, GOOD));
}
