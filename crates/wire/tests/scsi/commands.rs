//! CDBs.

use hindsight_wire as wire;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::{option, prop_oneof};
use wire::scsi::command::{
    ByteCheck, Command, ModeSense, Movement, OpcodeQuestion, PageControl, Range, Transfer,
};
use wire::scsi::decode::{self, cdb_bytes};
use wire::scsi::encode::{self, Form};
use wire::scsi::reservations::{InAction, OutAction, ReservationType};
use wire::scsi::supported_opcodes::{self, COMMANDS};
use wire::scsi::{Code, Sense};

use crate::{cdb, hex};

fn transfer(lba: u64, blocks: u32, fua: bool, dpo: bool) -> Transfer {
    Transfer { range: Range { lba, blocks }, fua, dpo }
}

#[test]
fn reads_and_writes_have_their_known_bytes() {
    use Command::{CompareAndWrite, OrWrite, Read, Write};
    for (bytes, command) in [
        ("08 01ffff 00 00", Read(transfer(0x1_ffff, 256, false, false))),
        ("08 1fffff 01 00", Read(transfer(0x1f_ffff, 1, false, false))),
        ("28 18 00000010 00 0000 00", Read(transfer(0x10, 0, true, true))),
        ("a8 08 ffffffff 00010000 00 00", Read(transfer(0xffff_ffff, 0x1_0000, true, false))),
        ("88 10 0000000100000000 00000008 00 00", Read(transfer(1 << 32, 8, false, true))),
        ("0a 000002 08 00", Write(transfer(2, 8, false, false))),
        ("2a 00 00000010 00 ffff 00", Write(transfer(0x10, 0xffff, false, false))),
        ("aa 08 00000001 00000002 00 00", Write(transfer(1, 2, true, false))),
        ("8a 08 0000000000000001 ffffffff 00 00", Write(transfer(1, u32::MAX, true, false))),
        ("8b 00 0000000000000003 00000001 00 00", OrWrite(transfer(3, 1, false, false))),
        ("89 18 0000000000000003 000000 ff 00 00", CompareAndWrite(transfer(3, 255, true, true))),
    ] {
        assert_eq!(decode::command(&cdb(bytes)), Ok(command), "{bytes}");
    }
    let atomic =
        Command::WriteAtomic { transfer: transfer(8, 0x40, true, false), boundary_blocks: 0x10 };
    let bytes = cdb("9c 08 0000000000000008 0010 0040 00 00");
    assert_eq!(decode::command(&bytes), Ok(atomic));
}

#[test]
fn other_commands_have_their_known_bytes() {
    let range = Range { lba: 0x10, blocks: 8 };
    let check = ByteCheck::Blocks;
    for (bytes, command) in [
        ("00", Command::TestUnitReady),
        ("03 01 0000 fc", Command::RequestSense { descriptor: true, allocation_bytes: 252 }),
        ("12 00 00 0024", Command::Inquiry { page: None, allocation_bytes: 36 }),
        ("12 01 83 0100", Command::Inquiry { page: Some(0x83), allocation_bytes: 256 }),
        ("12 01 00 00ff", Command::Inquiry { page: Some(0), allocation_bytes: 255 }),
        ("25", Command::ReadCapacity10),
        ("9e 10 0000000000000000 00000020", Command::ReadCapacity16 { allocation_bytes: 32 }),
        ("2e 12 00000010 00 0008", Command::WriteAndVerify { range, dpo: true, check }),
        ("2f 02 00000010 00 0008", Command::Verify { range, dpo: false, check }),
        (
            "8f 16 0000000000000010 00000008",
            Command::Verify { range, dpo: true, check: ByteCheck::OneBlock },
        ),
        ("34 02 00000010 00 0008", Command::Prefetch { range, immediate: true }),
        ("91 00 0000000000000010 00000008", Command::SynchronizeCache { range, immediate: false }),
        ("41 08 00000010 00 0008", Command::WriteSame { range, unmap: true, no_data: false }),
        (
            "93 01 0000000000000010 00000008",
            Command::WriteSame { range, unmap: false, no_data: true },
        ),
    ] {
        assert_eq!(decode::command(&cdb(bytes)), Ok(command), "{bytes}");
    }
}

