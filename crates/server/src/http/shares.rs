//! Shares: list, create, show, change, delete, and who is allowed. All else that is asked of them
//! is asked of them as volumes.

use std::sync::Arc;

use ::volume::{
    Allowed, Metadata, PastAccess, ShareChange, ShareSetting, Squash, Volume, VolumeChange,
    VolumeSpec,
};
use api::{
    API_PREFIX, Allow, ChangeShare, CreateShare, DeleteQuery, DeletedVolume, DenyQuery,
    ProblemKind, Share,
};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use units::Network;

use super::answer::{Answer, Refusal};
use super::ask::{Asked, Body, Named, some_change};
use super::context::Context;
use super::volumes::{Made, architecture, made, still_there};
use super::{convert, trash};

/// Lists all shares by name.
#[utoipa::path(get, path = "/shares", tag = "shares",
    responses((status = 200, body = Vec<Share>)))]
pub(super) async fn list(State(context): State<Context>) -> Answer<Json<Vec<Share>>> {
    context.json(all).await
}

fn all(context: &Context) -> Answer<Vec<Share>> {
    let volumes = context.volumes();
    let shares = volumes.iter().filter_map(|volume| Some((volume, volume.share()?)));
    still_there(shares.map(|(volume, setting)| describe(context, volume, &setting)))
}

/// Creates a share: an empty file tree.
#[utoipa::path(post, path = "/shares", tag = "shares", request_body = CreateShare,
    responses(
        (status = 201, body = Share, headers(("Location" = String))),
        (status = 409, description = "The name is taken"),
        (status = 507, description = "The pool is full"),
    ))]
pub(super) async fn create(
    State(context): State<Context>,
    Body(body): Body<CreateShare>,
) -> Answer<Made<Share>> {
    let share = context
        .engine(move |context| {
            context.check_new_name(&body.name)?;
            let volume = context.pool.create_volume(&spec(&body)?)?;
            if let Err(refusal) = context.shares.make(&volume) {
                // It has nothing yet.
                context.pool.delete_volume(volume.name())?;
                return Err(refusal.into());
            }
            show_volume(context, &volume)
        })
        .await?;
    Ok(made(format!("{API_PREFIX}/shares/{}", share.name), share))
}

fn spec(body: &CreateShare) -> Answer<VolumeSpec> {
    let like = VolumeSpec::share(&body.name);
    let metadata = body.metadata.as_deref().map(metadata).transpose()?.unwrap_or_default();
    Ok(VolumeSpec {
        architecture: match &body.architecture {
            Some(name) => architecture(name)?,
            None => like.architecture,
        },
        granularity: body.granularity.map_or(like.granularity, convert::granularity_back),
        window_ns: body.window.map_or(like.window_ns, |window| window.0.0),
        history_limit_bytes: body.history_limit.map(|limit| limit.0.0),
        encoding: convert::encoding_change(body.encoding.as_deref(), body.encode_after)?,
        dedup: body.dedup.unwrap_or(like.dedup),
        share: Some(ShareSetting {
            metadata,
            // That is always.
            reads_since_ns: body.log_reads.unwrap_or_default().then_some(0),
            ..ShareSetting::default()
        }),
        ..like
    })
}

/// Shows a share, and how to mount it.
#[utoipa::path(get, path = "/shares/{share}", tag = "shares",
    responses((status = 200, body = Share)))]
pub(super) async fn show(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Answer<Json<Share>> {
    let show = move |context: &Context| {
        let (volume, setting) = share(context, &name)?;
        describe(context, &volume, &setting)
    };
    context.json(show).await
}

/// Changes the settings of a share.
#[utoipa::path(patch, path = "/shares/{share}", tag = "shares", request_body = ChangeShare,
    responses((status = 200, body = Share)))]
pub(super) async fn change(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<ChangeShare>,
) -> Answer<Json<Share>> {
    some_change(&body)?;
    context.json(move |context| apply(context, &name, &body)).await
}

fn apply(context: &Context, name: &str, body: &ChangeShare) -> Answer<Share> {
    let (volume, _) = share(context, name)?;
    let keeps_less = body.window.is_some()
        || body.history_limit.is_some()
        || body.grace.is_some()
        || body.granularity.is_some();
    if keeps_less {
        context.must_be_near()?;
    }
    let change = VolumeChange {
        granularity: body.granularity.map(convert::granularity_back),
        window_ns: body.window.map(|window| window.0.0),
        history_limit_bytes: body.history_limit.map(|limit| limit.map(|l| l.0.0)),
        grace_ns: body.grace.map(|grace| grace.0.0),
        architecture: body.architecture.as_deref().map(architecture).transpose()?,
        encoding: convert::encoding_change(body.encoding.as_deref(), body.encode_after)?,
        dedup: body.dedup,
        hook: body.hook.clone(),
        ..VolumeChange::default()
    };
    context.check_hook(change.hook.as_ref().and_then(Option::as_deref))?;
    let metadata = body.metadata.as_deref().map(metadata).transpose()?;
    if change != VolumeChange::default() {
        volume.change(&change)?;
    }
    if body.log_reads == Some(true) {
        // Its clients read elsewhere.
        context.refuse_follower(&volume)?;
    }
    if metadata.is_some() || body.log_reads.is_some() {
        let change = ShareChange { metadata, log_reads: body.log_reads, ..ShareChange::default() };
        context.pool.change_share(volume.name(), &change)?;
    }
    show_volume(context, &volume)
}

