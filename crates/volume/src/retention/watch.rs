//! The watch over a volume: its setting, and the alarms that it gave. Each alarm has a pinned mark
//! at the moment before what it tells of began, so that this can be had back whatever expires.
//!
//! False alarms may cost nothing but space, and that has a bound: of the marks of a volume's alarms
//! the oldest and the newest stay, and those only for so long. More alarms, which a writer can
//! cause, do not make the oldest go: it is the one from before all of it.

use units::{Moment, Sensitivity, WallTime};

use crate::catalogue::{AlarmRecord, WatchRecord};
use crate::retention::moments::Moments;
use crate::types::{Alarm, AlarmKind, Resolved, Stamp, WatchInfo};
use crate::{Error, ErrorKind, Result};

/// Alarms that are kept of a volume.
const ALARMS_MAX: usize = 16;
/// Marks of alarms that hold their moments.
const HELD_MAX: usize = 8;
/// For so long they do, in nanoseconds: a week.
const HELD_NS: u64 = 7 * 86_400 * 1_000_000_000;

impl WatchRecord {
    /// When it gave the last alarm.
    pub fn alarmed(&self) -> Option<WallTime> {
        self.alarms.last().map(|alarm| WallTime::from_nanos(alarm.given_ns))
    }
}

impl Moments {
    /// The watch over it, if there is one.
    #[must_use]
    pub fn watch(&self) -> Option<WatchInfo> {
        let WatchRecord { sensitivity, alarms } = self.record.lock().watch.clone()?;
        let pins = self.pins().lock();
        let told = |alarm: AlarmRecord| {
            let mark = pins.mark(&alarm.mark);
            Alarm {
                is_held: mark.is_some_and(|mark| mark.pinned && mark.seq == alarm.seq),
                mark: alarm.mark,
                at: Stamp::of(alarm.seq, alarm.time_ns),
                given: WallTime::from_nanos(alarm.given_ns),
                kind: alarm.kind,
                bytes: alarm.bytes,
            }
        };
        Some(WatchInfo { sensitivity, alarms: alarms.into_iter().map(told).collect() })
    }

    /// Has it watched so, or no more. Alarms that were given stay as long as it is watched; marks
    /// of theirs stay until they are deleted.
    ///
    /// # Errors
    /// `Invalid` for a share; `NotFound` once the volume is deleted; `Refused`.
    pub fn set_watch(&self, sensitivity: Option<Sensitivity>) -> Result<()> {
        let mut tx = self.begin()?;
        self.check_served()?;
        if self.record.lock().share.is_some() {
            let text = format!("{} is a share: volumes are watched", self.name);
            return Err(Error::new(ErrorKind::Invalid, text)
                .with_hint("`share ops` tells who changed what in a share"));
        }
        let watch = &mut tx.change(&self.record).watch;
        *watch = sensitivity.map(|sensitivity| {
            let alarms = watch.take().map_or(Vec::new(), |watch| watch.alarms);
            WatchRecord { sensitivity, alarms }
        });
        let detail = sensitivity.map_or("off".to_owned(), |how| how.to_string());
        tx.audit("watch-set", &self.name, detail)?;
        tx.commit().map(drop)
    }

    /// Gives an alarm: `before`, which is open, is the moment before that of which it tells.
    ///
    /// # Errors
    /// `NotFound` where nothing watches the volume, or it is deleted; those of making a mark.
    pub fn give_alarm(&self, before: Resolved, kind: AlarmKind, bytes: u64) -> Result<Alarm> {
        let name = self.alarm_mark(before.time);
        let given = self.now();
        let at = Moment::Seq(before.seq);
        let mark = self.create_mark_with(&name, &at, true, |tx, mark| {
            let alarm = AlarmRecord {
                mark: name.clone(),
                seq: mark.seq,
                time_ns: mark.time_ns,
                given_ns: given.as_nanos(),
                kind,
                bytes,
            };
            let watch = &mut tx.change(&self.record).watch;
            let alarms = &mut watch.as_mut().ok_or_else(|| self.unwatched())?.alarms;
            alarms.push(alarm);
            // The first stays told as long as its mark may.
            let over = alarms.len().saturating_sub(ALARMS_MAX);
            alarms.drain(1..=over);
            let detail = format!("{}, {bytes} bytes; mark {name} (seq {})", kind.name(), mark.seq);
            tx.audit("watch-alarm", &self.name, detail)
        })?;
        Ok(Alarm { mark: mark.name, at: mark.stamp, given, kind, bytes, is_held: true })
    }

    /// Deletes marks of alarms that have held their moments for long enough, and of more alarms
    /// than are held.
    ///
    /// # Errors
    /// Those of deleting a mark.
    pub fn let_go_of_alarms(&self) -> Result<()> {
        let Some(watch) = self.watch() else { return Ok(()) };
        let now = self.now().as_nanos();
        let held: Vec<Alarm> = watch.alarms.into_iter().filter(|alarm| alarm.is_held).collect();
        let over = held.len().saturating_sub(HELD_MAX);
        for (number, alarm) in held.iter().enumerate() {
            let is_old = now.saturating_sub(alarm.given.as_nanos()) >= HELD_NS;
            if (1..=over).contains(&number) || is_old {
                self.delete_mark(&alarm.mark)?;
            }
        }
        Ok(())
    }

    /// The error of a volume that is not watched.
    #[must_use]
    pub fn unwatched(&self) -> Error {
        Error::new(ErrorKind::NotFound, format!("{} is not watched", self.name))
            .with_hint(format!("hindsight watch set {}", self.name))
    }

    /// A name that no mark has, by the second of a moment.
    fn alarm_mark(&self, time: WallTime) -> String {
        let second: String = time.to_string().chars().take(19).collect();
        let name = format!("watch-{}Z", second.replace(['-', ':'], ""));
        let mut names =
            std::iter::once(name.clone()).chain((2_u32..).map(|number| format!("{name}-{number}")));
        names.find(|name| !self.has_mark(name)).expect("numbers have no end")
    }
}
