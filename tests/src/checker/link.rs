//! A client's connection to a volume, by one protocol or the other.

use anyhow::Result;

use crate::client::Client;
use crate::iscsi::Iscsi;
use crate::random::Random;
use crate::server::Server;

/// A connection over whichever protocol.
pub(super) type Link = Box<dyn Client>;

/// How many in a hundred connections are iSCSI sessions.
const ISCSI_PERCENT: u64 = 30;

/// Connects to the present of a volume; whether that is an iSCSI session.
pub(super) fn link(server: &Server, volume: &str, random: &mut Random) -> Result<(Link, bool)> {
    Ok(match random.chance(ISCSI_PERCENT) {
        true => (Box::new(over_iscsi(server, volume, None, random)?), true),
        false => (Box::new(server.connect(volume)?), false),
    })
}

/// Connects to a volume or a moment of it.
pub(super) fn over_iscsi(
    server: &Server,
    volume: &str,
    moment: Option<&str>,
    random: &mut Random,
) -> Result<Iscsi> {
    Iscsi::connect(&server.iscsi_uri(volume, moment)?, random.chance(50))
}

/// Ranges that any of these connections is sent are multiples of so many bytes.
pub(super) fn unit(links: &[Link]) -> u64 {
    links.iter().map(|link| link.unit()).max().unwrap_or(1)
}
