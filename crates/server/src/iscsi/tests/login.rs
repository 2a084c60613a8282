//! Logins that come to nothing, and names.

use std::io::Read;

use units::WallTime;
use volume::{Access, Credential, Secret, TargetInfo};
use wire::iscsi::chap::{self, Algorithm, Challenge};
use wire::iscsi::text::{self, Pair};
use wire::iscsi::{LoginStatus, Request, Response, Serial, Stage, Tag, TextRequest};
use wire::scsi::Lun;

use super::initiator::{Initiator, Rig};
use crate::iscsi::chap::digest;

pub(super) const NAME: (&str, &str) = ("InitiatorName", "iqn.2026-11.org.example:test");

#[test]
fn a_login_is_refused_with_the_status_that_says_why() {
    let rig = Rig::new();
    let target = ("TargetName", &*rig.target);
    let unknown = format!("{}x", rig.target);
    let upper = rig.target.to_uppercase();
    let cases: &[(&[(&str, &str)], LoginStatus)] = &[
        (&[target], LoginStatus::MISSING_PARAMETER),
        (&[NAME], LoginStatus::MISSING_PARAMETER),
        (&[("InitiatorName", "me, you"), target], LoginStatus::INITIATOR_ERROR),
        (&[("InitiatorName", "iqn.1991-05.com.example:My_Host"), target], LoginStatus::SUCCESS),
        (&[NAME, ("TargetName", &unknown)], LoginStatus::NOT_FOUND),
        (&[NAME, ("TargetName", "iqn.2026-11.org.other:disk")], LoginStatus::NOT_FOUND),
        (&[NAME, target, ("SessionType", "Odd")], LoginStatus::SESSION_TYPE),
        (&[NAME, target, ("AuthMethod", "None")], LoginStatus::INITIATOR_ERROR),
        (&[NAME, target, ("MaxBurstLength", "Many")], LoginStatus::SUCCESS),
        (&[NAME, ("TargetName", &upper)], LoginStatus::SUCCESS),
        (&[NAME, ("SessionType", "Discovery")], LoginStatus::SUCCESS),
    ];
    for (pairs, expected) in cases {
        let status = Initiator::new(rig.address, 9).log_in_with(pairs);
        assert_eq!(status, *expected, "{pairs:?}");
    }
    let mut second = Initiator::new(rig.address, 9);
    second.tsih = 77;
    assert_eq!(second.log_in(&rig.target), LoginStatus::NO_SESSION);
}

const SECRET: &str = "a-secret-of-ours";
const OTHER: &str = "that-of-a-target";

pub(super) fn credential(user: &str, secret: &str) -> Credential {
    Credential { user: user.to_owned(), secret: Secret::new(secret.to_owned()).expect("it fits") }
}

pub(super) fn protect(rig: &Rig) {
    *rig.disk.access.lock() = Access {
        chap: Some(credential("me", SECRET)),
        mutual: Some(credential("store", OTHER)),
        allow: Vec::new(),
    };
}

fn pairs(said: &[(String, String)]) -> Vec<Pair<'_>> {
    said.iter().map(|(key, value)| Pair { key, value }).collect()
}

/// Logs in by CHAP as far as the challenge.
pub(super) fn challenged(
    initiator: &mut Initiator,
    first: &[(&str, &str)],
    list: &str,
) -> Challenge {
    // It wants to go on at once, which the target does not let it.
    let on = (Stage::Security, Some(Stage::Operational));
    let both: Vec<_> = first.iter().copied().chain([("AuthMethod", "CHAP,None")]).collect();
    let (response, said) = initiator.ask(on, &both);
    assert_eq!((response.status, response.next), (LoginStatus::SUCCESS, None));
    assert_eq!(text::value(&pairs(&said), "AuthMethod"), Some("CHAP"));
    let (response, said) = initiator.ask((Stage::Security, None), &[("CHAP_A", list)]);
    assert_eq!((response.status, response.next), (LoginStatus::SUCCESS, None));
    chap::challenge(&pairs(&said)).expect("read").expect("there")
}

/// A whole login by CHAP; the status at its end.
fn chap(
    rig: &Rig,
    (user, secret): (&str, &str),
    mirror: bool,
) -> (LoginStatus, Vec<(String, String)>) {
    let mut initiator = Initiator::new(rig.address, 3);
    let challenge = challenged(&mut initiator, &[NAME, ("TargetName", &rig.target)], "7,5");
    let response = digest(Algorithm::Sha256, &challenge, secret.as_bytes());
    let response = text::hexadecimal_text(&response).to_uppercase().replacen("0X", "0x", 1);
    let theirs = match mirror {
        true => text::hexadecimal_text(&challenge.bytes),
        false => "0bVGhlaXIgb3duIGNoYWxsZW5nZS4=".to_owned(),
    };
    let said = [("CHAP_N", user), ("CHAP_R", &*response), ("CHAP_I", "0x11"), ("CHAP_C", &*theirs)];
    let on = (Stage::Security, Some(Stage::FullFeature));
    let (response, said) = initiator.ask(on, &said);
    assert_eq!(response.next.is_some(), response.status == LoginStatus::SUCCESS);
    (response.status, said)
}

