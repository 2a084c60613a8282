//! Targets of several units: each is apart, whatever initiators put into the field of eight bytes;
//! what is added appears, and what is wanted is taken away alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use units::{Seq, WallTime};
use volume::{Access, TargetInfo, UnitInfo};
use wire::iscsi::{
    DataOut, Digests, LoginStatus, Request, Response, Serial, Tag, TaskFunction, TaskResult, encode,
};
use wire::scsi::{Lun, report_luns};

use super::initiator::{Initiator, Rig};
use crate::Part;
use crate::nbd::tests::memory::OTHER;
use crate::nbd::tests::rig::eventually;

pub(super) const DISK: u64 = 1;
/// The number of the unit that is the other disk: one with a flat address.
const FLAT: u16 = 300;
const READY: [u8; 6] = [0; 6];
const SYNCHRONIZE: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 8, 0, 0, 8, 0];
const NO_SUCH_UNIT: (u8, u8, u8) = (5, 0x25, 0);
const LUNS_CHANGED: (u8, u8, u8) = (6, 0x3f, 0x0e);
const POWER_ON: (u8, u8, u8) = (6, 0x29, 0);

pub(super) fn set(rig: &Rig, units: &[(u16, u64, Option<Seq>)]) {
    set_with(rig, units, Access::default());
}

fn set_with(rig: &Rig, units: &[(u16, u64, Option<Seq>)], access: Access) {
    let unit = |&(number, volume_id, seq)| UnitInfo { number, volume_id, volume: None, seq };
    let target = TargetInfo {
        id: 7,
        name: "t".to_owned(),
        created: WallTime::from_nanos(0),
        units: units.iter().map(unit).collect(),
        retired: Vec::new(),
        access,
    };
    *rig.made.lock() = vec![target];
    rig.context.targets.tell_of_change();
}

pub(super) fn log_in(rig: &Rig, port: u8) -> Initiator {
    let mut initiator = Initiator::new(rig.address, port);
    let name = rig.context.targets.name_of("t").expect("a name");
    assert_eq!(initiator.log_in(&name), LoginStatus::SUCCESS);
    initiator
}

/// One that has heard of the beginning of both units.
fn ready(rig: &Rig, port: u8) -> Initiator {
    let mut initiator = log_in(rig, port);
    for number in [0, FLAT] {
        initiator.lun = Lun::from_number(number);
        initiator.command(1, &READY, 0, &[]);
        assert_eq!(initiator.sense(), POWER_ON);
    }
    initiator
}

fn at(initiator: &mut Initiator, number: u16) -> &mut Initiator {
    initiator.lun = Lun::from_number(number);
    initiator
}

fn luns(initiator: &mut Initiator) -> Vec<Lun> {
    initiator.command(90, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256, &[]);
    report_luns::decode(&initiator.data()).expect("units")
}

#[test]
fn units_are_apart_in_one_turn_and_by_each_address() {
    let rig = Rig::new();
    set(&rig, &[(0, DISK, None), (FLAT, OTHER, None)]);
    let mut initiator = ready(&rig, 1);
    assert_eq!(luns(&mut initiator), [Lun(0), Lun(0x412c << 48)]);
    // Writes to the same place of both by turns, in one piece: the last of each stays.
    let mut pieces = Vec::new();
    for round in 0..6u8 {
        let number = if round % 2 == 0 { 0 } else { FLAT };
        let request = at(&mut initiator, number).request(round.into(), &WRITE, 0, 4096);
        let bhs = encode::request(&Request::Command(request));
        encode::pdu(&bhs, &[round + 1; 4096], Digests::default(), &mut pieces);
        initiator.cmd_sn = initiator.cmd_sn.next();
    }
    std::io::Write::write_all(&mut initiator.socket, &pieces).expect("sent");
    for _ in 0..6 {
        assert_eq!(initiator.status().1, 0);
    }
    assert!(rig.disk.bytes.lock()[4096..8192].iter().all(|&byte| byte == 5));
    assert!(rig.other.bytes.lock()[4096..8192].iter().all(|&byte| byte == 6));
    let read = [0x28, 0, 0, 0, 0, 8, 0, 0, 1, 0];
    for (lun, byte) in [(Lun(0), 5), (Lun(0x4000 << 48), 5), (Lun(0x412c << 48), 6)] {
        initiator.lun = lun;
        initiator.command(20, &read, 512, &[]);
        assert_eq!(initiator.data(), [byte; 512], "{lun:?}");
    }
    // A flush is of one of them.
    at(&mut initiator, FLAT).command(21, &SYNCHRONIZE, 0, &[]);
    assert_eq!(initiator.status(), (21, 0));
    let flushes = |disk: &crate::nbd::tests::memory::Disk| disk.flushes.load(Ordering::SeqCst);
    assert_eq!((flushes(&rig.disk), flushes(&rig.other)), (0, 1));
}

