//! Queries of operations of the document that have none: they are refused, as unknown fields of
//! queries and bodies are by those that do. A caller who writes `dry_run=true` where it is of the
//! body must not have it done.

use std::collections::HashMap;
use std::sync::OnceLock;

use api::{OPENAPI_JSON, ProblemKind};
use axum::http::Method;

use super::answer::{Answer, Refusal};

/// The operations that have no parameters in their query, by method and path, and whether they have
/// a body.
fn without_query() -> &'static HashMap<(String, String), bool> {
    static WITHOUT_QUERY: OnceLock<HashMap<(String, String), bool>> = OnceLock::new();
    WITHOUT_QUERY.get_or_init(|| {
        let document: serde_json::Value =
            serde_json::from_str(OPENAPI_JSON).expect("the document is checked in");
        let mut found = HashMap::new();
        for (path, methods) in document["paths"].as_object().into_iter().flatten() {
            for (method, operation) in methods.as_object().into_iter().flatten() {
                let mut parameters = operation["parameters"].as_array().into_iter().flatten();
                if parameters.all(|parameter| parameter["in"] != "query") {
                    let has_body = operation["requestBody"].is_object();
                    found.insert((method.to_uppercase(), path.clone()), has_body);
                }
            }
        }
        found
    })
}

/// Refuses a query where there can be none.
pub(super) fn check(method: &Method, path: &str, query: Option<&str>) -> Answer<()> {
    let names = query.into_iter().flat_map(|query| query.split('&'));
    let mut names = names.map(|field| field.split('=').next().unwrap_or_default());
    let Some(name) = names.find(|name| !name.is_empty()) else { return Ok(()) };
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    // A method that the path does not take is told so elsewhere.
    let operation = (method.to_owned(), path.to_owned());
    let Some(&has_body) = without_query().get(&operation) else { return Ok(()) };
    let text = format!("{method} {path} has no query, and so no `{name}`: nothing was done");
    let refusal = Refusal::new(ProblemKind::Malformed, text);
    Err(match has_body {
        true => refusal.with_hint("its fields belong into the body"),
        false => refusal,
    })
}
