//! Pools served as disks: volumes, and their past by moment.

use std::sync::Arc;

use units::{Moment, Seq, VolumeMoment};
use volume::{
    Access, Error, ErrorKind, Extent, InitiatorPort, Lack, OpenedName, Pool, Reservations, Result,
    RoomWait, TargetInfo, Updated, View, Volume, VolumeChange, WriteOp, Written,
};

use crate::NoSpace;
use crate::attach::{Part, VolumeId};

use super::export::{Changes, Export, Exports, Listed, OpenError, Stretch};

/// Everything in a pool that is a disk: shares are not.
pub struct PoolExports {
    pool: Arc<Pool>,
    no_space: Arc<NoSpace>,
}

impl PoolExports {
    /// The volumes of `pool`.
    #[must_use]
    pub fn new(pool: Arc<Pool>) -> PoolExports {
        PoolExports { pool, no_space: Arc::default() }
    }

    /// The writes that failed for want of room.
    #[must_use]
    pub fn no_space(&self) -> &Arc<NoSpace> {
        &self.no_space
    }

    fn disks(&self) -> Vec<Arc<Volume>> {
        let mut volumes = self.pool.volumes();
        volumes.retain(|volume| volume.share().is_none());
        volumes
    }

    fn present(&self, volume: Arc<Volume>) -> Arc<dyn Export> {
        Arc::new(Present { volume, no_space: Arc::clone(&self.no_space) })
    }
}

fn in_words(message: &str, hint: Option<&str>) -> OpenError {
    match hint {
        Some(hint) => OpenError::new(format!("{message}; {hint}")),
        None => OpenError::new(message),
    }
}

impl From<Error> for OpenError {
    fn from(error: Error) -> OpenError {
        let is_wrong = matches!(
            error.kind,
            ErrorKind::NotFound | ErrorKind::Invalid | ErrorKind::OutsideWindow { .. }
        );
        let words = in_words(&error.message, error.hint.as_deref());
        OpenError { may_pass: !is_wrong, ..words }
    }
}

impl Exports for PoolExports {
    fn open(&self, name: &str) -> std::result::Result<Arc<dyn Export>, OpenError> {
        if name.is_empty() {
            return match &self.disks()[..] {
                [only] => Ok(self.present(Arc::clone(only))),
                [] => Err(OpenError::new("there is no volume yet")),
                many => Err(OpenError::new(format!(
                    "there are {} volumes: name the one you want",
                    many.len()
                ))),
            };
        }
        let wanted: VolumeMoment =
            name.parse().map_err(|e: units::Malformed| in_words(&e.message, e.hint.as_deref()))?;
        let volume = self.pool.volume(&wanted.volume)?;
        if volume.share().is_some() {
            let name = volume.name();
            let hint = format!("`hindsight share show {name}` says how");
            return Err(in_words(&format!("{name} is a share: mount it over NFS"), Some(&hint)));
        }
        if !name.contains('@') {
            return Ok(self.present(volume));
        }
        let view = volume.view(&wanted.moment)?;
        Ok(Arc::new(Past { name: name.to_owned(), volume, view }))
    }

    fn open_unit(
        &self,
        volume: VolumeId,
        moment: Option<Seq>,
    ) -> std::result::Result<Arc<dyn Export>, OpenError> {
        let found = self.pool.volume_by_id(volume);
        let volume = found.ok_or_else(|| OpenError::new("its volume was deleted"))?;
        let Some(seq) = moment else { return Ok(self.present(volume)) };
        let view = volume.view(&Moment::Seq(seq))?;
        if view.resolved().seq != seq {
            return Err(OpenError::new("its moment can no longer be opened"));
        }
        Ok(Arc::new(Past { name: format!("{}@seq:{seq}", volume.name()), volume, view }))
    }

    fn targets(&self) -> Vec<TargetInfo> {
        self.pool.targets()
    }

    fn target(&self, name: &str) -> Option<TargetInfo> {
        self.pool.target(name).ok()
    }

