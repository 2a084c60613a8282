//! Networks: `10.1.0.0/16`, and single addresses, `10.0.0.7`.

// `core::net` has addresses and no sockets.
use core::net::IpAddr;
use std::fmt;
use std::str::FromStr;

use crate::malformed::{Malformed, as_text, shorten};

/// A network: the addresses that have its first bits. A single address is a network of one.
/// Serialised as its text. The bits after the first are zeros, so that equal networks are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Bits of an address that is IPv4 mapped into IPv6, before those of IPv4.
const MAPPED_BITS: u8 = 96;

impl Network {
    /// The network of the addresses that begin with the first `bits` of this one.
    fn new(address: IpAddr, bits: u8) -> Network {
        // One who comes by IPv4 is the same whatever the socket calls the address.
        if let (true, IpAddr::V4(mapped), true) =
            (address.is_ipv6(), address.to_canonical(), bits >= MAPPED_BITS)
        {
            return Network::new(IpAddr::V4(mapped), bits - MAPPED_BITS);
        }
        Network { address: masked(address, bits), bits }
    }

    /// How many of the first bits its addresses share: of two networks that overlap, the one with
    /// more is part of the other.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether an address is in it; IPv4 that is mapped into IPv6 is IPv4.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_ipv4() == self.address.is_ipv4() && masked(ip, self.bits) == self.address
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Network {
        Network::new(address, bits_max(address))
    }
}

fn bits_max(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address with zeros after its first bits.
fn masked(address: IpAddr, bits: u8) -> IpAddr {
    // A shift by all bits leaves none.
    match address {
        IpAddr::V4(ip) => {
            let rest = u32::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
            IpAddr::V4((ip.to_bits() & !rest).into())
        }
        IpAddr::V6(ip) => {
            let rest = u128::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
            IpAddr::V6((ip.to_bits() & !rest).into())
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bits == bits_max(self.address) {
            return f.pad(&self.address.to_string());
        }
        f.pad(&format!("{}/{}", self.address, self.bits))
    }
}

impl FromStr for Network {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Network, Malformed> {
        let refuse = |what: &str| {
            Malformed::new(
                format!("`{}` is no network: {what}", shorten(text).escape_debug()),
                "use an address such as 10.0.0.7, or 10.1.0.0/16, or fd00::/8",
            )
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| refuse("it has no address"))?;
        let most = bits_max(address);
        let bits = match bits {
            None => most,
            Some(bits) if bits.bytes().all(|digit| digit.is_ascii_digit()) => {
                let bits = bits.parse().ok().filter(|&bits| bits <= most);
                bits.ok_or_else(|| refuse(&format!("an address has {most} bits")))?
            }
            Some(_) => return Err(refuse("behind the / there is a number of bits")),
        };
        Ok(Network::new(address, bits))
    }
}

as_text!(Network);

#[cfg(test)]
mod tests {
    use super::Network;

    fn network(text: &str) -> Network {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn an_address_is_in_a_network_or_not() {
        let is_in = |text: &str, ip: &str| network(text).contains(ip.parse().expect("an address"));
        assert!(is_in("10.1.0.0/16", "10.1.255.3") && !is_in("10.1.0.0/16", "10.2.0.0"));
        assert!(is_in("10.1.2.3/32", "10.1.2.3") && !is_in("10.1.2.3/32", "10.1.2.2"));
        assert!(is_in("10.1.2.3", "10.1.2.3") && !is_in("10.1.2.3", "10.1.2.2"));
        assert!(is_in("0.0.0.0/0", "255.1.2.3") && is_in("::/0", "fe80::1"));
        assert!(is_in("10.1.0.0/16", "::ffff:10.1.2.3") && !is_in("::/0", "10.1.2.3"));
        assert!(is_in("::ffff:10.1.0.0/112", "10.1.2.3") && is_in("::ffff:10.1.2.3", "10.1.2.3"));
        assert!(is_in("fd00::/8", "fdff::1") && !is_in("fd00::/8", "fe00::1"));
        assert!(is_in("fd00::1", "fd00::1") && !is_in("fd00::1", "fd00::2"));
        assert!(!is_in("::fffe:0:0/95", "::ffff:0:1"));
    }

    #[test]
    fn a_network_is_printed_without_what_it_does_not_say() {
        for (text, printed, bits) in [
            ("10.0.0.7", "10.0.0.7", 32),
            ("10.0.0.7/32", "10.0.0.7", 32),
            ("10.1.2.3/16", "10.1.0.0/16", 16),
            ("10.1.2.3/0", "0.0.0.0/0", 0),
            ("FD00:0::1/128", "fd00::1", 128),
            ("fd12:3456::/8", "fd00::/8", 8),
            ("::ffff:10.0.0.7", "10.0.0.7", 32),
            ("::ffff:10.0.0.7/120", "10.0.0.0/24", 24),
            ("::ffff:0:0/96", "0.0.0.0/0", 0),
            ("::ffff:0:0/95", "::fffe:0:0/95", 95),
        ] {
            assert_eq!((&*network(text).to_string(), network(text).bits()), (printed, bits));
            assert_eq!(network(printed), network(text));
            let json = serde_json::to_string(&network(text)).expect("a text");
            assert_eq!(json, format!("\"{printed}\""));
            assert_eq!(serde_json::from_str::<Network>(&json).expect("read"), network(text));
        }
    }

    #[test]
    fn other_texts_are_refused_and_say_why() {
        for (text, why) in [
            ("", "it has no address"),
            ("store", "it has no address"),
            ("10.1/16", "it has no address"),
            ("fe80::1%eth0", "it has no address"),
            ("10.1.0.0/", "an address has 32 bits"),
            ("10.1.0.0/33", "an address has 32 bits"),
            ("10.1.0.0/4294967297", "an address has 32 bits"),
            ("fd00::/129", "an address has 128 bits"),
            ("10.1.0.0/-1", "a number of bits"),
            ("10.1.0.0/+1", "a number of bits"),
            ("10.1.0.0/16/16", "a number of bits"),
            ("10.1.0.0/255.255.0.0", "a number of bits"),
        ] {
            let error = text.parse::<Network>().expect_err(text);
            assert!(error.message.contains(why) && error.hint.is_some(), "{text}: {error}");
        }
        assert!(serde_json::from_str::<Network>("\"10.1.0.0/33\"").is_err());
    }
}
