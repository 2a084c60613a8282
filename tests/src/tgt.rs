//! tgt, an iSCSI target of other people, with one unit on a file.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::command;

const NAME: &str = "iqn.2000-01.test:unit";

/// A running tgtd, ended when dropped.
pub struct Tgt {
    child: Child,
    uri: String,
    /// Of its control socket, so that another one of this machine is left alone.
    control: String,
}

impl Drop for Tgt {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Tgt {
    /// Serves a file, with tgt's default store.
    pub fn start(disk: &Path) -> Result<Tgt> {
        let port = free_port()?;
        let control = (port & 0x7fff).to_string();
        let mut daemon = Command::new("tgtd");
        daemon.args(["-f", "-C", &control, "--iscsi", &format!("portal=127.0.0.1:{port}")]);
        daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = daemon.spawn().context("tgtd\nhint: scripts/install-packages test")?;
        let uri = format!("iscsi://127.0.0.1:{port}/{NAME}/1");
        let tgt = Tgt { child, uri, control };
        let target = ["--op", "new", "--mode", "target", "--tid", "1", "-T", NAME];
        let is_up = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            tgt.tell(&target).is_ok()
        });
        ensure!(is_up, "tgtd does not start");
        let disk = disk.to_str().context("a path in UTF-8")?;
        let unit = ["--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1"];
        tgt.tell(&[&unit[..], &["-b", disk, "--bstype", "rdwr"]].concat())?;
        tgt.tell(&["--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"])?;
        Ok(tgt)
    }

    fn tell(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new("tgtadm");
        command.args(["-C", &self.control, "--lld", "iscsi"]).args(arguments);
        command::run(&mut command).map(drop)
    }

    /// Has it take digests, which it refuses otherwise, in sessions from now on.
    pub fn set_digests(&self) -> Result<()> {
        for name in ["HeaderDigest", "DataDigest"] {
            let value = ["-n", name, "-v", "CRC32C"];
            self.tell(
                &[&["--op", "update", "--mode", "target", "--tid", "1"], &value[..]].concat(),
            )?;
        }
        Ok(())
    }

    /// The address of its unit.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Its process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.id()
    }
}

/// A port of loopback that nobody listens on.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a port")?;
    Ok(listener.local_addr().context("a port")?.port())
}
