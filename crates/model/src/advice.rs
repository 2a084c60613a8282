//! Advice: which architecture, granularity, window and cache for a measured workload, and why.
//!
//! 1. What the caller has decided stays as it is; the rest is chosen, in this order: window,
//!    granularity (the finest whose history fits), cache, architecture (the fewest device I/Os of
//!    those that suit how it is read).
//! 2. Every choice has a reason in words and its numbers beside it.
//! 3. Architecture and cache are chosen by this engine's price; the paper's stands beside it. No
//!    cache is offered that the server's memory cannot give.

use std::cell::RefCell;

use serde::Serialize;
use units::{Granularity, Size, Span};

use super::cost::{Architecture, DeviceIos};
use super::dirty_pages;
use super::engine::{EngineIos, EngineSettings, cache_bytes_max, window_ns};
use super::profile::Profile;
use crate::error::{Error, ErrorKind, Result};

const NANOS_PER_DAY: f64 = 86_400.0 * 1e9;
const WINDOW_DEFAULT: u64 = 24 * 3600;
/// Granularities that are tried, in seconds; before them every write.
const INTERVALS: [u64; 9] = [1, 10, 60, 300, 600, 1800, 3600, 6 * 3600, 24 * 3600];
/// Caches that are tried, as far as memory allows.
const CACHES: [u64; 5] = [64 << 20, 128 << 20, 256 << 20, 1 << 30, 4 << 30];
/// What a cache must save before giving up that every acknowledged write survives the server.
const CACHE_SAVES: f64 = 0.25;
/// Costs this near to each other count as the same.
const NEAR: f64 = 0.01;
/// How far the forecast of `hybrid` was from the engine's own counters at most, of fifteen
/// comparisons: it is taken where it is better even so.
const HYBRID_ERROR: f64 = 0.06;
/// Reads below this share of all bytes do not decide.
const READS_MATTER: f64 = 0.05;
/// Sequential reads from this share of the bytes read decide for data in place.
const SEQUENTIAL_MATTERS: f64 = 0.3;

/// What the caller has decided.
#[derive(Clone, Copy, Debug)]
pub struct Constraints {
    /// Architectures that there are to choose from.
    pub architectures: &'static [Architecture],
    /// Size of the volume; else how far the trace reaches.
    pub volume_bytes: Option<u64>,
    /// Granularity.
    pub granularity: Option<Granularity>,
    /// How far back every retained moment is to be kept; else 24 h.
    pub window: Option<Span>,
    /// What history may take; else as much as the volume.
    pub history_limit_bytes: Option<u64>,
    /// The cache; 0 is none.
    pub cache_bytes: Option<u64>,
    /// The share of the cache that may be dirty.
    pub dirty_share: f64,
    /// Memory of the server.
    pub memory_bytes: u64,
}

/// One way to set up the volume, and what it costs.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Architecture.
    pub architecture: Architecture,
    /// Granularity.
    pub granularity: Granularity,
    /// Window.
    pub window: Span,
    /// Cache in bytes; 0 is none.
    pub cache_bytes: u64,
    /// Device I/Os for one extent written, by the paper's formulas.
    pub ios_per_write: DeviceIos,
    /// The same of this engine, by which is chosen; `None` where it cannot be told.
    pub engine_ios_per_write: Option<EngineIos>,
    /// Device I/Os of this engine a second, at the trace's rate; the paper's where it has no price.
    pub ios_per_second: f64,
    /// The same a day.
    pub ios_per_day: f64,
    /// Bytes of history that come every day.
    pub history_bytes_per_day: f64,
    /// Bytes of history once the window is full.
    pub history_bytes: f64,
    /// Bytes of the present, apart from history.
    pub current_bytes: f64,
}

/// What to do, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The best plan.
    pub plan: Plan,
    /// Device I/Os for one extent written, without any history, with the same cache.
    pub ios_without_history: f64,
    /// Why.
    pub reasons: Vec<String>,
    /// What makes it uncertain.
    pub cautions: Vec<String>,
    /// The other architectures with the same granularity, window and cache.
    pub others: Vec<Plan>,
}

/// Advises on a workload.
///
/// # Errors
/// `Setting` when the trace has too little to go by, or a constraint is out of its range.
pub fn advise(profile: &Profile, constraints: &Constraints) -> Result<Advice> {
    let share = constraints.dirty_share;
    if !(share > 0.0 && share <= 1.0) {
        return Err(Error::setting("the dirty share of a cache is above 0 and at most 1"));
    }
    if constraints.architectures.is_empty() {
        return Err(Error::setting("there is no architecture to choose from"));
    }
    if profile.writes() == 0 || profile.duration_ns() == 0 {
        let message = "no writes over a time were measured: there is nothing to advise on";
        return Err(Error::new(ErrorKind::Setting, message));
    }
    let advisor = Advisor { profile, constraints, prices: RefCell::default() };
    Ok(advisor.advise())
}

