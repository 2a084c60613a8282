//! Schedules of volumes and groups: list, show, set, remove; why versions stay; pruning now.

use api::{ApplyRetention, ListQuery, ProblemKind, Pruned, SetSchedule, Would};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use units::{Cron, Timing};

use super::answer::{Answer, Listed, Refusal};
use super::ask::{Asked, Body, Named};
use super::context::Context;
use super::convert::Of;
use super::rights::sees_group;
use super::volumes::location;
use super::{convert, groups};

/// A schedule as it is to be: what the request says, and what was there.
fn spec_of(
    body: &SetSchedule,
    before: Option<volume::ScheduleSpec>,
) -> Answer<volume::ScheduleSpec> {
    if before.is_some() && *body == SetSchedule::default() {
        // `dry_run` may be there, which is well formed.
        let text = "the body names no setting: nothing was changed";
        return Err(Refusal::new(ProblemKind::Invalid, text));
    }
    let timing = match (body.every, &body.cron, &before) {
        (Some(every), None, _) => Timing::Every(every.0),
        (None, Some(line), _) => {
            Timing::Cron(line.parse::<Cron>().map_err(|e| Refusal::malformed(e.message, e.hint))?)
        }
        (None, None, Some(before)) => before.timing.clone(),
        _ => {
            let text = "a schedule has either `every` or `cron`";
            let refusal = Refusal::new(ProblemKind::Invalid, text);
            return Err(refusal.with_hint("such as {\"every\": \"1h\"}"));
        }
    };
    let (keep, label, hook, prove) =
        before.map_or_else(Default::default, |spec| (spec.keep, spec.label, spec.hook, spec.prove));
    Ok(volume::ScheduleSpec {
        timing,
        keep: convert::keep_set(&body.keep, keep),
        label: body.label.clone().unwrap_or(label),
        hook: body.hook.clone().unwrap_or(hook),
        prove: body.prove.clone().unwrap_or(prove),
    })
}

/// The answer to setting a schedule.
fn answer(
    of: &Of<'_>,
    info: volume::ScheduleInfo,
    goes: Vec<volume::Explained>,
    dry_run: bool,
) -> api::Schedule {
    let target = |number: u64| match *of {
        Of::Volume(name) => format!("{name}@v:{number}"),
        Of::Group(name) => format!("group {name}, capture {number}"),
    };
    let mut would = Vec::new();
    if dry_run {
        let name = match *of {
            Of::Volume(name) => format!("schedule of {name}"),
            Of::Group(name) => format!("schedule of group {name}"),
        };
        let text = format!("the {name} would be {}, keep {}", info.spec.timing, info.spec.keep);
        would.push(Would::new("change", name, text));
        would.extend(goes.iter().map(|one| prunes(target(one.number), one)));
    }
    let goes = goes.into_iter().map(convert::explained).collect();
    api::Schedule { dry_run, goes, would, ..convert::schedule(of, info) }
}

/// Lists all schedules: those of volumes by name, then those of groups.
#[utoipa::path(get, path = "/schedules", tag = "schedules",
    responses((status = 200, body = Vec<api::Schedule>)))]
pub(super) async fn list(State(context): State<Context>) -> Answer<Json<Vec<api::Schedule>>> {
    context
        .json(|context| {
            let mut schedules = Vec::new();
            for volume in context.volumes() {
                // One that is deleted meanwhile has none.
                if let Ok(Some(info)) = volume.schedule_info() {
                    schedules.push(convert::schedule(&Of::Volume(volume.name()), info));
                }
            }
            let caller = context.caller()?;
            for (group, info) in context.pool.group_schedules() {
                // One that is deleted meanwhile is nobody's.
                let group_info = context.pool.group(&group);
                if !group_info.is_ok_and(|group| sees_group(caller, &group)) {
                    continue;
                }
                schedules.push(convert::schedule(&Of::Group(&group), info));
            }
            Ok(schedules)
        })
        .await
}

/// Shows the schedule of a volume.
#[utoipa::path(get, path = "/volumes/{volume}/schedule", tag = "schedules",
    responses((status = 200, body = api::Schedule)))]
pub(super) async fn show(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Answer<Json<api::Schedule>> {
    context
        .json(move |context| {
            let info = context.volume(&name)?.schedule_info()?.ok_or_else(|| {
                Refusal::new(ProblemKind::NotFound, format!("{name} has no schedule"))
            })?;
            Ok(convert::schedule(&Of::Volume(&name), info))
        })
        .await
}

/// Sets the schedule of a volume, or changes it.
#[utoipa::path(put, path = "/volumes/{volume}/schedule", tag = "schedules",
    request_body = SetSchedule,
    responses((status = 200, body = api::Schedule)))]
pub(super) async fn set(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<SetSchedule>,
) -> Answer<Json<api::Schedule>> {
    context
        .json(move |context| {
            let volume = context.volume(&name)?;
            let spec = spec_of(&body, volume.schedule_info()?.map(|info| info.spec))?;
            context.check_hook(spec.hook.as_deref())?;
            context.check_verify(body.prove.as_ref().and_then(Option::as_deref))?;
            let (planned, goes) = volume.plan_schedule(&spec)?;
            let info = if body.dry_run { planned } else { volume.set_schedule(&spec)? };
            Ok(answer(&Of::Volume(&name), info, goes, body.dry_run))
        })
        .await
}

/// Removes the schedule of a volume; the versions that it made stay until they are deleted.
#[utoipa::path(delete, path = "/volumes/{volume}/schedule", tag = "schedules",
    responses((status = 204)))]
