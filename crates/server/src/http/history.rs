//! The past of a volume: resolve, history, revert, clones, diff.

use std::str::FromStr;
use std::sync::Arc;

use api::{CreateClone, DiffQuery, History, HistoryQuery, ProblemKind, ResolveQuery, Revert};
use axum::Json;
use axum::extract::State;
use units::{Moment, Span, WallTime};
use volume::{CloneSpec, Volume};

use super::answer::{Answer, Listed, Refusal};
use super::ask::{Asked, Body, Named};
use super::context::{Context, moment, page_entries};
use super::convert;
use super::volumes::{Made, location, made, map_extent};
use crate::attach::Part;
use crate::scratch;

/// Intervals in a page of history: unless asked otherwise, and at most.
const BUCKETS_DEFAULT: usize = 1000;
const BUCKETS_MAX: usize = 10_000;
/// Length of an interval unless asked otherwise, in nanoseconds.
const STEP_NS_DEFAULT: u64 = 1_000_000_000;
/// Ranges in a page of a diff.
pub(super) const RANGES_MAX: usize = 65_536;

/// Says what a moment comes to.
#[utoipa::path(get, path = "/volumes/{volume}/resolve", tag = "history",
    params(ResolveQuery),
    responses(
        (status = 200, body = api::Resolved),
        (status = 410, description = "The moment lies outside the window"),
    ))]
pub(super) async fn resolve(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<ResolveQuery>,
) -> Answer<Json<api::Resolved>> {
    let at = moment(&query.at)?;
    context.json(move |context| Ok(convert::resolved(context.volume(&name)?.resolve(&at)?))).await
}

/// Says what was written when: totals per interval, and events.
#[utoipa::path(get, path = "/volumes/{volume}/history", tag = "history",
    params(HistoryQuery),
    responses(
        (status = 200, body = History),
        (status = 410, description = "The moment lies outside the window"),
        (status = 422),
    ))]
pub(super) async fn history(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<HistoryQuery>,
) -> Answer<Json<History>> {
    let limit = match query.limit {
        None => BUCKETS_DEFAULT,
        limit => page_entries(limit, BUCKETS_MAX)?,
    };
    let step_ns = query.step.as_deref().map_or(Ok(STEP_NS_DEFAULT), step)?;
    let until = query.until.as_deref().map(moment).transpose()?;
    let continued = query.next.as_deref().map(instant).transpose()?;
    let since = match continued {
        // A page begins after its edge, and the interval at `time` has not been sent.
        Some(time) => Some(Moment::At(WallTime::from_nanos(time.as_nanos().saturating_sub(1)))),
        None => query.since.as_deref().map(moment).transpose()?,
    };
    context
        .json(move |context| {
            let volume = context.volume(&name)?;
            let page = volume.history(since.as_ref(), until.as_ref(), step_ns, limit)?;
            let mut page = page_after(page, continued);
            hide_origin(context, &volume, &mut page.events)?;
            Ok(page)
        })
        .await
}

/// A page as it is sent; one that goes on at `continued` has neither events nor older intervals.
fn page_after(page: volume::HistoryPage, continued: Option<WallTime>) -> History {
    let wanted = |time: WallTime| continued.is_none_or(|from| time >= from);
    let buckets = page.buckets.into_iter().filter(|b| wanted(b.time)).map(convert::bucket);
    let events = page.events.into_iter().filter(|_| continued.is_none()).map(convert::event);
    History {
        buckets: buckets.collect(),
        events: events.collect(),
        next: page.next.map(|time| time.to_string()),
    }
}

/// Takes the name of an origin that the caller does not see out of events.
pub(super) fn hide_origin(
    context: &Context,
    volume: &Volume,
    events: &mut [api::Event],
) -> Answer<()> {
    if context.sees_everything() {
        return Ok(());
    }
    let origin = volume.info()?.cloned_from;
    if origin.is_some_and(|(name, _)| !context.sees(&name)) {
        for event in events.iter_mut().filter(|event| event.kind == "cloned") {
            event.detail.clear();
        }
    }
    Ok(())
}

fn step(text: &str) -> Answer<u64> {
    match Span::from_str(text) {
        Ok(Span(0)) => Err(Refusal::malformed("a step of no length", None)),
        Ok(span) => Ok(span.0),
        Err(e) => Err(Refusal::malformed(e.message, e.hint)),
    }
}

fn instant(text: &str) -> Answer<WallTime> {
    WallTime::from_str(text).map_err(|e| {
        Refusal::malformed(format!("next: {e}"), Some("give the next of the page before".into()))
    })
}

