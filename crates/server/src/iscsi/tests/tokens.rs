//! Logins by a token's name and secret: what its role and its volumes let it do.

use std::sync::Arc;

use block::MemoryDevice;
use env::{Clock, RealClock, RealEntropy};
use units::{Role, WallTime};
use volume::{Machine, Pool, PoolFormat, PoolOptions, Secret, TargetInfo, TokenSpec, UnitInfo};
use wire::iscsi::chap::Algorithm;
use wire::iscsi::{LoginStatus, Response, Stage, TaskFunction, TaskResult, text};

use super::initiator::{Initiator, Rig};
use super::login::{NAME, challenged, credential, discovered, protect};
use crate::iscsi::chap::digest;
use crate::iscsi::{ChapTokens, IscsiContext};
use crate::nbd::tests::memory::{DISK, OTHER};
use crate::nbd::tests::rig::eventually;

const SECRET: &str = "Secret-of_tokens";
const READY: [u8; 6] = [0; 6];
const READ_ONE: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const WRITE_ONE: [u8; 10] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const REGISTER: [u8; 10] = [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0];
const DENIED: LoginStatus = LoginStatus::AUTHENTICATION_FAILURE;
const PROTECTED: (u8, u8, u8) = (7, 0x27, 0);

/// A pool whose tokens, all with one secret, let in to a disk in memory.
fn with_tokens(
    tokens: &[(&str, Role, &[&str])],
    change: fn(&mut IscsiContext),
) -> (Rig, Arc<Pool>) {
    let machine =
        Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) };
    let device = Arc::new(MemoryDevice::new(64 << 20));
    Pool::create(&(Arc::clone(&device) as Arc<_>), &machine, &PoolFormat { zone_bytes: 1 << 20 })
        .expect("a pool");
    let pool = Pool::open(device, machine, PoolOptions { memory_bytes: 32 << 20 }).expect("opens");
    for (number, (name, role, volumes)) in tokens.iter().enumerate() {
        let spec = TokenSpec {
            name: (*name).to_owned(),
            id: char::from(b'a' + number as u8).to_string().repeat(10),
            secret_sha256: [0; 32],
            role: *role,
            volumes: volumes.iter().map(|text| text.parse().expect("a pattern")).collect(),
            expires: None,
            chap: Some(Secret::new(SECRET.to_owned()).expect("fits")),
        };
        pool.create_token(spec).expect("a token");
    }
    let of = Arc::clone(&pool);
    let rig = Rig::with(|context| {
        context.tokens = ChapTokens { used: Box::new(|_| {}), ..ChapTokens::of(&of) };
        change(context);
    });
    (rig, pool)
}

/// Logs in to what `first` names by a name and a secret; the status at its end.
fn log_in(
    rig: &Rig,
    first: &[(&str, &str)],
    (user, secret): (&str, &str),
) -> (Initiator, LoginStatus) {
    let mut initiator = Initiator::new(rig.address, user.len() as u8);
    let challenge = challenged(&mut initiator, first, "5");
    let response = digest(Algorithm::Md5, &challenge, secret.as_bytes());
    let said = [("CHAP_N", user), ("CHAP_R", &*text::hexadecimal_text(&response))];
    let (response, _) = initiator.ask((Stage::Security, Some(Stage::FullFeature)), &said);
    (initiator, response.status)
}

/// One that is let in and has heard of the beginning of its unit.
fn ready(rig: &Rig, user: &str) -> Initiator {
    let first = [NAME, ("TargetName", &*rig.target)];
    let (mut initiator, status) = log_in(rig, &first, (user, SECRET));
    assert_eq!(status, LoginStatus::SUCCESS, "{user}");
    initiator.command(1, &READY, 0, &[]);
    initiator.sense();
    initiator
}

