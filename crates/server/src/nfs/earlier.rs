//! Calls that an earlier server carried out, from the operation log of a share: one that is sent
//! again after a kill gets an answer as the first time, and is not carried out again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use share::{Caller, Share, VolumeBlocks};
use units::{FileId, WallTime};
use wire::nfs3::Procedure;

/// How long after its first time a call may be sent again.
const AGE_MAX: Duration = Duration::from_secs(300);
/// Calls that are remembered.
const CALLS_MAX: usize = 16 << 10;

/// A call as its record knows it: client, number, procedure, arguments, user.
type Known = (u128, u32, u32, u32, u32);

/// The objects of a call that was carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// The file, or the directory of the name.
    pub(crate) object: FileId,
    /// The object that was made, linked, removed or renamed.
    pub(crate) other: Option<FileId>,
    /// The directory of a new name.
    pub(crate) to: Option<FileId>,
}

/// The calls of the last minutes before a share was opened.
pub(crate) struct Earlier {
    calls: BTreeMap<Known, Done>,
    since: Instant,
}

impl Earlier {
    /// Those of a share that was just opened. Records that cannot be read are none: the calls are
    /// carried out again, as other servers do.
    pub(crate) fn of(share: &Share<VolumeBlocks>, now: WallTime) -> Earlier {
        let mut calls = BTreeMap::new();
        let mut number = share.last_log_block();
        while let Ok(Some(block)) = share.log_block(number) {
            let mut is_old = false;
            // These may be done once more: no WRITE to the earlier server comes late.
            let again = [Procedure::Write, Procedure::Read].map(Procedure::number);
            for operation in block.operations() {
                let age = now.as_nanos().saturating_sub(operation.time.as_nanos());
                if Duration::from_nanos(age) >= AGE_MAX {
                    is_old = true;
                    continue;
                }
                let procedure = u32::from(operation.procedure.number());
                if again.contains(&procedure) {
                    continue;
                }
                let origin = operation.origin;
                let known =
                    (origin.client, origin.xid, procedure, origin.arguments_crc, origin.uid);
                let to = operation.target.map(|target| target.directory);
                calls.insert(known, Done { object: operation.object, other: operation.other, to });
            }
            if is_old || calls.len() >= CALLS_MAX || number == 0 {
                break;
            }
            number -= 1;
        }
        Earlier { calls, since: Instant::now() }
    }

    /// The objects of a call, if it was carried out before.
    pub(crate) fn find(&self, caller: &Caller<'_>, procedure: Procedure) -> Option<Done> {
        let known =
            (caller.client, caller.xid, procedure.number(), caller.arguments_crc, caller.user.uid);
        let done = self.calls.get(&known)?;
        (self.since.elapsed() < AGE_MAX).then_some(*done)
    }
}
