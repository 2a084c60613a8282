//! What happens to members that are away is written down.

use block::Standing;
use hindsight_volume::Pool;

use crate::scrub::{Pair, fill};

#[test]
fn what_happened_to_members_is_in_the_audit_log_when_it_is_asked_for() {
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open();
    let volume = fill(&pool);
    pool.close().expect("closed");
    drop((pool, volume));
    // No step in between: whoever sees a member that is out finds it in the log as well.
    let told = |pool: &Pool, action: &str| {
        let records = pool.audit(0, 1000).expect("the log");
        records.iter().filter(|record| record.action == action).count()
    };
    let pool = pair.open_on_one();
    assert!(pool.members().iter().any(|member| member.standing == Standing::Out));
    assert_eq!(told(&pool, "member-out"), 1);
    assert_eq!(told(&pool, "member-out"), 1, "once");
}
