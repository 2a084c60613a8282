//! The words that all PDUs share: tags, serial numbers, stages, digests.

use super::limits::BHS_BYTES;

/// The basic header segment of a PDU.
pub type Bhs = [u8; BHS_BYTES];

/// Names a task, or a transfer of the target; any number can arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub u32);

impl Tag {
    /// Names nothing.
    pub const NONE: Tag = Tag(0xffff_ffff);
}

/// A serial number of 32 bits, which wraps around (RFC 1982): comparisons hold as long as the
/// numbers compared are less than 2^31 apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Serial(pub u32);

impl Serial {
    /// The number `count` after this one.
    #[must_use]
    pub const fn plus(self, count: u32) -> Serial {
        Serial(self.0.wrapping_add(count))
    }

    /// The number `count` before this one.
    #[must_use]
    pub const fn minus(self, count: u32) -> Serial {
        Serial(self.0.wrapping_sub(count))
    }

    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Serial {
        self.plus(1)
    }

    /// Steps from `earlier` up to this number; the distance back counts as a huge one.
    #[must_use]
    pub const fn since(self, earlier: Serial) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether this number comes before `other`.
    #[must_use]
    pub const fn is_before(self, other: Serial) -> bool {
        let distance = other.since(self);
        distance != 0 && distance < 1 << 31
    }

    /// Whether this number is in the window from `first` to `last`, both included. The window is
    /// closed if `last` is the number before `first`.
    #[must_use]
    pub const fn is_within(self, first: Serial, last: Serial) -> bool {
        !self.is_before(first) && !last.is_before(self)
    }
}

/// The serial numbers in each response of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// StatSN.
    pub stat_sn: Serial,
    /// ExpCmdSN: the next command of the session.
    pub exp_cmd_sn: Serial,
    /// MaxCmdSN: the last command that may be sent.
    pub max_cmd_sn: Serial,
}

/// The initiator's part of a session's identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Isid(pub [u8; 6]);

/// A stage of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Security negotiation.
    Security,
    /// Negotiation of operational parameters.
    Operational,
    /// The login has ended.
    FullFeature,
}

impl Stage {
    /// The stage of a number; 2 is none.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Stage> {
        match number {
            0 => Some(Stage::Security),
            1 => Some(Stage::Operational),
            3 => Some(Stage::FullFeature),
            _ => None,
        }
    }

    /// Its number in a header.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Stage::Security => 0,
            Stage::Operational => 1,
            Stage::FullFeature => 3,
        }
    }
}

/// Which digests the PDUs of a connection carry; none until the login has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// Of the header and its additional segments.
    pub header: bool,
    /// Of the data and its padding.
    pub data: bool,
}
