//! Names of moments that iSCSI initiators have opened, kept so that they mean the same after a
//! restart. The engine keeps them and knows no protocol: the front end says which, and which it has
//! forgotten.

use units::Seq;

use crate::Result;
use crate::catalogue::{OpenedNameRecord, tables};
use crate::pool::volumes::Volumes;

/// A name and the moment that it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedName {
    /// The name.
    pub name: String,
    /// The volume's number; there need not be such a volume any more.
    pub volume_id: u64,
    /// The moment.
    pub seq: Seq,
}

impl Volumes {
    /// Those that are kept and can be read: one that cannot means what it means now.
    ///
    /// # Errors
    /// The device's.
    pub fn opened_names(&self) -> Result<Vec<OpenedName>> {
        let mut all = Vec::new();
        self.core.catalogue.each(tables::OPENED_NAMES, ""..="\u{7f}", |name, record| {
            all.extend(record.ok().map(|OpenedNameRecord { volume, seq }| OpenedName {
                name: name.to_owned(),
                volume_id: volume,
                seq: Seq(seq),
            }));
            Ok(true)
        })?;
        Ok(all)
    }

    /// Keeps one, and none of those that are forgotten.
    ///
    /// # Errors
    /// `Refused`.
    pub fn keep_opened_name(&self, opened: &OpenedName, forgotten: &[String]) -> Result<()> {
        self.check_open()?;
        let tx = self.core.begin()?;
        forgotten.iter().try_for_each(|name| tx.remove(tables::OPENED_NAMES, &**name))?;
        let record = OpenedNameRecord { volume: opened.volume_id, seq: opened.seq.0 };
        tx.put(tables::OPENED_NAMES, &*opened.name, &record)?;
        tx.commit().map(drop)
    }
}