#[test]
fn commands_with_lists_have_their_known_bytes() {
    for (bytes, command) in [
        ("42 00 00000000 00 0018", Command::Unmap { list_bytes: 24 }),
        (
            "9e 12 0000000000000010 00000018",
            Command::GetLbaStatus { lba: 16, allocation_bytes: 24 },
        ),
        ("15 10 0000 18", Command::ModeSelect { is_ten: false, list_bytes: 24 }),
        ("55 10 0000000000 001c", Command::ModeSelect { is_ten: true, list_bytes: 28 }),
        ("16", Command::Reserve),
        ("57", Command::Release),
        ("1d 04", Command::SendDiagnostic { self_test: true }),
        (
            "5e 02 0000000000 0008",
            Command::PersistentReserveIn { action: InAction::Capabilities, allocation_bytes: 8 },
        ),
        (
            "5f 01 05 0000 00000018",
            Command::PersistentReserveOut {
                action: OutAction::Reserve,
                kind: Some(ReservationType::WriteExclusiveRegistrants),
                list_bytes: 24,
            },
        ),
        ("a0 00 02 000000 00001000", Command::ReportLuns { select: 2, allocation_bytes: 4096 }),
        (
            "a3 2a 00000000 00000400",
            Command::ReportTargetPortGroups { extended: true, allocation_bytes: 1024 },
        ),
        (
            "a3 0d 80000000 00000010",
            Command::ReportSupportedFunctions { extended: true, allocation_bytes: 16 },
        ),
        (
            "a3 0c 83 9e 0010 00000400",
            Command::ReportSupportedOpcodes {
                question: OpcodeQuestion::Either(0x9e, 0x10),
                timeouts: true,
                allocation_bytes: 1024,
            },
        ),
    ] {
        assert_eq!(decode::command(&cdb(bytes)), Ok(command), "{bytes}");
    }
}

#[test]
fn modes_and_power_have_their_known_bytes() {
    let sense = ModeSense {
        is_ten: true,
        page: 0x1c,
        subpage: 2,
        control: PageControl::Changeable,
        no_descriptor: true,
        long_descriptor: true,
        allocation_bytes: 512,
    };
    let decoded = decode::command(&cdb("5a 18 5c 02 000000 0200"));
    assert_eq!(decoded, Ok(Command::ModeSense(sense)));
    let stop = Command::StartStopUnit {
        start: false,
        load_or_eject: true,
        power_condition: 3,
        immediate: true,
    };
    assert_eq!(decode::command(&cdb("1b 01 0000 32")), Ok(stop));
}

#[test]
fn fields_that_are_not_served_are_pointed_at() {
    for (bytes, byte, bit) in [
        ("28 20 00000000 00 0001", 1, Some(7)),
        ("2a 80 00000000 00 0001", 1, Some(7)),
        ("2f 20 00000000 00 0001", 1, Some(7)),
        ("89 20", 1, Some(7)),
        ("2e 06 00000000 00 0001", 1, Some(2)),
        ("2f 04 00000000 00 0001", 1, Some(2)),
        ("41 10", 1, Some(4)),
        ("93 18", 1, Some(4)),
        ("41 02", 1, Some(2)),
        ("93 04", 1, Some(2)),
        ("42 01", 1, Some(0)),
        ("12 00 83 00ff", 2, None),
        ("12 02 00 00ff", 1, Some(1)),
        ("15 11 0000 18", 1, Some(0)),
        ("15 00 0000 18", 1, Some(4)),
        ("16 10", 1, Some(4)),
        ("17 01", 1, Some(0)),
        ("1d 20", 1, Some(7)),
        ("1d 10 00 0001", 3, None),
        ("5e 04", 1, Some(4)),
        ("5f 07", 1, Some(4)),
        ("9e 11", 1, Some(4)),
        ("9e 12 0000000000000000 00000018 01", 14, None),
        ("a0 00 03", 2, None),
        ("a3 05", 1, Some(4)),
        ("a3 4a", 1, Some(7)),
        ("a3 0c 04", 2, Some(2)),
        ("00 00 00 00 00 04", 5, Some(2)),
        ("28 00 00000000 00 0001 04", 9, Some(2)),
        ("a8 00 00000000 00000001 00 04", 11, Some(2)),
        ("88 00 0000000000000000 00000001 00 04", 15, Some(2)),
    ] {
        let refused = decode::command(&cdb(bytes));
        assert_eq!(refused, Err(Sense::cdb_field(byte, bit)), "{bytes}");
    }
}

