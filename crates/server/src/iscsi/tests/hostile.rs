//! Initiators that cut, garble and make up what they send.

use std::io::{Read, Write};

use wire::iscsi::{Digests, Request, Residual, Response, encode};

use super::initiator::{Initiator, Rig};

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.next() as u8);
    }
}

#[test]
fn a_pdu_that_comes_byte_by_byte_is_one_pdu() {
    let rig = Rig::new();
    let mut initiator = rig.initiator(1);
    let cdb = [0x2a, 0, 0, 0, 0, 8, 0, 0, 1, 0];
    let request = encode::request(&Request::Command(initiator.request(2, &cdb, 0, 512)));
    let mut pdu = Vec::new();
    encode::pdu(&request, &[5; 512], Digests::default(), &mut pdu);
    for byte in pdu {
        initiator.socket.write_all(&[byte]).expect("sent");
    }
    assert_eq!(initiator.status(), (2, 0));
    assert!(rig.disk.bytes.lock()[4096..4608].iter().all(|&byte| byte == 5));
}

#[test]
fn nonsense_ends_its_connection_at_most() {
    let rig = Rig::new();
    let mut steady = rig.initiator(1);
    let mut numbers = Numbers(1);
    for round in 0..200 {
        let mut initiator = match round % 4 {
            0 => Initiator::new(rig.address, 2),
            _ => rig.initiator(2),
        };
        for _ in 0..20 {
            let mut bytes = [0; 112];
            numbers.fill(&mut bytes);
            let mut length = bytes.len();
            if round % 2 == 1 {
                // A whole PDU, most of them of an operation that there is.
                let opcodes = [0x01, 0x41, 0x42, 0x05, 0x44, 0x40, 0x46, 0x10, 0x03, 0x3f];
                bytes[0] = opcodes[numbers.next() as usize % opcodes.len()];
                bytes[4] = if numbers.next().is_multiple_of(8) { 4 } else { 0 };
                bytes[5..8].copy_from_slice(&[0, 0, 32]);
                bytes[8..16].fill(0);
                bytes[24..28].copy_from_slice(&initiator.cmd_sn.0.to_be_bytes());
                length = 48 + usize::from(bytes[4]) * 4 + 32;
            }
            if initiator.socket.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        let _ = initiator.socket.shutdown(std::net::Shutdown::Write);
        let _ = initiator.socket.read_to_end(&mut Vec::new());
        steady.command(round, &[0; 6], 0, &[]);
        match steady.receive() {
            Some((Response::Command(response), _)) => {
                // Somebody may have reset the unit, or changed its mode.
                assert_eq!(response.task_tag.0, round);
            }
            other => panic!("round {round}: {other:?}"),
        }
    }
}

#[test]
fn a_write_cut_anywhere_writes_nothing_or_all() {
    let rig = Rig::new();
    let cdb = [0x2a, 0, 0, 0, 0, 0, 0, 0, 8, 0];
    let mut whole = Vec::new();
    let mut probe = rig.initiator(3);
    let request = encode::request(&Request::Command(probe.request(2, &cdb, 0, 4096)));
    encode::pdu(&request, &[7; 4096], Digests::default(), &mut whole);
    for cut in (0..whole.len()).step_by(97) {
        probe.socket.write_all(&whole[..cut]).expect("sent");
        drop(probe);
        probe = rig.initiator(3);
        assert!(rig.disk.bytes.lock()[..4096].iter().all(|&byte| byte == 0), "cut at {cut}");
    }
    probe.socket.write_all(&whole).expect("sent");
    assert_eq!(probe.status(), (2, 0));
    assert!(rig.disk.bytes.lock()[..4096].iter().all(|&byte| byte == 7));
}

#[test]
fn less_data_than_a_block_is_refused_and_not_acknowledged() {
    let rig = Rig::new();
    let mut initiator = rig.initiator(1);
    let cdb = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    for (length, wanted) in [(200, 312), (511, 1)] {
        initiator.command(2, &cdb, 0, &vec![7; length]);
        match initiator.receive() {
            Some((Response::Command(response), data)) => {
                assert_eq!((data[4] & 0xf, data[14], data[15]), (5, 0x0e, 3));
                assert_eq!(response.residual, Residual::Overflow(wanted));
            }
            other => panic!("no response: {other:?}"),
        }
    }
    assert!(rig.disk.bytes.lock()[..512].iter().all(|&byte| byte == 0));
}
