//! Nothing lands later than what its initiator did next: aborts, resets and logins that take the
//! place of a session await what is under way.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use wire::iscsi::{
    AsyncEvent, DataOut, LoginStatus, Request, Response, Serial, Tag, TaskFunction, TaskResult,
};
use wire::scsi::{Lun, Sense, SenseKey, Status};

use super::initiator::{Initiator, Rig};
use crate::Part;
use crate::nbd::tests::rig::eventually;

const SYNCHRONIZE: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Starts a flush that waits.
fn stuck(rig: &Rig, initiator: &mut Initiator, tag: u32) {
    let before = rig.disk.waiting.load(Ordering::SeqCst);
    rig.disk.close_gate();
    initiator.command(tag, &SYNCHRONIZE, 0, &[]);
    eventually("it waits", || rig.disk.waiting.load(Ordering::SeqCst) > before);
}

fn is_silent(initiator: &mut Initiator) {
    let socket = &initiator.socket;
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
    let mut byte = [0];
    let peeked = socket.peek(&mut byte);
    assert!(peeked.is_err(), "something came: {peeked:?}");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
}

#[test]
fn an_abort_is_answered_when_the_task_has_ended_and_the_task_is_not() {
    let rig = Rig::new();
    let mut initiator = rig.initiator(1);
    stuck(&rig, &mut initiator, 2);
    initiator.manage(3, TaskFunction::ABORT_TASK, 2);
    is_silent(&mut initiator);
    rig.disk.open_gate();
    let Some((Response::Task(response), _)) = initiator.receive() else { panic!("no answer") };
    assert_eq!((response.task_tag, response.result), (Tag(3), TaskResult::COMPLETE));
    initiator.manage(4, TaskFunction::ABORT_TASK, 2);
    let Some((Response::Task(response), _)) = initiator.receive() else { panic!("no answer") };
    assert_eq!(response.result, TaskResult::NO_TASK);
    initiator.command(5, &[0; 6], 0, &[]);
    assert_eq!(initiator.status(), (5, 0));
}

#[test]
fn a_reset_awaits_the_tasks_of_other_sessions() {
    let rig = Rig::new();
    let (mut one, mut two) = (rig.initiator(1), rig.initiator(2));
    stuck(&rig, &mut one, 2);
    two.manage(3, TaskFunction::LUN_RESET, 0);
    is_silent(&mut two);
    rig.disk.open_gate();
    let Some((Response::Task(response), _)) = two.receive() else { panic!("no answer") };
    assert_eq!(response.result, TaskResult::COMPLETE);
    // Both are told of it, and the task is not answered.
    for initiator in [&mut one, &mut two] {
        initiator.command(6, &[0; 6], 0, &[]);
        assert_eq!(initiator.status(), (6, 2));
    }
}

#[test]
fn a_login_in_the_place_of_a_session_awaits_its_end() {
    let rig = Rig::new();
    let mut old = rig.initiator(1);
    stuck(&rig, &mut old, 2);
    let mut new = Initiator::new(rig.address, 1);
    let target = rig.target.clone();
    let login = std::thread::spawn(move || (new.log_in(&target), new));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!login.is_finished(), "the old session has a flush under way");
    rig.disk.open_gate();
    let (status, _new) = login.join().expect("logged in");
    assert_eq!(status, LoginStatus::SUCCESS);
    assert!(old.receive().is_none(), "its connection has ended");
}

