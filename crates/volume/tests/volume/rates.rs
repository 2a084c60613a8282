//! Limits of scrubs and rebuilds in bytes a second, by a clock that only moves when it is told to.

use std::num::NonZeroU64;

use block::Standing;
use hindsight_volume::{Budget, ErrorKind, Pool, RateChange, Rates, ScrubState};

use crate::hook::SECOND_NS;
use crate::scrub::{Pair, fill};

const MIB: u64 = 1 << 20;
/// As the server does when it looks after background work.
const TICK_NS: u64 = 50_000_000;
const STEP: Budget = Budget { bytes: 8 * MIB };

/// Works in ticks until `is_over`; says how many there were. `done` never runs ahead of a limit.
fn work(
    pair: &Pair,
    per_second: u64,
    mut step: impl FnMut() -> bool,
    done: impl Fn() -> u64,
    is_over: impl Fn() -> bool,
) -> u64 {
    let mut ticks = 0;
    while !is_over() {
        while step() {}
        let allowed = per_second * ticks * TICK_NS / SECOND_NS;
        // What was not used before it began, and the last step.
        let ahead = per_second / 10 + 3 * MIB;
        assert!(done() <= allowed + ahead, "{} in {ticks} ticks, {allowed} may be", done());
        pair.clock.advance(TICK_NS);
        ticks += 1;
        assert!(ticks < 100_000, "it does not come to its end");
    }
    ticks
}

fn scrub_ticks(pair: &Pair, pool: &Pool, per_second: u64) -> (u64, u64) {
    pool.set_rates(Rates { scrub: NonZeroU64::new(per_second), ..Rates::default() });
    pool.scrubs().start().expect("started");
    let info = || pool.scrubs().info().expect("there is one");
    let step = || pool.step_job("scrub", STEP).expect("stepped");
    let done = || info().record.read_bytes;
    let ticks = work(pair, per_second, step, done, || info().state == ScrubState::Done);
    (ticks, info().record.read_bytes)
}

#[test]
fn a_scrub_reads_as_much_a_second_as_it_may_and_no_more() {
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open();
    for _ in 0..8 {
        drop(fill(&pool));
        pool.delete_volume("v").expect("deleted");
    }
    let volume = fill(&pool);
    for per_second in [MIB, 4 * MIB] {
        let (ticks, read) = scrub_ticks(&pair, &pool, per_second);
        let least = read * SECOND_NS / per_second / TICK_NS;
        assert!(ticks >= least - least / 4 - 2, "{ticks} ticks for {read} bytes");
        assert!(ticks <= least + least / 4 + 2, "{ticks} ticks for {read} bytes: too slow");
    }
    drop(volume);
}

#[test]
fn a_member_that_came_back_gets_as_much_a_second_as_it_may_and_no_more() {
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open_on_one();
    let volume = fill(&pool);
    drop(volume);
    pool.close().expect("closed");
    drop(pool);
    let pool = pair.open();
    let is_in = || pool.members().iter().all(|member| member.standing == Standing::In);
    assert!(!is_in() && pool.behind_bytes() > 4 * MIB, "{}", pool.behind_bytes());
    let (behind, per_second) = (pool.behind_bytes(), MIB / 2);
    pool.set_rates(Rates { rebuild: NonZeroU64::new(per_second), ..Rates::default() });
    let step = || pool.step(STEP).expect("stepped");
    let done = || behind - pool.behind_bytes();
    let ticks = work(&pair, per_second, step, done, is_in);
    let most = behind * SECOND_NS / per_second / TICK_NS;
    assert!((most / 2..=most + most / 4 + 2).contains(&ticks), "{ticks} ticks, {most} for all");
}

#[test]
fn a_limit_that_is_changed_while_a_scrub_runs_holds_from_then_on_and_is_noted() {
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open();
    let volume = fill(&pool);
    pair.clock.advance(SECOND_NS);
    let rebuild = NonZeroU64::new(7 * MIB);
    pool.set_rates(Rates { rebuild, ..Rates::default() });
    let scrub = |limit| RateChange { scrub: Some(NonZeroU64::new(limit)), ..RateChange::default() };
    let info = || pool.scrubs().info().expect("there is one");
    let step = || pool.step_job("scrub", STEP).expect("stepped");
    let mut before = 0;
    for limit in [MIB / 16, MIB] {
        let rates = pool.change_rates(scrub(limit)).expect("changed");
        assert_eq!(rates, Rates { scrub: NonZeroU64::new(limit), rebuild });
        assert_eq!(pool.rates(), rates);
        if before == 0 {
            pool.scrubs().start().expect("started");
        }
        // A step, and no more before it is paid for; a tenth of a second was not used.
        assert!(!step() && !step(), "the clock stands still");
        let read = info().record.read_bytes - before;
        before += read;
        let cost_ns = read * SECOND_NS / limit;
        pair.clock.advance(cost_ns.saturating_sub(SECOND_NS / 10 + 1));
        assert!(!step() && info().record.read_bytes == before, "it is not quite paid for");
        assert_eq!(info().state, ScrubState::Running, "there is more");
        let error = pool.change_rates(scrub(1)).expect_err("too little");
        assert_eq!((error.kind, pool.rates()), (ErrorKind::Invalid, rates));
    }
    let none = RateChange { scrub: Some(None), rebuild: Some(None) };
    assert_eq!(pool.change_rates(none).expect("changed"), Rates::default());
    while step() {}
    assert_eq!(info().state, ScrubState::Done, "nothing keeps it any more");
    pool.change_rates(RateChange::default()).expect("nothing is asked for");
    let all = pool.audit(0, usize::MAX).expect("read");
    let told: Vec<String> =
        all.into_iter().filter(|r| r.action == "rates").map(|r| r.detail).collect();
    let free = "scrub without a limit, rebuild without a limit";
    assert_eq!(told, ["scrub at most 64KiB a second", "scrub at most 1MiB a second", free]);
    drop(volume);
}
