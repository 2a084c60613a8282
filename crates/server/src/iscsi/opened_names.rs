//! The memory of names of moments that were opened.
//!
//! Initiators log in again by themselves, and `-5min` would be another disk each time. So the first
//! login resolves a name, and later ones get the same moment or none. A name is forgotten a day
//! after its last session, or after the start. The catalogue keeps what a name means over restarts,
//! but for the canonical name of a moment, `:at:seq:N`, which means the same for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use env::RankedMutex;
use tokio::sync::{Mutex, OwnedMutexGuard};
use units::Seq;
use volume::OpenedName;

use crate::VolumeId;

/// Names that are remembered.
const NAMES_MAX: usize = 4096;
/// How long a name is remembered after its last session.
const NAME_KEPT: Duration = Duration::from_hours(24);
/// The moment that a name came to mean: of which volume, for another may get its name.
pub(super) type Moment = (VolumeId, Seq);

#[derive(Debug)]
struct Meaning {
    moment: Moment,
    sessions: usize,
    last_used: Instant,
    /// It means the same after a restart.
    is_durable: bool,
}

/// How a session entered a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// It did not: the name means something else, or too many are in use.
    Refused,
    Known,
    /// Its meaning is to be kept.
    ToKeep,
}

/// Names of moments, and what they mean.
#[derive(Debug, Default)]
pub(crate) struct OpenedNames {
    state: RankedMutex<State>,
    /// Held from when a name is entered until it is kept: the catalogue follows memory.
    turn: Arc<Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    opened: BTreeMap<String, Meaning>,
    /// Those that are to be kept no more.
    forgotten: BTreeSet<String>,
}

impl Meaning {
    fn of(moment: Moment, is_durable: bool) -> Meaning {
        Meaning { moment, sessions: 0, last_used: Instant::now(), is_durable }
    }

    fn is_kept(&self, now: Instant) -> bool {
        self.sessions > 0 || now - self.last_used < NAME_KEPT
    }
}

impl OpenedNames {
    /// The meaning of a name that was opened before, and not too long ago.
    pub(super) fn meaning(&self, name: &str) -> Option<Moment> {
        let now = Instant::now();
        let state = self.state.lock();
        state.opened.get(name).filter(|meaning| meaning.is_kept(now)).map(|meaning| meaning.moment)
    }

    /// Waits until nobody else is entering a name, or having one kept.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// Names that are to be kept no more.
    pub(super) fn forgotten(&self) -> Vec<String> {
        self.state.lock().forgotten.iter().cloned().collect()
    }

    /// Enters a session that opened a name which is kept with that meaning.
    pub(super) fn enter_durable(&self, name: &str, moment: Moment) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        let known = state.opened.get_mut(name).filter(|meaning| {
            meaning.is_durable && meaning.moment == moment && meaning.is_kept(now)
        });
        known.map(|meaning| meaning.sessions += 1).is_some()
    }

    /// Enters a session that opened a name, in its turn.
    pub(super) fn enter(&self, name: &str, moment: Moment) -> Entered {
        let now = Instant::now();
        let mut state = self.state.lock();
        let State { opened, forgotten } = &mut *state;
        if opened.get(name).is_none_or(|meaning| !meaning.is_kept(now)) {
            let over = opened.extract_if(.., |_, meaning| !meaning.is_kept(now));
            // Others have nothing in the catalogue.
            forgotten.extend(over.filter(|(_, meaning)| meaning.is_durable).map(|(name, _)| name));
            if opened.len() >= NAMES_MAX {
                let Some((oldest, meaning)) = forget_oldest(opened) else {
                    return Entered::Refused;
                };
                forgotten.extend(meaning.is_durable.then_some(oldest));
            }
        }
        let meaning = opened.entry(name.to_owned()).or_insert_with(|| Meaning::of(moment, false));
        if meaning.moment != moment {
            return Entered::Refused;
        }
        meaning.sessions += 1;
        if meaning.is_durable { Entered::Known } else { Entered::ToKeep }
    }

    /// Takes up the names that were kept.
    pub(crate) fn load(&self, names: Vec<OpenedName>) {
        let meaning = |it: OpenedName| (it.name, Meaning::of((it.volume_id, it.seq), true));
        self.state.lock().opened = names.into_iter().map(meaning).collect();
    }

    /// A name is kept, and these are not any more.
    pub(super) fn kept(&self, name: &str, forgotten: &[String]) {
        let mut state = self.state.lock();
        if let Some(meaning) = state.opened.get_mut(name) {
            meaning.is_durable = true;
        }
        for name in forgotten {
            state.forgotten.remove(name);
        }
    }

    pub(super) fn leave(&self, name: &str) {
        if let Some(meaning) = self.state.lock().opened.get_mut(name) {
            meaning.sessions -= 1;
            meaning.last_used = Instant::now();
        }
    }
}

