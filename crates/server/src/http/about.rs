//! The server itself: which it is, since when, and where it listens.

use api::{RoleName, Server, Time, Who};
use axum::Json;
use axum::extract::State;

use super::answer::Answer;
use super::context::Context;
use super::started::{STARTED, now};
use crate::who;

/// Says which server this is, what its clock says, and where it listens.
#[utoipa::path(get, path = "/server", tag = "pool",
    responses((status = 200, body = Server)))]
pub(super) async fn show(State(context): State<Context>) -> Answer<Json<Server>> {
    let addresses = &context.addresses;
    let who = who::caller().map(|(caller, _)| Who {
        name: caller.who.to_string(),
        role: RoleName(caller.role),
        volumes: caller.patterns(),
    });
    let socket = addresses.unix.as_ref().map(|path| path.display().to_string());
    Ok(Json(Server {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time: Time(now()),
        started: Time(*STARTED.get_or_init(now)),
        nbd_socket: socket,
        page: addresses.page(),
        nbd: addresses.tcp.map(|address| address.to_string()),
        iscsi: addresses.iscsi.as_ref().map(|(address, _)| address.to_string()),
        nfs: addresses.nfs.iter().map(ToString::to_string).collect(),
        who,
        hooks: context.hooks.names().iter().map(ToString::to_string).collect(),
    }))
}