#[test]
fn a_target_with_chap_lets_in_who_has_the_secret_and_proves_itself() {
    let rig = Rig::new();
    protect(&rig);
    let (status, said) = chap(&rig, ("me", SECRET), false);
    assert_eq!(status, LoginStatus::SUCCESS);
    let theirs = Challenge { identifier: 0x11, bytes: b"Their own challenge.".to_vec() };
    let proof = digest(Algorithm::Sha256, &theirs, OTHER.as_bytes());
    assert_eq!(text::value(&pairs(&said), "CHAP_N"), Some("store"));
    let response = text::value(&pairs(&said), "CHAP_R").and_then(text::binary);
    assert_eq!(response, Some(proof));
    for wrong in [("me", OTHER), ("you", SECRET)] {
        let (status, said) = chap(&rig, wrong, false);
        assert_eq!(status, LoginStatus::AUTHENTICATION_FAILURE);
        assert_eq!(text::value(&pairs(&said), "CHAP_R"), None, "it proves nothing to nobody");
    }
    let (status, said) = chap(&rig, ("me", SECRET), true);
    assert_eq!(status, LoginStatus::AUTHENTICATION_FAILURE);
    assert_eq!(text::value(&pairs(&said), "CHAP_R"), None, "its own challenge came back");
}

#[test]
fn nobody_gets_round_chap() {
    let rig = Rig::new();
    protect(&rig);
    let (security, operational) = (Stage::Security, Stage::Operational);
    let full = Some(Stage::FullFeature);
    let target = ("TargetName", &*rig.target);
    let past = format!("{}:at:seq:1", rig.target);
    for (stages, first) in [
        ((operational, full), vec![NAME, target]),
        ((operational, None), vec![NAME, target]),
        ((operational, full), vec![NAME, ("TargetName", &past)]),
        ((security, full), vec![NAME, target]),
        ((security, full), vec![NAME, target, ("AuthMethod", "None")]),
        ((security, None), vec![NAME, target, ("AuthMethod", "KRB5,None")]),
    ] {
        let (response, _) = Initiator::new(rig.address, 9).ask(stages, &first);
        assert_eq!(response.status, LoginStatus::AUTHENTICATION_FAILURE, "{first:?}");
    }
    // The secret is asked for, and the rest of the login goes on without it.
    let mut initiator = Initiator::new(rig.address, 9);
    challenged(&mut initiator, &[NAME, target], "5");
    let (response, _) = initiator.ask((security, full), &[("MaxBurstLength", "65536")]);
    assert_eq!((response.status, response.next), (LoginStatus::SUCCESS, None));
    let (response, _) = initiator.ask((operational, full), &[]);
    assert_eq!(response.status, LoginStatus::INITIATOR_ERROR);
    assert_eq!(initiator.socket.read(&mut [0]).expect("its end"), 0);
    // A login during which settings change is refused, and may be tried again.
    *rig.disk.access.lock() = Access::default();
    let mut initiator = Initiator::new(rig.address, 9);
    let (response, _) = initiator.ask((security, Some(operational)), &[NAME, target]);
    assert_eq!(response.status, LoginStatus::SUCCESS);
    protect(&rig);
    let (response, _) = initiator.ask((operational, full), &[]);
    assert_eq!(response.status, LoginStatus::SERVICE_UNAVAILABLE);
}

/// The targets that a discovery session is told.
pub(super) fn discovered(initiator: &mut Initiator) -> String {
    pages(initiator).concat()
}

/// The parts of the answer to an initiator that asks for all targets.
fn pages(initiator: &mut Initiator) -> Vec<String> {
    let mut request = TextRequest {
        immediate: true,
        is_final: true,
        continues: false,
        lun: Lun(0),
        task_tag: Tag(1),
        transfer_tag: Tag::NONE,
        cmd_sn: initiator.cmd_sn,
        exp_stat_sn: Serial(0),
    };
    let mut question = Vec::new();
    text::put("SendTargets", "All", &mut question);
    let mut pages = Vec::new();
    loop {
        initiator.send(&Request::Text(request), &question);
        let Some((Response::Text(response), data)) = initiator.receive() else {
            panic!("no answer");
        };
        assert_eq!(response.is_final, !response.continues);
        pages.push(String::from_utf8(data).expect("a text"));
        if response.is_final {
            return pages;
        }
        request.transfer_tag = response.transfer_tag;
        question.clear();
    }
}

