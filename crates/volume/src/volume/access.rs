//! Changes of who may log in to a volume over iSCSI.
//!
//! Invariant: each is one commit with its audit record, which tells no secret.

use std::sync::Arc;

use crate::pool::token_book::Token;
use crate::pool::volumes::Volumes;
use crate::types::{Access, AccessChange, Credential};
use crate::{Error, Result};

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
        self.check_secrets((name, Some(volume.id)), &access)?;
        self.check_targets_of(&volume, &access)?;
        tx.change(&volume.record).access = access.clone();
        tx.audit("target-set", volume.name(), access.to_string())?;
        let _books = tx.commit()?;
        Ok(access)
    }

    /// Fails where the secrets of a volume, by its number, or of a target, as they are to be, would
    /// prove one side here and the other somewhere else. Under the books.
    pub(crate) fn check_secrets(
        &self,
        (name, id): (&str, Option<u64>),
        access: &Access,
    ) -> Result<()> {
        // Those in the trash come back as they are.
        let volumes = self.registry.all().into_iter().filter(|volume| Some(volume.id) != id);
        let mut others: Vec<Access> = volumes.map(|volume| volume.access()).collect();
        let targets = self.targets.lock();
        others.extend(targets.values().filter(|it| it.name != name).map(|it| it.access.clone()));
        drop(targets);
        let of_token = |token: &Arc<Token>| {
            let (user, secret) = (token.spec.name.clone(), token.spec.chap.clone()?);
            Some(Access { chap: Some(Credential { user, secret }), ..Access::default() })
        };
        others.extend(self.tokens().iter().filter_map(of_token));
        others.push(access.clone());
        if others.iter().any(|theirs| access.reflects(theirs) || theirs.reflects(access)) {
            let what = format!("a secret of {name} would prove the other side at a target");
            let hint = "give initiators and targets secrets that differ";
            return Err(Error::invalid(what).with_hint(hint));
        }
        Ok(())
    }
}
