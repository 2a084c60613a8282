//! The log's lines while a pool on members is opened after a crash: its progress, and its cost.

use std::time::{Duration, Instant};

use volume::{SettlePhase, Settling};

/// How often it says how far it is.
const EVERY: Duration = Duration::from_secs(5);

/// Hears how far an opening is.
#[derive(Default)]
pub(crate) struct OpeningLog {
    said: Option<(SettlePhase, Instant)>,
}

impl OpeningLog {
    /// Says so, if that was not said just now.
    pub(crate) fn tell(&mut self, state: &Settling) {
        let is_new =
            |(phase, at): (SettlePhase, Instant)| phase != state.phase || at.elapsed() >= EVERY;
        // After a clean stop nothing is to be done.
        let is_idle = state.unsettled_bytes == 0 && state.phase != SettlePhase::Catalogue;
        if is_idle || !self.said.is_none_or(is_new) {
            return;
        }
        self.said = Some((state.phase, Instant::now()));
        let Settling { unsettled_bytes, read_bytes, percent, wrong, .. } = *state;
        let ms = |nanos: u64| nanos / 1_000_000;
        let (copies_ms, parity_ms) = (ms(state.copies_ns), ms(state.parity_ns));
        match state.phase {
            SettlePhase::Catalogue => {
                let (tried, most) = state.trials;
                let text = "opening: the catalogue is wrong; other ways of reading it are tried";
                tracing::warn!(tried, most, "{text}");
            }
            SettlePhase::Agreement => {
                let text = "opening: where parity agrees is looked at";
                tracing::info!(unsettled_bytes, percent, "{text}");
            }
            SettlePhase::Copies => {
                let text = "opening: copies of what was in flight are looked at";
                tracing::info!(unsettled_bytes, read_bytes, percent, "{text}");
            }
            SettlePhase::Parity => {
                let text = "opening: copies agree; parity is computed where there is some";
                tracing::info!(unsettled_bytes, percent, copies_ms, "{text}");
            }
            SettlePhase::Done => {
                let text = "opening: what was in flight is settled";
                tracing::info!(unsettled_bytes, read_bytes, wrong, copies_ms, parity_ms, "{text}");
            }
        }
    }
}
