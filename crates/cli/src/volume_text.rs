//! Volumes, for people to read.

use api::{Cache, Dedup, Encoding, Grace, Import, SpanInput, Volume};
use units::Span;

use crate::output::{Table, human, pairs};
use crate::space;

/// A hook, with a word if the server does not know it.
pub fn show_hook(name: &str, is_known: bool) -> String {
    match is_known {
        true => name.to_owned(),
        false => format!("{name} (not in the server's configuration: captures say quiesce-failed)"),
    }
}

/// What was promised, and what there is of it.
pub fn show_window(window: SpanInput, held: SpanInput, is_kept: bool) -> String {
    let (promised, held) = (window.0, held.0);
    match is_kept {
        true if held < promised => format!("{promised} (everything since it was made)"),
        true => promised.to_string(),
        false => format!("{promised}, of which {} are held", space::rough(held)),
    }
}

pub fn limit_of(bytes: Option<u64>) -> String {
    bytes.map_or("none".to_owned(), human)
}

pub fn show_grace(grace: &Grace) -> String {
    let limit = limit_of(grace.history_limit);
    format!("until {}: window {}, history limit {limit}", grace.until, space::rough(grace.window.0))
}

fn show_import(import: &Import) -> Vec<(&'static str, String)> {
    let (done, total) = (human(import.done_bytes), human(import.total_bytes));
    let rest = match import.unverified_bytes {
        0 => String::new(),
        bytes => format!(", {} unverified", human(bytes)),
    };
    let mut shown = vec![("importing", format!("{}: {done} of {total} done{rest}", import.file))];
    shown.extend(import.trouble.clone().map(|trouble| ("import rests", trouble)));
    shown
}

pub fn show_encoding(encoding: &Encoding) -> String {
    let after = encoding.after.map_or(String::new(), |after| format!(" after {}", after.0));
    let packed = match encoding.unpacked_bytes {
        0 => String::new(),
        bytes => format!(", {} in {}", human(bytes), human(encoding.packed_bytes)),
    };
    let shadows = match encoding.shadow_bytes {
        0 => String::new(),
        bytes => format!(", and {} for versions that are gone", human(bytes)),
    };
    format!("{}{after}{packed}{shadows}", encoding.kind)
}

pub fn show_dedup(dedup: &Dedup) -> String {
    let shared = match dedup.named_bytes {
        0 => String::new(),
        bytes => format!(", {} in {}", human(bytes), human(dedup.shared_bytes)),
    };
    format!("{}{shared}", if dedup.on { "on" } else { "off" })
}

fn show_cache(cache: &Cache) -> Vec<(&'static str, String)> {
    let granted = match cache.granted_bytes {
        bytes if bytes == cache.size => String::new(),
        bytes => format!(", of which it has {}", human(bytes)),
    };
    vec![
        ("cache", format!("{}{granted}; what is not flushed is volatile", human(cache.size))),
        (
            "dirty",
            format!(
                "{} of {} ({} %)",
                human(cache.dirty_bytes),
                human(cache.dirty_limit_bytes),
                cache.dirty_percent
            ),
        ),
        ("cache reads", format!("{} hits, {} misses", cache.hits, cache.misses)),
        ("cache writes", format!("{} absorbed, {} destaged", cache.absorbed, cache.destaged)),
    ]
}

pub fn list(volumes: &[Volume]) -> String {
    Table::of(volumes)
        .left("NAME", |v| v.name.clone())
        .right("SIZE", |v| human(v.size))
        .right("LIVE", |v| human(v.live_bytes))
        .right("HISTORY", |v| human(v.history_bytes))
        .left("GRANULARITY", |v| v.granularity.to_string())
        .right("WINDOW", |v| v.window.0.to_string())
        .left("OLDEST", |v| v.oldest.time.to_string())
        .right("LATEST SEQ", |v| v.latest.seq.to_string())
        .left("STATE", |v| v.state.clone())
        .text()
}

