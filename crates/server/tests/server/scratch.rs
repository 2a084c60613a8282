//! Scratch clones: made without a name, gone when nobody needs them, kept when they are renamed.

use std::time::{Duration, Instant};

use api::{CreateClone, CreateShare, ProblemKind, Rename, SpanInput, Volume};
use units::Span;

use crate::fixture::{Fixture, attach, kind};

const SECOND_NS: u64 = 1_000_000_000;

fn scratch(fixture: &Fixture, length_ns: u64) -> Volume {
    let scratch = Some(SpanInput(Span(length_ns)));
    let body = CreateClone { scratch, ..CreateClone::default() };
    fixture.client.create_clone("v", &body).expect("cloned")
}

fn is_there(fixture: &Fixture, name: &str) -> bool {
    fixture.client.volume(name).is_ok()
}

fn wait_until_gone(fixture: &Fixture, name: &str) {
    let began = Instant::now();
    while is_there(fixture, name) {
        assert!(began.elapsed() < Duration::from_secs(60), "{name} stays");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_scratch_clone_goes_when_its_time_is_over_and_nobody_has_it() {
    let fixture = Fixture::with_volume();
    fixture.write(0, 1);
    let (held, kept, idle) =
        (scratch(&fixture, SECOND_NS), scratch(&fixture, SECOND_NS), scratch(&fixture, SECOND_NS));
    assert!(held.name.starts_with("v-scratch-"), "{}", held.name);
    let until = held.scratch_until.expect("it is one").0;
    assert!(until > held.created.0);
    let attached = attach(&fixture.nbd_socket(), &held.name);
    let rename = Rename { name: "mine".to_owned(), dry_run: false };
    fixture.client.rename_volume(&kept.name, &rename).expect("renamed");
    wait_until_gone(&fixture, &idle.name);
    let long = scratch(&fixture, 3600 * SECOND_NS);
    // The others' time is over as well by now.
    std::thread::sleep(Duration::from_millis(300));
    assert!(is_there(&fixture, &held.name), "a client has it");
    drop(attached);
    wait_until_gone(&fixture, &held.name);
    assert!(fixture.client.volume("mine").expect("kept").scratch_until.is_none());
    assert!(is_there(&fixture, &long.name));
    assert!(fixture.client.trash().expect("told").is_empty());
}

#[test]
fn a_server_leaves_no_scratch_clones_and_starts_without_them() {
    let mut fixture = Fixture::with_volume();
    let clone = scratch(&fixture, 3600 * SECOND_NS);
    fixture.restart();
    assert!(!is_there(&fixture, &clone.name));
    assert!(is_there(&fixture, "v"));
}

#[test]
fn a_scratch_clone_that_cannot_be_is_refused() {
    let fixture = Fixture::with_volume();
    let ask = |name: &str, length_ns, full| {
        let scratch = Some(SpanInput(Span(length_ns)));
        let body = CreateClone { name: name.to_owned(), scratch, full, ..CreateClone::default() };
        kind(fixture.client.create_clone("v", &body))
    };
    for (length_ns, full) in [(0, false), (8 * 86_400 * SECOND_NS, false), (SECOND_NS, true)] {
        assert_eq!(ask("s", length_ns, full), ProblemKind::Invalid);
    }
    assert_eq!(ask("v", SECOND_NS, false), ProblemKind::Exists);
    assert_eq!(
        kind(fixture.client.create_clone("v", &CreateClone::default())),
        ProblemKind::Invalid
    );
    assert_eq!(fixture.client.volumes().expect("listed").len(), 1);
}

#[test]
fn a_share_has_none_as_nobody_knows_who_has_it_mounted() {
    let fixture = Fixture::with_volume();
    let share = CreateShare { name: "home".to_owned(), ..CreateShare::default() };
    fixture.client.create_share(&share).expect("made");
    let scratch = Some(SpanInput(Span(SECOND_NS)));
    let body = CreateClone { scratch, ..CreateClone::default() };
    assert_eq!(kind(fixture.client.create_clone("home", &body)), ProblemKind::Invalid);
}
