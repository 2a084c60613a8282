//! A server of a test: sockets in a directory of its own, gone with it.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::memory::{DISK, Disk, MemoryExports};

use crate::attach::{Attachments, Part};
use crate::nbd::{NbdContext, TokenNamed};
use crate::serving::{DataThreads, Exports, Limits, Listeners, Serving};

pub(super) struct Rig {
    pub(super) dir: TempDir,
    pub(super) socket: PathBuf,
    pub(super) tcp: SocketAddr,
    pub(super) context: Arc<NbdContext>,
    server: Option<DataThreads>,
}

/// A server of a disk in memory.
pub(super) fn memory() -> (Rig, Arc<Disk>) {
    memory_with(Limits::default())
}

pub(super) fn memory_with(limits: Limits) -> (Rig, Arc<Disk>) {
    let exports = MemoryExports::default();
    let disk = Arc::clone(&exports.disk);
    (Rig::start(Arc::new(exports), limits, None), disk)
}

impl Rig {
    pub(super) fn start(
        exports: Arc<dyn Exports>,
        limits: Limits,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> Rig {
        Rig::start_on(2, exports, limits, tls)
    }

    /// The same with so many data threads.
    pub(super) fn start_on(
        threads: usize,
        exports: Arc<dyn Exports>,
        limits: Limits,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> Rig {
        let dir = tempfile::tempdir().expect("directory");
        let socket = dir.path().join("nbd.sock");
        let unix = UnixListener::bind(&socket).expect("bind");
        unix.set_nonblocking(true).expect("set");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        listener.set_nonblocking(true).expect("set");
        let tcp = listener.local_addr().expect("address");
        let serving = Serving {
            exports,
            attachments: Arc::new(Attachments::default()),
            limits,
            counters: Arc::default(),
            meters: Arc::default(),
            buffers: Arc::default(),
            taps: Arc::default(),
            room: Default::default(),
        };
        let tls = env::RankedRwLock::new(env::Rank::Leaf, tls);
        let (access, token_named): (_, TokenNamed) = (Default::default(), Box::new(|_| None));
        let context = Arc::new(NbdContext { serving, tls, access, token_named });
        let front_end = Arc::clone(&context) as Arc<_>;
        let listeners = Listeners { front_end, unix: vec![unix], tcp: vec![listener] };
        let server = DataThreads::start(threads, vec![listeners]).expect("start");
        Rig { dir, socket, tcp, context, server: Some(server) }
    }

    pub(super) fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    /// How many clients are attached to its present.
    pub(super) fn attached(&self) -> usize {
        self.context.attachments.count(DISK)
    }

    /// Asks all who are attached to its present to leave, and does not wait.
    pub(super) fn disconnect(&self) {
        drop(self.context.attachments.close(DISK, Part::Present, true, Duration::ZERO));
    }

    pub(super) fn stop(&mut self) {
        self.server.take().expect("stopped once").stop();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }
}

/// Waits until something another thread does is seen.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "not in 20 s: {what}");
        std::thread::yield_now();
    }
}
