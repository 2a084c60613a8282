//! Transactions of the log: records hold operations, of many transactions one after the other, and
//! operations hold parts of the regions of a transaction's items.

use std::collections::BTreeMap;

use super::log::OPERATION_BYTES;
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
/// An operation takes more memory than its data: items of one short region take the most.
const OPERATION_COST_BYTES: usize = 192;

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
    /// Takes a record in: its change, how many operations it has, and its data; `each` gets the
    /// transactions that are whole with it.
    pub fn take(
        &mut self,
        (lsn, operations): (u64, u32),
        data: &[u8],
        each: &mut dyn FnMut(Transaction) -> Result<()>,
    ) -> Result<()> {
        let mut rest = data;
        for _ in 0..operations {
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
            if let Some(whole) = self.operation(lsn, be32(head, 0), byte(head, 9), data)? {
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

#[cfg(test)]
mod tests {
    use super::{COMMIT, CONTINUE, END, HEAD_MAGIC, OF_TRANSACTION, START, WAS_CONTINUED};
    use super::{Transaction, Transactions};

    fn record(operations: &[(u32, u8, &[u8])]) -> (u32, Vec<u8>) {
        let mut data = Vec::new();
        for (number, flags, bytes) in operations {
            data.extend(number.to_be_bytes());
            data.extend((bytes.len() as u32).to_be_bytes());
            data.extend([OF_TRANSACTION, *flags, 0, 0]);
            data.extend(*bytes);
        }
        (operations.len() as u32, data)
    }

    /// Two transactions of one item each, one within the other; its head and a region of the first
    /// are in three records.
    #[test]
    fn transactions_go_on_over_records() {
        let head = [&HEAD_MAGIC.to_le_bytes()[..], &[0; 12]].concat();
        let item = |number: u8| [0x3C, 0x12, 2, 0, number];
        let whole = CONTINUE | WAS_CONTINUED;
        let records = [
            record(&[(7, START, b""), (7, CONTINUE, &head[..6])]),
            record(&[
                (7, WAS_CONTINUED | END, &head[6..]),
                (7, 0, &item(1)),
                (7, CONTINUE, b"one "),
            ]),
            record(&[(9, START, b""), (9, 0, &head), (9, 0, &item(2)), (7, whole, b"region")]),
            record(&[(9, 0, b"other"), (9, COMMIT, b""), (8, COMMIT, b""), (3, 0, b"before")]),
            record(&[(7, WAS_CONTINUED | END, b" of three"), (7, COMMIT, b"")]),
        ];
        let mut open = Transactions::default();
        let mut found = Vec::new();
        for (lsn, (operations, data)) in (1..).zip(&records) {
            let mut each = |whole: Transaction| {
                found.push((whole.lsn, whole.items[0].regions.clone()));
                Ok(())
            };
            open.take((lsn, *operations), data, &mut each).unwrap();
        }
        let expected = [
            (3, vec![item(2).to_vec(), b"other".to_vec()]),
            (1, vec![item(1).to_vec(), b"one region of three".to_vec()]),
        ];
        assert_eq!(found, expected);
        assert_eq!((open.bytes, open.open.len()), (0, 0));
        let (operations, data) = &records[1];
        let cut = open.take((9, *operations), &data[..data.len() - 1], &mut |_| Ok(()));
        assert!(cut.is_err());
    }
}
