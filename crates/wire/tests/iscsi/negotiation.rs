//! Negotiation against a table of all kinds of keys.

use hindsight_wire as wire;
use proptest::prelude::{any, prop_assert, proptest};
use wire::iscsi::Digests;
use wire::iscsi::negotiation::{
    Answer, KEYS, Negotiation, OfferedTwice, Parameters, Rule, Wishes, first_common,
};
use wire::iscsi::text::Pair;

/// The answer to one offer, as it is written; empty where there is none.
fn answered(negotiation: &mut Negotiation, key: &str, value: &str) -> String {
    let answer = negotiation.answer(&Pair { key, value }).expect("not offered before");
    let mut out = Vec::new();
    answer.put(key, &mut out);
    let written = String::from_utf8(out).expect("a text");
    written.trim_start_matches(key).trim_matches(['=', '\0']).to_owned()
}

fn alone(key: &str, value: &str) -> String {
    answered(&mut Negotiation::new(Wishes::default(), false), key, value)
}

#[test]
fn offers_are_answered_by_the_table() {
    for (key, value, answer) in [
        ("HeaderDigest", "CRC32C,None", "CRC32C"),
        ("HeaderDigest", "None,CRC32C", "None"),
        ("DataDigest", "CRC32C", "CRC32C"),
        ("DataDigest", "MD5", "Reject"),
        ("MaxConnections", "8", "1"),
        ("MaxConnections", "0", "Reject"),
        ("InitialR2T", "Yes", "Yes"),
        ("InitialR2T", "No", "No"),
        ("InitialR2T", "Maybe", "Reject"),
        ("ImmediateData", "Yes", "Yes"),
        ("ImmediateData", "No", "No"),
        ("MaxRecvDataSegmentLength", "65536", ""),
        ("MaxRecvDataSegmentLength", "511", "Reject"),
        ("MaxRecvDataSegmentLength", "16777216", "Reject"),
        ("MaxBurstLength", "16776192", "1048576"),
        ("MaxBurstLength", "0x200", "512"),
        ("MaxBurstLength", "12", "Reject"),
        ("FirstBurstLength", "65536", "65536"),
        ("FirstBurstLength", "16777215", "262144"),
        ("DefaultTime2Wait", "0", "2"),
        ("DefaultTime2Wait", "20", "20"),
        ("DefaultTime2Retain", "20", "0"),
        ("DefaultTime2Retain", "3601", "Reject"),
        ("MaxOutstandingR2T", "1", "1"),
        ("MaxOutstandingR2T", "65535", "8"),
        ("DataPDUInOrder", "No", "Yes"),
        ("DataSequenceInOrder", "Yes", "Yes"),
        ("ErrorRecoveryLevel", "2", "0"),
        ("ErrorRecoveryLevel", "3", "Reject"),
        ("iSCSIProtocolLevel", "2", "1"),
        ("iSCSIProtocolLevel", "0", "0"),
        ("TaskReporting", "FastAbort,RFC3720", "RFC3720"),
        ("TaskReporting", "FastAbort", "Reject"),
        ("IFMarker", "Yes", "No"),
        ("OFMarker", "No", "No"),
        ("IFMarkInt", "1~2048", "Reject"),
        ("InitiatorAlias", "desk", ""),
        ("InitiatorName", "iqn.x", ""),
        ("SessionType", "Normal", ""),
        ("AuthMethod", "CHAP,None", ""),
        ("SendTargets", "All", "Reject"),
        ("X-com.example.key", "1", "NotUnderstood"),
        ("X#key", "1", "NotUnderstood"),
        ("headerdigest", "None", "NotUnderstood"),
    ] {
        assert_eq!(alone(key, value), answer, "{key}={value}");
    }
}

#[test]
fn what_was_agreed_holds() {
    let mut negotiation = Negotiation::new(Wishes::default(), false);
    assert_eq!(negotiation.parameters(), Parameters::default());
    for (key, value) in [
        ("HeaderDigest", "CRC32C"),
        ("DataDigest", "None"),
        ("InitialR2T", "No"),
        ("ImmediateData", "No"),
        ("MaxRecvDataSegmentLength", "131072"),
        ("MaxBurstLength", "65536"),
        ("FirstBurstLength", "262144"),
        ("DefaultTime2Wait", "5"),
        ("DefaultTime2Retain", "0"),
        ("MaxOutstandingR2T", "4"),
    ] {
        answered(&mut negotiation, key, value);
    }
    let agreed = Parameters {
        digests: Digests { header: true, data: false },
        initial_r2t: false,
        immediate_data: false,
        send_segment_bytes: 131_072,
        max_burst_bytes: 65_536,
        first_burst_bytes: 65_536,
        time_to_wait_s: 5,
        time_to_retain_s: 0,
        outstanding_r2t: 4,
    };
    assert_eq!(negotiation.parameters(), agreed, "the first burst is no longer than any");
}

