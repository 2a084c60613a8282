//! The rights of every route: one table, which says for each the role that it needs, what it is
//! about, and whether it destroys history. A route that is not in it is an admin's.
//!
//! 1. A request about a volume that its caller does not see is answered as if there were none of
//!    that name, whatever its role.
//! 2. A route about the whole pool needs a caller that sees all of it.
//!
//! Names in bodies and queries are the handlers' matter: they go by `Context`.

use std::collections::HashMap;
use std::sync::OnceLock;

use api::{API_PREFIX, ProblemKind};
use axum::extract::{MatchedPath, RawPathParams};
use axum::http::Method;
use units::Role;
use units::Role::{Admin, Keeper, Operator, Reader, Viewer};

use super::answer::{Answer, Refusal};
use super::context::Context;
use super::lacks::{must_be_near, must_have};
use super::shares::no_share;
use crate::who::Caller;

/// The subject of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// No volume; or some, which its handler picks for the caller.
    Nothing,
    /// The volume that is named in its path by this parameter.
    Volume,
    /// The share there.
    Share,
    /// The group there: all of its volumes.
    Group,
    /// The deleted volume there.
    Deleted,
    /// The pool, and so all volumes.
    Pool,
}

/// The rights that a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Needs {
    pub(super) role: Role,
    pub(super) about: About,
    /// It takes history away, what keeps it, or who may.
    pub(super) destroys: bool,
}

/// A route that is in no row.
const ELSE: Needs = Needs { role: Admin, about: About::Pool, destroys: true };

type Row = (&'static str, &'static str, Role, About, bool);

const TAKES: bool = true;
const KEEPS: bool = false;

