//! The hot path allocates nothing for a request: counted, with an allocator that counts. A binary
//! of its own, with one test, so that nothing else allocates meanwhile.

#[path = "../../../env/support/counting.rs"]
mod counting;
mod measure;

use measure::{CASES, Rig};

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// Cases of `CASES` that are the hot path.
const HOT: usize = 9;
/// Times that each is counted. What a request allocates is there every time; what a writer does for
/// the background thread when that is behind (another segment, the map) is there some time.
const WINDOWS: usize = 9;
/// Requests of each.
const REQUESTS: usize = 200;
/// What may be counted for each request: what the map and the times of batches grow by.
const CALLS_MAX: f64 = 0.02;

#[test]
fn the_hot_path_allocates_nothing_for_a_request() {
    let mut rig = Rig::start(|_| {});
    for (index, case) in CASES.into_iter().enumerate() {
        let mut found: Vec<_> = (0..WINDOWS).map(|_| rig.measure(case, REQUESTS)).collect();
        found.sort_by(|a, b| a.calls.total_cmp(&b.calls));
        let median = found[WINDOWS / 2];
        if index < HOT && median.calls > CALLS_MAX {
            let stacks = rig.stacks(case, REQUESTS);
            let shown: Vec<&str> = stacks.iter().take(5).map(|(_, s)| s.as_str()).collect();
            let (name, calls, bytes) = (case.name, median.calls, median.bytes);
            panic!("{name}: {calls} times, {bytes} bytes\n{}", shown.join("\n----\n"));
        }
    }
}
