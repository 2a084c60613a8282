//! A change of settings in words, for the audit log.

use std::fmt;

use units::Span;

use crate::types::{Granularity, VolumeChange};

impl VolumeChange {
    /// Whether it names no setting.
    pub(crate) fn is_of_size_only(&self) -> bool {
        let VolumeChange { size_bytes, never_smaller, .. } = *self;
        *self == VolumeChange { size_bytes, never_smaller, ..VolumeChange::default() }
    }
}

impl fmt::Display for VolumeChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |bytes: u64| format!("{bytes} bytes");
        let span = |nanos: u64| Span(nanos).to_string();
        let named = [
            ("size", self.size_bytes.map(bytes)),
            ("architecture", self.architecture.map(|a| a.name().to_owned())),
            ("granularity", self.granularity.map(words)),
            ("window", self.window_ns.map(span)),
            ("history limit", self.history_limit_bytes.map(|l| l.map_or("none".to_owned(), bytes))),
            ("grace", self.grace_ns.map(span)),
            ("cache", self.cache.bytes.map(bytes)),
            ("dirty", self.cache.dirty_percent.map(|percent| format!("{percent} %"))),
            ("encoding", self.encoding.encoding.map(|e| e.name().to_owned())),
            ("encoded after", self.encoding.after_ns.map(span)),
            ("copy unit", self.copy_unit.map(|unit| unit.to_string())),
            ("dedup", self.dedup.map(|on| if on { "on" } else { "off" }.to_owned())),
            ("hook", self.hook.clone().map(|hook| hook.unwrap_or("none".to_owned()))),
        ];
        let told = named.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
        f.write_str(&told.collect::<Vec<_>>().join(", "))
    }
}

pub fn words(granularity: Granularity) -> String {
    match granularity {
        Granularity::EveryWrite => "every-write".to_owned(),
        Granularity::Interval(nanos) => Span(nanos).to_string(),
        Granularity::OnDemand => "on-demand".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::types::{Architecture, Encoding, EncodingChange, VolumeChange};

    #[test]
    fn a_change_is_told_by_what_it_names_and_nothing_else() {
        assert_eq!(VolumeChange::default().to_string(), "");
        let encoding = EncodingChange { encoding: Some(Encoding::Xor), after_ns: Some(0) };
        let change = VolumeChange {
            architecture: Some(Architecture::Hybrid),
            window_ns: Some(3_600_000_000_000),
            history_limit_bytes: Some(None),
            encoding,
            hook: Some(Some("freeze".to_owned())),
            ..VolumeChange::default()
        };
        let told = "architecture hybrid, window 1h, history limit none, encoding xor, \
                    encoded after 0s, hook freeze";
        assert_eq!(change.to_string(), told);
    }
}
