//! Serves memory over NBD, to measure sessions without an engine under them.
//!
//! `nbd_null SOCKET [null|memory] [SIZE_BYTES] [THREADS]`; ends when standard input does.

use std::io::Read;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, RwLock};

use hindsight_server::nbd::NbdContext;
use hindsight_server::serving::{
    Changes, DataThreads, Export, Exports, Limits, Listed, Listeners, OpenError, RoomQueue, Serving,
};
use hindsight_server::{Attachments, Part, VolumeId};
use volume::{Error, ErrorKind, Extent, Lack, Result, RoomWait, WriteOp, Written};

struct One(Arc<Memory>);

struct Memory {
    size_bytes: u64,
    /// `None` takes writes and forgets them.
    bytes: Option<RwLock<Vec<u8>>>,
}

impl Exports for One {
    fn open(&self, _: &str) -> std::result::Result<Arc<dyn Export>, OpenError> {
        Ok(Arc::clone(&self.0) as Arc<dyn Export>)
    }

    fn list(&self, _: usize) -> Vec<Listed> {
        vec![Listed { name: "memory".to_owned(), description: String::new() }]
    }
}

impl Export for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn description(&self) -> String {
        String::new()
    }

    fn part_of(&self) -> (VolumeId, Part) {
        (1, Part::Present)
    }

    fn is_served(&self) -> bool {
        true
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        match &self.bytes {
            None => buffer.fill(0xa5),
            Some(bytes) => {
                let offset = offset as usize;
                let bytes = bytes.read().map_err(|_| broken())?;
                buffer.copy_from_slice(&bytes[offset..offset + buffer.len()]);
            }
        }
        Ok(())
    }

    fn try_read(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.read(offset, buffer).map(|()| true)
    }

    fn write_some(&self, ops: &[WriteOp<'_>], _: u64, _: bool) -> Result<Written> {
        let Some(bytes) = &self.bytes else { return Ok(Written::All) };
        let mut all = bytes.write().map_err(|_| broken())?;
        for op in ops {
            match *op {
                WriteOp::Data { offset, bytes } => {
                    all[offset as usize..][..bytes.len()].copy_from_slice(bytes);
                }
                WriteOp::Zero { offset, length_bytes } => {
                    all[offset as usize..][..length_bytes as usize].fill(0);
                }
            }
        }
        Ok(Written::All)
    }

    fn wait_for(&self, _: Lack, _: &mut RoomWait, _: &dyn Fn() -> bool) -> Result<()> {
        Ok(())
    }

    fn flush(&self, _: &dyn Fn() -> bool) -> Result<()> {
        Ok(())
    }

    fn extents(&self, offset: u64, length_bytes: u64, _: usize) -> Result<Vec<Extent>> {
        Ok(vec![Extent { offset, length_bytes, hole: false }])
    }

    fn resize(&self, _: u64, _: bool) -> Result<()> {
        Err(Error::new(ErrorKind::Invalid, "the size is fixed"))
    }

    fn changes_since(&self, _: &str) -> std::result::Result<Arc<dyn Changes>, OpenError> {
        Err(OpenError::new("there is no past here"))
    }
}

fn broken() -> Error {
    Error::new(ErrorKind::Io, "a thread broke off")
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |index: usize, default: u64| {
        arguments.get(index).and_then(|a| a.parse().ok()).unwrap_or(default)
    };
    let socket = arguments.get(1).map_or("nbd_null.sock", String::as_str);
    let size_bytes = number(3, 1 << 30);
    let is_null = arguments.get(2).is_none_or(|kind| kind == "null");
    let bytes = if is_null { None } else { Some(RwLock::new(vec![0; size_bytes as usize])) };
    let serving = Serving {
        exports: Arc::new(One(Arc::new(Memory { size_bytes, bytes }))),
        attachments: Arc::new(Attachments::default()),
        limits: Limits::default(),
        counters: Arc::default(),
        meters: Arc::default(),
        buffers: Arc::default(),
        taps: Arc::default(),
        room: RoomQueue::default(),
    };
    let context = Arc::new(NbdContext {
        serving,
        tls: Default::default(),
        access: Default::default(),
        token_named: Box::new(|_| None),
    });
    let listener = UnixListener::bind(socket)?;
    listener.set_nonblocking(true)?;
    let threads = number(4, 2) as usize;
    let front_end = Arc::clone(&context) as Arc<_>;
    let listeners = Listeners { front_end, unix: vec![listener], tcp: Vec::new() };
    let server = DataThreads::start(threads, vec![listeners])?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.stop();
    eprintln!("{:?}", context.counters);
    std::fs::remove_file(socket)
}
