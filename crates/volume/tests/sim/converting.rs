//! Volumes whose architecture changes.

use hindsight_volume::{Architecture, CacheChange, Result, VolumeChange};

use crate::action::Action;
use crate::cached::draw_cache;
use crate::world::{Trouble, World};

/// Steps after which nothing may be left to do, in a world without trouble.
const STEPS_MAX: usize = 5000;

impl World {
    /// Changes an architecture, with a cache as it allows.
    pub fn convert(&mut self, name: &str, architecture: Architecture) -> Result<()> {
        let volume = self.volume(name);
        let cache = match &mut self.caches {
            Some(random) => draw_cache(random, !architecture.needs_cache()),
            None if architecture.needs_cache() => {
                CacheChange { bytes: Some(64 << 10), dirty_percent: Some(100) }
            }
            None => CacheChange::default(),
        };
        let copy_unit = match self.units {
            Some(_) => Some(self.copy_unit(architecture, volume.info()?.granularity)),
            None => None,
        };
        let architecture = Some(architecture);
        let change = VolumeChange { architecture, cache, copy_unit, ..VolumeChange::default() };
        volume.change(&change)?;
        let info = volume.info()?;
        assert_eq!(Some(info.architecture), architecture, "it changes at once");
        self.model(name).cached = info.cache.is_some();
        Ok(())
    }

    /// What is under way comes to an end, where there is room.
    pub fn end_conversions(&mut self) {
        self.calm();
        self.trouble = Trouble::None;
        self.act(&Action::SpaceLimit(None));
        for _ in 0..STEPS_MAX {
            let (_, free, available) = self.pool().room();
            let status = self.pool().status();
            let is_tight = available < status.size_bytes / 6 || free < status.size_bytes / 6;
            let volumes = self.pool().volumes().into_iter();
            let open = volumes.filter(|v| v.info().is_ok_and(|info| info.conversion.is_some()));
            if open.count() == 0 || is_tight {
                self.act(&Action::CheckAll);
                return;
            }
            self.act(&Action::Step(1 << 20));
        }
        let infos = self.pool().volumes().into_iter().map(|volume| volume.info());
        let left: Vec<_> = infos.map(|info| info.map(|i| (i.name, i.conversion))).collect();
        panic!("conversions go on for ever: {left:?}");
    }
}
