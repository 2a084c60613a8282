//! `hindsight version schedule` and `hindsight group schedule`.

use api::{ClientError, ExitCode, Keep, Schedule, SetKeep, SetSchedule, SpanInput, Would};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use units::{Cron, Malformed, Span};

use crate::output::{Table, count, pairs};
use crate::session::{Session, say, tell};
use terminal::arguments::span;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Capture versions by the clock, and say which of them stay.
    ///
    /// Rules mean what restic's `forget` means by them: each keeps the newest version of each of
    /// the last N periods that have one, in UTC. Versions that people made are never pruned.
    Set(Box<SetArgs>),
    /// Show the schedule of a volume.
    Show {
        /// Name of the volume.
        name: String,
    },
    /// List the schedules of all volumes.
    #[command(visible_alias = "ls")]
    List,
    /// Remove the schedule of a volume; the versions that it made stay.
    #[command(visible_alias = "rm")]
    Remove {
        /// Name of the volume.
        name: String,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
}

/// The same of groups.
#[derive(Debug, Subcommand)]
pub enum GroupVerb {
    /// Capture all volumes of a group by the clock, and say which captures stay.
    ///
    /// Rules mean what they mean for a volume. A capture that no rule keeps goes as one: its
    /// versions on all volumes at once. Captures that people made are never pruned.
    Set {
        /// Name of the group.
        group: String,
        #[command(flatten)]
        rules: Box<Rules>,
    },
    /// Show the schedule of a group.
    Show {
        /// Name of the group.
        group: String,
    },
    /// List the schedules of all groups.
    #[command(visible_alias = "ls")]
    List,
    /// Remove the schedule of a group; what it captured stays.
    #[command(visible_alias = "rm")]
    Remove {
        /// Name of the group.
        group: String,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Debug, Args)]
pub struct SetArgs {
    /// Name of the volume.
    name: String,
    #[command(flatten)]
    rules: Rules,
}

/// When, and what stays.
#[derive(Debug, Args)]
pub struct Rules {
    /// At the multiples of this span since 1970 (UTC), such as 1min.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    every: Option<Span>,
    /// As a line of cron with five fields says, in UTC: '0 * * * *'.
    #[arg(long, value_name = "LINE", value_parser = cron, conflicts_with = "every")]
    cron: Option<Cron>,
    /// Keep the newest N; 0 takes a rule away. What is not given stays as it was.
    #[arg(long, value_name = "N")]
    keep_last: Option<u32>,
    /// Keep the newest of each of the last N hours that have one.
    #[arg(long, value_name = "N")]
    keep_hourly: Option<u32>,
    /// The same of days.
    #[arg(long, value_name = "N")]
    keep_daily: Option<u32>,
    /// The same of ISO weeks.
    #[arg(long, value_name = "N")]
    keep_weekly: Option<u32>,
    /// The same of months.
    #[arg(long, value_name = "N")]
    keep_monthly: Option<u32>,
    /// The same of years.
    #[arg(long, value_name = "N")]
    keep_yearly: Option<u32>,
    /// Keep those not older than this before the newest.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    keep_within: Option<Span>,
    /// The label of its versions.
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// A hook of the server's configuration around each capture; none for no hook [default: that
    /// which is set].
    #[arg(long, value_name = "NAME")]
    hook: Option<String>,
    /// A hook whose `verify` looks at each version that it makes; none for no check.
    #[arg(long, value_name = "NAME")]
    prove: Option<String>,
    /// Only say what would be done, and which versions would go.
    #[arg(long)]
    dry_run: bool,
}

fn cron(text: &str) -> Result<Cron, String> {
    text.parse().map_err(Malformed::in_one_line)
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    let client = session.client()?;
    match verb {
        Verb::Set(args) => {
            let SetArgs { name, rules } = *args;
            set(session, rules, |body| client.set_schedule(&name, body))?;
        }
        Verb::Show { name } => session.answer(&client.schedule(&name)?, show)?,
        Verb::List => {
            let all = client.schedules()?.into_iter();
            let of_volumes: Vec<Schedule> = all.filter(|s| s.volume.is_some()).collect();
            session.answer(&of_volumes, |s| list("VOLUME", s))?;
        }
        Verb::Remove { name, dry_run } => {
            match dry_run {
                true => drop(client.schedule(&name)?),
                false => client.remove_schedule(&name)?,
            }
            removed(session, &name, &json!({"volume": name, "removed": !dry_run}), dry_run)?;
        }
    }
    Ok(ExitCode::Done)
}

