//! The cost model on what the clients of a volume do, and architectures chosen by it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use api::{AdviceQuery, CreateVolume, ModelQuery, ProblemKind};
use units::Granularity;

use crate::fixture::{
    Fixture, NBD_READ, NBD_WRITE, attach, kind, nbd_request, new_volume, problem,
};

const BLOCK: u32 = 4096;

/// Writes a block so many times, at one place after the other of so many.
fn write(stream: &mut UnixStream, times: u64, places: u64) {
    for time in 0..times {
        let offset = time % places * u64::from(BLOCK);
        stream.write_all(&nbd_request(NBD_WRITE, offset, &[1; 4096], BLOCK)).expect("send");
        stream.read_exact(&mut [0; 16]).expect("a reply");
    }
}

/// Reads a volume of 1 MiB from one end to the other.
fn read_all(stream: &mut UnixStream) {
    for block in 0..256 {
        let offset = block * u64::from(BLOCK);
        stream.write_all(&nbd_request(NBD_READ, offset, &[], BLOCK)).expect("send");
        stream.read_exact(&mut [0; 16 + 4096]).expect("a reply");
    }
}

fn like(name: &str, other: &str) -> CreateVolume {
    let (architecture, like) = (Some("auto".to_owned()), Some(other.to_owned()));
    CreateVolume { architecture, like, ..new_volume(name, 1 << 20) }
}

#[test]
fn what_clients_ask_is_measured_and_advised_on() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    let nothing = problem(client.model("v", &ModelQuery::default()));
    assert_eq!(nothing.problem_kind(), Some(ProblemKind::NotMeasured));
    assert!(nothing.hint.expect("a hint").contains("hindsight trace record"));
    let mut stream = attach(&fixture.nbd_socket(), "v");
    assert_eq!(kind(client.advice("v", &AdviceQuery::default())), ProblemKind::NotMeasured);
    write(&mut stream, 300, 100);

    let model = client.model("v", &ModelQuery::default()).expect("measured");
    assert_eq!((model.requests, model.writes, model.extents), (300, 300, 100.0));
    assert!(!model.is_sampled && model.duration_ns > 0);
    assert_eq!((model.forecasts.len(), model.wait_ns), (9, Some(0.0)));
    let every = model.forecasts[0].ios.iter();
    let ios: Vec<_> = every.map(|one| (one.architecture.as_str(), one.writes)).collect();
    let splits = [("split-stream", 2.0), ("split-downstream", 2.0), ("checkpointing", 2.0)];
    let others = [("hybrid", 2.0)];
    assert_eq!(ios, [&[("logging", 1.0), ("redirect", 1.0)][..], &splits, &others].concat());
    let asked = ModelQuery {
        granularity: Some("every-write,1s".to_owned()),
        cache: Some("64MiB".to_owned()),
        dirty: Some(50.0),
    };
    let model = client.model("v", &asked).expect("measured");
    // The server's 32 MiB of memory allow a cache of 16 MiB, of which half may be dirty.
    assert_eq!((model.forecasts.len(), model.dirty_pages), (2, 2048));
    // A pause between two writes of all blocks, and all are taken to be written again in the end:
    // the cache is never full then, and the wait has no end (null).
    assert!(model.wait_ns.is_none_or(|wait_ns| wait_ns > 0.0));
    assert_eq!(model.forecasts[0].granularity, Granularity::EveryWrite);
    let asked = AdviceQuery { cache: Some("0".to_owned()), ..AdviceQuery::default() };
    let advice = client.advice("v", &asked).expect("advice");
    assert_eq!((advice.plan.architecture.as_str(), advice.others.len()), ("logging", 5));
    assert!(advice.plan.ios_per_day > 0.0 && !advice.reasons.is_empty());
    drop(stream);
    // What comes by the same name is another volume.
    client.delete_volume("v", false).expect("delete");
    client.create_volume(&new_volume("v", 1 << 20)).expect("create");
    assert_eq!(kind(client.model("v", &ModelQuery::default())), ProblemKind::NotMeasured);
    assert_eq!(kind(client.model("w", &ModelQuery::default())), ProblemKind::NotFound);
}

#[test]
fn auto_takes_the_architecture_that_suits_another_volume() {
    let fixture = Fixture::with_volume();
    let client = &fixture.client;
    let mut stream = attach(&fixture.nbd_socket(), "v");
    let without = CreateVolume { like: None, ..like("new", "v") };
    let refused = problem(client.create_volume(&without));
    assert_eq!(refused.problem_kind(), Some(ProblemKind::Invalid));
    assert!(refused.hint.expect("a hint").contains("--like"));
    assert_eq!(kind(client.create_volume(&like("new", "w"))), ProblemKind::NotFound);
    write(&mut stream, 999, 100);
    let few = problem(client.create_volume(&like("new", "v")));
    assert_eq!(few.problem_kind(), Some(ProblemKind::NotMeasured));
    assert!(few.detail.contains("999 blocks"), "{few:?}");
    write(&mut stream, 1, 100);
    assert_eq!(client.create_volume(&like("written", "v")).expect("made").architecture, "logging");
    // Sequential reads to a good part: then data stays in place.
    for _ in 0..2 {
        read_all(&mut stream);
    }
    assert_eq!(
        client.create_volume(&like("read", "v")).expect("made").architecture,
        "checkpointing"
    );
    let other = CreateVolume { architecture: Some("logging".to_owned()), ..like("other", "v") };
    assert_eq!(kind(client.create_volume(&other)), ProblemKind::Invalid);
    assert_eq!(client.volumes().expect("list").len(), 3);
}

#[test]
fn bad_questions_are_refused() {
    let fixture = Fixture::with_volume();
    let many = vec!["1s"; 65].join(",");
    for query in ["cache=much", "granularity=1s,often", "dirty=0", "dirty=101", "dirty=x", "size=1"]
    {
        assert_eq!(fixture.send("GET", &format!("/volumes/v/model?{query}"), "").0, 400, "{query}");
        assert_eq!(
            fixture.send("GET", &format!("/volumes/v/advice?{query}"), "").0,
            400,
            "{query}"
        );
    }
    assert_eq!(fixture.send("GET", &format!("/volumes/v/model?granularity={many}"), "").0, 400);
    for query in ["window=1", "history_limit=-1"] {
        assert_eq!(
            fixture.send("GET", &format!("/volumes/v/advice?{query}"), "").0,
            400,
            "{query}"
        );
    }
}
