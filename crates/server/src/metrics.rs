//! Metrics for Prometheus: read from the engine at each scrape, so that they cost the data path
//! nothing, and counted here for HTTP.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use env::{Rank, RankedMutex};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use share::CauseKind;
use units::Span;
use volume::{
    CacheInfo, ImportInfo, IoCount, Pool, Rates, ScheduleInfo, ScrubInfo, Settling, Volume,
    VolumeInfo,
};

use crate::Attachments;
use crate::fill::{Fill, FillGauge};
use crate::process_metrics::ProcessCollector;
use crate::prometheus::{tell, tell_each};

/// Bounds of the latency histogram, in seconds.
const LATENCY_BOUNDS: [f64; 8] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0];

const SECONDS_A_DAY: f64 = 24.0 * 3600.0;

/// All metrics of a server.
pub(crate) struct Metrics {
    registry: RankedMutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    latency: Histogram,
    share_commands: Family<CommandLabel, Counter>,
    share_operations: Family<CommandLabel, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CommandLabel {
    command: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    status: u16,
}

impl Metrics {
    /// Metrics of `pool` and its volumes; `others` are collectors of other front ends.
    pub(crate) fn new(
        pool: Arc<Pool>,
        fill: Arc<FillGauge>,
        attachments: Arc<Attachments>,
        others: Vec<Box<dyn Collector>>,
    ) -> Metrics {
        let mut registry = Registry::default();
        let requests = Family::<RequestLabels, Counter>::default();
        let latency = Histogram::new(LATENCY_BOUNDS);
        registry.register("hindsight_http_requests", "HTTP requests", requests.clone());
        registry.register(
            "hindsight_http_request_seconds",
            "Time from a request's head to its answer",
            latency.clone(),
        );
        let share_commands = Family::<CommandLabel, Counter>::default();
        let share_operations = Family::<CommandLabel, Counter>::default();
        registry.register(
            "hindsight_share_commands",
            "Restores, repairs and imports that changed a share",
            share_commands.clone(),
        );
        registry.register(
            "hindsight_share_command_operations",
            "Operations on shares that these did",
            share_operations.clone(),
        );
        registry.register_collector(Box::new(Engine { pool, fill, attachments }));
        registry.register_collector(Box::new(ProcessCollector));
        for other in others {
            registry.register_collector(other);
        }
        let registry = RankedMutex::new(Rank::Metrics, registry);
        Metrics { registry, requests, latency, share_commands, share_operations }
    }

