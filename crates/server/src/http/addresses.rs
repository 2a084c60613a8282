//! The addresses at which clients of volumes connect.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{
    IscsiRegistration, IscsiReservation, IscsiReservations, IscsiSession, IscsiTarget, MadeTarget,
    TargetLun,
};
use volume::{Registration, Reservation, Reservations, TargetInfo, UnitInfo, Volume};

use crate::iscsi::IscsiContext;
use crate::tls::has_name;

/// Where clients connect, for the URIs in answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) unix: Option<PathBuf>,
    pub(crate) tcp: Option<SocketAddr>,
    /// Whether the TCP listener demands TLS; the unix socket is its owner's alone and never does.
    pub(crate) tls: bool,
    /// Where HTTP is served over TCP, and under TLS the server's certificate.
    pub(crate) http: Option<SocketAddr>,
    pub(crate) http_cert: Option<PathBuf>,
    /// Where iSCSI is served, if it is, and what its targets are called.
    pub(crate) iscsi: Option<(SocketAddr, Arc<IscsiContext>)>,
    /// Where NFS is served.
    pub(crate) nfs: Vec<SocketAddr>,
}

impl Addresses {
    pub(super) fn uri(&self, volume: &str) -> Option<String> {
        match &self.unix {
            Some(socket) => Some(nbd_unix_uri(volume, socket)),
            None => self.tcp_uri(volume),
        }
    }

    pub(super) fn tcp_uri(&self, volume: &str) -> Option<String> {
        let scheme = if self.tls { "nbds" } else { "nbd" };
        Some(format!("{scheme}://{}/{volume}", here(self.tcp?)))
    }

    /// Where the web page is, for a browser on this machine; none where the certificate has no name
    /// that this machine knows of itself.
    pub(super) fn page(&self) -> Option<String> {
        let here = here(self.http?);
        let Some(cert) = &self.http_cert else { return Some(format!("http://{here}/")) };
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let names = [here.ip().to_string(), "localhost".to_owned(), host];
        let name = names.into_iter().find(|name| has_name(cert, name))?;
        let name = if name.contains(':') { format!("[{name}]") } else { name };
        Some(format!("https://{name}:{}/", here.port()))
    }

    pub(super) fn iscsi_name(&self, volume: &str) -> Option<String> {
        self.iscsi.as_ref()?.1.targets.name_of(volume)
    }

    pub(super) fn iscsi_uri(&self, volume: &str) -> Option<String> {
        let (address, context) = self.iscsi.as_ref()?;
        Some(format!("iscsi://{}/{}/0", here(*address), context.targets.name_of(volume)?))
    }

    /// The addresses of iSCSI that initiators are told, if not those at which they come.
    fn announced(&self) -> Vec<String> {
        self.iscsi.as_ref().map_or_else(Vec::new, |(_, context)| context.announced.clone())
    }

    /// The sessions on a target, and on moments of it.
    pub(super) fn sessions_on(&self, target: &str) -> Vec<IscsiSession> {
        let Some((_, context)) = &self.iscsi else { return Vec::new() };
        let Some(name) = context.targets.name_of(target) else { return Vec::new() };
        let session = |(target, initiator, id)| IscsiSession { id, initiator, target };
        context.sessions_of(&name).into_iter().map(session).collect()
    }

    /// Has sessions look at made targets anew.
    pub(super) fn tell_of_targets(&self) {
        if let Some((_, context)) = &self.iscsi {
            context.targets.tell_of_change();
        }
    }

    /// A made target, with the sessions on it.
    pub(super) fn made_target(&self, info: TargetInfo) -> MadeTarget {
        let uri = self.iscsi_uri(&info.name);
        let lun = |unit: &UnitInfo| {
            let base = uri.as_deref().and_then(|uri| uri.strip_suffix('0'));
            TargetLun {
                lun: unit.number,
                volume: unit.volume.clone(),
                seq: unit.seq.map(|seq| seq.0),
                uri: base.map(|base| format!("{base}{}", unit.number)),
            }
        };
        MadeTarget {
            created: api::Time(info.created),
            iscsi_name: self.iscsi_name(&info.name),
            announced: self.announced(),
            luns: info.units.iter().map(lun).collect(),
            retired: info.retired,
            access: iscsi_access(info.access),
            sessions: self.sessions_on(&info.name),
            name: info.name,
        }
    }

