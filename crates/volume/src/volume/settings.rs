//! Changes of a volume's settings.
//!
//! Invariant: each is one commit, made while the log's gate is closed, for a granularity holds from
//! a seq on; what is refused changes nothing.

use units::Seq;

use crate::catalogue::VolumeRecord;
use crate::jobs::encoding;
use crate::retention::grace::Told;
use crate::retention::hooks::checked_hook;
use crate::types::{Architecture, Granularity, VolumeChange};
use crate::volume::Volume;
use crate::volume::creation::check_size;
use crate::write::{cache_sizes, copy_unit, whole};
use crate::{Error, Result};

impl Volume {
    /// Changes settings. A finer granularity holds from now on; what was thinned out stays so.
    ///
    /// # Errors
    /// `Invalid` values; `Refused` or `Io`. A refused change changes nothing.
    pub fn change(&self, change: &VolumeChange) -> Result<()> {
        self.check_change(change)?;
        let Some(size_bytes) = change.size_bytes else { return self.change_settings(change) };
        self.resize_and(size_bytes, change)
    }

    /// Refuses a change that is impossible as the volume stands, and changes nothing.
    ///
    /// # Errors
    /// `Invalid` values; `NotFound`, `Refused`.
    pub fn check_change(&self, change: &VolumeChange) -> Result<()> {
        self.check_open()?;
        if let Some(Granularity::Interval(0)) = change.granularity {
            return Err(Error::invalid("an interval is longer than nothing"));
        }
        if let Some(size_bytes) = change.size_bytes {
            self.refuse_share("it has no size", "`--history-limit` says how much history it has")?;
            check_size(size_bytes)?;
        }
        let is_switched = change.architecture.is_some_and(|to| to != self.architecture());
        if change.size_bytes.is_some() && is_switched {
            return Err(Error::invalid("size and architecture are changed one after the other"));
        }
        let mut record = self.record.lock().clone();
        self.settle_settings(&mut record, change, Seq(u64::MAX)).map(drop)
    }

    pub(crate) fn change_settings(&self, change: &VolumeChange) -> Result<()> {
        if let Some(to) = change.architecture {
            self.prepare_switch(to)?;
        }
        let still = self.stand_still()?;
        let (switched, shares) = self.log().with_gate(|gate| -> Result<_> {
            let mut tx = self.begin()?;
            let before = self.record.lock().clone();
            let from = Seq(gate.last_seq().0 + 1);
            let graced = self.settle_settings(tx.change(&self.record), change, from)?;
            let to = change.architecture.unwrap_or(before.architecture);
            let switched = self.switch_in_gate(to, &mut tx)?;
            let detail = change.to_string();
            tx.audit("volume-set", &self.name, detail)?;
            if let Some((action, detail)) = graced {
                tx.audit(action, &self.name, detail)?;
            }
            let record = tx.change(&self.record).clone();
            let switch = || switched.iter().for_each(|switched| self.switched(switched, &record));
            let _books = tx.commit_then(switch)?;
            Ok((switched, self.settings_changed(&before)))
        })?;
        drop(still);
        if let Some(switched) = &switched {
            self.end_switch(switched);
        }
        if shares {
            self.core.host().iter().for_each(|host| host.share_memory());
        }
        Ok(())
    }

    /// Enters settings in a record that is about to be committed, but for architecture and size; a
    /// granularity from a seq on. Says what is to be told of a grace period.
    pub(crate) fn settle_settings(
        &self,
        record: &mut VolumeRecord,
        change: &VolumeChange,
        from: Seq,
    ) -> Result<Option<Told>> {
        if let Some(granularity) = change.granularity {
            record.granularities.retain(|&(first, _)| first < from.0);
            if record.granularities.is_empty() || record.granularity_at(from) != granularity {
                record.granularities.push((from.0, granularity));
            }
        }
        let times = (self.core.time(), self.core.machine.clock.wall());
        let graced = record.set_retention(change, times);
        let before = record.cache;
        let to = change.architecture.unwrap_or(record.architecture);
        record.cache = cache_sizes::setting(to, before, change.cache)?;
        if record.cache != before {
            self.core.host()?.check_cache(record.cache, Some(self.id))?;
        }
        record.encoding = encoding::setting(record.encoding, change.encoding)?;
        record.dedup = change.dedup.unwrap_or(record.dedup);
        record.copy_unit = copy_unit::of(record, change)?;
        whole::check(record)?;
        if let Some(hook) = &change.hook {
            record.hook = checked_hook(hook.as_deref())?;
        }
        Ok(graced)
    }

    /// Goes by settings that were committed; says whether memory is to be shared out anew.
    pub(crate) fn settings_changed(&self, before: &VolumeRecord) -> bool {
        let (cache, encoding) = {
            let record = self.record.lock();
            self.set_copy_unit(record.copy_unit);
            (record.cache, record.encoding)
        };
        if encoding != before.encoding {
            self.encode_anew();
        }
        if cache.is_none() {
            self.cache().set(None);
        }
        self.cache().set_granularity(self.granularity_now());
        self.cache().remember_rewrites(self.architecture() == Architecture::Hybrid);
        cache != before.cache
    }
}
