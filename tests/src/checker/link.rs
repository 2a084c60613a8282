//! A client's connection to a volume, by one protocol or the other.

use anyhow::Result;

use crate::iscsi::Iscsi;
use crate::nbd::{Completion, Nbd, Request};
use crate::random::Random;
use crate::server::Server;

pub(super) enum Link {
    Nbd(Nbd),
    Iscsi(Iscsi),
}

/// Ranges that any of these connections is sent are multiples of so many bytes.
pub(super) fn unit(links: &[Link]) -> u64 {
    links.iter().map(Link::unit).max().unwrap_or(1)
}

impl Link {
    /// Connects to the present of a volume.
    pub fn to(server: &Server, volume: &str, random: &mut Random) -> Result<Link> {
        match random.chance(30) {
            true => Link::over_iscsi(server, volume, None, random),
            false => Ok(Link::Nbd(server.connect(volume)?)),
        }
    }

    /// Connects to a volume or a moment of it.
    pub fn over_iscsi(
        server: &Server,
        volume: &str,
        moment: Option<&str>,
        random: &mut Random,
    ) -> Result<Link> {
        let uri = server.iscsi_uri(volume, moment)?;
        Ok(Link::Iscsi(Iscsi::connect(&uri, random.chance(50))?))
    }

    /// Ranges of requests are multiples of so many bytes.
    pub fn unit(&self) -> u64 {
        match self {
            Link::Nbd(_) => 1,
            Link::Iscsi(_) => 512,
        }
    }

    pub fn size(&self) -> u64 {
        match self {
            Link::Nbd(link) => link.size(),
            Link::Iscsi(link) => link.size(),
        }
    }

    pub fn is_read_only(&self) -> bool {
        match self {
            Link::Nbd(link) => link.is_read_only(),
            Link::Iscsi(link) => link.is_read_only(),
        }
    }

    pub fn send(&mut self, request: &Request) -> Result<u64> {
        match self {
            Link::Nbd(link) => link.send(request),
            Link::Iscsi(link) => link.send(request),
        }
    }

    pub fn wait(&mut self) -> Result<Completion> {
        match self {
            Link::Nbd(link) => link.wait(),
            Link::Iscsi(link) => link.wait(),
        }
    }

    pub fn poll(&mut self) -> Result<Option<Completion>> {
        match self {
            Link::Nbd(link) => link.poll(),
            Link::Iscsi(link) => link.poll(),
        }
    }

    pub fn demand(&mut self, request: &Request) -> Result<()> {
        match self {
            Link::Nbd(link) => link.demand(request),
            Link::Iscsi(link) => link.demand(request),
        }
    }

    pub fn read(&mut self, offset: u64, length: u64) -> Result<Vec<u8>> {
        match self {
            Link::Nbd(link) => link.read(offset, length),
            Link::Iscsi(link) => link.read(offset, length),
        }
    }
}
