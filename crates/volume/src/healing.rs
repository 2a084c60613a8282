//! What was found wrong on the devices, in the audit log.

use crate::core::Core;
use crate::{Pool, Result};

impl Core {
    /// Writes down what readers found wrong since the last call.
    ///
    /// # Errors
    /// Those of the commit.
    pub fn note_healed(&self) -> Result<()> {
        let found = self.store.take_healed();
        if found.total() == 0 {
            return Ok(());
        }
        let mut parts = Vec::new();
        for (count, how) in [
            (found.recovered, "written again from another copy"),
            (found.transient, "right when read again"),
            (found.unrecoverable, "wrong on every copy: revert to, or read from, another moment"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {how}"));
            }
        }
        let what = parts.join("; ");
        self.note("heal", "", format!("found wrong, first at byte {}: {what}", found.first_at))
    }

    fn note(&self, action: &str, volume: &str, detail: String) -> Result<()> {
        let (mut numbers, commit) = self.begin()?;
        self.audit(&mut numbers, &commit, action, volume, detail)?;
        self.finish(&numbers, commit)
    }
}

impl Pool {
    /// Adds a line to the audit log about something that happened to the pool's devices.
    ///
    /// # Errors
    /// `Refused` after a failure; those of the commit.
    pub fn note(&self, action: &str, detail: String) -> Result<()> {
        self.check_open()?;
        self.core.note(action, "", detail)
    }
}
