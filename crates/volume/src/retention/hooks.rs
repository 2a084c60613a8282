//! Which hooks go around a capture. The engine knows their names only: whoever runs commands asks
//! here, captures between them, and says how quiet it was.
//!
//! The hook that a call or a schedule names comes first, then the one that is set for the volume or
//! the group. A capture of a group that has none is one of each of its volumes, with the hooks of
//! these.

use crate::Result;
use crate::catalogue::{GroupRecord, tables};
use crate::names::check_name;
use crate::retention::groups::Groups;
use crate::volume::Volume;
use crate::volume::identity::Identity;

/// The name that no hook has: none is meant, whatever is set.
pub const NO_HOOK: &str = "none";

/// A hook around a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedHook {
    /// Its name.
    pub hook: String,
    /// The name of the volume or group that it is to make quiet.
    pub subject: String,
    /// Whether that is one volume of a group, and not all of the capture.
    pub is_member: bool,
}

impl PlannedHook {
    /// Whether it is to make this volume quiet.
    #[must_use]
    pub fn covers(&self, volume: &str) -> bool {
        !self.is_member || self.subject == volume
    }
}

/// A hook that is set, or `none`.
///
/// # Errors
/// `Invalid` name.
pub fn checked_hook(name: Option<&str>) -> Result<Option<String>> {
    let Some(name) = name.filter(|&name| name != NO_HOOK) else { return Ok(None) };
    check_name("hook", name)?;
    Ok(Some(name.to_owned()))
}

impl Identity {
    /// The hook around a capture for which `said` is named, if there is any.
    #[must_use]
    pub fn hook_for(&self, said: Option<&str>) -> Option<String> {
        match said {
            Some(name) => (name != NO_HOOK).then(|| name.to_owned()),
            None => self.record.lock().hook.clone(),
        }
    }
}

impl Groups {
    /// The hooks around a capture of a group for which `said` is named, the outermost first.
    pub(crate) fn hooks_of(&self, group: &GroupRecord, said: Option<&str>) -> Vec<PlannedHook> {
        let own = match said {
            Some(NO_HOOK) => return Vec::new(),
            Some(name) => Some(name.to_owned()),
            None => group.hook.clone(),
        };
        if let Some(hook) = own {
            return vec![PlannedHook { hook, subject: group.name.clone(), is_member: false }];
        }
        let members = self.registry.by_ids(&group.members);
        let hook = |volume: &std::sync::Arc<Volume>| {
            let hook = volume.hook_for(None)?;
            Some(PlannedHook { hook, subject: volume.name().to_owned(), is_member: true })
        };
        members.iter().filter_map(hook).collect()
    }

    /// The hooks around a capture of a group for which `said` is named, the outermost first.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn group_hooks(&self, name: &str, said: Option<&str>) -> Result<Vec<PlannedHook>> {
        Ok(self.hooks_of(&self.group_record(name)?, said))
    }

    /// Sets the hook around captures of a group; without one those of its volumes are used.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`, `Refused`.
    pub fn set_group_hook(&self, name: &str, hook: Option<&str>) -> Result<()> {
        let hook = checked_hook(hook)?;
        let core = &self.core;
        let mut tx = core.begin()?;
        let mut record = self.group_record(name)?;
        let detail = format!("group {name}: hook {}", hook.as_deref().unwrap_or(NO_HOOK));
        record.hook = hook;
        tx.put(tables::GROUPS, record.id, &record)?;
        tx.audit("group-set", "", detail)?;
        let _books = tx.commit()?;
        self.set_groups(vec![record]);
        Ok(())
    }
}