    /// Counts an answered request.
    pub(crate) fn http_request(&self, method: &Method, status: u16, took: Duration) {
        // A client may invent methods; each would be a series of its own.
        let known =
            [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        let method = if known.contains(method) { method.as_str() } else { "other" };
        let labels = RequestLabels { method: method.to_owned(), status };
        self.requests.get_or_create(&labels).inc();
        self.latency.observe(took.as_secs_f64());
    }

    /// Counts a command that changed a share.
    pub(crate) fn share_command(&self, kind: CauseKind, operations: u64) {
        let label = CommandLabel { command: kind.to_string() };
        self.share_commands.get_or_create(&label).inc();
        self.share_operations.get_or_create(&label).inc_by(operations);
    }

    /// The text that Prometheus reads.
    pub(crate) fn text(&self) -> String {
        let mut encoded = String::new();
        text::encode(&mut encoded, &self.registry.lock()).expect("a String takes everything");
        encoded
    }
}

struct Engine {
    pool: Arc<Pool>,
    fill: Arc<FillGauge>,
    attachments: Arc<Attachments>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Engine")
    }
}

/// One metric that every volume has.
struct VolumeMetric {
    name: &'static str,
    help: &'static str,
    rises: bool,
    value: fn(&VolumeInfo) -> u64,
}

const fn counter(
    name: &'static str,
    help: &'static str,
    value: fn(&VolumeInfo) -> u64,
) -> VolumeMetric {
    VolumeMetric { name, help, rises: true, value }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    value: fn(&VolumeInfo) -> u64,
) -> VolumeMetric {
    VolumeMetric { name, help, rises: false, value }
}

/// A number of a volume's cache; without one it is nothing.
fn cached(volume: &VolumeInfo, value: fn(&CacheInfo) -> u64) -> u64 {
    volume.cache.as_ref().map_or(0, value)
}

/// A number of the file that a volume is being imported from; without one it is nothing.
fn importing(volume: &VolumeInfo, value: fn(&ImportInfo) -> u64) -> u64 {
    volume.import.as_ref().map_or(0, value)
}

const VOLUME_METRICS: &[VolumeMetric] = &[
    counter("reads", "Read requests", |v| v.counters.reads),
    counter("read_bytes", "Bytes read", |v| v.counters.read_bytes),
    counter("writes", "Write requests, trims and zeroes included", |v| v.counters.writes),
    counter("written_bytes", "Bytes written", |v| v.counters.written_bytes),
    counter("flushes", "Flushes completed", |v| v.counters.flushes),
    counter("checksum_errors", "Blocks whose checksum did not match", |v| {
        v.counters.checksum_errors
    }),
    counter("rotten_places", "Blocks that had rotted in place; the log answered", |v| {
        v.counters.rotten_places
    }),
    gauge("conversion_left_bytes", "Bytes that a change of architecture has still to move", |v| {
        v.conversion.map_or(0, |c| c.total_bytes - c.done_bytes)
    }),
    gauge("import_done_bytes", "Bytes of a file being imported that were copied", |v| {
        importing(v, |i| i.done_bytes)
    }),
    gauge("import_bytes", "Bytes of a file that is being imported", |v| {
        importing(v, |i| i.total_bytes)
    }),
    gauge("import_unverified_bytes", "Bytes read from a file being imported, unverified", |v| {
        importing(v, |i| i.unverified_bytes)
    }),
    gauge("import_troubled", "1 while a file being imported fails, or its copying rests", |v| {
        importing(v, |i| u64::from(i.trouble.is_some()))
    }),
    gauge("unplaced_bytes", "Bytes some of which may not be in place yet", |v| v.unplaced_bytes),
    gauge("verified_time_seconds", "The newest moment found good; 0 for none", |v| {
        v.proved_good.map_or(0, |time| time.as_nanos() / 1_000_000_000)
    }),
    gauge("watch_alarm_time_seconds", "The last alarm of its watch; 0 for none", |v| {
        v.alarmed.map_or(0, |time| time.as_nanos() / 1_000_000_000)
    }),
    gauge("deferred_bytes", "Bytes whose places wait for their window's end", |v| v.deferred_bytes),
    gauge("time_ahead_seconds", "How far the time of the last write is ahead of the clock", |v| {
        v.time_ahead_ns / 1_000_000_000
    }),
    counter("cache_hits", "Blocks read from the cache", |v| cached(v, |c| c.used.hits)),
    counter("cache_misses", "Blocks read that were not in the cache", |v| {
        cached(v, |c| c.used.misses)
    }),
    counter("cache_absorbed", "Blocks written again before they were destaged", |v| {
        cached(v, |c| c.used.absorbed)
    }),
    counter("cache_destaged", "Blocks destaged from the cache", |v| cached(v, |c| c.used.destaged)),
    gauge("cache_dirty_bytes", "Bytes that wait in the cache; a kill loses them", |v| {
        cached(v, |c| c.used.dirty_bytes)
    }),
    gauge("cache_dirty_limit_bytes", "Bytes that may wait in the cache", |v| {
        cached(v, |c| c.used.dirty_limit_bytes)
    }),
    gauge("cache_clean_bytes", "Bytes in the cache that are on the device as well", |v| {
        cached(v, |c| c.used.clean_bytes)
    }),
    gauge("cache_bytes", "Bytes that the cache has", |v| cached(v, |c| c.granted_bytes)),
    gauge("packed_bytes", "Bytes that encoded versions take", |v| v.encoding.packed_bytes),
    gauge("shadow_bytes", "Bytes of packs for versions that are gone", |v| v.encoding.shadow_bytes),
    gauge("unpacked_bytes", "Bytes of the blocks that encoded versions are of", |v| {
        v.encoding.unpacked_bytes
    }),
    counter("encoded", "Versions that were encoded, or encoded anew", |v| v.encoding.packed),
    counter("encode_left", "Versions that encoding would not have made much smaller", |v| {
        v.encoding.left
    }),
    counter("encode_faults", "Packs that did not decode to what went in", |v| v.encoding.faults),
    gauge("shared_bytes", "Bytes of blocks that are stored once for several versions", |v| {
        v.dedup.shared_bytes
    }),
    gauge("named_bytes", "Bytes of those versions, had each a block of its own", |v| {
        v.dedup.named_bytes
    }),
    gauge("base_bytes", "Bytes of blocks at home in the base", |v| v.base_bytes),
    gauge("versions", "Versions", |v| v.versions),
    // The address space of a share says nothing.
    gauge("size_bytes", "Size; 0 of a share", |v| if v.share.is_some() { 0 } else { v.size_bytes }),
    gauge("live_bytes", "Bytes of the present that are stored", |v| v.live_bytes),
    gauge("history_bytes", "Bytes kept only for the past", |v| v.history_bytes),
    gauge("live_exact", "1 if live bytes were counted, 0 if they are an upper bound", |v| {
        u64::from(v.live_exact)
    }),
    gauge("window_kept", "1 if the past can be opened as far back as was promised", |v| {
        u64::from(v.is_held)
    }),
    gauge(
        "history_limit_bytes",
        "How much history may be kept; 0 is as much as there is room",
        |v| v.history_limit_bytes.unwrap_or(0),
    ),
    gauge("pinned_bytes", "Bytes of history that nothing expires", |v| v.pinned_bytes),
    gauge("oldest_seq", "Oldest seq that can be opened", |v| v.oldest.seq.0),
    gauge("latest_seq", "Seq of the present", |v| v.latest.seq.0),
];

/// Times of a volume, in seconds since 1970.
const VOLUME_TIMES: &[VolumeMetric] = &[
    gauge("window_seconds", "How far back the past shall be opened", |v| v.window_ns),
    gauge("window_held_seconds", "How far back the past can be opened", |v| v.held_ns),
    gauge("grace_end_time_seconds", "When a grace period ends; 0 without one", |v| {
        v.grace.map_or(0, |grace| grace.until_ns)
    }),
    gauge("oldest_time_seconds", "Time of the oldest moment that can be opened", |v| {
        v.oldest.time.as_nanos()
    }),
    gauge("latest_time_seconds", "Time of the latest write", |v| v.latest.time.as_nanos()),
];

impl Collector for Engine {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let mut volumes = Vec::new();
        for volume in self.pool.volumes() {
            match volume.info() {
                Ok(info) => volumes.push(info),
                Err(error) => tracing::debug!(%error, "a volume went away during a scrape"),
            }
        }
        for metric in VOLUME_METRICS {
            let name = format!("hindsight_volume_{}", metric.name);
            let told = (&*name, metric.help);
            let values = volumes.iter().map(|v| (of_volume(v), (metric.value)(v)));
            match metric.rises {
                true => {
                    tell_each(&mut encoder, told, values.map(|(v, n)| (v, ConstCounter::new(n))))
                }
                false => {
                    tell_each(&mut encoder, told, values.map(|(v, n)| (v, ConstGauge::new(n))))
                }
            }?;
        }
        for metric in VOLUME_TIMES {
            let name = format!("hindsight_volume_{}", metric.name);
            let seconds = |v| ConstGauge::new((metric.value)(v) as f64 / 1e9);
            let values = volumes.iter().map(|v| (of_volume(v), seconds(v)));
            tell_each(&mut encoder, (&name, metric.help), values)?;
        }
        encode_device_io(&mut encoder, &volumes)?;
        self.encode_ages(&mut encoder)?;
        self.encode_growth(&mut encoder)?;
        self.encode_schedules(&mut encoder)?;
        let clients = ("hindsight_volume_clients", "Clients attached to the present");
        let attached = |v: &VolumeInfo| ConstGauge::new(self.attachments.count(v.id) as u64);
        tell_each(&mut encoder, clients, volumes.iter().map(|v| (of_volume(v), attached(v))))?;
        self.encode_pool(&mut encoder)
    }
}

