//! Opening what a client wants, where that blocks no session.

use std::io;
use std::sync::Arc;

use super::export::{Export, Exports, OpenError};
use super::shared::Serving;
use crate::{Attachment, VolumeId};

/// Opens a disk and enters the register of its volume, as soon as that is not closed.
pub(crate) async fn attach(
    serving: &Serving,
    name: &str,
    client: &str,
) -> io::Result<Result<(Arc<dyn Export>, Attachment), OpenError>> {
    loop {
        let name = name.to_owned();
        match try_attach(serving, client, move |exports| exports.open(&name)).await? {
            Ok(Attached::Open(export, attachment)) => return Ok(Ok((export, attachment))),
            // The volume may be another, or none, when it is opened again.
            Ok(Attached::Closed(volume)) => serving.attachments.opened(volume).await,
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// The outcome of opening a disk.
pub(crate) enum Attached {
    Open(Arc<dyn Export>, Attachment),
    /// The volume is closed.
    Closed(VolumeId),
}

/// Opens whatever `open` opens and enters the register of its volume, unless that is closed.
pub(crate) async fn try_attach(
    serving: &Serving,
    client: &str,
    open: impl Fn(&dyn Exports) -> Result<Arc<dyn Export>, OpenError> + Clone + Send + 'static,
) -> io::Result<Result<Attached, OpenError>> {
    loop {
        let (exports, open) = (Arc::clone(&serving.exports), open.clone());
        let export = match off_thread(move || open(&*exports)).await? {
            Ok(export) => export,
            Err(error) => return Ok(Err(error)),
        };
        let (volume, part) = export.part_of();
        let Some(attachment) = serving.attachments.attach(volume, part, client) else {
            return Ok(Ok(Attached::Closed(volume)));
        };
        // A delete that was over before the register knew of this client did not see it.
        if export.is_served() {
            return Ok(Ok(Attached::Open(export, attachment)));
        }
    }
}

/// Runs what may wait for a device where that blocks no session.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}
