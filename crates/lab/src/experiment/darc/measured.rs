//! What was measured of each configuration, and how it is told.

use trace::generate::Pattern;

use super::super::outcome::Claim;

/// Queue depths of the paper.
pub const DEPTHS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// How the members lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Striped.
    Raid0,
    /// Striped over mirrors.
    Raid10,
}

impl Layout {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Layout::Raid0 => "RAID-0",
            Layout::Raid10 => "RAID-10",
        }
    }
}

/// What requests go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Configuration {
    /// The stack alone: no checksum, no history. The paper's `NO-EDC`.
    NoEdc,
    /// A layer of the laboratory over the stack: a checksum of each 4 KiB in a range of its own.
    /// The paper's `EDC`; no pool has it.
    Edc,
    /// A volume on the stack. Its map has a checksum of each block, verified at every read; there
    /// is no volume without.
    Pool,
    /// The same with versions by its schedule, and those before pruned. The paper's `EDC, VERSION`.
    Version,
    /// A volume behind a server's socket, whose buffers are there before they are needed.
    Served,
    /// The same, whose buffers are allocated as they are needed. The paper's `DFLT-ALLOC`.
    DefaultAllocator,
}

impl Configuration {
    /// Every one there is.
    pub const ALL: [Configuration; 6] = [
        Configuration::NoEdc,
        Configuration::Edc,
        Configuration::Pool,
        Configuration::Version,
        Configuration::Served,
        Configuration::DefaultAllocator,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Configuration::NoEdc => "no-edc",
            Configuration::Edc => "edc",
            Configuration::Pool => "pool",
            Configuration::Version => "pool-version",
            Configuration::Served => "served",
            Configuration::DefaultAllocator => "served-default-allocator",
        }
    }

    /// What it is, in a line.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Configuration::NoEdc => "NO-EDC: the stack alone, without checksums and history",
            Configuration::Edc => {
                "EDC: a layer of checksums, of the laboratory alone, over the stack"
            }
            Configuration::Pool => "EDC: a volume, whose map has the checksums",
            Configuration::Version => "EDC, VERSION: the same with versions by its schedule",
            Configuration::Served => "a volume over NBD, through a socket of its own server",
            Configuration::DefaultAllocator => "DFLT-ALLOC: the same without buffer pools",
        }
    }

    /// How often each block of a request is checksummed.
    #[must_use]
    pub fn checksums_a_block(self) -> u64 {
        match self {
            Configuration::NoEdc => 0,
            _ => 1,
        }
    }

    /// What is served is in no picture with what is not; two colours are left to the paper.
    pub(super) fn colour(self) -> usize {
        match self {
            Configuration::NoEdc | Configuration::Served => 0,
            Configuration::Edc | Configuration::DefaultAllocator => 1,
            Configuration::Pool => 2,
            Configuration::Version => 3,
        }
    }
}

/// Pairs whose ratio the paper speaks of, or that are to be known to read it.
pub(super) const RATIOS: [(Configuration, Configuration); 3] = [
    (Configuration::Edc, Configuration::NoEdc),
    (Configuration::Version, Configuration::Pool),
    (Configuration::Pool, Configuration::NoEdc),
];

/// What one measurement came to, whatever was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measure {
    /// Requests a second.
    pub requests_per_second: f64,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Mean of their times, microseconds.
    pub mean_us: f64,
    /// Their median.
    pub p50_us: f64,
    /// What one in a hundred exceeded.
    pub p99_us: f64,
    /// Processor time of a request, microseconds, with what sends it and the background work.
    pub cpu_us: Option<f64>,
    /// Reads of members for a request.
    pub member_reads: f64,
    /// Writes to members for a request.
    pub member_writes: f64,
    /// Flushes of members while it was measured.
    pub member_flushes: u64,
    /// Checksums for a request: those of its blocks, by calculation.
    pub checksums: f64,
    /// Versions that the schedule captured while it was measured.
    pub captures: u64,
    /// Versions that were pruned.
    pub pruned: u64,
}