#[test]
fn data_that_breaks_the_protocol_is_not_written() {
    let rig = Rig::new();
    let mut initiator = rig.initiator(1);
    // 8 blocks, of which none comes with the command.
    let cdb = [0x2a, 0, 0, 0, 0, 0, 0, 0, 8, 0];
    let begin = |initiator: &mut Initiator, tag| {
        let request = initiator.request(tag, &cdb, 0, 4096);
        initiator.send(&Request::Command(request), &[]);
        initiator.cmd_sn = initiator.cmd_sn.next();
        match initiator.receive() {
            Some((Response::ReadyToTransfer(r2t), _)) => r2t,
            other => panic!("no R2T: {other:?}"),
        }
    };
    let data = |tag, transfer_tag, data_sn, offset| {
        let exp_stat_sn = Serial(0);
        let (is_final, lun, task_tag) = (true, Lun(0), Tag(tag));
        let out = DataOut { is_final, lun, task_tag, transfer_tag, exp_stat_sn, data_sn, offset };
        Request::DataOut(out)
    };
    for (tag, wrong) in [(2, (1, 0, 4096)), (3, (0, 512, 3584)), (4, (0, 0, 2048))] {
        let r2t = begin(&mut initiator, tag);
        assert_eq!((r2t.offset, r2t.wanted_bytes), (0, 4096));
        let (data_sn, offset, length) = wrong;
        initiator.send(&data(tag, r2t.transfer_tag, data_sn, offset), &vec![9; length]);
        let (_, said) = initiator.receive().expect("a response");
        let sense = wire::iscsi::encode::sense_of_segment(&said).and_then(Sense::decode);
        assert_eq!(sense.expect("sense").key, SenseKey::ABORTED_COMMAND);
    }
    assert!(rig.disk.bytes.lock()[..4096].iter().all(|&byte| byte == 0));
    let r2t = begin(&mut initiator, 5);
    initiator.send(&data(5, r2t.transfer_tag, 0, 0), &[9; 4096]);
    assert_eq!(initiator.status(), (5, 0));
    assert!(rig.disk.bytes.lock()[..4096].iter().all(|&byte| byte == 9));
}

#[test]
fn an_initiator_whose_volume_is_taken_is_told_and_kept_away() {
    let rig = Rig::new();
    let mut initiator = rig.initiator(1);
    let mut other = rig.initiator(2);
    let register = Arc::clone(&rig.context.attachments);
    let closing = std::thread::spawn(move || {
        register.close(1, Part::Present, true, Duration::from_secs(20)).map(drop)
    });
    for initiator in [&mut initiator, &mut other] {
        let Some((Response::Async(told), _)) = initiator.receive() else { panic!("not told") };
        assert_eq!(told.event, AsyncEvent::REQUEST_LOGOUT);
        assert!(initiator.receive().is_none(), "its connection ends");
    }
    closing.join().expect("closed").expect("nobody is attached any more");
    rig.disk.reverts.fetch_add(1, Ordering::SeqCst);
    let status = Initiator::new(rig.address, 1).log_in(&rig.target);
    assert_eq!(status, LoginStatus::SERVICE_UNAVAILABLE);
}

#[test]
fn an_initiator_between_two_logins_does_not_get_what_was_reverted_meanwhile() {
    let rig = Rig::new();
    let mut parted = rig.initiator(1);
    parted.log_out();
    rig.disk.reverts.fetch_add(1, Ordering::SeqCst);
    // It had nothing in mind any more.
    let lost = rig.initiator(1);
    drop(lost);
    eventually("the session ends", || rig.context.sessions_of(&rig.target).is_empty());
    let back = rig.initiator(1);
    drop(back);
    eventually("the session ends", || rig.context.sessions_of(&rig.target).is_empty());
    rig.disk.reverts.fetch_add(1, Ordering::SeqCst);
    for port in [1, 2] {
        let status = Initiator::new(rig.address, port).log_in(&rig.target);
        assert_eq!(status, LoginStatus::SERVICE_UNAVAILABLE);
    }
    // One that came back, and logged out, has nothing in mind.
    let rig = Rig::new();
    drop(rig.initiator(1));
    eventually("the session ends", || rig.context.sessions_of(&rig.target).is_empty());
    rig.initiator(1).log_out();
    eventually("the session ends", || rig.context.sessions_of(&rig.target).is_empty());
    rig.disk.reverts.fetch_add(1, Ordering::SeqCst);
    drop(rig.initiator(1));
    let other = [("InitiatorName", "iqn.2026-11.org.example:b"), ("TargetName", &rig.target)];
    let status = Initiator::new(rig.address, 3).log_in_with(&other);
    assert_eq!(status, LoginStatus::SUCCESS);
}

