//! Records in a stream.

use std::borrow::Cow;

use hindsight_wire as wire;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use proptest::{collection, sample};
use wire::rpc::limits::RECORD_BYTES_MAX;
use wire::rpc::record::{Found, Search, TooLong, last_mark};

use crate::hex;

/// A record of these fragments.
fn record(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, fragment) in fragments.iter().enumerate() {
        let mut mark = last_mark(fragment.len());
        if index + 1 < fragments.len() {
            mark[0] &= 0x7f;
        }
        bytes.extend_from_slice(&mark);
        bytes.extend_from_slice(fragment);
    }
    bytes
}

#[test]
fn marks_have_their_known_bytes() {
    assert_eq!(last_mark(0).to_vec(), hex("80000000"));
    assert_eq!(last_mark(0x0001_0203).to_vec(), hex("80010203"));
}

#[test]
fn a_record_of_one_fragment_is_not_copied() {
    let stream = hex("80000003 616263 80000000");
    let mut search = Search::default();
    let Ok(Found::Whole(first)) = search.find(&stream) else { panic!("a record") };
    assert_eq!(first.stream_bytes(), 7);
    assert!(matches!(first.body(), Cow::Borrowed(b"abc")));
    let Ok(Found::Whole(second)) = search.find(&stream[7..]) else { panic!("a record") };
    assert!(matches!(second.body(), Cow::Borrowed(b"")));
    assert_eq!(second.stream_bytes(), 4);
    assert_eq!(search.find(&[]), Ok(Found::Beginning(4)));
}

#[test]
fn empty_fragments_beside_one_with_data_cause_no_copy() {
    let stream = hex("00000000 00000003 616263 80000000");
    let Ok(Found::Whole(record)) = Search::default().find(&stream) else { panic!("a record") };
    assert!(matches!(record.body(), Cow::Borrowed(b"abc")));
    assert_eq!(record.stream_bytes(), stream.len());
}

#[test]
fn a_beginning_says_how_much_there_will_be_at_least() {
    let stream = hex("00000002 6162 80000003 636465");
    let known = [4, 4, 4, 4, 10, 10, 10, 10, 10, 10, 13, 13, 13];
    let mut search = Search::default();
    for (received, least) in known.into_iter().enumerate() {
        assert_eq!(search.find(&stream[..received]), Ok(Found::Beginning(least)), "{received}");
    }
    let Ok(Found::Whole(record)) = search.find(&stream) else { panic!("a record") };
    assert_eq!(record.pieces().collect::<Vec<_>>(), [&b"ab"[..], b"cde"]);
    assert_eq!(record.body(), &b"abcde"[..]);
}

#[test]
fn the_longest_record_is_found_and_a_longer_one_refused_by_its_mark() {
    let most = RECORD_BYTES_MAX - 4;
    let whole = record(&[vec![7; most]]);
    let found = Search::default().find(&whole).unwrap();
    assert!(matches!(found, Found::Whole(record) if record.body().len() == most));
    let over = last_mark(most + 1);
    assert_eq!(Search::default().find(&over), Err(TooLong(RECORD_BYTES_MAX + 1)));
    // Not the last fragment: another mark would have to follow.
    let mut goes_on = last_mark(most);
    goes_on[0] &= 0x7f;
    assert_eq!(Search::default().find(&goes_on), Err(TooLong(RECORD_BYTES_MAX + 4)));
    for mark in ["ffffffff", "7fffffff", "80ffffff"] {
        assert!(Search::default().find(&hex(mark)).is_err(), "{mark}");
    }
}

#[test]
fn fragments_without_data_come_to_an_end() {
    let endless = vec![0; RECORD_BYTES_MAX + 4];
    let mut search = Search::default();
    let refused = (0..=endless.len()).find_map(|end| search.find(&endless[..end]).err());
    assert_eq!(refused, Some(TooLong(RECORD_BYTES_MAX + 4)));
}

proptest! {
    #[test]
    fn records_are_found_however_they_arrive(
        records in collection::vec(
            collection::vec(collection::vec(any::<u8>(), 0..40), 1..6),
            1..5,
        ),
        cuts in collection::vec(1..30_usize, 1..200),
    ) {
        let stream: Vec<u8> = records.iter().flat_map(|fragments| record(fragments)).collect();
        let mut cuts = cuts.into_iter().cycle();
        let (mut start, mut end, mut bodies) = (0, 0, Vec::new());
        let mut search = Search::default();
        while start < stream.len() {
            match search.find(&stream[start..end]).unwrap() {
                Found::Whole(record) => {
                    prop_assert!(record.stream_bytes() <= end - start);
                    start += record.stream_bytes();
                    bodies.push(record.body().into_owned());
                }
                Found::Beginning(least) => {
                    prop_assert!(least > end - start, "more is needed than there is");
                    end = (end + cuts.next().unwrap()).min(stream.len());
                }
            }
        }
        let sent: Vec<Vec<u8>> = records.iter().map(|fragments| fragments.concat()).collect();
        prop_assert_eq!(bodies, sent);
    }

    #[test]
    fn random_bytes_are_a_record_its_beginning_or_too_long(
        mut bytes in collection::vec(any::<u8>(), 1..200),
        zeros in collection::vec(any::<sample::Index>(), 0..40),
    ) {
        // Short lengths, so that there are fragments.
        for zero in &zeros {
            let at = zero.index(bytes.len()) & !3;
            let end = (at + 3).min(bytes.len());
            bytes[at..end].fill(0);
        }
        let at_once = Search::default().find(&bytes);
        let mut search = Search::default();
        let mut last = search.find(&[]);
        for end in 1..=bytes.len() {
            if !matches!(last, Ok(Found::Beginning(_))) {
                break;
            }
            last = search.find(&bytes[..end]);
        }
        prop_assert_eq!(at_once, last);
    }
}
