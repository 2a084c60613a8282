//! A server, and the driver beside it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use prost::Message;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use csi_messages::proto::v1 as csi;
use csi_messages::proto::v1::volume_capability::access_mode::Mode;
use csi_messages::proto::v1::volume_capability::{AccessMode, AccessType, MountVolume};

pub const NODE: &str = "iqn.2026-11.test:node";

pub struct Rig {
    driver: Child,
    server: Option<Child>,
    pub iscsi: u16,
    nbd: u16,
    runtime: tokio::runtime::Runtime,
    folder: tempfile::TempDir,
}

impl Drop for Rig {
    fn drop(&mut self) {
        for child in [Some(&mut self.driver), self.server.as_mut()].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // What a test that failed left.
        for file in fs::read_dir(self.path("state")).into_iter().flatten().flatten() {
            let noted = fs::read(file.path()).unwrap_or_default();
            let noted: serde_json::Value = serde_json::from_slice(&noted).unwrap_or_default();
            if let Some(device) = noted["device"].as_str().filter(|device| !device.is_empty()) {
                let _ = Command::new("losetup").args(["--detach", device]).status();
            }
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let folder = self.folder.path().to_string_lossy().into_owned();
        for at in mounts.lines().rev().filter_map(|line| line.split(' ').nth(4)) {
            if at.starts_with(&folder) {
                let _ = Command::new("umount").args(["--lazy", &at.replace("\\040", " ")]).status();
            }
        }
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists()
}

/// Runs a program, which must succeed; what it printed.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let ran = Command::new(program).args(arguments).output();
    let ran = ran.unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        ran.status.success(),
        "{program} {arguments:?}: {}{}",
        text(&ran.stdout),
        text(&ran.stderr)
    );
    text(&ran.stdout)
}

pub fn mount(kind: &str, mode: Mode) -> csi::VolumeCapability {
    csi::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume {
            fs_type: kind.to_owned(),
            ..Default::default()
        })),
        access_mode: Some(AccessMode { mode: mode as i32 }),
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A program of this build.
fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_hindsight-csi")).with_file_name(name)
}

impl Rig {
    pub fn new() -> Rig {
        Rig::with(true, &[])
    }

    /// The driver of a node alone.
    pub fn alone() -> Rig {
        Rig::with(false, &[])
    }

    /// With a token for volumes of these names alone, over TCP.
    pub fn of_token(patterns: &[&str]) -> Rig {
        Rig::with(true, patterns)
    }

