//! Volumes: list, create, show, change.

use ::model::{Constraints, DIRTY_SHARE_DEFAULT};
use api::{API_PREFIX, ChangeVolume, CreateVolume, ForceQuery, ProblemKind, SizeInput};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{HeaderName, LOCATION};
use units::{Granularity, MapExtent, Role, Span};
use volume::{Architecture, CacheChange, VolumeChange, VolumeSpec};

use super::answer::{Answer, Refusal};
use super::ask::{Asked, Body, Named, some_change};
use super::context::Context;
use super::{convert, model};
use crate::attach::Part;

/// The architecture that is chosen from what was written.
const AUTO: &str = "auto";

/// The answer of a handler that made something.
pub(super) type Made<T> = (StatusCode, [(HeaderName, String); 1], Json<T>);

pub(super) fn made<T>(location: String, body: T) -> Made<T> {
    (StatusCode::CREATED, [(LOCATION, location)], Json(body))
}

pub(super) fn location(volume: &str) -> String {
    format!("{API_PREFIX}/volumes/{volume}")
}

/// Lists all volumes by name, but for shares.
#[utoipa::path(get, path = "/volumes", tag = "volumes",
    responses((status = 200, body = Vec<api::Volume>)))]
pub(super) async fn list(State(context): State<Context>) -> Answer<Json<Vec<api::Volume>>> {
    context.json(all).await
}

fn all(context: &Context) -> Answer<Vec<api::Volume>> {
    let volumes = context.volumes();
    let disks = volumes.iter().filter(|volume| volume.share().is_none());
    still_there(disks.map(|volume| context.describe(volume)))
}

/// All but those that were deleted since they were listed.
pub(super) fn still_there<T>(described: impl Iterator<Item = Answer<T>>) -> Answer<Vec<T>> {
    let is_gone = |refusal: &Refusal| refusal.0.problem_kind() == Some(ProblemKind::NotFound);
    described.filter(|one| !one.as_ref().is_err_and(is_gone)).collect()
}

/// Creates a volume.
#[utoipa::path(post, path = "/volumes", tag = "volumes", request_body = CreateVolume,
    responses(
        (status = 201, body = api::Volume, headers(("Location" = String))),
        (status = 404, description = "There is no volume that is named by `like`"),
        (status = 409, description = "The name is taken"),
        (status = 507, description = "The pool is full"),
    ))]
pub(super) async fn create(
    State(context): State<Context>,
    Body(body): Body<CreateVolume>,
) -> Answer<Made<api::Volume>> {
    let volume = context
        .engine(move |context| {
            context.check_new_name(&body.name)?;
            let spec = spec(context, body)?;
            let mut described = context.describe(&*context.pool.create_volume(&spec)?)?;
            described.warning = context.fill.over_promised();
            Ok(described)
        })
        .await?;
    Ok(made(location(&volume.name), volume))
}

fn architecture_of(context: &Context, body: &CreateVolume) -> Answer<Architecture> {
    let name = body.architecture.as_deref().unwrap_or(Architecture::Logging.name());
    if name == AUTO {
        return automatic(context, body);
    }
    if body.like.is_some() {
        let text = "like goes with the architecture auto only";
        return Err(Refusal::new(ProblemKind::Invalid, text));
    }
    architecture(name)
}

pub(super) fn architecture(name: &str) -> Answer<Architecture> {
    let known = Architecture::ALL.into_iter().find(|known| known.name() == name);
    known.ok_or_else(|| {
        let there = Architecture::ALL.map(Architecture::name).join(", ");
        let text = format!("`{name}` is not an architecture of this release");
        Refusal::new(ProblemKind::Invalid, text).with_hint(format!("this release has {there}"))
    })
}