#[test]
fn all_targets_are_named_however_many_there_are() {
    const COUNT: usize = 12_000;
    let rig = Rig::new();
    let mut initiator = Initiator::new(rig.address, 9);
    let discovery = [NAME, ("SessionType", "Discovery")];
    assert_eq!(initiator.log_in_with(&discovery), LoginStatus::SUCCESS);
    // Of one page exactly, and one byte more or less, none is left out nor told twice.
    for count in [0, 1, 2, 63, 64, 65, 127, 128, COUNT] {
        let made = |number: usize| TargetInfo {
            id: number as u64,
            name: format!("t{number:05}"),
            created: WallTime::from_nanos(0),
            units: Vec::new(),
            retired: Vec::new(),
            access: match number % 5 {
                3 => Access { allow: vec!["iqn.other".to_owned()], ..Access::default() },
                _ => Access::default(),
            },
        };
        *rig.made.lock() = (0..count).map(made).collect();
        let pages = pages(&mut initiator);
        assert!(pages.iter().all(|page| page.len() <= 8192), "what an initiator takes");
        let whole = pages.concat();
        let told: Vec<&str> =
            whole.split('\0').filter_map(|pair| pair.strip_prefix("TargetName=")).collect();
        let may = |number: &usize| number % 5 != 3;
        let mut wanted = vec![rig.target.clone()];
        let names = (0..count).filter(may).map(|number| format!("t{number:05}"));
        wanted.extend(names.map(|name| rig.context.targets.name_of(&name).expect("a name")));
        assert_eq!(told, wanted, "{count}");
    }
}

#[test]
fn discovery_tells_where_the_initiator_came_or_what_it_is_to_be_told() {
    let addresses = |rig: &Rig| {
        let mut initiator = Initiator::new(rig.address, 9);
        let discovery = [NAME, ("SessionType", "Discovery")];
        assert_eq!(initiator.log_in_with(&discovery), LoginStatus::SUCCESS);
        let told = discovered(&mut initiator);
        let told = told.split('\0').filter_map(|pair| pair.strip_prefix("TargetAddress="));
        told.map(str::to_owned).collect::<Vec<_>>()
    };
    let rig = Rig::new();
    assert_eq!(addresses(&rig), [format!("{},1", rig.address)]);
    let announced = ["store.example.org:3260", "[2001:db8::7]:3261"];
    let rig = Rig::with(|context| context.announced = announced.map(str::to_owned).to_vec());
    assert_eq!(addresses(&rig), announced.map(|address| format!("{address},1")));
}

#[test]
fn discovery_names_what_the_asker_may_log_in_to() {
    let rig = Rig::new();
    let discovery = [NAME, ("SessionType", "Discovery")];
    let named = |rig: &Rig| {
        let mut initiator = Initiator::new(rig.address, 9);
        assert_eq!(initiator.log_in_with(&discovery), LoginStatus::SUCCESS);
        discovered(&mut initiator).contains(&rig.target)
    };
    assert!(named(&rig));
    rig.disk.access.lock().allow = vec!["iqn.2026-11.org.example:other".to_owned()];
    assert!(!named(&rig));
    let status = Initiator::new(rig.address, 9).log_in(&rig.target);
    assert_eq!(status, LoginStatus::AUTHORIZATION_FAILURE);
    rig.disk.access.lock().allow.push(NAME.1.to_owned());
    assert!(named(&rig));
    protect(&rig);
    assert!(!named(&rig));
    let mut initiator = Initiator::new(rig.address, 9);
    let challenge = challenged(&mut initiator, &discovery, "5");
    let response = digest(Algorithm::Md5, &challenge, SECRET.as_bytes());
    let said = [("CHAP_N", "me"), ("CHAP_R", &*text::hexadecimal_text(&response))];
    let (response, _) = initiator.ask((Stage::Security, Some(Stage::FullFeature)), &said);
    assert_eq!(response.status, LoginStatus::SUCCESS);
    assert!(discovered(&mut initiator).contains(&rig.target));
}

#[test]
fn beyond_this_machine_a_login_has_to_be_proved() {
    let rig = Rig::new();
    let is_exposed = |own: &str| rig.context.is_exposed(Some(own.parse().expect("an address")));
    assert!(!is_exposed("127.0.0.1:3260") && !is_exposed("[::1]:3260"));
    assert!(!is_exposed("[::ffff:127.0.0.1]:3260"));
    assert!(is_exposed("192.0.2.1:3260") && is_exposed("[2001:db8::1]:3260"));
    assert!(rig.context.is_exposed(None));
    let rig = Rig::exposed();
    let past = format!("{}:at:seq:1", rig.target);
    for target in [&rig.target, &past] {
        let status = Initiator::new(rig.address, 1).log_in(target);
        assert_eq!(status, LoginStatus::AUTHORIZATION_FAILURE, "{target}");
    }
}