/// Method, path below the API's, role, subject, and whether it takes history away.
const TABLE: &[Row] = &[
    ("GET", "/openapi.json", Viewer, About::Nothing, KEEPS),
    ("GET", "/server", Viewer, About::Nothing, KEEPS),
    ("GET", "/volumes", Viewer, About::Nothing, KEEPS),
    ("POST", "/volumes", Admin, About::Nothing, KEEPS),
    ("GET", "/volumes/{volume}", Viewer, About::Volume, KEEPS),
    // Its handler asks for more where it does more than make it larger.
    ("PATCH", "/volumes/{volume}", Operator, About::Volume, KEEPS),
    // Its handler asks for more where it is no scratch clone.
    ("DELETE", "/volumes/{volume}", Operator, About::Volume, KEEPS),
    ("POST", "/volumes/{volume}/rename", Admin, About::Volume, KEEPS),
    ("GET", "/volumes/{volume}/space", Viewer, About::Volume, KEEPS),
    ("GET", "/volumes/{volume}/resolve", Viewer, About::Volume, KEEPS),
    ("GET", "/volumes/{volume}/history", Viewer, About::Volume, KEEPS),
    ("GET", "/volumes/{volume}/timeline", Viewer, About::Volume, KEEPS),
    ("GET", "/volumes/{volume}/heat", Viewer, About::Volume, KEEPS),
    ("POST", "/volumes/{volume}/revert", Operator, About::Volume, KEEPS),
    ("POST", "/volumes/{volume}/clones", Operator, About::Volume, KEEPS),
    ("GET", "/volumes/{volume}/diff", Viewer, About::Volume, KEEPS),
    ("GET", "/volumes/{volume}/trace", Reader, About::Volume, KEEPS),
    ("GET", "/volumes/{volume}/model", Viewer, About::Volume, KEEPS),
    ("GET", "/volumes/{volume}/advice", Viewer, About::Volume, KEEPS),
    ("GET", "/volumes/{volume}/versions", Viewer, About::Volume, KEEPS),
    ("POST", "/volumes/{volume}/versions", Keeper, About::Volume, KEEPS),
    ("DELETE", "/volumes/{volume}/versions", Admin, About::Volume, TAKES),
    ("GET", "/volumes/{volume}/versions/{number}", Viewer, About::Volume, KEEPS),
    ("DELETE", "/volumes/{volume}/versions/{number}", Admin, About::Volume, TAKES),
    ("GET", "/volumes/{volume}/versions/{number}/open-files", Reader, About::Volume, KEEPS),
    ("POST", "/volumes/{volume}/versions/{number}/compact", Operator, About::Volume, KEEPS),
    ("POST", "/volumes/{volume}/versions/{number}/uncompact", Operator, About::Volume, KEEPS),
    ("GET", "/volumes/{volume}/marks", Viewer, About::Volume, KEEPS),
    ("POST", "/volumes/{volume}/marks", Keeper, About::Volume, KEEPS),
    ("DELETE", "/volumes/{volume}/marks", Admin, About::Volume, TAKES),
    ("DELETE", "/volumes/{volume}/marks/{mark}", Admin, About::Volume, TAKES),
    ("GET", "/volumes/{volume}/schedule", Viewer, About::Volume, KEEPS),
    ("PUT", "/volumes/{volume}/schedule", Admin, About::Volume, TAKES),
    ("DELETE", "/volumes/{volume}/schedule", Admin, About::Volume, TAKES),
    ("GET", "/volumes/{volume}/retention", Viewer, About::Volume, KEEPS),
    ("POST", "/volumes/{volume}/retention", Admin, About::Volume, TAKES),
    ("GET", "/volumes/{volume}/verifications", Viewer, About::Volume, KEEPS),
    ("POST", "/volumes/{volume}/verifications", Keeper, About::Volume, KEEPS),
    ("GET", "/volumes/{volume}/watch", Viewer, About::Volume, KEEPS),
    ("PUT", "/volumes/{volume}/watch", Admin, About::Volume, TAKES),
    ("DELETE", "/volumes/{volume}/watch", Admin, About::Volume, TAKES),
    ("POST", "/imports", Admin, About::Pool, KEEPS),
    ("GET", "/trash", Viewer, About::Nothing, KEEPS),
    ("POST", "/trash/{id}/undelete", Operator, About::Deleted, KEEPS),
    ("DELETE", "/trash/{id}", Admin, About::Deleted, TAKES),
    ("GET", "/shares", Viewer, About::Nothing, KEEPS),
    ("POST", "/shares", Admin, About::Nothing, KEEPS),
    ("GET", "/shares/{share}", Viewer, About::Share, KEEPS),
    ("PATCH", "/shares/{share}", Admin, About::Share, KEEPS),
    ("DELETE", "/shares/{share}", Admin, About::Share, TAKES),
    ("POST", "/shares/{share}/allowed", Admin, About::Share, KEEPS),
    ("DELETE", "/shares/{share}/allowed", Admin, About::Share, KEEPS),
    ("GET", "/shares/{share}/tree", Reader, About::Share, KEEPS),
    ("GET", "/shares/{share}/file", Reader, About::Share, KEEPS),
    ("GET", "/shares/{share}/archive", Reader, About::Share, KEEPS),
    ("POST", "/shares/{share}/archive", Operator, About::Share, KEEPS),
    ("GET", "/shares/{share}/diff", Reader, About::Share, KEEPS),
    ("POST", "/shares/{share}/restores", Operator, About::Share, KEEPS),
    ("GET", "/shares/{share}/ops", Reader, About::Share, KEEPS),
    ("GET", "/shares/{share}/versions-of", Reader, About::Share, KEEPS),
    ("POST", "/shares/{share}/repairs", Operator, About::Share, KEEPS),
    ("GET", "/targets", Viewer, About::Nothing, KEEPS),
    ("PATCH", "/targets/{volume}", Admin, About::Volume, KEEPS),
    ("GET", "/made-targets", Viewer, About::Nothing, KEEPS),
    ("POST", "/made-targets", Admin, About::Pool, KEEPS),
    ("PATCH", "/made-targets/{target}", Admin, About::Pool, KEEPS),
    ("DELETE", "/made-targets/{target}", Admin, About::Pool, KEEPS),
    ("GET", "/jobs", Viewer, About::Nothing, KEEPS),
    ("GET", "/jobs/{id}", Viewer, About::Nothing, KEEPS),
    ("GET", "/schedules", Viewer, About::Nothing, KEEPS),
    ("GET", "/groups", Viewer, About::Nothing, KEEPS),
    ("POST", "/groups", Admin, About::Pool, KEEPS),
    ("GET", "/groups/{group}", Viewer, About::Group, KEEPS),
    ("PATCH", "/groups/{group}", Admin, About::Group, KEEPS),
    ("DELETE", "/groups/{group}", Admin, About::Group, TAKES),
    ("GET", "/groups/{group}/versions", Viewer, About::Group, KEEPS),
    ("POST", "/groups/{group}/versions", Keeper, About::Group, KEEPS),
    ("DELETE", "/groups/{group}/versions", Admin, About::Group, TAKES),
    ("GET", "/groups/{group}/resolve", Viewer, About::Group, KEEPS),
    ("POST", "/groups/{group}/revert", Operator, About::Group, KEEPS),
    ("POST", "/groups/{group}/clones", Operator, About::Group, KEEPS),
    ("GET", "/groups/{group}/schedule", Viewer, About::Group, KEEPS),
    ("PUT", "/groups/{group}/schedule", Admin, About::Group, TAKES),
    ("DELETE", "/groups/{group}/schedule", Admin, About::Group, TAKES),
    ("GET", "/groups/{group}/retention", Viewer, About::Group, KEEPS),
    ("POST", "/groups/{group}/retention", Admin, About::Group, TAKES),
    ("GET", "/pool", Viewer, About::Nothing, KEEPS),
    ("PATCH", "/pool", Admin, About::Pool, KEEPS),
    ("POST", "/pool/replace", Admin, About::Pool, KEEPS),
    ("POST", "/pool/attach", Admin, About::Pool, KEEPS),
    ("POST", "/pool/grow", Admin, About::Pool, KEEPS),
    ("POST", "/pool/spares", Admin, About::Pool, KEEPS),
    ("DELETE", "/pool/spares", Admin, About::Pool, KEEPS),
    ("POST", "/pool/scrub", Admin, About::Pool, KEEPS),
    ("DELETE", "/pool/scrub", Admin, About::Pool, TAKES),
    ("PUT", "/pool/scrub", Admin, About::Pool, TAKES),
    ("GET", "/audit", Viewer, About::Pool, KEEPS),
    ("GET", "/tokens", Admin, About::Pool, KEEPS),
    ("POST", "/tokens", Admin, About::Pool, TAKES),
    ("GET", "/tokens/{token}", Admin, About::Pool, KEEPS),
    ("DELETE", "/tokens/{token}", Admin, About::Pool, TAKES),
    ("POST", "/codes", Admin, About::Pool, TAKES),
    ("DELETE", "/login", Viewer, About::Nothing, KEEPS),
];

