//! Volumes that begin as a file of this machine.
//!
//! A client that names a file has it read by the server, with the server's rights. So only clients
//! of the unix socket may, which is the owner's alone; over TCP it is refused.

use api::{ImportVolume, ProblemKind};
use axum::extract::State;
use volume::{Architecture, Granularity, ImportSpec, VolumeSpec};

use super::answer::{Answer, Refusal};
use super::ask::Body;
use super::context::Context;
use super::convert;
use super::lacks::must_be_local;
use super::volumes::{Made, architecture, location, made};
use crate::who;

/// The one form of a file that is read where it lies.
const RAW: &str = "raw";

/// Makes a volume of a file without copying it first.
#[utoipa::path(post, path = "/imports", tag = "volumes", request_body = ImportVolume,
    responses(
        (status = 201, body = api::Volume, headers(("Location" = String))),
        (status = 403, description = "Not over the unix socket"),
        (status = 404, description = "There is no such file"),
        (status = 409, description = "The name is taken, or the file is locked"),
    ))]
pub(super) async fn create(
    State(context): State<Context>,
    Body(body): Body<ImportVolume>,
) -> Answer<Made<api::Volume>> {
    let hint = "name the server as unix:DIR/api.sock, or import by copying (without --lazy)";
    must_be_local(who::caller().as_ref().map(|(caller, _)| caller), "of", hint)?;
    let made_of = body.file.clone();
    let volume = context
        .engine(move |context| {
            let (spec, import) = spec(body)?;
            context.describe(&*context.pool.import_volume(&spec, &import)?)
        })
        .await?;
    tracing::info!(volume = volume.name, file = made_of, "an import has begun");
    Ok(made(location(&volume.name), volume))
}

fn spec(body: ImportVolume) -> Answer<(VolumeSpec, ImportSpec)> {
    if let Some(format) = body.format.as_deref().filter(|&format| format != RAW) {
        let text = format!("a {format} image is not read where it lies");
        return Err(Refusal::new(ProblemKind::Invalid, text)
            .with_hint("import it by copying (without --lazy): only raw images are"));
    }
    let architecture = match body.architecture.as_deref() {
        None => Architecture::Logging,
        Some(name) => architecture(name)?,
    };
    let spec = VolumeSpec {
        architecture,
        granularity: body.granularity.map_or(Granularity::EveryWrite, convert::granularity_back),
        window_ns: body.window.map_or(VolumeSpec::WINDOW_NS, |window| window.0.0),
        ..VolumeSpec::new(&body.name, 0)
    };
    Ok((spec, ImportSpec { file: body.file, as_raw: body.format.is_some() }))
}
