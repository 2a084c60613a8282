//! The OpenAPI document: what the handlers generate, and what every operation of the API shares.
//!
//! The second part is made here from the code's own tables, so that it cannot be forgotten for one
//! operation: unique ids, problems that any request can meet, what names, moments, sizes and spans
//! look like, and how far integers go.

use api::{PROBLEM_MEDIA_TYPE, ProblemKind};
use serde_json::{Map, Value, json};

use super::context::PAGE_ENTRIES;

const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$";
const SIZE: &str = "^[0-9]{1,4}([.][0-9]{1,3})?([KMGT](iB)?)?$";
const GRANULARITY: &str = "^(every-write|on-demand|[1-9][0-9]{0,3}(s|min|h))$";
const MOMENT: &str = concat!(
    "^(latest|(seq|v):[0-9]{1,14}|(mark:)?[A-Za-z][A-Za-z0-9._-]{0,120}|-[0-9]{1,4}(ms|s|min|h|d)|",
    "20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]",
    "([.][0-9]{1,9})?(Z|[+-](0[0-9]|1[0-3]):[0-5][0-9]))$"
);

/// Patterns of texts in requests, by the names of fields and parameters. A pattern may be narrower
/// than the server's: it is for makers of requests.
const PATTERNS: &[(&[&str], &str)] = &[
    (
        &[
            "name",
            "volume",
            "share",
            "to_volume",
            "to_share",
            "group",
            "like",
            "mark",
            "token",
            "hook",
            "prove",
            "user",
        ],
        NAME,
    ),
    (&["network"], "^10[.][1-9]?[0-9][.][1-9]?[0-9][.][1-9]?[0-9]([/](3[0-2]|[12]?[0-9]))?$"),
    (&["initiator"], "^(iqn|eui|naa)[.][a-z0-9.:-]{1,200}$"),
    (&["secret"], "^[A-Za-z0-9._-]{12,16}$"),
    (&["at", "from", "to", "since", "until"], MOMENT),
    (
        &["next"],
        "^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T[01][0-9]:[0-5][0-9]:[0-5][0-9]Z$",
    ),
    (&["step", "for"], "^[1-9][0-9]{0,3}(s|min|h)$"),
    (&["window"], "^[1-9][0-9]{0,3}(s|min|h|d)$"),
    (&["cache", "history_limit"], SIZE),
    (&["limit"], "^[1-9][0-9]{0,2}[MG]iB$"),
    (&["cron"], "^[0-5]?[0-9] ([01]?[0-9]|[*]) [*] [*] [*]$"),
];

/// Values of texts of requests, by their names.
const WORDS: &[(&str, &[&str])] = &[
    ("encoding", &["raw", "delta", "xor"]),
    ("format", &["raw"]),
    ("metadata", &["stable", "server"]),
    ("squash", &["none", "root", "all"]),
    ("past", &["none", "root", "all"]),
    (
        "architecture",
        &[
            "logging",
            "split-stream",
            "split-downstream",
            "redirect",
            "checkpointing",
            "hybrid",
            "auto",
        ],
    ),
];

/// Bounds of integers and numbers of requests, by their names.
const BOUNDS: &[(&str, u64, u64)] = &[
    ("limit", 1, PAGE_ENTRIES as u64),
    ("cache_dirty_percent", 1, 100),
    ("dirty", 1, 100),
    ("points", 1, 4000),
    ("cells", 1, 16_384),
    ("last", 0, u32::MAX as u64),
    ("hourly", 0, u32::MAX as u64),
    ("daily", 0, u32::MAX as u64),
    ("weekly", 0, u32::MAX as u64),
    ("monthly", 0, u32::MAX as u64),
    ("yearly", 0, u32::MAX as u64),
    ("lun", 0, LUN_MAX),
    ("remove", 0, LUN_MAX),
];
const LUN_MAX: u64 = 16_383;

/// Bodies that have to name something.
const CHANGES: &[&str] = &[
    "ChangeGroup",
    "ChangeMadeTarget",
    "ChangePool",
    "ChangeShare",
    "ChangeTarget",
    "ChangeVolume",
    "SetSchedule",
];
/// Fields of those whose null says something; another field that is null is as one left out.
const NULLS: &[&str] =
    &["chap", "history_limit", "hook", "mutual", "prove", "rebuild_rate", "scrub_rate"];

/// Problems that any request can meet.
const ALWAYS: &[ProblemKind] = &[
    ProblemKind::Malformed,
    ProblemKind::Unauthorized,
    ProblemKind::Forbidden,
    ProblemKind::TooMany,
    ProblemKind::Internal,
    ProblemKind::Stopping,
];
/// Problems of those with a body.
const OF_BODIES: &[ProblemKind] = &[
    ProblemKind::TooSlow,
    ProblemKind::TooLarge,
    ProblemKind::MediaType,
    ProblemKind::Invalid,
    ProblemKind::Full,
];

