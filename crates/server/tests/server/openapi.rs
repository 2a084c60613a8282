//! The checked-in OpenAPI document is the one that the handlers generate.

use std::path::Path;

/// Set to 1 to write the document instead of comparing it.
const BLESS: &str = "BLESS";

#[test]
fn the_checked_in_document_is_not_stale() {
    let generated = hindsight_server::openapi_json();
    if std::env::var(BLESS).is_ok_and(|value| value == "1") {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/openapi.json");
        std::fs::write(path, generated).expect("write crates/api/openapi.json");
        return;
    }
    assert!(
        generated == api::OPENAPI_JSON,
        "crates/api/openapi.json is stale: run BLESS=1 cargo test -p hindsight-server openapi"
    );
}

#[test]
fn every_path_of_the_contract_is_described() {
    let document: serde_json::Value =
        serde_json::from_str(&hindsight_server::openapi_json()).expect("JSON");
    assert_eq!(document["openapi"], "3.1.0");
    for (path, methods) in [
        ("/api/v1/volumes", &["get", "post"][..]),
        ("/api/v1/volumes/{volume}", &["get", "patch", "delete"]),
        ("/api/v1/imports", &["post"]),
        ("/api/v1/volumes/{volume}/resolve", &["get"]),
        ("/api/v1/volumes/{volume}/history", &["get"]),
        ("/api/v1/volumes/{volume}/timeline", &["get"]),
        ("/api/v1/volumes/{volume}/heat", &["get"]),
        ("/api/v1/server", &["get"]),
        ("/api/v1/volumes/{volume}/revert", &["post"]),
        ("/api/v1/volumes/{volume}/clones", &["post"]),
        ("/api/v1/trash", &["get"]),
        ("/api/v1/trash/{id}", &["delete"]),
        ("/api/v1/trash/{id}/undelete", &["post"]),
        ("/api/v1/groups/{group}/resolve", &["get"]),
        ("/api/v1/groups/{group}/revert", &["post"]),
        ("/api/v1/groups/{group}/clones", &["post"]),
        ("/api/v1/volumes/{volume}/versions", &["get", "post", "delete"]),
        ("/api/v1/volumes/{volume}/versions/{number}", &["get", "delete"]),
        ("/api/v1/volumes/{volume}/marks", &["get", "post", "delete"]),
        ("/api/v1/volumes/{volume}/diff", &["get"]),
        ("/api/v1/volumes/{volume}/schedule", &["get", "put", "delete"]),
        ("/api/v1/volumes/{volume}/retention", &["get", "post"]),
        ("/api/v1/schedules", &["get"]),
        ("/api/v1/groups", &["get", "post"]),
        ("/api/v1/groups/{group}", &["get", "delete"]),
        ("/api/v1/groups/{group}/versions", &["get", "post", "delete"]),
        ("/api/v1/pool", &["get"]),
        ("/api/v1/audit", &["get"]),
        ("/metrics", &["get"]),
        ("/healthz", &["get"]),
        ("/readyz", &["get"]),
    ] {
        for method in methods {
            assert!(document["paths"][path][method].is_object(), "{method} {path}");
        }
    }
}
