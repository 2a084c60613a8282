//! Moments on the command line: the contract's forms, and local times, which are said back.

use std::time::{SystemTime, UNIX_EPOCH};

use units::{Moment, TimeZone, VolumeMoment, WallTime};

use crate::session::say;

/// Reads a moment. What a local time came to is said on standard error.
pub fn read(text: &str) -> anyhow::Result<Moment> {
    if let Ok(moment) = text.parse() {
        return Ok(moment);
    }
    let reading = Moment::parse_local(text, now(), &TimeZone::system())?;
    say(&format!("{text} is {}", reading.text));
    Ok(reading.moment)
}

/// Reads `VOLUME` or `VOLUME@MOMENT`. What a local time came to is said on standard error.
pub fn read_of_volume(text: &str) -> anyhow::Result<VolumeMoment> {
    if let Ok(moment) = text.parse() {
        return Ok(moment);
    }
    let (moment, reading) = VolumeMoment::parse_local(text, now(), &TimeZone::system())?;
    say(&format!("{text} is {reading}"));
    Ok(moment)
}

fn now() -> WallTime {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime::from_nanos(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
}