    /// Commands that mount a share, one for each address.
    pub(super) fn mount(&self, share: &str) -> Vec<String> {
        let line = |&address: &SocketAddr| {
            let address = here(address);
            let port = address.port();
            let (protocol, host) = match address {
                SocketAddr::V4(address) => ("tcp", address.ip().to_string()),
                SocketAddr::V6(address) => ("tcp6", format!("[{}]", address.ip())),
            };
            format!(
                "mount -t nfs -o vers=3,proto={protocol},port={port},mountport={port},nolock,noacl \
                 {host}:/{share} /mnt"
            )
        };
        self.nfs.iter().map(line).collect()
    }

    /// The iSCSI target that a volume is, with the sessions on it and on its moments.
    pub(super) fn target(&self, volume: &Volume) -> Option<IscsiTarget> {
        let (_, context) = self.iscsi.as_ref()?;
        let access = iscsi_access(volume.access());
        let reservations = iscsi_reservations(context.reservations_of(volume));
        let volume = volume.name();
        let name = context.targets.name_of(volume)?;
        Some(IscsiTarget {
            volume: volume.to_owned(),
            name,
            uri: self.iscsi_uri(volume)?,
            announced: self.announced(),
            access,
            sessions: self.sessions_on(volume),
            reservations,
        })
    }
}

/// The access to a volume over iSCSI; secrets stay here.
pub(crate) fn iscsi_access(access: volume::Access) -> api::IscsiAccess {
    api::IscsiAccess {
        chap_user: access.chap.map(|credential| credential.user),
        mutual_user: access.mutual.map(|credential| credential.user),
        allow: access.allow,
    }
}

fn iscsi_reservations((all, kept): (Reservations, bool)) -> Option<IscsiReservations> {
    let registered = |it: Registration| IscsiRegistration {
        initiator: it.port.initiator,
        isid: it.port.isid.iter().map(|byte| format!("{byte:02x}")).collect(),
        key: format!("{:016x}", it.key),
    };
    let held = |it: Reservation| IscsiReservation {
        initiator: it.port.initiator,
        kind: it.kind.name().to_owned(),
    };
    (!all.is_empty()).then(|| IscsiReservations {
        registered: all.registrations.into_iter().map(registered).collect(),
        held: all.held.map(held),
        kept,
    })
}

/// An address that clients on this machine connect to. Every address of this machine is no such:
/// clients elsewhere know a better name than we do.
fn here(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// `nbd+unix:///NAME?socket=/path`; what a URI cannot hold is percent-encoded.
fn nbd_unix_uri(volume: &str, socket: &Path) -> String {
    use std::fmt::Write;
    use std::os::unix::ffi::OsStrExt;
    let mut uri = format!("nbd+unix:///{volume}?socket=");
    for &byte in socket.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            write!(uri, "%{byte:02X}").expect("a String takes everything");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Addresses, nbd_unix_uri};

    #[test]
    fn a_share_is_mounted_at_each_address_of_this_machine() {
        let nfs = ["0.0.0.0:20490", "[::1]:9"].map(|text| text.parse().expect("an address"));
        let addresses = Addresses { nfs: nfs.to_vec(), ..Addresses::default() };
        assert_eq!(
            addresses.mount("home"),
            [
                "mount -t nfs -o vers=3,proto=tcp,port=20490,mountport=20490,nolock,noacl \
                 127.0.0.1:/home /mnt",
                "mount -t nfs -o vers=3,proto=tcp6,port=9,mountport=9,nolock,noacl \
                 [::1]:/home /mnt",
            ]
        );
        assert!(Addresses::default().mount("home").is_empty());
    }

    #[test]
    fn a_socket_with_blanks_is_encoded_in_the_uri() {
        assert_eq!(
            nbd_unix_uri("pg", Path::new("/my pools/a&b/nbd.sock")),
            "nbd+unix:///pg?socket=/my%20pools/a%26b/nbd.sock"
        );
    }
}