pub(super) async fn remove(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Answer<StatusCode> {
    context.delete(move |context| Ok(context.volume(&name)?.remove_schedule()?)).await
}

/// Says of each version why it stays or goes, by number.
#[utoipa::path(get, path = "/volumes/{volume}/retention", tag = "schedules",
    params(ListQuery),
    responses((status = 200, body = Vec<api::Explained>, headers(("Link" = String)))))]
pub(super) async fn explain(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<ListQuery>,
) -> Answer<Listed<api::Explained>> {
    let path = format!("{}/retention", location(&name));
    let work = move |context: &Context, from, limit| {
        let (explained, next) = context.volume(&name)?.explain_retention(from, limit)?;
        Ok((explained.into_iter().map(convert::explained).collect(), next))
    };
    context.page(path, query, work).await
}

/// Prunes now the versions of the schedule that no rule keeps.
#[utoipa::path(post, path = "/volumes/{volume}/retention", tag = "schedules",
    request_body = Option<ApplyRetention>,
    responses((status = 200, body = Pruned)))]
pub(super) async fn apply(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<ApplyRetention>,
) -> Answer<Json<Pruned>> {
    let dry_run = body.dry_run;
    context
        .json(move |context| {
            let volume = context.volume(&name)?;
            let goes = match volume.schedule_info()? {
                Some(info) => volume.plan_schedule(&info.spec)?.1,
                None => Vec::new(),
            };
            let versions = volume.apply_retention(dry_run)?;
            let target = |number: u64| format!("{name}@v:{number}");
            Ok(pruned(versions, dry_run, target, &goes))
        })
        .await
}

/// Shows the schedule of a group.
#[utoipa::path(get, path = "/groups/{group}/schedule", tag = "groups",
    responses((status = 200, body = api::Schedule)))]
pub(super) async fn show_group(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Answer<Json<api::Schedule>> {
    context
        .json(move |context| {
            let info = context.pool.group_schedule(&name)?.ok_or_else(|| {
                Refusal::new(ProblemKind::NotFound, format!("group {name} has no schedule"))
            })?;
            Ok(convert::schedule(&Of::Group(&name), info))
        })
        .await
}

/// Sets the schedule of a group, or changes it.
#[utoipa::path(put, path = "/groups/{group}/schedule", tag = "groups",
    request_body = SetSchedule,
    responses((status = 200, body = api::Schedule)))]
pub(super) async fn set_group(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<SetSchedule>,
) -> Answer<Json<api::Schedule>> {
    context
        .json(move |context| {
            let pool = &context.pool;
            let spec = spec_of(&body, pool.group_schedule(&name)?.map(|info| info.spec))?;
            context.check_hook(spec.hook.as_deref())?;
            context.check_verify(body.prove.as_ref().and_then(Option::as_deref))?;
            let (planned, goes) = pool.plan_group_schedule(&name, &spec)?;
            let info = match body.dry_run {
                true => planned,
                false => pool.set_group_schedule(&name, &spec)?,
            };
            Ok(answer(&Of::Group(&name), info, goes, body.dry_run))
        })
        .await
}

/// Removes the schedule of a group; what it captured stays until it is deleted.
#[utoipa::path(delete, path = "/groups/{group}/schedule", tag = "groups",
    responses((status = 204)))]
pub(super) async fn remove_group(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Answer<StatusCode> {
    context.delete(move |context| Ok(context.pool.remove_group_schedule(&name)?)).await
}

/// Says of each capture of a group why it stays or goes, by number.
#[utoipa::path(get, path = "/groups/{group}/retention", tag = "groups",
    params(ListQuery),
    responses((status = 200, body = Vec<api::Explained>, headers(("Link" = String)))))]
pub(super) async fn explain_group(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<ListQuery>,
) -> Answer<Listed<api::Explained>> {
    let path = format!("{}/retention", groups::location(&name));
    let work = move |context: &Context, from, limit| {
        let (explained, next) = context.pool.explain_group_retention(&name, from, limit)?;
        Ok((explained.into_iter().map(convert::explained).collect(), next))
    };
    context.page(path, query, work).await
}

/// Prunes now the captures of a group's schedule that no rule keeps, each with its versions.
#[utoipa::path(post, path = "/groups/{group}/retention", tag = "groups",
    request_body = Option<ApplyRetention>,
    responses((status = 200, body = Pruned)))]
pub(super) async fn apply_group(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<ApplyRetention>,
) -> Answer<Json<Pruned>> {
    let dry_run = body.dry_run;
    context
        .json(move |context| {
            let pool = &context.pool;
            let goes = match pool.group_schedule(&name)? {
                Some(info) => pool.plan_group_schedule(&name, &info.spec)?.1,
                None => Vec::new(),
            };
            let versions = pool.apply_group_retention(&name, dry_run)?;
            let target = |number: u64| format!("group {name}, capture {number}");
            Ok(pruned(versions, dry_run, target, &goes))
        })
        .await
}

/// The version that would be pruned, as people name it, with its time.
fn prunes(target: String, goes: &volume::Explained) -> Would {
    let text = format!("{target} of {} would be pruned: no rule keeps it", goes.time);
    Would::new("prune", target, text)
}

/// The pruned versions; of a dry run, those that would be.
fn pruned(
    versions: Vec<u64>,
    dry_run: bool,
    target: impl Fn(u64) -> String,
    goes: &[volume::Explained],
) -> Pruned {
    let went = |one: &&volume::Explained| versions.binary_search(&one.number).is_ok();
    let would = goes.iter().filter(|_| dry_run).filter(went);
    let would = would.map(|one| prunes(target(one.number), one)).collect();
    Pruned { versions, dry_run, would }
}