/// Deletes a share with its history: into the trash, or for good. Clones of it live on.
#[utoipa::path(delete, path = "/shares/{share}", tag = "shares",
    params(DeleteQuery),
    responses(
        (status = 200, description = "A dry run: what would be deleted", body = DeletedVolume),
        (status = 204, description = "It is deleted"),
        (status = 409, description = "It has versions or pinned marks, or clients are attached"),
        (status = 422),
    ))]
pub(super) async fn delete(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<DeleteQuery>,
) -> Answer<Response> {
    let asked = trash::deletion(&query)?;
    let remove = move |context: &Context| {
        let (volume, _) = share(context, &name)?;
        trash::remove(context, &volume, asked)
    };
    context.engine(remove).await.map(trash::answer)
}

/// Allows a network, or an address, to use a share: from the next request on, whether or not NFS
/// is served now.
#[utoipa::path(post, path = "/shares/{share}/allowed", tag = "shares", request_body = Allow,
    responses((status = 200, body = Share)))]
pub(super) async fn allow(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<Allow>,
) -> Answer<Json<Share>> {
    let allow = move |context: &Context| {
        let change = ShareChange { allow: vec![allowed(&body)?], ..ShareChange::default() };
        changed(context, &name, &change)
    };
    context.json(allow).await
}

/// Takes the entry of a network away: those in it get what other entries say, or nothing; loopback
/// may do all again.
#[utoipa::path(delete, path = "/shares/{share}/allowed", tag = "shares",
    params(DenyQuery),
    responses(
        (status = 204, description = "It is allowed no more"),
        (status = 404, description = "There is no such share, or no such entry"),
    ))]
pub(super) async fn deny(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<DenyQuery>,
) -> Answer<StatusCode> {
    let deny = move |context: &Context| {
        let deny = vec![network(&query.network)?];
        changed(context, &name, &ShareChange { deny, ..ShareChange::default() }).map(drop)
    };
    context.delete(deny).await
}

fn changed(context: &Context, name: &str, change: &ShareChange) -> Answer<Share> {
    let (volume, _) = share(context, name)?;
    let setting = context.pool.change_share(volume.name(), change)?;
    describe(context, &volume, &setting)
}

fn allowed(body: &Allow) -> Answer<Allowed> {
    let like = Allowed::new(network(&body.network)?);
    let squash = |text| named("squash", &Squash::ALL, Squash::name, text);
    let past = |text| named("past", &PastAccess::ALL, PastAccess::name, text);
    Ok(Allowed {
        read_only: body.read_only,
        squash: body.squash.as_deref().map(squash).transpose()?.unwrap_or(like.squash),
        anonymous_uid: body.anonymous_uid.unwrap_or(like.anonymous_uid),
        anonymous_gid: body.anonymous_gid.unwrap_or(like.anonymous_gid),
        any_port: body.any_port,
        past: body.past.as_deref().map(past).transpose()?.unwrap_or(like.past),
        ..like
    })
}

fn network(text: &str) -> Answer<Network> {
    Ok(text.parse()?)
}

fn metadata(text: &str) -> Answer<Metadata> {
    named("metadata", &Metadata::ALL, Metadata::name, text)
}

/// The value of a setting that has a name.
fn named<T: Copy>(setting: &str, all: &[T], name: fn(T) -> &'static str, text: &str) -> Answer<T> {
    all.iter().copied().find(|&one| name(one) == text).ok_or_else(|| {
        let there: Vec<&str> = all.iter().map(|&one| name(one)).collect();
        let text = format!("`{text:.64}` is no value of {setting}");
        Refusal::new(ProblemKind::Invalid, text).with_hint(format!("it has {}", there.join(", ")))
    })
}

/// The share of a name.
pub(super) fn share(context: &Context, name: &str) -> Answer<(Arc<Volume>, Arc<ShareSetting>)> {
    let found = context.volume(name);
    let volume = found.map_err(|_| no_share(name, "`hindsight share list` names them".into()))?;
    let setting = volume.share();
    let setting = setting
        .ok_or_else(|| no_share(name, format!("it is a volume: `hindsight volume show {name}`")))?;
    Ok((volume, setting))
}

pub(super) fn no_share(name: &str, hint: String) -> Refusal {
    Refusal::new(ProblemKind::NotFound, format!("there is no share {name}")).with_hint(hint)
}

fn show_volume(context: &Context, volume: &Volume) -> Answer<Share> {
    let gone = || no_share(volume.name(), "it was deleted meanwhile".into());
    describe(context, volume, &*volume.share().ok_or_else(gone)?)
}

fn describe(context: &Context, volume: &Volume, setting: &ShareSetting) -> Answer<Share> {
    let relay = context.intercepts.of(volume.id());
    let volume = context.describe(volume)?;
    let mount = context.addresses.mount(&volume.name);
    Ok(convert::share(volume, setting, mount, relay))
}
