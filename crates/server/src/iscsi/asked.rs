//! Commands that write, as sessions of all front ends see requests.

use std::time::Duration;

use smallvec::SmallVec;
use wire::iscsi::Tag;
use wire::scsi::{Command, Lun};

use super::answer::{Ended, failure};
use crate::serving::{Asked, RequestKind};

/// A command that writes, or one range of it.
#[derive(Clone, Copy)]
pub(super) struct Write {
    pub(super) tag: Tag,
    /// The unit that it is of.
    pub(super) lun: Lun,
    pub(super) kind: RequestKind,
    pub(super) offset: u64,
    pub(super) length_bytes: u64,
    pub(super) is_durable: bool,
}

/// The commands that a job ended.
#[derive(Default)]
pub(super) struct Answers(SmallVec<[(Tag, Ended); 1]>);

impl Answers {
    /// Adds the end of a command; the number of failures.
    pub(super) fn add(&mut self, tag: Tag, ended: Ended) -> u64 {
        let failures = u64::from(ended.is_failure());
        self.0.push((tag, ended));
        failures
    }

    pub(super) fn into_ends(self) -> impl Iterator<Item = (Tag, Ended)> {
        self.0.into_iter()
    }
}

impl Asked for Write {
    // Initiators give up after 30 s or 60 s, and what comes then is worse than an early answer.
    const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

    type Replies = Answers;

    fn kind(&self) -> RequestKind {
        self.kind
    }

    fn offset(&self) -> u64 {
        self.offset
    }

    fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn is_durable(&self) -> bool {
        self.is_durable
    }

    fn answer(&self, outcome: Result<(), &volume::Error>, out: &mut Answers) -> u64 {
        out.add(self.tag, outcome.map_or_else(|error| failure(error, true), |()| Ended::Good))
    }
}

/// The kind of a command, as it is counted.
pub(super) fn kind(command: &Command) -> RequestKind {
    match command {
        Command::Read(_) => RequestKind::Read,
        Command::Write(_)
        | Command::WriteAndVerify { .. }
        | Command::CompareAndWrite(_)
        | Command::WriteAtomic { .. }
        | Command::OrWrite(_) => RequestKind::Write,
        Command::Unmap { .. } => RequestKind::Trim,
        Command::WriteSame { .. } => RequestKind::Zero,
        Command::SynchronizeCache { .. } => RequestKind::Flush,
        _ => RequestKind::Other,
    }
}