/// WRITE ATOMIC is decoded, and is not listed before a server carries it out.
const NOT_LISTED: u8 = 0x9c;

#[test]
fn operations_that_are_not_served_are_unknown() {
    let unknown = Err(Sense::illegal(Code::INVALID_OPCODE));
    // FORMAT UNIT, PREVENT ALLOW, EXTENDED COPY, READ DEFECT DATA, WRITE LONG, SANITIZE, SECURITY
    // PROTOCOL IN and OUT, ATA PASS-THROUGH, SET TARGET PORT GROUPS, a variable length.
    for opcode in [0x04, 0x1e, 0x83, 0x37, 0xb7, 0x3f, 0x48, 0xa2, 0xb5, 0x85, 0xa1, 0xa4, 0x7f] {
        let mut bytes = [0; 16];
        bytes[0] = opcode;
        assert_eq!(decode::command(&bytes), unknown, "{opcode:#x}");
    }
    for opcode in 0..=0xff_u8 {
        let mut bytes = [0; 16];
        bytes[0] = opcode;
        let is_listed = COMMANDS.iter().any(|command| command.opcode == opcode);
        let is_known = is_listed || opcode == NOT_LISTED;
        assert_eq!(decode::command(&bytes) != unknown, is_known, "{opcode:#x}");
    }
}

#[test]
fn all_that_is_listed_is_served() {
    for pair in COMMANDS.windows(2) {
        let [first, second] = [pair[0], pair[1]].map(|c| (c.opcode, c.action));
        assert!(first < second, "in order: {first:?}");
    }
    for opcode in 0..=0xff_u8 {
        for action in 0..0x20_u8 {
            let mut bytes = [0; 16];
            bytes[..2].copy_from_slice(&[opcode, action]);
            let mut of = COMMANDS.iter().filter(|command| command.opcode == opcode);
            let is_listed = of.any(|command| command.action == Some(u16::from(action)));
            let is_plain = COMMANDS.iter().any(|c| c.opcode == opcode && c.action.is_none());
            if !is_plain && opcode != NOT_LISTED {
                assert_eq!(decode::command(&bytes).is_ok(), is_listed, "{opcode:#x} {action:#x}");
            }
        }
    }
}

fn supported(question: OpcodeQuestion, timeouts: bool) -> Result<Vec<u8>, Sense> {
    let mut out = Vec::new();
    supported_opcodes::put(question, timeouts, &mut out).map(|()| out)
}

