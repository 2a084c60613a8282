//! The disks of a session, by the numbers of their units, and what rings for it.

use std::sync::Arc;

use tokio::task::JoinSet;
use wire::scsi::{Code, Identity, Lun};

use super::bells::{Bell, Bells, OpenUnit};
use super::context::{IscsiContext, SECTOR_BYTES};
use super::reservations::Port;
use super::sessions::Opened;
use super::unit::{Nexus, Number, Ring};
use crate::Attachment;
use crate::meters::VolumeMeter;
use crate::serving::Export;

/// A disk of a session.
pub(super) struct Disk {
    pub(super) number: Number,
    pub(super) export: Arc<dyn Export>,
    pub(super) nexus: Nexus,
    pub(super) identity: Identity,
    pub(super) opened: Opened,
    pub(super) meter: Option<Arc<VolumeMeter>>,
    pub(super) seen: Vec<trace::Request>,
    /// It was taken from the session: what is under way ends, nothing begins.
    pub(super) is_taken: bool,
    /// Its session may only read, and change nothing for others.
    pub(super) is_reader: bool,
    /// One of several: it is one session's own client, which can leave alone.
    pub(super) attachment: Option<Attachment>,
    size_bytes: u64,
    /// The turn in which its size was looked at.
    looked: u64,
}

impl Disk {
    /// A unit that was opened, for a session.
    pub(super) fn new(unit: OpenUnit, port: Port, bells: &Bells, context: &IscsiContext) -> Disk {
        let OpenUnit { number, export, attachment, identity, opened } = unit;
        let rung = bells.clone();
        let ring = Ring(Box::new(move |time| {
            // A session that is gone has ended all.
            let _ = rung.send(Bell::Abort(number, time));
        }));
        Disk {
            nexus: context.units.join(opened.0, export.reservations(), port, ring),
            size_bytes: export.size_bytes(),
            meter: export.present_of().and_then(|id| context.meters.of(id, export.name())),
            seen: Vec::new(),
            attachment: Some(attachment),
            is_taken: false,
            is_reader: false,
            looked: 0,
            number,
            export,
            identity,
            opened,
        }
    }

    /// Rings when the volume is wanted without this session, which goes on with its other disks.
    pub(super) fn watch(&self, bells: &Bells, watchers: &mut JoinSet<()>) {
        let Some(mut leave) = self.attachment.as_ref().map(Attachment::leave_signal) else {
            return;
        };
        let (number, bells) = (self.number, bells.clone());
        watchers.spawn(async move {
            if leave.wait_for(|leave| *leave).await.is_ok() {
                let _ = bells.send(Bell::Leave(number));
            }
        });
    }

    /// Whether commands are carried out.
    pub(super) fn is_there(&self) -> bool {
        !self.is_taken && self.export.is_served()
    }

    /// Tells the initiator, once in a turn, of another size than it knows.
    pub(super) fn look_at_size(&mut self, turn: u64) {
        if std::mem::replace(&mut self.looked, turn) == turn {
            return;
        }
        let size_bytes = self.export.size_bytes();
        if std::mem::replace(&mut self.size_bytes, size_bytes) != size_bytes {
            self.nexus.attend(Code::CAPACITY_CHANGED);
        }
    }

    /// Its logical blocks, one at least.
    pub(super) fn blocks(&self) -> u64 {
        (self.size_bytes / u64::from(SECTOR_BYTES)).max(1)
    }

    /// Whether it takes no writes.
    pub(super) fn is_protected(&self) -> bool {
        self.export.present_of().is_none() || self.is_reader || self.nexus.mode().software_protected
    }
}

/// The disks of a session, in the order of their numbers.
pub(super) struct Disks {
    all: Vec<Disk>,
    is_reader: bool,
}

impl Disks {
    /// Of a session that may only read, or write too.
    pub(super) fn new(is_reader: bool) -> Disks {
        Disks { all: Vec::new(), is_reader }
    }

    /// Whether the session may only read.
    pub(super) fn is_reader(&self) -> bool {
        self.is_reader
    }

    fn place(&self, number: Number) -> Result<usize, usize> {
        self.all.binary_search_by_key(&number, |disk| disk.number)
    }

    /// The disk at an address, also one that was taken.
    pub(super) fn at(&self, lun: Lun) -> Option<&Disk> {
        self.all.get(self.place(lun.number()?).ok()?)
    }

    /// The same, to be changed.
    pub(super) fn at_mut(&mut self, lun: Lun) -> Option<&mut Disk> {
        let place = self.place(lun.number()?).ok()?;
        self.all.get_mut(place)
    }

    /// All, also those that were taken.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Disk> {
        self.all.iter()
    }

    /// The same, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Disk> {
        self.all.iter_mut()
    }

    /// Adds one; a number is one disk's.
    pub(super) fn add(&mut self, disk: Disk) {
        match self.place(disk.number) {
            Err(place) => {
                self.all.insert(place, Disk { is_reader: self.is_reader, ..disk });
            }
            Ok(_) => tracing::error!(number = disk.number, "a unit that is there is not added"),
        }
    }

    /// Lets go of one.
    pub(super) fn remove(&mut self, number: Number) {
        if let Ok(place) = self.place(number) {
            self.all.remove(place);
        }
    }

    /// The addresses of those that are there.
    pub(super) fn luns(&self) -> Vec<Lun> {
        let there = self.all.iter().filter(|disk| disk.is_there());
        there.map(|disk| Lun::from_number(disk.number)).collect()
    }
}