#[test]
fn an_address_of_no_unit_is_told_so_whatever_it_is() {
    let rig = Rig::new();
    set(&rig, &[(0, DISK, None), (FLAT, OTHER, None)]);
    let mut initiator = ready(&rig, 1);
    let before = rig.disk.bytes.lock().clone();
    for lun in [
        1 << 48,
        0x412d << 48,
        0x012c << 48,
        0x812c << 48,
        0xc101 << 48,
        0xd200_012c << 32,
        0x412c_0001 << 32,
        1,
        u64::MAX,
    ] {
        initiator.lun = Lun(lun);
        initiator.command(1, &READY, 0, &[]);
        assert_eq!(initiator.sense(), NO_SUCH_UNIT, "{lun:#x}");
        initiator.command(2, &WRITE, 0, &[9; 4096]);
        assert_eq!(initiator.sense(), NO_SUCH_UNIT, "{lun:#x}");
        initiator.command(3, &[0x12, 0, 0, 0, 96, 0], 96, &[]);
        assert_eq!(initiator.data()[0], 0x7f, "{lun:#x}");
        assert_eq!(luns(&mut initiator).len(), 2, "{lun:#x}");
        initiator.manage(4, TaskFunction::LUN_RESET, 0);
        let Some((Response::Task(response), _)) = initiator.receive() else { panic!("no answer") };
        assert_eq!(response.result, TaskResult::NO_LUN, "{lun:#x}");
    }
    assert!(*rig.disk.bytes.lock() == before && rig.other.bytes.lock().iter().all(|&b| b == 0));
}

#[test]
fn resets_aborts_and_reservations_are_of_one_unit() {
    let rig = Rig::new();
    set(&rig, &[(0, DISK, None), (FLAT, OTHER, None)]);
    let (mut one, mut two) = (ready(&rig, 1), ready(&rig, 2));
    rig.disk.close_gate();
    at(&mut one, 0).command(2, &SYNCHRONIZE, 0, &[]);
    eventually("it waits", || rig.disk.waiting.load(Ordering::SeqCst) > 0);
    // A task of another unit is not known there, and a reset of that waits for none of this.
    for (initiator, function, result) in [
        (&mut one, TaskFunction::ABORT_TASK, TaskResult::NO_TASK),
        (&mut two, TaskFunction::LUN_RESET, TaskResult::COMPLETE),
    ] {
        at(initiator, FLAT).manage(3, function, 2);
        let Some((Response::Task(response), _)) = initiator.receive() else { panic!("no answer") };
        assert_eq!(response.result, result);
    }
    rig.disk.open_gate();
    assert_eq!(one.status(), (2, 0), "it was not aborted");
    for (number, wanted) in [(0, 0), (FLAT, 2)] {
        at(&mut one, number).command(4, &READY, 0, &[]);
        assert_eq!(one.status(), (4, wanted), "only one was reset");
    }
    at(&mut two, FLAT).command(5, &READY, 0, &[]);
    assert_eq!(two.status(), (5, 2));
    // REGISTER, then RESERVE: write exclusive.
    let list = |key: u8, action: u8| {
        let mut list = [0; 24];
        (list[7], list[15]) = (key, action);
        list
    };
    for (service, key, action) in [(0, 0, 5), (1, 5, 0)] {
        let cdb = [0x5f, service, 1, 0, 0, 0, 0, 0, 24, 0];
        at(&mut one, FLAT).command(6, &cdb, 0, &list(key, action));
        assert_eq!(one.status(), (6, 0));
    }
    for (number, wanted) in [(0, 0), (FLAT, 0x18)] {
        at(&mut two, number).command(7, &WRITE, 0, &[3; 4096]);
        assert_eq!(two.status(), (7, wanted));
    }
    // A reset of the target is of all.
    two.manage(8, TaskFunction::TARGET_WARM_RESET, 0);
    assert!(matches!(two.receive(), Some((Response::Task(_), _))));
    for number in [0, FLAT] {
        at(&mut one, number).command(9, &READY, 0, &[]);
        assert_eq!(one.sense(), (6, 0x29, 2));
    }
}

