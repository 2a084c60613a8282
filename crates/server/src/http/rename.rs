//! Renaming volumes.

use api::{Rename, Renamed, Would};
use axum::Json;
use axum::extract::State;

use super::answer::Answer;
use super::ask::{Body, Named};
use super::context::Context;

/// Gives a volume another name. Clients that have it open keep it; groups, schedules, versions,
/// marks and clones go with it.
#[utoipa::path(post, path = "/volumes/{volume}/rename", tag = "volumes", request_body = Rename,
    responses(
        (status = 200, body = Renamed),
        (status = 409, description = "The name is taken"),
    ))]
pub(super) async fn rename(
    State(context): State<Context>,
    Named(old_name): Named<String>,
    Body(Rename { name, dry_run }): Body<Rename>,
) -> Answer<Json<Renamed>> {
    context
        .json(move |context| {
            context.check_new_name(&name)?;
            let volume = context.pool.rename_volume(&old_name, &name, dry_run)?;
            let clients = context.attached(&volume) as u64;
            let text =
                format!("{old_name} would be called {name}; clients that have it open keep it");
            let would = dry_run.then(|| Would::new("rename", old_name.clone(), text));
            Ok(Renamed { name, old_name, clients, dry_run, would: Vec::from_iter(would) })
        })
        .await
}
