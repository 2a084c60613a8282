//! Commands that change a share: restores, repairs and imports.

use std::cell::{Cell, RefCell};

use ::share::{Cause, CauseKind, Changer, VolumeBlocks};
use api::ProblemKind;
use units::Seq;
use volume::{RoomWait, Volume};

use super::answer::{Answer, Refusal};
use super::context::Context;
use crate::nfs::Opened;

/// The command line that undoes a command, which is `repair=N` or the like. Where not every write
/// is retained there are no moments within it, and it takes what others did since, too.
pub(super) fn undo_line(volume: &Volume, command: &str, before: Seq) -> String {
    let name = volume.name();
    match volume.retains_every_write() {
        true => format!("share repair {name} --undo {command}"),
        false => format!("share restore {name}@seq:{before} / --delete"),
    }
}

/// Changes a share, with waits for room, as the only command that does. The moment before it, which
/// the work is told, is retained. Its changes, those of one that failed too, are flushed afterwards
/// and have a line in the audit log.
pub(super) fn change<T>(
    context: &Context,
    opened: &Opened,
    (kind, dry_run): (CauseKind, bool),
    work: impl FnOnce(&Changer<'_, VolumeBlocks>, Seq) -> T,
) -> Answer<T> {
    let (share, volume) = (opened.share(), opened.volume());
    context.refuse_follower(volume)?;
    let _command = opened.command().ok_or_else(|| {
        let text =
            format!("another command changes {}: a restore, a repair or an import", volume.name());
        Refusal::new(ProblemKind::Busy, text).with_hint("ask again when it is done")
    })?;
    let goes_on = || context.is_ready() && volume.is_served();
    let before = match dry_run {
        true => volume.last_seq(),
        false => context.shares.retain_present(volume)?,
    };
    let number = share.statistics().operations;
    // After each step there is as long a time again for the next lack.
    let waited = RefCell::new((RoomWait::default(), number));
    let wait_for = |lack| {
        let mut waited = waited.borrow_mut();
        let done = share.statistics().operations;
        if waited.1 != done {
            *waited = (RoomWait::default(), done);
        }
        share.present().wait_for(lack, &mut waited.0, &goes_on)
    };
    let changer = Changer {
        share,
        cause: Cause { kind, number },
        now: &|| volume.now(),
        wait_for: &wait_for,
        done: Cell::default(),
    };
    let outcome = work(&changer, before);
    let operations = changer.done.get();
    if operations > 0 {
        context.metrics.share_command(kind, operations);
        volume.flush_while(&goes_on)?;
        let detail = format!("{kind}={number}, {operations} operations");
        volume.note_share_command(&kind.to_string(), detail)?;
    }
    Ok(outcome)
}
