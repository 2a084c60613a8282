//! Names of moments that iSCSI initiators have opened, kept so that they mean the same after a
//! restart. The engine keeps them and knows no protocol: the front end says which, and which it has
//! forgotten.

use units::{Moment, Seq};

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

/// How long a name whose moment cannot be opened any more is kept: initiators that try again are
/// refused, and get no other disk.
const GONE_KEPT_NS: u64 = 86_400_000_000_000;

impl Volumes {
    /// Those that are kept and can be read, at a start: one that cannot means what it means now.
    /// One whose moment could not be opened at a start a day ago or longer, nor now, is kept no
    /// more. Which of them can be opened no more is written down; that may fail on its own.
    ///
    /// # Errors
    /// The device's; within, `Refused` as well.
    pub fn opened_names(&self) -> Result<(Vec<OpenedName>, Result<()>)> {
        // By the machine's clock: the pool's own time is not known yet at a start.
        let now_ns = self.core.machine.clock.wall().as_nanos();
        let (mut kept, mut changed) = (Vec::new(), Vec::new());
        self.core.catalogue.each(tables::OPENED_NAMES, ""..="\u{7f}", |name, record| {
            if let Ok(before) = record {
                let gone_ns = match self.can_be_opened(&before) {
                    true => None,
                    false => Some(before.gone_ns.map_or(now_ns, |gone_ns| gone_ns.min(now_ns))),
                };
                let is_over = gone_ns.is_some_and(|gone_ns| now_ns - gone_ns >= GONE_KEPT_NS);
                let after = (!is_over).then_some(OpenedNameRecord { gone_ns, ..before });
                let (name, volume_id, seq) = (name.to_owned(), before.volume, Seq(before.seq));
                if after != Some(before) {
                    changed.push((name.clone(), after));
                }
                kept.extend(after.map(|_| OpenedName { name, volume_id, seq }));
            }
            Ok(true)
        })?;
        Ok((kept, self.change_opened_names(&changed)))
    }

    fn change_opened_names(&self, changed: &[(String, Option<OpenedNameRecord>)]) -> Result<()> {
        if changed.is_empty() {
            return Ok(());
        }
        let tx = self.core.begin()?;
        for (name, after) in changed {
            match after {
                Some(record) => tx.put(tables::OPENED_NAMES, &**name, record)?,
                None => tx.remove(tables::OPENED_NAMES, &**name)?,
            }
        }
        tx.commit().map(drop)
    }

    fn can_be_opened(&self, record: &OpenedNameRecord) -> bool {
        let seq = Seq(record.seq);
        let resolved = self.volume_by_id(record.volume).map(|it| it.resolve(&Moment::Seq(seq)));
        resolved.is_some_and(|resolved| resolved.is_ok_and(|resolved| resolved.seq == seq))
    }

    /// Keeps one, and none of those that are forgotten.
    ///
    /// # Errors
    /// `Refused`.
    pub fn keep_opened_name(&self, opened: &OpenedName, forgotten: &[String]) -> Result<()> {
        self.check_open()?;
        let tx = self.core.begin()?;
        forgotten.iter().try_for_each(|name| tx.remove(tables::OPENED_NAMES, &**name))?;
        let OpenedName { volume_id, seq: Seq(seq), .. } = *opened;
        let record = OpenedNameRecord { volume: volume_id, seq, gone_ns: None };
        tx.put(tables::OPENED_NAMES, &*opened.name, &record)?;
        tx.commit().map(drop)
    }
}