/// Forgets the name that was not in use for longest; none if all are in use.
fn forget_oldest(opened: &mut BTreeMap<String, Meaning>) -> Option<(String, Meaning)> {
    let unused = opened.iter().filter(|(_, meaning)| meaning.sessions == 0);
    let oldest = unused.min_by_key(|(_, meaning)| meaning.last_used)?.0.clone();
    tracing::warn!(name = oldest, "forgotten: more names of moments are in use than are kept");
    opened.remove_entry(&oldest)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use units::Seq;
    use volume::OpenedName;

    use super::{Entered, NAME_KEPT, NAMES_MAX, OpenedNames};

    #[test]
    fn a_name_that_is_not_in_use_gives_way_to_another() {
        let names = OpenedNames::default();
        for number in 0..NAMES_MAX as u64 {
            let entered = names.enter(&number.to_string(), (1, Seq(number)));
            assert_eq!(entered, Entered::ToKeep);
            if number == 7 || number == 9 {
                names.leave(&number.to_string());
            }
        }
        assert_eq!(names.enter("another", (1, Seq(1))), Entered::ToKeep);
        assert_eq!(names.meaning("7"), None);
        assert!(names.meaning("9").is_some() && names.meaning("8").is_some());
        assert_eq!(names.enter("one more", (1, Seq(1))), Entered::ToKeep);
        assert_eq!(names.enter("too many", (1, Seq(1))), Entered::Refused);
    }

    #[test]
    fn a_name_keeps_its_meaning_for_a_day_and_over_a_restart() {
        let names = OpenedNames::default();
        assert_eq!(names.enter("past", (1, Seq(5))), Entered::ToKeep);
        // Nobody has kept it yet.
        assert_eq!(names.enter("past", (1, Seq(5))), Entered::ToKeep);
        names.kept("past", &[]);
        assert_eq!(names.enter("past", (1, Seq(5))), Entered::Known);
        (0..3).for_each(|_| names.leave("past"));
        assert_eq!(names.enter("past", (1, Seq(6))), Entered::Refused);
        assert_eq!(names.enter("past", (2, Seq(5))), Entered::Refused);
        assert_eq!(names.meaning("past"), Some((1, Seq(5))));
        let after = OpenedNames::default();
        let kept = OpenedName { name: "past".to_owned(), volume_id: 1, seq: Seq(5) };
        after.load(vec![kept]);
        assert_eq!(after.enter("past", (1, Seq(6))), Entered::Refused);
        assert_eq!(after.enter("past", (1, Seq(5))), Entered::Known);
        // It was not in use for longer than names are kept.
        let long_ago = Instant::now().checked_sub(NAME_KEPT).expect("a machine that ran so long");
        names.state.lock().opened.get_mut("past").expect("known").last_used = long_ago;
        assert_eq!(names.meaning("past"), None);
        assert_eq!(names.enter("past", (2, Seq(6))), Entered::ToKeep);
        assert!(names.state.lock().forgotten.contains("past"));
        names.kept("past", &["past".to_owned()]);
        assert!(names.state.lock().forgotten.is_empty());
    }
}