/// A new volume has no writes to go by: those of another one must be named.
fn automatic(context: &Context, body: &CreateVolume) -> Answer<Architecture> {
    let Some(like) = &body.like else {
        let text = "a new volume has no writes from which auto could choose";
        let there = Architecture::ALL.map(Architecture::name).join(", ");
        return Err(Refusal::new(ProblemKind::Invalid, text).with_hint(format!(
            "name a volume that is used as this one will be (--like VOLUME), or a trace \
             (--trace FILE); or take one of {there}, and ask for advice later (hindsight model \
             advise)"
        )));
    };
    let decided = Constraints {
        architectures: &[],
        volume_bytes: Some(body.size.0.0),
        granularity: Some(body.granularity.unwrap_or(Granularity::EveryWrite)),
        window: Some(body.window.map_or(Span(VolumeSpec::WINDOW_NS), |window| window.0)),
        history_limit_bytes: body.history_limit.map(|limit| limit.0.0),
        cache_bytes: Some(body.cache.map_or(0, |cache| cache.0.0)),
        dirty_share: body
            .cache_dirty_percent
            .map_or(DIRTY_SHARE_DEFAULT, |percent| f64::from(percent) / 100.0),
        memory_bytes: context.pool.memory_bytes(),
    };
    model::choose(context, like, decided)
}

/// The architecture that the volume's own writes speak for, with the settings that it has or gets.
fn automatic_again(context: &Context, name: &str, body: &ChangeVolume) -> Answer<Architecture> {
    let info = context.volume(name)?.info()?;
    let percent = body.cache_dirty_percent.or(info.cache.map(|c| c.setting.dirty_percent));
    let decided = Constraints {
        architectures: &[],
        volume_bytes: Some(body.size.map_or(info.size_bytes, |size| size.0.0)),
        granularity: Some(body.granularity.unwrap_or(convert::granularity(info.granularity))),
        window: Some(body.window.map_or(Span(info.window_ns), |window| window.0)),
        history_limit_bytes: info.history_limit_bytes,
        cache_bytes: Some(match body.cache {
            Some(cache) => cache.0.0,
            None => info.cache.map_or(0, |cache| cache.setting.bytes),
        }),
        dirty_share: percent.map_or(DIRTY_SHARE_DEFAULT, |percent| f64::from(percent) / 100.0),
        memory_bytes: context.pool.memory_bytes(),
    };
    model::choose(context, name, decided)
}

/// A map extent that was asked for.
pub(super) fn map_extent(asked: Option<SizeInput>) -> Answer<Option<MapExtent>> {
    let extent = asked.map(|size| MapExtent::try_from(size.0.0)).transpose();
    extent.map_err(|e| {
        Refusal::new(ProblemKind::Invalid, e.message).with_hint(e.hint.unwrap_or_default())
    })
}

/// A copy unit that was asked for: it has the sizes that extents have.
fn copy_unit(asked: Option<SizeInput>) -> Answer<Option<MapExtent>> {
    let unit = asked.map(|size| {
        MapExtent::try_from(size.0.0).map_err(|e| {
            let text = format!("a copy unit cannot be {}", size.0);
            Refusal::new(ProblemKind::Invalid, text).with_hint(e.hint.unwrap_or_default())
        })
    });
    unit.transpose()
}

fn spec(context: &Context, body: CreateVolume) -> Answer<VolumeSpec> {
    let architecture = architecture_of(context, &body)?;
    Ok(VolumeSpec {
        architecture,
        granularity: body
            .granularity
            .map_or(volume::Granularity::EveryWrite, convert::granularity_back),
        window_ns: body.window.map_or(VolumeSpec::WINDOW_NS, |w| w.0.0),
        history_limit_bytes: body.history_limit.map(|l| l.0.0),
        cache: CacheChange {
            bytes: body.cache.map(|c| c.0.0),
            dirty_percent: body.cache_dirty_percent,
        },
        extent: map_extent(body.extent)?.unwrap_or_default(),
        copy_unit: copy_unit(body.copy_unit)?.unwrap_or_default(),
        encoding: convert::encoding_change(body.encoding.as_deref(), body.encode_after)?,
        dedup: body.dedup.unwrap_or(false),
        ..VolumeSpec::new(&body.name, body.size.0.0)
    })
}

/// Shows a volume.
#[utoipa::path(get, path = "/volumes/{volume}", tag = "volumes",
    responses((status = 200, body = api::Volume)))]
