//! Transactions of the log: records hold operations, of many transactions one after the other, and
//! operations hold parts of the regions of a transaction's items.

use std::collections::BTreeMap;

use super::log::{OPERATION_BYTES, Record};
use crate::bytes::{be32, byte, le16, le32};
use crate::error::{Error, Result};

const START: u8 = 0x01;
const COMMIT: u8 = 0x02;
const CONTINUE: u8 = 0x04;
const WAS_CONTINUED: u8 = 0x08;
const END: u8 = 0x10;
const UNMOUNT: u8 = 0x20;
const OF_TRANSACTION: u8 = 0x69;
const OF_LOG: u8 = 0xAA;

const HEAD_MAGIC: u32 = 0x5452_414E;
const HEAD_BYTES: usize = 16;
/// Regions of an item: half the chunks of the largest block, and one that tells of them.
const REGIONS_MAX: usize = 257;
/// What transactions that are not whole yet hold, in bytes.
const OPEN_BYTES_MAX: usize = 256 << 20;
/// An operation takes more memory than its data.
const OPERATION_COST_BYTES: usize = 64;

/// Something that a transaction changed.
pub struct Item {
    /// The first tells of the others.
    pub regions: Vec<Vec<u8>>,
    total: usize,
}

impl Item {
    pub fn kind(&self) -> u16 {
        le16(&self.regions[0], 0)
    }
}

/// What was changed at once.
pub struct Transaction {
    /// Where its first record is: its place in the order of changes.
    pub lsn: u64,
    pub items: Vec<Item>,
    head: Vec<u8>,
    bytes: usize,
}

/// Transactions that are not whole yet, by number.
#[derive(Default)]
pub struct Transactions {
    open: BTreeMap<u32, Transaction>,
    bytes: usize,
}

fn damaged(what: &str) -> Error {
    Error::damaged(format!("the log: {what}"))
}

impl Transactions {
    /// Takes a record in; `each` gets the transactions that are whole with it.
    pub fn take(
        &mut self,
        record: &Record,
        each: &mut dyn FnMut(Transaction) -> Result<()>,
    ) -> Result<()> {
        let mut rest = &record.data[..];
        for _ in 0..record.operations {
            if rest.is_empty() {
                break;
            }
            let head = rest.get(..OPERATION_BYTES);
            let length = be32(rest, 4) as usize;
            let data = rest.get(OPERATION_BYTES..OPERATION_BYTES.saturating_add(length));
            let (Some(head), Some(data)) = (head, data) else {
                return Err(damaged("an operation is longer than its record"));
            };
            if ![OF_TRANSACTION, OF_LOG].contains(&byte(head, 8)) {
                return Err(damaged("an operation of nobody"));
            }
            rest = &rest[OPERATION_BYTES + length..];
            if let Some(whole) = self.operation(record.lsn, be32(head, 0), byte(head, 9), data)? {
                each(whole)?;
            }
        }
        Ok(())
    }

    /// One operation; the transaction if it is whole with it.
    fn operation(
        &mut self,
        lsn: u64,
        number: u32,
        flags: u8,
        data: &[u8],
    ) -> Result<Option<Transaction>> {
        self.bytes += data.len() + OPERATION_COST_BYTES;
        if self.bytes > OPEN_BYTES_MAX {
            let mib = OPEN_BYTES_MAX >> 20;
            return Err(Error::limit(format!("the log has transactions of more than {mib} MiB")));
        }
        let Some(open) = self.open.get_mut(&number) else {
            // What began before the log's tail is all in its place already.
            if flags & START != 0 {
                let (head, items) = (Vec::new(), Vec::new());
                let bytes = data.len() + OPERATION_COST_BYTES;
                self.open.insert(number, Transaction { lsn, items, head, bytes });
            } else {
                self.bytes -= data.len() + OPERATION_COST_BYTES;
            }
            return Ok(None);
        };
        open.bytes += data.len() + OPERATION_COST_BYTES;
        let mut flags = flags & !END;
        if flags & WAS_CONTINUED != 0 {
            flags &= !CONTINUE;
        }
        match flags {
            0 | CONTINUE => open.add(data)?,
            WAS_CONTINUED => open.go_on(data)?,
            COMMIT | UNMOUNT => {
                let whole = self.open.remove(&number);
                self.bytes -= whole.as_ref().map_or(0, |whole| whole.bytes);
                return Ok(whole.filter(|_| flags == COMMIT));
            }
            _ => return Err(damaged("an operation of no kind")),
        }
        Ok(None)
    }
}

impl Transaction {
    /// A region begins.
    fn add(&mut self, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        if self.head.len() < HEAD_BYTES {
            let is_first = self.head.is_empty() && le32(data, 0) == HEAD_MAGIC;
            if !is_first || data.len() > HEAD_BYTES {
                return Err(damaged("a transaction without its head"));
            }
            self.head.extend(data);
            return Ok(());
        }
        if self.items.last().is_none_or(|item| item.regions.len() == item.total) {
            let total = usize::from(le16(data, 2));
            if !(1..=REGIONS_MAX).contains(&total) {
                return Err(damaged("an item of no regions, or too many"));
            }
            self.items.push(Item { regions: Vec::new(), total });
        }
        if let Some(item) = self.items.last_mut() {
            item.regions.push(data.to_vec());
        }
        Ok(())
    }

    /// A region goes on in another record.
    fn go_on(&mut self, data: &[u8]) -> Result<()> {
        let rest = match self.items.last_mut().and_then(|item| item.regions.last_mut()) {
            Some(region) => region,
            None if self.head.len() + data.len() <= HEAD_BYTES => &mut self.head,
            None => return Err(damaged("a transaction without its head")),
        };
        rest.extend(data);
        Ok(())
    }
}