#[test]
fn a_unit_that_is_added_appears_and_one_that_is_taken_out_goes() {
    let rig = Rig::new();
    let held = Arc::strong_count(&rig.other);
    set(&rig, &[(0, DISK, None)]);
    let mut initiator = log_in(&rig, 1);
    initiator.command(1, &READY, 0, &[]);
    assert_eq!(initiator.sense(), POWER_ON);
    let hears = |initiator: &mut Initiator| {
        eventually("it hears", || {
            at(initiator, 0).command(2, &READY, 0, &[]);
            match initiator.receive() {
                Some((Response::Command(response), data)) if response.status.0 == 2 => {
                    assert_eq!((data[4] & 0xf, data[14], data[15]), LUNS_CHANGED);
                    true
                }
                _ => false,
            }
        });
    };
    set(&rig, &[(0, DISK, None), (FLAT, OTHER, None)]);
    hears(&mut initiator);
    at(&mut initiator, FLAT).command(3, &READY, 0, &[]);
    assert!([POWER_ON, LUNS_CHANGED].contains(&initiator.sense()));
    assert_eq!(luns(&mut initiator).len(), 2);
    assert_eq!(rig.context.attachments.count(OTHER), 1);
    set(&rig, &[(0, DISK, None), (9, 99, None)]);
    hears(&mut initiator);
    assert_eq!(luns(&mut initiator), [Lun(0)], "a deleted volume is no unit");
    at(&mut initiator, FLAT).command(4, &READY, 0, &[]);
    assert_eq!(initiator.sense(), NO_SUCH_UNIT);
    eventually("it is let go", || rig.context.attachments.count(OTHER) == 0);
    eventually("and so is what it holds", || Arc::strong_count(&rig.other) == held);
    // The list was asked for: that it has changed is no news.
    set(&rig, &[(0, DISK, None), (9, 99, None), (10, OTHER, None)]);
    eventually("it is there", || luns(&mut initiator).len() == 2);
    at(&mut initiator, 0).command(5, &READY, 0, &[]);
    assert_eq!(initiator.status(), (5, 0));
    rig.made.lock().clear();
    rig.context.targets.tell_of_change();
    assert!(matches!(initiator.receive(), Some((Response::Async(_), _))), "asked to log out");
}

#[test]
fn a_volume_that_is_wanted_takes_its_unit_alone() {
    let rig = Rig::new();
    set(&rig, &[(0, DISK, None), (FLAT, OTHER, None)]);
    let mut initiator = ready(&rig, 1);
    let attachments = &rig.context.attachments;
    let refused = attachments.close(OTHER, Part::Present, false, Duration::ZERO);
    let clients = refused.expect_err("it is in use");
    assert!(clients.len() == 1 && clients[0].contains("iqn.2026-11.org.example:test"));
    // A flush that is under way is awaited.
    rig.other.close_gate();
    at(&mut initiator, FLAT).command(2, &SYNCHRONIZE, 0, &[]);
    eventually("it waits", || rig.other.waiting.load(Ordering::SeqCst) > 0);
    let short = Duration::from_millis(200);
    attachments.close(OTHER, Part::Present, true, short).expect_err("a flush is under way");
    at(&mut initiator, FLAT).command(3, &READY, 0, &[]);
    assert_eq!(initiator.sense(), NO_SUCH_UNIT);
    rig.other.open_gate();
    assert_eq!(initiator.status(), (2, 0));
    let closure = attachments.close(OTHER, Part::Present, true, Duration::from_secs(20));
    let closure = closure.expect("nobody has it");
    at(&mut initiator, 0).command(4, &READY, 0, &[]);
    assert_eq!(initiator.sense(), LUNS_CHANGED);
    at(&mut initiator, 0).command(5, &WRITE, 0, &[3; 4096]);
    assert_eq!(initiator.status(), (5, 0), "the other unit goes on");
    rig.other.reverts.fetch_add(1, Ordering::SeqCst);
    drop(closure);
    // It comes back without a logout, and does not find what was reverted; another does.
    drop(initiator);
    let mut back = log_in(&rig, 1);
    assert_eq!(luns(&mut back), [Lun(0)]);
    back.log_out();
    assert_eq!(luns(&mut log_in(&rig, 1)).len(), 2, "it has parted with what it had");
}

