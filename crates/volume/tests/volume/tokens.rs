//! Tokens are kept with the pool: one that was made is there, one that was revoked is not.

use hindsight_volume::{ErrorKind, Secret, TOKEN_PATTERNS_MAX, TokenSpec, on_behalf_of};
use units::{Role, WallTime};

use crate::hook::Rig;

fn spec(name: &str, id: &str) -> TokenSpec {
    TokenSpec {
        name: name.to_owned(),
        id: id.to_owned(),
        secret_sha256: [0xa5; 32],
        role: Role::Keeper,
        volumes: vec!["pg*".parse().expect("a pattern")],
        expires: None,
        chap: Secret::new("twelvechars1".to_owned()).ok(),
    }
}

fn kind<T: std::fmt::Debug>(result: hindsight_volume::Result<T>) -> ErrorKind {
    result.expect_err("refused").kind
}

#[test]
fn tokens_outlive_the_pool_and_revoked_ones_do_not() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    assert!(pool.tokens().is_empty());
    let make = || pool.create_token(spec("nightly", "abcdefghij"));
    let made = on_behalf_of("unix:0 root", None, make).expect("made");
    assert_eq!(kind(pool.create_token(spec("nightly", "bbbbbbbbbb"))), ErrorKind::Exists);
    assert_eq!(kind(pool.create_token(spec("other", "abcdefghij"))), ErrorKind::Exists);
    assert_eq!(kind(pool.create_token(spec("a b", "cccccccccc"))), ErrorKind::Invalid);
    let many = vec!["x".parse().expect("a pattern"); TOKEN_PATTERNS_MAX + 1];
    let many = TokenSpec { volumes: many, ..spec("many", "cccccccccc") };
    assert_eq!(kind(pool.create_token(many)), ErrorKind::Invalid);
    let past = TokenSpec { expires: Some(WallTime::from_nanos(1)), ..spec("past", "cccccccccc") };
    assert_eq!(kind(pool.create_token(past)), ErrorKind::Invalid);
    pool.create_token(spec("gone", "dddddddddd")).expect("made");
    let gone = pool.token_by_id("dddddddddd").expect("found");
    pool.revoke_token("gone").expect("revoked");
    assert!(gone.is_revoked() && pool.token_by_id("dddddddddd").is_none());

    let noon = WallTime::from_nanos(20_000 * 86_400_000_000_000 + 43_200_000_000_000);
    assert!(made.used().is_none() && made.note_use(noon) && !made.note_use(noon));
    assert!(!made.note_use(WallTime::from_nanos(5)), "an earlier day is no use that is recorded");
    pool.record_token_use(&made).expect("written");
    pool.record_token_use(&gone).expect("passed over");
    drop((made, gone, pool));

    let pool = rig.open();
    let [found] = &pool.tokens()[..] else { panic!("one token") };
    assert_eq!(found.spec, spec("nightly", "abcdefghij"));
    assert_eq!(found.made_by.as_deref(), Some("unix:0 root"));
    let midnight = WallTime::from_nanos(20_000 * 86_400_000_000_000);
    assert_eq!(found.used(), Some(midnight));
    assert!(pool.token_by_id("abcdefghij").is_some());
    assert_eq!(kind(pool.token("gone")), ErrorKind::NotFound);
    let told = pool.audit(0, 100).expect("read");
    let told: Vec<&str> = told.iter().map(|record| &*record.action).collect();
    assert_eq!(told, ["token-create", "token-create", "token-revoke"]);
}
