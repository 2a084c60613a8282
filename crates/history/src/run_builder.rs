//! Writing runs: of map entries, and of times.

use std::sync::Arc;

use format::map::Entry;
use format::page::PageAddress;
use format::time::{TIME_ENTRIES_MAX, TimeEntry, TimePage};

use crate::map_pages::ExtentWriter;
use crate::map_zones::PageOf;
use crate::run::{PageSink, RunWriter};
use crate::store::Store;
use crate::stored_run::StoredRun;
use crate::time_index::TimeRun;
use crate::timeline::Timeline;
use crate::{Error, ErrorKind, Result};

/// Writes a run of map entries.
pub struct RunBuilder {
    id: u64,
    order: u64,
    timeline: u64,
    log: u64,
    writer: RunWriter<ExtentWriter>,
}

impl RunBuilder {
    /// A builder with no entries yet, for a timeline.
    pub fn new(store: &Arc<Store>, id: u64, order: u64, timeline: &Timeline) -> RunBuilder {
        let Timeline { id: timeline, log, extent, .. } = *timeline;
        let sink = ExtentWriter::new(Arc::clone(store), log, PageOf::Map);
        let writer = RunWriter::new(sink, store.pool_id, id, timeline, extent);
        RunBuilder { id, order, timeline, log, writer }
    }

    /// Appends an entry; entries come in run order.
    ///
    /// # Errors
    /// `Full`, `Refused`, or the device's.
    pub fn push(&mut self, entry: Entry) -> Result<()> {
        self.writer.push(entry)
    }

    /// Completes the run; `None` when it has no entries.
    ///
    /// # Errors
    /// `Full`, `Refused`, or the device's.
    pub fn finish(self, store: &Arc<Store>) -> Result<Option<StoredRun>> {
        let (sink, footer) = self.writer.finish()?;
        let extents = sink.finish()?;
        if footer.is_none() {
            return Ok(None);
        }
        let owner = (self.timeline, self.log);
        StoredRun::open(store, self.id, self.order, owner, extents).map(Some)
    }
}

/// Writes a part of a log's time index; `stays` if it is joined with no other any more.
///
/// # Errors
/// `Full`, `Refused`, or the device's.
pub fn write_time_run(
    store: &Arc<Store>,
    id: u64,
    log: u64,
    entries: &[TimeEntry],
    stays: bool,
) -> Result<TimeRun> {
    let (first, last) = match entries {
        [] => return Err(Error::new(ErrorKind::Corrupt, "a time run has entries")),
        [first, .., last] => (*first, *last),
        [only] => (*only, *only),
    };
    let of = if stays { PageOf::Times } else { PageOf::YoungTimes };
    let mut writer = ExtentWriter::new(Arc::clone(store), log, of);
    for (page, part) in entries.chunks(TIME_ENTRIES_MAX).enumerate() {
        let page = u32::try_from(page).expect("a part is small");
        writer.append_page(&TimePage::encode(PageAddress::new(store.pool_id, id, page), part))?;
    }
    let pages = writer.finish()?;
    let (entries, io) = (entries.len() as u64, store.io(log));
    Ok(TimeRun { id, pages, entries, first, last, is_open_ended: false, io })
}