struct Advisor<'a> {
    profile: &'a Profile,
    constraints: &'a Constraints,
    /// Prices that were asked for, by granularity, architecture and cache.
    prices: RefCell<Prices>,
}

type Prices = Vec<((Granularity, Architecture, u64), Option<EngineIos>)>;

impl Advisor<'_> {
    fn advise(&self) -> Advice {
        let mut reasons = Vec::new();
        let day = Span::from_seconds(WINDOW_DEFAULT).expect("a day fits");
        let window = self.constraints.window.unwrap_or(day);
        let granularity = self.granularity(window, &mut reasons);
        let window = self.shortened(window, granularity, &mut reasons);
        let candidates = self.candidates(granularity, &mut reasons);
        let cache_bytes = self.cache(granularity, &candidates, &mut reasons);
        let plan = |one: Architecture| self.plan(one, granularity, window, cache_bytes);
        let best = self.best(granularity, cache_bytes, &candidates);
        let plan_of_best = plan(best);
        self.explain(best, granularity, cache_bytes, &mut reasons);
        let others = Architecture::ALL.into_iter().filter(|one| *one != best).map(plan).collect();
        let wait_ns = self.wait_ns(cache_bytes);
        let shares = self.profile.shares(window_ns(granularity), wait_ns);
        Advice {
            plan: plan_of_best,
            ios_without_history: shares.ios_without_history().total(),
            reasons,
            cautions: self.cautions(best, granularity, window, cache_bytes),
            others,
        }
    }

    fn volume_bytes(&self) -> u64 {
        self.constraints.volume_bytes.unwrap_or_else(|| self.profile.span_bytes())
    }

    fn limit_bytes(&self) -> f64 {
        self.constraints.history_limit_bytes.unwrap_or_else(|| self.volume_bytes()) as f64
    }

    /// Bytes of history with this window, however it is split off.
    fn history_bytes(&self, granularity: Granularity, window: Span) -> f64 {
        let architecture = Architecture::SplitDownstream;
        let volume_bytes = self.volume_bytes();
        self.profile.space(architecture, granularity, window.as_nanos(), volume_bytes).history_bytes
    }

    fn granularity(&self, window: Span, reasons: &mut Vec<String>) -> Granularity {
        if let Some(granularity) = self.constraints.granularity {
            reasons.push(format!("granularity {granularity}: as asked"));
            return granularity;
        }
        let limit = self.limit_bytes();
        // What is longer than the trace would be a guess.
        let longest = window.min(Span(self.profile.duration_ns()));
        let intervals = INTERVALS.into_iter().filter_map(Span::from_seconds);
        let all = std::iter::once(Granularity::EveryWrite)
            .chain(intervals.filter(|span| *span < longest).map(Granularity::Interval));
        let mut last = Granularity::EveryWrite;
        for granularity in all {
            last = granularity;
            let bytes = self.history_bytes(granularity, window);
            if bytes <= limit {
                reasons.push(format!(
                    "granularity {granularity}: the finest whose history of {window} ({}) is \
                     within {}",
                    human(bytes),
                    human(limit)
                ));
                return granularity;
            }
        }
        reasons.push(format!(
            "granularity {last}: even this coarse one keeps more than {} in {window}",
            human(limit)
        ));
        last
    }

    /// A window whose history fits.
    fn shortened(&self, window: Span, granularity: Granularity, reasons: &mut Vec<String>) -> Span {
        let bytes = self.history_bytes(granularity, window);
        let limit = self.limit_bytes();
        if bytes <= limit || self.constraints.window.is_some() {
            reasons.push(format!("window {window}: {} of history", human(bytes)));
            return window;
        }
        let seconds = (window.as_nanos() as f64 / 1e9 * limit / bytes) as u64;
        let fits = rounded(Span::from_seconds(seconds.max(1)).unwrap_or(window));
        reasons.push(format!("window {fits}: what fits into {}", human(limit)));
        fits
    }

    /// Architectures that suit how the volume is read.
    fn candidates(&self, granularity: Granularity, reasons: &mut Vec<String>) -> Vec<Architecture> {
        let profile = self.profile;
        let (reads, sequential) = (profile.read_share(), profile.sequential_read_share());
        let in_place = reads >= READS_MATTER && sequential >= SEQUENTIAL_MATTERS;
        let shares = format!(
            "{:.0} % of the bytes are read, {:.0} % of these in sequence",
            reads * 100.0,
            sequential * 100.0
        );
        reasons.push(if in_place {
            format!("data in place: {shares}, which a log would scatter")
        } else {
            format!("data may lie in the log: {shares}, so a log loses little")
        });
        let suits = |one: &Architecture| match one {
            Architecture::Logging => !in_place,
            // It is a form of on-demand: without captures nothing is redirected.
            Architecture::Redirect => !in_place && granularity == Granularity::OnDemand,
            _ => true,
        };
        let there = self.constraints.architectures;
        let suited: Vec<_> = there.iter().copied().filter(suits).collect();
        if suited.is_empty() { there.to_vec() } else { suited }
    }

    /// How long a write waits in the cache.
    fn wait_ns(&self, cache_bytes: u64) -> f64 {
        let share = self.constraints.dirty_share;
        self.profile.wait_ns(dirty_pages(cache_bytes, share, self.profile.extent_bytes()))
    }

    fn ios(
        &self,
        architecture: Architecture,
        granularity: Granularity,
        cache_bytes: u64,
    ) -> DeviceIos {
        let share = self.constraints.dirty_share;
        let pages = dirty_pages(cache_bytes, share, self.profile.extent_bytes());
        let wait_ns = self.profile.wait_ns_in(window_ns(granularity), pages);
        self.profile.ios(architecture, window_ns(granularity), wait_ns)
    }

    /// What this engine takes, if that can be told.
    fn price(
        &self,
        architecture: Architecture,
        granularity: Granularity,
        cache_bytes: u64,
    ) -> Option<EngineIos> {
        let asked = (granularity, architecture, cache_bytes);
        if let Some((_, known)) = self.prices.borrow().iter().find(|(one, _)| *one == asked) {
            return *known;
        }
        let Constraints { memory_bytes, dirty_share, .. } = *self.constraints;
        let settings = EngineSettings::of(memory_bytes, cache_bytes, dirty_share);
        let price = self.profile.engine_ios(architecture, granularity, settings);
        self.prices.borrow_mut().push((asked, price));
        price
    }

    /// By what is chosen: the engine's price, or the paper's where it has none.
    fn cost(&self, one: Architecture, granularity: Granularity, cache_bytes: u64) -> f64 {
        let price = self.price(one, granularity, cache_bytes).map(EngineIos::total);
        price.unwrap_or_else(|| self.ios(one, granularity, cache_bytes).total())
    }

    /// The one with the fewest I/Os; of equals the first in the order of preference.
    fn best(
        &self,
        granularity: Granularity,
        cache_bytes: u64,
        candidates: &[Architecture],
    ) -> Architecture {
        /// Simple before shared caches before copies.
        const PREFERENCE: [Architecture; 6] = [
            Architecture::Logging,
            Architecture::Redirect,
            Architecture::SplitDownstream,
            Architecture::SplitStream,
            Architecture::Checkpointing,
            Architecture::Hybrid,
        ];
        let cost = |one: Architecture| {
            let error = if one == Architecture::Hybrid { HYBRID_ERROR } else { 0.0 };
            self.cost(one, granularity, cache_bytes) * (1.0 + error)
        };
        let is_all = |one: &Architecture| candidates == [*one];
        // They split what leaves a cache, and are nothing without one.
        let needs_cache = [Architecture::SplitDownstream, Architecture::Hybrid];
        let has_place = |one: &Architecture| cache_bytes > 0 || !needs_cache.contains(one);
        let may = |one: &Architecture| candidates.contains(one) && (has_place(one) || is_all(one));
        let all = PREFERENCE.into_iter().filter(may);
        let least = all.map(cost).fold(f64::INFINITY, f64::min);
        let preferred = PREFERENCE.into_iter().filter(may);
        let mut near = preferred.filter(|one| cost(*one) <= least * (1.0 + NEAR));
        near.next().expect("the least is near itself")
    }

    fn cache(
        &self,
        granularity: Granularity,
        candidates: &[Architecture],
        reasons: &mut Vec<String>,
    ) -> u64 {
        if let Some(bytes) = self.constraints.cache_bytes {
            reasons.push(format!("cache {}: as asked", human(bytes as f64)));
            return bytes;
        }
        let cost = |bytes: u64| {
            let best = self.best(granularity, bytes, candidates);
            self.cost(best, granularity, bytes)
        };
        let without = cost(0);
        let most = cache_bytes_max(self.constraints.memory_bytes);
        let mut possible: Vec<u64> = CACHES.into_iter().filter(|bytes| *bytes <= most).collect();
        if possible.is_empty() {
            possible.push(most);
        }
        let with_most = cost(possible[possible.len() - 1]);
        let enough = possible.iter().copied().find(|bytes| cost(*bytes) <= with_most * 1.05);
        let bytes = enough.unwrap_or(possible[possible.len() - 1]);
        let saved = 1.0 - cost(bytes) / without;
        if saved < CACHE_SAVES {
            reasons.push(format!(
                "no write-back cache: it would save {:.0} % of the I/Os, and what was not flushed \
                 would not survive the server",
                saved.max(0.0) * 100.0
            ));
            return 0;
        }
        reasons.push(format!(
            "cache {}: it saves {:.0} % of the I/Os; a larger one saves little more. What was not \
             flushed does not survive the server then",
            human(bytes as f64),
            saved * 100.0
        ));
        bytes
    }

    fn plan(
        &self,
        architecture: Architecture,
        granularity: Granularity,
        window: Span,
        cache_bytes: u64,
    ) -> Plan {
        let profile = self.profile;
        let ios_per_write = self.ios(architecture, granularity, cache_bytes);
        let cost = self.cost(architecture, granularity, cache_bytes);
        let ios_per_second = cost * profile.writes_per_second();
        let nanos = window.as_nanos();
        let space = profile.space(architecture, granularity, nanos, self.volume_bytes());
        let retained_a_day = match granularity {
            Granularity::OnDemand => 0.0,
            _ => profile.retained(window_ns(granularity)).value,
        };
        let written_a_day = profile.writes_per_second() * 86_400.0 * profile.extent_bytes() as f64;
        Plan {
            architecture,
            granularity,
            window,
            cache_bytes,
            ios_per_write,
            engine_ios_per_write: self.price(architecture, granularity, cache_bytes),
            ios_per_second,
            ios_per_day: ios_per_second * NANOS_PER_DAY / 1e9,
            history_bytes_per_day: retained_a_day * written_a_day,
            history_bytes: space.history_bytes,
            current_bytes: space.current_bytes,
        }
    }

    fn explain(
        &self,
        best: Architecture,
        granularity: Granularity,
        cache_bytes: u64,
        reasons: &mut Vec<String>,
    ) {
        let wait_ns = self.wait_ns(cache_bytes);
        let shares = self.profile.shares(window_ns(granularity), wait_ns);
        reasons.push(format!(
            "{}: {:.2} device I/Os a write in this engine, the fewest of those that suit; {:.2} by \
             the paper's formula (r {:.3}, c {:.3}, d {:.3})",
            best.name(),
            self.cost(best, granularity, cache_bytes),
            self.ios(best, granularity, cache_bytes).total(),
            shares.retained,
            shares.evicted,
            shares.incurred
        ));
    }

    fn cautions(
        &self,
        best: Architecture,
        granularity: Granularity,
        window: Span,
        cache_bytes: u64,
    ) -> Vec<String> {
        let profile = self.profile;
        let mut cautions = Vec::new();
        let duration = rounded(Span(profile.duration_ns()));
        if window_ns(granularity).is_finite() && window_ns(granularity) > duration.as_nanos() as f64
        {
            cautions.push(format!("the trace is {duration} long, shorter than {granularity}"));
        }
        if window > duration {
            cautions.push(format!(
                "history of {window} is extrapolated from {duration} at the same rate"
            ));
        }
        if profile.is_sampled() {
            let wait_ns = self.wait_ns(cache_bytes);
            let error = profile.shares_error(window_ns(granularity), wait_ns);
            cautions.push(format!(
                "a sample of the extents was looked at: r is within {:.3}, d within {:.3}",
                error.retained, error.incurred
            ));
        }
        if best == Architecture::Hybrid {
            cautions.push(format!(
                "what hybrid costs is forecast from how far apart the writes of each block were: \
                 on other workloads that was within {:.0} % of what was counted",
                HYBRID_ERROR * 100.0
            ));
        }
        let most = cache_bytes_max(self.constraints.memory_bytes);
        if cache_bytes > most {
            cautions.push(format!(
                "a server with {} of memory refuses this cache: it has {} for caches (serve \
                 --memory)",
                human(self.constraints.memory_bytes as f64),
                human(most as f64)
            ));
        }
        if cache_bytes > 0 {
            cautions.push(
                "the cache is forecast for writes at an even rate; bursts make it worse".to_owned(),
            );
        }
        cautions
    }
}

/// A span cut to two or three digits of its unit, so that people can read it.
#[must_use]
pub fn rounded(span: Span) -> Span {
    const UNITS: [u64; 4] = [3_600_000_000_000, 60_000_000_000, 1_000_000_000, 1_000_000];
    const UNITS_KEPT: u64 = 20;
    let nanos = span.as_nanos();
    let unit = UNITS.into_iter().find(|unit| nanos / unit >= UNITS_KEPT).unwrap_or(1_000_000);
    Span(nanos / unit * unit)
}

/// Bytes in words: whole units, as sizes are written.
fn human(bytes: f64) -> String {
    const DIGITS: u64 = 1000;
    let mut unit = 1_u64;
    while bytes / unit as f64 >= DIGITS as f64 && unit < 1 << 60 {
        unit <<= 10;
    }
    if unit == 1 {
        return format!("{bytes:.0} B");
    }
    let name = Size(unit).to_string();
    format!("{:.1} {}", bytes / unit as f64, name.trim_start_matches('1'))
}