pub fn run_group(session: &Session, verb: GroupVerb) -> anyhow::Result<ExitCode> {
    let client = session.client()?;
    match verb {
        GroupVerb::Set { group, rules } => {
            set(session, *rules, |body| client.set_group_schedule(&group, body))?;
        }
        GroupVerb::Show { group } => session.answer(&client.group_schedule(&group)?, show)?,
        GroupVerb::List => {
            let all = client.schedules()?.into_iter();
            let of_groups: Vec<Schedule> = all.filter(|s| s.group.is_some()).collect();
            session.answer(&of_groups, |s| list("GROUP", s))?;
        }
        GroupVerb::Remove { group, dry_run } => {
            match dry_run {
                true => drop(client.group_schedule(&group)?),
                false => client.remove_group_schedule(&group)?,
            }
            let answer = json!({"group": group, "removed": !dry_run});
            removed(session, &format!("group {group}"), &answer, dry_run)?;
        }
    }
    Ok(ExitCode::Done)
}

fn removed(session: &Session, of: &str, answer: &Value, dry_run: bool) -> anyhow::Result<()> {
    let target = format!("schedule of {of}");
    if dry_run {
        let text = format!("the {target} would be removed; its versions stay");
        return session.would(&[Would::new("remove", target, text)], answer, |_| String::new());
    }
    say(&format!("{target}: removed; its versions stay"));
    session.answer(answer, |_| String::new())
}

fn set(
    session: &Session,
    rules: Rules,
    call: impl Fn(&SetSchedule) -> Result<Schedule, ClientError>,
) -> anyhow::Result<()> {
    let keep = SetKeep {
        last: rules.keep_last,
        hourly: rules.keep_hourly,
        daily: rules.keep_daily,
        weekly: rules.keep_weekly,
        monthly: rules.keep_monthly,
        yearly: rules.keep_yearly,
        within: rules.keep_within.map(SpanInput),
    };
    let body = SetSchedule {
        every: rules.every.map(SpanInput),
        cron: rules.cron.map(|line| line.to_string()),
        keep,
        label: rules.label,
        hook: rules.hook.map(Some),
        prove: rules.prove.map(|hook| Some(hook).filter(|hook| hook != "none")),
        dry_run: true,
    };
    let planned = call(&body)?;
    if rules.dry_run {
        return answer(session, &planned);
    }
    if !planned.goes.is_empty() {
        let many = count(planned.goes.len() as u64, "version");
        session.confirm(&format!("{many} that no rule keeps will go"))?;
    }
    answer(session, &call(&SetSchedule { dry_run: false, ..body })?)
}

fn answer(session: &Session, schedule: &Schedule) -> anyhow::Result<()> {
    if schedule.keep == Keep::default() {
        say("there is no --keep rule: all of its versions stay");
    }
    if schedule.dry_run {
        tell(&schedule.would);
    } else if !schedule.goes.is_empty() {
        let many = count(schedule.goes.len() as u64, "version");
        say(&format!("{many} will go, which no rule keeps:"));
        schedule.goes.iter().for_each(|one| say(&format!("  {} of {}", one.number, one.time)));
    }
    session.answer(schedule, show)
}

fn timing(schedule: &Schedule) -> String {
    match (&schedule.every, &schedule.cron) {
        (Some(span), _) => format!("every {}", span.0),
        (None, Some(line)) => format!("cron {line}"),
        (None, None) => "-".to_owned(),
    }
}

fn told(keep: &Keep) -> String {
    let counts = [
        ("last", keep.last),
        ("hourly", keep.hourly),
        ("daily", keep.daily),
        ("weekly", keep.weekly),
        ("monthly", keep.monthly),
        ("yearly", keep.yearly),
    ];
    let told = counts.iter().filter(|(_, count)| *count > 0);
    let mut told: Vec<String> = told.map(|(name, count)| format!("{name} {count}")).collect();
    told.extend(keep.within.map(|span| format!("within {}", span.0)));
    if told.is_empty() { "everything".to_owned() } else { told.join(", ") }
}

fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn name(schedule: &Schedule) -> String {
    or_dash(schedule.volume.as_ref().or(schedule.group.as_ref()))
}

fn show(schedule: &Schedule) -> String {
    let mut lines = vec![
        (if schedule.group.is_some() { "group" } else { "volume" }, name(schedule)),
        ("timing", timing(schedule)),
        ("keep", told(&schedule.keep)),
        ("label", schedule.label.clone()),
        ("set", schedule.set.to_string()),
        ("next", or_dash(schedule.next)),
        ("newest", or_dash(schedule.newest)),
        ("captures", schedule.captures.to_string()),
        ("pruned", schedule.pruned.to_string()),
        ("failures", schedule.failures.to_string()),
    ];
    lines.extend(schedule.hook.clone().map(|hook| ("hook", hook)));
    lines.extend(schedule.prove.clone().map(|hook| ("prove", hook)));
    lines.extend(schedule.error.clone().map(|error| ("error", error)));
    pairs(&lines)
}

fn list(of: &'static str, schedules: &[Schedule]) -> String {
    Table::of(schedules)
        .left(of, |one| name(one))
        .left("TIMING", |one| timing(one))
        .left("KEEP", |one| told(&one.keep))
        .left("NEXT", |one| or_dash(one.next))
        .right("NEWEST", |one| or_dash(one.newest))
        .right("FAILURES", |one| one.failures.to_string())
        .text()
}