#[test]
fn a_token_lets_in_by_its_role_and_to_volumes_that_it_sees() {
    let tokens: &[(&str, Role, &[&str])] = &[
        ("viewer", Role::Viewer, &[]),
        ("keeper", Role::Keeper, &[]),
        ("reader", Role::Reader, &["di*"]),
        ("operator", Role::Operator, &["disk"]),
        ("elsewhere", Role::Admin, &["pg*"]),
    ];
    let (rig, pool) = with_tokens(tokens, |_| {});
    let past = format!("{}:at:seq:1", rig.target);
    for own_chap in [false, true] {
        if own_chap {
            protect(&rig);
        }
        for target in [&rig.target, &past] {
            let first = [NAME, ("TargetName", &**target)];
            for (user, secret, expected) in [
                ("viewer", SECRET, LoginStatus::AUTHORIZATION_FAILURE),
                ("keeper", SECRET, LoginStatus::AUTHORIZATION_FAILURE),
                ("elsewhere", SECRET, DENIED),
                ("reader", "Secret-of_others", DENIED),
            ] {
                assert_eq!(log_in(&rig, &first, (user, secret)).1, expected, "{user} {own_chap}");
            }
        }
        // A target without CHAP lets in anybody on this machine, also who has another's name.
        let first = [NAME, ("TargetName", &*rig.target)];
        let expected = if own_chap { DENIED } else { LoginStatus::SUCCESS };
        assert_eq!(log_in(&rig, &first, ("nobody", SECRET)).1, expected);
        let mut reader = ready(&rig, "reader");
        reader.command(2, &READ_ONE, 512, &[]);
        assert_eq!(reader.data().len(), 512);
        for (tag, cdb, bytes) in [(3, &WRITE_ONE[..], 512), (4, &REGISTER, 24)] {
            reader.command(tag, cdb, 0, &vec![7; bytes]);
            assert_eq!(reader.sense(), PROTECTED, "{cdb:?}");
        }
        reader.manage(5, TaskFunction::LUN_RESET, 0);
        let answer = reader.receive();
        let Some((Response::Task(answer), _)) = answer else { panic!("{answer:?}") };
        assert_eq!(answer.result, TaskResult::NOT_AUTHORIZED);
        let mut operator = ready(&rig, "operator");
        operator.command(2, &WRITE_ONE, 0, &[9; 512]);
        assert_eq!(operator.status(), (2, 0));
        assert_eq!(rig.disk.bytes.lock()[..512], [9; 512]);
    }
    // The target's own secret lets in as before.
    let first = [NAME, ("TargetName", &*rig.target)];
    assert_eq!(log_in(&rig, &first, ("me", "a-secret-of-ours")).1, LoginStatus::SUCCESS);
    // A session ends with its next command once its token is revoked, which lets nobody in then.
    let mut operator = ready(&rig, "operator");
    pool.revoke_token("operator").expect("revoked");
    operator.command(2, &WRITE_ONE, 0, &[1; 512]);
    assert!(operator.receive().is_none(), "its connection ends");
    assert_eq!(rig.disk.bytes.lock()[..512], [9; 512]);
    let status = log_in(&rig, &first, ("operator", SECRET)).1;
    assert_eq!(status, LoginStatus::AUTHENTICATION_FAILURE);
}

#[test]
fn a_token_that_has_expired_is_not_taken_for_anybody() {
    let (rig, pool) = with_tokens(&[], |_| {});
    let now = RealClock::new().wall().as_nanos();
    let spec = TokenSpec {
        name: "brief".to_owned(),
        id: "a".repeat(10),
        secret_sha256: [0; 32],
        role: Role::Reader,
        volumes: Vec::new(),
        expires: Some(WallTime::from_nanos(now + 400_000_000)),
        chap: Secret::new(SECRET.to_owned()).ok(),
    };
    pool.create_token(spec).expect("a token");
    ready(&rig, "brief");
    let first = [NAME, ("TargetName", &*rig.target)];
    eventually("it has expired", || log_in(&rig, &first, ("brief", SECRET)).1 == DENIED);
}