/// WRITE (10) of 8 blocks.
const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 8, 0];

#[test]
fn writes_that_are_ahead_of_the_map_are_answered_once_it_is_written() {
    let rig = Rig::new();
    let mut initiator = rig.initiator(1);
    rig.disk.is_ahead.store(true, Ordering::SeqCst);
    rig.disk.close_gate();
    for tag in [2, 3] {
        initiator.command(tag, &WRITE, 0, &[tag as u8; 4096]);
    }
    eventually("it waits", || rig.disk.waiting.load(Ordering::SeqCst) > 0);
    initiator.socket.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
    assert!(initiator.receive().is_none(), "not yet");
    initiator.socket.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    rig.disk.open_gate();
    let mut ended = [initiator.status(), initiator.status()];
    ended.sort_unstable();
    assert_eq!(ended, [(2, 0), (3, 0)]);
}

#[test]
fn an_initiator_is_heard_while_its_writes_wait_for_room() {
    let rig = Rig::new();
    let mut initiator = rig.initiator(1);
    rig.disk.set_room(512);
    for tag in [2, 3] {
        initiator.command(tag, &WRITE, 0, &[tag as u8; 4096]);
    }
    eventually("it waits", || rig.disk.waiting_for_room.load(Ordering::SeqCst) > 0);
    initiator.nop(4);
    match initiator.receive() {
        Some((Response::NopIn(nop), _)) => assert_eq!(nop.task_tag, Tag(4)),
        other => panic!("no answer to a NOP-Out: {other:?}"),
    }
    initiator.manage(5, TaskFunction::ABORT_TASK, 2);
    initiator.manage(6, TaskFunction::ABORT_TASK, 99);
    match initiator.receive() {
        Some((Response::Task(response), _)) => assert_eq!(response.task_tag, Tag(6)),
        other => panic!("no answer to the abort of nothing: {other:?}"),
    }
    rig.disk.set_room(u64::MAX);
    let mut ended = Vec::new();
    for _ in 0..2 {
        match initiator.receive() {
            Some((Response::Task(response), _)) => ended.push((response.task_tag, 0)),
            Some((Response::Command(response), _)) => {
                ended.push((response.task_tag, response.status.0));
            }
            other => panic!("neither a status nor the answer to an abort: {other:?}"),
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, [(Tag(3), 0), (Tag(5), 0)]);
    initiator.command(7, &WRITE, 0, &[7; 4096]);
    assert_eq!(initiator.status(), (7, 0));
}

#[test]
fn writes_that_wait_in_line_for_room_are_answered_in_time() {
    let rig = Rig::new();
    let mut initiator = rig.initiator(1);
    rig.disk.set_room(0);
    let began = Instant::now();
    // More than may wait on threads at once.
    for tag in 2..30 {
        initiator.command(tag, &WRITE, 0, &[7; 4096]);
    }
    for _ in 2..30 {
        assert_eq!(initiator.status().1, Status::BUSY.0);
    }
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert!(rig.disk.bytes.lock()[..4096].iter().all(|&byte| byte == 0));
}

#[test]
fn a_list_that_is_too_long_is_refused_and_holds_up_nobody() {
    let rig = Rig::new();
    let mut initiator = rig.initiator(1);
    // PERSISTENT RESERVE OUT with a list of 4 GiB.
    let cdb = [0x5f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0];
    let mut request = initiator.request(2, &cdb, 0, 1);
    request.expected_bytes = u32::MAX;
    initiator.send(&Request::Command(request), &[]);
    initiator.cmd_sn = initiator.cmd_sn.next();
    assert_eq!(initiator.status(), (2, 2));
    initiator.command(3, &[0; 6], 0, &[]);
    assert_eq!(initiator.status(), (3, 0));
}