    fn with(has_server: bool, patterns: &[&str]) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let text = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (iscsi, nbd, http) = (free_port(), free_port(), free_port());
        let server = has_server.then(|| serve(&text("pool"), (iscsi, nbd, http)));
        let mut driver = Command::new(env!("CARGO_BIN_EXE_hindsight-csi"));
        driver.args(["--attach", "nbdfuse", "--data", &format!("127.0.0.1:{nbd}"), "--node", NODE]);
        driver.args([
            "--state",
            &text("state"),
            "--endpoint",
            &format!("unix://{}", text("csi.sock")),
        ]);
        let socket = format!("unix:{}", text("pool/api.sock"));
        if !patterns.is_empty() {
            let (program, token) = (program("hindsight"), text("token"));
            let mut words =
                vec!["--server", &socket, "token", "create", "driver", "--role", "admin"];
            patterns.iter().for_each(|pattern| words.extend(["--volume", pattern]));
            words.extend(["--output", &token]);
            run(program.to_str().unwrap(), &words);
            driver.args(["--server", &format!("http://127.0.0.1:{http}"), "--token-file", &token]);
        } else if has_server {
            driver.args(["--server", &socket]);
        }
        driver.env_remove("HINDSIGHT_SERVER").stderr(Stdio::null());
        let driver = driver.spawn().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let rig = Rig { driver, server, iscsi, nbd, runtime, folder };
        let began = Instant::now();
        while !rig.path("csi.sock").exists() {
            assert!(began.elapsed() < Duration::from_secs(30), "the driver does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        rig
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command of `hindsight`; what it printed.
    pub fn hindsight(&self, arguments: &[&str]) -> String {
        let server = format!("unix:{}", self.path("pool/api.sock").display());
        let program = program("hindsight");
        run(program.to_str().unwrap(), &[&["--server", &server], arguments].concat())
    }

    fn uri(&self, volume: &str) -> String {
        format!("nbd://127.0.0.1:{}/{volume}", self.nbd)
    }

    /// Fills the first block of a volume.
    pub fn write(&self, volume: &str, byte: u8) {
        let write = format!("write -P {byte} 0 4096");
        run("qemu-io", &["-f", "raw", "-c", &write, "-c", "flush", &self.uri(volume)]);
    }

    pub fn first_byte(&self, volume: &str) -> u8 {
        let file = self.path("read");
        run("nbdcopy", &[&self.uri(volume), file.to_str().unwrap()]);
        fs::read(file).unwrap()[0]
    }

    /// A call, as `Controller/CreateVolume`.
    pub fn call<Q, A>(&self, call: &str, request: &Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let socket = self.path("csi.sock");
        let path = format!("/csi.v1.{call}");
        self.runtime.block_on(async {
            let connect = tower::service_fn(move |_: tonic::transport::Uri| {
                let socket = socket.clone();
                async move {
                    let stream = tokio::net::UnixStream::connect(socket).await?;
                    Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(stream))
                }
            });
            let endpoint = tonic::transport::Endpoint::from_static("http://driver");
            let channel = endpoint.connect_with_connector(connect).await.unwrap();
            let mut client = tonic::client::Grpc::new(channel);
            client.ready().await.unwrap();
            let codec = ProstCodec::<Q, A>::default();
            let path = path.parse().unwrap();
            let answer = client.unary(Request::new(request.clone()), path, codec).await?;
            Ok(answer.into_inner())
        })
    }

    pub fn create(&self, request: &csi::CreateVolumeRequest) -> Result<csi::Volume, Status> {
        let answer: csi::CreateVolumeResponse = self.call("Controller/CreateVolume", request)?;
        Ok(answer.volume.unwrap())
    }

    pub fn stage(
        &self,
        volume: &str,
        at: &Path,
        capability: &csi::VolumeCapability,
    ) -> Result<(), Status> {
        let request = csi::NodeStageVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: at.to_str().unwrap().to_owned(),
            volume_capability: Some(capability.clone()),
            ..Default::default()
        };
        self.call::<_, csi::NodeStageVolumeResponse>("Node/NodeStageVolume", &request).map(drop)
    }

    pub fn unstage(&self, volume: &str, at: &Path) {
        let request = csi::NodeUnstageVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: at.to_str().unwrap().to_owned(),
        };
        self.call::<_, csi::NodeUnstageVolumeResponse>("Node/NodeUnstageVolume", &request).unwrap();
    }

    pub fn publish(
        &self,
        volume: &str,
        staged: &Path,
        at: &Path,
        capability: &csi::VolumeCapability,
    ) -> Result<(), Status> {
        let request = csi::NodePublishVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: staged.to_str().unwrap().to_owned(),
            target_path: at.to_str().unwrap().to_owned(),
            volume_capability: Some(capability.clone()),
            ..Default::default()
        };
        self.call::<_, csi::NodePublishVolumeResponse>("Node/NodePublishVolume", &request).map(drop)
    }

    pub fn unpublish(&self, volume: &str, at: &Path) {
        let request = csi::NodeUnpublishVolumeRequest {
            volume_id: volume.to_owned(),
            target_path: at.to_str().unwrap().to_owned(),
        };
        let call = "Node/NodeUnpublishVolume";
        self.call::<_, csi::NodeUnpublishVolumeResponse>(call, &request).unwrap();
    }
}

/// A client that has a volume open, until this is dropped.
pub struct Held(Child);

impl Held {
    pub fn open(rig: &Rig, volume: &str) -> Held {
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw", &rig.uri(volume)]).stdin(Stdio::piped());
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        while !rig.hindsight(&["volume", "show", volume, "--json"]).contains("\"clients\": 1") {
            assert!(began.elapsed() < Duration::from_secs(30), "it is not opened");
        }
        Held(child)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn serve(pool: &str, (iscsi, nbd, http): (u16, u16, u16)) -> Child {
    let mut command = Command::new(program("hindsight"));
    command.args(["serve", "--pool", pool, "--pool-size", "1GiB", "--http"]);
    command.arg(format!("unix:{pool}/api.sock")).args(["--http", &format!("127.0.0.1:{http}")]);
    command.args(["--nbd", &format!("127.0.0.1:{nbd}"), "--iscsi", &format!("127.0.0.1:{iscsi}")]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let is_ready = lines.by_ref().any(|line| line.unwrap() == "ready");
    assert!(is_ready, "the server does not start");
    std::thread::spawn(move || lines.for_each(drop));
    child
}