#[test]
fn a_session_gets_no_unit_by_an_access_that_it_has_not_shown() {
    let rig = Rig::new();
    set(&rig, &[(0, DISK, None), (9, DISK, Some(Seq(1)))]);
    let mut initiator = log_in(&rig, 1);
    assert_eq!(luns(&mut initiator).len(), 2);
    let access =
        Access { allow: vec!["iqn.2026-11.org.example:test".to_owned()], ..Access::default() };
    set_with(&rig, &[(0, DISK, None), (FLAT, OTHER, None)], access);
    eventually("it loses one", || luns(&mut initiator) == [Lun(0)]);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!((rig.context.attachments.count(OTHER), luns(&mut initiator).len()), (0, 1));
    // The next login has shown it.
    assert_eq!(luns(&mut log_in(&rig, 2)).len(), 2);
    set(&rig, &[(0, DISK, None), (FLAT, OTHER, None)]);
    eventually("it is as it was", || luns(&mut initiator).len() == 2);
}

#[test]
fn data_of_one_unit_is_taken_once_when_the_writes_of_another_wait() {
    let rig = Rig::new();
    set(&rig, &[(0, DISK, None), (FLAT, OTHER, None)]);
    let mut initiator = ready(&rig, 1);
    let request = at(&mut initiator, FLAT).request(2, &WRITE, 0, 4096);
    initiator.send(&Request::Command(request), &[]);
    initiator.cmd_sn = initiator.cmd_sn.next();
    let Some((Response::ReadyToTransfer(r2t), _)) = initiator.receive() else { panic!("no R2T") };
    rig.disk.is_ahead.store(true, Ordering::SeqCst);
    rig.disk.close_gate();
    let request = at(&mut initiator, 0).request(3, &WRITE, 0, 4096);
    let out = DataOut {
        is_final: true,
        lun: Lun::from_number(FLAT),
        task_tag: Tag(2),
        transfer_tag: r2t.transfer_tag,
        exp_stat_sn: Serial(0),
        data_sn: 0,
        offset: 0,
    };
    let mut pieces = Vec::new();
    for (request, byte) in [(Request::Command(request), 7), (Request::DataOut(out), 8)] {
        encode::pdu(&encode::request(&request), &[byte; 4096], Digests::default(), &mut pieces);
    }
    initiator.cmd_sn = initiator.cmd_sn.next();
    std::io::Write::write_all(&mut initiator.socket, &pieces).expect("sent");
    eventually("it waits", || rig.disk.waiting.load(Ordering::SeqCst) > 0);
    rig.disk.open_gate();
    let mut ended = [initiator.status(), initiator.status()];
    ended.sort_unstable();
    assert_eq!(ended, [(2, 0), (3, 0)]);
    assert!(rig.disk.bytes.lock()[4096..8192].iter().all(|&byte| byte == 7));
    assert!(rig.other.bytes.lock()[4096..8192].iter().all(|&byte| byte == 8));
}

