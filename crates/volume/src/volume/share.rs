//! Shares: volumes that hold a file tree. Changes of their settings, and what they refuse.
//!
//! Invariant: each change is one commit with its audit record.

use std::sync::Arc;

use units::WallTime;

use crate::catalogue::VolumeRecord;
use crate::pool::volumes::Volumes;
use crate::types::{SHARE_BYTES, ShareChange, ShareSetting, VolumeSpec};
use crate::volume::identity::Identity;
use crate::{Error, Result, Volume};

impl VolumeSpec {
    /// A share as it is where nothing else is asked for.
    #[must_use]
    pub fn share(name: &str) -> VolumeSpec {
        VolumeSpec {
            strict: true,
            share: Some(ShareSetting::default()),
            ..VolumeSpec::new(name, SHARE_BYTES)
        }
    }
}

impl Identity {
    /// Its settings as a share, if it is one.
    #[must_use]
    pub fn share(&self) -> Option<Arc<ShareSetting>> {
        self.record.lock().share.clone()
    }

    /// Refuses what no share has.
    pub(crate) fn refuse_share(&self, what: &str, hint: &str) -> Result<()> {
        if self.record.lock().share.is_none() {
            return Ok(());
        }
        Err(Error::invalid(format!("{} is a share: {what}", self.name())).with_hint(hint))
    }
}

impl Volumes {
    /// Changes the settings of a share.
    ///
    /// # Errors
    /// `NotFound`, also for an entry that is to go and is not there; `Invalid`, also for a volume
    /// that is no share; `Refused`.
    pub fn change_share(&self, name: &str, change: &ShareChange) -> Result<Arc<ShareSetting>> {
        self.check_open()?;
        let volume = self.volume(name)?;
        let now = volume.now();
        let mut tx = volume.begin()?;
        volume.check_served()?;
        let before = volume.share().ok_or_else(|| no_share(volume.name()))?;
        let share = Arc::new(before.changed(change, volume.name(), now)?);
        tx.change(&volume.record).share = Some(Arc::clone(&share));
        tx.audit("share-set", volume.name(), change.to_string())?;
        drop(tx.commit()?);
        if before.reads_since_ns.is_none() && share.reads_since_ns.is_some() {
            // Until the commit nobody logged any.
            volume.log_reads_from(volume.now())?;
        }
        Ok(share)
    }
}

impl Volume {
    /// Says of a share whose reads are in its operation log that until a time there are some which
    /// are not.
    ///
    /// # Errors
    /// Those of the commit.
    pub fn log_reads_from(&self, time: WallTime) -> Result<()> {
        let mut tx = self.begin()?;
        let Some(before) = self.share() else { return Ok(()) };
        if before.reads_since_ns.is_none_or(|since| since >= time.as_nanos()) {
            return Ok(());
        }
        let reads_since_ns = Some(time.as_nanos());
        let share = ShareSetting { reads_since_ns, ..(*before).clone() };
        tx.change(&self.record).share = Some(Arc::new(share));
        tx.audit("share-reads-unlogged", self.name(), format!("reads are logged from {time} on"))?;
        tx.commit().map(drop)
    }

    /// Adds a line to the audit log for a command that changed the files of this share.
    ///
    /// # Errors
    /// Those of the commit.
    pub fn note_share_command(&self, command: &str, detail: String) -> Result<()> {
        let mut tx = self.begin()?;
        tx.audit(&format!("share-{command}"), self.name(), detail)?;
        tx.commit().map(drop)
    }
}

/// The volume is no share.
fn no_share(name: &str) -> Error {
    Error::invalid(format!("{name} is a volume and no share"))
        .with_hint("a volume is made as a share, `hindsight share create`, or never is one")
}

/// The settings that a new volume has as a share.
///
/// # Errors
/// `Invalid`.
pub fn setting(spec: &VolumeSpec) -> Result<Option<Arc<ShareSetting>>> {
    let mut setting = spec.share.clone();
    setting.iter_mut().try_for_each(ShareSetting::settle)?;
    Ok(setting.map(Arc::new))
}

/// Refuses a new share that is not as shares are.
///
/// # Errors
/// `Invalid`.
pub fn check(record: &VolumeRecord) -> Result<()> {
    let is_whole = || record.sizes.iter().all(|&(_, size)| size == SHARE_BYTES);
    if record.share.is_none() || record.strict && is_whole() {
        return Ok(());
    }
    Err(Error::invalid("a share is a strict volume of 4 PiB of address space")
        .with_hint("give neither size nor `strict`: shares have no size"))
}
