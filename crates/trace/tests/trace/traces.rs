//! What tests share: traces in memory.

use std::io::Cursor;

use hindsight_trace::read::{Input, ReadOptions, Reader};
use hindsight_trace::{Devices, Error, Request, RequestKind, Source};

/// A reader of one input.
pub fn open(bytes: &[u8], options: ReadOptions) -> Result<Reader, Error> {
    let bytes = Box::new(Cursor::new(bytes.to_vec()));
    Reader::open(vec![Input { name: "input".to_owned(), bytes }], options)
}

/// Everything that a source gives.
pub fn all(source: &mut dyn Source) -> Vec<Request> {
    let mut requests = Vec::new();
    while let Some(request) = source.next().expect("a sound source") {
        requests.push(request);
    }
    requests
}

/// A request in few words.
pub fn request(time_ns: u64, device: u32, kind: RequestKind, offset: u64, length: u64) -> Request {
    Request { time_ns, device, kind, is_fua: false, offset_bytes: offset, length_bytes: length }
}

/// A source of a list.
pub struct List {
    pub requests: std::vec::IntoIter<Request>,
    pub devices: Devices,
}

impl List {
    pub fn new(requests: Vec<Request>) -> List {
        let names: Vec<String> = (0..8).map(|number| format!("d{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        List { requests: requests.into_iter(), devices: Devices::of(&names).expect("few") }
    }
}

impl Source for List {
    fn next(&mut self) -> Result<Option<Request>, Error> {
        Ok(self.requests.next())
    }

    fn devices(&self) -> &Devices {
        &self.devices
    }

    fn start(&self) -> u64 {
        0
    }
}
