//! From the engine's types to the API's, and back.

use api::{ClonedFrom, ProblemKind, SpanInput, Stamp, Time};
use units::{Span, Timing, WallTime};

use super::addresses::Addresses;
use crate::fill::Fill;
use crate::http::answer::{Answer, Refusal};
use crate::intercept::Shown;
use crate::write_memory;

pub(crate) fn stamp(stamp: volume::Stamp) -> Stamp {
    Stamp { seq: stamp.seq.0, time: Time(stamp.time) }
}

pub(crate) fn granularity(granularity: volume::Granularity) -> api::Granularity {
    match granularity {
        volume::Granularity::EveryWrite => api::Granularity::EveryWrite,
        volume::Granularity::Interval(ns) => api::Granularity::Interval(Span(ns)),
        volume::Granularity::OnDemand => api::Granularity::OnDemand,
    }
}

pub(crate) fn granularity_back(granularity: api::Granularity) -> volume::Granularity {
    match granularity {
        api::Granularity::EveryWrite => volume::Granularity::EveryWrite,
        api::Granularity::Interval(span) => volume::Granularity::Interval(span.0),
        api::Granularity::OnDemand => volume::Granularity::OnDemand,
    }
}

pub(crate) fn volume(info: volume::VolumeInfo, clients: usize, nbd: &Addresses) -> api::Volume {
    // A share is no disk.
    let disk = info.share.is_none().then_some(&*info.name);
    api::Volume {
        nbd_uri: disk.and_then(|name| nbd.uri(name)),
        nbd_tcp_uri: disk.and_then(|name| nbd.tcp_uri(name)),
        iscsi_name: disk.and_then(|name| nbd.iscsi_name(name)),
        iscsi_uri: disk.and_then(|name| nbd.iscsi_uri(name)),
        share: info.share.is_some(),
        clients: clients as u64,
        name: info.name,
        size: info.size_bytes,
        warning: None,
        architecture: info.architecture.name().to_owned(),
        granularity: granularity(info.granularity),
        extent: info.extent.bytes(),
        copy_unit: info.copy_unit.bytes(),
        copies: None,
        window: SpanInput(Span(info.window_ns)),
        history_limit: info.history_limit_bytes,
        window_held: whole_seconds(info.held_ns),
        window_kept: info.is_held,
        grace: info.grace.map(grace),
        state: info.state.to_owned(),
        live_bytes: info.live_bytes,
        live_exact: info.live_exact,
        history_bytes: info.history_bytes,
        pinned_bytes: info.pinned_bytes,
        hook: info.hook,
        hook_known: true,
        watch: info.watch.map(api::SensitivityName),
        oldest: stamp(info.oldest),
        latest: stamp(info.latest),
        created: Time(info.created),
        scratch_until: info.scratch_until.map(Time),
        cloned_from: info.cloned_from.map(|(volume, seq)| ClonedFrom { volume, seq: seq.0 }),
        unplaced_bytes: info.unplaced_bytes,
        deferred_bytes: info.deferred_bytes,
        time_ahead_seconds: info.time_ahead_ns / 1_000_000_000,
        conversion: info.conversion.map(conversion),
        import: info.import.map(import),
        unfinished_import: false,
        cache: info.cache.map(cache),
        encoding: encoding(info.encoding),
        dedup: dedup(info.dedup),
        base_bytes: info.base_bytes,
        versions: info.versions,
        device_io: info.device_io.into_iter().map(device_io).collect(),
    }
}

/// A span without what is below a second.
fn whole_seconds(nanos: u64) -> SpanInput {
    SpanInput(Span(nanos / 1_000_000_000 * 1_000_000_000))
}

fn growth(growth: volume::Growth) -> api::Growth {
    api::Growth { bytes_per_day: growth.bytes_a_day, measured: whole_seconds(growth.measured_ns) }
}

