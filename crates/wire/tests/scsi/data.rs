//! Sense data, parameter lists, and the answers that are no pages.

use hindsight_wire as wire;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use proptest::{collection, option};
use wire::scsi::capacity::Capacity;
use wire::scsi::lba_status::{self, LbaStatus, Provisioning};
use wire::scsi::reservations::{self, Held, OutList, Registration, ReservationType};
use wire::scsi::unmap::{self, DESCRIPTORS_MAX, Descriptor};
use wire::scsi::{Code, Lun, Pointer, Sense, SenseKey, ports, report_luns};

use crate::hex;

fn encoded(sense: &Sense, descriptor: bool) -> Vec<u8> {
    let mut out = Vec::new();
    sense.encode(descriptor, &mut out);
    out
}

#[test]
fn sense_data_has_its_known_bytes() {
    let field = Sense::cdb_field(1, Some(7));
    assert_eq!(encoded(&field, false), hex("70 00 05 00000000 0a 00000000 24 00 00 cf0001"));
    assert_eq!(encoded(&field, true), hex("72 05 24 00 000000 08 0206 0000 cf0001 00"));
    let differs = Sense::new(SenseKey::MISCOMPARE, Code::MISCOMPARE).with_information(0x201);
    assert_eq!(encoded(&differs, false), hex("f0 00 0e 00000201 0a 00000000 1d 00 00 000000"));
    assert_eq!(encoded(&differs, true), hex("72 0e 1d 00 000000 0c 000a 80 00 0000000000000201"));
    let parameter = Sense::parameter(20, Some(3));
    assert_eq!(encoded(&parameter, false)[15..], hex("8b0014"));
    let far = Sense::lba_out_of_range(1 << 32);
    assert_eq!(encoded(&far, false)[..7], hex("70 00 05 00000000"), "no room for so much");
    assert_eq!(Sense::decode(&encoded(&far, true)), Some(far));
}

#[test]
fn sense_data_that_is_cut_short_is_none() {
    let sense = Sense::cdb_field(300, None).with_information(7);
    for descriptor in [false, true] {
        let bytes = encoded(&sense, descriptor);
        assert_eq!(Sense::decode(&bytes), Some(sense));
        for end in 0..bytes.len() {
            assert_eq!(Sense::decode(&bytes[..end]), None, "{end}");
        }
    }
    assert_eq!(Sense::decode(&[0x7f; 18]), None);
}

#[test]
fn unit_numbers_are_peripheral_then_flat() {
    assert_eq!(Lun::from_number(1), Lun(0x0001_0000_0000_0000));
    assert_eq!(Lun::from_number(255), Lun(0x00ff_0000_0000_0000));
    assert_eq!(Lun::from_number(256), Lun(0x4100_0000_0000_0000));
    for number in 0..1 << 14 {
        assert_eq!(Lun::from_number(number).number(), Some(number));
    }
    // A flat address may be a small number too.
    assert_eq!(Lun(0x4001_0000_0000_0000).number(), Some(1));
    for other in [Lun::REPORT_LUNS, Lun(0x0100_0000_0000_0000), Lun(0x0000_0001_0000_0000)] {
        assert_eq!(other.number(), None);
    }
}

