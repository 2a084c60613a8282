//! The past as a picture: columns of what was written when, and a map of what differs.

use std::collections::BTreeMap;

use api::{EventCount, Heat, HeatQuery, Timeline, TimelineQuery};
use axum::Json;
use axum::extract::State;
use units::{BLOCK_BYTES, Moment};
use volume::TimelineColumns;

use super::answer::{Answer, Refusal};
use super::ask::{Asked, Named};
use super::context::{Context, moment};
use super::convert;
use super::history::hide_origin;

/// Columns of a timeline: unless asked otherwise, and at most.
const POINTS_DEFAULT: usize = 800;
const POINTS_MAX: usize = 4000;
/// Events that are told one by one.
const EVENTS_MAX: usize = 500;
/// Parts of a map: unless asked otherwise, and at most.
const CELLS_DEFAULT: u64 = 1024;
const CELLS_MAX: u64 = 16_384;

/// Says what was written when, in columns of equal length: the cost does not grow with the history.
#[utoipa::path(get, path = "/volumes/{volume}/timeline", tag = "history",
    params(TimelineQuery),
    responses(
        (status = 200, body = Timeline),
        (status = 410, description = "A moment lies outside the window"),
        (status = 422),
    ))]
pub(super) async fn timeline(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<TimelineQuery>,
) -> Answer<Json<Timeline>> {
    let points = query.points.unwrap_or(POINTS_DEFAULT);
    in_range("points", points, POINTS_MAX)?;
    let since = query.since.as_deref().map(moment).transpose()?;
    let until = query.until.as_deref().map(moment).transpose()?;
    context
        .json(move |context| {
            let volume = context.volume(&name)?;
            let mut told = told(volume.timeline(since.as_ref(), until.as_ref(), points)?);
            let events = told.events.as_deref_mut().unwrap_or_default();
            hide_origin(context, &volume, events)?;
            Ok(told)
        })
        .await
}

fn told(columns: TimelineColumns) -> Timeline {
    let are_few = columns.events.len() <= EVENTS_MAX;
    let event_counts = if are_few { Vec::new() } else { counts(&columns) };
    let events = columns.events.into_iter().map(convert::event);
    Timeline {
        since: api::Time(columns.since),
        until: api::Time(columns.until),
        seqs: columns.seqs.into_iter().map(|seq| seq.0).collect(),
        bytes: columns.bytes,
        flushes: columns.flushes,
        events: are_few.then(|| events.collect()),
        event_counts,
        oldest: convert::stamp(columns.oldest),
        latest: convert::stamp(columns.latest),
    }
}

fn counts(columns: &TimelineColumns) -> Vec<EventCount> {
    let mut counts: BTreeMap<(usize, &str), u64> = BTreeMap::new();
    for event in &columns.events {
        *counts.entry((columns.column_of(event.stamp.time), event.kind)).or_default() += 1;
    }
    let told = |((column, kind), count): ((usize, &str), u64)| EventCount {
        column: column as u64,
        kind: kind.to_owned(),
        count,
    };
    counts.into_iter().map(told).collect()
}

/// Counts the blocks that differ between two moments in each part of a volume, by the map alone.
#[utoipa::path(get, path = "/volumes/{volume}/heat", tag = "history",
    params(HeatQuery),
    responses(
        (status = 200, body = Heat),
        (status = 410, description = "A moment lies outside the window"),
    ))]
pub(super) async fn heat(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<HeatQuery>,
) -> Answer<Json<Heat>> {
    let from = moment(&query.from)?;
    let to = query.to.as_deref().map_or(Ok(Moment::Latest), moment)?;
    let cells = query.cells.unwrap_or(CELLS_DEFAULT);
    in_range("cells", cells, CELLS_MAX)?;
    context
        .json(move |context| {
            let heat = context.volume(&name)?.heat(&from, &to, cells)?;
            let (from, to) = heat.between;
            Ok(Heat {
                from: convert::resolved(from),
                to: convert::resolved(to),
                cell_bytes: heat.cell_bytes,
                block_bytes: BLOCK_BYTES,
                changed_bytes: heat.blocks.iter().sum::<u64>() * BLOCK_BYTES,
                blocks: heat.blocks,
            })
        })
        .await
}

fn in_range<T: Copy + PartialOrd + From<u8> + std::fmt::Display>(
    field: &str,
    value: T,
    max: T,
) -> Answer<()> {
    if (T::from(1)..=max).contains(&value) {
        return Ok(());
    }
    let text = format!("{field} {value} is out of range");
    Err(Refusal::malformed(text, Some(format!("give 1 to {max}"))))
}
