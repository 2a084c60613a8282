//! Tasks: commands that are not answered yet, and data of theirs that is still to come.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use wire::iscsi::{DataOut, Tag, TaskResponse};
use wire::scsi::{Code, Sense, SenseKey};

use super::asked::Write;
use super::context::IscsiContext;
use super::received::Received;
use super::reservations::Port;
use crate::buffers::{Chain, Share};

/// A command that is not answered.
pub(super) struct Task {
    pub(super) received: Received,
    /// It was aborted: it is not answered.
    pub(super) is_aborted: bool,
    /// Its blocks were read back.
    pub(super) is_verified: bool,
    /// Ranges that are written one after the other once the job under way has ended, the last
    /// first.
    pub(super) rest: Vec<Write>,
    /// Ports whose commands are aborted once the job under way has ended.
    pub(super) preempted: Vec<Port>,
    /// Data that is still to come.
    pub(super) incoming: Option<Incoming>,
    /// R2Ts sent.
    pub(super) r2ts: u32,
}

impl Received {
    /// The task that it is at first.
    pub(super) fn task(&self) -> Task {
        Task {
            received: *self,
            is_aborted: false,
            is_verified: false,
            rest: Vec::new(),
            preempted: Vec::new(),
            incoming: None,
            r2ts: 0,
        }
    }
}

/// Data of a task that is still to come.
pub(super) struct Incoming {
    pub(super) data: Chain,
    /// Bytes of it that are here.
    filled: usize,
    /// The number of the next Data-Out that nobody asked for, while they come.
    unsolicited: Option<u32>,
    /// Bytes that may come so at most.
    first_burst_bytes: usize,
    /// Those that were asked for, in order.
    bursts: VecDeque<Burst>,
    /// The first byte that was not asked for.
    asked: usize,
    /// When the first was awaited, and when some came last.
    since: Instant,
    heard: Instant,
    promise: Promise,
}

/// A part of that memory, until it is dropped.
pub(super) struct Promise {
    context: Arc<IscsiContext>,
    class: usize,
    bytes: usize,
}

impl Promise {
    /// Memory for data of a session's task, if that leaves enough to others. An initiator may take
    /// its time: all together have half of the buffers of each size, and each session a quarter of
    /// that. One that has none gets a longer piece if nobody has any.
    pub(super) fn new(
        context: &Arc<IscsiContext>,
        tasks: &Tasks,
        (offset, length): (u64, usize),
    ) -> Option<Promise> {
        let share = Share::of(offset, length);
        let (class, bytes) = (share.class, share.bytes());
        let most = context.buffers.class_bytes(class) / 2;
        let own_bytes = tasks.promised_bytes(class);
        let may = |all: usize| {
            let is_fair = own_bytes == 0 || own_bytes + bytes <= most / 4;
            (all == 0 || all + bytes <= most && is_fair).then_some(all + bytes)
        };
        let promised = &context.promises.0[class];
        promised.fetch_update(Ordering::AcqRel, Ordering::Acquire, may).ok()?;
        Some(Promise { context: Arc::clone(context), class, bytes })
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.context.promises.0[self.class].fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

struct Burst {
    transfer_tag: Tag,
    data_sn: u32,
    end: usize,
}

/// The tasks of a session.
#[derive(Default)]
pub(super) struct Tasks {
    pub(super) all: BTreeMap<Tag, Task>,
    /// How many of them wait for data.
    pub(super) incoming: usize,
    /// How many of them are ORDERED.
    pub(super) ordered: usize,
    /// Functions of task management that wait for tasks to end.
    pub(super) functions: Vec<Function>,
}

/// A function of task management under way.
pub(super) struct Function {
    pub(super) end: FunctionEnd,
    pub(super) waits_for: BTreeSet<Tag>,
    /// Tasks of other sessions.
    pub(super) waits_for_others: bool,
}

/// The end of a function.
#[derive(Clone, Copy)]
pub(super) enum FunctionEnd {
    /// It is answered.
    Response(TaskResponse),
    /// The session that asked for it, for a unit, is told.
    Told(u16, u64),
}

/// A part of the data to ask for.
pub(super) struct Wanted {
    pub(super) transfer_tag: Tag,
    pub(super) offset: usize,
    pub(super) length: usize,
}

/// The outcome of a Data-Out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// More is to come.
    Part,
    /// A burst has ended: more may be asked for.
    Burst,
    /// It breaks the protocol.
    Wrong(Sense),
}

const fn aborted(code: Code) -> Arrived {
    Arrived::Wrong(Sense::new(SenseKey::ABORTED_COMMAND, code))
}

impl Incoming {
    /// Data of which `immediate` came with the command, and more follows unasked if it
    /// `goes_on`.
    pub(super) fn new(
        mut data: Chain,
        immediate: &[u8],
        goes_on: bool,
        first_burst_bytes: usize,
        promise: Promise,
    ) -> Incoming {
        let filled = immediate.len().min(data.len());
        data.copy_from(0, &immediate[..filled]);
        let unsolicited = goes_on.then_some(0);
        let (bursts, now) = (VecDeque::new(), Instant::now());
        Incoming {
            data,
            filled,
            unsolicited,
            first_burst_bytes,
            bursts,
            asked: filled,
            since: now,
            heard: now,
            promise,
        }
    }

    /// Whether all of it is here.
    pub(super) fn is_whole(&self) -> bool {
        self.unsolicited.is_none() && self.filled == self.data.len()
    }

