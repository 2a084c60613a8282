//! Decimal numbers with a unit behind them, read exactly: the shared part of sizes and spans.
//!
//! Invariant: no floating point; `1.5h` is 5,400,000,000,000 ns and not nearly so.

/// Digits behind the point that are read; more are refused.
const FRACTION_DIGITS_MAX: usize = 18;

/// A decimal number as it was written: `whole` + `fraction` / 10^`fraction_digits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    whole: u64,
    fraction: u64,
    fraction_digits: u32,
}

/// Why a text does not begin with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecimalError {
    /// It does not begin with a digit, or has no digit where one is due.
    NotANumber,
    /// It is beyond 64 bits, or has too many digits behind the point.
    TooLong,
}

impl Decimal {
    /// Splits `text` into the number it begins with and the unit behind it.
    pub(crate) fn split(text: &str) -> Result<(Decimal, &str), DecimalError> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return Err(DecimalError::NotANumber);
        }
        if fraction.len() > FRACTION_DIGITS_MAX {
            return Err(DecimalError::TooLong);
        }
        let read = |part: &str| part.parse::<u64>().map_err(|_| DecimalError::TooLong);
        let fraction_digits = u32::try_from(fraction.len()).map_err(|_| DecimalError::TooLong)?;
        let decimal = Decimal { whole: read(whole)?, fraction: read(fraction)?, fraction_digits };
        Ok((decimal, unit))
    }

    /// This many times `unit`, cut to a whole number; `None` beyond 64 bits.
    pub(crate) fn times(self, unit: u64) -> Option<u64> {
        let scale = 10u128.pow(self.fraction_digits);
        let fraction = u128::from(self.fraction) * u128::from(unit) / scale;
        let total = u128::from(self.whole) * u128::from(unit) + fraction;
        u64::try_from(total).ok()
    }
}
