//! iSCSI targets.

use api::IscsiTarget;
use axum::Json;
use axum::extract::State;

use super::answer::Answer;
use super::context::Context;

/// Lists the iSCSI targets that volumes are, by volume; none when iSCSI is off.
#[utoipa::path(
    get, path = "/targets", tag = "targets",
    responses((status = 200, description = "The targets", body = [IscsiTarget]))
)]
pub(super) async fn list(State(context): State<Context>) -> Answer<Json<Vec<IscsiTarget>>> {
    let targets = |context: &Context| {
        let volumes = context.pool().volumes();
        Ok(volumes.iter().filter_map(|volume| context.nbd().target(volume.name())).collect())
    };
    context.engine(targets).await.map(Json)
}