/// Completes what the handlers generated.
pub(super) fn complete(mut document: Value) -> Value {
    document["servers"] = json!([{"url": "/", "description": "This server"}]);
    document["security"] = json!([{"token": []}]);
    document["components"]["securitySchemes"] = json!({"token": {
        "type": "http", "scheme": "bearer",
        "description": "A token, or the pool's own, over TCP. The unix socket asks for none.",
    }});
    let tags = [
        "groups",
        "health",
        "history",
        "jobs",
        "marks",
        "pool",
        "schedules",
        "shares",
        "tokens",
        "versions",
    ];
    let tag = |name: &str| json!({"name": name, "description": format!("All about {name}.")});
    document["tags"] = tags.into_iter().chain(["volumes"]).map(tag).collect();
    each(&mut document["paths"], |path, methods| {
        each(methods, |method, operation| complete_operation(path, method, operation));
    });
    each(&mut document["components"]["schemas"], |name, schema| {
        bound_integers(schema);
        // Unknown fields are refused in bodies, and in nothing else.
        if schema["additionalProperties"] == false {
            if CHANGES.contains(&name) {
                schema["minProperties"] = json!(1);
                each(&mut schema["properties"], |field, schema| {
                    if !NULLS.contains(&field) {
                        refuse_null(schema);
                    }
                });
            }
            each(&mut schema["properties"], narrow);
        }
    });
    document
}

fn each(object: &mut Value, mut work: impl FnMut(&str, &mut Value)) {
    let fields = object.as_object_mut().map(Map::iter_mut).into_iter().flatten();
    fields.for_each(|(name, value)| work(name, value));
}

fn complete_operation(path: &str, method: &str, operation: &mut Value) {
    let place = path.trim_start_matches(api::API_PREFIX).replace(['{', '}'], "");
    operation["operationId"] = json!(format!("{method}{}", place.replace(['/', '-'], "_")));
    let has_body = operation["requestBody"].is_object();
    let is_open = path.ends_with("z");
    let named = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let told = operation["parameters"].as_array().cloned().unwrap_or_default();
    let is_told = |name: &&str| told.iter().any(|parameter| parameter["name"] == *name);
    let mut parameters: Vec<Value> = named.filter(|name| !is_told(name)).map(of_path).collect();
    parameters.extend(told);
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    // An index would make what is not there.
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap_or_default().to_owned();
        bound_integers(&mut parameter["schema"]);
        narrow(&name, &mut parameter["schema"]);
        if name == "limit" && path.ends_with("/diff") {
            parameter["schema"]["maximum"] = json!(super::history::RANGES_MAX);
        }
    }
    // A body that may be left out is none that may be null.
    let json = "/requestBody/content/application~1json/schema";
    if let Some(schema) = operation.pointer_mut(json) {
        let mut one = schema["oneOf"].as_array().into_iter().flatten();
        if let Some(one) = one.rfind(|one| one["$ref"].is_string()).cloned() {
            *schema = one;
        }
    }
    let archive = "/requestBody/content/application~1x-tar/schema";
    if let Some(schema) = operation.pointer_mut(archive) {
        *schema = json!({ "type": "string", "format": "binary" });
    }
    if is_open {
        operation["security"] = json!([]);
    }
    let changes = method != "get";
    let mut kinds: Vec<ProblemKind> = if is_open { Vec::new() } else { ALWAYS.to_vec() };
    kinds.extend(OF_BODIES.iter().filter(|_| has_body));
    kinds.extend(
        changes.then_some([ProblemKind::Busy, ProblemKind::RefusingWrites]).iter().flatten(),
    );
    kinds.extend(path.contains('{').then_some(ProblemKind::NotFound));
    for kind in kinds {
        let answer = &mut operation["responses"][kind.status().to_string()];
        if answer.is_null() {
            *answer = json!({});
        }
    }
    each(&mut operation["responses"], |status, answer| {
        if answer["description"].as_str().unwrap_or_default().is_empty() {
            answer["description"] = json!(meaning(status));
        }
        // Handlers say of a failure only when it is met: all are told alike.
        if status >= "400" && answer["content"].is_null() {
            let schema = json!({"$ref": "#/components/schemas/Problem"});
            answer["content"] = json!({PROBLEM_MEDIA_TYPE: {"schema": schema}});
        }
    });
}

/// The parameter of a path that is named so.
fn of_path(name: &str) -> Value {
    let integer = json!({"type": "integer", "format": "int64", "minimum": 0});
    let (description, schema) = match name {
        "id" => ("Number of the deleted volume".to_owned(), integer),
        "number" => ("Number of the version".to_owned(), integer),
        name => (format!("Name of the {name}"), json!({"type": "string"})),
    };
    let (place, required) = ("path", true);
    json!({"name": name, "in": place, "required": required, "description": description,
           "schema": schema})
}

/// The meaning of a status, if the handler does not say more.
fn meaning(status: &str) -> String {
    let of_status = |kind: &&ProblemKind| kind.status().to_string() == status;
    let mut titles: Vec<&str> =
        ProblemKind::ALL.iter().filter(of_status).map(|kind| kind.title()).collect();
    titles.dedup();
    match status {
        "200" => "Done".to_owned(),
        "201" => "Made".to_owned(),
        "202" => "Begun".to_owned(),
        "204" => "Done; there is nothing to say".to_owned(),
        _ => titles.join("; or: "),
    }
}

