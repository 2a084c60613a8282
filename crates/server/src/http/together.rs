//! Events of all volumes of a group at one instant: reverts, clones, and moments resolved.

use std::sync::Arc;

use api::{CloneGroup, GroupReverted, MemberResolved, MemberReverted, ResolveQuery, Revert};
use axum::Json;
use axum::extract::State;
use volume::{GroupMoment, Volume};

use super::answer::{Answer, Refusal};
use super::ask::{Asked, Body, Named};
use super::context::{Context, moment};
use super::convert;
use super::groups::location;
use super::volumes::{Made, made};
use crate::attach::Part;

/// Reads a moment of a group: of all its volumes, or `VOLUME=MOMENT,...`.
pub(super) fn group_moment(text: &str) -> Answer<GroupMoment> {
    if !text.contains('=') {
        return moment(text).map(GroupMoment::Of);
    }
    let one = |part: &str| {
        let (volume, at) = part.split_once('=').ok_or_else(|| {
            let hint = "VOLUME=MOMENT,VOLUME=MOMENT,..., of each volume of the group";
            Refusal::malformed(format!("{part:?} names no moment of a volume"), Some(hint.into()))
        })?;
        Ok((volume.to_owned(), moment(at)?))
    };
    text.split(',').map(one).collect::<Answer<_>>().map(GroupMoment::Each)
}

/// Resolves a moment of a group: what it comes to, of each of its volumes.
#[utoipa::path(get, path = "/groups/{group}/resolve", tag = "groups",
    params(ResolveQuery),
    responses(
        (status = 200, body = Vec<MemberResolved>),
        (status = 410, description = "The moment lies outside the window"),
        (status = 422),
    ))]
pub(super) async fn resolve(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<ResolveQuery>,
) -> Answer<Json<Vec<MemberResolved>>> {
    let at = group_moment(&query.at)?;
    context
        .json(move |context| {
            let all = context.pool.resolve_group(&name, &at)?.into_iter();
            let told = |(volume, resolved)| MemberResolved {
                volume,
                resolved: convert::resolved(resolved),
            };
            Ok(all.map(told).collect())
        })
        .await
}

/// Makes a past moment the present of all volumes of a group, or of none of them.
#[utoipa::path(post, path = "/groups/{group}/revert", tag = "groups", request_body = Revert,
    responses(
        (status = 200, body = GroupReverted),
        (status = 409, description = "Clients are attached"),
        (status = 410, description = "The moment lies outside the window"),
    ))]
pub(super) async fn revert(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<Revert>,
) -> Answer<Json<GroupReverted>> {
    let to = group_moment(&body.to)?;
    context
        .json(move |context| {
            // An impossible request is refused before anybody is disconnected.
            let would = context.pool.revert_group(&name, &to, None)?;
            let reports = match body.dry_run {
                true => would,
                false => {
                    let volumes = context.pool.group_volumes(&name)?;
                    volumes.iter().try_for_each(|volume| context.refuse_follower(volume))?;
                    let close =
                        |volume: &Arc<Volume>| context.close(volume, Part::Present, body.force);
                    let _closed = volumes.iter().map(close).collect::<Result<Vec<_>, _>>()?;
                    let revert = || context.pool.revert_group(&name, &to, Some(&volumes));
                    context.shares.revert(&volumes, revert)?
                }
            };
            let undo = reports.iter().map(|(volume, report)| {
                let from = report.from.seq;
                format!("{volume}=seq:{from}")
            });
            let undo = undo.collect::<Vec<String>>().join(",");
            let told = |(volume, report): (String, volume::RevertReport)| MemberReverted {
                reverted: convert::reverted(&volume, report, body.dry_run),
                volume,
            };
            let volumes: Vec<MemberReverted> = reports.into_iter().map(told).collect();
            let would = volumes.iter().flat_map(|one| one.reverted.would.clone()).collect();
            Ok(GroupReverted { group: name, volumes, dry_run: body.dry_run, would, undo })
        })
        .await
}

/// Makes a clone of each volume of a group, `NAME-VOLUME`, and a group `NAME` of these: of all
/// volumes, or of none.
#[utoipa::path(post, path = "/groups/{group}/clones", tag = "groups", request_body = CloneGroup,
    responses(
        (status = 201, body = api::Group, headers(("Location" = String))),
        (status = 409, description = "A name is taken"),
        (status = 410, description = "The moment lies outside the window"),
    ))]
pub(super) async fn clone(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<CloneGroup>,
) -> Answer<Made<api::Group>> {
    let at = group_moment(body.at.as_deref().unwrap_or("latest"))?;
    context
        .engine(move |context| {
            for member in context.pool.group_volumes(&name)? {
                context.check_new_name(&format!("{}-{}", body.name, member.name()))?;
            }
            let group = context.pool.clone_group(&name, &at, &body.name)?;
            Ok(made(location(&group.name), context.describe_group(group)))
        })
        .await
}