    /// The next part to ask for, if one may be asked for now.
    pub(super) fn want(
        &mut self,
        burst_bytes: usize,
        bursts_max: usize,
        transfer_tag: Tag,
    ) -> Option<Wanted> {
        let left = self.data.len() - self.asked;
        if self.unsolicited.is_some() || left == 0 || self.bursts.len() >= bursts_max {
            return None;
        }
        let (offset, length) = (self.asked, left.min(burst_bytes));
        self.asked += length;
        self.bursts.push_back(Burst { transfer_tag, data_sn: 0, end: self.asked });
        Some(Wanted { transfer_tag, offset, length })
    }

    /// Takes data.
    pub(super) fn take(&mut self, pdu: &DataOut, bytes: &[u8]) -> Arrived {
        let offset = pdu.offset as usize;
        let (data_sn, end) = match (pdu.transfer_tag, self.bursts.front_mut()) {
            (Tag::NONE, _) => match &mut self.unsolicited {
                Some(data_sn) => (data_sn, self.first_burst_bytes),
                None => return aborted(Code::UNEXPECTED_UNSOLICITED_DATA),
            },
            (tag, Some(burst)) if tag == burst.transfer_tag => (&mut burst.data_sn, burst.end),
            _ => return aborted(Code::UNEXPECTED_UNSOLICITED_DATA),
        };
        // The data may be longer than what is kept of it, never than what was announced.
        if pdu.data_sn != *data_sn || offset > end || bytes.len() > end - offset {
            return aborted(Code::CRC_ERROR);
        }
        if offset != self.filled && self.filled < self.data.len() {
            return aborted(Code::CRC_ERROR);
        }
        *data_sn += 1;
        let kept = bytes.len().min(self.data.len() - self.filled);
        self.data.copy_from(self.filled, &bytes[..kept]);
        self.filled += kept;
        if kept > 0 {
            self.heard = Instant::now();
        }
        if !pdu.is_final {
            return Arrived::Part;
        }
        if pdu.transfer_tag == Tag::NONE {
            self.unsolicited = None;
            self.asked = self.filled;
        } else {
            if self.filled != end {
                return aborted(Code::NOT_ENOUGH_UNSOLICITED_DATA);
            }
            self.bursts.pop_front();
        }
        Arrived::Burst
    }
}

impl Tasks {
    /// A task waits.
    pub(super) fn add(&mut self, tag: Tag, task: Task) {
        self.incoming += usize::from(task.incoming.is_some());
        self.ordered += usize::from(task.received.is_ordered());
        self.all.insert(tag, task);
    }

    /// Whether a tag names a command, or a function under way.
    pub(super) fn has(&self, tag: Tag) -> bool {
        let is_it = |function: &Function| match function.end {
            FunctionEnd::Response(response) => response.task_tag == tag,
            FunctionEnd::Told(..) => false,
        };
        self.all.contains_key(&tag) || self.functions.iter().any(is_it)
    }

    /// Those of a unit, or of all units.
    pub(super) fn of(&self, unit: Option<u16>) -> Vec<Tag> {
        let is_of = |task: &Task| unit.is_none() || task.received.request.lun.number() == unit;
        self.all.iter().filter(|(_, task)| is_of(task)).map(|(&tag, _)| tag).collect()
    }

    /// Whether another session waits for what is aborted of a unit.
    pub(super) fn is_awaited_at(&self, unit: u16) -> bool {
        let mut functions = self.functions.iter();
        functions.any(|it| matches!(it.end, FunctionEnd::Told(number, _) if number == unit))
    }

    /// A task has ended.
    pub(super) fn remove(&mut self, tag: Tag) -> Option<Task> {
        let task = self.all.remove(&tag)?;
        self.incoming -= usize::from(task.incoming.is_some());
        self.ordered -= usize::from(task.received.is_ordered());
        Some(task)
    }

    /// Bytes of buffers of a size that wait for data.
    fn promised_bytes(&self, class: usize) -> usize {
        let incoming = self.all.values().filter_map(|task| task.incoming.as_ref());
        let promises = incoming.map(|incoming| &incoming.promise);
        promises.filter(|promise| promise.class == class).map(|promise| promise.bytes).sum()
    }

    /// The tasks whose data has not come for so long, or comes at less than 64 KiB a second.
    pub(super) fn overdue(&self, patience: Duration) -> SmallVec<[Tag; 4]> {
        let is_late = |incoming: &Incoming| {
            let whole = patience + Duration::from_secs(incoming.data.len() as u64 >> 16);
            incoming.heard.elapsed() > patience || incoming.since.elapsed() > whole
        };
        let is_overdue = |task: &Task| task.incoming.as_ref().is_some_and(is_late);
        self.all.iter().filter(|(_, task)| is_overdue(task)).map(|(&tag, _)| tag).collect()
    }

    /// The data of a task, which is all here.
    pub(super) fn take_data(&mut self, tag: Tag) -> Option<Chain> {
        let incoming = self.all.get_mut(&tag)?.incoming.take()?;
        self.incoming -= 1;
        Some(incoming.data)
    }

    /// The functions that wait for nothing any more once `settle` has told each what ended.
    pub(super) fn settled(&mut self, settle: impl Fn(&mut Function)) -> SmallVec<[FunctionEnd; 1]> {
        let mut done = SmallVec::new();
        self.functions.retain_mut(|function| {
            settle(function);
            let is_done = function.waits_for.is_empty() && !function.waits_for_others;
            if is_done {
                done.push(function.end);
            }
            !is_done
        });
        done
    }
}
