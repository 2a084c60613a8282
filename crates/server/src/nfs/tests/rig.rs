//! A server of a pool with a share, on loopback.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use block::MediaDevice;
use env::{FileMedia, RealClock, RealEntropy};
use volume::{
    Deletion, Machine, Metadata, Pool, PoolFormat, PoolOptions, ShareSetting, Volume, VolumeSpec,
};

use crate::attach::Attachments;
use crate::nfs::{NfsContext, Opened, Shares};
use crate::serving::{DataThreads, Limits, Listeners, PoolExports, Serving};

/// Bytes of a pool that nothing fills.
pub(crate) const POOL_BYTES: u64 = 256 << 20;

/// A pool, and a server of it that can be another one.
pub(crate) struct Rig {
    /// Where its file is; none of media that others keep.
    dir: Option<tempfile::TempDir>,
    pub(crate) address: SocketAddr,
    pub(crate) pool: Arc<Pool>,
    pub(crate) shares: Arc<Shares>,
    pub(crate) context: Arc<NfsContext>,
    server: Option<DataThreads>,
}

impl Rig {
    /// A pool with a share `s`.
    pub(crate) fn new() -> Rig {
        Rig::sized(POOL_BYTES, ShareSetting::default())
    }

    pub(crate) fn sized(bytes: u64, setting: ShareSetting) -> Rig {
        let dir = tempfile::tempdir().expect("directory");
        let media = FileMedia::create(&dir.path().join("pool.img"), bytes).expect("a file");
        let device: Arc<dyn block::BlockDevice> = Arc::new(MediaDevice::new(Arc::new(media)));
        Pool::create(&device, &machine(), &PoolFormat { zone_bytes: 1 << 20 }).expect("a pool");
        let pool = open(device);
        pool.create_volume(&spec(setting)).expect("a share");
        Rig::serve(Some(dir), pool)
    }

    /// A server of a pool.
    pub(crate) fn serve(dir: Option<tempfile::TempDir>, pool: Arc<Pool>) -> Rig {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        listener.set_nonblocking(true).expect("set");
        let address = listener.local_addr().expect("address");
        let serving = Serving {
            exports: Arc::new(PoolExports::new(Arc::clone(&pool))),
            attachments: Arc::new(Attachments::default()),
            limits: Limits::default(),
            counters: Arc::default(),
            meters: Arc::default(),
            buffers: Arc::default(),
            taps: Arc::default(),
            room: Default::default(),
        };
        let shares = Arc::new(Shares::new(Arc::clone(&pool)));
        let context = NfsContext::new(serving, Arc::clone(&pool), Arc::clone(&shares));
        let context = Arc::new(context);
        let front_end = Arc::clone(&context) as Arc<_>;
        let listeners = Listeners { front_end, unix: Vec::new(), tcp: vec![listener] };
        let server = Some(DataThreads::start(2, vec![listeners]).expect("start"));
        Rig { dir, address, pool, shares, context, server }
    }

    /// Another server, as after a kill: the pool is not closed.
    pub(crate) fn restart(self) -> Rig {
        let dir = self.down().expect("a pool in a file");
        let path: PathBuf = dir.path().join("pool.img");
        let media = FileMedia::open(&path).expect("it is there");
        let pool = open(Arc::new(MediaDevice::new(Arc::new(media))));
        Rig::serve(Some(dir), pool)
    }

    /// Ends the server and its pool.
    pub(crate) fn down(mut self) -> Option<tempfile::TempDir> {
        self.stop();
        let Rig { dir, pool, shares, context, .. } = self;
        drop((context, shares));
        assert_eq!(Arc::strong_count(&pool), 1, "nobody has it");
        dir
    }

    pub(crate) fn opened(&self) -> Arc<Opened> {
        self.shares.open_volume(&self.share()).expect("opened")
    }

    pub(crate) fn share(&self) -> Arc<Volume> {
        self.pool.volume("s").expect("it is there")
    }

    pub(crate) fn delete(&self, name: &str) {
        self.pool.remove_volume(name, Deletion::default()).expect("deleted");
    }

    pub(crate) fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }
}

/// The volume of a share `s`.
pub(crate) fn spec(setting: ShareSetting) -> VolumeSpec {
    let (share, strict) = (Some(setting), true);
    VolumeSpec { share, strict, ..VolumeSpec::new("s", volume::SHARE_BYTES) }
}

fn machine() -> Machine {
    Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) }
}

fn open(device: Arc<dyn block::BlockDevice>) -> Arc<Pool> {
    let options = PoolOptions { memory_bytes: 32 << 20 };
    Pool::open(device, machine(), options).expect("it opens")
}

/// Metadata that is not flushed.
pub(crate) fn server_metadata() -> ShareSetting {
    ShareSetting { metadata: Metadata::Server, ..ShareSetting::default() }
}
