//! Watches over what is written over on volumes.

use api::{SetWatch, Time, Watch, WatchAlarm};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use volume::{Alarm, Volume};

use super::answer::Answer;
use super::ask::{Body, Named};
use super::context::Context;

fn alarm(alarm: Alarm) -> WatchAlarm {
    WatchAlarm {
        given: Time(alarm.given),
        kind: alarm.kind.name().to_owned(),
        bytes: alarm.bytes,
        mark: alarm.mark,
        seq: alarm.at.seq.0,
        time: Time(alarm.at.time),
        held: alarm.is_held,
    }
}

fn shown(context: &Context, volume: &Volume) -> Answer<Json<Watch>> {
    let info = volume.watch().ok_or_else(|| volume.unwatched())?;
    let told = context.watching.told(volume.id());
    let found = told.map(|(_, found)| found).unwrap_or_default();
    Ok(Json(Watch {
        sensitivity: api::SensitivityName(info.sensitivity),
        looked: told.map(|(looked, _)| Time(looked)),
        written_over_bytes: found.written_over,
        scrambled_bytes: found.scrambled,
        wiped_bytes: found.wiped,
        alarms: info.alarms.into_iter().rev().map(alarm).collect(),
    }))
}

/// Shows the watch over a volume, and its alarms.
#[utoipa::path(get, path = "/volumes/{volume}/watch", tag = "watches",
    responses(
        (status = 200, body = Watch),
        (status = 404, description = "There is no such volume, or it is not watched"),
    ))]
pub(super) async fn show(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Answer<Json<Watch>> {
    context.engine(move |context| shown(context, &*context.volume(&name)?)).await
}

/// Has a volume watched: much data that becomes random or zeros in a short time gives an alarm, and
/// the moment before is marked and pinned.
#[utoipa::path(put, path = "/volumes/{volume}/watch", tag = "watches", request_body = SetWatch,
    responses(
        (status = 200, body = Watch),
        (status = 422, description = "It is a share"),
    ))]
pub(super) async fn set(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<SetWatch>,
) -> Answer<Json<Watch>> {
    context
        .engine(move |context| {
            let volume = context.volume(&name)?;
            volume.set_watch(Some(body.sensitivity.0))?;
            shown(context, &volume)
        })
        .await
}

/// Has a volume watched no more. Marks of its alarms stay.
#[utoipa::path(delete, path = "/volumes/{volume}/watch", tag = "watches",
    responses(
        (status = 204),
        (status = 404, description = "There is no such volume, or it is not watched"),
    ))]
pub(super) async fn remove(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Answer<StatusCode> {
    context
        .engine(move |context| {
            let volume = context.volume(&name)?;
            volume.watch().ok_or_else(|| volume.unwatched())?;
            volume.set_watch(None)?;
            Ok(StatusCode::NO_CONTENT)
        })
        .await
}
