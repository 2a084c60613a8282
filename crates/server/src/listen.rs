//! Listening sockets: bound before anything is served, stale ones removed, none exposed unawares.
//!
//! A unix socket is removed at start only when nobody answers on it, and at stop by its owner.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use units::Network;

use crate::admission::is_loopback;
use crate::{Listening, SocketAccess, StartError};

/// The longest path of a unix socket (`sun_path` less its final zero), in bytes.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The bound sockets of one protocol.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    /// The unix socket.
    pub(crate) unix: Option<BoundUnix>,
    /// The TCP sockets, not blocking.
    pub(crate) tcp: Vec<TcpListener>,
}

/// A bound unix socket, not blocking, with its file.
#[derive(Debug)]
pub(crate) struct BoundUnix {
    pub(crate) listener: UnixListener,
    pub(crate) file: SocketFile,
}

/// The file of a unix socket; removed when dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    pub(crate) path: PathBuf,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may be gone already; there is nothing to do about it either way.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The protection that lets a listener be reached from other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protection<'a> {
    /// Whether clients are authenticated over TLS, or the operator said `--insecure`.
    pub(crate) is_enough: bool,
    /// Networks in which nobody has to be afraid of those who listen.
    pub(crate) trusted: &'a [Network],
    /// How to get it.
    pub(crate) hint: &'static str,
}

/// Binds every listener of `listening`.
pub(crate) fn bind(listening: &Listening, protection: Protection<'_>) -> Result<Bound, StartError> {
    let mut bound = Bound::default();
    for text in &listening.tcp {
        bound.tcp.push(bind_tcp(text, protection)?);
    }
    if let Some(path) = &listening.unix {
        bound.unix = Some(bind_unix(path, listening.access)?);
    }
    Ok(bound)
}

/// Refuses TCP addresses that would reach further than their protection allows.
pub(crate) fn check(listening: &Listening, protection: Protection<'_>) -> Result<(), StartError> {
    listening.tcp.iter().try_for_each(|text| addresses(text, protection).map(|_| ()))
}

fn addresses(text: &str, protection: Protection<'_>) -> Result<Vec<SocketAddr>, StartError> {
    let addresses: Vec<SocketAddr> = match text.to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(source) => return Err(StartError::Listen { address: text.to_owned(), source }),
    };
    let is_trusted = |ip: IpAddr| protection.trusted.iter().any(|net| net.contains(ip));
    let is_safe = |ip: IpAddr| is_loopback(ip) || is_trusted(ip);
    if !protection.is_enough && !addresses.iter().all(|a| is_safe(a.ip())) {
        return Err(StartError::Exposed { address: text.to_owned(), hint: protection.hint });
    }
    Ok(addresses)
}

/// Where a TCP listener came to be (port 0 picked a free one).
pub(crate) fn local_address(listener: &TcpListener) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|source| StartError::Listen { address: "tcp".to_owned(), source })
}

fn bind_tcp(text: &str, protection: Protection<'_>) -> Result<TcpListener, StartError> {
    let failed = |source| StartError::Listen { address: text.to_owned(), source };
    let addresses = addresses(text, protection)?;
    let listener = TcpListener::bind(&addresses[..]).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

fn bind_unix(path: &Path, access: SocketAccess) -> Result<BoundUnix, StartError> {
    let failed =
        |source| StartError::Listen { address: format!("unix:{}", path.display()), source };
    if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return Err(StartError::setting(
            format!("the socket {} has too long a path", path.display()),
            "a socket's path has at most 107 bytes: give a shorter one (--nbd, --http unix:/path)",
        ));
    }
    remove_stale(path).map_err(failed)?;
    let listener = UnixListener::bind(path).map_err(failed)?;
    let file = SocketFile { path: path.to_owned() };
    // The pool's directory is the owner's alone, so the moment before these calls lets nobody in;
    // elsewhere the mask of the process does not, as nobody connects who may not write.
    if let Some(group) = access.group {
        std::os::unix::fs::chown(path, None, Some(group)).map_err(failed)?;
    }
    let permissions = std::fs::Permissions::from_mode(access.mode);
    std::fs::set_permissions(path, permissions).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(BoundUnix { listener, file })
}

/// Removes the socket of a server that is no more; one that answers, and other files, stay.
fn remove_stale(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket"));
    }
    match UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(e) => Err(e),
        Ok(_) => Err(io::Error::from(io::ErrorKind::AddrInUse)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::net::UnixListener;

    use super::{Protection, bind};
    use crate::admission::is_loopback;
    use crate::{Listening, SocketAccess, StartError};

    const BARE: Protection<'_> = Protection { is_enough: false, trusted: &[], hint: "" };

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("s.sock");
        let listening = Listening { unix: Some(path.clone()), ..Listening::default() };
        drop(UnixListener::bind(&path).expect("a socket nobody listens on any more"));
        let bound = bind(&listening, BARE).expect("bind");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(bind(&listening, BARE), Err(StartError::Listen { .. })));
        drop(bound);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_has_the_mode_and_group_that_are_asked_for() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("s.sock");
        let own = std::fs::metadata(dir.path()).expect("there").gid();
        let access = SocketAccess { mode: 0o660, group: Some(own) };
        let listening = Listening { unix: Some(path.clone()), tcp: Vec::new(), access };
        let _bound = bind(&listening, BARE).expect("bind");
        let metadata = std::fs::metadata(&path).expect("there");
        assert_eq!((metadata.mode() & 0o777, metadata.gid()), (0o660, own));
    }

    #[test]
    fn a_file_in_the_place_of_a_socket_stays() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("precious");
        std::fs::write(&path, "x").expect("write");
        let listening = Listening { unix: Some(path.clone()), ..Listening::default() };
        assert!(bind(&listening, BARE).is_err());
        assert!(path.exists());
    }

    #[test]
    fn only_loopback_is_bound_without_protection() {
        let all = Listening { tcp: vec!["0.0.0.0:0".to_owned()], ..Listening::default() };
        assert!(matches!(bind(&all, BARE), Err(StartError::Exposed { .. })));
        let own = Listening { tcp: vec!["127.0.0.1:0".to_owned()], ..Listening::default() };
        assert_eq!(bind(&own, BARE).expect("bind").tcp.len(), 1);
        assert!(is_loopback("::ffff:127.0.0.1".parse().expect("address")));
        assert!(!is_loopback("192.0.2.1".parse().expect("address")));
    }
}