/// The uses of a volume's space, the growth of all of it and of its history, and the time that the
/// history limit lasts.
pub(crate) fn space(
    told: volume::VolumeSpace,
    (grows, history): (Option<volume::Growth>, Option<volume::Growth>),
    lasts: Option<u64>,
) -> api::VolumeSpace {
    let age = |age: volume::AgeBytes| api::AgeBytes {
        below: age.below_ns.map(|nanos| SpanInput(Span(nanos))),
        bytes: age.bytes,
    };
    let holder = |holder: volume::Holder| api::Holder {
        first_seq: holder.first.0,
        last_seq: holder.last.0,
        moments: holder.moments,
        names: holder.names,
        held_bytes: holder.held_bytes,
        own_bytes: holder.own_bytes,
    };
    api::VolumeSpace {
        live_bytes: told.live_bytes,
        live_exact: told.live_exact,
        history_bytes: told.history_bytes,
        history_by_age: told.ages.into_iter().map(age).collect(),
        unsorted_bytes: told.unsorted_bytes,
        pinned_bytes: told.pinned_bytes,
        beyond_window_bytes: told.beyond_bytes,
        reclaimable_bytes: told.reclaimable_bytes,
        holders: told.holders.into_iter().map(holder).collect(),
        growth: grows.map(growth),
        history_growth: history.map(growth),
        limit_lasts: lasts.map(whole_seconds),
    }
}

fn sacrifice(next: volume::Sacrifice) -> api::Sacrifice {
    api::Sacrifice {
        volume: next.volume,
        from: stamp(next.from),
        to: stamp(next.to),
        grace: next.kept_for == volume::KeptFor::Grace,
        deleted: next.kept_for == volume::KeptFor::Trash,
        scratch: next.kept_for == volume::KeptFor::Scratch,
    }
}

fn grace(info: volume::Grace) -> api::Grace {
    api::Grace {
        until: Time(WallTime::from_nanos(info.until_ns)),
        window: SpanInput(Span(info.window_ns)),
        history_limit: info.history_limit_bytes,
    }
}

fn conversion(info: volume::ConversionInfo) -> api::Conversion {
    api::Conversion {
        from: info.from.name().to_owned(),
        to: info.to.name().to_owned(),
        done_bytes: info.done_bytes,
        total_bytes: info.total_bytes,
    }
}

fn import(info: volume::ImportInfo) -> api::Import {
    api::Import {
        file: info.file,
        done_bytes: info.done_bytes,
        total_bytes: info.total_bytes,
        unverified_bytes: info.unverified_bytes,
        trouble: info.trouble,
    }
}

fn encoding(info: volume::EncodingInfo) -> api::Encoding {
    let kind = info.setting.map_or(volume::Encoding::Raw, |setting| setting.encoding);
    api::Encoding {
        kind: kind.name().to_owned(),
        after: info.setting.map(|setting| SpanInput(Span(setting.after_ns))),
        packed_bytes: info.packed_bytes,
        unpacked_bytes: info.unpacked_bytes,
        shadow_bytes: info.shadow_bytes,
        encoded: info.packed,
        left: info.left,
        faults: info.faults,
    }
}

pub(crate) fn copies(info: volume::CopyInfo) -> api::Copies {
    let ratio = info.changed_bytes as f64 / info.kept_bytes as f64;
    api::Copies {
        captured_seq: info.captured.0,
        kept_bytes: info.kept_bytes,
        changed_bytes: info.changed_bytes,
        space_efficiency: (info.kept_bytes > 0).then_some(ratio),
    }
}

fn dedup(info: volume::DedupInfo) -> api::Dedup {
    let volume::DedupInfo { is_on: on, shared_bytes, named_bytes } = info;
    api::Dedup { on, shared_bytes, named_bytes }
}