#[test]
fn a_target_proves_itself_to_tokens_that_see_it_alone() {
    let tokens: &[(&str, Role, &[&str])] =
        &[("here", Role::Reader, &["disk"]), ("elsewhere", Role::Admin, &["pg*"])];
    let (rig, _pool) = with_tokens(tokens, |_| {});
    protect(&rig);
    for (user, is_proved) in [("here", true), ("elsewhere", false)] {
        let mut initiator = Initiator::new(rig.address, 3);
        let challenge = challenged(&mut initiator, &[NAME, ("TargetName", &*rig.target)], "5");
        let response = digest(Algorithm::Md5, &challenge, SECRET.as_bytes());
        let response = text::hexadecimal_text(&response);
        let said =
            [("CHAP_N", user), ("CHAP_R", &*response), ("CHAP_I", "7"), ("CHAP_C", "0xabcd")];
        let (_, answered) = initiator.ask((Stage::Security, None), &said);
        assert_eq!(answered.iter().any(|(key, _)| key == "CHAP_R"), is_proved, "{user}");
    }
}

#[test]
fn beyond_this_machine_a_token_is_a_proof_and_discovery_names_what_it_sees() {
    let tokens: &[(&str, Role, &[&str])] = &[
        ("reader", Role::Reader, &["di*"]),
        ("viewer", Role::Viewer, &[]),
        ("elsewhere", Role::Admin, &["pg*"]),
    ];
    let (rig, _pool) = with_tokens(tokens, |context| context.is_safe = |_| false);
    let unproved = Initiator::new(rig.address, 1).log_in(&rig.target);
    assert_eq!(unproved, LoginStatus::AUTHENTICATION_FAILURE);
    ready(&rig, "reader");
    let discovery = [NAME, ("SessionType", "Discovery")];
    for (user, sees) in [("reader", true), ("viewer", false), ("elsewhere", false)] {
        let (mut initiator, status) = log_in(&rig, &discovery, (user, SECRET));
        assert_eq!(status, LoginStatus::SUCCESS);
        assert_eq!(discovered(&mut initiator).contains(&rig.target), sees, "{user}");
    }
    // The list of initiators holds for tokens too.
    rig.disk.access.lock().allow = vec!["iqn.2026-11.org.example:other".to_owned()];
    let status = Initiator::new(rig.address, 9).log_in(&rig.target);
    assert_eq!(status, LoginStatus::AUTHORIZATION_FAILURE);
}

#[test]
fn a_target_of_several_units_is_for_tokens_that_see_all_of_them() {
    let tokens: &[(&str, Role, &[&str])] =
        &[("one", Role::Operator, &["disk"]), ("both", Role::Operator, &["disk", "oth*"])];
    let (rig, _pool) = with_tokens(tokens, |_| {});
    let unit = |number, (volume_id, volume): (u64, &str)| UnitInfo {
        number,
        volume_id,
        volume: Some(volume.to_owned()),
        seq: None,
    };
    *rig.made.lock() = vec![TargetInfo {
        id: 1,
        name: "t".to_owned(),
        created: WallTime::from_nanos(0),
        units: vec![unit(0, (DISK, "disk")), unit(1, (OTHER, "other"))],
        retired: Vec::new(),
        access: volume::Access {
            chap: Some(credential("me", "a-secret-of-ours")),
            ..Default::default()
        },
    }];
    let name = rig.context.targets.name_of("t").expect("a name");
    let first = [NAME, ("TargetName", &*name)];
    let status = |user| log_in(&rig, &first, (user, SECRET)).1;
    assert_eq!(status("one"), LoginStatus::AUTHENTICATION_FAILURE);
    assert_eq!(status("both"), LoginStatus::SUCCESS);
    // Units that are added while its session lives are no more its own than at a login.
    rig.made.lock()[0].units.pop();
    let (mut initiator, status) = log_in(&rig, &first, ("one", SECRET));
    assert_eq!(status, LoginStatus::SUCCESS);
    initiator.command(1, &READY, 0, &[]);
    initiator.sense();
    for (number, (volume, name)) in [(1, (OTHER, "other")), (2, (DISK, "disk"))] {
        rig.made.lock()[0].units.push(unit(number, (volume, name)));
        rig.context.targets.tell_of_change();
        std::thread::sleep(std::time::Duration::from_millis(300));
        initiator.command(2, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0], 64, &[]);
        let luns = initiator.data()[3] / 8;
        assert_eq!(luns, 1, "neither what it does not see, nor half of the change");
    }
}