    fn targets_after(&self, name: &str, limit: usize) -> Vec<(String, Access)> {
        self.pool.targets_after(name, limit)
    }

    fn keep_opened_name(&self, opened: &OpenedName, forgotten: &[String]) -> Result<()> {
        self.pool.keep_opened_name(opened, forgotten)
    }

    fn presents(&self) -> Vec<Arc<dyn Export>> {
        self.disks().into_iter().map(|volume| self.present(volume)).collect()
    }

    fn list(&self, limit: usize) -> Vec<Listed> {
        let volumes = self.disks();
        let mut listed: Vec<Listed> = volumes.iter().map(|v| present(v)).take(limit).collect();
        for volume in &volumes {
            if listed.len() >= limit {
                break;
            }
            // A version that cannot be named now is left out: a list is no place for the error.
            let left = limit - listed.len();
            let newest = volume.newest_versions(left).unwrap_or_default();
            let marks = volume.marks().unwrap_or_default();
            let name = volume.name();
            let versions = newest.iter().map(|v| Listed {
                name: format!("{name}@v:{}", v.number),
                description: format!("{name} at {} {}", v.stamp.time, v.label)
                    .trim_end()
                    .to_owned(),
            });
            let marks = marks.iter().filter(|m| m.pinned).map(|m| Listed {
                name: format!("{name}@mark:{}", m.name),
                description: format!("{name} at {}", m.stamp.time),
            });
            listed.extend(versions.chain(marks).take(left));
        }
        listed
    }
}

fn present(volume: &Volume) -> Listed {
    let name = volume.name().to_owned();
    Listed { description: format!("the present of {name}"), name }
}

/// The present of a volume.
struct Present {
    volume: Arc<Volume>,
    no_space: Arc<NoSpace>,
}

impl Present {
    /// Counts what fails for want of room: its client is told so.
    fn told<T>(&self, done: Result<T>) -> Result<T> {
        if done.as_ref().is_err_and(|error| error.kind == ErrorKind::Full) {
            self.no_space.note(self.volume.name());
        }
        done
    }
}

impl Export for Present {
    fn name(&self) -> &str {
        self.volume.name()
    }

    fn description(&self) -> String {
        present(&self.volume).description
    }

    fn part_of(&self) -> (VolumeId, Part) {
        (self.volume.id(), Part::Present)
    }

    fn is_served(&self) -> bool {
        self.volume.is_served()
    }

    fn access(&self) -> Access {
        self.volume.access()
    }

    fn reservations(&self) -> Option<Reservations> {
        Some(self.volume.reservations())
    }

    fn keep_reservations(&self, kept: &Reservations, by: &InitiatorPort) -> Result<()> {
        self.volume.keep_reservations(kept, by)
    }

    fn last_rewrite(&self) -> Option<Seq> {
        Some(self.volume.last_rewrite())
    }

    fn size_bytes(&self) -> u64 {
        self.volume.size_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.volume.read(offset, buffer)
    }

    fn try_read(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.volume.try_read(offset, buffer)
    }

