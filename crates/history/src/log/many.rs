//! Several batches in one write: what waited in a cache, in the order in which it was accepted.
//!
//! Each batch keeps the time at which its ops were accepted, and says that everything before it has
//! ended. So whatever is left of the write after a crash, recovery cuts the log at the first batch
//! that is not whole, and what it finds is a prefix of that order.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use env::{Held, Rank};
use format::batch::BatchHeader;
use units::{Seq, WallTime};

use super::append::{Appended, BlockOp, InFlight, Log, SegmentSource, Stance, encode, op_bytes};
use crate::segment::Segment;
use crate::{Error, ErrorKind, Result};

/// Ops that were accepted together.
#[derive(Clone, Copy, Debug)]
pub struct TimedOps<'a> {
    /// When; rises strictly from one to the next, and is later than all that the log has.
    pub time: WallTime,
    /// The ops; they fit an empty segment.
    pub ops: &'a [BlockOp<'a>],
}

/// Where a batch of a run is.
#[derive(Clone, Copy, Debug)]
pub struct BatchPlace {
    /// Seq of its first op.
    pub base_seq: Seq,
    /// Offset in the segment of its first data block.
    pub payload_offset: u32,
}

/// Batches on their way: written, not yet visible as stable.
pub struct AppendedRun<'l> {
    appended: Appended<'l>,
    /// The batches, one for each group that was taken.
    pub batches: Vec<BatchPlace>,
}

impl AppendedRun<'_> {
    /// Where they were written.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.appended.segment
    }

    /// The map knows them: let them become stable.
    pub fn end(self) -> Seq {
        self.appended.end()
    }
}

struct Reserved {
    segment: Arc<Segment>,
    headers: Vec<BatchHeader>,
    /// Header and payload of each.
    bytes: Vec<(u32, u32)>,
}

impl Log {
    /// Appends as many of `groups` as fit the open segment, each as a batch of its own, in one
    /// vectored write; the caller comes again with the rest. Nobody else appends meanwhile. Unless
    /// it `may_wait` it waits neither for the gate nor for a segment.
    ///
    /// # Errors
    /// Those of [`Log::append`].
    pub fn append_run(
        &self,
        timeline: impl Fn() -> Option<u64>,
        groups: &[TimedOps<'_>],
        may_wait: bool,
        source: &dyn SegmentSource,
        scratch: &mut Vec<u8>,
    ) -> Result<AppendedRun<'_>> {
        assert!(!groups.is_empty(), "a run has batches");
        if may_wait {
            Held::will_wait(Rank::Log, self.in_flight_place());
        }
        let in_flight = Held::new(Rank::Log, self.in_flight_place());
        let reserved = self.reserve_run(&timeline, groups, may_wait, source)?;
        let (first, last) = (reserved.headers[0], reserved.headers[reserved.headers.len() - 1]);
        let ops_of_last = groups[reserved.headers.len() - 1].ops.len();
        let batches = reserved.headers.iter().zip(&reserved.bytes).map(|(header, bytes)| {
            BatchPlace { base_seq: header.base_seq, payload_offset: header.offset + bytes.0 }
        });
        let run = AppendedRun {
            batches: batches.collect(),
            appended: Appended {
                log: self,
                _in_flight: in_flight,
                last_seq: last.base_seq.0 + ops_of_last as u64 - 1,
                ended: false,
                base_seq: first.base_seq,
                ops: groups[..reserved.headers.len()].iter().map(|group| group.ops.len()).sum(),
                payload_offset: first.offset + reserved.bytes[0].0,
                segment: Arc::clone(&reserved.segment),
            },
        };
        scratch.clear();
        for (header, group) in reserved.headers.iter().zip(groups) {
            encode(group.ops, header, scratch);
        }
        let headers: usize = reserved.bytes.iter().map(|bytes| bytes.0 as usize).sum();
        assert_eq!(scratch.len(), headers, "header sizes were foreseen");
        let mut slices = Vec::new();
        let mut rest = &scratch[..];
        for (bytes, group) in reserved.bytes.iter().zip(groups) {
            let (header, behind) = rest.split_at(bytes.0 as usize);
            slices.push(IoSlice::new(header));
            rest = behind;
            slices.extend(group.ops.iter().filter_map(|op| match op {
                BlockOp::Data { bytes, .. } => Some(IoSlice::new(bytes)),
                BlockOp::Zero { .. } => None,
            }));
        }
        let offset = self.store.zone_offset(reserved.segment.zone) + u64::from(first.offset);
        self.store.write(offset, &slices)?;
        let payload = reserved.bytes.iter().map(|bytes| u64::from(bytes.1)).sum();
        self.io.count_batches(self.kind(), headers as u64, payload);
        Ok(run)
    }

    fn reserve_run(
        &self,
        timeline: &dyn Fn() -> Option<u64>,
        groups: &[TimedOps<'_>],
        may_wait: bool,
        source: &dyn SegmentSource,
    ) -> Result<Reserved> {
        let zone_bytes = self.store.zone_bytes;
        let first = groups[0].ops;
        // Others' locks are those of the cache.
        let stance = Stance { holds_lock: true, may_wait, goes_on: false, whole: false };
        let (mut state, timeline) = self.turn(timeline, (first, first.len()), stance, source)?;
        assert!(state.in_flight.is_empty(), "only one appends while a cache is on");
        let ops: usize = groups.iter().map(|group| group.ops.len()).sum();
        if state.last_seq + ops as u64 > Seq::MAX.0 {
            return Err(Error::new(ErrorKind::Full, "the volume has used up all seqs"));
        }
        let segment = Arc::clone(state.open.as_ref().expect("rolled to an open segment"));
        let mut headers = Vec::new();
        let mut bytes = Vec::new();
        for group in groups {
            let fit = state.fitting(group.ops, zone_bytes);
            let Some((_, header_bytes, payload_bytes)) = fit.filter(|f| f.0 == group.ops.len())
            else {
                break;
            };
            let total = header_bytes + payload_bytes;
            // The first was asked about.
            if !may_wait && !headers.is_empty() && !self.is_ready(&segment, state.tail, total) {
                break;
            }
            assert!(group.time > state.last_time, "time rises");
            state.last_time = group.time;
            state.behind = None;
            // It says that all before it has ended.
            let stable_seq = Seq(state.last_seq);
            headers.push(BatchHeader { stable_seq, ..state.next_header(&segment, timeline) });
            bytes.push((header_bytes, payload_bytes));
            state.tail += header_bytes + payload_bytes;
            state.last_seq += group.ops.len() as u64;
            state.bytes_total += group.ops.iter().map(op_bytes).sum::<u64>();
            state.push_time();
        }
        assert!(!headers.is_empty(), "a group fits an empty segment");
        segment.last_seq.store(state.last_seq, Ordering::Release);
        segment.end.store(state.tail, Ordering::Release);
        let last_seq = state.last_seq;
        state.in_flight.push_back(InFlight { last_seq, ended: false });
        Ok(Reserved { segment, headers, bytes })
    }
}