fn show_copies(copies: &api::Copies) -> String {
    let (kept, changed) = (human(copies.kept_bytes), human(copies.changed_bytes));
    let efficiency = copies.space_efficiency.map(|e| format!(": space efficiency {e:.4}"));
    let seq = copies.captured_seq;
    format!("{changed} changed of {kept} kept for seq:{seq}{}", efficiency.unwrap_or_default())
}

/// A volume for people.
pub fn show(volume: &Volume) -> String {
    let stamp = |s: &api::Stamp| format!("{} (seq:{})", s.time, s.seq);
    let mut shown = vec![
        ("name", volume.name.clone()),
        match volume.share {
            true => ("share", format!("hindsight share show {}", volume.name)),
            false => ("size", format!("{} ({} bytes)", human(volume.size), volume.size)),
        },
        ("architecture", volume.architecture.clone()),
        ("granularity", volume.granularity.to_string()),
        ("extent", human(volume.extent)),
        ("copy unit", human(volume.copy_unit)),
        ("window", show_window(volume.window, volume.window_held, volume.window_kept)),
        ("history limit", limit_of(volume.history_limit)),
        ("state", volume.state.clone()),
        ("clients", volume.clients.to_string()),
        ("live", space::bound(volume.live_bytes, volume.live_exact)),
        ("history", human(volume.history_bytes)),
        ("pinned", human(volume.pinned_bytes)),
        ("oldest", stamp(&volume.oldest)),
        ("latest", stamp(&volume.latest)),
        ("created", volume.created.to_string()),
    ];
    shown.extend(volume.hook.iter().map(|hook| ("hook", show_hook(hook, volume.hook_known))));
    shown.extend(volume.watch.iter().map(|how| ("watched", how.to_string())));
    shown.extend(volume.grace.iter().map(|grace| ("grace", show_grace(grace))));
    if let Some(until) = &volume.scratch_until {
        shown.push(("scratch until", until.to_string()));
    }
    if let Some(from) = &volume.cloned_from {
        shown.push(("cloned from", format!("{}@seq:{}", from.volume, from.seq)));
    }
    if let Some(c) = &volume.conversion {
        let (done, total) = (human(c.done_bytes), human(c.total_bytes));
        shown.push(("converting", format!("from {}: {done} of {total} done", c.from)));
    }
    shown.extend(volume.import.iter().flat_map(show_import));
    if volume.unfinished_import {
        let name = &volume.name;
        let what = format!("unfinished: begin anew (volume import {name} FILE), or delete it");
        shown.push(("import", what));
    }
    if volume.unplaced_bytes > 0 {
        shown.push(("to put in place", human(volume.unplaced_bytes)));
    }
    if volume.deferred_bytes > 0 {
        shown.push(("places that wait", human(volume.deferred_bytes)));
    }
    if volume.time_ahead_seconds > 0 {
        let ahead = Span(volume.time_ahead_seconds.saturating_mul(1_000_000_000));
        shown.push(("clock", format!("its last write is {ahead} ahead of the clock")));
    }
    shown.extend(volume.cache.iter().flat_map(show_cache));
    shown.push(("encoding", show_encoding(&volume.encoding)));
    shown.push(("dedup", show_dedup(&volume.dedup)));
    shown.extend(volume.copies.iter().map(|copies| ("copied", show_copies(copies))));
    if volume.base_bytes > 0 {
        shown.push(("in the base", human(volume.base_bytes)));
    }
    let done = volume.device_io.iter().filter(|count| count.requests > 0);
    let told = |c: &api::DeviceIo| format!("{} {} ({})", c.kind, c.requests, human(c.bytes));
    shown.extend(done.map(|count| ("device I/O", told(count))));
    let uris = [&volume.nbd_uri, &volume.nbd_tcp_uri].into_iter().flatten();
    let mut uris: Vec<String> = uris.cloned().collect();
    uris.dedup();
    shown.extend(uris.into_iter().map(|uri| ("nbd", uri)));
    shown.extend(volume.iscsi_uri.iter().map(|uri| ("iscsi", uri.clone())));
    pairs(&shown)
}