/// The one route with rights that is not below the API's.
const METRICS: (&str, Needs) =
    ("/metrics", Needs { role: Viewer, about: About::Pool, destroys: KEEPS });

/// The rights that a route needs.
pub(super) fn needs(method: &Method, path: &str) -> Needs {
    static BY_ROUTE: OnceLock<HashMap<(&str, &str), Needs>> = OnceLock::new();
    let by_route = BY_ROUTE.get_or_init(|| {
        let row = |&(method, path, role, about, destroys): &Row| {
            ((method, path), Needs { role, about, destroys })
        };
        TABLE.iter().map(row).collect()
    });
    // A question about a document is one for it.
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    match path.strip_prefix(API_PREFIX) {
        Some(below) => by_route.get(&(method, below)).copied().unwrap_or(ELSE),
        None if path == METRICS.0 && method == "GET" => METRICS.1,
        None => ELSE,
    }
}

/// Refuses a caller what its role does not cover, or what it does not see.
pub(super) async fn check(
    context: &Context,
    caller: &Caller,
    method: &Method,
    (path, names): (Option<MatchedPath>, Option<RawPathParams>),
) -> Answer<()> {
    // There is no such route: that is all that it learns.
    let Some(path) = path else { return Ok(()) };
    let needs = needs(method, path.as_str());
    must_have(caller, needs.role)?;
    if needs.destroys {
        must_be_near(&context.access, caller)?;
    }
    if caller.sees_all() {
        return Ok(());
    }
    let named = |parameter: &str| {
        let mut names = names.iter().flatten();
        let found = names.find(|(name, _)| *name == parameter);
        found.map_or_else(String::new, |(_, value)| value.to_owned())
    };
    match needs.about {
        About::Nothing => Ok(()),
        About::Pool => {
            let text = format!("this is about all volumes, and {} sees only some", caller.who);
            Err(Refusal::new(ProblemKind::Forbidden, text)
                .with_hint("use a token without --volume"))
        }
        About::Volume => match named("volume") {
            name if caller.sees(&name) => Ok(()),
            name => Err(volume::no_volume(&name).into()),
        },
        About::Share => match named("share") {
            name if caller.sees(&name) => Ok(()),
            name => Err(no_share(&name, "`hindsight share list` names them".to_owned())),
        },
        About::Group => {
            let (name, caller) = (named("group"), caller.clone());
            let seen = move |context: &Context| match context.pool.group(&name) {
                Ok(group) if sees_group(&caller, &group) => Ok(()),
                _ => Err(volume::no_group(&name).into()),
            };
            context.engine(seen).await
        }
        About::Deleted => {
            let (id, caller) = (named("id"), caller.clone());
            let seen = move |context: &Context| {
                let trash = context.pool.trash()?;
                let of_id = trash.iter().find(|deleted| deleted.id.to_string() == id);
                match of_id {
                    Some(deleted) if caller.sees(&deleted.name) => Ok(()),
                    _ => Err(volume::not_in_trash(&id).into()),
                }
            };
            context.engine(seen).await
        }
    }
}

