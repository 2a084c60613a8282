//! Texts, CHAP and names.

use hindsight_wire as wire;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use proptest::{collection, option};
use wire::iscsi::chap::{self, Algorithm, Challenge};
use wire::iscsi::limits::{BINARY_BYTES_MAX, NAME_BYTES_MAX, PAIRS_MAX, TEXT_BYTES_MAX};
use wire::iscsi::names::{self, NameError, TargetName};
use wire::iscsi::text::{self, Pair, SendTargets, TextError};

#[test]
fn texts_are_pairs_ended_by_zeros() {
    let parsed = text::parse(b"A=1\0B=\0C=x=y\0\0").expect("a text");
    let pair = |key, value| Pair { key, value };
    assert_eq!(parsed, [pair("A", "1"), pair("B", ""), pair("C", "x=y")]);
    assert_eq!(text::value(&parsed, "C"), Some("x=y"));
    assert_eq!(text::value(&parsed, "D"), None);
    assert_eq!(text::parse(b""), Ok(vec![]));
    assert_eq!(text::parse(b"A=1"), Ok(vec![pair("A", "1")]), "the last zero may be padding");
    for bad in [&b"A\0"[..], b"=1\0", b"A=1\0A=2\0", b"A B=1\0", b"\xff=1\0"] {
        assert!(matches!(text::parse(bad), Err(TextError::Malformed(_))), "{bad:?}");
    }
}

#[test]
fn limits_of_texts_hold_exactly() {
    let many = |count: usize| -> Vec<u8> {
        (0..count).flat_map(|index| format!("K{index}=v\0").into_bytes()).collect()
    };
    assert_eq!(text::parse(&many(PAIRS_MAX)).map(|pairs| pairs.len()), Ok(PAIRS_MAX));
    assert!(matches!(text::parse(&many(PAIRS_MAX + 1)), Err(TextError::TooLong(_))));
    let key = |count: usize| format!("{}=v", "k".repeat(count)).into_bytes();
    assert!(text::parse(&key(63)).is_ok());
    assert!(matches!(text::parse(&key(64)), Err(TextError::TooLong(_))));
    let value = |count: usize| format!("k={}", "v".repeat(count)).into_bytes();
    assert!(text::parse(&value(8192)).is_ok());
    assert!(matches!(text::parse(&value(8193)), Err(TextError::TooLong(_))));
    assert!(text::parse(&vec![0; TEXT_BYTES_MAX]).is_ok());
    assert!(matches!(text::parse(&vec![0; TEXT_BYTES_MAX + 1]), Err(TextError::TooLong(_))));
}

#[test]
fn numbers_are_decimal_or_hexadecimal() {
    for (value, number) in [("0", 0), ("262144", 262_144), ("0x40000", 262_144), ("0XfF", 255)] {
        assert_eq!(text::number(value), Some(number));
    }
    for bad in ["", "0x", "+1", "-1", " 1", "1k", "0x-1", "18446744073709551616"] {
        assert_eq!(text::number(bad), None, "{bad}");
    }
    assert_eq!(text::boolean("Yes"), Some(true));
    assert_eq!(text::boolean("No"), Some(false));
    assert_eq!(text::boolean("yes"), None);
}

#[test]
fn binary_values_are_hexadecimal_or_base64() {
    for (value, bytes) in [
        ("0x4d616e", b"Man".as_slice()),
        ("0X4D616E", b"Man"),
        ("0x00ff", &[0, 0xff]),
        ("0xfff", &[0x0f, 0xff]),
        ("0bTWFu", b"Man"),
        ("0BTWE=", b"Ma"),
        ("0bTQ==", b"M"),
        ("0bTWE", b"Ma"),
        ("0b+/+/", &[0xfb, 0xff, 0xbf]),
    ] {
        assert_eq!(text::binary(value).as_deref(), Some(bytes), "{value}");
    }
    for bad in ["", "0", "0x", "0b", "4d", "0xgg", "0bT", "0bTW=u", "0bTWFu=", "0bT===", "\u{e9}"] {
        assert_eq!(text::binary(bad), None, "{bad}");
    }
    let longest = format!("0x{}", "ab".repeat(BINARY_BYTES_MAX));
    assert_eq!(text::binary(&longest).map(|bytes| bytes.len()), Some(BINARY_BYTES_MAX));
    assert_eq!(text::binary(&format!("{longest}ab")), None);
    assert_eq!(text::binary(&format!("0b{}", "A".repeat(BINARY_BYTES_MAX * 2))), None);
}

