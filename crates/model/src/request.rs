//! What devices are asked to do.

/// Addresses end here, so that differences of offsets fit in 64 bits with their sign.
pub const ADDRESS_MAX: u64 = i64::MAX as u64;

/// What a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestKind {
    /// To read a range.
    Read,
    /// To write a range.
    #[default]
    Write,
    /// To write zeros to a range, without sending them.
    Zero,
    /// To forget a range.
    Trim,
    /// To make durable what was written before.
    Flush,
}

impl RequestKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [RequestKind; 5] = [
        RequestKind::Read,
        RequestKind::Write,
        RequestKind::Zero,
        RequestKind::Trim,
        RequestKind::Flush,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            RequestKind::Read => "read",
            RequestKind::Write => "write",
            RequestKind::Zero => "zero",
            RequestKind::Trim => "trim",
            RequestKind::Flush => "flush",
        }
    }
}

/// A request as it arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// When, nanoseconds since the trace's start.
    pub time_ns: u64,
    /// Its device's number; the names are in the trace.
    pub device: u32,
    /// What it asks for.
    pub kind: RequestKind,
    /// Whether it is to be durable when it is answered.
    pub is_fua: bool,
    /// Where its range begins; 0 for a flush.
    pub offset_bytes: u64,
    /// How long its range is; 0 for a flush and for nothing else.
    pub length_bytes: u64,
}

impl Request {
    /// Whether its range is one that a trace can hold.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let end = self.offset_bytes.checked_add(self.length_bytes);
        let is_flush = self.kind == RequestKind::Flush;
        end.is_some_and(|end| end <= ADDRESS_MAX)
            && is_flush == (self.length_bytes == 0)
            && (!is_flush || self.offset_bytes == 0)
    }

    /// The byte after its range.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.length_bytes
    }
}
