//! Schedules of volumes and groups: list, show, set, remove; why versions stay; pruning now.

use api::{ApplyRetention, ListQuery, ProblemKind, Pruned, SetSchedule, Would};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use units::Timing;

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
        (None, Some(line), _) => Timing::Cron(line.parse()?),
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

impl Of<'_> {
    /// As people name it.
    fn name(&self) -> String {
        match *self {
            Of::Volume(name) => name.to_owned(),
            Of::Group(name) => format!("group {name}"),
        }
    }

    /// A version or a capture of it, as people name it.
    fn captured(&self, number: u64) -> String {
        match *self {
            Of::Volume(name) => format!("{name}@v:{number}"),
            Of::Group(name) => format!("group {name}, capture {number}"),
        }
    }

    fn schedule(&self, context: &Context) -> Answer<Option<volume::ScheduleInfo>> {
        Ok(match *self {
            Of::Volume(name) => context.volume(name)?.schedule_info()?,
            Of::Group(name) => context.pool.group_schedule(name)?,
        })
    }

    fn plan(
        &self,
        context: &Context,
        spec: &volume::ScheduleSpec,
    ) -> Answer<(volume::ScheduleInfo, Vec<volume::Explained>)> {
        Ok(match *self {
            Of::Volume(name) => context.volume(name)?.plan_schedule(spec)?,
            Of::Group(name) => context.pool.plan_group_schedule(name, spec)?,
        })
    }

    fn show(&self, context: &Context) -> Answer<api::Schedule> {
        let lacking =
            || Refusal::new(ProblemKind::NotFound, format!("{} has no schedule", self.name()));
        Ok(convert::schedule(self, self.schedule(context)?.ok_or_else(lacking)?))
    }

    fn set(&self, context: &Context, body: &SetSchedule) -> Answer<api::Schedule> {
        let spec = spec_of(body, self.schedule(context)?.map(|info| info.spec))?;
        context.check_hook(spec.hook.as_deref())?;
        context.check_verify(body.prove.as_ref().and_then(Option::as_deref))?;
        let (planned, goes) = self.plan(context, &spec)?;
        let info = match *self {
            _ if body.dry_run => planned,
            Of::Volume(name) => context.volume(name)?.set_schedule(&spec)?,
            Of::Group(name) => context.pool.set_group_schedule(name, &spec)?,
        };
        let mut would = Vec::new();
        if body.dry_run {
            let name = format!("schedule of {}", self.name());
            let text = format!("the {name} would be {}, keep {}", info.spec.timing, info.spec.keep);
            would.push(Would::new("change", name, text));
            would.extend(goes.iter().map(|one| self.prunes(one)));
        }
        let goes = goes.into_iter().map(convert::explained).collect();
        let dry_run = body.dry_run;
        Ok(api::Schedule { dry_run, goes, would, ..convert::schedule(self, info) })
    }

    /// A capture that would be pruned, with its time.
    fn prunes(&self, goes: &volume::Explained) -> Would {
        let target = self.captured(goes.number);
        let text = format!("{target} of {} would be pruned: no rule keeps it", goes.time);
        Would::new("prune", target, text)
    }

    /// Prunes now what no rule keeps, or says what that would be.
    fn apply(&self, context: &Context, dry_run: bool) -> Answer<Pruned> {
        let goes = match self.schedule(context)? {
            Some(info) => self.plan(context, &info.spec)?.1,
            None => Vec::new(),
        };
        let versions = match *self {
            Of::Volume(name) => context.volume(name)?.apply_retention(dry_run)?,
            Of::Group(name) => context.pool.apply_group_retention(name, dry_run)?,
        };
        let went = |one: &&volume::Explained| versions.binary_search(&one.number).is_ok();
        let would = goes.iter().filter(|_| dry_run).filter(went);
        let would = would.map(|one| self.prunes(one)).collect();
        Ok(Pruned { versions, dry_run, would })
    }
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
    context.json(move |context| Of::Volume(&name).show(context)).await
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
    context.json(move |context| Of::Volume(&name).set(context, &body)).await
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
    context.json(move |context| Of::Volume(&name).apply(context, body.dry_run)).await
}

/// Shows the schedule of a group.
#[utoipa::path(get, path = "/groups/{group}/schedule", tag = "groups",
    responses((status = 200, body = api::Schedule)))]
pub(super) async fn show_group(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Answer<Json<api::Schedule>> {
    context.json(move |context| Of::Group(&name).show(context)).await
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
    context.json(move |context| Of::Group(&name).set(context, &body)).await
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
    context.json(move |context| Of::Group(&name).apply(context, body.dry_run)).await
}
