//! `cargo x sim` and `cargo x crash`: the long runs of the tests in `crates/volume`, optimised.

use anyhow::{Context, Result, bail};

use crate::program;

/// Seconds that a simulation without a given length goes on.
const SECONDS_DEFAULT: u64 = 60;

/// Runs the simulator with one seed, or with new ones until the time is over.
pub fn sim(arguments: &[String]) -> Result<()> {
    let (seed, seconds) = seed_and_seconds(arguments)?;
    let budget = match (&seed, seconds) {
        (_, Some(seconds)) => Some(seconds.to_string()),
        (None, None) => Some(SECONDS_DEFAULT.to_string()),
        (Some(_), None) => None,
    };
    let mut variables = Vec::new();
    if let Some(seed) = &seed {
        variables.push(("HINDSIGHT_SIM_SEED", seed.as_str()));
    }
    if let Some(budget) = &budget {
        variables.push(("HINDSIGHT_SIM_SECONDS", budget.as_str()));
    }
    let arguments = ["test", "--release", "-p", "hindsight-volume", "--test", "sim"];
    program::cargo_with(&[&arguments[..], &["--", "--nocapture"]].concat(), &variables)
}

/// Runs the crash enumeration to its full depth, or as much of it as fits into a length, from the
/// history with a number on.
pub fn crash(arguments: &[String]) -> Result<()> {
    let (first, seconds) = seed_and_seconds(arguments)?;
    let seconds = seconds.map(|seconds| seconds.to_string());
    let mut variables = vec![("HINDSIGHT_CRASH_FULL", "1")];
    variables.extend(first.as_deref().map(|first| ("HINDSIGHT_SIM_SEED", first)));
    variables.extend(seconds.as_deref().map(|seconds| ("HINDSIGHT_SIM_SECONDS", seconds)));
    let arguments = ["test", "--release", "-p", "hindsight-volume", "--test", "sim", "crash"];
    program::cargo_with(&[&arguments[..], &["--", "--nocapture"]].concat(), &variables)
}

/// `[NUMBER] [--for LENGTH]`
fn seed_and_seconds(arguments: &[String]) -> Result<(Option<String>, Option<u64>)> {
    let (mut seed, mut seconds) = (None, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--for" {
            let length = rest.next().context("--for needs a length, such as 10m")?;
            seconds = Some(seconds_of(length)?);
        } else {
            let number: u64 = argument.parse().context("a seed is a number")?;
            seed = Some(number.to_string());
        }
    }
    Ok((seed, seconds))
}

/// Reads `90s`, `10m` or `2h`.
fn seconds_of(text: &str) -> Result<u64> {
    let (digits, unit) = text.split_at(text.len() - usize::from(!text.is_empty()));
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => bail!("{text}: a length ends in s, m or h"),
    };
    let number: u64 = digits.parse().with_context(|| format!("{text}: not a length"))?;
    number.checked_mul(factor).with_context(|| format!("{text}: too long"))
}

#[cfg(test)]
mod tests {
    use super::seconds_of;

    #[test]
    fn lengths_have_a_unit() {
        assert_eq!(seconds_of("10m").unwrap(), 600);
        assert_eq!(seconds_of("90s").unwrap(), 90);
        for bad in ["", "m", "10", "10d", "-1s", "99999999999999999999h"] {
            assert!(seconds_of(bad).is_err(), "{bad}");
        }
    }
}
