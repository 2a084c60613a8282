//! Texts that users type: whatever is read is printed and read back as the same.

#![no_main]

use hindsight_units::{Moment, Size, Span, VolumeMoment, WallTime};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(moment) = text.parse::<Moment>() {
        assert_eq!(moment.to_string().parse(), Ok(moment));
    }
    if let Ok(named) = text.parse::<VolumeMoment>() {
        assert_eq!(named.to_string().parse(), Ok(named));
    }
    if let Ok(size) = text.parse::<Size>() {
        assert_eq!(size.to_string().parse(), Ok(size));
    }
    if let Ok(span) = text.parse::<Span>() {
        assert_eq!(span.to_string().parse(), Ok(span));
    }
    if let Ok(time) = text.parse::<WallTime>() {
        assert_eq!(time.to_string().parse(), Ok(time));
    }
});
