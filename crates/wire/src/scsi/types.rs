//! The words that all commands share: units and statuses.

/// Status of a command; any number can arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u8);

impl Status {
    /// Done.
    pub const GOOD: Status = Status(0x00);
    /// Sense data says what is wrong.
    pub const CHECK_CONDITION: Status = Status(0x02);
    /// PRE-FETCH: all of it is in the cache.
    pub const CONDITION_MET: Status = Status(0x04);
    /// Try again.
    pub const BUSY: Status = Status(0x08);
    /// Another one has reserved the unit.
    pub const RESERVATION_CONFLICT: Status = Status(0x18);
    /// Too many tasks.
    pub const TASK_SET_FULL: Status = Status(0x28);
    /// Aborted by another initiator, where the control mode page wants that told.
    pub const TASK_ABORTED: Status = Status(0x40);
}

/// Address of a logical unit: 64 bits, of which a flat target uses the first 16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lun(pub u64);

impl Lun {
    /// The well known unit REPORT LUNS, which is not there.
    pub const REPORT_LUNS: Lun = Lun(0xc101_0000_0000_0000);

    /// The address of a number: peripheral below 256, else flat.
    ///
    /// # Panics
    /// From 16384.
    #[must_use]
    pub const fn from_number(number: u16) -> Lun {
        assert!(number < 1 << 14, "a flat address has 14 bits");
        let method = if number < 256 { 0 } else { 1 << 14 };
        Lun((method | number as u64) << 48)
    }

    /// The number of a peripheral or flat address of one level; `None` of any other.
    #[must_use]
    pub const fn number(self) -> Option<u16> {
        let [first, second, ..] = self.0.to_be_bytes();
        if self.0 << 16 != 0 {
            return None;
        }
        match first >> 6 {
            0 if first == 0 => Some(second as u16),
            1 => Some(u16::from_be_bytes([first & 0x3f, second])),
            _ => None,
        }
    }
}
