//! Access of clients to shares: whether, as whom, and to what.

use std::net::{IpAddr, SocketAddr};

use share::Credentials;
use volume::{Allowed, PastAccess, ShareSetting, Squash};
use wire::rpc;

/// The user and group of calls that say nobody's.
const NOBODY: u32 = 65534;

/// A client, as its connection shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Its address; those of IPv4 are no others in IPv6.
    pub(crate) ip: IpAddr,
    port: u16,
}

impl Peer {
    pub(crate) fn new(address: SocketAddr) -> Peer {
        Peer { ip: address.ip().to_canonical(), port: address.port() }
    }

    /// The address as records have it.
    pub(crate) fn client(&self) -> u128 {
        match self.ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            IpAddr::V6(ip) => ip.to_bits(),
        }
    }
}

/// A client's access to a share, and the user that it acts for there.
pub(crate) struct Admitted {
    pub(crate) user: Credentials,
    pub(crate) is_read_only: bool,
    pub(crate) may_see_past: bool,
}

/// The access of a client on behalf of somebody; none if it has none.
pub(crate) fn admit(
    setting: &ShareSetting,
    peer: Peer,
    credentials: &rpc::Credentials<'_>,
) -> Option<Admitted> {
    let grant = setting.grant(peer.ip, peer.port)?;
    let user = squashed(&grant, credentials);
    let may_see_past = match grant.past {
        PastAccess::None => false,
        PastAccess::Root => user.is_root(),
        PastAccess::All => true,
    };
    Some(Admitted { user, is_read_only: grant.read_only, may_see_past })
}

fn squashed(grant: &Allowed, credentials: &rpc::Credentials<'_>) -> Credentials {
    let anonymous =
        || Credentials { uid: grant.anonymous_uid, gid: grant.anonymous_gid, groups: Vec::new() };
    let rpc::Credentials::Sys(sys) = credentials else {
        return match grant.squash {
            Squash::None => Credentials { uid: NOBODY, gid: NOBODY, groups: Vec::new() },
            Squash::Root | Squash::All => anonymous(),
        };
    };
    match grant.squash {
        Squash::All => anonymous(),
        Squash::Root if sys.uid == 0 => anonymous(),
        Squash::None | Squash::Root => {
            // No group of root's either for who is not root.
            let is_kept = |gid: &u32| grant.squash == Squash::None || *gid != 0;
            let gid = if is_kept(&sys.gid) { sys.gid } else { grant.anonymous_gid };
            let groups = sys.gids.as_slice().iter().copied().filter(is_kept).collect();
            Credentials { uid: sys.uid, gid, groups }
        }
    }
}