/// The largest values of integers, and no format that says another.
fn bound_integers(schema: &mut Value) {
    let largest = match schema["format"].as_str() {
        Some("int64") if schema["minimum"] == 0 => Some(("uint64", u64::MAX)),
        Some("int32") if schema["minimum"] == 0 => Some(("uint32", u64::from(u32::MAX))),
        _ => None,
    };
    if let Some((format, maximum)) = largest {
        schema["format"] = json!(format);
        schema["maximum"] = json!(maximum);
    }
    match schema {
        Value::Object(fields) => fields.values_mut().for_each(bound_integers),
        Value::Array(all) => all.iter_mut().for_each(bound_integers),
        _ => {}
    }
}

/// Takes null out of what a field may be.
fn refuse_null(schema: &mut Value) {
    if let Some(kinds) = schema.get_mut("type").and_then(Value::as_array_mut) {
        kinds.retain(|kind| kind != "null");
    }
    if let Some(of) = schema.get_mut("oneOf").and_then(Value::as_array_mut) {
        of.retain(|one| one["type"] != "null");
    }
}

/// Says of a field or parameter of this name what its values look like.
fn narrow(name: &str, schema: &mut Value) {
    let is = |schema: &Value, kind: &str| match &schema["type"] {
        Value::String(only) => only == kind,
        Value::Array(kinds) => kinds.iter().any(|one| one == kind),
        _ => false,
    };
    if is(schema, "array") {
        let is_pattern = schema["items"]["$ref"] == "#/components/schemas/Pattern";
        // No names of initiators, and no patterns, are all of them.
        schema["minItems"] = json!(u8::from(name != "allow" && !is_pattern));
        schema["maxItems"] = json!(if is_pattern { 64 } else { 256 });
        let item = match name {
            "allow" => "initiator",
            _ if is(&schema["items"], "integer") => name,
            _ => "name",
        };
        return narrow(item, &mut schema["items"]);
    }
    if is(schema, "integer") || is(schema, "number") {
        if let Some((_, least, most)) = BOUNDS.iter().find(|(known, ..)| *known == name) {
            schema["minimum"] = json!(least);
            schema["maximum"] = json!(most);
        }
        return;
    }
    if !is(schema, "string") {
        return;
    }
    let is_nullable = is(schema, "null");
    if let Some((_, words)) = WORDS.iter().find(|(known, _)| *known == name) {
        let words = words.iter().map(|word| json!(word));
        schema["enum"] = words.chain(is_nullable.then_some(Value::Null)).collect();
    } else if name == "granularity" {
        schema["pattern"] = json!(GRANULARITY);
    } else if name == "label" {
        schema["maxLength"] = json!(1024);
    } else if !schema["pattern"].is_null() {
        // It has its own.
    } else if let Some((_, pattern)) = PATTERNS.iter().find(|(names, _)| names.contains(&name)) {
        schema["pattern"] = json!(pattern);
    }
}

#[cfg(test)]
mod tests {
    use units::{Granularity, Moment, Size, Span};

    use super::super::router::api_document;
    use super::{GRANULARITY, MOMENT, NAME, SIZE};

    #[test]
    fn every_operation_has_an_id_of_its_own_and_says_what_every_status_means() {
        let document = api_document();
        let mut ids = std::collections::BTreeSet::new();
        let paths = document["paths"].as_object().expect("paths");
        for (path, methods) in paths {
            for (method, operation) in methods.as_object().expect("methods") {
                let id = operation["operationId"].as_str().expect("an id");
                assert!(ids.insert(id.to_owned()), "{id} twice");
                let summary = operation["summary"].as_str().unwrap_or_default();
                assert!(!summary.is_empty(), "{method} {path}");
                for (status, answer) in operation["responses"].as_object().expect("answers") {
                    let text = answer["description"].as_str().unwrap_or_default();
                    assert!(!text.is_empty(), "{method} {path}: {status}");
                }
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                for parameter in parameters {
                    assert!(parameter["description"].is_string(), "{method} {path}: {parameter}");
                }
            }
        }
    }

    #[test]
    fn texts_at_the_edges_of_the_patterns_are_read() {
        // A regular expression engine is not among the dependencies: these are the edges.
        assert!("9999d".parse::<Span>().is_ok() && "0ms".parse::<Span>().is_ok());
        assert!("9999.999TiB".parse::<Size>().is_ok() && "0.5K".parse::<Size>().is_ok());
        assert!("9999h".parse::<Granularity>().is_ok() && "1s".parse::<Granularity>().is_ok());
        for moment in ["seq:99999999999999", "v:0", "mark:a", "A._-", "-0ms", "-9999d"] {
            assert!(moment.parse::<Moment>().is_ok(), "{moment}");
        }
        assert!("2099-12-28T23:59:59.000000001-13:59".parse::<Moment>().is_ok());
        for pattern in [NAME, SIZE, GRANULARITY, MOMENT] {
            assert!(pattern.starts_with('^') && pattern.ends_with('$'));
        }
    }
}