/// A pattern at a depth.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// How the members lie.
    pub layout: Layout,
    /// What was asked for.
    pub pattern: Pattern,
    /// Of what.
    pub configuration: Configuration,
    /// Requests in flight.
    pub depth: u32,
    /// Which round it was.
    pub round: u32,
    /// What came out.
    pub measure: Measure,
}

/// A run of the queries.
#[derive(Clone, Copy, Debug)]
pub struct QueryRun {
    /// Of what.
    pub configuration: Configuration,
    /// Which round it was.
    pub round: u32,
    /// How long all of them took.
    pub seconds: f64,
    /// What came out.
    pub measure: Measure,
}

/// A run of the mail store.
#[derive(Clone, Copy, Debug)]
pub struct MailRun {
    /// Of what.
    pub configuration: Configuration,
    /// Which round it was.
    pub round: u32,
    /// Reads of the database a second.
    pub reads: f64,
    /// Writes of the database a second.
    pub writes: f64,
    /// Writes of the log a second.
    pub log_writes: f64,
    /// What came out.
    pub measure: Measure,
}

/// Which of Table 4's cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// The pair differs, the checksum matches one.
    OneWrong,
    /// The pair is the same, the checksum does not match.
    BothTheSame,
    /// The pair differs, the checksum matches neither.
    BothWrong,
}

impl Case {
    /// Every one there is, in the table's order.
    pub const ALL: [Case; 3] = [Case::OneWrong, Case::BothTheSame, Case::BothWrong];
}

/// How a recovery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The right bytes were answered, and both copies hold them.
    DataRecovered,
    /// What the copies say was answered, and the checksum was written anew.
    ChecksumRecovered,
    /// An error was answered, and no bytes.
    Refused,
}

/// A read of bytes that were overwritten on the members.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// Which case.
    pub case: Case,
    /// Who found it: the laboratory's layer, which overrules its checksum as the paper's does, or a
    /// volume's map, which never does.
    pub by: Finder,
    /// Reads and writes of copies.
    pub data_ios: u64,
    /// Reads and writes of checksums.
    pub checksum_ios: u64,
    /// Checksums computed.
    pub checksums: u64,
    /// How it ended.
    pub ended: Ended,
    /// How long the read took, microseconds; one like it that found nothing wrong took `clean_us`.
    pub took_us: f64,
    /// How long it took before anything was overwritten.
    pub clean_us: f64,
}

/// Whose checksum it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finder {
    /// The laboratory's layer, which takes its checksum for wrong where all copies agree against
    /// it, as DARC does.
    Layer,
    /// The map of a volume.
    Map,
}

impl Finder {
    /// Every one there is.
    pub const ALL: [Finder; 2] = [Finder::Layer, Finder::Map];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Finder::Layer => "edc",
            Finder::Map => "volume",
        }
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// What all of it ran on, for people.
    pub setting: String,
    /// The patterns.
    pub points: Vec<Point>,
    /// What stands for TPC-H.
    pub queries: Vec<QueryRun>,
    /// What stands for `JetStress`.
    pub mail: Vec<MailRun>,
    /// The reads of Table 4.
    pub recoveries: Vec<Recovery>,
    /// What was to be measured and is not there, and why.
    pub missing: Vec<(Configuration, String)>,
    /// Nanoseconds of a checksum of 4 KiB, measured alone.
    pub checksum_ns: f64,
    /// How long each point was measured.
    pub point_seconds: f64,
}

/// One figure or table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhibit {
    /// Streams on RAID-0.
    Fig5,
    /// Streams on RAID-10.
    Fig6,
    /// Random patterns on RAID-0.
    Fig7,
    /// Random patterns on RAID-10.
    Fig8,
    /// The allocator.
    Fig9,
    /// Queries.
    Fig10,
    /// The mail store.
    Table3,
    /// Recovery.
    Table4,
}

