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
    /// more.
    ///
    /// # Errors
    /// The device's; `Refused`.
    pub fn opened_names(&self) -> Result<Vec<OpenedName>> {
        let mut all: Vec<(String, OpenedNameRecord)> = Vec::new();
        self.core.catalogue.each(tables::OPENED_NAMES, ""..="\u{7f}", |name, record| {
            all.extend(record.ok().map(|record| (name.to_owned(), record)));
            Ok(true)
        })?;
        let now_ns = self.core.machine.clock.wall().as_nanos();
        let mut changed = Vec::new();
        all.retain_mut(|(name, record)| {
            let gone_ns = match self.can_be_opened(record) {
                true => None,
                false => Some(record.gone_ns.unwrap_or(now_ns)),
            };
            let is_over =
                gone_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) >= GONE_KEPT_NS);
            if is_over || record.gone_ns != gone_ns {
                record.gone_ns = gone_ns;
                changed.push((name.clone(), (!is_over).then_some(*record)));
            }
            !is_over
        });
        if !changed.is_empty() {
            let tx = self.core.begin()?;
            for (name, record) in &changed {
                match record {
                    Some(record) => tx.put(tables::OPENED_NAMES, &**name, record)?,
                    None => tx.remove(tables::OPENED_NAMES, &**name)?,
                }
            }
            tx.commit()?;
        }
        let opened = |(name, record): (String, OpenedNameRecord)| OpenedName {
            name,
            volume_id: record.volume,
            seq: Seq(record.seq),
        };
        Ok(all.into_iter().map(opened).collect())
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