#[test]
fn supported_operation_codes_have_their_known_bytes() {
    use OpcodeQuestion::{All, Either, Opcode, ServiceAction};
    let all = supported(All, false).expect("an answer");
    assert_eq!(all[..12], hex("000001b8 00 00 0000 00 00 0006"));
    assert_eq!(all.len(), 4 + 8 * COMMANDS.len());
    let all = supported(All, true).expect("an answer");
    assert_eq!(all.len(), 4 + 20 * COMMANDS.len());
    assert_eq!(all[4..24], hex("00 00 0000 00 02 0006 000a 0000 00000000 00000000"));
    let read = supported(Opcode(0x28), false);
    assert_eq!(read, Ok(hex("00 03 000a 28 f8 ffffffff 00 ffff 04")));
    let capacity = hex("00 83 0010 9e 10 0000000000000000 ffffffff 00 04
                        000a 0000 00000000 00000000");
    assert_eq!(supported(ServiceAction(0x9e, 0x10), true), Ok(capacity.clone()));
    assert_eq!(supported(Either(0x9e, 0x10), true), Ok(capacity));
    assert_eq!(supported(Either(0x28, 0), false), supported(Opcode(0x28), false));
    let none = Ok(hex("00 01 0000"));
    assert_eq!(supported(Opcode(0x04), false), none);
    assert_eq!(supported(ServiceAction(0x04, 1), true), none);
    assert_eq!(supported(ServiceAction(0x9e, 0x11), false), none);
    assert_eq!(supported(Either(0x28, 1), false), none);
    let refused = Err(Sense::cdb_field(2, Some(2)));
    assert_eq!(supported(Opcode(0x9e), false), refused);
    assert_eq!(supported(ServiceAction(0x28, 0), false), refused);
}

#[test]
fn each_command_moves_what_its_cdb_says() {
    for (bytes, movement) in [
        ("00", Movement::None),
        ("08 000000 00", Movement::In(256 * 512)),
        ("28 00 00000000 00 0000", Movement::In(0)),
        ("8a 00 0000000000000000 ffffffff", Movement::Out(0xffff_ffff * 512)),
        ("89 00 0000000000000000 000000 02", Movement::Out(2 * 2 * 512)),
        ("2f 00 00000000 00 0008", Movement::None),
        ("2f 02 00000000 00 0008", Movement::Out(8 * 512)),
        ("2f 06 00000000 00 0008", Movement::Out(512)),
        ("2f 06 00000000 00 0000", Movement::Out(0)),
        ("93 00 0000000000000000 00000008", Movement::Out(512)),
        ("93 01 0000000000000000 00000008", Movement::None),
        ("42 00 00000000 00 0018", Movement::Out(24)),
        ("12 00 00 00ff", Movement::InAtMost(255)),
        ("25", Movement::InAtMost(8)),
    ] {
        let command = decode::command(&cdb(bytes)).expect(bytes);
        assert_eq!(command.movement(512), movement, "{bytes}");
    }
}

fn any_range() -> impl Strategy<Value = Range> {
    let lba = prop_oneof![0..1_u64 << 21, 0..1_u64 << 32, any::<u64>()];
    let blocks = prop_oneof![0..=256_u32, 0..=0xffff_u32, any::<u32>()];
    (lba, blocks).prop_map(|(lba, blocks)| Range { lba, blocks })
}

fn any_form() -> impl Strategy<Value = Form> {
    prop_oneof![Just(Form::Six), Just(Form::Ten), Just(Form::Twelve), Just(Form::Sixteen)]
}

fn any_check() -> impl Strategy<Value = ByteCheck> {
    prop_oneof![Just(ByteCheck::Medium), Just(ByteCheck::Blocks), Just(ByteCheck::OneBlock)]
}

fn any_transferring() -> impl Strategy<Value = Command> {
    let bits = any::<[bool; 3]>();
    (0..10_u8, any_range(), bits, any_check(), any::<u16>()).prop_map(
        |(which, range, [first, second, third], check, short)| {
            let transfer = Transfer { range, fua: first, dpo: second };
            let two = if third { ByteCheck::Blocks } else { ByteCheck::Medium };
            match which {
                0 => Command::Read(transfer),
                1 => Command::Write(transfer),
                2 => Command::OrWrite(transfer),
                3 => Command::WriteAndVerify { range, dpo: first, check: two },
                4 => Command::Verify { range, dpo: first, check },
                5 => Command::Prefetch { range, immediate: first },
                6 => Command::SynchronizeCache { range, immediate: first },
                7 => Command::WriteSame { range, unmap: first, no_data: second },
                8 => Command::CompareAndWrite(transfer),
                _ => Command::WriteAtomic { transfer, boundary_blocks: short },
            }
        },
    )
}

fn any_question() -> impl Strategy<Value = OpcodeQuestion> {
    prop_oneof![
        Just(OpcodeQuestion::All),
        any::<u8>().prop_map(OpcodeQuestion::Opcode),
        any::<(u8, u16)>().prop_map(|(code, action)| OpcodeQuestion::ServiceAction(code, action)),
        any::<(u8, u16)>().prop_map(|(code, action)| OpcodeQuestion::Either(code, action)),
    ]
}

fn any_other() -> impl Strategy<Value = Command> {
    let numbers = (any::<u64>(), prop_oneof![0..256_u32, 0..65536_u32, any::<u32>()]);
    let bytes = (option::of(any::<u8>()), any::<[u8; 2]>());
    (0..20_u8, numbers, bytes, any::<[bool; 4]>(), any_question()).prop_map(
        |(which, (lba, count), (page, [byte, other]), [first, second, third, fourth], question)| {
            let allocation_bytes = count;
            let list_bytes = count;
            match which {
                0 => Command::TestUnitReady,
                1 => Command::RequestSense { descriptor: first, allocation_bytes },
                2 => Command::Inquiry { page, allocation_bytes },
                3 => Command::ReadCapacity10,
                4 => Command::ReadCapacity16 { allocation_bytes },
                5 => Command::Unmap { list_bytes },
                6 => Command::GetLbaStatus { lba, allocation_bytes },
                7 => Command::ModeSense(ModeSense {
                    is_ten: first,
                    page: byte & 0x3f,
                    subpage: other,
                    control: [PageControl::Current, PageControl::Saved][usize::from(fourth)],
                    no_descriptor: second,
                    long_descriptor: first && third,
                    allocation_bytes,
                }),
                8 => Command::ModeSelect { is_ten: first, list_bytes },
                9 => Command::StartStopUnit {
                    start: first,
                    load_or_eject: second,
                    power_condition: byte & 0xf,
                    immediate: third,
                },
                10 => Command::Reserve,
                11 => Command::Release,
                12 => Command::PersistentReserveIn {
                    action: InAction::from_number(byte & 3).expect("four actions"),
                    allocation_bytes,
                },
                13 => Command::PersistentReserveOut {
                    action: OutAction::from_number(byte % 7).expect("seven actions"),
                    kind: ReservationType::from_number(other & 0xf),
                    list_bytes,
                },
                18 => Command::LogSense {
                    page: (byte & 0x3f, other),
                    first: (lba & 0xffff) as u16,
                    allocation_bytes,
                },
                14 => Command::ReportLuns { select: byte % 3, allocation_bytes },
                15 => Command::ReportTargetPortGroups { extended: first, allocation_bytes },
                16 => {
                    Command::ReportSupportedOpcodes { question, timeouts: first, allocation_bytes }
                }
                17 => Command::ReportSupportedFunctions { extended: first, allocation_bytes },
                _ => Command::SendDiagnostic { self_test: first },
            }
        },
    )
}

proptest! {
    #[test]
    fn commands_survive_the_wire(
        command in prop_oneof![any_transferring(), any_other()],
        form in any_form(),
    ) {
        if let Some(cdb) = encode::command(&command, form) {
            prop_assert_eq!(decode::command(&cdb), Ok(command));
            prop_assert!(cdb[cdb_bytes(cdb[0])..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn random_cdbs_are_decoded_or_refused(cdb in any::<[u8; 16]>()) {
        if let Ok(command) = decode::command(&cdb) {
            let _ = (command.range(), command.writes(), command.movement(4096));
            let forms = [Form::Six, Form::Ten, Form::Twelve, Form::Sixteen];
            let again = forms.map(|form| encode::command(&command, form));
            prop_assert!(again.iter().any(Option::is_some));
            for cdb in again.into_iter().flatten() {
                prop_assert_eq!(decode::command(&cdb), Ok(command));
            }
        }
    }
}
