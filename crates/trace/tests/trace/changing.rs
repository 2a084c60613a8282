//! Cutting and scaling.

use hindsight_trace::RequestKind::{Flush, Read, Write};
use hindsight_trace::change::{Cut, CutSource, FlushedSource, Scale, ScaledSource};
use hindsight_trace::{ErrorKind, Request, Source};

use crate::traces::{List, all, request};

fn requests() -> Vec<Request> {
    vec![
        request(0, 0, Write, 0, 8192),
        request(10, 1, Read, 4096, 4096),
        request(20, 0, Flush, 0, 0),
        request(30, 0, Write, 12_288, 4096),
        request(40, 2, Write, 4096, 512),
    ]
}

fn cut(cut: Cut) -> Vec<Request> {
    all(&mut CutSource::new(List::new(requests()), cut))
}

#[test]
fn a_flush_comes_after_every_so_many_writes_of_a_device() {
    let source = List::new(requests());
    let kinds = |every: u64| {
        let mut flushed = FlushedSource::new(List::new(requests()), every).expect("above 0");
        all(&mut flushed).into_iter().map(|r| (r.time_ns, r.device, r.kind)).collect::<Vec<_>>()
    };
    let [write, read, flush] = [Write, Read, Flush];
    let two = [(0, 0, write), (10, 1, read), (20, 0, flush), (30, 0, write), (30, 0, flush)];
    assert_eq!(kinds(2)[..5], two);
    assert_eq!(kinds(2).len(), 6, "device 2 was written once");
    assert_eq!(kinds(1).len(), 8);
    assert!(FlushedSource::new(source, 0).is_err());
}

#[test]
fn a_trace_is_cut_by_time_and_begins_at_zero() {
    let kept = cut(Cut { since_ns: 10, until_ns: Some(40), ..Cut::default() });
    assert_eq!(kept.iter().map(|r| r.time_ns).collect::<Vec<_>>(), [0, 10, 20]);
}

#[test]
fn a_trace_is_cut_by_device_kind_number_and_range() {
    let devices = vec!["d0".to_owned()];
    assert_eq!(cut(Cut { devices, ..Cut::default() }).len(), 3);
    assert_eq!(cut(Cut { kinds: vec![Write], ..Cut::default() }).len(), 3);
    assert_eq!(cut(Cut { requests_max: Some(2), ..Cut::default() }).len(), 2);
    let kept = cut(Cut { range_bytes: Some((4096, 12_288)), ..Cut::default() });
    let expected = [
        request(0, 0, Write, 4096, 4096),
        request(10, 1, Read, 4096, 4096),
        request(20, 0, Flush, 0, 0),
        request(40, 2, Write, 4096, 512),
    ];
    assert_eq!(kept, expected);
}

#[test]
fn a_trace_is_scaled_in_time_and_space() {
    let scale = Scale { time: 0.5, space: 2.0 };
    let scaled = all(&mut ScaledSource::new(List::new(requests()), scale).unwrap());
    let expected = [
        request(0, 0, Write, 0, 8192),
        request(5, 1, Read, 8192, 4096),
        request(10, 0, Flush, 0, 0),
        request(15, 0, Write, 24_576, 4096),
        request(20, 2, Write, 8192, 512),
    ];
    assert_eq!(scaled, expected);
}

#[test]
fn factors_that_make_no_trace_are_refused() {
    for time in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e7] {
        let scaled = ScaledSource::new(List::new(Vec::new()), Scale { time, space: 1.0 });
        assert_eq!(scaled.err().unwrap().kind, ErrorKind::Setting);
    }
    let far = vec![request(0, 0, Write, 1 << 61, 512)];
    let mut scaled = ScaledSource::new(List::new(far), Scale { time: 1.0, space: 1e6 }).unwrap();
    assert_eq!(scaled.next().unwrap_err().kind, ErrorKind::Setting);
}
