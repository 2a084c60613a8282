//! iSCSI targets of several units: list, create, change, delete.

use api::{
    API_PREFIX, ChangeMadeTarget, ChangeTarget, CreateTarget, ForceQuery, MadeTarget, NewLun,
    ProblemKind,
};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use volume::{TargetChange, UnitSpec, UnitsSpec};

use super::answer::{Answer, Refusal};
use super::ask::{Asked, Body, Named};
use super::context::{Context, moment};
use super::targets::access_change;
use super::together::group_moment;
use super::volumes::{Made, made};

/// Lists the iSCSI targets that were made of several units, by name.
#[utoipa::path(get, path = "/made-targets", tag = "targets",
    responses((status = 200, description = "The targets", body = [MadeTarget])))]
pub(super) async fn list(State(context): State<Context>) -> Answer<Json<Vec<MadeTarget>>> {
    let targets = |context: &Context| {
        let mut targets = context.pool.targets();
        // Units whose volume is deleted have no name that could be seen.
        let is_seen = |name: &Option<String>| match name {
            Some(name) => context.sees(name),
            None => context.sees_everything(),
        };
        targets.retain(|target| target.units.iter().all(|unit| is_seen(&unit.volume)));
        let targets = targets.into_iter();
        Ok(targets.map(|target| context.addresses.made_target(target)).collect())
    };
    context.json(targets).await
}

/// Makes an iSCSI target of several units.
#[utoipa::path(post, path = "/made-targets", tag = "targets", request_body = CreateTarget,
    responses(
        (status = 201, body = MadeTarget, headers(("Location" = String))),
        (status = 404),
        (status = 409, description = "The name is taken"),
    ))]
pub(super) async fn create(
    State(context): State<Context>,
    Body(body): Body<CreateTarget>,
) -> Answer<Made<MadeTarget>> {
    let CreateTarget { name, luns, group, at, chap, mutual, allow } = body;
    let units = match (group, luns) {
        (Some(group), luns) if luns.is_empty() => {
            UnitsSpec::Group(group, at.as_deref().map(group_moment).transpose()?)
        }
        (None, luns) if at.is_none() => UnitsSpec::Each(specs(&luns)?),
        _ => {
            let text = "give luns, or a group and its moment";
            return Err(Refusal::new(ProblemKind::Invalid, text));
        }
    };
    let access = ChangeTarget { chap: chap.map(Some), mutual: mutual.map(Some), allow };
    let access = access_change(access)?;
    context
        .engine(move |context| {
            let target = context.pool.create_target(&name, &units, &access)?;
            let place = format!("{API_PREFIX}/made-targets/{name}");
            Ok(made(place, context.addresses.made_target(target)))
        })
        .await
}

fn specs(luns: &[NewLun]) -> Answer<Vec<UnitSpec>> {
    let spec = |lun: &NewLun| {
        let at = lun.at.as_deref().map(moment).transpose()?;
        Ok(UnitSpec { number: lun.lun, volume: lun.volume.clone(), moment: at })
    };
    luns.iter().map(spec).collect()
}

/// Refuses what would take units from sessions, unless it is forced.
fn refuse_sessions(context: &Context, name: &str, force: bool) -> Answer<()> {
    let sessions = context.addresses.sessions_on(name);
    if force || sessions.is_empty() {
        return Ok(());
    }
    let who: Vec<&str> = sessions.iter().map(|session| &*session.initiator).collect();
    let text = format!("initiators are logged in to {name}: {}", who.join(", "));
    Err(Refusal::new(ProblemKind::Busy, text)
        .with_hint("log them out, or force it (--force, ?force=true)"))
}

/// Changes the units of a made target, or who may log in. Units appear in sessions that are there;
/// one that is taken out is for good, and refused while there are sessions, unless it is forced.
#[utoipa::path(patch, path = "/made-targets/{target}", tag = "targets",
    request_body = ChangeMadeTarget,
    responses(
        (status = 200, body = MadeTarget),
        (status = 409, description = "Initiators are logged in"),
    ))]
pub(super) async fn change(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<ChangeMadeTarget>,
) -> Answer<Json<MadeTarget>> {
    if body == (ChangeMadeTarget { force: body.force, ..ChangeMadeTarget::default() }) {
        // `force` may be there, which is well formed.
        let text = "the body names no setting: nothing was changed";
        return Err(Refusal::new(ProblemKind::Invalid, text));
    }
    let ChangeMadeTarget { chap, mutual, allow, add, remove, force } = body;
    let access = access_change(ChangeTarget { chap, mutual, allow })?;
    let change = TargetChange { access, add: specs(&add)?, remove };
    let changed = move |context: &Context| {
        context.pool.target(&name)?;
        if !change.remove.is_empty() {
            refuse_sessions(context, &name, force)?;
        }
        let target = context.pool.change_target(&name, &change)?;
        context.addresses.tell_of_targets();
        Ok(context.addresses.made_target(target))
    };
    context.json(changed).await
}

/// Deletes a made target; its volumes stay. Refused while there are sessions, unless it is forced:
/// then they are asked to log out.
#[utoipa::path(delete, path = "/made-targets/{target}", tag = "targets",
    params(ForceQuery),
    responses(
        (status = 204),
        (status = 409, description = "Initiators are logged in"),
    ))]
pub(super) async fn delete(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<ForceQuery>,
) -> Answer<StatusCode> {
    let delete = move |context: &Context| {
        context.pool.target(&name)?;
        refuse_sessions(context, &name, query.force)?;
        context.pool.delete_target(&name)?;
        context.addresses.tell_of_targets();
        Ok(())
    };
    context.delete(delete).await
}