impl Exhibit {
    /// Every one there is.
    pub const ALL: [Exhibit; 8] = [
        Exhibit::Fig5,
        Exhibit::Fig6,
        Exhibit::Fig7,
        Exhibit::Fig8,
        Exhibit::Fig9,
        Exhibit::Fig10,
        Exhibit::Table3,
        Exhibit::Table4,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Exhibit::Fig5 => "fig5",
            Exhibit::Fig6 => "fig6",
            Exhibit::Fig7 => "fig7",
            Exhibit::Fig8 => "fig8",
            Exhibit::Fig9 => "fig9",
            Exhibit::Fig10 => "fig10",
            Exhibit::Table3 => "table3",
            Exhibit::Table4 => "table4",
        }
    }

    /// Whether it shows a configuration.
    #[must_use]
    pub fn shows(self, configuration: Configuration) -> bool {
        let is_served =
            matches!(configuration, Configuration::Served | Configuration::DefaultAllocator);
        // Buffers are the server's: only what is behind a socket has them.
        is_served == (self == Exhibit::Fig9)
    }

    /// The patterns that it shows, and on which layout.
    #[must_use]
    pub fn patterns(self) -> (Layout, &'static [Pattern]) {
        const STREAMS: &[Pattern] = &[Pattern::SequentialWrite, Pattern::SequentialRead];
        const RANDOM: &[Pattern] = &[Pattern::Oltp, Pattern::FileServer, Pattern::WebServer];
        match self {
            Exhibit::Fig5 | Exhibit::Fig9 => (Layout::Raid0, STREAMS),
            Exhibit::Fig6 => (Layout::Raid10, STREAMS),
            Exhibit::Fig7 => (Layout::Raid0, RANDOM),
            Exhibit::Fig8 => (Layout::Raid10, RANDOM),
            Exhibit::Fig10 | Exhibit::Table3 | Exhibit::Table4 => (Layout::Raid10, &[]),
        }
    }
}

/// A median with the least and the most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) least: f64,
    pub(super) median: f64,
    pub(super) most: f64,
    pub(super) count: usize,
}

impl Spread {
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Spread { least, median, most, count: values.len() })
    }

    pub(super) fn told(self, digits: usize) -> String {
        let Spread { least, median, most, count } = self;
        format!("{median:.digits$} ({least:.digits$}-{most:.digits$}, {count})")
    }
}

/// The paper measures five minutes; below this, ratios are noise.
pub(super) const LONG_SECONDS: f64 = 30.0;

pub(super) const NOT_MEASURED: &str = "not measured";

/// Of ratios to the controller that the paper has beside its own.
pub(super) const NO_OTHER: &str = "no such controller here";

/// How often versions were captured and pruned: without any, what versions cost was not measured.
pub(super) fn captured(runs: impl Iterator<Item = (Configuration, Measure)>) -> Claim {
    let of_it = runs.filter(|(configuration, _)| *configuration == Configuration::Version);
    let mut counts = [0; 3];
    for (_, measure) in of_it {
        counts[0] += 1;
        counts[1] += measure.captures;
        counts[2] += measure.pruned;
    }
    let [points, captures, pruned] = counts;
    let found = format!("{captures} captured, {pruned} pruned, in {points} measurements");
    let paper = "5 in each: one every 60 s for 5 min";
    Claim::new("versions while pool-version was measured", paper, String::new(), found, true)
        .not_judged()
}

pub(super) fn told(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(|| NOT_MEASURED.to_owned(), |spread| spread.told(digits))
}

impl Measured {
    /// Whether points are long enough that the shape of their curves can be judged.
    pub(super) fn is_long_enough(&self) -> bool {
        self.point_seconds >= LONG_SECONDS
    }

    /// Why a configuration is not there.
    pub(super) fn why_missing(&self, configuration: Configuration) -> Option<String> {
        let missing = self.missing.iter().find(|(one, _)| *one == configuration);
        missing.map(|(_, why)| format!("not available: {why}"))
    }

    /// The configurations that are there.
    pub(super) fn configurations<T>(
        &self,
        runs: &[T],
        of: impl Fn(&T) -> Configuration,
    ) -> Vec<Configuration> {
        let is_there = |one: &Configuration| runs.iter().any(|run| of(run) == *one);
        Configuration::ALL.into_iter().filter(is_there).collect()
    }
}
