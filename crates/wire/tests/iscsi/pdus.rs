//! Headers, frames and digests.

use hindsight_wire as wire;
use proptest::collection;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use wire::iscsi::decode::{self, AhsKinds};
use wire::iscsi::encode::{self, Head, Tail};
use wire::iscsi::frame::{Frame, PduError, digest, padding_bytes};
use wire::iscsi::{
    Bhs, CommandRequest, CommandResponse, DataIn, DataInStatus, Digests, Isid, LoginResponse,
    LoginStatus, Numbers, RejectReason, Request, Residual, Serial, Stage, Tag, TaskAttribute,
};
use wire::scsi::{Code, Lun, Sense, Status};

use crate::arbitrary::{any_request, any_response};
use crate::hex;

const NO_DIGESTS: Digests = Digests { header: false, data: false };
const DIGESTS: [Digests; 4] = [
    NO_DIGESTS,
    Digests { header: true, data: false },
    Digests { header: false, data: true },
    Digests { header: true, data: true },
];

/// A SCSI Command of RFC 7143 B.4: READ(10) of 2 blocks.
fn known_command() -> Bhs {
    let bytes = hex("01c00000 00000000 00000000 00000000 14000000 00000400 00000014 00000018
                     28000000 00000000 02000000 00000000");
    bytes.try_into().expect("48 bytes")
}

#[test]
fn digests_are_those_of_the_rfc() {
    let up: Vec<u8> = (0..32).collect();
    let down: Vec<u8> = (0..32).rev().collect();
    for (bytes, sent) in [
        (vec![0; 32], "aa36918a"),
        (vec![0xff; 32], "43aba862"),
        (up, "4e79dd46"),
        (down, "5cdb3f11"),
        (known_command().to_vec(), "563a96d9"),
    ] {
        assert_eq!(digest(&[&bytes]).to_vec(), hex(sent));
        let (first, second) = bytes.split_at(7);
        assert_eq!(digest(&[first, second]), digest(&[&bytes]), "in pieces it is the same");
    }
}

#[test]
fn the_command_of_the_rfc_is_read() {
    let expected = Request::Command(CommandRequest {
        immediate: false,
        is_final: true,
        reads: true,
        writes: false,
        attribute: TaskAttribute::Untagged,
        lun: Lun(0),
        task_tag: Tag(0x1400_0000),
        expected_bytes: 0x400,
        cmd_sn: Serial(0x14),
        exp_stat_sn: Serial(0x18),
        cdb: hex("28000000000000000200000000000000").try_into().expect("16 bytes"),
    });
    assert_eq!(decode::request(&known_command()), Ok(expected));
    assert_eq!(encode::request(&expected), known_command());
}

#[test]
fn responses_have_their_known_bytes() {
    let numbers = Numbers { stat_sn: Serial(1), exp_cmd_sn: Serial(2), max_cmd_sn: Serial(0x81) };
    let response = CommandResponse {
        response: CommandResponse::COMPLETED,
        status: Status::CHECK_CONDITION,
        task_tag: Tag(7),
        numbers,
        exp_data_sn: 0,
        residual: Residual::Underflow(512),
    };
    let bhs = encode::command_response(&response);
    assert_eq!(
        bhs.to_vec(),
        hex("21820002 00000000 0000000000000000 00000007 00000000 00000001 00000002 00000081
             00000000 00000000 00000200")
    );
    let data_in = DataIn {
        is_final: true,
        acknowledge: false,
        status: Some(DataInStatus { status: Status::GOOD, residual: Residual::Overflow(4) }),
        lun: Lun(0),
        task_tag: Tag(7),
        transfer_tag: Tag::NONE,
        numbers,
        data_sn: 3,
        offset: 8192,
    };
    assert_eq!(
        encode::data_in(&data_in).to_vec(),
        hex("25850000 00000000 0000000000000000 00000007 ffffffff 00000001 00000002 00000081
             00000003 00002000 00000004")
    );
    let login = LoginResponse {
        continues: false,
        stage: Stage::Operational,
        next: Some(Stage::FullFeature),
        version_max: 0,
        version_active: 0,
        isid: Isid([0x80, 1, 2, 3, 4, 5]),
        tsih: 0x0102,
        task_tag: Tag(7),
        numbers,
        status: LoginStatus::NOT_FOUND,
    };
    assert_eq!(
        encode::login_response(&login).to_vec(),
        hex("23870000 00000000 800102030405 0102 00000007 00000000 00000001 00000002 00000081
             0203 0000 00000000 00000000")
    );
}

#[test]
fn sense_data_goes_with_its_length() {
    let mut data = Vec::new();
    encode::sense_segment(&Sense::illegal(Code::INVALID_OPCODE), false, &mut data);
    assert_eq!(data, hex("0012 70 00 05 00000000 0a 00000000 20 00 00 000000"));
    assert_eq!(encode::sense_of_segment(&data), Some(&data[2..]));
    for end in 0..data.len() {
        assert_eq!(encode::sense_of_segment(&data[..end]), None);
    }
}

#[test]
fn frames_are_found_whole_or_not_at_all() {
    for digests in DIGESTS {
        for length in 0..9 {
            let data: Vec<u8> = (1..=length).collect();
            let mut bytes = Vec::new();
            encode::pdu(&known_command(), &data, digests, &mut bytes);
            let total = bytes.len();
            bytes.extend_from_slice(b"the next PDU");
            for end in 0..bytes.len() {
                let seen = &bytes[..end];
                let Some(frame) = Frame::measure(seen, digests, 8).expect("a sound header") else {
                    assert!(end < 48 + if digests.header { 4 } else { 0 });
                    continue;
                };
                assert_eq!((frame.total_bytes(), frame.data_bytes()), (total, data.len()));
                let Some(pdu) = frame.pdu(seen) else {
                    assert!(end < total);
                    continue;
                };
                assert!(end >= total && pdu.is_intact && pdu.ahs.is_empty());
                assert_eq!(pdu.data, data);
                assert_eq!(decode::request(pdu.bhs), decode::request(&known_command()));
            }
        }
    }
}

#[test]
fn head_data_and_tail_are_the_pdu() {
    for digests in DIGESTS {
        for length in 0..9_usize {
            let data = vec![7; length];
            let mut whole = Vec::new();
            encode::pdu(&known_command(), &data, digests, &mut whole);
            for cut in 0..=length {
                let (first, second) = data.split_at(cut);
                let head = Head::new(&known_command(), length, digests);
                let tail = Tail::new(&[first, second], digests);
                let parts = [head.as_bytes(), first, second, tail.as_bytes()].concat();
                assert_eq!(parts, whole);
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_found_by_a_digest() {
    let both = Digests { header: true, data: true };
    let mut sound = Vec::new();
    encode::pdu_with_ahs(&known_command(), &[0; 8], b"hello", both, &mut sound);
    for at in 0..sound.len() * 8 {
        let mut bytes = sound.clone();
        bytes[at / 8] ^= 1 << (at % 8);
        match Frame::measure(&bytes, both, 1 << 20) {
            Ok(Some(frame)) => {
                assert!(at / 8 >= 60, "the header and its digest are covered");
                assert!(!frame.pdu(&bytes).expect("whole").is_intact, "bit {at}");
            }
            // The length of the additional segments may point beyond what is there.
            Ok(None) => assert_eq!(at / 8, 4),
            Err(error) => assert!(error == PduError::HeaderDigest && error.is_fatal()),
        }
    }
}

#[test]
fn more_data_than_was_declared_is_refused_from_its_header() {
    let head = Head::new(&known_command(), 513, NO_DIGESTS);
    let refused = Frame::measure(head.as_bytes(), NO_DIGESTS, 512);
    assert_eq!(refused, Err(PduError::TooLong(513)));
    assert!(Frame::measure(head.as_bytes(), NO_DIGESTS, 513).is_ok());
}

#[test]
fn additional_segments_count_in_the_length() {
    let both = Digests { header: true, data: true };
    let extended = hex("0011 01 00 000102030405060708090a0b0c0d0e0f");
    let bidirectional = hex("0005 02 00 00001000");
    let ahs = [extended.as_slice(), bidirectional.as_slice()].concat();
    let mut bytes = Vec::new();
    encode::pdu_with_ahs(&known_command(), &ahs, b"data", both, &mut bytes);
    assert_eq!(bytes.len(), 48 + 28 + 4 + 4 + 4);
    let frame = Frame::measure(&bytes, both, 8).expect("sound").expect("whole");
    let pdu = frame.pdu(&bytes).expect("whole");
    assert_eq!((pdu.ahs, pdu.data), (ahs.as_slice(), b"data".as_slice()));
    let kinds = decode::ahs(pdu.ahs);
    assert_eq!(kinds, Ok(AhsKinds { extended_cdb: true, bidirectional: true }));
    assert_eq!(decode::ahs(&bidirectional).map(|kinds| kinds.extended_cdb), Ok(false));
    for end in (1..ahs.len()).filter(|end| *end != extended.len()) {
        assert!(decode::ahs(&ahs[..end]).is_err(), "{end}");
    }
    assert!(decode::ahs(&hex("0001 03 00")).is_err(), "no such kind");
}

#[test]
fn opcodes_of_the_other_side_are_unknown() {
    for opcode in 0..=0x3f_u8 {
        let mut bhs = [0; 48];
        bhs[0] = opcode;
        let is_request = [0, 1, 2, 3, 4, 5, 6, 0x10].contains(&opcode);
        let unknown = PduError::Opcode(opcode);
        assert_eq!(decode::request(&bhs) != Err(unknown), is_request);
        let is_response = (0x20..=0x26).contains(&opcode) || [0x31, 0x32, 0x3f].contains(&opcode);
        assert_eq!(decode::response(&bhs) != Err(unknown), is_response);
    }
    assert_eq!(PduError::Opcode(0x1c).reason(), RejectReason::NOT_SUPPORTED);
}

#[test]
fn a_login_goes_forward_only() {
    let mut bhs = [0; 48];
    bhs[0] = 0x43;
    for flags in 0..=0xff_u8 {
        bhs[1] = flags;
        let (transits, continues) = (flags & 0x80 != 0, flags & 0x40 != 0);
        let (stage, next) = (flags >> 2 & 3, flags & 3);
        let is_stage = stage < 2;
        let is_next = !transits || next != 2 && next > stage && !continues;
        assert_eq!(decode::request(&bhs).is_ok(), is_stage && is_next, "{flags:#x}");
    }
}

#[test]
fn serial_numbers_wrap() {
    let last = Serial(u32::MAX);
    assert!(last.is_before(last.next()) && !last.next().is_before(last));
    assert_eq!(last.next(), Serial(0));
    assert_eq!(Serial(3).since(last.minus(1)), 5);
    let (first, end) = (last.minus(2), last.plus(3));
    let inside = (0..10).filter(|step| last.minus(5).plus(*step).is_within(first, end)).count();
    assert_eq!(inside, 6);
    let closed = Serial(5);
    assert!(!closed.is_within(closed, closed.minus(1)), "the window is closed");
    assert!(closed.is_within(closed, closed));
}

#[test]
fn residuals_go_both_ways() {
    assert_eq!(Residual::between(512, 512), Residual::None);
    assert_eq!(Residual::between(512, 0), Residual::Underflow(512));
    assert_eq!(Residual::between(0, 4096), Residual::Overflow(4096));
    assert_eq!(Residual::between(0, 1 << 40), Residual::Overflow(u32::MAX));
}

proptest! {
    #[test]
    fn requests_survive_the_wire(request in any_request()) {
        prop_assert_eq!(decode::request(&encode::request(&request)), Ok(request));
    }

    #[test]
    fn responses_survive_the_wire(response in any_response()) {
        prop_assert_eq!(decode::response(&encode::response(&response)), Ok(response));
    }

    #[test]
    fn random_headers_are_decoded_or_refused(bytes in collection::vec(any::<u8>(), 48)) {
        let bhs: Bhs = bytes.try_into().expect("48 bytes");
        if let Ok(request) = decode::request(&bhs) {
            prop_assert_eq!(decode::request(&encode::request(&request)), Ok(request));
        }
        if let Ok(response) = decode::response(&bhs) {
            prop_assert_eq!(decode::response(&encode::response(&response)), Ok(response));
        }
    }

    #[test]
    fn random_bytes_are_framed_or_refused(
        bytes in collection::vec(any::<u8>(), 0..200),
        which in 0..4_usize,
        short in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if short && bytes.len() > 8 {
            // Lengths that can be there.
            bytes[4] %= 4;
            bytes[5..7].fill(0);
        }
        let _ = decode::ahs(&bytes);
        if let Ok(Some(frame)) = Frame::measure(&bytes, DIGESTS[which], 1 << 20) {
            if let Some(pdu) = frame.pdu(&bytes) {
                prop_assert!(48 + pdu.ahs.len() + pdu.data.len() <= bytes.len());
            } else {
                prop_assert!(frame.total_bytes() > bytes.len());
            }
        }
    }

    #[test]
    fn padding_fills_the_last_word(length in 0..1_usize << 24) {
        prop_assert!((length + padding_bytes(length)).is_multiple_of(4));
        prop_assert!(padding_bytes(length) < 4);
    }
}