pub(super) async fn show(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Answer<Json<api::Volume>> {
    context
        .json(move |context| {
            let volume = context.volume(&name)?;
            // Copies that cannot be counted now are left out; all else is told.
            let copies = volume.copies().ok().flatten().map(convert::copies);
            Ok(api::Volume { copies, ..context.describe(&volume)? })
        })
        .await
}

/// Shows what a volume's space is for: live, history by age, what holds it, growth.
#[utoipa::path(get, path = "/volumes/{volume}/space", tag = "volumes",
    responses((status = 200, body = api::VolumeSpace)))]
pub(super) async fn space(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Answer<Json<api::VolumeSpace>> {
    context
        .json(move |context| {
            let volume = context.volume(&name)?;
            let growth = (volume.growth(), volume.history_growth());
            let mut space = convert::space(volume.space_told()?, growth, volume.limit_lasts_ns()?);
            let names = space.holders.iter_mut().flat_map(|holder| &mut holder.names);
            for name in names {
                if name.strip_prefix("clone ").is_some_and(|clone| !context.sees(clone)) {
                    "a clone".clone_into(name);
                }
            }
            Ok(space)
        })
        .await
}

/// Changes the settings or the size of a volume.
#[utoipa::path(patch, path = "/volumes/{volume}", tag = "volumes", request_body = ChangeVolume,
    params(ForceQuery),
    responses(
        (status = 200, body = api::Volume),
        (status = 409, description = "Clients are attached and it would shrink"),
    ))]
pub(super) async fn change(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<ForceQuery>,
    Body(body): Body<ChangeVolume>,
) -> Answer<Json<api::Volume>> {
    some_change(&body)?;
    context.json(move |context| apply(context, &name, &body, query.force)).await
}

/// An operator may make a volume larger; all else is an admin's, and not everything is taken from
/// elsewhere.
fn check_rights(context: &Context, body: &ChangeVolume, is_smaller: bool) -> Answer<()> {
    let larger = ChangeVolume { size: body.size, ..ChangeVolume::default() };
    if *body != larger || is_smaller {
        context.must_have(Role::Admin)?;
    }
    let keeps_less = body.window.is_some()
        || body.history_limit.is_some()
        || body.grace.is_some()
        || body.granularity.is_some();
    if keeps_less || is_smaller { context.must_be_near() } else { Ok(()) }
}

fn apply(context: &Context, name: &str, body: &ChangeVolume, force: bool) -> Answer<api::Volume> {
    let volume = context.volume(name)?;
    let architecture = match body.architecture.as_deref() {
        Some(AUTO) => Some(automatic_again(context, name, body)?),
        other => other.map(architecture).transpose()?,
    };
    let is_smaller = body.size.is_some_and(|size| size.0.0 < volume.size_bytes());
    check_rights(context, body, is_smaller)?;
    let change = VolumeChange {
        granularity: body.granularity.map(convert::granularity_back),
        window_ns: body.window.map(|w| w.0.0),
        history_limit_bytes: body.history_limit.map(|limit| limit.map(|l| l.0.0)),
        grace_ns: body.grace.map(|grace| grace.0.0),
        cache: CacheChange {
            bytes: body.cache.map(|c| c.0.0),
            dirty_percent: body.cache_dirty_percent,
        },
        architecture,
        encoding: convert::encoding_change(body.encoding.as_deref(), body.encode_after)?,
        dedup: body.dedup,
        copy_unit: copy_unit(body.copy_unit)?,
        size_bytes: body.size.map(|size| size.0.0),
        // Another resize may come between, and clients are let in.
        never_smaller: body.size.is_some() && !is_smaller,
        hook: body.hook.clone(),
    };
    context.check_hook(change.hook.as_ref().and_then(Option::as_deref))?;
    // An impossible change is refused before anybody is disconnected.
    volume.check_change(&change)?;
    let _closed = is_smaller.then(|| context.close(&volume, Part::Present, force)).transpose()?;
    let size_before = volume.size_bytes();
    if change != VolumeChange::default() {
        let before = volume.architecture();
        volume.change(&change)?;
        if let Some(now) = architecture.filter(|&now| now != before) {
            let (from, to) = (before.name(), now.name());
            tracing::info!(volume = name, from, to, "the architecture was changed");
        }
    }
    let mut described = context.describe(&volume)?;
    if described.size > size_before {
        described.warning = context.fill.over_promised();
    }
    Ok(described)
}
