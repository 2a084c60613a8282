//! Queries of operations that have none: they are refused, as unknown fields of queries and bodies
//! are by those that do. A caller who writes `dry_run=true` where it is of the body must not have
//! it done.

use std::collections::HashSet;
use std::sync::OnceLock;

use api::ProblemKind;
use axum::http::Method;

use super::answer::{Answer, Refusal};
use super::router::api_document;

/// The operations that have no parameters in their query, by method and path.
fn without_query() -> &'static HashSet<(String, String)> {
    static WITHOUT_QUERY: OnceLock<HashSet<(String, String)>> = OnceLock::new();
    WITHOUT_QUERY.get_or_init(|| {
        let document = api_document();
        let mut found = HashSet::new();
        for (path, methods) in document["paths"].as_object().into_iter().flatten() {
            for (method, operation) in methods.as_object().into_iter().flatten() {
                let mut parameters = operation["parameters"].as_array().into_iter().flatten();
                if parameters.all(|parameter| parameter["in"] != "query") {
                    found.insert((method.to_uppercase(), path.clone()));
                }
            }
        }
        found
    })
}

/// Refuses a query where there can be none.
pub(super) fn check(method: &Method, path: &str, query: Option<&str>) -> Answer<()> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(()) };
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    // A method that the path does not take is told so elsewhere.
    if !without_query().contains(&(method.to_owned(), path.to_owned())) {
        return Ok(());
    }
    let name = query.split(['=', '&']).next().unwrap_or_default();
    let text = format!("{method} {path} has no query, and so no `{name}`: nothing was done");
    let hint = "fields of a request with a body belong into the body";
    Err(Refusal::new(ProblemKind::Malformed, text).with_hint(hint))
}