#[test]
fn a_session_resets_nothing_that_was_taken_from_it() {
    let rig = Rig::new();
    set(&rig, &[(0, DISK, None), (FLAT, OTHER, None)]);
    let mut one = ready(&rig, 1);
    rig.other.close_gate();
    at(&mut one, FLAT).command(2, &SYNCHRONIZE, 0, &[]);
    eventually("it waits", || rig.other.waiting.load(Ordering::SeqCst) > 0);
    let (attachments, short) = (&rig.context.attachments, Duration::from_millis(100));
    attachments.close(OTHER, Part::Present, true, short).expect_err("a flush is under way");
    let mut two = ready(&rig, 2);
    for function in [TaskFunction::LUN_RESET, TaskFunction::CLEAR_TASK_SET] {
        at(&mut one, FLAT).manage(3, function, 0);
        let Some((Response::Task(response), _)) = one.receive() else { panic!("no answer") };
        assert_eq!(response.result, TaskResult::NO_LUN);
    }
    one.manage(4, TaskFunction::TARGET_WARM_RESET, 0);
    // The reset was received once what was sent after it is answered.
    one.nop(9);
    let Some((Response::NopIn(_), _)) = one.receive() else { panic!("no answer") };
    // Its own flush is aborted by that.
    rig.other.open_gate();
    let Some((Response::Task(response), _)) = one.receive() else { panic!("no answer") };
    assert_eq!(response.result, TaskResult::COMPLETE);
    at(&mut two, 0).command(5, &READY, 0, &[]);
    assert_eq!(two.sense(), (6, 0x29, 2));
    at(&mut two, FLAT).command(6, &READY, 0, &[]);
    assert_eq!(two.status(), (6, 0), "it is two's, and one has none there");
    eventually("it is let go", || attachments.count(OTHER) == 1);
}

#[test]
fn a_list_of_ranges_goes_no_further_on_a_unit_that_was_taken() {
    let rig = Rig::new();
    set(&rig, &[(0, DISK, None), (FLAT, OTHER, None)]);
    let mut initiator = ready(&rig, 1);
    rig.other.bytes.lock()[..8192].fill(1);
    rig.other.is_ahead.store(true, Ordering::SeqCst);
    rig.other.close_gate();
    let mut list = [0; 40];
    // Eight blocks from 0 on, and eight from 8 on.
    (list[1], list[3], list[19], list[31], list[35]) = (38, 32, 8, 8, 8);
    at(&mut initiator, FLAT).command(2, &[0x42, 0, 0, 0, 0, 0, 0, 0, 40, 0], 0, &list);
    eventually("it waits", || rig.other.waiting.load(Ordering::SeqCst) > 0);
    let (attachments, short) = (&rig.context.attachments, Duration::from_millis(100));
    attachments.close(OTHER, Part::Present, true, short).expect_err("a range is under way");
    eventually("it is taken", || luns(&mut initiator) == [Lun(0)]);
    rig.other.open_gate();
    assert_eq!(initiator.sense(), NO_SUCH_UNIT);
    let bytes = rig.other.bytes.lock();
    assert!(bytes[..4096].iter().all(|&byte| byte == 0));
    assert!(bytes[4096..8192].iter().all(|&byte| byte == 1));
}

#[test]
fn a_session_that_does_not_leave_a_unit_in_time_ends() {
    let rig = Rig::with(|context| context.serving.limits.farewell = Duration::from_millis(300));
    set(&rig, &[(0, DISK, None), (FLAT, OTHER, None)]);
    let mut initiator = ready(&rig, 1);
    rig.other.set_room(0);
    at(&mut initiator, FLAT).command(2, &WRITE, 0, &[3; 4096]);
    eventually("it waits", || rig.other.waiting_for_room.load(Ordering::SeqCst) > 0);
    // It would wait for longer than this.
    let patience = Duration::from_secs(6);
    let closed = rig.context.attachments.close(OTHER, Part::Present, true, patience);
    drop(closed.expect("nobody has it"));
    assert!(initiator.receive().is_none(), "its connection has ended");
}

#[test]
fn a_login_that_waits_for_one_volume_holds_no_other() {
    let rig = Rig::new();
    set(&rig, &[(0, DISK, None), (FLAT, OTHER, None)]);
    let attachments = &rig.context.attachments;
    let close = |volume| attachments.close(volume, Part::Present, false, Duration::from_secs(5));
    let first = close(OTHER).expect("nobody has it");
    let mut initiator = Initiator::new(rig.address, 1);
    let name = rig.context.targets.name_of("t").expect("a name");
    let login = std::thread::spawn(move || (initiator.log_in(&name), initiator));
    std::thread::sleep(Duration::from_millis(200));
    let second = close(DISK).expect("it waits without it");
    assert!(!login.is_finished());
    drop((first, second));
    let (status, mut initiator) = login.join().expect("logged in");
    assert_eq!((status, luns(&mut initiator).len()), (LoginStatus::SUCCESS, 2));
}
