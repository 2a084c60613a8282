//! Tests from outside: what they share.
//!
//! 1. Nothing here knows the engine or its crates: everything goes through the program, its
//!    sockets, its files and its exit codes, as a user's would.
//! 2. The NBD, iSCSI, NFS and HTTP clients are written apart from `wire` and `api`, so that a
//!    mistake in a codec does not hide itself.
//! 3. Whatever is started is ended by its own process id, also when a test fails.

pub mod browser;
pub mod certificates;
pub mod checker;
pub mod client;
pub mod command;
pub mod disk;
pub mod http;
pub mod image;
pub mod iscsi;
pub mod nbd;
pub mod nfs;
pub mod postgres;
pub mod random;
pub mod server;
pub mod tgt;

/// Asks until it is so, for a minute.
pub fn poll(what: &str, mut is: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let began = std::time::Instant::now();
    while !is()? {
        anyhow::ensure!(began.elapsed().as_secs() < 60, "not within a minute: {what}");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    Ok(())
}
