//! The patterns of requests that the goals name.

/// One pattern.
#[derive(Clone, Copy)]
pub struct Pattern {
    /// For tables.
    pub name: &'static str,
    /// For fio.
    pub arguments: &'static [&'static str],
}

pub const RANDOM_WRITE: Pattern = Pattern {
    name: "randwrite-4k-qd32",
    arguments: &["--rw=randwrite", "--bs=4k", "--iodepth=32"],
};
pub const RANDOM_READ: Pattern =
    Pattern { name: "randread-4k-qd32", arguments: &["--rw=randread", "--bs=4k", "--iodepth=32"] };
pub const WRITE: Pattern =
    Pattern { name: "write-64k-qd16", arguments: &["--rw=write", "--bs=64k", "--iodepth=16"] };
pub const READ: Pattern =
    Pattern { name: "read-64k-qd16", arguments: &["--rw=read", "--bs=64k", "--iodepth=16"] };
pub const ALONE: Pattern =
    Pattern { name: "randwrite-4k-qd1", arguments: &["--rw=randwrite", "--bs=4k", "--iodepth=1"] };
const FLUSHED: Pattern = Pattern {
    name: "randwrite-4k-qd16-flush16",
    arguments: &["--rw=randwrite", "--bs=4k", "--iodepth=16", "--fsync=16"],
};

const WRITE_QD16: Pattern = Pattern {
    name: "randwrite-4k-qd16",
    arguments: &["--rw=randwrite", "--bs=4k", "--iodepth=16"],
};
const READ_ALONE: Pattern =
    Pattern { name: "randread-4k-qd1", arguments: &["--rw=randread", "--bs=4k", "--iodepth=1"] };
const READ_QD16: Pattern =
    Pattern { name: "randread-4k-qd16", arguments: &["--rw=randread", "--bs=4k", "--iodepth=16"] };
const LONG_READ: Pattern =
    Pattern { name: "read-1m-qd4", arguments: &["--rw=read", "--bs=1m", "--iodepth=4"] };
const LONG_WRITE: Pattern =
    Pattern { name: "write-1m-qd4", arguments: &["--rw=write", "--bs=1m", "--iodepth=4"] };

/// What the I/O path is measured by: the hot path, and requests that take buffers.
pub const IO_PATH: [Pattern; 8] =
    [ALONE, WRITE_QD16, READ_ALONE, READ_QD16, WRITE, READ, LONG_WRITE, LONG_READ];
const FLUSHED_ALONE: Pattern = Pattern {
    name: "randwrite-4k-qd1-flush1",
    arguments: &["--rw=randwrite", "--bs=4k", "--iodepth=1", "--fsync=1"],
};
const LONG_READ_ALONE: Pattern =
    Pattern { name: "read-1m-qd1", arguments: &["--rw=read", "--bs=1m", "--iodepth=1"] };

/// What overlaps with one request in flight and with many.
pub const STAGES: [Pattern; 8] =
    [ALONE, WRITE_QD16, READ_ALONE, READ_QD16, FLUSHED_ALONE, FLUSHED, LONG_READ_ALONE, LONG_READ];
/// All of P1 and P2.
pub const ALL: [Pattern; 6] = [RANDOM_WRITE, RANDOM_READ, WRITE, READ, ALONE, FLUSHED];
/// Those that add to the history.
pub const WRITES: [Pattern; 4] = [RANDOM_WRITE, WRITE, ALONE, FLUSHED];
