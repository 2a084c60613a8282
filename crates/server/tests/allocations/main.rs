//! The hot path allocates nothing for a request: counted, with an allocator that counts. A binary
//! of its own, with one test, so that nothing else allocates meanwhile.

mod measure;

use measure::{CASES, Rig};

#[global_allocator]
static ALLOCATOR: env::CountingAllocator = env::CountingAllocator;

/// Cases of `CASES` that are the hot path.
const HOT: usize = 9;
/// What may be counted for each of some thousand requests: what the map and the times of batches
/// grow by, and what the background thread does meanwhile.
const CALLS_MAX: f64 = 0.02;

#[test]
fn the_hot_path_allocates_nothing_for_a_request() {
    let mut rig = Rig::start(|_| {});
    for (index, case) in CASES.into_iter().enumerate() {
        let found = rig.measure(case, 2000);
        let is_hot = index < HOT;
        if is_hot && found.calls > CALLS_MAX {
            let stacks = rig.stacks(case, 200);
            let shown: Vec<&str> = stacks.iter().take(5).map(|(_, s)| s.as_str()).collect();
            let (calls, bytes) = (found.calls, found.bytes);
            panic!("{}: {calls} times {bytes} bytes\n{}", case.name, shown.join("\n----\n"));
        }
    }
}
