//! Opening what a client wants, where that blocks no session.

use std::io;
use std::sync::Arc;

use super::{Export, Exports, OpenError, Serving};
use crate::Attachment;

/// Opens a disk and enters the register of its volume, as soon as that is not closed.
pub(crate) async fn attach(
    serving: &Serving,
    name: &str,
    client: &str,
) -> io::Result<Result<(Arc<dyn Export>, Attachment), OpenError>> {
    let name = name.to_owned();
    attach_what(serving, client, move |exports| exports.open(&name)).await
}

/// The same of whatever `open` opens.
pub(crate) async fn attach_what(
    serving: &Serving,
    client: &str,
    open: impl Fn(&dyn Exports) -> Result<Arc<dyn Export>, OpenError> + Clone + Send + 'static,
) -> io::Result<Result<(Arc<dyn Export>, Attachment), OpenError>> {
    loop {
        let (exports, open) = (Arc::clone(&serving.exports), open.clone());
        let export = match off_thread(move || open(&*exports)).await? {
            Ok(export) => export,
            Err(error) => return Ok(Err(error)),
        };
        let (volume, part) = export.part_of();
        if let Some(attachment) = serving.attachments.attach(volume, part, client) {
            // A delete that was over before the register knew of this client did not see it.
            if export.is_served() {
                return Ok(Ok((export, attachment)));
            }
            continue;
        }
        // The volume may be another, or none, when it is opened again.
        serving.attachments.opened(volume).await;
    }
}

/// Runs what may wait for a device where that blocks no session.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}
