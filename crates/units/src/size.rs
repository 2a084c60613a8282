//! Sizes in bytes: `10GiB`, `10G` (= GiB, as qemu-img and lvm), `4096`.
//!
//! `GB` is refused: it is 7 % less than `GiB` on a label and the same in most tools, so whoever
//! writes it may mean either.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::malformed::{Malformed, shorten};
use crate::number::{Decimal, DecimalError};

/// A size in bytes, read from `10GiB`, `10G` (= GiB) or `4096`. Serialised as its number.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Size(pub u64);

/// Unit letters; each is 1,024 times the one before, the first 1,024 bytes.
const LETTERS: &str = "KMGTPE";

const UNITS_HINT: &str = "use bytes or a unit of KiB, MiB, GiB, TiB, PiB, EiB, as in 10GiB or 4096";

impl Size {
    /// Bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Size {
    /// Prints with the largest unit that leaves no fraction: `10GiB`, `1536MiB`, `4097`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.pad("0");
        }
        let power = (self.0.trailing_zeros() / 10) as usize;
        match power.checked_sub(1).and_then(|i| LETTERS.as_bytes().get(i)) {
            Some(&letter) => f.pad(&format!("{}{}iB", self.0 >> (10 * power), char::from(letter))),
            None => f.pad(&self.0.to_string()),
        }
    }
}

impl FromStr for Size {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Size, Malformed> {
        let refuse = |message: String, hint: &str| Malformed::new(message, hint);
        let shown = shorten(text);
        let (number, unit) = Decimal::split(text).map_err(|kind| match kind {
            DecimalError::NotANumber => refuse(format!("`{shown}` is not a size"), UNITS_HINT),
            DecimalError::TooLong => refuse(format!("`{shown}` is too long a number"), UNITS_HINT),
        })?;
        let unit_bytes = match unit {
            "" | "B" => 1,
            _ => unit_bytes(unit).map_err(|hint| {
                refuse(format!("`{shown}` is not a size: its unit is unknown"), &hint)
            })?,
        };
        number
            .times(unit_bytes)
            .map(Size)
            .ok_or_else(|| refuse(format!("`{shown}` is too large"), "sizes end below 16 EiB"))
    }
}

/// Bytes of a unit such as `G`, `g`, `Gi`, `GiB`; else a hint.
fn unit_bytes(unit: &str) -> Result<u64, String> {
    let mut chars = unit.chars();
    let letter = chars.next().map(|c| c.to_ascii_uppercase());
    let Some(power) = letter.and_then(|c| LETTERS.find(c)) else {
        return Err(UNITS_HINT.into());
    };
    let rest = chars.as_str();
    if rest.eq_ignore_ascii_case("b") {
        let letter = &LETTERS[power..=power];
        return Err(format!("write {letter}iB; decimal units are not taken"));
    }
    if rest.is_empty() || rest.eq_ignore_ascii_case("i") || rest.eq_ignore_ascii_case("ib") {
        return Ok(1 << (10 * (power + 1)));
    }
    Err(UNITS_HINT.into())
}