/// Whether a caller sees a group: all of its volumes, if it has any. Those in the trash come back.
pub(super) fn sees_group(caller: &Caller, group: &volume::GroupInfo) -> bool {
    let is_seen = |name: &String| caller.sees(name);
    let are_seen = group.in_trash == 0 && group.volumes.iter().all(is_seen);
    caller.sees_all() || !group.volumes.is_empty() && are_seen
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::router::api_document;
    use super::{API_PREFIX, ELSE, METRICS, Method, Role, TABLE, needs};

    /// Answered to anybody.
    const OPEN: [&str; 2] = ["/healthz", "/readyz"];

    #[test]
    fn every_route_of_the_document_has_a_row_and_every_row_a_route() {
        let document = api_document();
        let mut routes = BTreeSet::from([("GET".to_owned(), "/openapi.json".to_owned())]);
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for method in methods.as_object().expect("methods").keys() {
                let Some(below) = path.strip_prefix(API_PREFIX) else {
                    assert!(OPEN.contains(&&**path) || path == METRICS.0, "{path} has no rights");
                    continue;
                };
                // A login is of somebody who is nobody yet.
                if (&**method, below) != ("post", "/login") {
                    routes.insert((method.to_uppercase(), below.to_owned()));
                }
            }
        }
        let rows = TABLE.iter().map(|&(method, path, ..)| (method.to_owned(), path.to_owned()));
        let rows: Vec<_> = rows.collect();
        let once: BTreeSet<_> = rows.iter().cloned().collect();
        assert_eq!(once.len(), rows.len(), "a route has two rows");
        assert_eq!(once, routes);
    }

    #[test]
    fn what_changes_something_is_never_a_viewers_and_what_is_unknown_is_an_admins() {
        for &(method, path, role, about, destroys) in TABLE {
            let is_own = (method, path) == ("DELETE", "/login");
            assert!(method == "GET" || is_own || role != Role::Viewer, "{method} {path}");
            assert!(!destroys || role == Role::Admin, "{method} {path}");
            let parameter = path.split(['{', '}']).nth(1);
            let named = match about {
                super::About::Volume => parameter == Some("volume"),
                super::About::Share => parameter == Some("share"),
                super::About::Group => parameter == Some("group"),
                super::About::Deleted => parameter == Some("id"),
                super::About::Pool => !matches!(parameter, Some("volume" | "share" | "group")),
                super::About::Nothing => matches!(parameter, None | Some("id")),
            };
            assert!(named, "{method} {path} is about {about:?}");
        }
        assert_eq!(needs(&Method::POST, "/api/v1/new"), ELSE);
        assert_eq!(needs(&Method::OPTIONS, "/api/v1/volumes"), ELSE);
        assert_eq!(needs(&Method::HEAD, "/api/v1/volumes").role, Role::Viewer);
    }
}