#[test]
fn unmap_takes_whole_lists_only() {
    let wanted = [Descriptor { lba: 8, blocks: 16 }, Descriptor { lba: 1 << 40, blocks: 0 }];
    let mut list = Vec::new();
    unmap::put_list(&wanted, &mut list);
    assert_eq!(
        list,
        hex("0026 0020 00000000 0000000000000008 00000010 00000000
             0000010000000000 00000000 00000000")
    );
    assert_eq!(unmap::descriptors(&list), Ok(wanted.to_vec()));
    assert_eq!(unmap::descriptors(&[]), Ok(vec![]));
    for end in 1..list.len() {
        let refused = unmap::descriptors(&list[..end]);
        assert_eq!(refused, Err(Sense::illegal(Code::PARAMETER_LIST_LENGTH)), "{end}");
    }
    list[3] = 0x1f;
    assert_eq!(unmap::descriptors(&list), Ok(wanted[..1].to_vec()), "one that is not whole");
    for (count, is_taken) in [(DESCRIPTORS_MAX, true), (DESCRIPTORS_MAX + 1, false)] {
        let mut list = Vec::new();
        unmap::put_list(&vec![wanted[0]; count], &mut list);
        assert_eq!(unmap::descriptors(&list).is_ok(), is_taken);
    }
}

#[test]
fn capacities_have_their_known_bytes() {
    let mut capacity =
        Capacity { blocks: 1 << 21, block_bytes: 512, physical_exponent: 3, is_thin: true };
    assert_eq!(capacity.short().to_vec(), hex("001fffff 00000200"));
    let mut long = hex("00000000001fffff 00000200 00 03 c000");
    long.resize(32, 0);
    assert_eq!(capacity.long().to_vec(), long);
    capacity.blocks = 1 << 32;
    assert_eq!(capacity.short()[..4], [0xff; 4], "the last that fits");
    capacity.blocks += 1;
    assert_eq!(capacity.short()[..4], [0xff; 4], "it does not fit");
    assert_eq!(Capacity::decode_long(&capacity.long()), Some(capacity));
    assert_eq!(Capacity::decode_long(&capacity.long()[..31]), None);
    assert_eq!(Capacity::decode_long(&[0xff; 32]), None);
}

#[test]
fn units_are_listed() {
    let units = [Lun::from_number(0), Lun::from_number(300)];
    let mut answer = Vec::new();
    report_luns::put(&units, &mut answer);
    assert_eq!(answer, hex("00000010 00000000 0000000000000000 412c000000000000"));
    assert_eq!(report_luns::decode(&answer), Some(units.to_vec()));
    for end in 0..answer.len() {
        assert_eq!(report_luns::decode(&answer[..end]), None);
    }
}

#[test]
fn statuses_of_blocks_are_listed() {
    let statuses = [
        LbaStatus { lba: 0, blocks: 8, provisioning: Provisioning::Mapped },
        LbaStatus { lba: 8, blocks: 80, provisioning: Provisioning::Deallocated },
    ];
    let mut answer = Vec::new();
    lba_status::put(&statuses, &mut answer);
    assert_eq!(
        answer,
        hex("00000024 00000000 0000000000000000 00000008 00 00 0000
             0000000000000008 00000050 01 00 0000")
    );
    assert_eq!(lba_status::decode(&answer), Some(statuses.to_vec()));
    for end in 0..answer.len() {
        assert_eq!(lba_status::decode(&answer[..end]), None);
    }
    let room = [0, 23, 24, 39, 40].map(lba_status::descriptors_within);
    assert_eq!(room, [1, 1, 1, 1, 2]);
}

#[test]
fn ports_and_functions_have_their_known_bytes() {
    let mut answer = Vec::new();
    ports::put_groups(1, 2, false, &mut answer);
    assert_eq!(answer, hex("0000000c 00 01 0001 00 00 00 01 0000 0002"));
    answer.clear();
    ports::put_groups(1, 2, true, &mut answer);
    assert_eq!(answer, hex("00000010 10 00 0000 00 01 0001 00 00 00 01 0000 0002"));
    answer.clear();
    ports::put_functions(false, &mut answer);
    assert_eq!(answer, hex("da 00 00 00"));
    answer.clear();
    ports::put_functions(true, &mut answer);
    assert_eq!(answer, hex("da 00 00 0c 000000000000000000000000"));
}

#[test]
fn reservation_lists_are_checked() {
    const LENGTH: Sense = Sense::illegal(Code::PARAMETER_LIST_LENGTH);
    let list =
        OutList { key: 1, action_key: 0x0102_0304_0506_0708, all_ports: true, persists: true };
    let mut bytes = list.encode();
    assert_eq!(bytes.to_vec(), hex("0000000000000001 0102030405060708 00000000 05 00 0000"));
    assert_eq!(OutList::decode(24, &bytes), Ok(list));
    for end in 0..24 {
        assert_eq!(OutList::decode(24, &bytes[..end]), Err(LENGTH));
    }
    assert_eq!(OutList::decode(23, &bytes), Err(LENGTH));
    assert_eq!(OutList::decode(25, &bytes), Err(LENGTH));
    bytes[20] |= 8;
    assert_eq!(OutList::decode(24, &bytes), Err(Sense::parameter(20, Some(3))));
}

#[test]
fn reservations_have_their_known_bytes() {
    let mut answer = Vec::new();
    reservations::put_keys(7, &[1, 2], &mut answer);
    assert_eq!(answer, hex("00000007 00000010 0000000000000001 0000000000000002"));
    assert_eq!(reservations::keys(&answer), Some((7, vec![1, 2])));
    for end in 0..answer.len() {
        assert_eq!(reservations::keys(&answer[..end]), None);
    }
    answer.clear();
    let held = Held { key: 1, kind: ReservationType::ExclusiveAccessRegistrants };
    reservations::put_reservation(7, Some(held), &mut answer);
    assert_eq!(answer, hex("00000007 00000010 0000000000000001 00000000 00 06 0000"));
    assert_eq!(reservations::reservation(&answer), Some((7, Some(held))));
    for end in 0..answer.len() {
        assert_eq!(reservations::reservation(&answer[..end]), None);
    }
    answer.clear();
    reservations::put_reservation(7, None, &mut answer);
    assert_eq!(answer, hex("00000007 00000000"));
    assert_eq!(reservations::reservation(&answer), Some((7, None)));
    answer.clear();
    reservations::put_capabilities(false, false, &mut answer);
    assert_eq!(answer, hex("0008 04 80 ea01 0000"));
    answer.clear();
    reservations::put_capabilities(true, true, &mut answer);
    assert_eq!(answer, hex("0008 05 81 ea01 0000"));
}

#[test]
fn full_status_names_the_initiators_port() {
    let registration = Registration {
        key: 9,
        all_ports: true,
        holds: Some(ReservationType::WriteExclusive),
        port: 1,
        initiator: "iqn.a",
        isid: [0x80, 0, 0, 1, 2, 0xab],
    };
    let mut answer = Vec::new();
    reservations::put_full_status(3, &[registration], &mut answer);
    let mut expected = hex("00000003 00000034 0000000000000009 00000000 03 01 00000000 0001
                            0000001c 45 00 0018");
    expected.extend_from_slice(b"iqn.a,i,0x8000000102ab\0\0");
    assert_eq!(answer.len(), 8 + 0x34);
    assert_eq!(answer, expected);
    answer.clear();
    reservations::put_transport_id("a", [0; 6], &mut answer);
    assert_eq!((answer.len(), answer[3]), (24, 20), "20 bytes at least");
}

#[test]
fn types_of_reservations_know_their_rules() {
    for number in 0..=0xff {
        let kind = ReservationType::from_number(number);
        assert_eq!(kind.is_some(), [1, 3, 5, 6, 7, 8].contains(&number));
        if let Some(kind) = kind {
            assert_eq!(kind.number(), number);
            assert_eq!(kind.lets_others_read(), [1, 5, 7].contains(&number));
            assert_eq!(kind.is_for_registrants(), number >= 5);
            assert_eq!(kind.is_of_all(), number >= 7);
        }
    }
}

proptest! {
    #[test]
    fn sense_data_survives_the_wire(
        key in 0..16_u8,
        code in any::<(u8, u8)>(),
        information in option::of(any::<u64>()),
        pointer in option::of((any::<bool>(), any::<u16>(), option::of(0..8_u8))),
        descriptor in any::<bool>(),
    ) {
        let pointer = pointer.map(|(in_cdb, byte, bit)| Pointer { in_cdb, byte, bit });
        let code = Code(code.0, code.1);
        let mut sense = Sense { key: SenseKey(key), code, information, pointer };
        let decoded = Sense::decode(&encoded(&sense, descriptor));
        if !descriptor {
            sense.information = information.filter(|number| u32::try_from(*number).is_ok());
        }
        prop_assert_eq!(decoded, Some(sense));
    }

    #[test]
    fn random_data_is_read_or_refused(
        start in collection::vec(any::<u8>(), 0..4),
        bytes in collection::vec(any::<u8>(), 0..100),
    ) {
        let _ = Sense::decode(&bytes);
        let _ = OutList::decode(24, &bytes);
        let _ = (reservations::keys(&bytes), reservations::reservation(&bytes));
        let _ = (report_luns::decode(&bytes), lba_status::decode(&bytes));
        // A small count before it, so that some lists are whole.
        let mut list = vec![0, 0, 0];
        list.extend(start.iter().map(|byte| byte % 70));
        list.extend_from_slice(&bytes);
        if let Ok(descriptors) = unmap::descriptors(&list) {
            prop_assert!(8 + 16 * descriptors.len() <= list.len());
        }
    }

    #[test]
    fn unmap_lists_survive_the_wire(
        descriptors in collection::vec(any::<(u64, u32)>(), 1..20),
    ) {
        let of = |(lba, blocks)| Descriptor { lba, blocks };
        let descriptors: Vec<Descriptor> = descriptors.into_iter().map(of).collect();
        let mut list = Vec::new();
        unmap::put_list(&descriptors, &mut list);
        prop_assert_eq!(unmap::descriptors(&list), Ok(descriptors));
    }
}
