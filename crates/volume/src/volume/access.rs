//! Changes of who may log in to a volume over iSCSI.
//!
//! Invariant: each is one commit with its audit record, which tells no secret.

use crate::pool::volumes::Volumes;
use crate::types::{Access, AccessChange};
use crate::{Error, ErrorKind, Result};

impl Volumes {
    /// Changes who may log in to a volume, from the next login on.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`, `Refused`.
    pub fn set_access(&self, name: &str, change: &AccessChange) -> Result<Access> {
        self.check_open()?;
        let volume = self.volume(name)?;
        let mut tx = volume.begin()?;
        volume.check_served()?;
        volume.refuse_share("iSCSI does not serve it", "`hindsight share allow` says who may")?;
        let access = volume.access().changed(change);
        access.check()?;
        // Those in the trash come back as they are.
        for other in self.registry.all() {
            let theirs = match other.id == volume.id {
                true => access.clone(),
                false => other.access(),
            };
            if access.reflects(&theirs) || theirs.reflects(&access) {
                let what = format!("a secret of {name} would prove the other side at a target");
                return Err(Error::new(ErrorKind::Invalid, what)
                    .with_hint("give initiators and targets secrets that differ"));
            }
        }
        tx.change(&volume.record).access = access.clone();
        tx.audit("target-set", volume.name(), access.to_string())?;
        let _books = tx.commit()?;
        Ok(access)
    }
}
