//! Logins that come to nothing, and names.

use wire::iscsi::LoginStatus;

use super::initiator::{Initiator, Rig};

const NAME: (&str, &str) = ("InitiatorName", "iqn.2026-11.org.example:test");

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
