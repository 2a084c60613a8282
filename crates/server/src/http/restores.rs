//! Files of shares that are put back as they were.

use ::share::{CauseKind, Effect, ErrorKind, Restore, RestoreError, Told, Wait, restore};
use api::{ProblemKind, RestoreFiles, RestoredFiles, Would, path_text};
use axum::Json;
use axum::extract::State;
use units::Moment;

use super::answer::{Answer, Refusal};
use super::ask::{Body, Named};
use super::changing::change;
use super::context::{Context, moment};
use super::files::{bytes_of, new_path_of, open, path_of, refusal};

/// Puts a file, or a directory with all below it, back as it was at a moment. All that is written
/// over or goes is in the history, so that it can be undone.
#[utoipa::path(post, path = "/shares/{share}/restores", tag = "shares",
    request_body = RestoreFiles,
    responses(
        (status = 200, body = RestoredFiles),
        (status = 404, description = "There is no such share, or no such path at the moment"),
        (status = 409, description = "Something is at `to`, or the share is being reverted"),
        (status = 410, description = "The moment lies outside the window"),
    ))]
pub(super) async fn create(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<RestoreFiles>,
) -> Answer<Json<RestoredFiles>> {
    let from = moment(&body.from)?;
    context.json(move |context| put_back(context, &name, &from, &body)).await
}

fn put_back(
    context: &Context,
    name: &str,
    from: &Moment,
    body: &RestoreFiles,
) -> Answer<RestoredFiles> {
    let path = bytes_of(&body.path)?;
    let to = body.to.as_deref().map(bytes_of).transpose()?;
    let (from_path, to_path) = (path_of(&path)?, to.as_deref().map(new_path_of).transpose()?);
    let opened = open(context, name)?;
    let (seq, past) = opened.open_moment(from).map_err(|error| refusal(error, name, &path))?;
    let volume = opened.volume();
    let asked = Restore {
        from: &from_path,
        to: to_path.as_ref(),
        delete: body.delete,
        dry_run: body.dry_run,
        goes_on: &|| context.is_ready() && volume.is_served(),
    };
    let kind = (CauseKind::Restore, body.dry_run);
    let (number, before, restored) = change(context, &opened, kind, |changer, before| {
        (changer.cause.number, before, restore(&past.tree(Wait::May), changer, &asked))
    })?;
    let restored = restored.map_err(|error| failed(error, name, body))?;
    let stay = restored.told.iter().filter(|told| told.effect == Effect::InTheWay);
    let stay = stay.map(|told| path_text(&told.path)).collect();
    let would = restored.told.iter().filter(|_| body.dry_run).map(|told| would(name, told));
    Ok(RestoredFiles {
        share: name.to_owned(),
        from: seq.0,
        path: body.path.clone(),
        to: body.to.clone().unwrap_or_else(|| body.path.clone()),
        dry_run: body.dry_run,
        number,
        before: before.0,
        created: restored.created,
        overwritten: restored.overwritten,
        removed: restored.removed,
        kept: restored.kept,
        in_the_way: restored.in_the_way,
        bytes: restored.bytes,
        stay,
        would: would.collect(),
        more: restored.has_more,
    })
}

fn would(share: &str, told: &Told) -> Would {
    let path = path_text(&told.path);
    let (action, text) = match told.effect {
        Effect::Created => ("create", format!("{path} would be created")),
        Effect::Overwritten => ("overwrite", format!("{path} would be as it was")),
        Effect::Removed => ("remove", format!("{path} would be removed")),
        Effect::InTheWay => {
            ("stay", format!("{path} would stay: a directory with entries, and none then"))
        }
    };
    Would::new(action, format!("{share} {path}"), text)
}

fn failed(error: RestoreError, name: &str, body: &RestoreFiles) -> Refusal {
    let again = "what was put back until then stays; ask again for the rest";
    match error {
        RestoreError::Stopped => {
            Refusal::new(ProblemKind::Stopping, "the restore was stopped").with_hint(again)
        }
        RestoreError::At { path, error } if error.kind == ErrorKind::Exists => {
            let text = format!("{} is there", path_text(&path));
            Refusal::new(ProblemKind::Exists, text).with_hint(
                "a directory can be put into one that is there; all else needs a path that is free",
            )
        }
        RestoreError::At { path, error }
            if error.kind == ErrorKind::NotFound && body.to.is_some() =>
        {
            let text = format!("there is no {}", path_text(&path));
            Refusal::new(ProblemKind::NotFound, text)
                .with_hint("the path has to be there at that moment, and now what `to` is in")
        }
        RestoreError::At { path, error } => {
            let refusal = refusal(error, name, &path);
            if refusal.0.hint.is_some() { refusal } else { refusal.with_hint(again) }
        }
    }
}
