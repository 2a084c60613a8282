//! A PDU in a stream of bytes: how long it is, where its parts are, and whether its digests agree.
//!
//! 1. Lengths in a header are compared with the bytes that are there, and the data's with the
//!    caller's limit, before anything is taken.
//! 2. A header whose digest is wrong is an error, since nothing behind it can be found. Data whose
//!    digest is wrong is handed out with that said, since the PDU is still known.

use crc_fast::{CrcAlgorithm, Digest};

use super::limits::{BHS_BYTES, DIGEST_BYTES};
use super::response::RejectReason;
use super::types::{Bhs, Digests};
use crate::fields::be24;

/// A PDU that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PduError {
    /// The header's digest is wrong: the connection cannot go on.
    #[error("the header's digest is wrong")]
    HeaderDigest,
    /// More data than was declared: the connection cannot go on.
    #[error("{0} bytes of data, more than was declared")]
    TooLong(u32),
    /// No such operation on this side.
    #[error("operation code {0:#04x} is not known")]
    Opcode(u8),
    /// It breaks the protocol.
    #[error("{0}")]
    Protocol(&'static str),
    /// A field holds nothing that is defined.
    #[error("{0}")]
    Field(&'static str),
}

impl PduError {
    /// The reason to give in a Reject.
    #[must_use]
    pub const fn reason(&self) -> RejectReason {
        match self {
            PduError::HeaderDigest | PduError::TooLong(_) | PduError::Protocol(_) => {
                RejectReason::PROTOCOL_ERROR
            }
            PduError::Opcode(_) => RejectReason::NOT_SUPPORTED,
            PduError::Field(_) => RejectReason::INVALID_FIELD,
        }
    }

    /// Whether the place of the next PDU is unknown, so that the connection has to end.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        matches!(self, PduError::HeaderDigest | PduError::TooLong(_))
    }
}

/// The lengths of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    ahs_bytes: usize,
    data_bytes: usize,
    digests: Digests,
}

/// The parts of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdu<'a> {
    /// Its basic header segment.
    pub bhs: &'a Bhs,
    /// Its additional header segments ([`decode::ahs`](super::decode::ahs)).
    pub ahs: &'a [u8],
    /// Its data, without padding.
    pub data: &'a [u8],
    /// Whether the data's digest agrees; true without digests.
    pub is_intact: bool,
}

impl Frame {
    /// The lengths in a header.
    #[must_use]
    pub fn of(bhs: &Bhs, digests: Digests) -> Frame {
        let data_bytes = usize::try_from(be24(bhs, 5)).expect("24 bits");
        Frame { ahs_bytes: usize::from(bhs[4]) * 4, data_bytes, digests }
    }

    /// Measures the PDU at the start of `bytes`, and verifies its header; `None` when the header,
    /// with its digest, is not all there.
    ///
    /// # Errors
    /// On a wrong digest, and when there will be more data than `data_bytes_max`.
    pub fn measure(
        bytes: &[u8],
        digests: Digests,
        data_bytes_max: u32,
    ) -> Result<Option<Frame>, PduError> {
        let Some(bhs) = bytes.first_chunk::<BHS_BYTES>() else { return Ok(None) };
        let frame = Frame::of(bhs, digests);
        if digests.header {
            let covered = BHS_BYTES + frame.ahs_bytes;
            let Some(header) = bytes.get(..covered + DIGEST_BYTES) else { return Ok(None) };
            let (covered, sent) = header.split_at(covered);
            if sent != digest(&[covered]) {
                return Err(PduError::HeaderDigest);
            }
        }
        if be24(bhs, 5) > data_bytes_max {
            return Err(PduError::TooLong(be24(bhs, 5)));
        }
        Ok(Some(frame))
    }

    /// Bytes of data, without padding.
    #[must_use]
    pub const fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Bytes before the data.
    #[must_use]
    pub const fn head_bytes(&self) -> usize {
        BHS_BYTES + self.ahs_bytes + if self.digests.header { DIGEST_BYTES } else { 0 }
    }

    /// Bytes of the whole PDU.
    #[must_use]
    pub const fn total_bytes(&self) -> usize {
        let has_digest = self.digests.data && self.data_bytes > 0;
        let digest = if has_digest { DIGEST_BYTES } else { 0 };
        self.head_bytes() + self.data_bytes + padding_bytes(self.data_bytes) + digest
    }

    /// The parts of the PDU at the start of `bytes`; `None` when it is not all there. The header's
    /// digest is not looked at again.
    #[must_use]
    pub fn pdu<'a>(&self, bytes: &'a [u8]) -> Option<Pdu<'a>> {
        let bytes = bytes.get(..self.total_bytes())?;
        let bhs = bytes.first_chunk::<BHS_BYTES>()?;
        let ahs = bytes.get(BHS_BYTES..BHS_BYTES + self.ahs_bytes)?;
        let rest = bytes.get(self.head_bytes()..)?;
        let padded = rest.get(..self.data_bytes + padding_bytes(self.data_bytes))?;
        let sent = rest.get(padded.len()..)?;
        let is_intact = sent.is_empty() || sent == digest(&[padded]);
        Some(Pdu { bhs, ahs, data: padded.get(..self.data_bytes)?, is_intact })
    }
}

/// Zero bytes after `data_bytes` of data, to a multiple of four.
#[must_use]
pub const fn padding_bytes(data_bytes: usize) -> usize {
    data_bytes.wrapping_neg() % 4
}

/// The digest of bytes that stand one part after the other, as it is sent.
#[must_use]
pub fn digest(parts: &[&[u8]]) -> [u8; DIGEST_BYTES] {
    let crc = if let [all] = parts {
        crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, all)
    } else {
        let mut stream = Digest::new(CrcAlgorithm::Crc32Iscsi);
        parts.iter().for_each(|part| stream.update(part));
        stream.finalize()
    };
    let [first, second, third, fourth, ..] = crc.to_le_bytes();
    [first, second, third, fourth]
}