#[test]
fn targets_are_listed_with_their_portals() {
    let mut out = Vec::new();
    text::put_target("iqn.2026-11.x:a", &[("192.0.2.1:3260", 1), ("[::1]:3260", 1)], &mut out);
    let said = "TargetName=iqn.2026-11.x:a\0TargetAddress=192.0.2.1:3260,1\0\
                TargetAddress=[::1]:3260,1\0";
    assert_eq!(out, said.as_bytes());
    assert_eq!(SendTargets::of("All"), SendTargets::All);
    assert_eq!(SendTargets::of(""), SendTargets::This);
    assert_eq!(SendTargets::of("iqn.x"), SendTargets::Named("iqn.x"));
}

#[test]
fn chap_goes_through_its_steps() {
    let offer = text::parse(b"CHAP_A=8,7,5\0").expect("a text");
    let chosen = chap::choose(&offer, &[Algorithm::Md5, Algorithm::Sha256]);
    assert_eq!(chosen, Ok(Algorithm::Sha256), "the initiator's order decides");
    assert!(chap::choose(&offer, &[Algorithm::Sha1]).is_err());
    assert!(chap::choose(&[], &[Algorithm::Md5]).is_err());

    let challenge = Challenge { identifier: 0xa7, bytes: vec![0, 0x12, 0xff] };
    let mut out = Vec::new();
    chap::put_challenge(Algorithm::Md5, &challenge, &mut out);
    assert_eq!(out, b"CHAP_A=5\0CHAP_I=167\0CHAP_C=0x0012ff\0");
    let pairs = text::parse(&out).expect("a text");
    assert_eq!(chap::challenge(&pairs), Ok(Some(challenge.clone())));

    let mut out = Vec::new();
    chap::put_response("bob", &[9; 16], &mut out);
    let pairs = text::parse(&out).expect("a text");
    let answer = chap::answer(&pairs).expect("an answer");
    assert_eq!((answer.name, answer.response, answer.challenge), ("bob", vec![9; 16], None));

    chap::put_own_challenge(&challenge, &mut out);
    let pairs = text::parse(&out).expect("a text");
    let answer = chap::answer(&pairs).expect("an answer");
    assert_eq!(answer.challenge, Some(challenge));

    for bad in [
        &b"CHAP_N=bob\0"[..],
        b"CHAP_R=0x00\0",
        b"CHAP_N=bob\0CHAP_R=hello\0",
        b"CHAP_N=bob\0CHAP_R=0x00\0CHAP_I=1\0",
        b"CHAP_N=bob\0CHAP_R=0x00\0CHAP_I=256\0CHAP_C=0x00\0",
        b"CHAP_N=bob\0CHAP_R=0x00\0CHAP_I=1\0CHAP_C=0x\0",
    ] {
        assert!(chap::answer(&text::parse(bad).expect("a text")).is_err(), "{bad:?}");
    }
}

const BASE: &str = "iqn.2026-11.local.hindsight.5f0a1b2c";

#[test]
fn names_lead_back_to_a_volume_and_a_moment() {
    for (volume, moment, name) in [
        ("pg", None, ":pg"),
        ("Pg_Data", None, "::1pg:0:1data"),
        ("pg", Some("seq:12345"), ":pg:at:seq:12345"),
        ("pg", Some("2026-11-21t10:00:00.25z"), ":pg:at:2026-11-21t10:00:00.25z"),
        ("pg", Some("-5min"), ":pg:at:-5min"),
        ("at", Some("v:3"), ":at:at:v:3"),
        ("a_t", Some("mark:Before_up.1"), ":a:0t:at:mark::1before:0up.1"),
        ("pg", Some("latest"), ":pg:at:latest"),
    ] {
        let full = format!("{BASE}{name}");
        assert_eq!(names::join(BASE, volume, moment), Some(full.clone()));
        let split = names::split(BASE, &full).expect("one of our names");
        assert_eq!((split.volume.as_str(), split.moment.as_deref()), (volume, moment));
        assert_eq!(names::fold(&full), Ok(full));
    }
    let upper = names::join(BASE, "pg", Some("2026-11-21T10:00:00Z")).expect("a name");
    assert!(upper.ends_with(":at:2026-11-21t10:00:00z"));
}

#[test]
fn other_names_lead_nowhere() {
    for other in [
        "",
        ":",
        ":pg:",
        ":pg:at:",
        ":pg:at",
        ":pg:x",
        ":pg:1",
        ":pg:1A",
        ":pg:2",
        ":Pg",
        ":pg_a",
        ":pg:at:mark:a:b",
    ] {
        assert_eq!(names::split(BASE, &format!("{BASE}{other}")), None, "{other}");
    }
    assert_eq!(names::split(BASE, "iqn.2026-11.local.other:pg"), None);
    assert_eq!(names::join(BASE, "", None), None);
    assert_eq!(names::join(BASE, "a b", None), None);
    assert_eq!(names::join(BASE, "pg", Some("10:00+01:00")), None);
}

