//! The page of our own format against the code.

use hindsight_trace::native::{FrameEncoder, TraceHeader, layout};
use hindsight_trace::{Request, RequestKind};

use crate::page::{compare_example, compare_tables, table};

fn example() -> Vec<u8> {
    let read = Request {
        time_ns: 0,
        device: 0,
        kind: RequestKind::Read,
        is_fua: false,
        offset_bytes: 8192,
        length_bytes: 4096,
    };
    let write = Request {
        time_ns: 1_000_000,
        kind: RequestKind::Write,
        is_fua: true,
        offset_bytes: 12288,
        ..read
    };
    let flush =
        Request { time_ns: 1_000_500, device: 1, kind: RequestKind::Flush, ..Request::default() };
    let mut encoder = FrameEncoder::default();
    for request in [read, write, flush] {
        encoder.push_request(&request);
    }
    let header = TraceHeader { start: 1_795_255_200_000_000_000 }.encode().to_vec();
    let names = [FrameEncoder::name("sda", 0), FrameEncoder::name("sdb", 1)].concat();
    let requests = encoder.requests(0).to_vec();
    [header, names, requests, FrameEncoder::end(3, 1_000_500)].concat()
}

#[test]
fn the_page_has_the_fields_and_the_example_of_the_code() {
    compare_tables(&[
        table("trace", "trace header", layout::FIELDS),
        table("trace", "frame header", layout::FRAME_FIELDS),
    ]);
    compare_example(("trace", "trace", example()));
}
