//! Every text of the contract, the refusals beside them, and arbitrary text: parsers never panic,
//! and what is printed is read back as the same value.

use hindsight_units::{
    Granularity, MarkName, Moment, Network, Seq, Size, Span, TimeZone, VolumeMoment, VolumeName,
    WallTime,
};
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

const MINUTE: u64 = 60_000_000_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

fn time(text: &str) -> WallTime {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn times_are_read_with_any_offset_and_printed_in_utc_with_nine_digits() {
    let cases = [
        ("2026-11-21T10:00:00Z", "2026-11-21T10:00:00.000000000Z"),
        ("2026-11-21T10:00:00.25+01:00", "2026-11-21T09:00:00.250000000Z"),
        ("2026-11-21t10:00:00z", "2026-11-21T10:00:00.000000000Z"),
        ("2026-11-21 10:00:00-05:30", "2026-11-21T15:30:00.000000000Z"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000000Z"),
        ("2024-02-29T23:59:59.123456789Z", "2024-02-29T23:59:59.123456789Z"),
        ("2554-07-21T23:34:33.709551615Z", "2554-07-21T23:34:33.709551615Z"),
        ("2026-11-21T10:00:00.1234567891234-23:59", "2026-11-22T09:59:00.123456789Z"),
    ];
    for (text, printed) in cases {
        assert_eq!(time(text).to_string(), printed);
    }
    assert_eq!(time("2554-07-21T23:34:33.709551615Z"), WallTime::MAX);
    assert_eq!(time("1970-01-01T00:00:01Z").as_nanos(), 1_000_000_000);
}

#[test]
fn texts_that_are_not_rfc_3339_are_refused() {
    for text in [
        "",
        "now",
        "2026-11-21",
        "2026-11-21T10:00Z",
        "2026-11-21T10:00:00",
        "2026-11-21T10:00:00.Z",
        "2026-11-21T10:00:00+0100",
        "2026-11-21T10:00:00+24:00",
        "2026-11-21T10:00:00+01:60",
        "2026-11-21T10:00:00+01:00[Europe/Paris]",
        "2026-02-30T10:00:00Z",
        "2026-11-21T25:00:00Z",
        "1969-12-31T23:59:59Z",
        "2554-07-21T23:34:33.709551616Z",
        "9999-12-31T23:59:59Z",
        "20261121T100000Z",
        "2026-11-21T10:00:00\u{2212}01:00",
        "\u{0662}026-11-21T10:00:00Z",
    ] {
        assert!(text.parse::<WallTime>().is_err(), "{text}");
    }
}

#[test]
fn moments_beyond_the_years_that_can_be_told_are_moments_all_the_same() {
    let at = |text: &str| match text.parse() {
        Ok(Moment::At(time)) => Some(time),
        _ => None,
    };
    for text in ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00+01:00"] {
        assert_eq!(at(text), Some(WallTime::EPOCH), "{text}");
    }
    for text in ["2554-07-21T23:34:33.709551616Z", "9999-12-31T23:59:59Z"] {
        assert_eq!(at(text), Some(WallTime::MAX), "{text}");
    }
    for text in ["0000-00-00T00:00:00Z", "9999-02-29T00:00:00Z", "9999-12-31T23:59:59"] {
        assert_eq!(at(text), None, "{text}");
    }
}

#[test]
fn times_travel_through_json_as_text() {
    let at = time("2026-11-21T10:00:00.5Z");
    let json = serde_json::to_string(&at).expect("a string");
    assert_eq!(json, "\"2026-11-21T10:00:00.500000000Z\"");
    assert_eq!(serde_json::from_str::<WallTime>(&json).expect("the same"), at);
    assert!(serde_json::from_str::<WallTime>("12").is_err());
    assert!(serde_json::from_str::<WallTime>("\"tomorrow\"").is_err());
}

#[test]
fn arithmetic_stops_at_both_ends_of_time() {
    let second = Span(1_000_000_000);
    let at = WallTime::from_nanos(5_000_000_000);
    assert_eq!(at.saturating_sub(second).as_nanos(), 4_000_000_000);
    assert_eq!(WallTime::EPOCH.saturating_sub(second), WallTime::EPOCH);
    assert_eq!(WallTime::MAX.saturating_add(second), WallTime::MAX);
    assert_eq!(at.since(WallTime::EPOCH), Some(Span(5_000_000_000)));
    assert_eq!(WallTime::EPOCH.since(at), None);
}

#[test]
fn spans_are_read_exactly() {
    let cases = [
        ("250ms", MINUTE / 240),
        ("90s", MINUTE * 3 / 2),
        ("5min", 5 * MINUTE),
        ("2h", 2 * HOUR),
        ("7d", 7 * DAY),
        ("2w", 14 * DAY),
        ("3mo", 90 * DAY),
        ("1.5h", 90 * MINUTE),
        ("0s", 0),
        ("0.000001ms", 1),
        ("213503.982334601d", 18_446_744_073_709_526_400),
    ];
    for (text, nanos) in cases {
        assert_eq!(text.parse::<Span>().map(Span::as_nanos), Ok(nanos), "{text}");
    }
    let printed = |nanos| Span(nanos).to_string();
    assert_eq!(printed(DAY), "1d");
    assert_eq!(printed(7 * DAY), "7d");
    assert_eq!(printed(36 * HOUR), "36h");
    assert_eq!(printed(90 * MINUTE / 60), "90s");
    assert_eq!(printed(250_000_000), "250ms");
    assert_eq!(printed(1_500), "0.0015ms");
    assert_eq!(printed(0), "0s");
}

#[test]
fn spans_without_a_clear_unit_or_with_a_sign_are_refused() {
    for text in [
        "",
        "5",
        "min",
        "-5min",
        "+5min",
        "5 min",
        "5MIN",
        "5ns",
        "1h30min",
        ".5h",
        "5.h",
        "1.2.3s",
        "5\u{b5}s",
        "\u{0665}s",
        "5m\u{0131}n",
        "999999999999999999999s",
        "585000000000mo",
        "1e3s",
        "1.0000000000000000000001s",
    ] {
        assert!(text.parse::<Span>().is_err(), "{text}");
    }
    let bare = "5m".parse::<Span>().expect_err("minutes or months");
    assert_eq!(bare.hint.as_deref(), Some("min or mo?"));
}

#[test]
fn sizes_are_binary() {
    let cases = [
        ("4096", 4096),
        ("0", 0),
        ("512B", 512),
        ("10GiB", 10 << 30),
        ("10G", 10 << 30),
        ("10g", 10 << 30),
        ("10gib", 10 << 30),
        ("10Gi", 10 << 30),
        ("1.5T", 3 << 39),
        ("64K", 64 << 10),
        ("4PiB", 4 << 50),
        ("15E", 15 << 60),
    ];
    for (text, bytes) in cases {
        assert_eq!(text.parse::<Size>().map(Size::bytes), Ok(bytes), "{text}");
    }
    assert_eq!(Size(10 << 30).to_string(), "10GiB");
    assert_eq!(Size(1536 << 20).to_string(), "1536MiB");
    assert_eq!(Size(4097).to_string(), "4097");
    assert_eq!(Size(0).to_string(), "0");
    assert_eq!(Size(1 << 63).to_string(), "8EiB");
}

#[test]
fn decimal_and_unknown_sizes_are_refused_with_a_hint() {
    let gb = "10GB".parse::<Size>().expect_err("decimal");
    assert_eq!(gb.hint.as_deref(), Some("write GiB; decimal units are not taken"));
    for text in [
        "",
        "G",
        "-1G",
        "+1G",
        "10 GiB",
        "16E",
        "18446744073709551616",
        "10Q",
        "10KiBs",
        "1,5G",
        "10G\u{0130}",
        "\u{ff11}0G",
        "10\u{212a}",
        "0x10",
        "1..5G",
    ] {
        let error = text.parse::<Size>().expect_err(text);
        assert!(error.hint.is_some(), "{text}");
    }
}

#[test]
fn names_are_short_plain_and_begin_with_a_letter_or_digit() {
    let longest = "x".repeat(128);
    for name in ["a", "0", "pg", "a.b_c-D9", longest.as_str()] {
        assert!(VolumeName::check(name).is_ok(), "{name}");
        assert!(MarkName::check(name).is_ok(), "{name}");
    }
    let too_long = "x".repeat(129);
    let wide = "\u{1f4be}".repeat(100);
    for name in ["", ".", "..", "-a", "_a", "a b", "a/b", "a@b", "a:b", "a\n", "\u{e4}", "a\u{e4}"]
        .into_iter()
        .chain([too_long.as_str(), wide.as_str()])
    {
        let error = VolumeName::check(name).expect_err(name);
        assert!(error.hint.is_some());
    }
}

#[test]
fn granularities_are_words_or_intervals() {
    assert_eq!("every-write".parse(), Ok(Granularity::EveryWrite));
    assert_eq!("on-demand".parse(), Ok(Granularity::OnDemand));
    assert_eq!("10min".parse(), Ok(Granularity::Interval(Span(10 * MINUTE))));
    for text in ["", "0s", "1", "-1s", "always", "every write", "\u{221e}"] {
        assert!(text.parse::<Granularity>().is_err(), "{text}");
    }
    let bare = "5m".parse::<Granularity>().expect_err("minutes or months");
    assert_eq!(bare.hint.as_deref(), Some("min or mo?"));
}

#[test]
fn moments_have_the_forms_of_the_contract() {
    let cases = [
        ("latest", Moment::Latest),
        ("2026-11-21T10:00:00Z", Moment::At(time("2026-11-21T10:00:00Z"))),
        ("2026-11-21T10:00:00.25+01:00", Moment::At(time("2026-11-21T09:00:00.25Z"))),
        ("-5min", Moment::Ago(Span(5 * MINUTE))),
        ("-250ms", Moment::Ago(Span(250_000_000))),
        ("seq:12345", Moment::Seq(Seq(12345))),
        ("seq:0", Moment::Seq(Seq(0))),
        ("v:3", Moment::Version(3)),
        ("mark:before-upgrade", Moment::Mark("before-upgrade".into())),
        ("mark:latest", Moment::Mark("latest".into())),
    ];
    for (text, moment) in cases {
        assert_eq!(text.parse::<Moment>().as_ref(), Ok(&moment), "{text}");
        assert_eq!(moment.to_string().parse::<Moment>(), Ok(moment), "{text}");
    }
}

#[test]
fn texts_that_are_not_moments_are_refused_with_a_hint() {
    for text in [
        "",
        " ",
        "now",
        "yesterday",
        "latest ",
        "5min",
        "-5",
        "-",
        "--5min",
        "seq:",
        "seq:-1",
        "seq:+1",
        "seq:1 ",
        "seq:99999999999999999999",
        "v:",
        "v:x",
        "v:1.0",
        "mark:",
        "mark:a b",
        "mark:\u{e4}",
        "ver:1",
        "2026-11-21 10:00",
        "2026-11-21T10:00:00",
        "10:00",
        ":",
        "v:\u{0663}",
    ] {
        let error = text.parse::<Moment>().expect_err(text);
        assert!(error.hint.is_some(), "{text}: {error}");
    }
    assert!("seq:281474976710656".parse::<Moment>().is_err());
    let bare = "-5m".parse::<Moment>().expect_err("minutes or months");
    assert_eq!(bare.hint.as_deref(), Some("min or mo?"));
}

#[test]
fn a_text_without_another_form_is_the_name_of_a_mark() {
    for name in ["before-upgrade", "Latest", "v", "seq", "a.b_c"] {
        assert_eq!(name.parse::<Moment>(), Ok(Moment::Mark(name.into())), "{name}");
        let local = Moment::parse_local(name, time("2026-11-21T11:30:00Z"), &berlin());
        assert_eq!(local.map(|read| read.moment), Ok(Moment::Mark(name.into())), "{name}");
    }
    let yesterday = Moment::parse_local("yesterday", time("2026-11-21T11:30:00Z"), &berlin());
    assert!(matches!(yesterday.map(|read| read.moment), Ok(Moment::At(_))));
    let longest = "a".repeat(129);
    assert!(longest.parse::<Moment>().is_err());
}

#[test]
fn a_volume_with_a_moment_is_split_at_the_first_at_sign() {
    let parsed: VolumeMoment = "pg@seq:7".parse().expect("both parts");
    assert_eq!(parsed, VolumeMoment { volume: "pg".into(), moment: Moment::Seq(Seq(7)) });
    assert_eq!(parsed.to_string(), "pg@seq:7");
    let plain: VolumeMoment = "pg".parse().expect("the present");
    assert_eq!((plain.moment.clone(), plain.to_string()), (Moment::Latest, "pg".into()));
    for text in ["", "@", "pg@", "@latest", "p g@latest", "pg@a@b", "pg@latest@latest", "p:g"] {
        assert!(text.parse::<VolumeMoment>().is_err(), "{text}");
    }
}

fn berlin() -> TimeZone {
    // Written as a rule, so that the test needs no zone database.
    TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a rule")
}

fn at(text: &str) -> Moment {
    Moment::At(time(text))
}

#[test]
fn local_times_are_read_in_the_zone_of_the_reader() {
    let now = time("2026-11-21T11:30:00Z"); // 12:30 in Berlin
    let cases = [
        ("2026-11-21 10:00", at("2026-11-21T09:00:00Z")),
        ("2026-11-21T10:00:00", at("2026-11-21T09:00:00Z")),
        ("2026-07-01 10:00:00.25", at("2026-07-01T08:00:00.25Z")),
        ("2026-11-20", at("2026-11-19T23:00:00Z")),
        ("10:00", at("2026-11-21T09:00:00Z")),
        ("12:30:00", at("2026-11-21T11:30:00Z")),
        ("today", at("2026-11-20T23:00:00Z")),
        ("today 11:00", at("2026-11-21T10:00:00Z")),
        ("yesterday", at("2026-11-19T23:00:00Z")),
        ("yesterday 14:03", at("2026-11-20T13:03:00Z")),
        (" 10 minutes ago ", Moment::Ago(Span(10 * MINUTE))),
        ("1 hour ago", Moment::Ago(Span(HOUR))),
        ("5min ago", Moment::Ago(Span(5 * MINUTE))),
        ("now", Moment::Latest),
        ("2026-11-21T10:00:00Z", at("2026-11-21T10:00:00Z")),
        ("v:3", Moment::Version(3)),
    ];
    for (text, moment) in cases {
        let reading = Moment::parse_local(text, now, &berlin());
        assert_eq!(reading.map(|r| r.moment), Ok(moment), "{text}");
    }
}

#[test]
fn the_answer_says_what_was_made_of_a_local_time() {
    let now = time("2026-11-21T11:30:00Z");
    let told = |text| Moment::parse_local(text, now, &berlin()).map(|r| r.text);
    assert_eq!(
        told("10:00"),
        Ok("2026-11-21T09:00:00.000000000Z (2026-11-21 10:00:00 +01:00 here)".into())
    );
    assert_eq!(told("10 minutes ago"), Ok("10min before 2026-11-21T11:30:00.000000000Z".into()));
    assert_eq!(told("mark:m"), Ok("mark:m".into()));
    let both = VolumeMoment::parse_local("pg@10:00", now, &berlin());
    assert_eq!(both.map(|(v, _)| v.moment), Ok(at("2026-11-21T09:00:00Z")));
}

#[test]
fn skipped_repeated_future_and_malformed_local_times_are_refused() {
    let now = time("2026-11-21T11:30:00Z");
    for text in [
        "2026-03-29 02:30",
        "2026-10-25 02:30",
        "12:31",
        "2026-13-01 10:00",
        "2026-11-21 24:01",
        "2026-11-21  ",
        "tomorrow",
        "today at ten",
        "yesterday 9",
        "ago",
        " ago",
        "x ago",
        "5 m ago",
        "10:0",
        "10:00:00.",
        "0000-01-01",
        "9999-12-31 23:59",
        "\u{1f550}",
        "today \u{1f550}",
        "",
    ] {
        let read = Moment::parse_local(text, now, &berlin());
        if text == "2026-11-21  " {
            assert!(read.is_ok(), "blanks at the end do not count");
            continue;
        }
        assert!(read.is_err(), "{text}: {read:?}");
    }
    let skipped = Moment::parse_local("2026-03-29 02:30", now, &berlin()).expect_err("skipped");
    assert!(skipped.hint.is_some());
}

/// Texts that come close to the grammar more often than chance would.
fn near_texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[0-9]{1,20}",
        "latest|seq:|v:|mark:|-|@|ago| |T|Z|:|\\.|today|yesterday|min|mo|ms|m|s|h|d|w|GiB|GB|K",
        "[0-9]{4}-[0-9]{2}-[0-9]{2}",
        "[0-9]{2}:[0-9]{2}",
        "\\PC{0,3}",
    ];
    proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in prop_oneof![near_texts(), any::<String>()]) {
        let now = WallTime::from_nanos(1_795_000_000_000_000_000);
        let _ = Moment::parse_local(&text, now, &TimeZone::UTC);
        let _ = VolumeMoment::parse_local(&text, WallTime::MAX, &berlin());
        let _ = Moment::parse_local(&text, WallTime::EPOCH, &berlin());
        let _ = (text.parse::<WallTime>(), text.parse::<Granularity>());
        let _ = (VolumeName::check(&text), MarkName::check(&text));
        if let Ok(moment) = text.parse::<Moment>() {
            prop_assert_eq!(moment.to_string().parse::<Moment>(), Ok(moment));
        }
        if let Ok(size) = text.parse::<Size>() {
            prop_assert_eq!(size.to_string().parse::<Size>(), Ok(size));
        }
        if let Ok(network) = text.parse::<Network>() {
            prop_assert_eq!(network.to_string().parse::<Network>(), Ok(network));
        }
    }

    #[test]
    fn what_is_printed_is_read_back(nanos: u64, name in "[a-z0-9][A-Za-z0-9._-]{0,127}") {
        let time = WallTime::from_nanos(nanos);
        prop_assert_eq!(time.to_string().parse::<WallTime>(), Ok(time));
        prop_assert_eq!(Span(nanos).to_string().parse::<Span>(), Ok(Span(nanos)));
        prop_assert_eq!(Size(nanos).to_string().parse::<Size>(), Ok(Size(nanos)));
        let moments = [Moment::At(time), Moment::Ago(Span(nanos)), Moment::Version(nanos)];
        for moment in moments.into_iter().chain([Moment::Mark(name.clone())]) {
            let both = VolumeMoment { volume: name.clone(), moment };
            prop_assert_eq!(both.to_string().parse::<VolumeMoment>(), Ok(both));
        }
    }

    #[test]
    fn a_network_is_read_back_and_has_its_address(ip: core::net::IpAddr, bits in 0_u8..=128) {
        let text = format!("{ip}/{bits}");
        if let Ok(network) = text.parse::<Network>() {
            prop_assert_eq!(network.to_string().parse::<Network>(), Ok(network));
            // Of what is mapped, fewer bits are a network of IPv6.
            prop_assert!(network.contains(ip) || (ip.to_canonical() != ip && bits < 96));
        } else {
            prop_assert!(ip.is_ipv4() && bits > 32);
        }
    }

    #[test]
    fn texts_of_times_sort_as_the_times_do(a: u64, b: u64) {
        let (a, b) = (WallTime::from_nanos(a), WallTime::from_nanos(b));
        prop_assert!(a.cmp(&b) == a.to_string().cmp(&b.to_string()));
    }
}