/// The request for an encoding.
pub(crate) fn encoding_change(
    kind: Option<&str>,
    after: Option<SpanInput>,
) -> Answer<volume::EncodingChange> {
    let known = |name: &str| volume::Encoding::ALL.into_iter().find(|kind| kind.name() == name);
    let unknown = |name: &str| {
        Refusal::new(ProblemKind::Invalid, format!("there is no encoding {name}"))
            .with_hint("give raw, delta or xor")
    };
    let encoding = kind.map(|name| known(name).ok_or_else(|| unknown(name))).transpose()?;
    Ok(volume::EncodingChange { encoding, after_ns: after.map(|after| after.0.0) })
}

fn cache(info: volume::CacheInfo) -> api::Cache {
    let volume::CacheInfo { setting, granted_bytes, used } = info;
    api::Cache {
        size: setting.bytes,
        granted_bytes,
        dirty_percent: setting.dirty_percent,
        volatile: true,
        dirty_limit_bytes: used.dirty_limit_bytes,
        dirty_bytes: used.dirty_bytes,
        clean_bytes: used.clean_bytes,
        hits: used.hits,
        misses: used.misses,
        absorbed: used.absorbed,
        destaged: used.destaged,
    }
}

fn device_io(count: volume::IoCount) -> api::DeviceIo {
    let kind = count.kind.name().to_owned();
    api::DeviceIo { kind, requests: count.requests, bytes: count.bytes }
}

pub(crate) fn job(volume: &str, version: u64, info: &volume::CompactionInfo) -> api::Job {
    let (state, percent) = match info.state {
        volume::CompactionState::Waiting => ("waiting", 0),
        volume::CompactionState::Running { passed, entries } => {
            ("running", passed * 100 / entries.max(1))
        }
        volume::CompactionState::Done => ("done", 100),
    };
    let kind = match info.wish {
        volume::Compaction::Compacted => "compact",
        volume::Compaction::Uncompacted => "uncompact",
    };
    api::Job {
        id: format!("{volume}.{version}"),
        kind: kind.to_owned(),
        volume: volume.to_owned(),
        version,
        state: state.to_owned(),
        percent,
        asked: Time(info.asked),
        packed: info.packed,
        raw: info.raw,
    }
}

/// The job that the scrub is.
pub(crate) const SCRUB_JOB: &str = "scrub";

pub(crate) fn scrub_job(info: &volume::ScrubInfo) -> api::Job {
    api::Job {
        id: SCRUB_JOB.to_owned(),
        kind: SCRUB_JOB.to_owned(),
        volume: String::new(),
        version: 0,
        state: info.state.name().to_owned(),
        percent: info.percent,
        asked: Time(WallTime::from_nanos(info.record.started_ns)),
        packed: 0,
        raw: 0,
    }
}

pub(crate) fn scrub(info: volume::ScrubInfo) -> api::Scrub {
    let record = info.record;
    let time = |ns: u64| Time(WallTime::from_nanos(ns));
    api::Scrub {
        state: info.state.name().to_owned(),
        started: time(record.started_ns),
        ended: record.ended_ns.map(time),
        progress_percent: info.percent,
        read_bytes: record.read_bytes,
        wrong: record.wrong,
        healed: record.healed,
        repaired: record.repaired,
        elsewhere: record.elsewhere,
        lost: record.lost,
        losses: record.losses,
    }
}

pub(crate) fn version(volume: &str, version: volume::Version) -> api::Version {
    let job = version.compaction.map(|info| job(volume, version.number, &info));
    let is_compacted =
        |job: &api::Job| job.kind == "compact" && job.state == "done" && job.packed > 0;
    api::Version {
        number: version.number,
        seq: version.stamp.seq.0,
        time: Time(version.stamp.time),
        label: version.label,
        bytes_changed: version.bytes_changed,
        bytes_exact: version.bytes_exact,
        until: version.until.map(Time),
        span: version.until.and_then(|until| until.since(version.stamp.time)).map(SpanInput),
        made_by: made_by(version.is_scheduled),
        open_files: version.open_files,
        hook_failure: None,
        consistency: version.consistency.name().to_owned(),
        encoding: version.encoding.name().to_owned(),
        clones: version.dependants.clones,
        views: version.dependants.views as u64,
        compacted: job.as_ref().is_some_and(is_compacted),
        job,
    }
}

