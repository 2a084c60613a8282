//! What the server says of itself, its pool, its volumes and their schedules.

use api::{
    Client, ClientError, ListQuery, Member, Pool, Schedule, Server, Time, Volume, WatchAlarm,
};

use super::report::{Level, Report};

/// Days after which a scrub is old.
const SCRUB_DAYS_MAX: u64 = 35;
/// The part of its window that a volume must hold, in percent, before it is critical.
const WINDOW_PERCENT_MIN: u64 = 75;
/// How full a pool is, in percent, before it is critical.
const FULL_PERCENT: u64 = 95;
const DAY_NS: u64 = 86_400_000_000_000;

pub struct Served {
    pub server: Server,
    pub pool: Pool,
    pub volumes: Vec<Volume>,
    pub schedules: Vec<Schedule>,
    /// The first alarm of each volume's watch whose mark is still there.
    pub alarms: Vec<(String, WatchAlarm)>,
    /// When the pool was made, as its audit log says.
    pub made: Option<Time>,
}

pub fn ask(client: &Client) -> Result<Served, ClientError> {
    let first = client.audit(&ListQuery { limit: Some(1), ..ListQuery::default() })?;
    let volumes = client.volumes()?;
    let mut alarms = Vec::new();
    for volume in volumes.iter().filter(|volume| volume.watch.is_some()) {
        // One that is watched no more by now has none.
        let all = client.watch(&volume.name).map_or(Vec::new(), |watch| watch.alarms);
        let held = all.into_iter().rfind(|alarm| alarm.held);
        alarms.extend(held.map(|alarm| (volume.name.clone(), alarm)));
    }
    Ok(Served {
        server: client.server()?,
        pool: client.pool()?,
        volumes,
        schedules: client.schedules()?,
        alarms,
        made: first.entries.first().map(|record| record.time),
    })
}

pub fn look(served: &Served, report: &mut Report) {
    look_at_pool(&served.pool, report);
    look_at_data(&served.pool, report);
    look_at_scrub(served, report);
    served.volumes.iter().for_each(|volume| look_at_volume(volume, report));
    served.alarms.iter().for_each(|(volume, alarm)| look_at_alarm(volume, alarm, report));
    served.schedules.iter().for_each(|schedule| look_at_schedule(schedule, report));
    look_at_doors(&served.server, report);
}

fn look_at_pool(pool: &Pool, report: &mut Report) {
    // Members that are out are told below.
    if pool.state == "refusing-writes" {
        report.find(
            ("pool-writes", Level::Critical),
            "the pool refuses writes",
            "a write or flush to a device failed; nothing can be added to what is there",
            "look at the device (journalctl -k), then: systemctl restart hindsight",
        );
    }
    for member in &pool.members {
        look_at_member(member, report);
    }
    if let Some(warning) = &pool.warning {
        let is_full = pool.warning_percent >= FULL_PERCENT;
        report.find(
            ("space", if is_full { Level::Critical } else { Level::Warning }),
            warning,
            "windows are shortened first, then writes of clients fail",
            "hindsight pool grow, shorter windows, or fewer versions (volume space NAME)",
        );
    }
    for buffer in pool.write_buffers.iter().filter(|buffer| buffer.state == "failed") {
        report.find(
            ("write-buffer", Level::Critical),
            format!("the write buffer of {} failed", buffer.path),
            buffer.why.clone().unwrap_or_default(),
            "look at the device (journalctl -k), then: systemctl restart hindsight",
        );
    }
}

fn look_at_member(member: &Member, report: &mut Report) {
    let path = &member.path;
    let (level, why, command) = match (member.state.as_str(), member.present) {
        ("in" | "spare", true) => return,
        ("stale" | "copying", true) => (
            Level::Warning,
            "until it is done the pool bears fewer failures",
            "hindsight pool status".to_owned(),
        ),
        ("spare", false) => (
            Level::Warning,
            "it cannot take the place of a member",
            format!("attach it again, or: hindsight pool spare remove {path}"),
        ),
        _ => (
            Level::Critical,
            "the pool bears fewer failures than it was made for, or none",
            format!("hindsight pool replace {path} NEW"),
        ),
    };
    let state = if member.present { member.state.as_str() } else { "not there" };
    report.find(("member", level), format!("{path} is {state}"), why, command);
}

fn look_at_data(pool: &Pool, report: &mut Report) {
    let lost = pool.scrub.as_ref().map_or(0, |scrub| scrub.lost);
    let (unrecoverable, healed) = (pool.healed.unrecoverable, pool.healed.recovered);
    if lost + unrecoverable > 0 {
        report.find(
            ("data-lost", Level::Critical),
            format!(
                "{lost} blocks of the last scrub, {unrecoverable} reads since the start are lost"
            ),
            "every copy is wrong, and no other version has the same bytes",
            "hindsight pool audit names the places: restore them, or revert what they belong to",
        );
    } else if pool.checksum_errors + healed > 0 {
        let errors = pool.checksum_errors;
        report.find(
            ("checksums", Level::Warning),
            format!("{errors} checksum errors since the start, {healed} places were healed"),
            "a device gives other bytes than it was given: it may be dying",
            "hindsight pool scrub --wait; smartctl -a on the disks of hindsight pool status",
        );
    }
}