    fn write_some(&self, ops: &[WriteOp<'_>], done: u64, may_wait: bool) -> Result<Written> {
        self.told(self.volume.write_some(ops, done, may_wait))
    }

    fn update(
        &self,
        offset: u64,
        length_bytes: u64,
        change: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<Updated> {
        self.told(self.volume.update(offset, length_bytes, change))
    }

    fn wait_for(&self, lack: Lack, wait: &mut RoomWait, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let had = self.volume.wait_for(lack, wait, goes_on);
        // Given up because the client is gone: nobody is told.
        if goes_on() { self.told(had) } else { had }
    }

    fn flush(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        self.told(self.volume.flush_while(goes_on))
    }

    fn extents(&self, offset: u64, length_bytes: u64, limit: usize) -> Result<Vec<Extent>> {
        self.volume.extents(offset, length_bytes, limit)
    }

    fn resize(&self, size_bytes: u64, never_smaller: bool) -> Result<()> {
        let size_bytes = Some(size_bytes);
        self.volume.change(&VolumeChange { size_bytes, never_smaller, ..VolumeChange::default() })
    }

    fn changes_since(&self, moment: &str) -> std::result::Result<Arc<dyn Changes>, OpenError> {
        changes(&self.volume, moment, Moment::Latest)
    }
}

/// A moment of a volume.
struct Past {
    name: String,
    volume: Arc<Volume>,
    view: Arc<View>,
}

fn read_only() -> Error {
    Error::new(ErrorKind::Invalid, "the past cannot be written")
}

impl Export for Past {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        let at = self.view.resolved();
        format!("{} as it was at {} (seq {})", self.volume.name(), at.time, at.seq)
    }

    fn part_of(&self) -> (VolumeId, Part) {
        (self.volume.id(), Part::Past)
    }

    fn is_served(&self) -> bool {
        self.volume.is_served()
    }

    fn access(&self) -> Access {
        self.volume.access()
    }

    fn moment(&self) -> Option<Seq> {
        Some(self.view.resolved().seq)
    }

    fn size_bytes(&self) -> u64 {
        self.view.size_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.view.read(offset, buffer)
    }

    fn try_read(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.view.try_read(offset, buffer)
    }

    fn write_some(&self, _: &[WriteOp<'_>], _: u64, _: bool) -> Result<Written> {
        Err(read_only())
    }

    fn wait_for(&self, _: Lack, _: &mut RoomWait, _: &dyn Fn() -> bool) -> Result<()> {
        Err(read_only())
    }

    fn flush(&self, _: &dyn Fn() -> bool) -> Result<()> {
        Ok(())
    }

    fn extents(&self, offset: u64, length_bytes: u64, limit: usize) -> Result<Vec<Extent>> {
        self.view.extents(offset, length_bytes, limit)
    }

    fn resize(&self, _: u64, _: bool) -> Result<()> {
        Err(read_only())
    }

    fn changes_since(&self, moment: &str) -> std::result::Result<Arc<dyn Changes>, OpenError> {
        changes(&self.volume, moment, Moment::Seq(self.view.resolved().seq))
    }
}

fn changes(
    volume: &Arc<Volume>,
    moment: &str,
    until: Moment,
) -> std::result::Result<Arc<dyn Changes>, OpenError> {
    let moment: Moment =
        moment.parse().map_err(|e: units::Malformed| in_words(&e.message, e.hint.as_deref()))?;
    let view = volume.view(&moment)?;
    let since = view.resolved().seq;
    Ok(Arc::new(Since { volume: Arc::clone(volume), since, until, _view: view }))
}

/// The differences between a moment and an export.
struct Since {
    volume: Arc<Volume>,
    since: Seq,
    until: Moment,
    /// Keeps the moment openable.
    _view: Arc<View>,
}

impl Changes for Since {
    fn extents(&self, offset: u64, length_bytes: u64, limit: usize) -> Result<Vec<Stretch>> {
        let end = offset + length_bytes;
        let since = Moment::Seq(self.since);
        // A range and the gap before it make two extents.
        let count = limit.div_ceil(2);
        let page = self.volume.diff(&since, &self.until, offset, length_bytes, count)?;
        let mut extents = Vec::new();
        let mut at = offset;
        for range in &page.ranges {
            let from = range.offset.clamp(at, end);
            let to = range.offset.saturating_add(range.length_bytes).clamp(from, end);
            push(&mut extents, from - at, false);
            push(&mut extents, to - from, true);
            at = to;
        }
        let known_until = page.next_offset.map_or(end, |next| next.clamp(at, end));
        push(&mut extents, known_until - at, false);
        extents.truncate(limit);
        Ok(extents)
    }
}

fn push(extents: &mut Vec<Stretch>, length_bytes: u64, differs: bool) {
    if length_bytes > 0 {
        extents.push(Stretch { length_bytes, differs });
    }
}