fn of_volume(volume: &VolumeInfo) -> [(&'static str, &str); 1] {
    [("volume", volume.name.as_str())]
}

/// The times of opening a pool on members.
fn encode_opening(settled: Option<Settling>, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let Some(settled) = settled else { return Ok(()) };
    let phases = [
        ("recovery", settled.recovered_ns),
        ("copies", settled.copies_ns),
        ("parity", settled.parity_ns),
    ];
    let phases =
        phases.map(|(phase, nanos)| ([("phase", phase)], ConstGauge::new(nanos as f64 / 1e9)));
    let told = ("hindsight_pool_opening_seconds", "How long opening the pool took");
    tell_each(encoder, told, phases)?;
    let name = "hindsight_pool_opening_unsettled_bytes";
    let help = "Bytes of regions that were in flight when the pool was used last";
    tell(encoder, (name, help), ConstGauge::new(settled.unsettled_bytes))
}

/// How fast background work may be.
fn encode_rates(rates: Rates, encoder: &mut DescriptorEncoder) -> fmt::Result {
    for (name, help, limit) in [
        ("scrub", "Bytes a second that a scrub reads at most; 0 without a limit", rates.scrub),
        ("rebuild", "Bytes a second that members get at most; 0 without a limit", rates.rebuild),
    ] {
        let name = format!("hindsight_pool_{name}_rate_bytes");
        tell(encoder, (&name, help), ConstGauge::new(limit.map_or(0, NonZeroU64::get)))?;
    }
    Ok(())
}

/// The scrub that is running, or the last one.
fn encode_scrub(info: Option<ScrubInfo>, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let Some(ScrubInfo { percent, record, .. }) = info else { return Ok(()) };
    let ended = record.ended_ns.map_or(0, |ns| ns / 1_000_000_000);
    let gauges = [
        ("running", "1 while a scrub is running", u64::from(record.ended_ns.is_none())),
        ("end_time_seconds", "When the last scrub ended; 0 while one runs", ended),
        ("read_bytes", "Bytes that the scrub read, of all copies", record.read_bytes),
        ("wrong", "Ranges of which the scrub found a copy wrong", record.wrong),
        ("healed", "Ranges that the scrub wrote again from a right copy", record.healed),
        ("repaired", "Blocks that the scrub had from another version", record.repaired),
        ("elsewhere", "Versions in packs that only other versions have", record.elsewhere),
        ("lost", "Blocks and pages that the scrub found wrong on every copy", record.lost),
    ];
    let help = "How much of the scrub is done";
    encode_ratio("hindsight_pool_scrub_progress_ratio", help, percent, encoder)?;
    for (name, help, value) in gauges {
        let name = format!("hindsight_pool_scrub_{name}");
        tell(encoder, (&name, help), ConstGauge::new(value))?;
    }
    Ok(())
}

/// Device requests and their bytes, by volume and kind.
fn encode_device_io(encoder: &mut DescriptorEncoder, volumes: &[VolumeInfo]) -> fmt::Result {
    type Value = fn(&IoCount) -> u64;
    let metrics: [(&str, &str, Value); 2] = [
        ("device_requests", "Device requests by what they were for", |count| count.requests),
        ("device_bytes", "Bytes of device requests", |count| count.bytes),
    ];
    for (name, help, value) in metrics {
        let name = format!("hindsight_volume_{name}");
        let counts = volumes.iter().flat_map(|v| v.device_io.iter().map(|count| (&*v.name, count)));
        let told = counts.map(|(volume, count)| {
            let labels = [("volume", volume), ("kind", count.kind.name())];
            (labels, ConstCounter::new(value(count)))
        });
        tell_each(encoder, (&name, help), told)?;
    }
    Ok(())
}

impl Engine {
    /// History by age, in bytes that add up to all of it.
    fn encode_ages(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let mut told = Vec::new();
        for volume in self.pool.volumes() {
            let Ok((ages, unsorted_bytes)) = volume.history_ages() else { continue };
            let mut tell = |age: String, bytes| {
                let labels = [("volume", volume.name().to_owned()), ("age", age)];
                told.push((labels, ConstGauge::new(bytes)));
            };
            for age in ages {
                let below = age.below_ns.map(|nanos| format!("below {}", Span(nanos)));
                tell(below.unwrap_or_else(|| "older".to_owned()), age.bytes);
            }
            tell("unsorted".to_owned(), unsorted_bytes);
        }
        let help = "Bytes of history by how long ago they were written over";
        tell_each(encoder, ("hindsight_volume_history_age_bytes", help), told)
    }

    /// How fast volumes and the pool grow, as far as that can be told.
    fn encode_growth(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        type Value = fn(&Volume) -> Option<volume::Growth>;
        let kinds: [(&str, &str, Value); 2] = [
            ("growth", "How fast a volume's log grows, measured over up to a week", |v| v.growth()),
            ("history_growth", "The same of its history alone", |v| v.history_growth()),
        ];
        let volumes = self.pool.volumes();
        for (name, help, value) in kinds {
            let name = format!("hindsight_volume_{name}_bytes_per_second");
            let told = volumes.iter().filter_map(|volume| {
                let gauge = ConstGauge::new(value(volume)?.bytes_a_day as f64 / SECONDS_A_DAY);
                Some(([("volume", volume.name())], gauge))
            });
            tell_each(encoder, (&name, help), told)?;
        }
        let Ok(space) = self.pool.space() else { return Ok(()) };
        let gauges = [
            ("live_bytes", "Bytes of the present of all volumes", space.live_bytes),
            ("history_bytes", "Bytes kept only for the past", space.history_bytes),
            ("pinned_bytes", "Bytes of history that nothing expires", space.pinned_bytes),
            ("trash_volumes", "Deleted volumes that can be had back", space.trash_volumes),
            ("trash_bytes", "Bytes of deleted volumes that can be had back", space.trash_bytes),
            ("common_bytes", "Bytes of blocks stored once for several volumes", space.common_bytes),
        ];
        for (name, help, value) in gauges {
            let name = format!("hindsight_pool_{name}");
            tell(encoder, (&name, help), ConstGauge::new(value))?;
        }
        let Some(growth) = space.growth else { return Ok(()) };
        let gauge = ConstGauge::new(growth.bytes_a_day as f64 / SECONDS_A_DAY);
        let help = "How fast what is in use grows, measured over up to a week";
        tell(encoder, ("hindsight_pool_growth_bytes_per_second", help), gauge)?;
        let Some(lasts_ns) = growth.lasts_ns(self.fill.read().available_bytes) else {
            return Ok(());
        };
        let gauge = ConstGauge::new(lasts_ns as f64 / 1e9);
        let help = "How long what is available lasts if it goes on like this";
        tell(encoder, ("hindsight_pool_full_in_seconds", help), gauge)
    }

    /// The captures of schedules, and the times of the next ones.
    fn encode_schedules(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        type Value = fn(&ScheduleInfo) -> u64;
        let counters: [(&str, &str, Value); 3] = [
            ("captures", "Captures of a volume or group", |s| s.captures),
            ("failures", "Captures and prunings that failed", |s| s.failures),
            ("pruned", "Versions or captures pruned", |s| s.pruned),
        ];
        let times: [(&str, &str, Value); 2] = [
            ("newest_time_seconds", "When the newest version was captured", |s| {
                s.newest.map_or(0, |(_, made)| made.as_nanos())
            }),
            ("next_time_seconds", "When the next version is due", |s| {
                s.next.map_or(0, |next| next.as_nanos())
            }),
        ];
        let mut schedules = Vec::new();
        for volume in self.pool.volumes() {
            if let Ok(Some(info)) = volume.schedule_info() {
                schedules.push(("volume", volume.name().to_owned(), info));
            }
        }
        let groups = self.pool.group_schedules().into_iter();
        schedules.extend(groups.map(|(group, info)| ("group", group, info)));
        for (name, help, value) in counters {
            let name = format!("hindsight_schedule_{name}");
            let count = |info| ConstCounter::new(value(info));
            let told = schedules.iter().map(|(kind, of, info)| ([(*kind, &**of)], count(info)));
            tell_each(encoder, (&name, help), told)?;
        }
        for (name, help, value) in times {
            let name = format!("hindsight_schedule_{name}");
            let seconds = |info| ConstGauge::new(value(info) as f64 / 1e9);
            let told = schedules.iter().map(|(kind, of, info)| ([(*kind, &**of)], seconds(info)));
            tell_each(encoder, (&name, help), told)?;
        }
        Ok(())
    }

    fn encode_pool(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let status = self.pool.status();
        let fill = self.fill.read();
        let gauges = [
            ("size_bytes", "Bytes of all zones", status.size_bytes),
            ("used_bytes", "Bytes of zones in use", status.used_bytes),
            ("free_bytes", "Bytes of zones that are free", status.free_bytes),
            ("available_bytes", "Bytes that new data can still take", fill.available_bytes),
            ("promised_bytes", "Bytes that volumes may come to hold", self.fill.promised_bytes()),
            ("reclaimable_bytes", "Bytes reclamation would free now", status.reclaimable_bytes),
            ("log_bytes", "Bytes of log segments", status.log_bytes),
            ("current_bytes", "Bytes of current stores", status.current_bytes),
            ("map_bytes", "Bytes of map runs", status.map_bytes),
            ("pending_entries", "Map entries not yet in runs", status.pending_entries),
            (
                "online",
                "1 while the pool takes writes",
                u64::from(status.state != "refusing-writes"),
            ),
        ];
        for (name, help, value) in gauges {
            let name = format!("hindsight_pool_{name}");
            tell(encoder, (&name, help), ConstGauge::new(value))?;
        }
        encode_fill(&fill, encoder)?;
        let help = "Map pages looked up because they were not in memory";
        let loads = ConstCounter::new(status.page_loads);
        tell(encoder, ("hindsight_pool_map_page_loads", help), loads)?;
        let help = "Blocks whose checksum did not match";
        let errors = ConstCounter::new(status.checksum_errors);
        tell(encoder, ("hindsight_pool_checksum_errors", help), errors)?;
        let healed = [
            ("recovered", status.healed.recovered),
            ("transient", status.healed.transient),
            ("unrecoverable", status.healed.unrecoverable),
        ];
        let healed = healed.map(|(how, count)| ([("outcome", how)], ConstCounter::new(count)));
        let help = "Ranges that were read wrong, by how that ended";
        tell_each(encoder, ("hindsight_pool_healed", help), healed)?;
        encode_rates(self.pool.rates(), encoder)?;
        encode_scrub(self.pool.scrubs().info(), encoder)?;
        encode_opening(self.pool.settled(), encoder)?;
        let spares = self.pool.spares().iter().filter(|spare| spare.is_there).count();
        let told = ("hindsight_pool_spares", "Spares that are there");
        tell(encoder, told, ConstGauge::new(spares as u64))?;
        encode_members(&self.pool.members(), encoder)
    }
}

/// How full the pool is.
fn encode_fill(fill: &Fill, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Of what data may take, how much is used";
    encode_ratio("hindsight_pool_fill_ratio", help, fill.percent(), encoder)?;
    let help = "Warning level reached: 0, 0.75, 0.85 or 0.95";
    encode_ratio("hindsight_pool_warning_ratio", help, fill.level(), encoder)
}

/// Percents, as Prometheus has them.
fn encode_ratio(
    name: &str,
    help: &str,
    percent: u64,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    tell(encoder, (name, help), ConstGauge::new(percent as f64 / 100.0))
}

/// The members of a pool that is made of several.
fn encode_members(
    members: &[block::MemberStatus],
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), std::fmt::Error> {
    type Figure = fn(&block::MemberStatus) -> u64;
    fn of(member: &block::MemberStatus) -> [(&'static str, &str); 1] {
        [("member", member.path.as_str())]
    }
    let told = ("hindsight_pool_member_in", "1 while the member has everything");
    let is_in = |m: &block::MemberStatus| u64::from(m.standing == block::Standing::In);
    let values = members.iter().map(|m| (of(m), ConstGauge::new(is_in(m))));
    tell_each(encoder, told, values)?;
    let counters: [(&str, &str, Figure); 3] = [
        ("errors", "Requests that failed on the member", |m| m.errors),
        ("read_bytes", "Bytes read from the member", |m| m.counters.0),
        ("written_bytes", "Bytes written to the member", |m| m.counters.1),
    ];
    for (name, help, figure) in counters {
        let name = format!("hindsight_pool_member_{name}");
        let values = members.iter().map(|m| (of(m), ConstCounter::new(figure(m))));
        tell_each(encoder, (&name, help), values)?;
    }
    Ok(())
}
