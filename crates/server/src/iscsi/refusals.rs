//! Logins that were refused, by reason.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use wire::iscsi::LoginStatus;

use crate::prometheus::tell_each;

/// Why logins are refused, as they are counted.
const REASONS: [&str; 5] = ["authentication", "authorization", "not-found", "unavailable", "other"];

/// Refused logins since the server started, for each of [`REASONS`].
#[derive(Debug, Default)]
pub(super) struct Refusals([AtomicU64; REASONS.len()]);

impl Refusals {
    /// One was refused with this status.
    pub(super) fn count(&self, status: LoginStatus) {
        let place = match status {
            LoginStatus::AUTHENTICATION_FAILURE => 0,
            LoginStatus::AUTHORIZATION_FAILURE => 1,
            LoginStatus::NOT_FOUND => 2,
            LoginStatus::SERVICE_UNAVAILABLE | LoginStatus::OUT_OF_RESOURCES => 3,
            _ => 4,
        };
        self.0[place].fetch_add(1, Ordering::Relaxed);
    }
}

/// Tells Prometheus of them.
#[derive(Debug)]
pub(crate) struct RefusalCollector(pub(super) Arc<Refusals>);

impl Collector for RefusalCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = REASONS.iter().zip(&self.0.0).map(|(reason, count)| {
            ([("reason", *reason)], ConstCounter::new(count.load(Ordering::Relaxed)))
        });
        let told = ("hindsight_iscsi_logins_refused", "Logins that were refused");
        tell_each(&mut encoder, told, counts)
    }
}