/// Makes a past moment the present. Everything before stays in the history, so it can be undone.
#[utoipa::path(post, path = "/volumes/{volume}/revert", tag = "history", request_body = Revert,
    responses(
        (status = 200, body = api::Reverted),
        (status = 409, description = "Clients are attached"),
        (status = 410, description = "The moment lies outside the window"),
    ))]
pub(super) async fn revert(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<Revert>,
) -> Answer<Json<api::Reverted>> {
    let to = moment(&body.to)?;
    context
        .json(move |context| {
            let volume = context.volume(&name)?;
            if !body.dry_run {
                context.refuse_follower(&volume)?;
            }
            let closed = match body.dry_run {
                true => None,
                false => {
                    // An impossible request is refused before anybody is disconnected.
                    if body.force {
                        volume.resolve(&to)?;
                    }
                    Some(context.close(&volume, Part::Present, body.force)?)
                }
            };
            let revert = || volume.revert(&to, body.dry_run);
            let reverted = match body.dry_run {
                true => revert(),
                false => context.shares.revert(std::slice::from_ref(&volume), revert),
            }?;
            drop(closed);
            Ok(convert::reverted(&name, reverted, body.dry_run))
        })
        .await
}

/// Makes a writable volume that starts at a moment of this one.
#[utoipa::path(post, path = "/volumes/{volume}/clones", tag = "history",
    request_body = CreateClone,
    responses(
        (status = 201, body = api::Volume, headers(("Location" = String))),
        (status = 409, description = "The name is taken"),
        (status = 410, description = "The moment lies outside the window"),
    ))]
pub(super) async fn clone(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<CreateClone>,
) -> Answer<Made<api::Volume>> {
    let at = body.at.as_deref().map_or(Ok(Moment::Latest), moment)?;
    let extent = map_extent(body.extent)?;
    context
        .engine(move |context| {
            if body.scratch.is_none() {
                context.check_new_name(&body.name)?;
            }
            let pool = &context.pool;
            let clone = match (body.full, body.scratch) {
                (true, Some(_)) => {
                    let text = "a scratch clone is not copied in full";
                    return Err(Refusal::new(ProblemKind::Invalid, text));
                }
                (in_full, None) => {
                    let spec = CloneSpec { extent, in_full, scratch_ns: None };
                    pool.clone_as(&name, &at, &body.name, spec)?
                }
                (false, Some(length)) => {
                    if context.volume(&name)?.share().is_some() {
                        let text = "a share has no scratch clones: nobody knows who has it mounted";
                        return Err(Refusal::new(ProblemKind::Invalid, text)
                            .with_hint("clone it, and delete the clone when it is not needed"));
                    }
                    let scratch_ns = Some(scratch::length_ns(length)?);
                    let own = scratch::name_for(&name, &body.name);
                    context.check_new_name(&own)?;
                    let spec = CloneSpec { extent, in_full: false, scratch_ns };
                    pool.clone_as(&name, &at, &own, spec)?
                }
            };
            let described = context.describe(&clone)?;
            Ok(made(location(&described.name), described))
        })
        .await
}

/// Lists the byte ranges that differ between two moments: of this volume, or of it and another one
/// with which it has a past in common.
#[utoipa::path(get, path = "/volumes/{volume}/diff", tag = "history",
    params(DiffQuery),
    responses(
        (status = 200, body = Vec<api::Range>, headers(("Link" = String))),
        (status = 410, description = "A moment lies outside the window"),
        (status = 422, description = "The two volumes have no past in common"),
    ))]
pub(super) async fn diff(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<DiffQuery>,
) -> Answer<Listed<api::Range>> {
    let from = moment(&query.from)?;
    let to = query.to.as_deref().map_or(Ok(Moment::Latest), moment)?;
    let limit = page_entries(query.limit, RANGES_MAX)?;
    let offset = query.next.unwrap_or(0);
    context
        .engine(move |context| {
            let volume = context.volume(&name)?;
            let other = query.to_volume.as_deref().map(|name| context.volume(name)).transpose()?;
            let other = other.unwrap_or_else(|| Arc::clone(&volume));
            // Every page speaks of the same two moments, however long the client takes.
            let from = Moment::Seq(volume.resolve(&from)?.seq);
            let to = Moment::Seq(other.resolve(&to)?.seq);
            let page = volume.diff_with(&from, (&other, &to), offset, limit)?;
            let next = page.next_offset.map(|next| {
                let volume = location(&name);
                let of = query.to_volume.map_or(String::new(), |of| format!("&to_volume={of}"));
                format!("{volume}/diff?from={from}&to={to}{of}&limit={limit}&next={next}")
            });
            Ok(Listed { entries: page.ranges.into_iter().map(convert::range).collect(), next })
        })
        .await
}