#[test]
fn a_refused_offer_changes_nothing() {
    for key in KEYS {
        let mut negotiation = Negotiation::new(Wishes::default(), false);
        answered(&mut negotiation, key.name, "nonsense, or 0?");
        let is_text = matches!(key.rule, Rule::Text | Rule::Security);
        assert_eq!(negotiation.parameters(), Parameters::default(), "{}", key.name);
        let reply = alone(key.name, "nonsense, or 0?");
        assert_eq!(reply, if is_text { "" } else { "Reject" }, "{}", key.name);
    }
}

#[test]
fn a_key_is_offered_once() {
    for key in KEYS {
        let mut negotiation = Negotiation::new(Wishes::default(), false);
        let pair = Pair { key: key.name, value: "1" };
        assert!(negotiation.answer(&pair).is_ok());
        let again = negotiation.answer(&pair);
        match key.rule {
            Rule::Security => assert_eq!(again, Ok(Answer::Security), "it has several steps"),
            Rule::Text => assert_eq!(again, Ok(Answer::Declared), "libiscsi says it twice"),
            _ => assert_eq!(again, Err(OfferedTwice(key.name))),
        }
    }
}

#[test]
fn a_discovery_session_has_no_use_for_transfers() {
    for (key, value, answer) in [
        ("MaxConnections", "1", "Irrelevant"),
        ("InitialR2T", "Yes", "Irrelevant"),
        ("ImmediateData", "Yes", "Irrelevant"),
        ("MaxBurstLength", "512", "Irrelevant"),
        ("FirstBurstLength", "512", "Irrelevant"),
        ("MaxOutstandingR2T", "1", "Irrelevant"),
        ("DataPDUInOrder", "Yes", "Irrelevant"),
        ("DataSequenceInOrder", "Yes", "Irrelevant"),
        ("HeaderDigest", "None", "None"),
        ("DefaultTime2Wait", "2", "2"),
        ("MaxRecvDataSegmentLength", "32768", ""),
    ] {
        let mut negotiation = Negotiation::new(Wishes::default(), true);
        assert_eq!(answered(&mut negotiation, key, value), answer, "{key}");
    }
}

#[test]
fn the_full_feature_phase_knows_few_keys() {
    let mut negotiation = Negotiation::new(Wishes::default(), false);
    answered(&mut negotiation, "MaxRecvDataSegmentLength", "512");
    negotiation.finish_login();
    assert_eq!(answered(&mut negotiation, "MaxRecvDataSegmentLength", "1024"), "");
    assert_eq!(negotiation.parameters().send_segment_bytes, 1024);
    assert_eq!(answered(&mut negotiation, "HeaderDigest", "CRC32C"), "Reject");
    assert_eq!(answered(&mut negotiation, "MaxBurstLength", "512"), "Reject");
    assert_eq!(answered(&mut negotiation, "X-key", "1"), "NotUnderstood");
    let asked = Pair { key: "SendTargets", value: "All" };
    assert_eq!(negotiation.answer(&asked), Ok(Answer::Question));
    assert!(negotiation.answer(&asked).is_err());
    negotiation.begin_text();
    assert_eq!(negotiation.answer(&asked), Ok(Answer::Question));
    assert_eq!(negotiation.parameters().digests, Digests::default());
}

#[test]
fn answers_to_what_was_declared_are_not_answered() {
    for value in ["Reject", "Irrelevant", "NotUnderstood"] {
        assert_eq!(alone("MaxRecvDataSegmentLength", value), "");
        assert_eq!(alone("InitialR2T", value), "");
    }
}

#[test]
fn the_initiators_order_decides() {
    assert_eq!(first_common("KRB5,None,CHAP", &["CHAP", "None"]), Some("None"));
    assert_eq!(first_common("SRP", &["CHAP"]), None);
    assert_eq!(first_common("", &["CHAP"]), None);
}

proptest! {
    #[test]
    fn any_offer_keeps_the_parameters_sound(
        offers in proptest::collection::vec((0..KEYS.len(), "(0x)?[0-9]{1,9}|Yes|No|None"), 0..20),
        is_discovery in any::<bool>(),
    ) {
        let mut negotiation = Negotiation::new(Wishes::default(), is_discovery);
        for (index, value) in &offers {
            let _ = negotiation.answer(&Pair { key: KEYS[*index].name, value });
        }
        let now = negotiation.parameters();
        prop_assert!((512..1 << 24).contains(&now.send_segment_bytes));
        prop_assert!((512..=1 << 20).contains(&now.max_burst_bytes));
        prop_assert!(now.first_burst_bytes <= now.max_burst_bytes);
        prop_assert!((512..=262_144).contains(&now.first_burst_bytes));
        prop_assert!((1..=8).contains(&now.outstanding_r2t));
    }
}
