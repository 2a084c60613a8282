//! What a trace may be: read or refused in every format, never a panic; what is read is in order,
//! in range and named.

#![no_main]

use std::io::Cursor;

use hindsight_trace::Source;
use hindsight_trace::read::{Format, Input, ReadOptions, Reader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (which, bytes) = input;
    let format = Format::ALL.get(usize::from(which % 16)).copied();
    let bytes = Box::new(Cursor::new(bytes.to_vec()));
    let inputs = vec![Input { name: "input".to_owned(), bytes }];
    let options = ReadOptions { format, ..ReadOptions::default() };
    let Ok(mut reader) = Reader::open(inputs, options) else { return };
    let mut last_ns = 0;
    while let Ok(Some(request)) = reader.next() {
        assert!(request.is_valid() && request.time_ns >= last_ns);
        assert!((request.device as usize) < reader.devices().names().len());
        last_ns = request.time_ns;
    }
});
