//! Networks in CIDR notation, such as `10.1.0.0/16`.

use std::net::IpAddr;
use std::str::FromStr;

/// A network: the addresses that have the first bits of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// Whether an address is in it.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        // A shift by all bits leaves nothing to compare.
        match (self.address, ip.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => {
                (own.to_bits() ^ ip.to_bits()).checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(ip)) => {
                (own.to_bits() ^ ip.to_bits()).checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = ();

    fn from_str(text: &str) -> Result<Network, ()> {
        let (address, bits) = text.split_once('/').ok_or(())?;
        let (address, bits): (IpAddr, u32) =
            (address.parse().map_err(drop)?, bits.parse().map_err(drop)?);
        let most = if address.is_ipv4() { 32 } else { 128 };
        if bits > most { Err(()) } else { Ok(Network { address, bits }) }
    }
}

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn an_address_is_in_a_network_or_not() {
        let is_in = |network: &str, ip: &str| {
            let network: Network = network.parse().expect("a network");
            network.contains(ip.parse().expect("an address"))
        };
        assert!(is_in("10.1.0.0/16", "10.1.255.3") && !is_in("10.1.0.0/16", "10.2.0.0"));
        assert!(is_in("10.1.2.3/32", "10.1.2.3") && !is_in("10.1.2.3/32", "10.1.2.2"));
        assert!(is_in("0.0.0.0/0", "255.1.2.3") && is_in("::/0", "fe80::1"));
        assert!(is_in("10.1.0.0/16", "::ffff:10.1.2.3") && !is_in("::/0", "10.1.2.3"));
        assert!(is_in("fd00::/8", "fdff::1") && !is_in("fd00::/8", "fe00::1"));
        for text in ["", "10.1.0.0", "10.1.0.0/33", "fd00::/129", "10.1/16", "10.1.0.0/-1"] {
            text.parse::<Network>().expect_err(text);
        }
    }
}