fn made_by(is_scheduled: bool) -> String {
    if is_scheduled { "schedule" } else { "people" }.to_owned()
}

/// The subject of a schedule.
pub(crate) enum Of<'n> {
    Volume(&'n str),
    Group(&'n str),
}

pub(crate) fn schedule(of: &Of<'_>, info: volume::ScheduleInfo) -> api::Schedule {
    let (every, cron) = match info.spec.timing {
        Timing::Every(span) => (Some(SpanInput(span)), None),
        Timing::Cron(line) => (None, Some(line.to_string())),
    };
    let (volume, group) = match *of {
        Of::Volume(name) => (Some(name), None),
        Of::Group(name) => (None, Some(name)),
    };
    api::Schedule {
        volume: volume.map(str::to_owned),
        group: group.map(str::to_owned),
        every,
        cron,
        keep: keep(&info.spec.keep),
        label: info.spec.label,
        hook: info.spec.hook,
        prove: info.spec.prove,
        set: Time(info.set),
        next: info.next.map(Time),
        newest: info.newest.map(|(number, _)| number),
        newest_time: info.newest.map(|(_, made)| Time(made)),
        captures: info.captures,
        failures: info.failures,
        pruned: info.pruned,
        error: info.error,
        dry_run: false,
        goes: Vec::new(),
        would: Vec::new(),
    }
}

fn keep(keep: &volume::KeepRules) -> api::Keep {
    let volume::KeepRules { last, hourly, daily, weekly, monthly, yearly, within_ns } = *keep;
    let within = (within_ns > 0).then_some(SpanInput(Span(within_ns)));
    api::Keep { last, hourly, daily, weekly, monthly, yearly, within }
}

/// Rules that were there, with those that are set.
pub(crate) fn keep_set(set: &api::SetKeep, before: volume::KeepRules) -> volume::KeepRules {
    volume::KeepRules {
        last: set.last.unwrap_or(before.last),
        hourly: set.hourly.unwrap_or(before.hourly),
        daily: set.daily.unwrap_or(before.daily),
        weekly: set.weekly.unwrap_or(before.weekly),
        monthly: set.monthly.unwrap_or(before.monthly),
        yearly: set.yearly.unwrap_or(before.yearly),
        within_ns: set.within.map_or(before.within_ns, |span| span.0.0),
    }
}

pub(crate) fn explained(explained: volume::Explained) -> api::Explained {
    let made_by = match explained.made_by {
        volume::MadeBy::People => "people",
        volume::MadeBy::Schedule => "schedule",
        volume::MadeBy::GroupSchedule => "group-schedule",
        volume::MadeBy::RemovedSchedule => "removed-schedule",
    };
    api::Explained {
        number: explained.number,
        time: Time(explained.time),
        made_by: made_by.to_owned(),
        rules: explained.rules,
        stays: explained.stays,
        goes: explained.goes.map(Time),
    }
}

pub(crate) fn group(info: volume::GroupInfo) -> api::Group {
    let volume::GroupInfo { name, volumes, created, captures, hook, in_trash: _ } = info;
    api::Group { name, volumes, created: Time(created), captures, hook, hook_known: true }
}

/// A share, as its volume stands, with its settings and how to mount it.
pub(crate) fn share(
    volume: api::Volume,
    setting: &volume::ShareSetting,
    mount: Vec<String>,
    relay: Option<Shown<'_>>,
) -> api::Share {
    api::Share {
        name: volume.name,
        mount,
        relay: relay.map(relay_of),
        metadata: setting.metadata.name().to_owned(),
        reads_logged_since: setting.reads_since_ns.map(|since| {
            let created = volume.created.0;
            Time(WallTime::from_nanos(since).max(created))
        }),
        allowed: setting.allowed.iter().map(allowed).collect(),
        architecture: volume.architecture,
        granularity: volume.granularity,
        window: volume.window,
        history_limit: volume.history_limit,
        window_held: volume.window_held,
        window_kept: volume.window_kept,
        grace: volume.grace,
        state: volume.state,
        clients: volume.clients,
        live_bytes: volume.live_bytes,
        live_exact: volume.live_exact,
        history_bytes: volume.history_bytes,
        pinned_bytes: volume.pinned_bytes,
        hook: volume.hook,
        hook_known: volume.hook_known,
        oldest: volume.oldest,
        latest: volume.latest,
        created: volume.created,
        cloned_from: volume.cloned_from,
        conversion: volume.conversion,
        encoding: volume.encoding,
        dedup: volume.dedup,
        base_bytes: volume.base_bytes,
        versions: volume.versions,
    }
}

fn relay_of(shown: Shown<'_>) -> api::Relay {
    api::Relay {
        form: shown.form.to_owned(),
        listen: shown.listen.to_string(),
        primary: shown.primary.to_string(),
        clients: shown.clients as u64,
        follower: shown.status.map(|status| api::Follower {
            state: status.state.name().to_owned(),
            waiting: status.waiting as u64,
            waiting_bytes: status.waiting_bytes as u64,
            followed: status.followed,
            compared: status.compared,
            comparisons: status.comparisons,
            left_out: status.left_out,
            trouble: status.trouble,
        }),
    }
}

fn allowed(allowed: &volume::Allowed) -> api::Allowed {
    api::Allowed {
        network: allowed.network.to_string(),
        read_only: allowed.read_only,
        squash: allowed.squash.name().to_owned(),
        anonymous_uid: allowed.anonymous_uid,
        anonymous_gid: allowed.anonymous_gid,
        any_port: allowed.any_port,
        past: allowed.past.name().to_owned(),
    }
}

pub(crate) fn group_version(version: volume::GroupVersion) -> api::GroupVersion {
    let member = |(volume, number)| api::MemberVersion { volume, number };
    api::GroupVersion {
        number: version.number,
        time: Time(version.time),
        label: version.label,
        consistency: version.consistency.name().to_owned(),
        made_by: made_by(version.is_scheduled),
        versions: version.versions.into_iter().map(member).collect(),
        hook_failure: None,
    }
}

pub(crate) fn mark(mark: volume::Mark) -> api::Mark {
    api::Mark {
        name: mark.name,
        seq: mark.stamp.seq.0,
        time: Time(mark.stamp.time),
        pinned: mark.pinned,
        created: Time(mark.created),
    }
}

pub(crate) fn resolved(resolved: volume::Resolved) -> api::Resolved {
    api::Resolved { seq: resolved.seq.0, time: Time(resolved.time), exact: resolved.exact }
}

pub(crate) fn bucket(bucket: volume::Bucket) -> api::Bucket {
    let volume::Bucket { time: at, writes, bytes, flushes } = bucket;
    api::Bucket { time: Time(at), writes, bytes, flushes }
}

pub(crate) fn event(event: volume::Event) -> api::Event {
    api::Event {
        seq: event.stamp.seq.0,
        time: Time(event.stamp.time),
        kind: event.kind.to_owned(),
        detail: event.detail,
    }
}

pub(crate) fn reverted(name: &str, report: volume::RevertReport, dry_run: bool) -> api::Reverted {
    let (to, bytes) = (&report.to, report.changed_bytes);
    let text =
        format!("{name} would go back to {} (seq:{}): {bytes} bytes differ", to.time, to.seq);
    let would = dry_run.then(|| api::Would::new("revert", name, text));
    api::Reverted {
        from: stamp(report.from),
        to: stamp(report.to),
        changed_bytes: report.changed_bytes,
        seq: report.seq.0,
        dry_run,
        would: Vec::from_iter(would),
        undo: format!("seq:{}", report.from.seq),
    }
}

pub(crate) fn range(range: volume::Range) -> api::Range {
    api::Range { offset: range.offset, length: range.length_bytes }
}

/// The pool as it stands: what is used, for what, how full it is, and what would go next.
pub(crate) fn pool(
    status: volume::PoolStatus,
    fill: Fill,
    volumes: usize,
    space: volume::PoolSpace,
    next: Option<volume::Sacrifice>,
) -> api::Pool {
    let lasts = space.growth.and_then(|growth| growth.lasts_ns(fill.available_bytes));
    api::Pool {
        warning_percent: fill.level(),
        live_bytes: space.live_bytes,
        live_exact: space.live_exact,
        history_bytes: space.history_bytes,
        pinned_bytes: space.pinned_bytes,
        trash_volumes: space.trash_volumes,
        trash_bytes: space.trash_bytes,
        common_bytes: space.common_bytes,
        common_named_bytes: space.common_named_bytes,
        growth: space.growth.map(growth),
        full_in: lasts.map(whole_seconds),
        next_sacrifice: next.map(sacrifice),
        id: status.id,
        state: status.state.to_owned(),
        layers: status.layers,
        format_version: status.format_version,
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
        volumes: volumes as u64,
        size_bytes: status.size_bytes,
        used_bytes: status.used_bytes,
        free_bytes: status.free_bytes,
        available_bytes: fill.available_bytes,
        promised_bytes: 0,
        fill_percent: fill.percent(),
        warning: fill.warning(),
        reclaimable_bytes: status.reclaimable_bytes,
        log_bytes: status.log_bytes,
        current_bytes: status.current_bytes,
        map_bytes: status.map_bytes,
        catalogue_bytes: status.catalogue_bytes,
        pending_entries: status.pending_entries,
        checksum_errors: status.checksum_errors,
        healed: api::Healed {
            recovered: status.healed.recovered,
            transient: status.healed.transient,
            unrecoverable: status.healed.unrecoverable,
        },
        members: Vec::new(),
        behind_bytes: 0,
        scrub: None,
        scrub_every: None,
        scrub_rate_bytes: None,
        rebuild_rate_bytes: None,
        write_buffers: write_memory::status().into_iter().map(write_buffer).collect(),
    }
}

fn write_buffer(status: block::BufferStatus) -> api::WriteBuffer {
    let state = match (&status.failed, status.is_used) {
        (Some(_), _) => "failed",
        (None, true) => "in-use",
        (None, false) => "off",
    };
    api::WriteBuffer {
        path: status.media,
        state: state.to_owned(),
        why: status.failed.or(status.off),
        memory: status.memory,
        size_bytes: status.slots_bytes,
        waiting_bytes: status.waiting_bytes,
    }
}

pub(crate) fn member(member: block::MemberStatus) -> api::Member {
    api::Member {
        id: format!("{:032x}", member.id),
        state: member.standing.name().to_owned(),
        path: member.path,
        present: member.is_there,
        size_bytes: member.data_bytes,
        errors: member.errors,
        read_bytes: member.counters.0,
        written_bytes: member.counters.1,
    }
}

pub(crate) fn spare(spare: block::SpareStatus) -> api::Member {
    api::Member {
        id: format!("{:032x}", spare.id),
        state: if spare.is_copied_to { "copying" } else { "spare" }.to_owned(),
        path: spare.path,
        present: spare.is_there,
        size_bytes: spare.data_bytes,
        errors: 0,
        read_bytes: 0,
        written_bytes: 0,
    }
}

pub(crate) fn audit(record: volume::AuditRecord) -> api::AuditRecord {
    api::AuditRecord {
        number: record.number,
        time: Time(WallTime::from_nanos(record.time_ns)),
        action: record.action,
        volume: record.volume,
        detail: record.detail,
        who: record.who.clone().or_else(|| record.caller.clone()),
        caller: record.who.or(record.caller),
        from: record.from,
    }
}