fn look_at_scrub(served: &Served, report: &mut Report) {
    let scrub = served.pool.scrub.as_ref();
    if scrub.is_some_and(|scrub| scrub.state == "running") {
        return;
    }
    let last = scrub.filter(|scrub| scrub.state == "done").and_then(|scrub| scrub.ended);
    let Some(since) = last.or(served.made) else { return };
    let Some(age) = served.server.time.0.since(since.0) else { return };
    let days = age.as_nanos() / DAY_NS;
    if days <= SCRUB_DAYS_MAX {
        return;
    }
    let what = match last {
        Some(_) => format!("the last scrub ended {days} days ago"),
        None if scrub.is_some_and(|scrub| scrub.state == "stopped") => {
            "the last scrub was stopped before its end".to_owned()
        }
        None => format!("no scrub in the {days} days that the pool exists"),
    };
    let why = "blocks that nobody reads rot unseen, until the copy that was right is gone, too";
    report.find(("scrub", Level::Warning), what, why, "hindsight pool scrub --every 30d");
}

fn look_at_alarm(name: &str, alarm: &WatchAlarm, report: &mut Report) {
    let WatchAlarm { kind, given, mark, .. } = alarm;
    report.find(
        ("watch", Level::Critical),
        format!("much of {name} was {kind} in a short time: the alarm of {given}"),
        format!("ransomware does so, and some mistakes; mark {mark} holds the moment before"),
        format!(
            "hindsight diff {name}@mark:{mark} {name}; when it is settled: hindsight mark delete \
             {name} {mark}"
        ),
    );
}

fn look_at_volume(volume: &Volume, report: &mut Report) {
    let name = &volume.name;
    if !volume.window_kept {
        let (held, window) = (volume.window_held.0, volume.window.0);
        let is_short = held.as_nanos() < window.as_nanos() / 100 * WINDOW_PERCENT_MIN;
        report.find(
            ("window", if is_short { Level::Critical } else { Level::Warning }),
            format!("{name} holds {held} of its window of {window}"),
            "older moments cannot be opened; a window that was made larger fills",
            format!("hindsight volume space {name} says what takes the room"),
        );
    }
    if let Some(hook) = volume.hook.as_ref().filter(|_| !volume.hook_known) {
        report.find(
            ("hook", Level::Warning),
            format!("{name} has the hook {hook}, which the configuration does not have"),
            "its versions are only crash-consistent",
            format!("add [hooks.{hook}] to the configuration and: systemctl reload hindsight"),
        );
    }
    if let Some(trouble) = volume.import.as_ref().and_then(|import| import.trouble.as_ref()) {
        report.find(
            ("import", Level::Critical),
            format!("the import of {name} is in trouble: {trouble}"),
            "blocks that were not copied yet cannot be read",
            format!("put the file back as it was, or: hindsight volume delete {name}"),
        );
    }
    if volume.unfinished_import {
        report.find(
            ("import", Level::Warning),
            format!("the import of {name} was interrupted"),
            "only a part of the image is there",
            format!("the same import again, or: hindsight volume delete {name}"),
        );
    }
}

fn look_at_schedule(schedule: &Schedule, report: &mut Report) {
    let Some(error) = &schedule.error else { return };
    let (noun, name) = match (&schedule.volume, &schedule.group) {
        (Some(volume), _) => ("version", volume),
        (None, Some(group)) => ("group", group),
        (None, None) => return,
    };
    report.find(
        ("schedule", Level::Warning),
        format!("the schedule of {name} fails: {error}"),
        "no versions are made that it promises",
        format!("hindsight {noun} schedule show {name}"),
    );
}

/// Addresses that others can reach. What the server lets in there is its own rule.
fn look_at_doors(server: &Server, report: &mut Report) {
    let nfs = server.nfs.iter().map(|address| ("NFS", address));
    let others = [("NBD", &server.nbd), ("iSCSI", &server.iscsi)];
    let others = others.into_iter().filter_map(|(name, at)| Some((name, at.as_ref()?)));
    for (name, address) in others.chain(nfs) {
        let parsed: Result<std::net::SocketAddr, _> = address.parse();
        if parsed.is_ok_and(|address| address.ip().is_loopback()) {
            continue;
        }
        let why = match name {
            "NBD" => "clients need certificates there, unless the server was started insecure",
            "iSCSI" => "CHAP proves who asks, and encrypts nothing",
            _ => "NFS neither encrypts nor proves who asks",
        };
        report.find(
            ("listener", Level::Note),
            format!("{name} is served at {address}, beyond this machine"),
            why,
            "keep it to a network of its own, or listen on 127.0.0.1",
        );
    }
}