#[test]
fn names_are_folded_and_checked() {
    let folded = names::fold("IQN.2026-11.Local.Host:A");
    assert_eq!(folded.as_deref(), Ok("iqn.2026-11.local.host:a"));
    for name in ["eui.02004567A425678D", "naa.52004567BA64678D", "iqn.1993-08.org.debian:01:6a"] {
        assert!(names::fold(name).is_ok(), "{name}");
    }
    for (name, error) in [
        ("iqn.", NameError::Form),
        ("host", NameError::Form),
        ("eui.02004567A425678", NameError::Form),
        ("naa.52004567BA64678DX", NameError::Form),
        ("iqn.a_b", NameError::Character),
        ("iqn.a b", NameError::Character),
    ] {
        assert_eq!(names::fold(name), Err(error), "{name}");
    }
    let longest = format!("iqn.{}", "a".repeat(NAME_BYTES_MAX - 4));
    assert!(names::fold(&longest).is_ok());
    assert_eq!(names::fold(&format!("{longest}a")), Err(NameError::TooLong));
    let fits = "v".repeat(NAME_BYTES_MAX - BASE.len() - 1);
    assert!(names::join(BASE, &fits, None).is_some());
    assert_eq!(names::join(BASE, &format!("{fits}v"), None), None);
}

#[test]
fn initiators_may_break_the_rules_of_names() {
    let folded = names::fold_initiator("iqn.1993-08.org.debian:01:My_Host");
    assert_eq!(folded.as_deref(), Ok("iqn.1993-08.org.debian:01:my_host"));
    assert!(names::fold_initiator(&"a".repeat(NAME_BYTES_MAX)).is_ok());
    for (name, error) in [
        (String::new(), NameError::Form),
        ("a".repeat(NAME_BYTES_MAX + 1), NameError::TooLong),
        ("iqn.a b".to_owned(), NameError::Character),
        ("iqn.a,i,0x00".to_owned(), NameError::Character),
        ("iqn.a\n".to_owned(), NameError::Character),
    ] {
        assert_eq!(names::fold_initiator(&name), Err(error), "{name}");
    }
}

proptest! {
    #[test]
    fn texts_survive_the_wire(
        pairs in collection::btree_map("[A-Za-z0-9.+@_-]{1,63}", "[^\0]{0,100}", 0..9),
    ) {
        let mut out = Vec::new();
        for (key, value) in &pairs {
            text::put(key, value, &mut out);
        }
        let parsed = text::parse(&out).expect("a text");
        prop_assert_eq!(parsed.len(), pairs.len());
        for pair in parsed {
            prop_assert_eq!(pairs.get(pair.key).map(String::as_str), Some(pair.value));
        }
    }

    #[test]
    fn random_texts_are_read_or_refused(bytes in collection::vec(any::<u8>(), 0..300)) {
        if let Ok(pairs) = text::parse(&bytes) {
            let held: usize = pairs.iter().map(|pair| pair.key.len() + 1 + pair.value.len()).sum();
            prop_assert!(held <= bytes.len());
            let _ = chap::answer(&pairs);
        }
    }

    #[test]
    fn binary_values_survive_the_wire(bytes in collection::vec(any::<u8>(), 1..100)) {
        let written = text::hexadecimal_text(&bytes);
        prop_assert_eq!(text::binary(&written), Some(bytes));
    }

    #[test]
    fn random_values_are_read_or_refused(value in "(0[xb])?[A-Fa-f0-9=+/]{0,40}") {
        if let Some(bytes) = text::binary(&value) {
            prop_assert!(!bytes.is_empty() && bytes.len() < value.len());
        }
        let _ = text::number(&value);
    }

    #[test]
    fn volumes_and_marks_survive_their_names(
        volume in "[A-Za-z0-9][A-Za-z0-9._-]{0,40}",
        mark in option::of("[A-Za-z0-9][A-Za-z0-9._-]{0,40}"),
    ) {
        let moment = mark.map(|mark| format!("mark:{mark}"));
        let name = names::join(BASE, &volume, moment.as_deref());
        let length = name.as_ref().map(String::len);
        if let Some(name) = name {
            prop_assert!(name.len() <= NAME_BYTES_MAX);
            let folded = names::fold(&name.to_ascii_uppercase()).expect("a name");
            prop_assert_eq!(names::split(BASE, &folded), Some(TargetName { volume, moment }));
        } else {
            prop_assert_eq!(length, None);
        }
    }

    #[test]
    fn every_name_that_is_split_is_joined_again(rest in "[a-z0-9.:-]{0,30}") {
        let name = format!("{BASE}:{rest}");
        if let Some(split) = names::split(BASE, &name) {
            let joined = names::join(BASE, &split.volume, split.moment.as_deref());
            prop_assert_eq!(joined, Some(name));
        }
    }
}
