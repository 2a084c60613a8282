//! Memory that waits for initiators, numbers that they were told, and what is sent to them last.

use wire::iscsi::{DataOut, LogoutReason, LogoutRequest, Request, Response, Serial, Tag};
use wire::scsi::{Lun, Sense, SenseKey, Status};

use super::initiator::{Initiator, Rig};

const MIB: usize = 1 << 20;

/// READ (10) or WRITE (10) of so many bytes from the start.
fn cdb(opcode: u8, bytes: usize) -> [u8; 10] {
    let [.., high, low] = (bytes / 512).to_be_bytes();
    [opcode, 0, 0, 0, 0, 0, 0, high, low, 0]
}

/// Begins a write whose data is asked for; the number of the transfer, or how it ended at once.
fn begin(initiator: &mut Initiator, tag: u32, bytes: usize) -> Result<(Tag, usize), u8> {
    let request = initiator.request(tag, &cdb(0x2a, bytes), 0, bytes);
    initiator.send(&Request::Command(request), &[]);
    initiator.cmd_sn = initiator.cmd_sn.next();
    match initiator.receive() {
        Some((Response::ReadyToTransfer(r2t), _)) => {
            Ok((r2t.transfer_tag, r2t.wanted_bytes as usize))
        }
        Some((Response::Command(response), _)) => Err(response.status.0),
        other => panic!("neither asked for data nor answered: {other:?}"),
    }
}

/// Sends the data of a write, burst by burst, and awaits its end.
fn send(initiator: &mut Initiator, tag: u32, (mut transfer_tag, mut length): (Tag, usize)) -> u8 {
    let mut sent = 0;
    loop {
        let out = DataOut {
            is_final: true,
            lun: Lun(0),
            task_tag: Tag(tag),
            transfer_tag,
            exp_stat_sn: Serial(0),
            data_sn: 0,
            offset: sent as u32,
        };
        initiator.send(&Request::DataOut(out), &vec![5; length]);
        sent += length;
        match initiator.receive() {
            Some((Response::ReadyToTransfer(r2t), _)) => {
                (transfer_tag, length) = (r2t.transfer_tag, r2t.wanted_bytes as usize);
            }
            Some((Response::Command(response), _)) => return response.status.0,
            other => panic!("neither asked for data nor answered: {other:?}"),
        }
    }
}

/// Receives the data of a read; its length.
fn take(initiator: &mut Initiator, tag: u32) -> usize {
    let mut length = 0;
    loop {
        match initiator.receive() {
            Some((Response::DataIn(data), bytes)) => {
                assert_eq!((data.task_tag, data.offset as usize), (Tag(tag), length));
                length += bytes.len();
                if data.status.is_some() {
                    return length;
                }
            }
            other => panic!("no data: {other:?}"),
        }
    }
}

#[test]
fn initiators_that_send_no_data_leave_memory_to_others() {
    let rig = Rig::new();
    let mut greedy = [1, 2, 3].map(|port| rig.initiator(port));
    for initiator in &mut greedy {
        begin(initiator, 2, 5 * MIB).expect("the first is asked for");
        for tag in 3..6 {
            assert_eq!(begin(initiator, tag, 5 * MIB), Err(Status::TASK_SET_FULL.0));
        }
    }
    let mut other = rig.initiator(4);
    let asked = begin(&mut other, 2, 4 * MIB).expect("there is memory");
    assert_eq!(send(&mut other, 2, asked), 0);
    assert!(rig.disk.bytes.lock()[..4 * MIB].iter().all(|&byte| byte == 5));
    rig.disk.is_cold.store(true, std::sync::atomic::Ordering::SeqCst);
    other.command(3, &cdb(0x28, 8 * MIB), 8 * MIB as u32, &[]);
    assert_eq!(take(&mut other, 3), 8 * MIB);
    // They are heard all the same.
    let [first, ..] = &mut greedy;
    first.nop(9);
    assert!(matches!(first.receive(), Some((Response::NopIn(_), _))));
    drop(greedy);
}

#[test]
fn a_command_that_is_rejected_has_not_used_its_number() {
    let rig = Rig::new();
    let mut initiator = rig.initiator(1);
    let asked = begin(&mut initiator, 2, 4096).expect("asked for");
    // Its tag is in use.
    let request = initiator.request(2, &[0; 6], 0, 0);
    initiator.send(&Request::Command(request), &[]);
    match initiator.receive() {
        Some((Response::Reject(reject), _)) => {
            assert_eq!(reject.numbers.exp_cmd_sn, initiator.cmd_sn);
        }
        other => panic!("not rejected: {other:?}"),
    }
    initiator.command(3, &[0; 6], 0, &[]);
    assert_eq!(initiator.status(), (3, 0));
    assert_eq!(send(&mut initiator, 2, asked), 0);
}

#[test]
fn a_logout_comes_after_the_data_of_what_was_asked_before() {
    let rig = Rig::new();
    let mut initiator = rig.initiator(1);
    initiator.command(2, &cdb(0x28, 16 * MIB), 16 * MIB as u32, &[]);
    let logout = LogoutRequest {
        immediate: false,
        reason: LogoutReason::CLOSE_SESSION,
        task_tag: Tag(3),
        cid: 1,
        cmd_sn: initiator.cmd_sn,
        exp_stat_sn: Serial(0),
    };
    initiator.send(&Request::Logout(logout), &[]);
    assert_eq!(take(&mut initiator, 2), 16 * MIB);
    assert!(matches!(initiator.receive(), Some((Response::Logout(_), _))));
    assert!(initiator.receive().is_none(), "its connection ends");
}

#[test]
fn a_question_to_a_unit_that_is_not_there_takes_no_attention_away() {
    let rig = Rig::new();
    let mut initiator = Initiator::new(rig.address, 1);
    assert_eq!(initiator.log_in(&rig.target), wire::iscsi::LoginStatus::SUCCESS);
    let mut request = initiator.request(2, &[0x03, 0, 0, 0, 18, 0], 18, 0);
    request.lun = Lun(5 << 48);
    initiator.send(&Request::Command(request), &[]);
    initiator.cmd_sn = initiator.cmd_sn.next();
    assert_eq!(take(&mut initiator, 2), 18);
    // REQUEST SENSE to the unit that is there.
    initiator.command(3, &[0x03, 0, 0, 0, 18, 0], 18, &[]);
    match initiator.receive() {
        Some((Response::DataIn(_), sense)) => {
            let key = Sense::decode(&sense).expect("sense").key;
            assert_eq!(key, SenseKey::UNIT_ATTENTION);
        }
        other => panic!("no sense: {other:?}"),
    }
}
