//! What NBD requests allocate: `allocations [ROUNDS] [REQUESTS]` prints one JSON object a line, for
//! `cargo x bench allocations`; `allocations stacks CASE` prints the stacks that a case allocates
//! at, those that occur most often first.

use std::collections::BTreeMap;

#[path = "../../env/support/counting.rs"]
mod counting;
#[path = "../tests/allocations/measure.rs"]
mod measure;

use measure::{CASES, Rig};

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, name] = &arguments[..]
        && first == "stacks"
    {
        return stacks(name);
    }
    let number = |at: usize, usual| arguments.get(at).map_or(Ok(usual), |text| text.parse());
    let rounds: usize = number(0, 5).expect("a number of rounds");
    let requests: usize = number(1, 2000).expect("a number of requests");
    let mut rig = Rig::start(|_| {});
    for round in 0..rounds {
        for case in CASES {
            let found = rig.measure(case, requests);
            let (name, calls, bytes) = (case.name, found.calls, found.bytes);
            println!(
                "{{\"case\":\"{name}\",\"round\":{round},\
                 \"calls\":{calls:.4},\"bytes\":{bytes:.1}}}"
            );
        }
    }
}

fn stacks(name: &str) {
    let case = CASES.into_iter().find(|case| case.name == name).expect("a case by that name");
    let mut rig = Rig::start(|_| {});
    let mut found: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let stacks = rig.stacks(case, 500);
    for (bytes, stack) in stacks
        .into_iter()
        .filter(|(_, stack)| stack.contains("::nbd::") || stack.contains("::serving::"))
    {
        let is_ours = |line: &&str| line.contains("hindsight") && !line.contains("call_once");
        let ours: Vec<&str> = stack.lines().filter(is_ours).take(6).collect();
        let entry = found.entry(ours.join("\n")).or_default();
        *entry = (entry.0 + 1, entry.1 + bytes);
    }
    let mut sorted: Vec<_> = found.into_iter().collect();
    sorted.sort_by_key(|(_, (calls, _))| std::cmp::Reverse(*calls));
    for (stack, (calls, bytes)) in sorted {
        println!("{calls} allocations, {bytes} bytes\n{stack}\n");
    }
}
