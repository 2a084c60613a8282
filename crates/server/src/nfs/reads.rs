//! Reads of files, put into the operation log of a share that wants it.
//!
//! Invariant: a read is answered when it is in the log, or when the share says that reads are
//! logged from a later time on only.

use std::sync::atomic::Ordering;
use std::time::Duration;

use share::{Caller, Credentials, Error, ErrorKind, Lack, ReadBytes, Result, Wait};
use units::{FileId, WallTime};
use volume::RoomWait;

use super::shares::{Opened, answer_words};

/// How long reads go unlogged if one could not be: so long nobody tries to say so again.
const GAP: Duration = Duration::from_secs(10);

/// Puts a read of the present by a client and a user into the log, if the share has its reads
/// logged.
///
/// # Errors
/// `WouldWait`; `Unusable`.
pub(crate) fn log(
    opened: &Opened,
    (client, user, xid): (u128, &Credentials, u32),
    (id, read): (FileId, &ReadBytes),
    wait: Wait,
) -> Result<()> {
    let volume = opened.volume();
    let setting = volume.share();
    let Some(since) = setting.and_then(|setting| setting.reads_since_ns) else { return Ok(()) };
    let now = volume.now();
    // In a gap there is nothing to be kept.
    if WallTime::from_nanos(since) > now
        || opened.reads_gap().load(Ordering::Relaxed) > now.as_nanos()
    {
        return Ok(());
    }
    let caller =
        Caller { user, client, xid, arguments_crc: 0, now, cause: None, followed_at: None };
    let share = opened.share();
    let mut patience = RoomWait::default();
    loop {
        let Err(error) = share.log_read(&caller, id, read.operation, wait) else { return Ok(()) };
        let error = match (error.kind, wait) {
            (ErrorKind::WouldWait | ErrorKind::Lacks(_), Wait::MayNot) => {
                return Err(Error::from(ErrorKind::WouldWait));
            }
            (ErrorKind::Unusable, _) => return Err(error),
            (ErrorKind::Lacks(Lack::Map), Wait::May) => {
                match share.present().wait_for(Lack::Map, &mut patience, &|| true) {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
            _ => error,
        };
        // Files can be read when the pool is full.
        let name = volume.name();
        let gap = u64::try_from(GAP.as_nanos()).expect("seconds");
        let until = WallTime::from_nanos(now.as_nanos().saturating_add(gap));
        tracing::warn!(share = %name, error = %answer_words(&error), "reads are not logged");
        if let Err(error) = volume.log_reads_from(until) {
            // Nor are changes, by whoever read it: the pool takes none until it is opened again.
            tracing::warn!(share = %name, %error, "that reads are not logged is not kept");
            opened.reads_gap().store(until.as_nanos(), Ordering::Relaxed);
        }
        return Ok(());
    }
}
