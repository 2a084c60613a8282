//! How many connections a listener has, and one peer of it: no client of one listener locks out
//! those of another, and no other machine takes more than half of those of a TCP listener.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use env::RankedMutex;

/// Whether an address reaches no further than this machine.
pub(crate) fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// The connections of one listener.
#[derive(Debug)]
pub(crate) struct Admission {
    max: usize,
    open: RankedMutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    count: usize,
    /// Those of other machines.
    peers: HashMap<IpAddr, usize>,
}

/// One connection of them, as long as it lives.
#[derive(Debug)]
pub(crate) struct Admitted {
    admission: Arc<Admission>,
    peer: Option<IpAddr>,
}

impl Admission {
    pub(crate) fn new(max: usize) -> Arc<Admission> {
        Arc::new(Admission { max, open: RankedMutex::default() })
    }

    /// Counts one more connection; `None` if there are too many. `peer` is where it comes from,
    /// over TCP: all programs of this machine come from the same address, and share it.
    pub(crate) fn admit(self: &Arc<Admission>, peer: Option<IpAddr>) -> Option<Admitted> {
        let peer = peer.filter(|&ip| !is_loopback(ip));
        let mut open = self.open.lock();
        let of_peer = peer.and_then(|ip| open.peers.get(&ip)).map_or(0, |&count| count);
        if open.count >= self.max || of_peer >= self.max.div_ceil(2) {
            return None;
        }
        open.count += 1;
        if let Some(ip) = peer {
            open.peers.insert(ip, of_peer + 1);
        }
        drop(open);
        Some(Admitted { admission: Arc::clone(self), peer })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut open = self.admission.open.lock();
        open.count -= 1;
        let Some(ip) = self.peer else { return };
        let left = open.peers.remove(&ip).expect("it was counted when it was admitted") - 1;
        if left > 0 {
            open.peers.insert(ip, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Admission;

    #[test]
    fn another_machine_gets_half_and_this_one_all() {
        let ip = |text: &str| Some(text.parse().expect("an address"));
        let admission = Admission::new(5);
        let far: Vec<_> = (0..5).filter_map(|_| admission.admit(ip("192.0.2.1"))).collect();
        assert_eq!(far.len(), 3);
        let near: Vec<_> = (0..5).filter_map(|_| admission.admit(ip("127.0.0.1"))).collect();
        assert_eq!(near.len(), 2);
        assert!(admission.admit(None).is_none());
        drop((far, near));
        let unix: Vec<_> = (0..9).filter_map(|_| admission.admit(None)).collect();
        assert_eq!(unix.len(), 5);
        drop(unix);
        assert!(admission.open.lock().peers.is_empty());
    }
}
