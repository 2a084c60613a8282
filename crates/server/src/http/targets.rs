//! iSCSI targets.

use api::{ChangeTarget, ChapCredential, IscsiAccess, IscsiTarget, ProblemKind};
use axum::Json;
use axum::extract::State;
use volume::{AccessChange, Credential, Secret};
use wire::iscsi::names;

use super::addresses::iscsi_access;
use super::answer::{Answer, Refusal};
use super::ask::{Body, Named, some_change};
use super::context::Context;

/// Lists the iSCSI targets that volumes are, by volume; none when iSCSI is off.
#[utoipa::path(
    get, path = "/targets", tag = "targets",
    responses((status = 200, description = "The targets", body = [IscsiTarget]))
)]
pub(super) async fn list(State(context): State<Context>) -> Answer<Json<Vec<IscsiTarget>>> {
    let targets = |context: &Context| {
        let volumes = context.volumes();
        let disks = volumes.iter().filter(|volume| volume.share().is_none());
        Ok(disks.filter_map(|volume| context.addresses.target(volume)).collect())
    };
    context.json(targets).await
}

/// Changes who may log in to a volume and its moments over iSCSI, from the next login on, whether
/// or not iSCSI is served now. Secrets are kept in the pool and told by nobody.
#[utoipa::path(patch, path = "/targets/{volume}", tag = "targets", request_body = ChangeTarget,
    responses((status = 200, body = IscsiAccess)))]
pub(super) async fn change(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<ChangeTarget>,
) -> Answer<Json<IscsiAccess>> {
    some_change(&body)?;
    let change = move |context: &Context| {
        let access = context.pool.set_access(&name, &access_change(body)?)?;
        Ok(iscsi_access(access))
    };
    context.json(change).await
}

pub(super) fn access_change(asked: ChangeTarget) -> Answer<AccessChange> {
    Ok(AccessChange {
        chap: asked.chap.map(credential).transpose()?,
        mutual: asked.mutual.map(credential).transpose()?,
        allow: asked.allow.map(allowed).transpose()?,
    })
}

fn credential(given: Option<ChapCredential>) -> Answer<Option<Credential>> {
    let Some(ChapCredential { user, secret }) = given else { return Ok(None) };
    Ok(Some(Credential { user, secret: Secret::new(secret)? }))
}

/// Names of initiators as logins compare them.
fn allowed(names: Vec<String>) -> Answer<Vec<String>> {
    let folded = |name: String| {
        names::fold_initiator(&name)
            .map_err(|error| Refusal::new(ProblemKind::Malformed, format!("`{name:.64}`: {error}")))
    };
    names.into_iter().map(folded).collect()
}
