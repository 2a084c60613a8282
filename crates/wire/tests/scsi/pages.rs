//! INQUIRY data and vital product data.

use hindsight_wire as wire;
use wire::scsi::inquiry;
use wire::scsi::vpd::{self, BlockLimits, Traits};
use wire::scsi::{Identity, Sense};

use crate::hex;

fn identity() -> Identity {
    Identity {
        vendor: "HNDSIGHT".to_owned(),
        product: "VOLUME".to_owned(),
        revision: "0.1".to_owned(),
        serial: "5f0a1b2c00000001".to_owned(),
        naa: 0xf123_4567_89ab_cdef,
        target: "iqn.x:pg".to_owned(),
        port: 1,
        port_group: 2,
    }
}

fn traits() -> Traits {
    Traits {
        limits: BlockLimits {
            refuses_write_same_of_none: true,
            compare_and_write_max: 255,
            transfer_granularity: 8,
            transfer_max: 0x8000,
            transfer_optimal: 0x800,
            prefetch_max: 0,
            unmap_blocks_max: 0x80_0000,
            unmap_descriptors_max: 256,
            unmap_granularity: 8,
            unmap_alignment: Some(0),
            write_same_max: 0x8_0000,
            atomic_max: 512,
            atomic_alignment: 8,
            atomic_granularity: 8,
            atomic_max_with_boundary: 0,
            atomic_boundary_max: 0,
        },
        has_volatile_cache: true,
        is_thin: true,
        threshold_exponent: 11,
    }
}

fn page(number: u8) -> Vec<u8> {
    let mut out = Vec::new();
    vpd::put_page(number, &identity(), &traits(), &mut out).expect("a page that there is");
    out
}

/// The bytes of `start`, and zeros up to `length`.
fn padded(start: &str, length: usize) -> Vec<u8> {
    let mut bytes = hex(start);
    bytes.resize(length, 0);
    bytes
}

#[test]
fn standard_data_has_its_known_bytes() {
    let mut out = Vec::new();
    inquiry::put_standard(&identity(), true, &mut out);
    assert_eq!(out[..8], hex("00 00 06 12 5b 10 00 02"));
    assert_eq!(&out[8..36], b"HNDSIGHTVOLUME          0.1 ");
    assert_eq!(out[36..58], [0; 22]);
    assert_eq!(out[58..], padded("00a0 0460 04c0 0960", 38));
    assert_eq!(out.len(), inquiry::STANDARD_BYTES);
    let mut none = Vec::new();
    inquiry::put_standard(&identity(), false, &mut none);
    assert_eq!((none[0], &none[1..]), (0x7f, &out[1..]));
}

#[test]
fn what_does_not_fit_is_cut() {
    let mut out = Vec::new();
    let long = Identity { product: "P\u{e9}".repeat(20), ..identity() };
    inquiry::put_standard(&long, true, &mut out);
    assert_eq!(&out[16..32], b"P  P  P  P  P  P");
    assert_eq!(out.len(), inquiry::STANDARD_BYTES);
    let long = Identity { serial: "s".repeat(400), ..identity() };
    for number in vpd::PAGES {
        let mut out = Vec::new();
        assert_eq!(vpd::put_page(number, &long, &traits(), &mut out), Ok(()));
    }
}

#[test]
fn pages_are_sorted_and_there() {
    assert!(vpd::PAGES.is_sorted());
    assert_eq!(page(0x00), hex("00 00 0009 00 80 83 86 87 88 b0 b1 b2"));
    for number in 0..=0xff {
        let mut out = vec![7];
        let put = vpd::put_page(number, &identity(), &traits(), &mut out);
        if vpd::PAGES.contains(&number) {
            assert_eq!((put, out[2]), (Ok(()), number));
            let length = usize::from(u16::from_be_bytes([out[3], out[4]]));
            assert_eq!(out.len(), 1 + 4 + length);
        } else {
            assert_eq!((put, out), (Err(Sense::cdb_field(2, None)), vec![7]));
        }
    }
}

#[test]
fn identities_have_their_known_bytes() {
    let mut serial = hex("00 80 0010");
    serial.extend_from_slice(b"5f0a1b2c00000001");
    assert_eq!(page(0x80), serial);

    let mut expected = hex("00 83 0062 02 01 00 18");
    expected.extend_from_slice(b"HNDSIGHT5f0a1b2c00000001");
    expected.extend_from_slice(&hex("01 03 00 08 3123456789abcdef"));
    expected.extend_from_slice(&hex("51 94 00 04 00000001"));
    expected.extend_from_slice(&hex("51 95 00 04 00000002"));
    expected.extend_from_slice(&hex("53 a8 00 0c"));
    expected.extend_from_slice(b"iqn.x:pg\0\0\0\0");
    let mut port = hex("53 98 00 14");
    port.extend_from_slice(b"iqn.x:pg,t,0x0002\0\0\0");
    expected.extend_from_slice(&port);
    expected[3] = u8::try_from(expected.len() - 4).expect("short");
    assert_eq!(page(0x83), expected);

    let mut expected = hex("00 88 0024 0000 0001 0000 0000 0000 0018");
    expected.extend_from_slice(&port);
    assert_eq!(page(0x88), expected);
}

#[test]
fn the_longest_names_fit_their_designators() {
    let longest = Identity { target: "n".repeat(223), ..identity() };
    for number in [0x83, 0x88] {
        let mut out = Vec::new();
        assert_eq!(vpd::put_page(number, &longest, &traits(), &mut out), Ok(()));
    }
}

#[test]
fn abilities_have_their_known_bytes() {
    assert_eq!(page(0x86), padded("00 86 003c 00 07 01", 64));
    assert_eq!(page(0x87), hex("00 87 0004 3f ff 00 00"));
    assert_eq!(
        page(0xb0),
        hex("00 b0 003c 01 ff 0008 00008000 00000800 00000000 00800000 00000100 00000008
             80000000 0000000000080000 00000200 00000008 00000008 00000000 00000000")
    );
    assert_eq!(page(0xb1), padded("00 b1 003c 0001", 64));
    assert_eq!(page(0xb2), hex("00 b2 0004 0b e4 02 00"));
    let thick = Traits { is_thin: false, has_volatile_cache: false, ..traits() };
    let mut out = Vec::new();
    vpd::put_page(0xb2, &identity(), &thick, &mut out).expect("a page");
    assert_eq!(out, hex("00 b2 0004 0b 00 00 00"));
}
